"""What falls due by the calendar and not by what somebody does: the daemon queues it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from meritory.domain.errors import MeritoryError
from meritory.domain.memory import Scope
from meritory.domain.world import Following
from meritory.engine.jobs.runner import JobEvent, JobRunner, Worker, nothing
from meritory.engine.jobs.schedule import Schedule
from meritory.engine.learning import job
from meritory.engine.memories.recall import recall
from meritory.engine.observe import telemetry
from meritory.engine.predictor import train_job
from meritory.engine.predictor.state import TRAIN_JOB
from meritory.engine.quality import extraction, janitor, retention
from meritory.engine.rules import learn
from meritory.engine.rules.status import RULE_JOB
from meritory.engine.services import Services
from meritory.engine.sessions.ratings import LEARN_JOB

STOP_WAIT_S = 5.0
# Usually a fifth of this: the first session is to find the model there.
SCORER_WAIT_S = 1.0
_BY_CALENDAR = (janitor.JANITOR_JOB, retention.RETENTION_JOB)
# Under which flow of the pipeline the stages of a job are listed.
_FLOW_OF = {TRAIN_JOB: "train", extraction.EXTRACT_JOB: "extract"}
Progress = Callable[[int, int], None]


class Background:
    """The threads of one engine; they start when there is something to do, and all end."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.runner = JobRunner(
            services.store,
            services.world,
            {
                LEARN_JOB: job.handler(services),
                TRAIN_JOB: train_job.handler(services),
                RULE_JOB: learn.handler(services),
                extraction.EXTRACT_JOB: extraction.handler(services),
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
        self._calendar: Schedule | None = None
        self._following: Following | None = None

    def keep_house(self) -> None:
        """Lets the worker queue what falls due by the calendar; before it begins to work."""
        self._calendar = Schedule(self._services)

    def has_waiting(self) -> bool:
        """Whether jobs of ours are queued, by us or by somebody who is gone."""
        counts = self._services.store.job_counts()
        return counts["queued"] + counts["running"] > 0

    def drain(self) -> int:
        """Runs every job that is due now, on this thread; stopping ends it after a stage."""
        return self.runner.drain(should_stop=self._stopping.is_set)

    def learn(self, user: str, key: str) -> None:
        """Learns from one session that ended, on this thread; nothing else is done."""
        self.runner.run_named(user, LEARN_JOB, key)

    def nudge(self) -> None:
        """Lets a thread run the jobs that are due."""
        with self._lock:
            if self._stopping.is_set():
                return
            if self.worker is None:
                calendar = self._calendar
                before = calendar.look if calendar is not None else nothing
                self.worker = Worker(self.runner, before=before)
                self.worker.start()
                if calendar is not None:
                    # Whoever keeps the house also does what others have queued.
                    self._following = self._services.store.follow(self.worker.notify)
        self.worker.wake()

    def _observed(self, event: JobEvent) -> None:
        observer = self._services.observer
        if event.outcome == "stage":
            # What the calendar brings is no part of any session's pipeline.
            if event.job.kind not in _BY_CALENDAR:
                flow = _FLOW_OF.get(event.job.kind, "learn")
                observer.stages(flow, {event.job.stage: event.duration_ms})
            return
        observer.took("jobs", event.duration_ms)
        if event.outcome == "done" and event.job.kind == LEARN_JOB:
            # After the commit: what is kept for others is never in the way of learning.
            telemetry.keep(self._services, event.job)
        # A spent budget and a job that another process took over are nobody's failure.
        if event.error is not None and event.outcome in ("retry", "parked"):
            observer.failed(f"job_{event.job.kind}", event.error)

    def reembed(self, progress: Progress) -> bool:
        """Makes all missing vectors now; says whether the configured embedder serves."""
        return self._services.embedding.reembed(progress, self._stopping.is_set)

    def reembed_meanwhile(self, progress: Progress) -> threading.Thread:
        """Makes all missing vectors on a thread."""

        def run() -> None:
            # What fails is counted where it fails; the next start tries again.
            with contextlib.suppress(MeritoryError):
                self.reembed(progress)

        self._reembedding = threading.Thread(target=run, name="meritory-reembed", daemon=True)
        self._reembedding.start()
        return self._reembedding

    def warm_up(self, scope: Scope) -> None:
        """Loads the embedder and the index on a thread, and puts the latter in order.

        The model gets ready meanwhile, and is waited for a moment.
        """

        def run() -> None:
            # What fails here fails again, and is told, where somebody asks.
            with contextlib.suppress(MeritoryError):
                recall(self._services, scope, "warm", 1)
                self._services.store.tidy(self._stopping.is_set)

        self._warming = threading.Thread(target=run, name="meritory-warm", daemon=True)
        self._warming.start()
        if self._services.scorer is not None:
            self._services.scorer.warm(SCORER_WAIT_S)

    def stop(self) -> None:
        """Ends all threads after the step they are at, if that is soon; safe to call twice."""
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
                # What waits for somebody outside is left behind: a closed store takes nothing.
                thread.join(max(0.0, (until_ms - monotonic_ms()) / 1000))
