"""Damage of single bytes in a SQLite store: how much of it is noticed, how much repaired.

Half of the changes are bytes of the file, spread evenly over the tables; those that change nothing
that can be read are not counted. The others are bytes of stored values, changed by SQL behind the
checksum's back. The control ignores the checksums and the full-text check.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import sqlite3
import struct
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.authority import Report, Size
from meritory.api.memory import Memory
from meritory.domain.errors import MeritoryError
from meritory.engine.memories.repair import repair
from meritory.settings import load_settings
from meritory.store.sql.tables import SqlColumn, SqlTable
from meritory.store.sqlite.schema import STORED_TABLES, add_functions
from meritory.store.sqlite.store import SqliteStore

_CHANGES = {"small": 20, "full": 2_000}
_NOTICED_MIN = 0.99
_TABLES_MIN_SMALL = 10
# Without checksums most damage goes unnoticed.
_CONTROL_MIN = 0.5
_OWN_WORDS = ("checksum", "full-text index", "sqlite_sequence")
_FULL_TEXT = ("memories_fts_data", "memories_fts_idx", "memories_fts_docsize")
_TOPICS = ("harbour", "billing", "search", "login", "queue", "report", "backup", "parser")
# A repair counts up a number in `meta` and drops embedders that do not serve; entities, vectors
# and full-text segments may be stored in another order.
_VOLATILE = frozenset(
    {"meta", "embedders", "entities", "aspects", "attributes", "memory_vectors", *_FULL_TEXT}
)
Reading = dict[str, object]


@dataclass(slots=True)
class Tally:
    """What became of the changes."""

    changed: Counter[str]
    noticed: Counter[str]
    repairable: Counter[str]
    repaired: Counter[str]
    unnoticed_by_control: int = 0


class DamageRun:
    """One sound store, and copies of it with one byte changed."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self._folder, self._chance = folder, chance
        self._number = 0
        path = folder / "sound.db"
        build(path)
        self._original = path.read_bytes()
        self._sound = read_all(path)
        with contextlib.closing(sqlite3.connect(path)) as raw:
            (self._page_bytes,) = raw.execute("PRAGMA page_size").fetchone()
            names = [*(table.name for table in STORED_TABLES), *_FULL_TEXT]
            self._pages = {
                name: [
                    page
                    for (page,) in raw.execute("SELECT pageno FROM dbstat WHERE name = ?", (name,))
                ]
                for name in names
            }

    def copy(self, content: bytes) -> Path:
        """Return a new file with this content."""
        self._number += 1
        path = self._folder / f"{self._number}.db"
        path.write_bytes(content)
        return path

    def flips(self) -> Iterator[tuple[str, bytes]]:
        """Yield files with one byte changed that read differently, with the table that was hit."""
        names = list(self._pages)
        while True:
            name = self._chance.choice(names)
            start = (self._chance.choice(self._pages[name]) - 1) * self._page_bytes
            changed = bytearray(self._original)
            changed[start + self._chance.randrange(self._page_bytes)] ^= self._chance.randint(
                1, 255
            )
            path = self.copy(bytes(changed))
            is_other = read_all(path) != self._sound
            remove(path)
            if is_other:
                yield name, bytes(changed)

    def edits(self) -> Iterator[tuple[str, bytes]]:
        """Yield files with one byte of a value changed by a program that knows no checksums."""
        while True:
            table = self._chance.choice(STORED_TABLES)
            column = self._chance.choice(table.columns)
            path = self.copy(self._original)
            is_edited = edit(path, table, column, self._chance)
            content = path.read_bytes()
            is_other = is_edited and read_all(path) != self._sound
            remove(path)
            if is_other:
                yield table.name, content

    def judge(self, name: str, content: bytes, tally: Tally) -> None:
        """Count whether a damaged file is noticed and whether it is repaired."""
        path = self.copy(content)
        found = findings(path)
        remove(path)
        tally.changed[name] += 1
        tally.noticed[name] += bool(found)
        by_control = [text for text in found if not any(word in text for word in _OWN_WORDS)]
        tally.unnoticed_by_control += not by_control
        path = self.copy(content)
        if found and has_sound_structure(path):
            tally.repairable[name] += 1
            tally.repaired[name] += self._is_repaired(path, name)
        remove(path)

    def _is_repaired(self, path: Path, name: str) -> bool:
        try:
            with opened(path) as memory:
                repair(memory.services, lambda done, total: None)
        except MeritoryError:
            return False
        if findings(path):
            return False
        return name in _VOLATILE or read_all(path)[name] == self._sound[name]


def measure(size: Size) -> Report:
    """Return how much damage is noticed and repaired, with the control."""
    report = Report("damage")
    tally = Tally(Counter(), Counter(), Counter(), Counter())
    count = _CHANGES[size]
    with tempfile.TemporaryDirectory(prefix="meritory-damage-") as folder:
        run = DamageRun(Path(folder), random.Random(20))
        for kind in (run.flips(), run.edits()):
            for name, content in itertools.islice(kind, count // 2):
                run.judge(name, content, tally)
    total = tally.changed.total()
    tables_min = len(STORED_TABLES) if size == "full" else _TABLES_MIN_SMALL
    report.at_least("changes of one byte that alter what is read", total, count)
    report.at_least("tables with such a change", len(tally.changed), tables_min)
    report.at_least(
        "share noticed by the deep check",
        tally.noticed.total() / total,
        _NOTICED_MIN,
        _lacking(tally.changed, tally.noticed),
    )
    report.at_least(
        "share repaired where the file's structure is sound",
        tally.repaired.total() / tally.repairable.total(),
        1.0,
        f"of {tally.repairable.total()} {_lacking(tally.repairable, tally.repaired)}".rstrip(),
    )
    report.at_least(
        "control: share unnoticed without checksums",
        tally.unnoticed_by_control / total,
        _CONTROL_MIN,
    )
    return report


def _lacking(wanted: Counter[str], found: Counter[str]) -> str:
    """Return by table how many were not found, or nothing."""
    return ", ".join(f"{name} {many}" for name, many in (wanted - found).items())


# -- stores ------------------------------------------------------------------------------------


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Memory]:
    """Open a store with default settings."""
    settings = load_settings(path.parent, {})
    with Memory(path, settings=settings, background=False) as memory:
        yield memory


