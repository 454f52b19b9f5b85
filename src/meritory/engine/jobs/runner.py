"""Run jobs stage by stage, on background threads, so that each stage takes effect exactly once.

A stage computes outside any transaction and returns its effect, a function of a transaction. The
effect and the note that the stage is done are committed together or not at all, so a process that
is killed, or that loses the job to another process, leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import threading
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import methodcaller
from pathlib import Path
from typing import Literal

from meritory.domain.errors import BudgetSpent, Conflict, InputError, MeritoryError
from meritory.domain.job import WAIT_MAX, Job, Lease
from meritory.domain.memory import Scope
from meritory.domain.world import Subscription, World
from meritory.engine.memories.recall import recall
from meritory.engine.observe import telemetry
from meritory.engine.predictor.state import TRAIN_JOB
from meritory.engine.services import Services
from meritory.engine.sessions.ratings import LEARN_JOB
from meritory.ports.process_mark import has_ended, own_mark
from meritory.store.contract.store import Store, Transaction

# Longer than any stage takes: the job of a process that ended elsewhere is resumed after this time.
LEASE_LENGTH = timedelta(minutes=5)
# Delays before the retry after the first, second, ... failure.
RETRY_DELAYS = (
    timedelta(seconds=10),
    timedelta(seconds=60),
    timedelta(minutes=5),
    timedelta(minutes=30),
)
POSTPONE_MIN_S = 1.0
# How often to look for jobs of other processes, and how soon after an error.
POLL_S = 15.0
AFTER_ERROR_S = 5.0
# Pause after a notification: the process that queued a job usually takes it itself.
CALM_S = 0.1
# Shortest pause, while another process may be about to take a job that is due.
_PAUSE_MIN_S = 0.05
_ERROR_LIMIT_CHARS = 500
_RUNNING_LIMIT = 100
STOP_WAIT_S = 5.0
# Loading the model usually takes a fifth of this; the first session should find it ready.
SCORER_WAIT_S = 1.0
EXTRACT_JOB = "extract"
RULE_JOB = "remember-rule"
# The flow of the pipeline that a job belongs to; scheduled jobs belong to none.
_FLOW_OF = {LEARN_JOB: "learn", RULE_JOB: "learn", TRAIN_JOB: "train", EXTRACT_JOB: "extract"}

# An effect may run again after a conflict, so it publishes nothing; the function that it returns
# is called after the commit.
After = Callable[[], None]
Effect = Callable[[Transaction], After | None]
Stage = tuple[str, Callable[[Job], Effect]]
Handler = Sequence[Stage]
Outcome = Literal["stage", "done", "retry", "parked", "postponed", "lost"]
_End = tuple[Outcome, Callable[[Transaction], Job]]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class JobEvent:
    """The outcome and duration of one stage or run; another process took over a `lost` job."""

    outcome: Outcome
    job: Job
    duration_ms: float
    error: Exception | None = None


def no_effect(transaction: Transaction) -> None:
    """The effect of a stage that found nothing to do."""


def queue_job(transaction: Transaction, user: str, kind: str, key: str, due_at: datetime) -> None:
    """Queue a job, again from its first stage if it exists already."""
    if not transaction.put_job(user, kind, key, due_at):
        transaction.requeue_job(user, kind, key, due_at)


def _never() -> bool:
    return False


class JobRunner:
    """Takes the jobs it has handlers for and runs them."""

    def __init__(
        self,
        store: Store,
        world: World,
        handlers: Mapping[str, Handler],
        observe: Callable[[JobEvent], None] = lambda event: None,
        lease_length: timedelta = LEASE_LENGTH,
    ) -> None:
        self._store = store
        self._world = world
        self._handlers = dict(handlers)
        self._observe = observe
        self._lease_length = lease_length
        # Held while a job is taken and run: a thread that then finds no job knows that all are
        # done, and not still running on another thread.
        self._lock = threading.Lock()
        self.done_count = 0
        for kind, stages in self._handlers.items():
            names = {name for name, _ in stages}
            if "" in names or len(names) < len(stages):
                raise InputError(f"every stage of {kind} needs a name of its own")

    def run_one(self, should_stop: Callable[[], bool] = _never) -> bool:
        """Run the job that is due longest; return False if none is due."""
        return self._run_next((), should_stop) is not None

    def run_named(self, user: str, kind: str, key: str) -> bool:
        """Run one queued job, due or not; return whether it was done."""
        job = self._store.write(user, lambda t: t.take_named_job(self._lease(), user, kind, key))
        return job is not None and self._run(job, _never).state == "done"

    def drain(self, limit: int | None = None, should_stop: Callable[[], bool] = _never) -> int:
        """Run every due job once, and the jobs that they queue; return how many were done.

        Jobs that another thread of this runner has taken are done, too, when this returns.
        """
        jobs: dict[int, Job] = {}
        while limit is None or len(jobs) < limit:
            job = self._run_next(jobs, should_stop)
            if job is not None:
                jobs[job.number] = job
            elif not self.release_ended():
                break
        return sum(job.state == "done" for job in jobs.values())

    def release_ended(self) -> int:
        """Queue the jobs again whose process on this machine has ended; return how many.

        That counts as a failed attempt: a job that ends every process must not run without end.
        """
        ended = [
            job
            for job in self._store.jobs(None, "running", _RUNNING_LIMIT)
            if job.kind in self._handlers and has_ended((job.lease or "").partition("@")[2])
        ]
        for job in ended:
            queue = methodcaller("fail_job", job, "its process has ended", self._world.now())
            # Another process may release it at the same time.
            with contextlib.suppress(Conflict):
                self._store.write(job.user, queue)
        return len(ended)

    def wait_s(self, limit_s: float) -> float:
        """Return the time until the next known job is due."""
        now = self._world.now()
        at = self._store.next_job_at(now, self._handlers)
        return limit_s if at is None else min(limit_s, (at - now).total_seconds())

    def monotonic_s(self) -> float:
        """Return the monotonic clock."""
        return self._world.monotonic_ms() / 1000

    def _run_next(self, skip: Collection[int], should_stop: Callable[[], bool]) -> Job | None:
        with self._lock:
            # Another thread may have held the lock for minutes.
            if should_stop():
                return None
            job = self._store.write(None, lambda t: t.take_job(self._lease(), self._handlers, skip))
            return None if job is None else self._run(job, should_stop)

    def _lease(self) -> Lease:
        # Made inside the transaction, so that its time is not before that of earlier leases.
        holder = f"{self._world.new_id()}@{own_mark()}"
        return Lease(holder, self._world.now(), self._lease_length)

    def _run(self, job: Job, should_stop: Callable[[], bool]) -> Job:
        began_ms = self._world.monotonic_ms()
        error: Exception | None = None
        end: _End
        outcome: Outcome
        stage = job.kind
        try:
            stages = list(self._handlers[job.kind])
            names = [name for name, _ in stages]
            if job.stage and job.stage not in names:
                raise Conflict(
                    f"{job.kind} has no stage {job.stage!r}",
                    hint="another version of Meritory began this job; run it with that version",
                )
            for stage, work in stages[names.index(job.stage) + 1 if job.stage else 0 :]:
                if should_stop():
                    end = self._postpone(job)
                    break
                stage_began_ms = self._world.monotonic_ms()
                job = self._run_stage(job, stage, work)
                self._notify("stage", job, stage_began_ms)
            else:
                end = "done", methodcaller("finish_job", job, self._world.now())
        except BudgetSpent as spent:
            error, end = spent, self._postpone(job, spent.retry_after_s, _describe(stage, spent))
        except Exception as failure:
            error, text = failure, _describe(stage, failure)
            retry_at: datetime | None = None
            if isinstance(failure, MeritoryError):
                delay = RETRY_DELAYS[min(job.attempt_count, len(RETRY_DELAYS)) - 1]
                retry_at = self._world.now() + delay
            outcome = "parked" if retry_at is None else "retry"
            end = outcome, lambda transaction: transaction.fail_job(job, text, retry_at)
        except BaseException:
            # Interrupted: release the job at once instead of at the end of the lease.
            with contextlib.suppress(MeritoryError):
                self._store.write(job.user, self._postpone(job)[1])
            raise
        outcome, settle = end
        try:
            job = self._store.write(job.user, settle)
        except Conflict:
            # Another process has taken the job over.
            outcome = "lost"
        if job.state == "parked":
            outcome = "parked"
        self.done_count += outcome == "done"
        self._notify(outcome, job, began_ms, error)
        return job

    def _run_stage(self, job: Job, stage: str, work: Callable[[Job], Effect]) -> Job:
        effect = work(job)
        until = self._world.now() + self._lease_length

        def commit(transaction: Transaction) -> tuple[Job, After | None]:
            return transaction.pass_stage(job, stage, until), effect(transaction)

        passed, after = self._store.write(job.user, commit)
        if after is not None:
            after()
        return passed

    def _postpone(self, job: Job, wait_s: float | None = None, why: str | None = None) -> _End:
        at = self._world.now()
        if wait_s is not None:
            at += timedelta(seconds=min(max(POSTPONE_MIN_S, wait_s), WAIT_MAX.total_seconds()))
        return "postponed", lambda transaction: transaction.postpone_job(job, at, why)

    def _notify(
        self, outcome: Outcome, job: Job, began_ms: float, error: Exception | None = None
    ) -> None:
        self._observe(JobEvent(outcome, job, self._world.monotonic_ms() - began_ms, error))


class Worker:
    """A thread that runs jobs when they are due; no error ends it."""

    def __init__(
        self,
        runner: JobRunner,
        poll_s: float = POLL_S,
        before: Callable[[], object] | None = None,
    ) -> None:
        """Create the thread; it calls `before`, which may queue jobs, ahead of every look."""
        self._runner = runner
        self._before = before
        self._poll_s = poll_s
        self._woken = threading.Event()
        self._called = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="meritory-jobs", daemon=True)
        # The error of the last attempt to take jobs; a job keeps its own error.
        self.last_error: str | None = None

    @property
    def is_alive(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    @property
    def jobs_done(self) -> int:
        """The number of jobs done since the start."""
        return self._runner.done_count

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Look for jobs at once."""
        self._called.set()
        self._woken.set()

    def notify(self) -> None:
        """Look for jobs soon, because another process may have queued one."""
        self._woken.set()

    def stop(self, timeout_s: float) -> bool:
        """Stop after the current stage; return whether the thread has ended in time."""
        self._stopping.set()
        self.wake()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _serve(self) -> None:
        while True:
            # Clear before checking for a stop, so that no call in between is lost.
            self._called.clear()
            self._woken.clear()
            if self._stopping.is_set():
                return
            try:
                if self._before is not None:
                    self._before()
                while not self._stopping.is_set() and (
                    self._runner.run_one(self._stopping.is_set) or self._runner.release_ended()
                ):
                    pass
                wait_s = max(_PAUSE_MIN_S, self._runner.wait_s(self._poll_s))
                self.last_error = None
            except Exception as error:
                self.last_error = _describe("jobs", error)
                wait_s = min(AFTER_ERROR_S, self._poll_s)
            self._rest(wait_s)

    def _rest(self, wait_s: float) -> None:
        """Wait for a call or a due job; a notification only checks when the next job is due."""
        until_s = self._runner.monotonic_s() + self._poll_s
        while self._woken.wait(wait_s):
            self._woken.clear()
            if self._called.is_set():
                return
            self._stopping.wait(CALM_S)
            try:
                wait_s = self._runner.wait_s(self._poll_s)
            except MeritoryError:
                # Taking the next job fails in the same way and reports the error.
                return
            wait_s = min(wait_s, until_s - self._runner.monotonic_s())
            if wait_s <= 0:
                return


