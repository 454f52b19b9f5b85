"""kill -9 of whoever runs jobs: every stage of every job takes effect exactly once.

Children drain one store and are killed at random moments, or kill themselves at named points.
Each effect counts up in the store; the control writes to a file beside it instead, which no
transaction undoes, and must show doubles. MERITORY_TEST_JOB_KILLS sets the number of random kills.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from meritory.domain.job import Job
from meritory.domain.world import World
from meritory.engine.jobs.runner import Effect, JobEvent, JobRunner, Stage, no_effect
from meritory.store.contract.store import Transaction
from meritory.store.sqlite.store import SqliteStore

KILLS = int(os.environ.get("MERITORY_TEST_JOB_KILLS", "60"))
CONTROL_KILLS = 20
KIND = "finish"
STAGES = ("extract", "judge", "label")
# Inside the transaction of a stage, and when it is committed.
POINTS = ("taken", *(f"{when} {name}" for name in STAGES for when in ("before", "after")))
JOBS_PER_CHILD = 2

Point = Callable[[str, Job], None]


def nothing(point: str, job: Job) -> None:
    """A point that is passed without harm."""


def write_dot(descriptor: int, point: str, job: Job) -> None:
    """Lets the parent know that a point was reached."""
    os.write(descriptor, b".")


@dataclass(frozen=True)
class Setting:
    """Where the jobs are, and how a child works on them."""

    path: Path
    # Another child must not wait for the leases of those who were killed before it.
    clock_offset: timedelta = timedelta(0)
    lease_length: timedelta = timedelta(minutes=5)
    beside: Path | None = None
    pause_max_s: float = 0.0


def run_jobs(setting: Setting, point: Point, outcomes: Counter[str]) -> None:
    """Drains the store until nothing is left to do."""
    store = SqliteStore(setting.path)
    chance = random.Random(os.getpid())

    def stage(name: str) -> Stage:
        def work(job: Job) -> Effect:
            if name == STAGES[0]:
                point("taken", job)
            time.sleep(chance.random() * setting.pause_max_s)
            if setting.beside is not None:
                with open(setting.beside, "a") as file:
                    file.write(f"{job.key}.{name}\n")
                point(f"before {name}", job)
                return no_effect

            def effect(transaction: Transaction) -> None:
                transaction.count("default", f"{job.key}.{name}")
                point(f"before {name}", job)

            return effect

        return name, work

    def observe(event: JobEvent) -> None:
        outcomes[event.outcome] += 1
        if event.outcome == "stage":
            point(f"after {event.job.stage}", event.job)

    world = World(lambda: datetime.now(UTC) + setting.clock_offset)
    handlers = {KIND: [stage(name) for name in STAGES]}
    runner = JobRunner(store, world, handlers, observe, setting.lease_length)
    while runner.run_one() or store.job_counts()["running"]:
        pass
    store.close()


def put_jobs(path: Path, keys: list[str]) -> None:
    """Queues jobs that are due."""
    with opened(path) as store:
        due_at = datetime.now(UTC) - timedelta(hours=1)
        for key in keys:
            store.write("default", lambda t, key=key: t.put_job("default", KIND, key, due_at))


@contextlib.contextmanager
def opened(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(path)
    yield store
    store.close()


def forked(work: Callable[[], None]) -> int:
    """Runs a function in a child; the number of its process."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def was_killed(child: int) -> bool:
    """Waits for a child; it must have been killed or have ended well."""
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.waitstatus_to_exitcode(status) == 0, "a child failed by itself"
    return False


def finish(setting: Setting) -> None:
    """What is left is done in peace; what lost its holder too often is taken up by a person."""
    with opened(setting.path) as store:
        now = datetime.now(UTC)
        for job in store.jobs(None, "parked", 999):
            assert "died" in str(job.error)
            store.write("default", lambda t, key=job.key: t.resume_job("default", KIND, key, now))
    assert not was_killed(forked(partial(run_jobs, setting, nothing, Counter())))


def result(path: Path) -> tuple[dict[str, int], dict[str, int]]:
    """How often each effect took place, and the states of the jobs."""
    with opened(path) as store:
        assert store.check(deep=True) == []
        states = {state: many for state, many in store.job_counts().items() if many}
        return store.counters("default"), dict(states)


def once(keys: list[str]) -> dict[str, int]:
    """The effects of jobs whose stages took effect exactly once."""
    return {f"{key}.{stage}": 1 for key in keys for stage in STAGES}


