"""What goes wrong at the worst moment: nothing is lost, done twice, or waited for in vain."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from types import TracebackType

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from contract.builders import NOW, insert, memory_id, record
from machine import patience
from meritory.domain.errors import Busy, StorageError
from meritory.domain.job import Job, Lease
from meritory.store.contract.store import Transaction
from meritory.store.postgres import connection
from meritory.store.postgres.connection import TenantConnection
from meritory.store.postgres.notify import Listener
from meritory.store.postgres.retry import translate_error
from meritory.store.postgres.store import PostgresStore
from meritory.store.postgres.write import PostgresTransaction
from postgres_kit import Server

WAIT_S = patience(20.0)
LEASE = Lease("me", NOW, timedelta(minutes=5))
OTHER_LEASE = Lease("you", NOW, timedelta(minutes=5))


@pytest.fixture
def store(address: str) -> Iterator[PostgresStore]:
    opened = PostgresStore(address)
    yield opened
    opened.close()


def test_what_was_taken_back_is_never_called_stored(store: PostgresStore) -> None:
    """COMMIT after an error takes everything back, and PostgreSQL calls that a success."""

    def careless(transaction: Transaction) -> str:
        assert isinstance(transaction, PostgresTransaction)
        transaction.count("default", "before")
        try:
            transaction.connection.execute("INSERT INTO counters VALUES (?, 'x', NULL)", ("ann",))
            transaction.has("ann", memory_id(1))
        except psycopg.Error:
            pass
        return "stored"

    # Others are told of this one: the next says nothing but COMMIT.
    store.write("default", lambda t: t.count("default", "n"))
    with pytest.raises(StorageError):
        store.write("default", careless)
    assert store.counters("default") == {"n": 1}
    store.write("default", lambda t: t.count("default", "n"))
    assert store.counters("default") == {"n": 2}


def test_nor_is_what_concerns_everybody(store: PostgresStore) -> None:
    def careless(connection: TenantConnection) -> None:
        connection.execute("INSERT INTO meta VALUES ('x', 'y')")
        with contextlib.suppress(psycopg.Error):
            connection.execute("INSERT INTO meta VALUES ('x', NULL)")

    with pytest.raises(StorageError):
        store._engine.write_across(careless)


def test_what_is_stored_is_never_called_failed(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is lost right after the commit: who is told otherwise does it again."""
    leave = psycopg.Pipeline.__exit__

    def lost(
        pipeline: psycopg.Pipeline,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        leave(pipeline, kind, error, trace)
        raise psycopg.OperationalError("cannot exit pipeline mode with uncollected results")

    with monkeypatch.context() as patched:
        patched.setattr(psycopg.Pipeline, "__exit__", lost)
        store.write("default", lambda t: t.count("default", "n"))
    store.write("default", lambda t: t.count("default", "n"))
    assert store.counters("default") == {"n": 2}


def test_who_loses_a_connection_is_told_that_it_may_be_stored() -> None:
    lost = psycopg.OperationalError(
        "consuming input failed: server closed the connection unexpectedly"
    )
    found = translate_error(lost)
    assert isinstance(found, Busy)
    assert "may have been stored" in str(found.hint)


def test_a_commit_that_takes_long_is_told_once_it_can_be_seen(
    address: str, store: PostgresStore
) -> None:
    other = PostgresStore(address)
    seen: list[int] = []
    other.follow(lambda: seen.append(other.counters("ann").get("n", 0)))

    def slow(transaction: Transaction) -> None:
        assert isinstance(transaction, PostgresTransaction)
        transaction.count("ann", "n")
        transaction.connection.execute(
            "UPDATE counters SET value = 1 WHERE user = ? AND (SELECT pg_sleep(.6)) IS NOT NULL",
            ("ann",),
        )

    # This one is told, so that the next is not told at once.
    store.write("bob", lambda t: t.count("bob", "n"))
    store.write("ann", slow)
    ends_s = time.monotonic() + WAIT_S
    while not seen or seen[-1] != 1:
        assert time.monotonic() < ends_s
        time.sleep(0.01)
    other.close()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_does_not_end_what_its_parent_hears(store: PostgresStore) -> None:
    told = threading.Event()
    following = store.follow(told.set)
    assert following is not None
    assert told.wait(WAIT_S)
    child = os.fork()
    if child == 0:
        following.close()
        os._exit(0)
    os.waitpid(child, 0)
    ear = store._listener._thread
    assert ear is not None
    # Else its thread would go round without a rest.
    assert select.select([ear._waking], [], [], 0.0)[0] == []
    told.clear()
    insert(store, record(1))
    assert told.wait(WAIT_S)


def test_a_forked_child_says_nothing_on_its_parents_connections(store: PostgresStore) -> None:
    """Both would read each other's answers; neither does the child's end end them."""
    insert(store, record(1))
    child = os.fork()
    if child == 0:
        refused = 0
        for use in (store.users, lambda: insert(store, record(2)), store.try_lock("a").__enter__):
            try:
                use()
            except StorageError as error:
                refused += "fork" in str(error)
        store.close()
        os._exit(refused)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 3
    assert store.users() == ["default"]
    assert len(list(store.walk("default"))) == 1


def test_nobody_waits_for_a_server_that_says_nothing_to_who_listens() -> None:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen()
        port = door.getsockname()[1]
        listener = Listener(f"postgresql://x@127.0.0.1:{port}/x?sslmode=disable&gssencmode=disable")
        listener.follow(lambda: None)
        guest, _ = door.accept()
        guest.recv(1024)
        # Let in, and ready: but what is said next is never answered.
        guest.sendall(b"R\0\0\0\x08\0\0\0\0" + b"Z\0\0\0\x05I")
        assert guest.recv(1024).startswith(b"Q")
        listener.close()
        guest.close()


def test_who_vanishes_in_the_middle_does_not_hold_a_tenant(
    address: str, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        connection,
        "_IDLE_LIMITED",
        connection._IDLE_LIMITED.replace(str(connection.IDLE_LIMIT_MS), "200"),
    )
    other = PostgresStore(address)

    def vanishing(transaction: Transaction) -> None:
        assert not transaction.has("default", memory_id(1))
        # Says nothing any more, while somebody else, who is not in such a hurry, wants to write
        # for the tenant.
        monkeypatch.undo()
        insert(other, record(1))
        transaction.count("default", "n")

    with pytest.raises(Busy):
        store.write("default", vanishing)
    assert store.counters("default") == {}
    assert [one.id for one in store.walk("default")] == [memory_id(1)]
    other.close()


def test_who_asks_for_a_job_by_name_leaves_it_to_who_just_takes_it(
    address: str, store: PostgresStore
) -> None:
    other = PostgresStore(address)
    store.write("ann", lambda t: t.put_job("ann", "learn", "1", NOW))
    second: list[Job | None] = []

    def by_name() -> None:
        second.append(
            other.write("ann", lambda t: t.take_named_job(OTHER_LEASE, "ann", "learn", "1"))
        )

    asking = threading.Thread(target=by_name)

    def first(transaction: Transaction) -> Job | None:
        taken = transaction.take_job(LEASE, ("learn",))
        if not asking.is_alive() and not second:
            asking.start()
        # Either it answers now, or it waits for us.
        asking.join(1.0)
        return taken

    taken = store.write(None, first)
    asking.join(WAIT_S)
    assert taken is not None
    assert second == [None]
    store.write("ann", lambda t: t.finish_job(taken, NOW))
    other.close()


def test_several_open_an_empty_database_whatever_its_isolation(postgres: Server) -> None:
    address, errors = postgres.empty(), list[StorageError]()
    name = conninfo_to_dict(address)["dbname"]
    postgres.execute(
        f"ALTER DATABASE \"{name}\" SET default_transaction_isolation = 'serializable'"
    )

    def open_it() -> None:
        try:
            PostgresStore(address).close()
        except StorageError as error:
            errors.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