def build(path: Path) -> None:
    """Create a store with memories, sessions and some rows in every other table."""
    with opened(path) as memory:
        items = [
            {
                "content": f"The {topic} service of team {n} listens on port {4000 + n}",
                "about": [f"service:{topic}"],
                "tags": [topic],
                "on_similar": "keep",
            }
            for n, topic in enumerate(_TOPICS * 4)
        ]
        ids = [result.memory.id for result in memory.remember_many(items) if result.memory]
        memory.forget(ids[-1])
        memory.update(ids[0], content="The harbour service moved to port 5000")
        for n in range(6):
            session = memory.session(f"run-{n}", None, f"fix the {_TOPICS[n]} service")
            session.end(used={ids[n]: 1.0, ids[n + 1]: 0.5})
        memory.drain()
    with contextlib.closing(sqlite3.connect(path)) as raw, raw:
        add_functions(raw)
        for table in STORED_TABLES:
            if raw.execute(f"SELECT count(*) FROM {table.name}").fetchone()[0] < 2:
                _add_rows(raw, table)
    with opened(path) as memory:
        damage = memory.services.store.check(deep=True)
        if damage:
            raise RuntimeError(f"the store of the benchmark is not sound: {damage[0]}")


def _add_rows(raw: sqlite3.Connection, table: SqlTable) -> None:
    (first,) = raw.execute(f"SELECT count(*) FROM {table.name}").fetchone()
    names = ", ".join(column.name for column in table.columns)
    marks = ", ".join("?" for _ in table.columns)
    for n in range(first + 1, first + 5):
        values = [_made_up(table, column, n) for column in table.columns]
        raw.execute(f"INSERT INTO {table.name} ({names}) VALUES ({marks})", values)


def _made_up(table: SqlTable, column: SqlColumn, n: int) -> object:
    if column.name == "user":
        return "default" if "user" not in table.key or len(table.key) > 1 else f"user {n}"
    if column.type == "INTEGER":
        return n
    texts = {"REAL": n + 1 / 3, "BLOB": bytes(range(n, n + 40))}
    return texts.get(column.type, f"{column.name} number {n} of the table {table.name}")


def read_all(path: Path) -> Reading:
    """Return everything that can be read from a store, by table; an error in place of a table."""
    found: Reading = {}
    with contextlib.closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as raw:
        raw.text_factory = bytes
        statements = {
            table.name: "SELECT {} FROM {}".format(
                ", ".join(column.name for column in table.columns if column.name != "change"),
                table.name,
            )
            for table in STORED_TABLES
        }
        statements |= {name: f"SELECT * FROM {name}" for name in (*_FULL_TEXT, "sqlite_sequence")}
        for name, statement in statements.items():
            try:
                found[name] = sorted(map(repr, raw.execute(statement)))
            except sqlite3.DatabaseError as error:
                found[name] = str(error)
    return found


def edit(path: Path, table: SqlTable, column: SqlColumn, chance: random.Random) -> bool:
    """Change one byte of one value without its checksum; return whether that was possible."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("PRAGMA journal_mode = DELETE")
        form = f"CAST({column.name} AS BLOB)" if column.type == "TEXT" else column.name
        key = ", ".join(table.key)
        rows = raw.execute(f"SELECT {key}, {form}, checksum FROM {table.name}").fetchall()
        *where, value, checksum = chance.choice(rows)
        changed = _changed(value, chance)
        if changed is None:
            return False
        raw.create_function("row_checksum", -1, lambda *_: checksum, deterministic=True)
        # Triggers would carry the change into the full-text index.
        triggers = raw.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall()
        for name, _ in triggers:
            raw.execute(f"DROP TRIGGER {name}")
        cast = "CAST(? AS TEXT)" if column.type == "TEXT" else "?"
        with contextlib.suppress(sqlite3.IntegrityError):
            raw.execute(
                f"UPDATE {table.name} SET {column.name} = {cast} WHERE "
                + " AND ".join(f"{name} = ?" for name in table.key),
                (changed, *where),
            )
        for _, sql in triggers:
            raw.execute(sql)
        return True


def _changed(value: Any, chance: random.Random) -> Any:
    if isinstance(value, bytes) and value:
        at = chance.randrange(len(value))
        return value[:at] + bytes((value[at] ^ chance.randint(1, 255),)) + value[at + 1 :]
    if isinstance(value, int):
        return value ^ (1 << chance.randrange(6))
    if isinstance(value, float):
        return struct.unpack(">d", _changed(struct.pack(">d", value), chance))[0]
    return None


def findings(path: Path) -> list[str]:
    """Return the findings of the deep check, or the error that refuses the store."""
    try:
        with contextlib.closing(SqliteStore(path)) as store:
            return store.check(deep=True)
    except MeritoryError as error:
        return [error.message]


def has_sound_structure(path: Path) -> bool:
    """Return whether SQLite itself finds nothing wrong, so that every row can be read."""
    try:
        with contextlib.closing(sqlite3.connect(path)) as raw:
            return raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    except sqlite3.DatabaseError:
        return False


def remove(path: Path) -> None:
    """Delete a copy with its side files."""
    for file in path.parent.glob(f"{path.name}*"):
        if file.is_file():
            file.unlink()
