"""The job runner: every stage takes effect once, failures wait, and nothing stops the worker."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from machine import patience
from meritory.domain.errors import (
    BudgetSpent,
    Conflict,
    InputError,
    NotFound,
    PortTimeout,
    StorageError,
)
from meritory.domain.job import PARK_AFTER_ATTEMPTS, WAIT_MAX, Job, Lease
from meritory.domain.world import SeededWorld, World
from meritory.engine.jobs.runner import (
    LEASE_LENGTH,
    RETRY_DELAYS,
    Effect,
    Handler,
    JobEvent,
    JobRunner,
    Worker,
    no_effect,
)
from meritory.ports.process_mark import own_mark
from meritory.store.contract.store import Store, Transaction
from meritory.store.sqlite.store import SqliteStore
from places import Places

KIND = "finish"
STAGES = ("one", "two", "three")
START = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
WALKS = int(os.environ.get("MERITORY_TEST_WALKS", "100"))
TIMEOUT_S = patience(30.0)


class Clock:
    """A clock that stands still until somebody moves it."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


class Bench:
    """A store with a runner whose stages count their effects; `fail` says what goes wrong."""

    def __init__(self, store: Store, clock: Callable[[], datetime]) -> None:
        self.store = store
        self.world = World(clock)
        self.calls: list[tuple[str, str]] = []
        self.events: list[JobEvent] = []
        self.fail: Callable[[str, Job], object] = lambda stage, job: None
        self.runner = self.make_runner()

    def make_runner(self) -> JobRunner:
        handlers = {KIND: [self.stage(name) for name in STAGES]}
        return JobRunner(self.store, self.world, handlers, self.events.append)

    def stage(self, name: str) -> tuple[str, Callable[[Job], Effect]]:
        def work(job: Job) -> Effect:
            self.calls.append((job.key, name))
            self.fail(name, job)
            return lambda transaction: transaction.count(job.user, f"{job.key}.{name}")

        return name, work

    def put(self, *keys: str, at: datetime | None = None) -> None:
        moment = self.world.now() if at is None else at
        for key in keys:
            assert self.store.write(
                "default", lambda t, k=key: t.put_job("default", KIND, k, moment)
            )

    def job(self, key: str = "a") -> Job:
        return self.store.job("default", KIND, key)

    def outcomes(self) -> list[str]:
        return [event.outcome for event in self.events]

    def effects(self) -> dict[str, int]:
        return self.store.counters("default")


def once(*keys: str) -> dict[str, int]:
    """The effects of jobs that were done exactly once."""
    return {f"{key}.{stage}": 1 for key in keys for stage in STAGES}


def raising(error: BaseException, at: str = "two") -> Callable[[str, Job], None]:
    """A stage that goes wrong."""

    def fail(stage: str, job: Job) -> None:
        if stage == at:
            raise error

    return fail


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bench(store: Store, clock: Clock) -> Bench:
    return Bench(store, clock)


# -- processes that ended ---------------------------------------------------------------------

MARK = "from meritory.ports.process_mark import own_mark; print(own_mark())"


def ended_mark() -> str:
    """The mark of a process that has ended."""
    child = subprocess.run([sys.executable, "-c", MARK], capture_output=True, text=True, check=True)
    return child.stdout.strip()


def take(bench: Bench, mark: str) -> Job:
    lease = Lease(f"other@{mark}", bench.world.now(), LEASE_LENGTH)
    job = bench.store.write(None, lambda t: t.take_job(lease, (KIND,)))
    assert job is not None
    return job


def test_the_job_of_an_ended_process_is_taken_over_at_once(bench: Bench) -> None:
    bench.put("a")
    take(bench, ended_mark())
    assert bench.runner.drain() == 1
    assert bench.effects() == once("a")


def test_a_job_that_ends_every_process_is_parked(bench: Bench) -> None:
    bench.put("a")
    mark = ended_mark()
    for _ in range(PARK_AFTER_ATTEMPTS):
        take(bench, mark)
        assert bench.runner.release_ended() == 1
    assert bench.job().state == "parked"
    assert bench.job().error == "its process has ended"


