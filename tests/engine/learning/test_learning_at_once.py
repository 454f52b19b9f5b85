"""A session whose outcome is known is learned from at once; whatever else is due can wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from predictor_kit import USER, Told, drain, finish, state, train_jobs
from session_kit import Desk

from learning_kit import Clock, lived, noted
from meritory.engine.jobs.runner import JobRunner
from meritory.engine.pipeline import end
from meritory.engine.sessions.end import LEARN_GRACE, EndRequest
from places import Places

Desks = Callable[..., Desk]


@pytest.fixture
def ready(desks: Desks) -> tuple[Desk, list[str], Told]:
    """One session away from a training."""
    # No model is wanted meanwhile: a trainer would be started for every other session.
    before = desks(predictor_train_interval_sessions=1_000)
    ids = noted(before.memory)
    lived(before.memory, before.clock, ids, 24)
    desk, trainer = desks(predictor_train_interval_sessions=1), Told()
    desk.equip(trainer=trainer)
    return desk, ids, trainer


def test_the_end_learns_from_its_own_session_and_leaves_the_training(
    ready: tuple[Desk, list[str], Told],
) -> None:
    desk, ids, trainer = ready
    assert state(desk).order_reason is None
    desk.memory.session("known", context="stone").end(used={ids[0]: 1.0})
    assert desk.record("known").state == "finished"
    assert desk.store.comparison(USER, "known") is not None
    assert state(desk).order_reason == "interval"
    assert [one.state for one in train_jobs(desk)] == ["queued"]
    assert trainer.orders == []
    drain(desk)
    assert [one.reason for one in trainer.orders] == ["interval"]
    assert state(desk).order_reason is None


def test_the_end_leaves_what_others_wait_for(desk: Desk) -> None:
    (first, second) = desk.note("The stone lies in the yard", "The yard is behind the mill")
    desk.memory.session("earlier", context="stone")
    finish(desk, "earlier", {first: 1.0})
    desk.memory.session("known", context="stone").end(used={second: 1.0})
    assert desk.record("known").state == "finished"
    assert desk.record("earlier").state == "ended"
    assert desk.memory.drain() == 1
    assert desk.record("earlier").state == "finished"


def test_nobody_takes_the_job_from_the_one_who_is_about_to_do_it(desk: Desk) -> None:
    (one,) = desk.note("The stone lies in the yard")
    desk.memory.session("run", context="stone")
    request = EndRequest("run", USER, used={one: 1.0}, learns_at_once=True)
    end(desk.memory.services, request)
    assert desk.memory.drain() == 0
    # Whoever was about to died.
    desk.clock.now += LEARN_GRACE
    assert desk.memory.drain() == 1
    assert desk.record("run").state == "finished"


def test_the_training_is_done_meanwhile(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MERITORY_HOME", str(tmp_path / "home"))
    here: list[str] = []
    clock, runs = Clock(), JobRunner._run

    def watched(runner: JobRunner, job: object, should_stop: object) -> object:
        import threading

        here.append(f"{job.kind} {threading.current_thread().name}")  # type: ignore[attr-defined]
        return runs(runner, job, should_stop)  # type: ignore[arg-type]

    monkeypatch.setattr(JobRunner, "_run", watched)
    with places.memory(clock=clock) as memory:
        ids = noted(memory)
        for n in range(40):
            clock.go(hours=5)
            session = memory.session(f"s{n}", context="fix the alpha service")
            session.end(used={ids[n % 3]: 1.0})
            assert memory.services.store.session(USER, f"s{n}").state == "finished"
            if memory.services.store.canary_count(USER) >= 5:
                break
        deadline = time.monotonic() + 30
        while not memory.services.store.training_runs(USER, 1):
            assert time.monotonic() < deadline, "nobody trained"
            time.sleep(0.02)
    assert {one for one in here if one.startswith("train")} == {"train-predictor meritory-jobs"}
    assert {one for one in here if one.startswith("finish")} == {"finish-session MainThread"}
