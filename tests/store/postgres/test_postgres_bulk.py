"""Memories that are inserted together leave the rows that one after the other would leave."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

from contract.builders import (
    EMBEDDER,
    NOW,
    OTHER_EMBEDDER,
    about,
    change,
    indexed,
    record,
    unit,
    words_search,
)
from meritory.domain.errors import InputError
from meritory.domain.memory import Scope, Source
from meritory.domain.place import Place
from meritory.store import open_store
from meritory.store.contract.memories import Indexed, MemoryChange
from meritory.store.contract.store import Store, Transaction
from meritory.store.postgres.schema import TENANT_TABLES
from meritory.store.postgres.store import PostgresStore
from migrate_kit import all_rows
from postgres_kit import Server

CHUNK_ROWS = 7
Arrival = tuple[Indexed, MemoryChange | None]


def arrivals(count: int, first: int = 1) -> list[Arrival]:
    """Memories of every kind: without words, with long ones, retired, about things."""
    chance = np.random.default_rng(first)
    found: list[Arrival] = []
    for number in range(first, first + count):
        fields: dict[str, Any] = {
            "project": ("shop", None)[number % 2],
            "sources": (Source(session_key=f"s{number // 5}", turn=f"t{number % 5}"),),
            "tags": ("release notes", "Über-Größe")[: number % 3],
            "pinned": number % 9 == 0,
            "access_count": number % 4,
            "last_accessed": NOW if number % 4 else None,
        }
        if number % 8 == 0:
            fields["superseded_by"] = record(number - 1).id
        if number % 10 == 0:
            fields["deleted_at"] = NOW
        text = f"Deploy {number} ran, deploy ran again: 'quoted' \\ {{x}} naïve façade №{number}"
        if number % 6 == 0:
            text += " ... " + "word " * 40 + "y" * 300
        vectors = {EMBEDDER.name: unit(*chance.normal(0.0, 1.0, 4)), "retired": unit(1.0)}
        if number % 5 == 0:
            vectors[EMBEDDER.name] = np.zeros(4, np.float32)
            vectors[OTHER_EMBEDDER.name] = unit(0.5, 0.2, 0.1)
        if number % 7 == 0:
            vectors = {}
        # Under the same key, but not always spelled alike.
        place = "Shop" if number < 10 else "Depot"
        spelled = (place, place.upper(), place.lower())[number % 3]
        price, stock, shop = (
            replace(about(place, aspect, is_stated=aspect == "price"), name=spelled)
            for aspect in ("price", "stock", "fact")
        )
        topics = (about(f"topic {number % 4}"), price)
        found.append(
            (
                indexed(
                    record(number, "?" if number == 3 else text, **fields),
                    vectors=vectors,
                    # The same one twice, and one with two aspects.
                    attributes=(*topics, topics[0], stock)[: number % 5],
                    depends_on=((shop, about(f"supplier {number % 3}")),)[: number % 2],
                ),
                None if number % 11 == 0 else change(operation=f"op {number}", why="moved"),
            )
        )
    return found


@pytest.fixture
def addresses(postgres: Server) -> Iterator[tuple[str, str]]:
    pair = postgres.fresh(), postgres.fresh()
    yield pair
    for address in pair:
        postgres.give_back(address)


def rows_of(address: str) -> dict[str, list[tuple[Any, ...]]]:
    """All that is stored for tenants; numbers from a common sequence begin at one."""
    found = {}
    with psycopg.connect(address) as connection:
        for table in TENANT_TABLES:
            rows = connection.execute(f'SELECT t::text FROM meritory."{table}" t ORDER BY 1')  # type: ignore[arg-type]
            found[table] = rows.fetchall()
    return found


def reset_numbers(address: str) -> None:
    """Databases that were used before go on counting; here both begin anew."""
    with psycopg.connect(address, autocommit=True) as connection:
        for table, column in (
            ("scopes", "scope"),
            ("embedders", "embedder"),
            ("memory_history", "entry"),
            ("entities", "entity"),
            ("aspects", "aspect"),
        ):
            statement = f"ALTER TABLE meritory.{table} ALTER COLUMN {column} RESTART WITH 1"
            connection.execute(statement)  # type: ignore[arg-type]


def test_the_same_rows_in_every_table(addresses: tuple[str, str], tmp_path: Path) -> None:
    taken = arrivals(45)
    file = Place(file=tmp_path / "singly.db")
    places = (Place(url=addresses[0]), Place(url=addresses[1]), file)
    for place in places:
        if place.url:
            reset_numbers(place.url)
        store = open_store(place)
        for embedder in (EMBEDDER, OTHER_EMBEDDER):
            store.register_embedder(embedder)
        # The first are there already: numbers go on, known entities are found again.
        for chunk in (taken[:9], *(taken[i : i + CHUNK_ROWS] for i in range(9, 45, CHUNK_ROWS))):
            insert(store, chunk, is_alone=place.url == addresses[0])
        store.close()
    # A file inserts every memory by statements of its own.
    assert all_rows(places[1], "default") == all_rows(file, "default")
    singly, together = (rows_of(address) for address in addresses)
    filled = {table for table, rows in singly.items() if rows}
    assert filled >= {
        *("tenants", "scopes", "memories", "memory_stats", "memory_vectors", "memory_terms"),
        *("memory_history", "entities", "aspects", "attributes", "dependencies"),
    }
    for table, rows in singly.items():
        assert together[table] == rows, table


def insert(store: Store, taken: list[Arrival], *, is_alone: bool = False) -> None:
    """Insert memories in one transaction; with a read after each, so that none are together."""

    def work(transaction: Transaction) -> None:
        for memory, note in taken:
            transaction.insert(memory, note)
            if is_alone:
                assert transaction.has("default", memory.record.id)

    store.write("default", work)


def test_what_was_taken_in_is_found_and_can_be_changed(addresses: tuple[str, str]) -> None:
    store = PostgresStore(addresses[0])
    store.register_embedder(EMBEDDER)
    insert(store, arrivals(20))
    found = store.search(words_search(Scope(), "deploy"))
    assert len(found.rows) == 10
    assert store.check(deep=True) == []
    store.write("default", lambda transaction: transaction.purge("default", record(1).id))
    left = store.search(words_search(Scope(), "deploy"))
    assert set(found.rows.tolist()) - set(left.rows.tolist()) >= {1} and len(left.rows)
    store.close()


def test_a_chunk_is_stored_whole_or_not_at_all(addresses: tuple[str, str]) -> None:
    store = PostgresStore(addresses[0])
    store.register_embedder(EMBEDDER)
    taken = arrivals(10)
    twice: list[Arrival] = [*taken, taken[0]]
    before = rows_of(addresses[0])
    with pytest.raises(Exception, match="memories_user_id_key"):
        insert(store, twice)
    after = rows_of(addresses[0])
    assert after == before
    store.close()


def test_very_much_at_once_goes_through_after_other_changes(addresses: tuple[str, str]) -> None:
    """A message of a megabyte, sent without waiting, would never be answered."""
    store = PostgresStore(addresses[0])
    first, *others = arrivals(30)
    long: list[Arrival] = [
        (indexed(replace(memory.record, content="many words " * 6_000)), note)
        for memory, note in others
    ]

    def work(transaction: Transaction) -> None:
        for memory, note in (first, *long):
            transaction.insert(memory, note)
        transaction.count("default", "taken in", len(long))

    store.write("default", work)
    assert store.counters("default") == {"taken in": len(long)}
    assert store.memories("default", [record(30).id])[record(30).id].content.startswith("many")
    store.close()


def test_a_text_that_cannot_be_stored_is_named_as_such(addresses: tuple[str, str]) -> None:
    store = PostgresStore(addresses[0])
    with pytest.raises(InputError, match="NUL"):
        insert(store, [(indexed(record(1, "half\0a text")), None)])
    assert store.users() == []
    store.close()


def test_only_one_tenant_at_a_time(addresses: tuple[str, str]) -> None:
    store = PostgresStore(addresses[0])
    one: Indexed = indexed(record(1))
    other = indexed(record(2, user="somebody"))
    with pytest.raises(InputError, match="one user"):
        insert(store, [(one, None), (other, None)])
    assert store.users() == []
    store.close()