@pytest.mark.parametrize("other", [None, "", "1:2", ":::", "elsewhere.1:{pid}:1", "x@y:1:1"])
def test_the_job_of_a_process_that_may_be_alive_is_left_alone(
    bench: Bench, other: str | None
) -> None:
    bench.put("a")
    pid = ended_mark().split(":")[1]
    take(bench, own_mark() if other is None else other.format(pid=pid))
    assert bench.runner.release_ended() == 0
    assert bench.runner.drain() == 0
    assert bench.job().state == "running"


def test_the_number_of_an_ended_process_may_be_in_use_again(bench: Bench) -> None:
    machine, _, began = own_mark().split(":")
    bench.put("a")
    take(bench, f"{machine}:{os.getpid()}:{int(began) - 1}")
    assert bench.runner.drain() == 1


def test_the_worker_takes_over_the_job_of_an_ended_process(watch: Watch) -> None:
    watch.bench.put("a")
    take(watch.bench, ended_mark())
    watch.worker.start()
    watch.until("done")


def test_a_schedule_counts_for_a_worker_that_runs_already(places: Places) -> None:
    """Jobs that an earlier process left start the worker before the schedule is known."""
    with places.memory() as memory:
        works, looks = memory.works, threading.Semaphore(0)
        works.nudge()
        assert works.worker is not None
        works.schedule(looks.release)
        works.nudge()
        assert looks.acquire(timeout=TIMEOUT_S)
        works.nudge()
        assert looks.acquire(timeout=TIMEOUT_S)


# -- one job ----------------------------------------------------------------------------------


def test_a_job_runs_through_its_stages(bench: Bench, clock: Clock) -> None:
    assert not bench.runner.run_one()
    bench.put("a")
    assert bench.runner.run_one()
    assert bench.calls == [("a", stage) for stage in STAGES]
    assert bench.effects() == once("a")
    job = bench.job()
    assert (job.state, job.stage, job.finished_at) == ("done", "three", clock.now)
    assert bench.outcomes() == ["stage", "stage", "stage", "done"]
    assert [event.job.stage for event in bench.events] == [*STAGES, "three"]
    assert all(event.duration_ms >= 0 and event.error is None for event in bench.events)
    assert bench.runner.done_count == 1
    assert not bench.runner.run_one()


def test_a_stage_sees_the_job_as_it_is_and_renews_the_lease(bench: Bench, clock: Clock) -> None:
    seen: list[Job] = []

    def look(stage: str, job: Job) -> None:
        seen.append(job)
        assert bench.job() == job
        clock.now += timedelta(minutes=4)

    bench.fail = look
    bench.put("a")
    assert bench.runner.run_one()
    assert [job.stage for job in seen] == ["", "one", "two"]
    assert [job.leased_until for job in seen] == [
        START + LEASE_LENGTH,
        START + LEASE_LENGTH + timedelta(minutes=4),
        START + LEASE_LENGTH + timedelta(minutes=8),
    ]


def test_a_failed_stage_is_tried_again_later_and_parked_in_the_end(
    bench: Bench, clock: Clock
) -> None:
    bench.fail = raising(PortTimeout("no answer", hint="look at it"))
    bench.put("a")
    for delay in (*RETRY_DELAYS, None):
        assert bench.runner.run_one()
        job = bench.job()
        assert job.error == "two: no answer (look at it)"
        assert not bench.runner.run_one()
        if delay is not None:
            assert (job.state, job.due_at) == ("queued", clock.now + delay)
            clock.now += delay
    assert job.state == "parked"
    assert bench.calls == [("a", "one"), *[("a", "two")] * PARK_AFTER_ATTEMPTS]
    assert bench.outcomes() == ["stage", "retry", "retry", "retry", "retry", "parked"]
    assert bench.effects() == {"a.one": 1}
    clock.now += timedelta(days=400)
    assert bench.runner.drain() == 0
    bench.fail = lambda stage, job: None
    bench.store.write("default", lambda t: t.resume_job("default", KIND, "a", clock.now))
    assert bench.runner.drain() == 1
    assert bench.effects() == once("a")
    assert bench.job().error is None