def kill_at_random(path: Path, kills: int, beside: Path | None = None) -> list[str]:
    """Kills children at random moments until there were so many; returns the jobs' keys."""
    chance = random.Random(5)
    keys: list[str] = []
    killed = 0
    while killed < kills:
        new = [f"job-{len(keys) + n}" for n in range(JOBS_PER_CHILD)]
        keys += new
        put_jobs(path, new)
        setting = Setting(path, timedelta(hours=2 * len(keys)), beside=beside)
        reading, writing = os.pipe()
        tell = partial(write_dot, writing)
        child = forked(partial(run_jobs, setting, tell, Counter()))
        os.close(writing)
        # Somewhere between two points, each as likely as the other.
        for _ in range(chance.randint(0, JOBS_PER_CHILD * len(POINTS) - 1)):
            os.read(reading, 1)
        time.sleep(chance.random() * 0.002)
        os.kill(child, signal.SIGKILL)
        os.close(reading)
        killed += was_killed(child)
    finish(Setting(path, timedelta(hours=2 * len(keys) + 2), beside=beside))
    return keys


def test_kills_at_random_moments_double_and_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "meritory.db"
    keys = kill_at_random(path, KILLS)
    assert result(path) == (once(keys), {"done": len(keys)})


def test_kills_at_every_named_point_double_and_lose_nothing(tmp_path: Path) -> None:
    """Every job's holder is killed once at each point: seven deaths, and still done once."""
    path = tmp_path / "meritory.db"
    keys = [f"job-{n}" for n in range(9)]
    put_jobs(path, keys)
    marks = tmp_path / "marks"
    marks.mkdir()

    def die_once(point: str, job: Job) -> None:
        mark = marks / f"{job.key} {point}"
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)

    deaths = 0
    while was_killed(
        forked(partial(run_jobs, Setting(path, timedelta(hours=deaths)), die_once, Counter()))
    ):
        deaths += 1
    assert deaths == len(keys) * len(POINTS)
    assert {mark.name for mark in marks.iterdir()} == {f"{k} {p}" for k in keys for p in POINTS}
    assert result(path) == (once(keys), {"done": len(keys)})


def test_an_effect_outside_of_the_transaction_is_seen_to_double(tmp_path: Path) -> None:
    """The control: if no double shows here, the tests above prove nothing."""
    path, beside = tmp_path / "meritory.db", tmp_path / "beside.txt"
    keys = kill_at_random(path, CONTROL_KILLS, beside)
    effects = Counter(beside.read_text().split())
    assert set(effects) == set(once(keys)), "an effect is missing"
    assert max(effects.values()) > 1
    assert result(path) == ({}, {"done": len(keys)})


def drain_together(path: Path, beside: Path | None = None) -> tuple[list[str], Counter[str]]:
    """Three processes work on one store and take jobs from each other all the time."""
    keys = [f"job-{n}" for n in range(15)]
    put_jobs(path, keys)
    # Stages often take longer than the lease lasts.
    setting = Setting(
        path, lease_length=timedelta(milliseconds=4), beside=beside, pause_max_s=0.008
    )
    reports = [path.with_name(f"outcomes-{n}") for n in range(3)]

    def work(report: Path) -> None:
        outcomes: Counter[str] = Counter()
        run_jobs(setting, nothing, outcomes)
        report.write_text(" ".join(outcomes.elements()))

    children = [forked(partial(work, report)) for report in reports]
    assert not any([was_killed(child) for child in children])
    finish(Setting(path, timedelta(hours=1), beside=beside))
    return keys, Counter(" ".join(report.read_text() for report in reports).split())


def test_processes_that_take_jobs_from_each_other_double_nothing(tmp_path: Path) -> None:
    path = tmp_path / "meritory.db"
    keys, outcomes = drain_together(path)
    assert outcomes["lost"] > 0, "nobody took anything from anybody"
    assert result(path) == (once(keys), {"done": len(keys)})


def test_processes_that_take_jobs_from_each_other_are_seen_to_double(tmp_path: Path) -> None:
    """The control of the test above."""
    path, beside = tmp_path / "meritory.db", tmp_path / "beside.txt"
    keys, _ = drain_together(path, beside)
    effects = Counter(beside.read_text().split())
    assert set(effects) == set(once(keys))
    assert max(effects.values()) > 1
