"""The schema grows by steps that happen wholly or not at all."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from pathlib import Path

import pytest

from contract.builders import insert, memory_id, record
from meritory.domain.errors import SchemaTooNew, StorageError
from meritory.store.postgres.schema import MIGRATIONS as POSTGRES_MIGRATIONS
from meritory.store.sql.tables import Migration
from meritory.store.sqlite import backup, engine
from meritory.store.sqlite.schema import MIGRATIONS
from meritory.store.sqlite.store import SqliteStore
from places import open_raw

SCHEMAS = Path(__file__).resolve().parents[2] / "fixtures" / "schemas"
NEXT = MIGRATIONS[-1].version + 1
GOOD = Migration(
    NEXT,
    "good",
    ("CREATE TABLE extra (x INTEGER) STRICT", "INSERT INTO extra VALUES (1)"),
)
BAD = Migration(
    NEXT,
    "bad",
    (
        "CREATE TABLE extra (x INTEGER) STRICT",
        "UPDATE memories SET content = 'lost'",
        "DROP TABLE counters",
        "INSERT INTO extra VALUES ('not a number')",
    ),
)


def schema(path: Path) -> tuple[int, list[tuple[object, ...]]]:
    connection = sqlite3.connect(path)
    try:
        objects = connection.execute(
            "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
        ).fetchall()
        return engine.schema_version(connection), objects
    finally:
        connection.close()


def one_memory(path: Path) -> None:
    store = SqliteStore(path)
    insert(store, record(1))
    store.close()


def plant(monkeypatch: pytest.MonkeyPatch, migration: Migration) -> None:
    for module in (engine, backup):
        monkeypatch.setattr(module, "MIGRATIONS", (*MIGRATIONS, migration))


def test_versions_count_up_from_one() -> None:
    assert [m.version for m in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))
    assert len({m.name for m in MIGRATIONS}) == len(MIGRATIONS)


def test_a_step_that_fails_half_way_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "meritory.db"
    one_memory(path)
    before = schema(path)
    plant(monkeypatch, BAD)
    with pytest.raises(StorageError):
        SqliteStore(path)
    assert schema(path) == before
    monkeypatch.undo()
    store = SqliteStore(path)
    assert store.get("default", memory_id(1)) == record(1)
    assert store.check(deep=True) == []
    store.close()


def test_a_new_store_that_cannot_be_made_is_not_there_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "meritory.db"
    plant(monkeypatch, BAD)
    with pytest.raises(StorageError):
        SqliteStore(path)
    assert [p.name for p in tmp_path.iterdir()] == ["meritory.db.lock"]


def test_a_step_and_its_record_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "meritory.db"
    one_memory(path)
    plant(monkeypatch, GOOD)
    SqliteStore(path).close()
    version, objects = schema(path)
    assert version == NEXT
    assert "extra" in {name for _, name, *_ in objects}
    # Opening again does not run it again.
    store = SqliteStore(path)
    with store._engine.read() as connection:
        assert connection.execute("SELECT count(*) FROM extra").fetchone() == (1,)
    store.close()


def test_many_may_migrate_at_once_and_it_happens_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "meritory.db"
    one_memory(path)
    plant(monkeypatch, GOOD)
    gate = threading.Barrier(6)
    problems: list[BaseException] = []

    def start() -> None:
        gate.wait()
        try:
            SqliteStore(path).close()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM extra").fetchone() == (1,)
    connection.close()


def test_a_newer_database_is_refused_with_advice_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "meritory.db"
    one_memory(path)
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE from_the_future (x)")
    connection.execute(f"PRAGMA user_version = {NEXT}")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(SchemaTooNew) as caught:
        SqliteStore(path)
    assert "upgrade" in str(caught.value)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before


def test_a_frozen_store_opens_and_is_like_a_new_one(tmp_path: Path) -> None:
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    connection = open_raw(old)
    connection.executescript((SCHEMAS / "sqlite-0001.sql").read_text("utf-8"))
    connection.close()
    store = SqliteStore(old)
    assert [m.content for m in store.walk("default")] == ["the harbour opens at nine"]
    assert [e.action for e in store.history("default", memory_id(1))] == ["create", "update"]
    assert store.history("default", memory_id(1))[0].after == record(1)
    assert store.check(deep=True) == []
    insert(store, record(2))
    store.close()
    SqliteStore(new).close()
    assert schema(old) == schema(new)


@pytest.mark.parametrize(
    ("engine_name", "migrations"), [("sqlite", MIGRATIONS), ("postgres", POSTGRES_MIGRATIONS)]
)
def test_version_1_is_what_was_frozen(engine_name: str, migrations: tuple[Migration, ...]) -> None:
    """Stores of users have it; change it only before the first release, and freeze it again."""
    frozen = (SCHEMAS / f"{engine_name}-0001.sql").read_text("utf-8")
    for statement in migrations[0].statements:
        assert statement in frozen