def test_every_stage_has_attempts_of_its_own(bench: Bench, clock: Clock) -> None:
    """A job that gets on is not given up, however often something fails on its way."""
    failed: Counter[str] = Counter()

    def fail(stage: str, job: Job) -> None:
        failed[stage] += 1
        if failed[stage] < PARK_AFTER_ATTEMPTS:
            raise StorageError("full")

    bench.fail = fail
    bench.put("a")
    while bench.job().state == "queued":
        clock.now = bench.job().due_at
        assert bench.runner.run_one()
    assert bench.job().state == "done"
    assert bench.effects() == once("a")
    assert failed == dict.fromkeys(STAGES, PARK_AFTER_ATTEMPTS)


def test_a_spent_budget_postpones_without_counting(bench: Bench, clock: Clock) -> None:
    bench.fail = raising(BudgetSpent("no more today", retry_after_s=3_600))
    bench.put("a")
    for _ in range(2 * PARK_AFTER_ATTEMPTS):
        assert bench.runner.run_one()
        job = bench.job()
        assert (job.state, job.due_at) == ("queued", clock.now + timedelta(hours=1))
        assert (job.attempt_count, job.error) == (0, "two: no more today")
        clock.now = job.due_at
    assert set(bench.outcomes()) == {"stage", "postponed"}


@pytest.mark.parametrize(
    ("asked_s", "given"),
    [
        (0.0, timedelta(seconds=1)),
        (-9.0, timedelta(seconds=1)),
        (float("nan"), timedelta(seconds=1)),
        (1e9, WAIT_MAX),
        (float("inf"), WAIT_MAX),
    ],
)
def test_a_budget_can_ask_for_no_absurd_wait(
    bench: Bench, asked_s: float, given: timedelta
) -> None:
    bench.fail = raising(BudgetSpent("no", retry_after_s=asked_s))
    bench.put("a")
    assert bench.runner.run_one()
    assert bench.job().due_at == START + given


def test_an_unforeseen_error_parks_the_job_and_quotes_nothing(bench: Bench) -> None:
    bench.fail = raising(ValueError("the user's secret"))
    bench.put("a")
    assert bench.runner.run_one()
    job = bench.job()
    assert job.state == "parked"
    assert job.error is not None
    assert job.error.startswith("two: ValueError at test_jobs.py:")
    assert "secret" not in job.error
    assert bench.outcomes() == ["stage", "parked"]
    assert isinstance(bench.events[-1].error, ValueError)


def test_an_effect_that_fails_undoes_its_stage(bench: Bench) -> None:
    def work(job: Job) -> Effect:
        def effect(transaction: object) -> None:
            bench.stage("one")[1](job)(transaction)  # type: ignore[arg-type]
            raise StorageError("full")

        return effect

    runner = JobRunner(bench.store, bench.world, {KIND: [("one", work)]}, bench.events.append)
    bench.put("a")
    assert runner.run_one()
    assert bench.effects() == {}
    assert (bench.job().stage, bench.job().error) == ("", "one: full")


def test_the_words_of_an_error_are_kept_short(bench: Bench) -> None:
    bench.fail = raising(InputError("x" * 99_999))
    bench.put("a")
    assert bench.runner.run_one()
    assert len(str(bench.job().error)) == 500


def test_a_conflict_of_the_work_itself_is_a_failure_like_others(bench: Bench) -> None:
    bench.fail = raising(Conflict("it was changed meanwhile"))
    bench.put("a")
    assert bench.runner.run_one()
    assert (bench.job().state, bench.job().error) == ("queued", "two: it was changed meanwhile")