class Background:
    """The threads of one engine; they start on demand, and `stop` ends them all."""

    def __init__(self, services: Services, handlers: Mapping[str, Handler]) -> None:
        self._services = services
        self.runner = JobRunner(services.store, services.world, handlers, self._observed)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._reembedding: threading.Thread | None = None
        self._warming: threading.Thread | None = None
        self.worker: Worker | None = None
        self._schedule: Callable[[], object] | None = None
        self._following: Subscription | None = None

    def schedule(self, queue: Callable[[], object]) -> None:
        """Let the worker queue the jobs that are due in time, from the next `nudge` on."""
        self._schedule = queue

    def drain(self) -> int:
        """Run every due job on this thread; `stop` ends it after the current stage."""
        return self.runner.drain(should_stop=self._stopping.is_set)

    def learn(self, user: str, key: str) -> None:
        """Learn from one finished session on this thread."""
        self.runner.run_named(user, LEARN_JOB, key)

    def nudge(self) -> None:
        """Let the worker run the jobs that are due."""
        with self._lock:
            if self._stopping.is_set():
                return
            if self.worker is None:
                # It may start before the schedule is known: jobs of an earlier process are due.
                self.worker = Worker(self.runner, before=self._queue_scheduled)
                self.worker.start()
            if self._schedule is not None and self._following is None:
                # The process with the schedule also runs the jobs of other processes.
                self._following = self._services.store.follow(self.worker.notify)
        self.worker.wake()

    def _queue_scheduled(self) -> None:
        if self._schedule is not None:
            self._schedule()

    def _observed(self, event: JobEvent) -> None:
        observer = self._services.observer
        if event.outcome == "stage":
            if flow := _FLOW_OF.get(event.job.kind):
                observer.stages(flow, {event.job.stage: event.duration_ms})
            return
        observer.took("jobs", event.duration_ms)
        if event.outcome == "done" and event.job.kind == LEARN_JOB:
            # After the commit, so that telemetry never delays learning.
            telemetry.keep(self._services, event.job)
        # A spent budget and a job that another process took over are not failures.
        if event.error is not None and event.outcome in ("retry", "parked"):
            observer.failed(f"job_{event.job.kind}", event.error)

    def reembed(self, progress: Progress) -> bool:
        """Make all missing vectors now; return whether the configured embedder serves."""
        return self._services.embedding.reembed(progress, self._stopping.is_set)

    def start_reembedding(self, progress: Progress) -> threading.Thread:
        """Make all missing vectors on a thread."""

        def run() -> None:
            # The failure is counted; the next start tries again.
            with contextlib.suppress(MeritoryError):
                self.reembed(progress)

        self._reembedding = threading.Thread(target=run, name="meritory-reembed", daemon=True)
        self._reembedding.start()
        return self._reembedding

    def warm_up(self, scope: Scope) -> None:
        """Load the embedder and the index on a thread, and the scorer on this one."""

        def run() -> None:
            # The first call that needs it fails in the same way and reports the error.
            with contextlib.suppress(MeritoryError):
                recall(self._services, scope, "warm", 1)
                self._services.store.tidy(self._stopping.is_set)

        self._warming = threading.Thread(target=run, name="meritory-warm", daemon=True)
        self._warming.start()
        if self._services.scorer is not None:
            self._services.scorer.warm(SCORER_WAIT_S)

    def stop(self) -> None:
        """End all threads after their current step; safe to call twice."""
        with self._lock:
            self._stopping.set()
        monotonic_ms = self._services.world.monotonic_ms
        until_ms = monotonic_ms() + STOP_WAIT_S * 1000
        if self._following is not None:
            self._following.close()
        if self.worker is not None:
            self.worker.stop(STOP_WAIT_S)
        for thread in (self._reembedding, self._warming):
            if thread is not None:
                # A thread that waits for a server is abandoned: a closed store rejects its writes.
                thread.join(max(0.0, (until_ms - monotonic_ms()) / 1000))


def _describe(stage: str, error: Exception) -> str:
    """Return an error as text; of a foreign one only type and line, for it may quote anything."""
    if isinstance(error, MeritoryError):
        return f"{stage}: {error}"[:_ERROR_LIMIT_CHARS]
    frames = traceback.extract_tb(error.__traceback__)
    line = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{stage}: {type(error).__name__}{line}"
