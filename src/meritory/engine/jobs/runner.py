"""Runs jobs, stage by stage, so that each stage takes effect exactly once.

A stage computes without holding anything up and returns its effect, a function of a transaction.
That and the note that the stage is done are committed together or not at all: whoever is killed
in between, or loses the job to another process, leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import threading
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

from meritory.domain.errors import BudgetSpent, Conflict, InputError, MeritoryError
from meritory.domain.job import WAIT_MAX, Job, Lease
from meritory.domain.world import World
from meritory.store.contract.store import Store, Transaction

# Longer than any one stage takes: after a kill, its job is gone on with when this has passed.
LEASE_LENGTH = timedelta(minutes=5)
# How long a job waits after its first, second, ... failure.
RETRY_DELAYS = (
    timedelta(seconds=10),
    timedelta(seconds=60),
    timedelta(minutes=5),
    timedelta(minutes=30),
)
POSTPONE_MIN_S = 1.0
# How often to look for jobs of other processes, and how soon again after an error.
POLL_S = 15.0
AFTER_ERROR_S = 5.0
# What others do is looked at a little later: whoever queued a job may take it meanwhile.
CALM_S = 0.1
# Somebody may be about to take what is due: it is not asked for without end.
_AGAIN_S = 0.05
_ERROR_LIMIT_CHARS = 500

# What a stage does within its transaction, which may be run again after a clash: whoever is to
# hear of it hears it after the commit, by the function that this returns.
After = Callable[[], None]
Effect = Callable[[Transaction], After | None]
Stage = tuple[str, Callable[[Job], Effect]]
Handler = Sequence[Stage]
Outcome = Literal["stage", "done", "retry", "parked", "postponed", "lost"]
_End = tuple[Outcome, Callable[[Transaction], Job]]
_AT_ONCE = timedelta(0)


@dataclass(frozen=True, slots=True)
class JobEvent:
    """What became of a job: a stage took effect, or the run ended.

    `duration_ms` is of that stage or of the run. `lost` is a job that another process took over.
    """

    outcome: Outcome
    job: Job
    duration_ms: float
    error: Exception | None = None


def no_effect(transaction: Transaction) -> None:
    """What a stage returns that found nothing to do."""


def _ignore(event: JobEvent) -> None:
    """Nobody watches."""


def _never() -> bool:
    return False


def nothing() -> object:
    """Nothing is to be queued by the calendar."""


class JobRunner:
    """Takes jobs of the kinds it has handlers for and runs them to their end."""

    def __init__(
        self,
        store: Store,
        world: World,
        handlers: Mapping[str, Handler],
        observe: Callable[[JobEvent], None] = _ignore,
        lease_length: timedelta = LEASE_LENGTH,
    ) -> None:
        self._store = store
        self._world = world
        self._handlers = dict(handlers)
        self._observe = observe
        self._lease_length = lease_length
        # Held while a job is taken and run: whoever finds none left then knows that all is done,
        # and not under way on another thread.
        self._turn = threading.Lock()
        self.done_count = 0
        for kind, stages in self._handlers.items():
            names = {name for name, _ in stages}
            if "" in names or len(names) < len(stages):
                raise InputError(f"every stage of {kind} needs a name of its own")

    def run_one(self, should_stop: Callable[[], bool] = _never) -> bool:
        """Runs the job due longest; False when none is due. It may stop between two stages."""
        return self._run_next((), should_stop) is not None

    def run_named(self, user: str, kind: str, key: str) -> bool:
        """Runs one job that waits, due or not; False when it does not wait, or fails."""
        job = self._store.write(lambda t: t.take_named_job(self._lease(), user, kind, key))
        return job is not None and self._run(job, _never).state == "done"

    def drain(self, limit: int | None = None, should_stop: Callable[[], bool] = _never) -> int:
        """Runs every job that is due, and those they bring about, once; returns how many got done.

        What another thread of this runner took as due is done, too, when this returns. What fails
        is left for later, and so is the rest when it is to stop.
        """
        tried: dict[int, Job] = {}
        while limit is None or len(tried) < limit:
            job = self._run_next(tried, should_stop)
            if job is None:
                break
            tried[job.number] = job
        return sum(job.state == "done" for job in tried.values())

    def wait_s(self, limit_s: float) -> float:
        """How long there is nothing to do, as far as is known."""
        now = self._world.now()
        at = self._store.next_job_at(now, self._handlers)
        return limit_s if at is None else min(limit_s, (at - now).total_seconds())

    def monotonic_s(self) -> float:
        """A clock that only goes forward."""
        return self._world.monotonic_ms() / 1000

    def _run_next(self, skip: Collection[int], should_stop: Callable[[], bool]) -> Job | None:
        with self._turn:
            # Whoever had the turn before may have had it for minutes.
            if should_stop():
                return None
            job = self._store.write(lambda t: t.take_job(self._lease(), self._handlers, skip))
            return None if job is None else self._run(job, should_stop)

    def _lease(self) -> Lease:
        """Made when it is its turn to write: leases given while it waited are not of the future."""
        return Lease(self._world.new_id(), self._world.now(), self._lease_length)

    def _run(self, job: Job, should_stop: Callable[[], bool]) -> Job:
        began_ms = self._world.monotonic_ms()
        error: Exception | None = None
        stage = job.kind
        try:
            for stage, work in self._ahead(job):
                if should_stop():
                    end = self._postponing(job, _AT_ONCE)
                    break
                stage_began_ms = self._world.monotonic_ms()
                job = self._pass(job, stage, work)
                self._tell("stage", job, stage_began_ms)
            else:
                end = self._finishing(job)
        except BudgetSpent as spent:
            error, end = spent, self._postponing(job, _budget_wait(spent), _told(stage, spent))
        except MeritoryError as expected:
            error, end = expected, self._retrying(job, _told(stage, expected))
        except Exception as unforeseen:
            error, end = unforeseen, self._parking(job, _told(stage, unforeseen))
        except BaseException:
            # Interrupted: others need not wait for the lease to end.
            with contextlib.suppress(MeritoryError):
                self._store.write(self._postponing(job, _AT_ONCE)[1])
            raise
        return self._settle(job, end, began_ms, error)

    def _ahead(self, job: Job) -> Iterator[Stage]:
        """The stages that have not taken effect yet."""
        stages = list(self._handlers[job.kind])
        names = [name for name, _ in stages]
        if job.stage and job.stage not in names:
            raise Conflict(
                f"{job.kind} has no stage {job.stage!r}",
                hint="another version of Meritory began this job; run it with that one",
            )
        yield from stages[names.index(job.stage) + 1 if job.stage else 0 :]

    def _pass(self, job: Job, stage: str, work: Callable[[Job], Effect]) -> Job:
        effect = work(job)
        until = self._world.now() + self._lease_length

        def commit(transaction: Transaction) -> tuple[Job, After | None]:
            return transaction.pass_stage(job, stage, until), effect(transaction)

        passed, after = self._store.write(commit)
        if after is not None:
            after()
        return passed

    def _finishing(self, job: Job) -> _End:
        at = self._world.now()
        return "done", lambda transaction: transaction.finish_job(job, at)

    def _retrying(self, job: Job, told: str) -> _End:
        at = self._world.now() + RETRY_DELAYS[min(job.attempt_count, len(RETRY_DELAYS)) - 1]
        return "retry", lambda transaction: transaction.fail_job(job, told, at)

    def _parking(self, job: Job, told: str) -> _End:
        return "parked", lambda transaction: transaction.fail_job(job, told, None)

    def _postponing(self, job: Job, wait: timedelta, why: str | None = None) -> _End:
        at = self._world.now() + wait
        return "postponed", lambda transaction: transaction.postpone_job(job, at, why)

    def _settle(self, job: Job, end: _End, began_ms: float, error: Exception | None) -> Job:
        outcome, settle = end
        try:
            job = self._store.write(settle)
        except Conflict:
            # Somebody else has it by now and does the rest.
            outcome = "lost"
        if job.state == "parked":
            outcome = "parked"
        self.done_count += outcome == "done"
        self._tell(outcome, job, began_ms, error)
        return job

    def _tell(
        self, outcome: Outcome, job: Job, began_ms: float, error: Exception | None = None
    ) -> None:
        self._observe(JobEvent(outcome, job, self._world.monotonic_ms() - began_ms, error))


class Worker:
    """A thread that runs jobs as they fall due; no error ends it."""

    def __init__(
        self,
        runner: JobRunner,
        poll_s: float = POLL_S,
        before: Callable[[], object] = nothing,
    ) -> None:
        """`before` is called at every look for jobs, and may queue some."""
        self._runner = runner
        self._before = before
        self._poll_s = poll_s
        self._woken = threading.Event()
        self._called = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="meritory-jobs", daemon=True)
        # What kept it from working when it last tried; failures of single jobs are theirs.
        self.last_error: str | None = None

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def jobs_done(self) -> int:
        """How many jobs got done since the start."""
        return self._runner.done_count

    def start(self) -> None:
        """Begins to work."""
        self._thread.start()

    def wake(self) -> None:
        """Lets it look for jobs at once, e.g. because one was just queued."""
        self._called.set()
        self._woken.set()

    def notify(self) -> None:
        """Look for jobs soon, because another process may have queued one."""
        self._woken.set()

    def stop(self, timeout_s: float) -> bool:
        """Ends after the stage that runs, which may take too long; says whether it has ended."""
        self._stopping.set()
        self.wake()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _serve(self) -> None:
        while True:
            # Before the question whether to stop: a call between the two is not lost.
            self._called.clear()
            self._woken.clear()
            if self._stopping.is_set():
                return
            try:
                self._before()
                while not self._stopping.is_set() and self._runner.run_one(self._stopping.is_set):
                    pass
                wait_s = max(_AGAIN_S, self._runner.wait_s(self._poll_s))
                self.last_error = None
            except Exception as error:
                self.last_error = _told("jobs", error)
                wait_s = min(AFTER_ERROR_S, self._poll_s)
            self._rest(wait_s)

    def _rest(self, wait_s: float) -> None:
        """Until it is called, or a job is due; when it is told something, it only looks."""
        until_s = self._runner.monotonic_s() + self._poll_s
        while self._woken.wait(wait_s):
            self._woken.clear()
            if self._called.is_set():
                return
            self._stopping.wait(CALM_S)
            try:
                wait_s = self._runner.wait_s(self._poll_s)
            except MeritoryError:
                # Tried again, and told, where jobs are taken.
                return
            wait_s = min(wait_s, until_s - self._runner.monotonic_s())
            if wait_s <= 0:
                return


def _budget_wait(spent: BudgetSpent) -> timedelta:
    wait_s = max(POSTPONE_MIN_S, spent.retry_after_s)
    return timedelta(seconds=min(wait_s, WAIT_MAX.total_seconds()))


def _told(stage: str, error: Exception) -> str:
    """An error in words; of a foreign one only its type and place, for it may quote anything."""
    if isinstance(error, MeritoryError):
        return f"{stage}: {error}"[:_ERROR_LIMIT_CHARS]
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{stage}: {type(error).__name__}{place}"