@pytest.mark.parametrize("then", [None, PortTimeout("late"), ValueError("bug"), BudgetSpent("no")])
def test_a_job_that_another_took_over_is_let_go(
    bench: Bench, clock: Clock, then: Exception | None
) -> None:
    """The first holder is so slow that a second does it all; then it comes back."""
    other = Bench(bench.store, clock)

    def dawdle(stage: str, job: Job) -> None:
        if stage == "two":
            clock.now += LEASE_LENGTH
            assert other.runner.run_one()
            if then is not None:
                raise then

    bench.fail = dawdle
    bench.put("a")
    assert bench.runner.run_one()
    assert other.outcomes() == ["stage", "stage", "done"]
    assert bench.outcomes() == ["stage", "lost"]
    assert bench.effects() == once("a")
    assert bench.job().state == "done"
    assert (bench.runner.done_count, other.runner.done_count) == (0, 1)


def test_what_another_took_while_one_waited_to_write_is_left_to_it(
    bench: Bench, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hours later its lease is none that a clock gone wrong has written."""
    write = bench.store.write

    def waiting(user: str | None, work: Callable[[Transaction], object]) -> object:
        clock.now += timedelta(hours=2)
        other = Lease("other", clock.now, LEASE_LENGTH)
        write("default", lambda t: t.take_named_job(other, "default", KIND, "a"))
        return write(user, work)

    bench.put("a")
    monkeypatch.setattr(bench.store, "write", waiting)
    assert not bench.runner.run_one()
    assert bench.job().lease == "other"


def test_an_interrupted_job_is_free_at_once(bench: Bench) -> None:
    bench.fail = raising(KeyboardInterrupt())
    bench.put("a")
    with pytest.raises(KeyboardInterrupt):
        bench.runner.run_one()
    job = bench.job()
    assert (job.state, job.stage, job.attempt_count, job.due_at) == ("queued", "one", 0, START)
    bench.fail = lambda stage, job: None
    assert bench.runner.drain() == 1
    assert bench.effects() == once("a")


def test_a_runner_that_shall_stop_ends_between_two_stages(bench: Bench) -> None:
    bench.put("a")
    assert bench.runner.run_one(lambda: len(bench.calls) == 2)
    job = bench.job()
    assert (job.state, job.stage, job.attempt_count, job.due_at) == ("queued", "two", 0, START)
    assert bench.outcomes()[-1] == "postponed"
    assert bench.runner.drain() == 1
    assert bench.effects() == once("a")


def test_a_stage_that_nobody_knows_is_not_guessed(bench: Bench) -> None:
    """Another version had more stages; what it began is not begun again."""
    bench.put("a")
    lease = Lease("other", START, timedelta(minutes=1))
    job = bench.store.write(None, lambda t: t.take_job(lease, [KIND]))
    assert job is not None
    job = bench.store.write(job.user, lambda t: t.pass_stage(job, "unheard-of", START))
    bench.store.write(job.user, lambda t: t.postpone_job(job, START))
    assert bench.runner.drain() == 0
    assert "no stage 'unheard-of'" in str(bench.job().error)
    assert bench.calls == []


def test_a_job_at_its_last_stage_is_only_finished(bench: Bench) -> None:
    bench.put("a")
    assert bench.runner.run_one(lambda: len(bench.calls) == 3)
    assert bench.job().state == "done"
    bench.put("b")
    runner = JobRunner(bench.store, bench.world, {KIND: [bench.stage("one"), bench.stage("two")]})
    assert runner.run_one(lambda: bench.calls[-1] == ("b", "one"))
    shorter = JobRunner(bench.store, bench.world, {KIND: [bench.stage("one")]})
    assert shorter.drain() == 1
    assert bench.effects() == {**once("a"), "b.one": 1}


def test_stages_need_names_of_their_own(bench: Bench) -> None:
    for names in (("one", "one"), ("one", "")):
        handler: Handler = [(name, lambda job: no_effect) for name in names]
        with pytest.raises(InputError, match="name of its own"):
            JobRunner(bench.store, bench.world, {KIND: handler})


# -- draining ---------------------------------------------------------------------------------


def test_draining_runs_all_that_is_due_and_what_it_brings_about(bench: Bench) -> None:
    def bring(stage: str, job: Job) -> None:
        if stage == "three" and job.key in "abc":
            bench.put(job.key + "'")

    bench.fail = bring
    bench.put("a", "b", "c")
    bench.put("later", at=START + timedelta(seconds=1))
    assert bench.runner.drain() == 6
    assert bench.effects() == once("a", "b", "c", "a'", "b'", "c'")
    assert bench.job("later").state == "queued"


def test_draining_can_be_limited(bench: Bench) -> None:
    bench.put("a", "b", "c")
    assert bench.runner.drain(2) == 2
    assert [bench.job(key).state for key in "abc"] == ["done", "done", "queued"]
    assert bench.runner.drain(0) == 0
    assert bench.runner.drain() == 1


@pytest.mark.parametrize("error", [NotFound("gone"), ValueError("bug"), BudgetSpent("no")])
def test_draining_tries_what_fails_once(store: Store, error: Exception) -> None:
    """Even when the clock runs so fast that it is due again at once."""
    moments = (START + n * timedelta(days=1) for n in range(10_000))
    bench = Bench(store, lambda: next(moments))
    bench.put("bad")
    bench.put("good")
    bench.fail = lambda stage, job: raising(error)(stage, job) if job.key == "bad" else None
    assert bench.runner.drain() == 1
    assert bench.calls.count(("bad", "two")) == 1
    assert bench.job("good").state == "done"


def test_jobs_of_other_kinds_are_left_alone(bench: Bench) -> None:
    bench.store.write("default", lambda t: t.put_job("default", "from-the-future", "a", START))
    assert bench.runner.drain() == 0
    assert bench.store.job("default", "from-the-future", "a").attempt_count == 0
    assert bench.runner.wait_s(7.0) == 7.0


def test_it_is_known_how_long_there_is_nothing_to_do(bench: Bench, clock: Clock) -> None:
    assert bench.runner.wait_s(9.0) == 9.0
    bench.put("a", at=START + timedelta(seconds=5))
    assert bench.runner.wait_s(9.0) == 5.0
    assert bench.runner.wait_s(2.0) == 2.0
    clock.now += timedelta(days=1)
    assert bench.runner.wait_s(9.0) == 0.0


# -- clocks that lie --------------------------------------------------------------------------


@pytest.mark.parametrize("step_s", [0.0, -1.0, -86_400.0, 1e-6])
def test_a_clock_that_stands_or_runs_backwards_stops_nothing(store: Store, step_s: float) -> None:
    looks = iter(range(10**6))
    bench = Bench(store, lambda: START + next(looks) * timedelta(seconds=step_s))
    keys = [f"k{n}" for n in range(5)]
    bench.put(*keys, at=START - timedelta(days=200))
    assert bench.runner.drain() == 5
    assert bench.effects() == once(*keys)


class Walk:
    """A life of jobs under a clock that jumps by up to ten years, with failures and deaths."""

    def __init__(self, store: Store, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.clock = Clock()
        self.bench = Bench(store, self.clock)
        self.bench.fail = self.maybe_fail
        self.is_calm = False
        self.keys: list[str] = []

    def maybe_fail(self, stage: str, job: Job) -> None:
        if self.is_calm:
            return
        if self.chance.random() < 0.2:
            self.jump()
        if self.chance.random() < 0.3:
            errors = (PortTimeout("late"), BudgetSpent("no", retry_after_s=1e9), ValueError("bug"))
            raise self.chance.choice(errors)

    def jump(self) -> None:
        days = self.chance.choice((3_653.0, 30.0, 1.0, 1e-3))
        self.clock.now += timedelta(days=self.chance.uniform(-days, days))
        # Ten years at most from where it began.
        farthest = timedelta(days=3_653)
        self.clock.now = min(max(self.clock.now, START - farthest), START + farthest)

    def put(self) -> None:
        self.keys.append(f"{self.seed}-{len(self.keys)}")
        self.bench.put(self.keys[-1])

    def die(self) -> None:
        """Somebody takes a job and is never heard of again."""
        length = timedelta(seconds=self.chance.uniform(1.0, 3_600.0))
        lease = Lease(f"dead {self.chance.random()}", self.clock.now, length)
        self.bench.store.write(None, lambda t: t.take_job(lease, [KIND]))

    def drain(self) -> None:
        self.bench.calls.clear()
        self.bench.runner.drain()
        storm = {call: many for call, many in Counter(self.bench.calls).items() if many > 1}
        assert storm == {}

    def live(self, steps: int) -> None:
        for _ in range(steps):
            self.chance.choice((self.put, self.jump, self.jump, self.die, self.drain))()

    def calm_down(self) -> None:
        """Time goes on as it should, and somebody looks after what was parked."""
        self.is_calm = True
        self.clock.now += timedelta(hours=2)
        for _ in range(WAIT_MAX.days + 1):
            for job in self.bench.store.jobs(None, "parked", 999):
                self.bench.store.write(
                    "default",
                    lambda t, key=job.key: t.resume_job("default", KIND, key, self.clock.now),
                )
            self.drain()
            self.clock.now += timedelta(days=1)


def test_no_jump_of_the_clock_hangs_a_job_or_does_it_twice(store: Store) -> None:
    walks = WALKS
    if isinstance(store, SqliteStore):
        # Many small writes, and no power cut in sight.
        store._engine._writer.execute("PRAGMA synchronous = OFF")
    else:
        # Each write goes to another process and back; the walks are the same.
        walks = -(-WALKS // 10)
    keys: list[str] = []
    for seed in range(walks):
        walk = Walk(store, seed)
        walk.put()
        walk.live(25)
        walk.calm_down()
        keys += walk.keys
        assert store.job_counts()["done"] == len(keys), seed
    assert Bench(store, Clock()).effects() == once(*keys)


# -- the worker -------------------------------------------------------------------------------


class Watch:
    """A worker under the real clock, and a way to wait until something has happened."""

    def __init__(self, store: Store) -> None:
        self.bench = Bench(store, lambda: datetime.now(UTC))
        self.changed = threading.Condition()
        self.bench.events = self  # type: ignore[assignment]
        self.seen: list[str] = []
        self.trouble: list[Exception] = []
        self.bench.runner = self.bench.make_runner()
        self.worker = Worker(self.bench.runner, poll_s=TIMEOUT_S)

    def append(self, event: JobEvent) -> None:
        with self.changed:
            self.seen.append(event.outcome)
            self.changed.notify_all()
        if self.trouble and event.outcome == "done":
            raise self.trouble.pop()

    def until(self, outcome: str, times: int = 1) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.seen.count(outcome) >= times, TIMEOUT_S)


@pytest.fixture
def watch(store: Store) -> Iterator[Watch]:
    watch = Watch(store)
    yield watch
    assert watch.worker.stop(TIMEOUT_S)


def test_the_worker_does_what_is_there_and_what_comes(watch: Watch) -> None:
    watch.bench.put("a")
    assert not watch.worker.is_alive
    watch.worker.start()
    watch.until("done")
    watch.bench.put("b")
    watch.worker.wake()
    watch.until("done", 2)
    assert watch.worker.is_alive
    assert watch.worker.jobs_done == 2
    assert watch.worker.last_error is None
    assert watch.worker.stop(TIMEOUT_S)
    assert not watch.worker.is_alive
    assert watch.bench.effects() == once("a", "b")


def test_the_worker_waits_for_a_job_to_fall_due(watch: Watch) -> None:
    """Nobody wakes it, and it would look again long after this test has failed."""
    watch.bench.put("a", at=datetime.now(UTC) + timedelta(seconds=0.2))
    watch.worker.start()
    watch.until("done")


def test_a_worker_with_nothing_to_do_sleeps(store: Store) -> None:
    looks: list[datetime] = []

    def clock() -> datetime:
        looks.append(datetime.now(UTC))
        return looks[-1]

    worker = Worker(Bench(store, clock).runner, poll_s=TIMEOUT_S)
    worker.start()
    worker.wake()
    threading.Event().wait(0.1)
    assert worker.stop(TIMEOUT_S)
    assert len(looks) < 20


def test_the_worker_outlives_bad_jobs_and_worse(watch: Watch) -> None:
    watch.bench.fail = lambda stage, job: (
        raising(ValueError("bug"))(stage, job) if job.key == "bad" else None
    )
    watch.bench.put("bad", "good")
    watch.worker.start()
    watch.until("done")
    assert watch.bench.job("bad").state == "parked"
    # A hook at the end of a job is outside of any job.
    watch.trouble.append(RuntimeError("nobody expects me"))
    watch.bench.put("a")
    watch.worker.wake()
    watch.until("done", 2)
    watch.bench.put("b")
    watch.worker.wake()
    watch.until("done", 3)
    assert watch.worker.is_alive
    assert watch.worker.jobs_done == 3
    assert watch.bench.effects() == {**once("good", "a", "b"), "bad.one": 1}


def test_the_worker_says_what_keeps_it_from_working(store: Store) -> None:
    watch = Watch(store)
    store.close()
    watch.worker.start()
    while watch.worker.last_error is None:
        threading.Event().wait(0.001)
    assert watch.worker.last_error == "jobs: the store is closed"
    assert watch.worker.is_alive
    assert watch.worker.stop(TIMEOUT_S)


def test_draining_waits_for_what_the_worker_has_begun(watch: Watch) -> None:
    """And for what that brings about: after it, nothing that was due is under way anywhere."""
    begun, go = threading.Event(), threading.Event()

    def block(stage: str, job: Job) -> None:
        if (stage, job.key) == ("three", "a"):
            begun.set()
            assert go.wait(TIMEOUT_S)
            watch.bench.put("b")

    watch.bench.fail = block
    watch.bench.put("a")
    watch.worker.start()
    assert begun.wait(TIMEOUT_S)
    seen: list[dict[str, int]] = []

    def drain() -> None:
        watch.bench.runner.drain()
        seen.append(watch.bench.effects())

    drainer = threading.Thread(target=drain)
    drainer.start()
    drainer.join(0.2)
    assert seen == []
    go.set()
    drainer.join(TIMEOUT_S)
    assert seen == [once("a", "b")]


def test_stopping_waits_for_the_stage_and_gives_the_job_back(watch: Watch) -> None:
    begun, go = threading.Event(), threading.Event()

    def block(stage: str, job: Job) -> None:
        begun.set()
        assert go.wait(TIMEOUT_S)

    watch.bench.fail = block
    watch.bench.put("a")
    watch.worker.start()
    assert begun.wait(TIMEOUT_S)
    assert not watch.worker.stop(0.01)
    go.set()
    assert watch.worker.stop(TIMEOUT_S)
    assert (watch.bench.job().state, watch.bench.job().stage) == ("queued", "one")
    assert watch.bench.job().lease is None


def test_a_worker_that_never_began_can_be_stopped(store: Store) -> None:
    assert Watch(store).worker.stop(TIMEOUT_S)


def test_the_same_seed_gives_the_same_life(places: Places) -> None:
    """Leases come from the world, too: a replay is a replay."""
    lives = []
    for name in ("first", "second"):
        store = places.store(f"{name}.db")
        bench = Bench(store, Clock())
        bench.world = SeededWorld(3, Clock())
        bench.runner = bench.make_runner()
        bench.fail = raising(ValueError("bug"), "three")
        bench.put("a", "b")
        bench.runner.drain()
        lives.append([(event.outcome, event.job) for event in bench.events])
        store.close()
    assert lives[0] == lives[1]
