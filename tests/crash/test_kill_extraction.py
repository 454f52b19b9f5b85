"""kill -9 of whoever extracts: a session's claims are stored once, wherever it was killed.

A child ends a session and works on its job; it kills itself inside the transaction of a stage, or
right after it was committed. Another process goes on when the lease is over.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from meritory.api.memory import Memory
from meritory.domain.job import Job
from meritory.engine.jobs.runner import EXTRACT_JOB, Effect, JobEvent, JobRunner, Stage
from meritory.engine.pipeline import EXTRACT, job_handler
from meritory.store.contract.store import Transaction

SAID = "Always use pnpm and never npm. Always show me the diff in this PR."
START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
STAGES = ("rules", "model", "summary")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def deadly(stage: Stage, at: str) -> Stage:
    """The stage, which kills its process before its effect is committed."""
    name, work = stage

    def working(job: Job) -> Effect:
        effect = work(job)

        def doing(transaction: Transaction) -> None:
            effect(transaction)
            if at == f"in {name}":
                die()

        return doing

    return name, working


def run(file: Path, now: datetime, at: str) -> None:
    """Works on the session's job with all that belongs to it, up to the named moment."""
    with Memory(file, clock=lambda: now, background=False) as memory:
        services = memory.services

        def watch(event: JobEvent) -> None:
            if event.outcome == "stage" and at == f"after {event.job.stage}":
                die()

        stages = [deadly(stage, at) for stage in job_handler(services, EXTRACT)]
        JobRunner(services.store, services.world, {EXTRACT_JOB: stages}, watch).drain()


def child(work: Callable[[], None]) -> bool:
    """Runs something in a process of its own; says whether it was killed."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(process, 0)
    if not os.WIFSIGNALED(status):
        assert os.waitstatus_to_exitcode(status) == 0, "a child failed by itself"
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("at", [f"{when} {name}" for when in ("in", "after") for name in STAGES])
def test_killed_anywhere_everything_is_stored_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    monkeypatch.setenv("MERITORY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MERITORY_EXTRACTION_SUMMARIES", "true")
    monkeypatch.setenv("MERITORY_EMBEDDER_KIND", "none")
    file = tmp_path / "meritory.db"

    def begin() -> None:
        with Memory(file, clock=lambda: START, background=False) as memory:
            memory.session("run").end([{"role": "user", "text": SAID}])
        run(file, START, at)

    assert child(begin)
    assert not child(lambda: run(file, START + timedelta(hours=1), "never"))
    with Memory(file, clock=lambda: START + timedelta(hours=1), background=False) as memory:
        store = memory.services.store
        assert store.job("default", EXTRACT_JOB, "run").state == "done"
        assert sorted(one.kind for one in memory.page()) == ["episode", "preference"]
        assert len(store.refusals("default", 9)) == 1
        counters = store.counters("default")
        assert (counters["write.stored"], counters["write.floored"]) == (2, 1)
        assert store.check(deep=True) == []
