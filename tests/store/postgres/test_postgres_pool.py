"""Connections that are lost, servers that are away, and how little anybody waits for them."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from contract.builders import insert, record
from machine import patience
from meritory.domain.errors import Busy, ReadOnlyStore, StorageError
from meritory.store.postgres.pool import ConnectionPool
from meritory.store.postgres.store import PostgresStore
from postgres_kit import Unavailable, address_of, throw_away_server

WAIT_S = patience(20.0)


class Restartable:
    """A server of one's own that can be stopped and started again."""

    def __enter__(self) -> Restartable:
        self._held = contextlib.ExitStack()
        try:
            self.address = self._held.enter_context(throw_away_server())
        except Unavailable as reason:
            pytest.skip(str(reason))
        self._data = Path(conninfo_to_dict(self.address)["host"]) / "data"
        self._again: subprocess.Popen[bytes] | None = None
        return self

    def __exit__(self, *_: object) -> None:
        if self._again is not None:
            self.stop()
            self._again.wait(WAIT_S)
        self._held.close()

    def stop(self) -> None:
        file = self._data / "postmaster.pid"
        os.kill(int(file.read_text().split()[0]), signal.SIGINT)
        while file.exists():
            time.sleep(0.01)

    def start(self) -> None:
        command = shlex.split((self._data / "postmaster.opts").read_text())
        account = self._data.owner() if os.geteuid() == 0 else None
        self._again = subprocess.Popen(command, user=account, stderr=subprocess.DEVNULL)
        ends_s = time.monotonic() + WAIT_S
        while time.monotonic() < ends_s:
            with contextlib.suppress(psycopg.OperationalError), psycopg.connect(self.address):
                return
            time.sleep(0.02)


def backends(address: str) -> list[int]:
    """Who is connected to a database, but for whoever asks."""
    with psycopg.connect(address) as connection:
        found = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'meritory' ORDER BY pid"
        )
        return [pid for (pid,) in found]


def test_connections_that_the_server_dropped_are_not_lent(address: str) -> None:
    store = PostgresStore(address)
    with psycopg.connect(address, autocommit=True) as administrator:
        for _ in range(3):
            insert(store, record(1)) if not store.users() else store.users()
            gone = backends(address)
            administrator.execute(
                "SELECT pg_terminate_backend(pid) FROM unnest(%s::integer[]) t (pid)", (gone,)
            )
            while set(backends(address)) & set(gone):
                pass
            assert store.users() == ["default"]
    store.close()


def test_who_became_read_only_is_left(address: str) -> None:
    """After a failover the address leads to another server; connections to the old one are kept."""
    database = conninfo_to_dict(address)["dbname"]
    switch = f'ALTER DATABASE "{database}" SET default_transaction_read_only = {{}}'
    store = PostgresStore(address)
    store.close()
    with psycopg.connect(address, autocommit=True) as administrator:
        administrator.execute(switch.format("on").encode())
        try:
            store = PostgresStore(address)
            # Neither one that lies ready then, nor one that is lent and given back afterwards.
            with store._engine.read("default") as held:
                held.execute("SELECT 1").fetchone()
                with store._engine.read("default") as one, store._engine.read("default") as other:
                    for connection in (one, other):
                        connection.execute("SELECT 1").fetchone()
                with pytest.raises(ReadOnlyStore):
                    insert(store, record(1))
        finally:
            administrator.execute("SET default_transaction_read_only = off")
            administrator.execute(switch.format("off").encode())
    insert(store, record(1))
    assert store.users() == ["default"]
    store.close()


def test_while_the_server_is_away_nobody_waits(tmp_path: Path) -> None:
    """A restart: what is asked meanwhile fails at once, typed, and all goes on afterwards."""
    with Restartable() as server:
        store = PostgresStore(server.address)
        told = threading.Event()
        store.follow(told.set)
        insert(store, record(1))
        assert told.wait(WAIT_S)
        server.stop()
        # In 20 s not even one would have waited for a connection.
        for _ in range(20):
            with pytest.raises(Busy):
                store.users()
            with pytest.raises(Busy):
                insert(store, record(2))
        told.clear()
        server.start()
        assert store.users() == ["default"]
        insert(store, record(2))
        assert len(list(store.walk("default"))) == 2
        assert told.wait(WAIT_S)
        store.close()


def test_one_at_a_time_finds_out_whether_a_server_is_back() -> None:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        pool = ConnectionPool(
            f"postgresql://x@127.0.0.1:{door.getsockname()[1]}/x?connect_timeout=2", 9
        )
        with pytest.raises(psycopg.OperationalError), pool.lent():
            pass
        # Now somebody opens, and never says a word.
        door.listen()
        waiting = threading.Thread(target=_lend, args=(pool,))
        waiting.start()
        guest, _ = door.accept()
        for _ in range(5):
            with pytest.raises(Busy, match="cannot be reached"), pool.lent():
                pass
        assert waiting.is_alive()
        waiting.join()
        # Who gave up has hung up, and is nobody's guest when the server wakes.
        guest.settimeout(WAIT_S)
        while guest.recv(1024):
            pass
        guest.close()


def _lend(pool: ConnectionPool) -> None:
    with pytest.raises(psycopg.Error), pool.lent():
        pass


def test_no_more_connections_than_allowed(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meritory.store.postgres.pool.WAIT_S", 0.05)
    pool = ConnectionPool(address, 2)
    with pool.lent(), pool.lent():
        with pytest.raises(Busy, match="no connection"), pool.lent():
            pass
        assert len(backends(address)) == 2
    with pool.lent():
        pass
    pool.close()
    with pytest.raises(StorageError, match="closed"), pool.lent():
        pass


def test_who_leaves_a_transaction_open_leaves_it_to_nobody(address: str) -> None:
    pool = ConnectionPool(address, 1)
    with pool.lent() as raw:
        raw.execute("BEGIN")
        raw.execute("SET LOCAL meritory.tenant = 'ann'")
    with pool.lent() as raw:
        found = raw.execute(
            "SELECT nullif(current_setting('meritory.tenant', true), '')"
        ).fetchone()
        assert found == (None,)
    pool.close()


def test_connections_are_let_go_of_in_time(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = ConnectionPool(address, 3)
    with pool.lent():
        with pool.lent() as idle:
            pass
        assert not idle.closed
        # What lies there unused goes when the next is given back.
        monkeypatch.setattr("meritory.store.postgres.pool._IDLE_LIMIT_S", -1.0)
    assert idle.closed
    monkeypatch.undo()
    with pool.lent() as young:
        pass
    assert not young.closed
    monkeypatch.setattr("meritory.store.postgres.pool._LIFE_S", 0.0)
    with pool.lent() as old:
        pass
    assert old.closed
    monkeypatch.undo()
    with pool.lent() as last:
        pool.close()
    assert last.closed


def test_a_server_that_was_away_once_is_trusted_again(address: str) -> None:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        pool = ConnectionPool(f"postgresql://x@127.0.0.1:{door.getsockname()[1]}/x", 2)
        with pytest.raises(psycopg.OperationalError), pool.lent():
            pass
    pool._url = address
    with pool.lent(), pool._trying, pool.lent():
        assert len(backends(address)) == 2
    pool.close()


def test_texts_are_sent_whole_whatever_the_address_says(address: str) -> None:
    wanted = address_of({**conninfo_to_dict(address), "client_encoding": "latin1"})
    store = PostgresStore(wanted)
    insert(store, record(1, "日本 ünï"))
    assert [one.content for one in store.walk("default")] == ["日本 ünï"]
    store.close()
