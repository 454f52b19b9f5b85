"""Whoever follows a store hears of commits, of all of them, and of nothing else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from contract.builders import NOW, insert, record
from machine import patience
from meritory.domain.errors import Conflict
from meritory.domain.job import Job, Lease
from meritory.domain.world import World
from meritory.engine.jobs.runner import JobRunner, Worker, no_effect
from meritory.store.postgres import notify
from meritory.store.postgres.connection import CHANNEL
from meritory.store.postgres.store import PostgresStore
from meritory.store.sqlite.store import SqliteStore

WAIT_S = patience(20.0)
LISTENERS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query = %s"


@pytest.fixture
def stores(address: str) -> Iterator[tuple[PostgresStore, PostgresStore]]:
    """Two daemons' stores on one database."""
    pair = PostgresStore(address), PostgresStore(address)
    yield pair
    for store in pair:
        store.close()


class Told:
    """Counts how often it was told."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.count = 0

    def __call__(self) -> None:
        with self._changed:
            self.count += 1
            self._changed.notify_all()

    def once_more(self, before: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.count > before, WAIT_S)


def until(is_so: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < ends_s
        time.sleep(0.01)


def listeners(address: str) -> list[int]:
    with psycopg.connect(address) as connection:
        found = connection.execute(LISTENERS, (f"LISTEN {CHANNEL}",))
        return [pid for (pid,) in found]


def heard(address: str, work: Callable[[], object]) -> int:
    """How many commits are told while something is done."""
    with psycopg.connect(address, autocommit=True) as ear:
        ear.execute(f"LISTEN {CHANNEL}".encode())
        work()
        with psycopg.connect(address, autocommit=True) as mark:
            mark.execute(f"NOTIFY {CHANNEL}, 'the end'".encode())
        told = []
        for one in ear.notifies(timeout=WAIT_S):
            if one.payload == "the end":
                break
            told.append(one.payload)
    # Nothing of what was written, not even whose it is.
    assert set(told) <= {""}
    return len(told)


def test_a_file_has_to_be_looked_at(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "meritory.db")
    assert store.follow(lambda: None) is None
    store.close()


def test_what_one_process_commits_another_is_told(
    stores: tuple[PostgresStore, PostgresStore],
) -> None:
    one, other = stores
    told = Told()
    following = other.follow(told)
    assert following is not None
    # Once at the beginning: something may have been missed before.
    told.once_more(0)
    for number in range(1, 4):
        before = told.count
        insert(one, record(number))
        told.once_more(before)
    following.close()
    following.close()


@pytest.fixture
def loud(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every commit is told, however soon after another."""
    monkeypatch.setattr(notify, "NOTIFY_EVERY_S", 0.0)


@pytest.mark.usefixtures("loud")
def test_only_changes_are_told_and_each_commit_once(
    address: str, stores: tuple[PostgresStore, PostgresStore]
) -> None:
    store, _ = stores
    lease = Lease("me", NOW, timedelta(minutes=1))

    def many(count: int) -> None:
        insert(store, *(record(number) for number in range(count, 2 * count)))

    assert heard(address, lambda: many(10)) == 1
    assert heard(address, lambda: store.users()) == 0
    assert heard(address, store.change_numbers) == 0
    # Somebody looks for a job, and there is none: nobody else need look because of that.
    assert heard(address, lambda: store.write(None, lambda t: t.take_job(lease, ("kind",)))) == 0
    assert (
        heard(address, lambda: store.write("ann", lambda t: t.put_job("ann", "kind", "1", NOW)))
        == 1
    )
    assert (
        heard(address, lambda: store.write("ann", lambda t: t.put_job("ann", "kind", "1", NOW)))
        == 0
    )
    assert heard(address, lambda: store.write(None, lambda t: t.take_job(lease, ("kind",)))) == 1


