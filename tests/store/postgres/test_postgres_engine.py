"""Opening, migrating and trouble on PostgreSQL."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from contract.builders import (
    EMBEDDER,
    OTHER_EMBEDDER,
    change,
    found,
    indexed,
    insert,
    memory_id,
    numbers,
    record,
    unit,
    vector_search,
    words_search,
)
from meritory.domain.errors import Busy, InputError, ReadOnlyStore, SchemaTooNew, StorageError
from meritory.domain.memory import Scope
from meritory.store.contract.store import Transaction
from meritory.store.postgres import schema
from meritory.store.postgres.connection import PostgresEngine, TenantConnection
from meritory.store.postgres.retry import WRITE_ATTEMPTS, without_password
from meritory.store.postgres.schema import MIGRATIONS, schema_version
from meritory.store.postgres.store import PostgresStore
from meritory.store.postgres.write import PostgresTransaction
from meritory.store.sql.tables import Migration
from postgres_kit import Server, address_of

PASSWORD = "hunter2-swordfish"


def backends(address: str) -> list[int]:
    """Who is connected to a database, but for whoever asks."""
    with psycopg.connect(address) as connection:
        found = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'meritory' ORDER BY pid"
        )
        return [pid for (pid,) in found]


def changed(address: str, **parts: str) -> str:
    return address_of({**conninfo_to_dict(address), **parts})


@pytest.fixture
def engine(address: str) -> Iterator[PostgresEngine]:
    opened = PostgresEngine(address)
    yield opened
    opened.close()


def test_an_empty_database_becomes_a_store_and_stays_one(postgres: Server) -> None:
    address = postgres.empty()
    for _ in range(2):
        store = PostgresStore(address)
        assert store.users() == []
        store.close()
    with psycopg.connect(address) as connection:
        assert schema_version(connection) == MIGRATIONS[-1].version


def test_a_login_without_great_rights_is_enough(postgres: Server) -> None:
    """It owns its database and may make roles; superusers are above every wall anyway."""
    name = f"plain_{secrets.token_hex(4)}"
    address = postgres.empty()
    database = str(conninfo_to_dict(address)["dbname"])
    postgres.execute(f"CREATE ROLE {name} LOGIN CREATEROLE NOINHERIT")
    postgres.execute(f'ALTER DATABASE "{database}" OWNER TO {name}')
    # Made by an earlier superuser of this server, whose members only that one may choose.
    postgres.execute(f"GRANT meritory_app, meritory_steward TO {name}")
    with pytest.raises(StorageError, match="may not switch pgvector on"):
        PostgresStore(changed(address, user=name))
    with psycopg.connect(address, autocommit=True) as administrator:
        administrator.execute("CREATE EXTENSION vector")
    store = PostgresStore(changed(address, user=name))
    insert(store, record(1), record(2, user="other"))
    assert store.users() == ["default", "other"]
    assert found(store, words_search(Scope(), "claim")) == [memory_id(1)]
    store.close()
    with psycopg.connect(changed(address, user=name)) as owner:
        # Even the owner of the tables, without the role: security is forced.
        assert owner.execute("SELECT count(*) FROM meritory.memories").fetchone() == (0,)


def test_several_may_open_an_empty_database_at_once(postgres: Server) -> None:
    address, stores, errors = postgres.empty(), [], []

    def open_it() -> None:
        try:
            stores.append(PostgresStore(address))
        except StorageError as error:
            errors.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len({store.secret() for store in stores}) == 1
    for store in stores:
        store.close()


def test_a_newer_schema_is_left_alone(address: str) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("INSERT INTO meritory.schema_version VALUES (999)")
        try:
            with pytest.raises(SchemaTooNew, match="newer Meritory"):
                PostgresStore(address)
        finally:
            connection.execute("DELETE FROM meritory.schema_version WHERE version = 999")


def test_a_migration_that_fails_half_way_leaves_nothing(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, version = postgres.fresh(), MIGRATIONS[-1].version + 1
    planted = ("CREATE TABLE extra (x integer)", "ALTER TABLE sessions ADD COLUMN y text")
    bad = Migration(version, "bad", (*planted, "INSERT INTO extra VALUES ('not a number')"))
    good = Migration(version, "good", (*planted, "INSERT INTO extra VALUES (1)"))
    monkeypatch.setattr(schema, "MIGRATIONS", (*MIGRATIONS, bad))
    with pytest.raises(StorageError):
        PostgresStore(address)
    with psycopg.connect(address) as connection:
        assert schema_version(connection) == version - 1
        assert connection.execute("SELECT to_regclass('meritory.extra')").fetchone() == (None,)
    monkeypatch.setattr(schema, "MIGRATIONS", (*MIGRATIONS, good))
    for _ in range(2):  # the second opening does not run it again
        PostgresStore(address).close()
    with psycopg.connect(address) as connection:
        assert schema_version(connection) == version
        assert connection.execute("SELECT x FROM meritory.extra").fetchall() == [(1,)]


def test_no_server_no_database_no_such_user(postgres: Server) -> None:
    for address, advice in (
        (f"postgresql://x:{PASSWORD}@127.0.0.1:1/x", "check that it runs"),
        (changed(postgres.url, dbname="nowhere"), "create it"),
        (changed(postgres.url, user="nobody_here", password=PASSWORD), "check user"),
    ):
        with pytest.raises((StorageError, Busy)) as caught:
            PostgresStore(address)
        assert caught.value.hint and advice in caught.value.hint
        assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://ann:{PASSWORD}@db/x",
        f"host=db password={PASSWORD} user=ann",
        f"host=db password='{PASSWORD}' user=ann",
        f"PASSWORD = {PASSWORD}",
    ],
)
def test_passwords_are_taken_out(text: str) -> None:
    assert PASSWORD not in without_password(text)
    assert "***" in without_password(text)


def test_a_read_cannot_write(engine: PostgresEngine) -> None:
    with pytest.raises(ReadOnlyStore), engine.read("ann") as connection:
        connection.execute("INSERT INTO counters VALUES (?, ?, ?)", ("ann", "n", 1))


def test_a_read_is_one_snapshot(address: str, engine: PostgresEngine) -> None:
    store = PostgresStore(address)
    count = "SELECT count(*) FROM memories WHERE user = ?"
    with engine.read("default") as connection:
        before = connection.execute(count, ("default",)).fetchone()
        insert(store, record(1))
        assert connection.execute(count, ("default",)).fetchone() == before
    with engine.read("default") as connection:
        assert connection.execute(count, ("default",)).fetchone() == (1,)
    store.close()


def test_nothing_is_waited_for_without_end(engine: PostgresEngine) -> None:
    asked = """SELECT current_setting('statement_timeout'), current_setting('lock_timeout'),
        current_setting('idle_in_transaction_session_timeout')"""
    assert engine.write("default", lambda c: c.execute(asked).fetchone()) == ("1min", "30s", "1min")
    assert engine.write_across(lambda c: c.execute(asked).fetchone()) == ("1min", "30s", "1min")
    with engine.read("default") as connection:
        assert connection.execute(asked).fetchone()[:2] == ("1min", "30s")


def test_a_clash_is_tried_again_and_not_for_ever(engine: PostgresEngine) -> None:
    tries = []

    def clash(connection: object) -> str:
        tries.append(connection)
        if len(tries) < 3:
            raise psycopg.errors.SerializationFailure("could not serialize")
        return "done"

    assert engine.write("ann", clash) == "done"
    tries.clear()

    def always(connection: object) -> None:
        tries.append(connection)
        raise psycopg.errors.DeadlockDetected("deadlock")

    with pytest.raises(Busy):
        engine.write("ann", always)
    assert len(tries) == WRITE_ATTEMPTS


def test_an_embedder_that_is_retired_meanwhile_costs_its_vectors_only(address: str) -> None:
    one, other = PostgresStore(address), PostgresStore(address)
    for embedder in (EMBEDDER, OTHER_EMBEDDER):
        one.register_embedder(embedder)
    vectors = {EMBEDDER.name: unit(1, 0, 0, 0), OTHER_EMBEDDER.name: unit(1, 0, 0)}
    tries = []

    def work(transaction: PostgresTransaction) -> None:
        tries.append(transaction._embedder(EMBEDDER.name))
        other.serve_embedder(OTHER_EMBEDDER.name)
        transaction.insert(indexed(record(1), vectors=vectors), None)

    one.write("default", work)  # type: ignore[arg-type]
    assert [known is None for known in tries] == [False, True]
    for embedder, count in ((EMBEDDER, 0), (OTHER_EMBEDDER, 1)):
        assert len(one.vectors("default", embedder.name, [memory_id(1)])) == count
    for store in (one, other):
        store.close()


def test_writers_of_one_tenant_wait_for_each_other(address: str) -> None:
    """Two daemons that look first and write then store a thing once."""
    stores = [PostgresStore(address) for _ in range(2)]
    made = []

    def look_then_write(store: PostgresStore) -> None:
        for number in range(1, 21):
            if store.write('default', lambda t, n=number: not t.has("default", memory_id(n))
                           and t.insert(indexed(record(n)), None) is None):  # fmt: skip
                made.append(number)

    threads = [threading.Thread(target=look_then_write, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == list(range(1, 21))
    assert [m.id for m in stores[0].walk("default")] == [m.id for m in stores[1].walk("default")]
    for store in stores:
        store.close()


def test_who_writes_can_read_however_many_write(address: str) -> None:
    """Writers of one tenant hold connections while they wait; the one they wait for reads on."""
    store = PostgresStore(address, 2)
    failed: list[Exception] = []

    def work(transaction: Transaction) -> None:
        transaction.count("default", "n", 1 + 0 * len(store.users()))

    def write() -> None:
        try:
            store.write("default", work)
        except Busy as error:
            failed.append(error)

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert store.counters("default") == {"n": 8}
    store.close()


def test_an_error_in_the_middle_is_the_one_that_is_told_and_undoes_all(address: str) -> None:
    """Changes are sent without waiting: the first that fails is what is raised, wherever."""
    store = PostgresStore(address)
    insert(store, record(1))
    pids = backends(address)

    def clash(transaction: Transaction) -> None:
        transaction.count("default", "before")
        transaction.insert(indexed(record(1, "again")), None)
        for _ in range(50):
            transaction.count("default", "after")

    with pytest.raises(StorageError, match="duplicate key"):
        store.write("default", clash)
    with pytest.raises(StorageError, match="duplicate key"):
        # Nobody asks for anything after it: the commit is where it shows.
        store.write("default", lambda t: t.insert(indexed(record(1, "again")), change()))
    assert store.counters("default") == {}
    assert store.get("default", memory_id(1)).content == record(1).content
    # The connection on which it failed was let go of, and another one made.
    assert len(backends(address)) == len(pids)
    assert backends(address) != pids
    insert(store, record(2))
    assert len(list(store.walk("default"))) == 2
    store.close()


def test_more_than_fits_on_the_way_is_sent_without_waiting(engine: PostgresEngine) -> None:
    """Neither side waits for the other, however much one of them has to say."""
    put = "INSERT INTO models VALUES (?, ?, ?, ?)"

    def work(connection: TenantConnection) -> int:
        for version in range(3):
            connection.execute(put, ("ann", version, b"x" * 5_000_000, "digest"))
        return connection.execute(put, ("ann", 9, b"x", "digest")).rowcount

    assert engine.write("ann", work) == 1
    with engine.read("ann") as connection:
        sizes = connection.execute("SELECT length(content) FROM models WHERE user = ?", ("ann",))
        assert sorted(sizes.fetchall()) == [(1,), *[(5_000_000,)] * 3]


def test_what_a_transaction_did_it_sees(address: str) -> None:
    """New memories wait to go together, but for nobody who asks."""
    store = PostgresStore(address)

    def work(transaction: Transaction) -> list[bool]:
        seen = []
        for number in range(1, 4):
            transaction.insert(indexed(record(number)), change())
            transaction.insert(indexed(record(number + 10)), change())
            seen.append(transaction.has("default", memory_id(number + 10)))
        seen.append(transaction.has("default", memory_id(9)))
        return seen

    assert store.write("default", work) == [*[True] * 3, False]
    assert numbers([m.id for m in store.walk("default")]) == [1, 11, 2, 12, 3, 13]
    # The history is in the order in which it happened.
    entries = [store.history("default", memory_id(n))[0].entry for n in (1, 11, 2, 12, 3, 13)]
    assert entries == sorted(entries)
    store.close()


def test_a_connection_at_rest_knows_nothing_of_who_used_it(
    address: str, engine: PostgresEngine
) -> None:
    """All is said anew in each transaction, as a pooler of transactions demands."""
    for used in (engine.read("ann"), engine.read_across()):
        with used as connection:
            connection.execute("SELECT 1 FROM jobs WHERE user = ?", ("ann",)).fetchone()
    with engine._pool.lent() as raw:
        found = raw.execute(
            """SELECT current_user = session_user,
            coalesce(current_setting('meritory.tenant', true),
                ''), to_regclass('memories'), current_setting('lock_timeout')"""
        ).fetchone()
    assert found == (True, "", None, "0")


def test_one_process_holds_a_lock_until_it_ends(address: str) -> None:
    one, other = PostgresStore(address), PostgresStore(address)
    with one.try_lock("a") as ours, other.try_lock("a") as theirs, other.try_lock("b") as another:
        assert (ours, theirs, another) == (True, False, True)
    with other.try_lock("a") as now_theirs:
        assert now_theirs
        with psycopg.connect(address, autocommit=True) as administrator:
            administrator.execute(
                "SELECT pg_terminate_backend(pid) FROM unnest(%s::integer[]) t (pid)",
                (backends(address),),
            )
        while backends(address):
            pass
        with one.try_lock("a") as ours_again:
            assert ours_again
    # Nobody has kept anything, and the connections are good again.
    with other.try_lock("a") as theirs_again:
        assert theirs_again
    assert one.users() == other.users() == []
    for store in (one, other):
        store.close()


def test_what_one_daemon_writes_another_finds(address: str) -> None:
    one, other = PostgresStore(address), PostgresStore(address)
    one.register_embedder(EMBEDDER)
    assert found(other, words_search(Scope(), "harbour")) == []
    insert(one, indexed(record(1, "the harbour"), vectors={EMBEDDER.name: unit(1, 0, 0, 0)}))
    assert found(other, words_search(Scope(), "harbour")) == [memory_id(1)]
    assert found(other, vector_search(Scope(), 1, 0, 0, 0)) == [memory_id(1)]
    one.write("default", lambda t: t.purge("default", memory_id(1)))
    assert found(other, words_search(Scope(), "harbour")) == []
    assert found(other, vector_search(Scope(), 1, 0, 0, 0)) == []
    for store in (one, other):
        store.close()


def test_a_backup_is_the_servers_own_affair(address: str) -> None:
    store = PostgresStore(address)
    with pytest.raises(InputError, match="PostgreSQL's own tools") as caught:
        store.backup(Path("copy"))
    assert "pg_dump" in str(caught.value)
    store.close()


def test_damage_is_told(address: str) -> None:
    store = PostgresStore(address)
    insert(store, record(1, "sound"), record(2, "sound too"))
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("UPDATE meritory.memories SET content = 'bent' WHERE row = 2")
    assert store.check(deep=False) == []
    assert store.check(deep=True) == [f"memory {memory_id(2)} does not match its hash"]
    assert [m.content for m in store.walk("default")] == ["sound"]
    assert store.damaged_count() == 1
    store.close()


def test_a_connection_is_of_use_after_an_error_amid_what_was_sent(engine: PostgresEngine) -> None:
    """The driver keeps statements ready that it sends often; an error passes over what follows."""

    def counted(connection: TenantConnection) -> None:
        connection.execute(
            "INSERT INTO counters (user, name, value) VALUES (?, ?, ?)", ("ann", "n", 1)
        )

    def kept_ready(connection: TenantConnection) -> None:
        connection.execute(
            """INSERT INTO consents (user, install_date) VALUES (?, ?)
                ON CONFLICT (user) DO NOTHING""",
            ("ann", "2026-01-01"),
        )

    def clashing(connection: TenantConnection) -> None:
        counted(connection)
        kept_ready(connection)

    engine.write("ann", counted)
    for _ in range(12):
        with pytest.raises(StorageError, match="duplicate key"):
            engine.write("ann", clashing)
        engine.write("ann", kept_ready)
