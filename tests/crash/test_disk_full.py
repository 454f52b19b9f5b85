"""No space left: a typed error, nothing lost, and all is well once there is space again."""

from __future__ import annotations

import os
import resource
import traceback
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from contract.builders import change, indexed, insert, memory_id, record, words_search
from meritory.domain.errors import DiskFull, StorageError
from meritory.domain.memory import Scope
from meritory.store.contract.store import Transaction
from meritory.store.sqlite.store import SqliteStore

BIG = "word " * 1_500


def limit_pages(store: SqliteStore, more: int) -> None:
    """Lets the database grow by so many pages and no further."""

    def work(connection) -> None:  # type: ignore[no-untyped-def]
        (count,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {count + more}")

    store._engine.write(work)


def test_a_full_database_refuses_and_goes_on_when_there_is_space(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "meritory.db")) as store:
        insert(store, record(1))
        limit_pages(store, 12)
        stored = [1]
        with pytest.raises(DiskFull) as caught:
            for number in range(2, 100):
                insert(store, record(number, BIG))
                stored.append(number)
        assert "space" in str(caught.value)
        assert sorted(int(m.id) for m in store.walk("default")) == stored
        assert store.check(deep=True) == []
        limit_pages(store, 10_000)
        insert(store, record(500, BIG))
        assert len(store.search(words_search(Scope(), "word")).rows) == len(stored)


def test_a_batch_that_does_not_fit_leaves_nothing(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "meritory.db")) as store:
        insert(store, record(1))
        limit_pages(store, 20)

        def work(transaction: Transaction) -> None:
            for number in range(2, 200):
                transaction.insert(indexed(record(number, BIG)), change())

        for _ in range(3):
            with pytest.raises(DiskFull):
                store.write("default", work)
            assert [m.id for m in store.walk("default")] == [memory_id(1)]
        assert store.check(deep=True) == []
        limit_pages(store, 10_000)
        store.write("default", work)
        assert len(list(store.walk("default"))) == 199


def in_child(work: Callable[[], None]) -> None:
    """Runs a function in a child process, for limits that cannot be taken back."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_the_systems_own_limit_is_a_typed_error_too(tmp_path: Path) -> None:
    """Here the write itself fails in the operating system, in the middle of the log."""
    path = tmp_path / "meritory.db"

    def work() -> None:
        with closing(SqliteStore(path)) as store:
            insert(store, record(1))
            log = path.with_name("meritory.db-wal")
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + 30_000, hard))
            stored = [1]
            with pytest.raises(StorageError):
                for number in range(2, 100):
                    insert(store, record(number, BIG))
                    stored.append(number)
            assert sorted(int(m.id) for m in store.walk("default")) == stored
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            insert(store, record(500))
            assert sorted(int(m.id) for m in store.walk("default")) == [*stored, 500]
            assert store.check(deep=True) == []

    in_child(work)
    with closing(SqliteStore(path)) as store:
        assert store.check(deep=True) == []
        assert store.get("default", memory_id(500)) == record(500)


def test_a_new_store_that_does_not_fit_is_not_there_by_half(tmp_path: Path) -> None:
    path = tmp_path / "meritory.db"

    def work() -> None:
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
        with pytest.raises(StorageError):
            SqliteStore(path)
        assert not path.exists()

    in_child(work)
    with closing(SqliteStore(path)) as store:
        insert(store, record(1))


def test_a_backup_that_does_not_fit_leaves_nothing(tmp_path: Path) -> None:
    path, target = tmp_path / "meritory.db", tmp_path / "copy.db"

    def work() -> None:
        with closing(SqliteStore(path)) as store:
            insert(store, *(record(n, BIG) for n in range(20)))
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
            with pytest.raises(StorageError):
                store.backup(target)
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            assert sorted(p.name for p in tmp_path.iterdir() if "copy" in p.name) == []
            store.backup(target)

    in_child(work)
    assert target.exists()
