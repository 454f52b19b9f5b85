"""Two daemons as processes of their own work off one queue; one of them is killed midway."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from datetime import timedelta

import pytest

from contract.builders import NOW
from machine import patience
from meritory.domain.job import PARK_AFTER_ATTEMPTS, Lease
from meritory.domain.world import World
from meritory.store.contract.store import Transaction
from meritory.store.postgres import connection
from meritory.store.postgres.store import PostgresStore

JOB_COUNT = 200
WAIT_S = patience(60.0)
MINUTE = timedelta(minutes=1)
# The one that dies does so in the middle of a stage, with what it did so far in the store.
DAEMON = """
import sys, time
from datetime import timedelta
from meritory.engine.jobs.runner import JobRunner
from meritory.store.postgres.store import PostgresStore
from meritory.domain.world import World

address, dies_after = sys.argv[1], int(sys.argv[2])
store = PostgresStore(address)
seen = []

def stage(name, job):
    seen.append(job.key)
    if len(seen) == dies_after:
        print(job.user, job.key, flush=True)
        time.sleep(600)
    return lambda transaction: transaction.count(job.user, f"{name} {job.key}")

def first(job): return stage("first", job)
def second(job): return stage("second", job)

handlers = {"kind": (("first", first), ("second", second))}
runner = JobRunner(store, World(), handlers, lease_length=timedelta(seconds=1))
print("ready", flush=True)
sys.stdin.readline()
while True:
    runner.drain()
    time.sleep(0.05)
"""


class Daemon:
    """A process that runs jobs until it is killed."""

    def __init__(self, address: str, dies_after: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", DAEMON, address, str(dies_after)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def says(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def begin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


def test_no_job_is_taken_twice(address: str) -> None:
    """Four workers of two daemons, forty jobs of two users."""
    stores = [PostgresStore(address) for _ in range(2)]
    for number in range(40):
        user = "ann" if number % 2 else "bob"
        stores[0].write(user, lambda t, n=number, u=user: t.put_job(u, "learn", f"{n}", NOW))
    taken: list[str] = []

    def work(store: PostgresStore, name: str) -> None:
        lease = Lease(name, NOW, timedelta(minutes=5))
        while (job := store.write(None, lambda t: t.take_job(lease, ("learn",)))) is not None:
            taken.append(job.key)
            store.write(job.user, lambda t, job=job: t.finish_job(job, NOW))

    threads = [
        threading.Thread(target=work, args=(stores[at % 2], f"worker {at}")) for at in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken, key=int) == [f"{number}" for number in range(40)]
    assert stores[1].job_counts()["done"] == 40
    for store in stores:
        store.close()


def test_who_asks_for_a_job_does_not_wait_for_who_just_takes_one(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where abandoned ones are to be parked, which both come across."""
    monkeypatch.setattr(connection, "LOCK_TIMEOUT_MS", 300)
    store = PostgresStore(address)
    for key, user in (("dead", "ann"), ("a", "bob"), ("b", "bob"), ("c", "ann")):
        store.write(user, lambda t, key=key, user=user: t.put_job(user, "learn", key, NOW))
    for attempt in range(PARK_AFTER_ATTEMPTS):
        died = Lease("who died", NOW + attempt * MINUTE, MINUTE)
        job = store.write(None, lambda t, died=died: t.take_job(died, ("learn",), (2, 3, 4)))
        assert job is not None and job.key == "dead"
    now = NOW + PARK_AFTER_ATTEMPTS * MINUTE

    def take(transaction: Transaction, left: int = 3) -> list[str]:
        job = transaction.take_job(Lease(f"{left}", now, MINUTE), ("learn",))
        assert job is not None
        others = store.write(None, lambda t: take(t, left - 1)) if left > 1 else []
        return [job.key, *others]

    assert store.write(None, take) == ["a", "b", "c"]
    assert store.job_counts() == {"queued": 0, "running": 3, "done": 0, "parked": 1}
    store.close()


def test_every_job_is_done_once_whoever_dies(address: str) -> None:
    store = PostgresStore(address)
    now = World().now()
    users = ("ann", "bob", "cyd")
    for number in range(JOB_COUNT):
        user = users[number % 3]
        store.write(user, lambda t, n=number, u=user: t.put_job(u, "kind", f"{n}", now))
    daemons = [Daemon(address, dies_after) for dies_after in (41, 0)]
    try:
        for daemon in daemons:
            assert daemon.says() == "ready"
        for daemon in daemons:
            daemon.begin()
        user, key = daemons[0].says().split()
        daemons[0].kill()
        # Held, unless its lease was over before we could look: the other has done it then.
        assert store.job(user, "kind", key).state in ("running", "done")
        ends_s = time.monotonic() + WAIT_S
        while store.job_counts()["done"] < JOB_COUNT and time.monotonic() < ends_s:
            time.sleep(0.05)
    finally:
        for daemon in daemons:
            daemon.kill()
    assert store.job_counts() == {"queued": 0, "running": 0, "done": JOB_COUNT, "parked": 0}
    effects = {name: many for user in users for name, many in store.counters(user).items()}
    wanted = {f"{stage} {n}": 1 for stage in ("first", "second") for n in range(JOB_COUNT)}
    assert effects == wanted
    store.close()
