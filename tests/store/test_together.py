"""Threads and processes on one store: group commit, catching up, closing, leaks."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from contract.builders import (
    EMBEDDER,
    NOW,
    OTHER_EMBEDDER,
    change,
    found,
    indexed,
    insert,
    memory_id,
    numbers,
    record,
    unit,
    update,
    vector_search,
    words_search,
)
from meritory.domain.errors import StorageError
from meritory.domain.memory import Listing, Scope
from meritory.store.contract.store import Transaction
from meritory.store.sqlite.store import SqliteStore

DEFAULT = Scope()


def run_all(works: list[Callable[[], None]]) -> list[BaseException]:
    """Runs every function in its own thread; returns what they raised."""
    problems: list[BaseException] = []

    def guard(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=guard, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return problems


def test_writes_that_wait_together_share_a_commit_and_fail_alone(store: SqliteStore) -> None:
    """The first write holds the writer until all others are queued: they form one group."""
    begun, go = threading.Event(), threading.Event()

    def first(transaction: Transaction) -> None:
        begun.set()
        go.wait()
        transaction.insert(indexed(record(0)), change())

    def write(number: int) -> None:
        def work(transaction: Transaction) -> None:
            transaction.insert(indexed(record(number)), change())
            transaction.count("default", "tried")
            if number % 5 == 0:
                raise RuntimeError(f"planted {number}")

        if number % 5 == 0:
            with pytest.raises(RuntimeError, match=f"planted {number}$"):
                store.write("default", work)
        else:
            store.write("default", work)
            assert store.get("default", memory_id(number)) == record(number)

    def release() -> None:
        while store._engine._jobs.qsize() < 24:
            threading.Event().wait(0.001)
        go.set()

    starter = threading.Thread(target=lambda: store.write("default", first))
    starter.start()
    begun.wait()
    before = commit_count(store)
    works = [lambda n=n: write(n) for n in range(1, 25)]
    problems = run_all([*works, release])
    starter.join()
    assert problems == []
    kept = [n for n in range(25) if n == 0 or n % 5]
    assert sorted(int(m.id) for m in store.walk("default")) == kept
    assert store.counters("default") == {"tried": len(kept) - 1}
    assert found(store, words_search(DEFAULT, "claim")) == [memory_id(n) for n in kept]
    assert store.check(deep=True) == []
    assert commit_count(store) - before <= 3


def commit_count(store: SqliteStore) -> int:
    """How many commits the log holds: frames that carry the size of the database."""
    with store._engine.read() as connection:
        path = connection.execute("PRAGMA database_list").fetchone()[2]
    log = Path(f"{path}-wal")
    frame_bytes = 24 + 4_096
    data = log.read_bytes() if log.exists() else b""
    frames = (data[at : at + 8] for at in range(32, len(data), frame_bytes))
    return sum(1 for frame in frames if int.from_bytes(frame[4:8], "big"))


def add_and_forget(store: SqliteStore, start: int) -> None:
    """Adds some memories and forgets about half of them."""
    chance = random.Random(start)
    for number in range(start, start + 25):
        vectors = {EMBEDDER.name: unit(*(chance.random() for _ in range(4)))}
        insert(store, indexed(record(number), vectors=vectors))
        if chance.random() < 0.5:
            update(store, record(number), indexed(record(number, deleted_at=NOW)), "delete")


def test_many_threads_write_read_and_back_up_at_once(store: SqliteStore, tmp_path: Path) -> None:
    store.register_embedder(EMBEDDER)
    stop = threading.Event()
    left = threading.Semaphore(0)

    def write(start: int) -> None:
        add_and_forget(store, start)
        left.release()

    def read() -> None:
        while not stop.is_set():
            for search in (words_search(DEFAULT, "claim"), vector_search(DEFAULT, 1, 1, 1, 1)):
                pool = store.search(search)
                for memory in store.fetch(DEFAULT, pool.rows, NOW).values():
                    assert memory.content == f"claim number {int(memory.id)}"
            list(store.walk("default"))

    def finish() -> None:
        for number in range(2):
            store.backup(tmp_path / f"copy-{number}.db")
        for _ in range(4):
            left.acquire()
        stop.set()

    writers = [lambda s=s: write(s) for s in (0, 1_000, 2_000, 3_000)]
    assert run_all([*writers, read, read, read, finish]) == []
    assert len(list(store.walk("default"))) == 100
    live = [m.id for m in reversed(store.listing(Listing(DEFAULT, limit=200)))]
    assert found(store, words_search(DEFAULT, "claim")) == live
    assert found(store, vector_search(DEFAULT, 1, 1, 1, 1)) == live
    assert store.check(deep=True) == []
    with contextlib.closing(SqliteStore(tmp_path / "copy-1.db")) as copy:
        assert copy.check(deep=True) == []


def other_process(path: Path, work: Callable[[SqliteStore], None]) -> None:
    """Runs a function on the store in another process, to its end."""

    def run() -> None:
        store = SqliteStore(path)
        work(store)
        store.close()

    child = multiprocessing.get_context("fork").Process(target=run)
    child.start()
    child.join()
    assert child.exitcode == 0


def test_the_index_in_memory_catches_up_with_another_process(store: SqliteStore) -> None:
    store.register_embedder(EMBEDDER)
    vectors = {EMBEDDER.name: unit(1, 0, 0, 0)}

    def both() -> list[list[int]]:
        searches = (words_search(DEFAULT, "claim"), vector_search(DEFAULT, 1, 0, 0, 0))
        return [numbers(found(store, search)) for search in searches]

    def add(other: SqliteStore) -> None:
        insert(other, *(indexed(record(n), vectors=vectors) for n in (1, 2, 3, 4)))

    def alter(other: SqliteStore) -> None:
        update(other, record(1), indexed(record(1, deleted_at=NOW)), "delete")
        update(other, record(2), indexed(record(2, project="elsewhere")))
        other.write("default", lambda t: t.purge("default", memory_id(3)))

    def restore(other: SqliteStore) -> None:
        update(other, record(1, deleted_at=NOW), indexed(record(1)), "undo")

    assert both() == [[], []]
    other_process(store.path, add)
    assert both() == [[1, 2, 3, 4], [1, 2, 3, 4]]
    other_process(store.path, alter)
    assert both() == [[4], [4]]
    assert len(store.search(vector_search(DEFAULT, 1, 0, 0, 0)).rows) == 1
    other_process(store.path, restore)
    assert both() == [[1, 4], [1, 4]]


def test_a_switch_of_embedders_in_another_process_breaks_no_search(store: SqliteStore) -> None:
    store.register_embedder(EMBEDDER)
    insert(store, indexed(record(1), vectors={EMBEDDER.name: unit(1, 0, 0, 0)}))
    assert numbers(found(store, vector_search(DEFAULT, 1, 0, 0, 0))) == [1]

    def switch(other: SqliteStore) -> None:
        other.register_embedder(OTHER_EMBEDDER)
        other.write(
            "default", lambda t: t.put_vectors(OTHER_EMBEDDER.name, [(record(1), unit(1, 0, 0))])
        )
        assert other.serve_embedder(OTHER_EMBEDDER.name)

    other_process(store.path, switch)
    assert found(store, vector_search(DEFAULT, 1, 0, 0, 0)) == []
    assert numbers(found(store, words_search(DEFAULT, "claim"))) == [1]


def test_closing_while_others_write_loses_and_hangs_nobody(tmp_path: Path) -> None:
    for attempt in range(15):
        store = SqliteStore(tmp_path / f"{attempt}.db")
        acknowledged: list[int] = []

        def write(start: int, store=store, acknowledged=acknowledged) -> None:  # type: ignore[no-untyped-def]
            with pytest.raises(StorageError, match="closed"):
                for number in range(start, start + 10_000):
                    insert(store, record(number))
                    acknowledged.append(number)

        works = [lambda s=s: write(s) for s in (0, 10_000, 20_000)]
        problems = run_all([*works, store.close])
        assert problems == []
        again = SqliteStore(tmp_path / f"{attempt}.db")
        assert sorted(int(m.id) for m in again.walk("default")) == sorted(acknowledged)
        again.close()


def test_fifty_stores_leave_no_files_and_threads_behind(tmp_path: Path) -> None:
    def open_and_close(number: int) -> None:
        store = SqliteStore(tmp_path / f"{number % 3}.db")
        insert(store, record(number))
        found(store, words_search(DEFAULT, "claim"))
        store.close()

    def held() -> tuple[int, int]:
        gc.collect()
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    for number in range(3):
        open_and_close(number)
    before = held()
    for number in range(3, 53):
        open_and_close(number)
    assert held() == before


FORKED = """
import os, sys
from pathlib import Path
from meritory.domain.errors import StorageError
from meritory.store.sqlite.store import SqliteStore

