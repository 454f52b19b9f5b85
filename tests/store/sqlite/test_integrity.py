"""Damage in a SQLite file: every row is covered, and what follows from other data is repaired."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from contract.builders import EMBEDDER, about, indexed, insert, memory_id, record, unit, update
from meritory.domain.errors import Corrupt
from meritory.store.contract.store import DamagedRow
from meritory.store.sql.tables import BY_NAME, SqlTable
from meritory.store.sqlite import integrity
from meritory.store.sqlite.schema import STORED_TABLES, row_checksum
from meritory.store.sqlite.store import SqliteStore
from migrate_kit import made
from places import open_raw

USER = "default"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with a few memories, vectors and entities."""
    file = tmp_path / "meritory.db"
    with closing(SqliteStore(file)) as store:
        store.register_embedder(EMBEDDER)
        for n in range(6):
            memory = record(n, f"claim {n} about the harbour", tags=("t",))
            vectors = {EMBEDDER.name: unit(1, n, 2, 3)}
            insert(store, indexed(memory, vectors=vectors, attributes=(about(f"topic {n % 3}"),)))
        update(store, record(5), record(5, "claim 5 was rewritten"))
    return file


def change(path: Path, statement: str) -> None:
    """Runs an UPDATE of one row, as a program would that keeps the row's old checksum."""
    table, condition = statement.split()[1], statement.partition(" WHERE ")[2]
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        (old,) = raw.execute(f"SELECT checksum FROM {table} WHERE {condition}").fetchone()
        raw.create_function("row_checksum", -1, lambda *_: old, deterministic=True)
        assert raw.execute(statement).rowcount == 1


def damaged(path: Path) -> list[DamagedRow]:
    with closing(SqliteStore(path)) as store:
        return store.damaged_rows()


def problems(path: Path) -> list[str]:
    with closing(SqliteStore(path)) as store:
        return store.check(deep=True)


def where(table: SqlTable) -> str:
    """The condition of the first row that a table returns."""
    return f"({', '.join(table.key)}) = (SELECT {', '.join(table.key)} FROM {table.name} LIMIT 1)"


@pytest.mark.parametrize("table", STORED_TABLES, ids=lambda table: table.name)
def test_a_change_of_any_column_of_any_table_is_noticed_and_named(
    tmp_path: Path, table: SqlTable
) -> None:
    source = tmp_path / "source.db"
    made(source, "ada")
    assert damaged(source) == []
    content = source.read_bytes()
    for column in table.columns:
        if column.name in table.key or column.references:
            continue
        path = tmp_path / f"{column.name}.db"
        path.write_bytes(content)
        other = {"TEXT": "'?'", "BLOB": "x'07'", "VECTOR": "x'07'"}.get(column.type, "77")
        change(path, f"UPDATE {table.name} SET {column.name} = {other} WHERE {where(table)}")
        (found,) = damaged(path)
        assert found.table == table.name
        assert set(found.key) == set(table.key)


def test_a_changed_key_is_noticed_too(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    made(path, "ada")
    first = where(BY_NAME["session_memories"])
    change(path, f"UPDATE session_memories SET memory_id = 'other' WHERE {first}")
    (found,) = damaged(path)
    assert found.key["memory_id"] == "other"
    assert "memory_id other" in found.key_text


def test_a_file_can_be_read_but_not_written_by_other_programs(path: Path) -> None:
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("SELECT count(*) FROM memories").fetchone() == (6,)
        assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        found = raw.execute("SELECT count(*) FROM memories_fts WHERE memories_fts MATCH 'harbour'")
        assert found.fetchone() == (5,)
        with pytest.raises(sqlite3.OperationalError, match="row_checksum"):
            raw.execute("UPDATE memories SET content = 'x'")


def test_numbers_that_sqlite_stores_otherwise_keep_their_checksum(path: Path) -> None:
    with closing(open_raw(path)) as raw, raw:
        raw.execute("UPDATE memory_stats SET usefulness = -0.0 WHERE row = 1")
        raw.execute("UPDATE memory_stats SET usefulness = 3 WHERE row = 2")
        raw.execute("UPDATE memory_stats SET usefulness = 1e300 WHERE row = 3")
        raw.execute("UPDATE counters SET value = ?", (-(2**63),))
    assert damaged(path) == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE memories_fts_docsize SET sz = x'0101' WHERE id = 2",
        "DELETE FROM memories_fts_docsize WHERE id = 2",
        "UPDATE memories_fts_data SET block = x'0607' WHERE id = 1",
        "UPDATE memories_fts_data SET block = x'ffff' WHERE id = 10",
        "UPDATE memories_fts_config SET v = 99 WHERE k = 'version'",
        "INSERT INTO memories_fts (memories_fts, rowid, content, words) VALUES"
        " ('delete', 2, 'claim', '')",
    ],
)
def test_a_full_text_index_that_does_not_match_is_noticed(path: Path, statement: str) -> None:
    with closing(open_raw(path)) as raw, raw:
        raw.execute(statement)
    assert any("full-text index" in text for text in problems(path))
    with closing(SqliteStore(path)) as store:
        assert "full-text index rebuilt" in store.repair()
    assert problems(path) == []


