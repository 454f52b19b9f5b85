"""What tests of moving stores have in common: stores with something in every table."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from psycopg import sql

from learning_kit import Clock, lived, noted, shelved
from meritory.api.memory import Memory
from meritory.domain.place import Place
from meritory.engine.rules.book import propose
from meritory.engine.transfer.backup import ModelFiles
from meritory.engine.transfer.migrate import MigrationReport, MigrationRequest, move
from meritory.settings import load_settings
from meritory.store.migrate.endpoint import GIVEN, MODELS, TABLES, VECTORS, Endpoint, Row, TablePart
from meritory.store.migrate.postgres_endpoint import PostgresEndpoint
from meritory.store.migrate.sqlite_endpoint import SqliteEndpoint
from meritory.store.sql.mapper import encode_vector
from meritory.store.sql.tables import BY_NAME, SqlTable
from meritory.store.sqlite.store import SqliteStore
from places import open_raw

EVERYBODY = MigrationRequest()


def silent(done: int, total: int) -> None:
    """Nobody looks."""


@contextlib.contextmanager
def side(place: Place, *, is_target: bool = False) -> Iterator[Endpoint]:
    """One side of a move."""
    opened: Endpoint
    if place.file is not None:
        opened = SqliteEndpoint(place.file, ModelFiles(place.file), is_target=is_target)
    else:
        opened = PostgresEndpoint(place)
    try:
        yield opened
    finally:
        opened.close()


def moved(
    source: Place, target: Place, wish: MigrationRequest = EVERYBODY, watch: Any = silent
) -> MigrationReport:
    """Moves a store."""
    with side(source) as one, side(target, is_target=True) as other:
        return move(one, other, wish, watch)


def all_rows(place: Place, user: str) -> dict[str, list[Row]]:
    """Every row of a user by table, as a move reads them; vectors by their embedder's name."""
    with side(place) as opened, opened.reading() as reading:
        found = {
            table.name: list(reading.rows(user, TablePart(table)))
            for table in TABLES
            if table is not VECTORS
        }
        for one in reading.embedders():
            rows = reading.rows(user, TablePart(VECTORS, (one.name, one.number)))
            found[f"vectors of {one.name}"] = [row[1:] for row in rows]
    return found


def made(path: Path, *users: str) -> Place:
    """A file with made-up rows in every table."""
    SqliteStore(path).close()
    for user in users:
        fill(path, user, everywhere=True)
    return Place(file=path)


def lived_in(path: Path, user: str = "default") -> None:
    """A store with real sessions, reports, rules and models of one user."""
    clock = Clock()
    settings = load_settings(path.parent, {})
    with Memory(path, user=user, clock=clock, settings=settings, background=False) as memory:
        ids = noted(memory)
        # Reports are gone over when they come.
        for _ in range(2):
            memory.feedback("down", what_went_wrong="It deleted the migrations", tags=["git"])
            clock.go(hours=1)
        memory.feedback("up", memory_ids=ids[:1], what_worked="The port was right")
        propose(memory.services, memory.scope, "shell: git push --force", "it overwrites others")
        memory.remember("I think the staging database is called heron")
        memory.remember("The staging database is called heron", project="shop", tags=["naïve ☕"])
        memory.forget(ids[-1])
        memory.update(ids[0], content="The alpha service moved to port 5000")
        lived(memory, clock, ids, 3)
        shelved(memory, 1)
        memory.drain()
    fill(path, user)


def fill(path: Path, user: str, *, everywhere: bool = False) -> None:
    """Puts made-up rows into every table that has none of the user yet, or into every one."""
    with contextlib.closing(open_raw(path)) as raw, raw:
        raw.execute("PRAGMA foreign_keys = ON")
        known = raw.execute("SELECT max(embedder), max(dimension) FROM embedders").fetchone()
        if known[0] is None:
            raw.execute("INSERT INTO embedders VALUES (1, 'made-up', 4, '{}')")
            raw.execute("INSERT INTO meta VALUES ('serving', '1')")
            known = (1, 4)
        for table in TABLES:
            if table is MODELS or (not everywhere and _has_rows(raw, table, user)):
                continue
            names = ", ".join(column.name for column in table.columns)
            places = ", ".join("?" for _ in table.columns)
            for n in range(3 if TablePart(table).key else 1):
                values = [_value(raw, table, column, (user, n, *known)) for column in table.columns]
                raw.execute(f"INSERT INTO {table.name} ({names}) VALUES ({places})", values)


def _has_rows(raw: sqlite3.Connection, table: SqlTable, user: str) -> bool:
    if table.owner is None:
        condition = "user = ?"
    else:
        owner, column = table.owner
        condition = f"{column} IN (SELECT {column} FROM {owner} WHERE user = ?)"
    found = raw.execute(f"SELECT 1 FROM {table.name} WHERE {condition} LIMIT 1", (user,))
    return found.fetchone() is not None


def _value(raw: sqlite3.Connection, table: SqlTable, column: Any, about: tuple[Any, ...]) -> Any:
    user, n, embedder, dimension = about
    giver = table.numbers.get(column.name)
    if column.name == "user":
        return user
    if column.name == "embedder" and table is VECTORS:
        return embedder
    if giver == table.name:
        given = raw.execute(f"SELECT coalesce(max({column.name}), 0) + 1 FROM {giver}")
        return given.fetchone()[0]
    if giver is not None:
        return _known_number(raw, giver, user, n)
    if table is VECTORS:
        vector = np.eye(dimension, dtype=np.float32)[n % dimension]
        return b"" if n == 2 else encode_vector(vector)
    kinds = {
        "INTEGER": n + 1,
        "REAL": n + 1 / 3,
        "TEXT": f"{column.name} {n} ☃ '\"\\\t{{}}",
        "BLOB": bytes(range(256)),
    }
    return kinds[column.type]


def _known_number(raw: sqlite3.Connection, giver: str, user: str, n: int) -> int:
    """A number that a table gave before for this user."""
    column = GIVEN[giver]
    via = BY_NAME[giver].owner
    condition = "user = ?"
    if via is not None:
        condition = f"{via[1]} IN (SELECT {via[1]} FROM {via[0]} WHERE user = ?)"
    asked = f"SELECT {column} FROM {giver} WHERE {condition} ORDER BY {column} LIMIT 1 OFFSET ?"
    return int(raw.execute(asked, (user, n)).fetchone()[0])


def raw_rows(place: Place, statement: str) -> list[Row]:
    """What a database answers to whoever is above its walls."""
    with psycopg.connect(place.url, autocommit=True) as raw:
        found = raw.execute(sql.SQL(statement))
        return found.fetchall() if found.description else []
