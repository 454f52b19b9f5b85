"""The background threads of an engine: the job worker, its schedule, re-embedding, warm-up."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from datetime import timedelta

from meritory.domain.errors import MeritoryError, NotFound
from meritory.domain.memory import Scope
from meritory.domain.world import Subscription
from meritory.engine.jobs.runner import JobEvent, JobRunner, Worker
from meritory.engine.memories.recall import recall
from meritory.engine.observe import telemetry
from meritory.engine.pipeline import EXTRACT, LEARN, TRAIN, job_handler
from meritory.engine.predictor.state import TRAIN_JOB
from meritory.engine.quality import extraction, janitor, retention
from meritory.engine.rules import learn
from meritory.engine.rules.status import RULE_JOB
from meritory.engine.services import Services
from meritory.engine.sessions.ratings import LEARN_JOB

STOP_WAIT_S = 5.0
# Loading the model usually takes a fifth of this; the first session should find it ready.
SCORER_WAIT_S = 1.0
# The first sessions after the start of a daemon come before maintenance.
FIRST_LOOK_AFTER = timedelta(minutes=10)
LOOK_EVERY = timedelta(hours=1)
_SCHEDULED = (janitor.JANITOR_JOB, retention.RETENTION_JOB)
# The flow of the pipeline that lists the stages of a job.
_FLOW_OF = {TRAIN_JOB: "train", extraction.EXTRACT_JOB: "extract"}
Progress = Callable[[int, int], None]


class Schedule:
    """Queues a weekly janitor job and a daily retention job for every user."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._next_look = services.world.now() + FIRST_LOOK_AFTER

    def look(self) -> int:
        """Queue the jobs that are due, at most once an hour; return their number."""
        store, now = self._services.store, self._services.world.now()
        if now < self._next_look:
            return 0
        self._next_look = now + LOOK_EVERY
        keys = {retention.RETENTION_JOB: retention.day_of(now)}
        if self._services.policy.janitor.enabled:
            keys = {janitor.JANITOR_JOB: janitor.week_of(now), **keys}

        def queue(user: str, kind: str, key: str) -> bool:
            try:
                # There is never a second job of a week or day, whatever its outcome.
                store.job(user, kind, key)
            except NotFound:
                return store.write(
                    user, lambda transaction: transaction.put_job(user, kind, key, now)
                )
            return False

        users = dict.fromkeys((self._services.user, *store.users()))
        return sum(queue(user, kind, key) for user in users for kind, key in keys.items())


class Background:
    """The threads of one engine; they start on demand, and `stop` ends them all."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.runner = JobRunner(
            services.store,
            services.world,
            {
                LEARN_JOB: job_handler(services, LEARN),
                TRAIN_JOB: job_handler(services, TRAIN),
                RULE_JOB: learn.handler(services),
                extraction.EXTRACT_JOB: job_handler(services, EXTRACT),
                janitor.JANITOR_JOB: janitor.handler(services),
                retention.RETENTION_JOB: retention.handler(services),
            },
            self._observed,
        )
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._reembedding: threading.Thread | None = None
        self._warming: threading.Thread | None = None
        self.worker: Worker | None = None
        self._schedule: Schedule | None = None
        self._following: Subscription | None = None

    def schedule_maintenance(self) -> None:
        """Let the worker queue janitor and retention jobs; call it before the first `nudge`."""
        self._schedule = Schedule(self._services)

    def has_waiting(self) -> bool:
        """Return whether jobs are queued or running."""
        counts = self._services.store.job_counts()
        return counts["queued"] + counts["running"] > 0

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
                schedule = self._schedule
                self.worker = Worker(self.runner, before=schedule.look if schedule else None)
                self.worker.start()
                if schedule is not None:
                    # The process with the schedule also runs the jobs of other processes.
                    self._following = self._services.store.follow(self.worker.notify)
        self.worker.wake()

    def _observed(self, event: JobEvent) -> None:
        observer = self._services.observer
        if event.outcome == "stage":
            # Scheduled jobs are not part of the pipeline.
            if event.job.kind not in _SCHEDULED:
                flow = _FLOW_OF.get(event.job.kind, "learn")
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