def test_the_full_text_index_has_live_memories_only_after_a_repair(path: Path) -> None:
    with closing(open_raw(path)) as raw, raw:
        raw.execute(
            "UPDATE memories SET deleted_at = '2026-01-01T00:00:00.000000+00:00' WHERE row = 1"
        )
    with closing(SqliteStore(path)) as store:
        store.repair()
        (found,) = store._all(None, "SELECT count(*) FROM memories_fts_docsize", ())
    assert found == (5,)


def test_a_number_that_would_be_given_twice_is_noticed(path: Path) -> None:
    with closing(open_raw(path)) as raw, raw:
        raw.execute("UPDATE sqlite_sequence SET seq = 2 WHERE name = 'memories'")
    assert any("last number of memories" in text for text in problems(path))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE memories SET content = replace(content, 'm', 'n') WHERE row = 1",
        "UPDATE memories SET pinned = 9 WHERE row = 1",
        "UPDATE meta SET value = '3' WHERE key = 'change'",
        "UPDATE memory_history SET actor = 'a' || substr(actor, 2) WHERE entry = 3",
    ],
)
def test_one_changed_byte_is_restored(path: Path, statement: str) -> None:
    rows = f"SELECT * FROM {statement.split()[1]}"
    with closing(sqlite3.connect(path)) as raw:
        before = raw.execute(rows).fetchall()
    change(path, statement)
    assert damaged(path) != []
    with closing(SqliteStore(path)) as store:
        assert "rows restored in which one byte had changed: 1" in store.repair()
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute(rows).fetchall() == before
    assert problems(path) == []


@pytest.mark.parametrize(
    "values",
    [
        (b"a text", 5, 0.25, None, b"", 1.0),
        (b"", -1, -2.5, 2**40, b"it's", 7),
    ],
)
def test_any_single_byte_of_a_row_is_found_again(values: tuple[Any, ...]) -> None:
    checksum = row_checksum(*values)
    for at, value in enumerate(values):
        for other in list(integrity._neighbours(value))[::97]:
            changed = (*values[:at], other, *values[at + 1 :])
            if changed != values:
                assert integrity._restored(changed, checksum) == (at, value)
    # A change of the checksum itself leaves the values as they are.
    assert integrity._restored(values, bytes((checksum[0] ^ 1,)) + checksum[1:]) == (0, values[0])
    assert integrity._restored((*values[:4], b"two bytes", 3), checksum) is None


def test_damage_that_follows_from_nothing_stays_and_stays_named(path: Path) -> None:
    change(path, "UPDATE memories SET content = 'another text' WHERE row = 1")
    with closing(SqliteStore(path)) as store:
        store.repair()
        assert store.damaged_rows() == [DamagedRow("memories", {"row": 1})]
        with pytest.raises(Corrupt):
            store.get(USER, memory_id(0))


def test_damaged_vectors_and_links_are_deleted_to_be_made_again(path: Path) -> None:
    zeros = bytes(16).hex()
    for statement in (
        f"UPDATE memory_vectors SET vector = x'{zeros}' WHERE row = 2",
        "UPDATE entities SET name = 'nonsense', key = 'nonsense' WHERE entity = 1",
    ):
        change(path, statement)
    with closing(SqliteStore(path)) as store:
        done = store.repair()
        assert any(text.startswith("damaged vectors and entity links deleted") for text in done)
        assert store.check(deep=True) == []
        assert store.embedding_state(EMBEDDER.name).embedded_count == 4


def test_text_that_is_no_text_does_not_stop_the_check(path: Path) -> None:
    change(path, "UPDATE scopes SET user = CAST(x'ff00' AS TEXT) WHERE scope = 1")
    assert any("scopes: 1 row with a wrong checksum: scope 1" in text for text in problems(path))


def test_a_damaged_store_makes_no_backup(path: Path, tmp_path: Path) -> None:
    change(path, "UPDATE memory_stats SET access_count = 9 WHERE row = 3")
    with closing(SqliteStore(path)) as store, pytest.raises(Corrupt, match="memory_stats"):
        store.backup(tmp_path / "copy.db")
