"""Who waited for its turn at the jobs looks first whether it is to stop."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from meritory.domain.job import Job
from meritory.domain.world import World
from meritory.engine.jobs.runner import Effect, JobRunner, Worker, no_effect
from meritory.store.sqlite.store import SqliteStore

KIND, WAIT_S = "finish", 30.0


class Slow:
    """A runner whose first job takes as long as the test likes."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.begun, self.go = threading.Event(), threading.Event()
        self.outcomes: list[str] = []
        self.runner = JobRunner(
            store,
            World(),
            {KIND: [("only", self._stage)]},
            lambda event: self.outcomes.append(event.outcome),
        )
        now = datetime.now(UTC)
        for key in ("a", "b"):
            store.write("default", lambda t, k=key: t.put_job("default", KIND, k, now))

    def _stage(self, job: Job) -> Effect:
        self.begun.set()
        assert self.go.wait(WAIT_S)
        return no_effect

    def states(self) -> list[str]:
        return [self.store.job("default", KIND, key).state for key in ("a", "b")]


@pytest.fixture
def slow(tmp_path: Path) -> Slow:
    return Slow(SqliteStore(tmp_path / "jobs.db"))


def test_a_drain_that_is_to_stop_begins_nothing_more(slow: Slow) -> None:
    stopping = threading.Event()
    done: list[int] = []
    drainer = threading.Thread(
        target=lambda: done.append(slow.runner.drain(should_stop=stopping.is_set))
    )
    drainer.start()
    assert slow.begun.wait(WAIT_S)
    stopping.set()
    slow.go.set()
    drainer.join(WAIT_S)
    assert (done, slow.states()) == ([1], ["done", "queued"])
    slow.store.close()


def test_a_worker_that_waited_for_its_turn_takes_nothing_once_stopped(slow: Slow) -> None:
    drainer = threading.Thread(target=lambda: slow.runner.drain(limit=1))
    drainer.start()
    assert slow.begun.wait(WAIT_S)
    worker = Worker(slow.runner)
    worker.start()
    assert not worker.stop(0.2)
    slow.go.set()
    assert worker.stop(WAIT_S)
    drainer.join(WAIT_S)
    # The second was neither run nor taken and given back.
    assert (slow.states(), slow.outcomes) == (["done", "queued"], ["stage", "done"])
    slow.store.close()
