"""What tests of the predictor have in common: a scorer that is known, a look at its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from session_kit import Desk

from meritory.domain.job import Job
from meritory.domain.predictor import Comparison
from meritory.engine.jobs.runner import JobRunner
from meritory.engine.pipeline import LEARN, TRAIN, end, job_handler
from meritory.engine.predictor.state import TRAIN_JOB, PredictorState, known_state
from meritory.engine.sessions.end import EndRequest
from meritory.engine.sessions.ratings import LEARN_JOB
from meritory.ports.scorer import ScoreRequest
from meritory.ports.trainer_process import TrainOrder, TrainReport
from meritory.rank.influence import HistoryProof, InfluenceState

USER = "default"
# Labels agree with relevance, and nothing is known about history.
VALID = HistoryProof(session_count=20, validity=5.0)


class Preferring:
    """A scorer that puts some memories first, in their order, and all others level."""

    name = "features"

    def __init__(self, *wanted: str) -> None:
        self.wanted = wanted
        self.seen: list[ScoreRequest] = []

    def score(self, request: ScoreRequest) -> Any:
        self.seen.append(request)
        worth = {one: float(place) for place, one in enumerate(self.wanted[::-1], start=1)}
        return np.array([worth.get(one, 0.0) for one in request.memory_ids])

    def close(self) -> None:
        """There is nothing to end."""


class Told:
    """A trainer that reports what it was told to, or fails."""

    def __init__(self, error: Exception | None = None, **report: Any) -> None:
        self.error = error
        self.report = report
        self.orders: list[TrainOrder] = []

    def close(self) -> None:
        """There is nothing to end."""

    def train(self, order: TrainOrder) -> TrainReport:
        self.orders.append(order)
        if self.error is not None:
            raise self.error
        usual: dict[str, Any] = {
            "version": order.version,
            "scorer": order.scorer,
            "is_accepted": True,
            "sample_count": 20,
            "skipped_count": 5,
            "duration_ms": 1.0,
            "loss": 2.5,
        }
        return TrainReport(**{**usual, **self.report})


def state(desk: Desk, user: str = USER) -> PredictorState:
    return known_state(desk.memory.services, user)


def set_state(desk: Desk, **values: Any) -> None:
    """Changes what is known about the predictor."""
    kept = replace(state(desk), **values).encoded()
    desk.store.write(USER, lambda t: t.set_predictor_state(USER, kept))


def set_standing(desk: Desk, **values: Any) -> None:
    """Changes what it has earned."""
    set_state(desk, standing=replace(state(desk).standing, **values))


def drain(desk: Desk) -> int:
    """Runs all jobs with the engine as it is equipped now."""
    services = desk.memory.services
    handlers = {
        LEARN_JOB: job_handler(services, LEARN),
        TRAIN_JOB: job_handler(services, TRAIN),
    }
    return JobRunner(services.store, services.world, handlers).drain()


def held(
    desk: Desk, key: str, used: Mapping[str, float] | Sequence[str], context: str = "stone"
) -> Comparison:
    """A whole session; what is said to have helped in it, and how the rankings compare."""
    scores = used if isinstance(used, Mapping) else dict.fromkeys(used, 1.0)
    desk.memory.session(key, context=context)
    finish(desk, key, scores)
    drain(desk)
    return comparison(desk, key)


def finish(desk: Desk, key: str, used: Mapping[str, float]) -> None:
    """Ends a session and leaves its job for whoever comes next; the library would run it."""
    end(desk.memory.services, EndRequest(key, desk.memory.scope.user, used=used))


def comparison(desk: Desk, key: str) -> Comparison:
    found = desk.store.comparison(desk.memory.scope.user, key)
    assert found is not None
    return found


def train_jobs(desk: Desk) -> list[Job]:
    return [one for one in desk.store.jobs(None, None, 99) if one.kind == TRAIN_JOB]


def events(desk: Desk, name: str, key: str) -> list[Mapping[str, object]]:
    """The details of what was logged in a session under a name, oldest first."""
    found = [one for one in desk.store.events(USER, session_key=key) if one.name == name]
    return [one.details for one in found]


def earned(**values: Any) -> InfluenceState:
    """A standing that opened long ago."""
    usual = {"judged": 99, "non_ties": 60, "wins": 50, "active_since": 0, "earned_alpha": 0.2}
    return InfluenceState(**{**usual, **values})


Desks = Callable[..., Desk]