path = Path(sys.argv[1])
store = SqliteStore(path)
store.write("default", lambda t: t.count("default", "n"))
child = os.fork()
if child == 0:
    uses = (
        lambda: store.write("default", lambda t: t.count("default", "n")),
        lambda: store.counters("default"),
        store.erase_traces,
    )
    for use in uses:
        try:
            use()
        except StorageError as error:
            if "fork" not in error.message or "open it again" not in (error.hint or ""):
                os._exit(2)
        else:
            os._exit(3)
    store.close()
    again = SqliteStore(path)
    again.write("default", lambda t: t.count("default", "n"))
    again.close()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
store.write("default", lambda t: t.count("default", "n"))
assert store.counters("default") == {"n": 3}
assert store.check(deep=True) == []
store.close()
"""


def test_a_forked_child_is_told_to_open_the_store_again(tmp_path: Path) -> None:
    """The writer thread stays in the parent: without a word, a write would wait for ever."""
    script = tmp_path / "forked.py"
    script.write_text(FORKED)
    subprocess.run(
        [sys.executable, str(script), str(tmp_path / "meritory.db")], check=True, timeout=60
    )


def test_a_refused_opening_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "meritory.db"
    path.write_text("not a store" * 999)
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with pytest.raises(StorageError):
            SqliteStore(path)
    assert len(os.listdir("/proc/self/fd")) == before
