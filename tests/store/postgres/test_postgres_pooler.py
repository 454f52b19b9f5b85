"""Behind a pooler nothing outlasts a transaction: nothing is said there that would have to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from contract.builders import EMBEDDER, indexed, insert, record, unit
from meritory.domain.place import Place
from meritory.domain.policy import EmbedderSpec
from meritory.engine.observe.health import HealthFacts, examine
from meritory.store.contract.store import Store
from meritory.store.postgres import vectors
from meritory.store.postgres.store import PostgresStore
from pooler_kit import Relay, pgbouncer, pooled

TENANTS, WRITES = 8, 12
_OURS = "indexrelid::regclass::text LIKE 'meritory.memory\\_vectors\\_1\\_%'"
_INDEXES = f"SELECT indexrelid::regclass::text, indisvalid FROM pg_index WHERE {_OURS}"
_LEFT = """SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
    WHERE l.locktype = 'advisory' AND d.datname = current_database()"""


@pytest.fixture
def relay(database: Place, tmp_path: Path) -> Iterator[Relay]:
    relay = Relay(database.url, tmp_path)
    yield relay
    relay.close()


def fill(store: Store, count: int) -> None:
    store.register_embedder(EMBEDDER)
    for number in range(1, count + 1):
        insert(store, indexed(record(number), vectors={EMBEDDER.name: unit(number, 1.0, 0.0, 0.0)}))
    assert store.serve_embedder(EMBEDDER.name)


def work(store: Store, monkeypatch: pytest.MonkeyPatch, database: Place) -> None:
    """So much of everything that the driver would prepare its statements, and an index is due."""
    monkeypatch.setattr(vectors, "EXACT_ROWS", 10)
    with psycopg.connect(database.url, autocommit=True) as direct:
        for name, _ in direct.execute(_INDEXES).fetchall():
            direct.execute(f"DROP INDEX {name}".encode())
    fill(store, 20)
    assert len({one.id for one in store.walk("default")}) == 20
    store.tidy(lambda: False)
    with psycopg.connect(database.url) as direct:
        assert [valid for _, valid in direct.execute(_INDEXES).fetchall()] == [True]
        assert direct.execute(_LEFT).fetchone() == (0,)


def test_nothing_is_said_that_outlasts_its_transaction(
    relay: Relay, database: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(relay.address)
    work(store, monkeypatch, database)
    assert store.follow(lambda: None) is None
    store.close()
    said = bytes(relay.said)
    assert b"SET LOCAL statement_timeout" in said and b"CREATE INDEX CONCURRENTLY" in said
    for lasting in (b"_pg3_", b"SET statement", b"SET maintenance", b"_advisory_lock", b"LISTEN"):
        assert lasting not in said


def test_without_a_pooler_all_of_that_is_said(
    database: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same work, heard by the same ear: it would have been noticed."""
    monkeypatch.setattr("meritory.store.postgres.pool.is_pooled", lambda raw: False)
    monkeypatch.setattr("meritory.store.postgres.vectors.is_pooled", lambda raw: False)
    relay = Relay(database.url, tmp_path)
    store = PostgresStore(relay.address)
    work(store, monkeypatch, database)
    following = store.follow(lambda: None)
    assert following is not None
    following.close()
    store.close()
    said = bytes(relay.said)
    relay.close()
    for lasting in (b"_pg3_", b"SET statement", b"SET maintenance"):
        assert lasting in said


def test_only_one_makes_indexes_behind_a_pooler_too(
    relay: Relay, database: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two on one table wait for each other until the server ends the one that is almost done."""
    monkeypatch.setattr(vectors, "EXACT_ROWS", 10)
    one, other = PostgresStore(relay.address), PostgresStore(relay.address)
    fill(one, 20)

    def made() -> list[tuple[bool]]:
        with psycopg.connect(database.url) as direct:
            return direct.execute(f"SELECT indisvalid FROM pg_index WHERE {_OURS}").fetchall()

    with other.try_lock("vector indexes"):
        one.tidy(lambda: False)
        assert made() == []
    one.tidy(lambda: False)
    assert made() == [(True,)]
    one.close()
    other.close()


def test_the_doctor_says_that_others_are_heard_late(relay: Relay, tmp_path: Path) -> None:
    patient = HealthFacts(
        home=tmp_path,
        place=Place(url=relay.address),
        backups=tmp_path,
        spec=EmbedderSpec(kind="none"),
        now=datetime(2026, 5, 4, tzinfo=UTC),
        copied_models=tmp_path / "models",
    )
    (found,) = [one for one in examine(patient) if one.name == "schema"]
    assert found.status == "warn"
    assert "through a pooler" in found.detail
    assert "the server's own address" in found.hint


def test_tenants_stay_apart_on_shared_connections(
    database: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real pgbouncer with fewer connections than writers, that prepares nothing for anybody."""
    program = pgbouncer()
    if program is None:
        pytest.skip("NO PGBOUNCER HERE: only what is said to a pooler is tested, not a pooler")
    with pooled(program, database.url, size=3) as address:
        store = PostgresStore(address)
        work(store, monkeypatch, database)

        def write(user: str) -> None:
            for number in range(WRITES):
                insert(store, indexed(record(number, f"{user} says {number}", user=user)))

        users = [f"user {number}" for number in range(TENANTS)]
        threads = [threading.Thread(target=write, args=(user,)) for user in users]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for user in users:
            said = {one.content for one in store.walk(user)}
            assert said == {f"{user} says {number}" for number in range(WRITES)}
        store.close()