def test_a_burst_is_told_a_few_times_and_its_end_for_sure(
    address: str, stores: tuple[PostgresStore, PostgresStore]
) -> None:
    one, other = stores
    seen: list[int] = []
    following = other.follow(lambda: seen.append(other.counters("ann").get("n", 0)))

    def burst() -> None:
        for _ in range(100):
            one.write("ann", lambda t: t.count("ann", "n"))
        until(lambda: bool(seen) and seen[-1] == 100)

    began_s = time.monotonic()
    count = heard(address, burst)
    # One at once, and then four a second at most, however long the commits took.
    assert 1 <= count <= 2 + (time.monotonic() - began_s) / notify.NOTIFY_EVERY_S
    assert following is not None
    following.close()


def test_what_is_still_to_be_told_is_told_at_the_end(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "NOTIFY_EVERY_S", 600.0)

    def work() -> None:
        store = PostgresStore(address)
        for _ in range(3):
            store.write("ann", lambda t: t.count("ann", "n"))
        store.close()

    assert heard(address, work) == 2


def test_what_is_taken_back_is_not_told(
    address: str, stores: tuple[PostgresStore, PostgresStore]
) -> None:
    store, _ = stores

    def fail() -> None:
        with pytest.raises(Conflict):
            store.write("ann", lambda t: (t.count("ann", "n"), _raise())[0])

    assert heard(address, fail) == 0
    assert store.counters("ann") == {}


def _raise() -> None:
    raise Conflict("no")


def test_all_who_follow_share_one_connection_and_leave_none(
    address: str, stores: tuple[PostgresStore, PostgresStore]
) -> None:
    _, other = stores
    told = [Told() for _ in range(3)]
    followings = [other.follow(one) for one in told]
    until(lambda: len(listeners(address)) == 1)
    for following in followings[:2]:
        assert following is not None
        following.close()
    counts = [one.count for one in told]
    insert(stores[0], record(1))
    told[2].once_more(counts[2])
    assert [one.count for one in told[:2]] == counts[:2]
    assert followings[2] is not None
    followings[2].close()
    until(lambda: not listeners(address))
    # Whoever comes later finds somebody who listens again.
    other.follow(told[0])
    until(lambda: len(listeners(address)) == 1)
    other.close()
    assert listeners(address) == []


def test_a_lost_connection_is_made_anew_and_told_once(
    address: str, stores: tuple[PostgresStore, PostgresStore]
) -> None:
    one, other = stores
    told = Told()
    other.follow(told)
    told.once_more(0)
    for number in range(1, 3):
        before = told.count
        (pid,) = listeners(address)
        with psycopg.connect(address, autocommit=True) as administrator:
            administrator.execute("SELECT pg_terminate_backend(%s)", (pid,))
        # Nothing was written; but it could have been.
        told.once_more(before)
        until(lambda gone=pid: listeners(address) not in ([], [gone]))
        before = told.count
        insert(one, record(number))
        told.once_more(before)


class Crew:
    """A daemon's worker that never looks by itself."""

    def __init__(self, store: PostgresStore, done: list[str], began: threading.Event) -> None:
        def stage(job: Job) -> Callable[[object], None]:
            done.append(job.key)
            return no_effect

        runner = JobRunner(store, World(), {"kind": (("only", stage),)})
        self.worker = Worker(runner, poll_s=600.0, before=began.set)
        self.worker.start()
        self.following = store.follow(self.worker.notify)

    def stop(self) -> None:
        assert self.following is not None
        self.following.close()
        assert self.worker.stop(WAIT_S)


@pytest.mark.usefixtures("loud")
def test_a_job_that_one_daemon_queues_another_does_and_then_there_is_quiet(
    address: str, stores: tuple[PostgresStore, PostgresStore]
) -> None:
    """Five daemons are told, one takes the job, and nobody keeps the others awake."""
    one, other = stores
    done: list[str] = []
    began = [threading.Event() for _ in range(5)]
    crews = [Crew(other, done, event) for event in began]
    assert all(event.wait(WAIT_S) for event in began)

    def queue() -> None:
        now = World().now()
        one.write("ann", lambda t: t.put_job("ann", "kind", "1", now))
        until(lambda: other.job("ann", "kind", "1").state == "done")
        # Long enough for all of them to have looked.
        time.sleep(0.4)

    # Queued, taken, its one stage passed, done.
    assert heard(address, queue) == 4
    assert done == ["1"]
    for crew in crews:
        crew.stop()
