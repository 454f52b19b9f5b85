"""What people may do with a predictor: switch it, train it, take a model back, check the judge."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np

from meritory.domain.errors import BadCheckpoint, Conflict, InputError, NotFound
from meritory.domain.predictor import Rated, TrainingRun
from meritory.domain.session import Event
from meritory.engine.jobs.runner import JobRunner
from meritory.engine.learning.compare import NO_JUDGES
from meritory.engine.observe.observer import publish
from meritory.engine.pipeline import TRAIN, job_handler
from meritory.engine.predictor import status, train_job
from meritory.engine.predictor.state import (
    TRAIN_JOB,
    TRAIN_KEY,
    PredictorState,
    decoded,
    known_state,
    rolled_back,
)
from meritory.engine.services import Services
from meritory.model import checkpoint
from meritory.model.checkpoint import Checkpoint
from meritory.ports.scorer import BASE_VERSION
from meritory.rank.features import FEATURE_VERSION, FEATURES
from meritory.rank.labels import MIN_CONFIDENCE
from meritory.store.contract.store import Transaction

OFFER_MIN, OFFER_MAX = 20, 50
# Among the judged memories of so many of the latest sessions people's sample is drawn.
OFFER_SESSIONS = 100


# -- on and off -----------------------------------------------------------------------------


def enable(services: Services, user: str) -> bool:
    """Lets the predictor be heard again as far as it has earned it; False when it was on."""
    # One that crashed too often gets another chance.
    forgive = getattr(services.scorer, "enable", None)
    if forgive is not None:
        forgive()
    return _switch(services, user, is_on=True)


def disable(services: Services, user: str) -> bool:
    """The baseline ranks alone from now on, and nothing is trained; False when it was off."""
    return _switch(services, user, is_on=False)


def _switch(services: Services, user: str, *, is_on: bool) -> bool:
    event = _event(services, "predictor.enabled" if is_on else "predictor.disabled", {})

    def work(transaction: Transaction) -> bool:
        state = decoded(transaction.predictor_state(user))
        if state.is_enabled == is_on:
            return False
        changed = replace(state, is_enabled=is_on)
        if not is_on:
            changed = replace(changed, order_reason=None)
        transaction.set_predictor_state(user, changed.encoded())
        transaction.log_events(user, [event])
        return True

    has_changed = services.store.write(user, work)
    if has_changed:
        publish(services, [event])
    return has_changed


def _event(services: Services, name: str, details: Mapping[str, object]) -> Event:
    return Event(at=services.world.now(), category="predictor", name=name, details=details)


# -- training -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ordered:
    """A training that is to come, why, and whether it was ordered just now."""

    job: str
    reason: str
    is_new: bool


def train_now(services: Services, user: str) -> Ordered:
    """Orders a training; whoever runs jobs carries it out."""
    state = known_state(services, user)
    _demand_trainable(services, user, state)
    now = services.world.now()
    is_under_way = state.order_reason is not None and _is_waiting(services, user)
    if not is_under_way:
        services.store.write(
            user, lambda transaction: train_job.order(transaction, user, "asked", now)
        )
    reason = state.order_reason or "asked"
    return Ordered(f"{TRAIN_JOB}/{TRAIN_KEY}", reason, not is_under_way)


def run_training(services: Services) -> None:
    """Carries out trainings that are due, and no other job."""
    runner = JobRunner(services.store, services.world, {TRAIN_JOB: job_handler(services, TRAIN)})
    runner.drain()


def _demand_trainable(services: Services, user: str, state: PredictorState) -> None:
    if services.trainer is None:
        raise Conflict(
            "nothing can be trained with these settings",
            hint="set predictor.enabled = true and predictor.scorer = features or attention",
        )
    if not state.is_enabled:
        raise Conflict("the predictor is switched off", hint="`meritory predictor enable` first")
    if not services.store.taught_sessions(user, FEATURE_VERSION, 1):
        raise Conflict(
            "there is no session to learn from yet",
            hint="a session counts when it was judged clearly and something in it helped",
        )


def _is_waiting(services: Services, user: str) -> bool:
    with contextlib.suppress(NotFound):
        return services.store.job(user, TRAIN_JOB, TRAIN_KEY).state in ("queued", "running")
    return False


# -- back to an earlier model ---------------------------------------------------------------


def rollback(services: Services, user: str, version: int | None = None) -> TrainingRun:
    """Lets an earlier model serve: the one named, else the one before; written down as a run."""
    if isinstance(version, bool) or not isinstance(version, int | None):
        raise InputError(f"a version is a whole number, not {version!r}")
    state = known_state(services, user)
    kept = status.versions(services, user)
    target = _former(state, kept) if version is None else version
    model = _usable(services, user, state, target, kept)
    run = TrainingRun(
        at=services.world.now(),
        model_version=target,
        scorer=model.kind,
        reason="rollback",
        loss=None,
        sample_count=model.session_count,
        skipped_count=0,
        duration_ms=0.0,
        is_accepted=True,
        train_validation_failures=state.failures,
        drift_resets=state.standing.drift_resets,
    )
    event = _event(services, "predictor.rollback", {"from": state.version, "to": target})

    def work(transaction: Transaction) -> None:
        current = decoded(transaction.predictor_state(user))
        after = rolled_back(current, target, model.kind)
        transaction.set_predictor_state(user, after.encoded())
        transaction.add_training_run(user, run)
        transaction.log_events(user, [event])

    services.store.write(user, work)
    publish(services, [event])
    return run


def _former(state: PredictorState, kept: Sequence[int]) -> int:
    """The model before the one that serves, as far as it is still there."""
    if state.previous in kept and state.previous is not None:
        return state.previous
    earlier = [one for one in kept if one < state.version]
    if not earlier:
        raise Conflict(
            f"model {state.version} is the first one", hint=f"there is only {_named(kept)}"
        )
    return earlier[0]


def _usable(
    services: Services, user: str, state: PredictorState, version: int, kept: Sequence[int]
) -> Checkpoint:
    if version not in kept:
        raise NotFound(f"there is no model {version}", hint=f"there is {_named(kept)}")
    if version == state.version:
        raise Conflict(f"model {version} serves already", hint=f"there is {_named(kept)}")
    try:
        model = status.checkpoint_of(services, user, version)
        serving = services.store.serving_embedder()
        embedder = "" if serving is None else serving.name
        reason = checkpoint.fits(model, embedder, FEATURES, FEATURE_VERSION)
    except BadCheckpoint as error:
        reason = error.message
    if reason is not None:
        raise Conflict(f"model {version} is of no use: {reason}", hint=f"there is {_named(kept)}")
    return model


def _named(kept: Sequence[int]) -> str:
    names = [f"{one} (the base)" if one == BASE_VERSION else str(one) for one in kept]
    return ", ".join(names)


# -- what people say about the judge --------------------------------------------------------


def calibrate_offer(services: Services, user: str, count: int = OFFER_MIN) -> list[Rated]:
    """What people are asked to rate: what they left open, filled up with what was judged lately.

    Their word is held against the judge's and never learned from.
    """
    is_count = isinstance(count, int) and not isinstance(count, bool)
    if not is_count or not OFFER_MIN <= count <= OFFER_MAX:
        raise InputError(f"{count!r} cannot be offered", hint=f"ask for {OFFER_MIN} to {OFFER_MAX}")
    asked = services.store.calibration(user, status.CALIBRATION_READ)
    known = {(one.session_key, one.memory_id) for one in asked}
    is_open = [one for one in asked if one.human_label is None]
    fresh = [
        one
        for one in _judged_lately(services, user)
        if (one.session_key, one.memory_id) not in known
    ]
    drawn = np.random.default_rng(services.world.random_bits(32)).permutation(len(fresh))
    offered = [fresh[place] for place in drawn[: max(0, count - len(is_open))].tolist()]

    def work(transaction: Transaction) -> None:
        transaction.offer_calibration(user, offered)
        state = decoded(transaction.predictor_state(user))
        transaction.set_predictor_state(user, replace(state, uncalibrated=0).encoded())

    if offered:
        services.store.write(user, work)
    return [*is_open, *offered][:count]


def _judged_lately(services: Services, user: str) -> list[Rated]:
    """Every memory that a judge spoke about in the latest sessions it was sure of."""
    now, found = services.world.now(), []
    for session in services.store.sessions(user, OFFER_SESSIONS):
        score = services.store.session_score(user, session.key)
        if score is None or score.excluded or score.confidence < MIN_CONFIDENCE:
            continue
        if score.judge not in NO_JUDGES:
            found += _judged_in(services, user, session.key, now)
    return found


def _judged_in(services: Services, user: str, key: str, now: datetime) -> list[Rated]:
    records = [
        one for one in services.store.session_memories(user, key) if one.relevance_score is not None
    ]
    # What was erased cannot be shown to anybody.
    there = services.store.memories(user, [one.memory_id for one in records])
    return [
        Rated(key, one.memory_id, one.relevance_score or 0.0, now)
        for one in records
        if one.memory_id in there
    ]


def calibrate_rate(
    services: Services, user: str, ratings: Mapping[tuple[str, str], object]
) -> dict[str, Any]:
    """Keeps how much memories helped by a person's word, by session and memory: all or none."""
    now = services.world.now()
    kept = [
        Rated(key, memory_id, 0.0, now, _checked_label(memory_id, label), now)
        for (key, memory_id), label in ratings.items()
    ]

    def work(transaction: Transaction) -> None:
        for one in kept:
            transaction.rate_calibration(user, one)

    services.store.write(user, work)
    return status.calibration(services, user, known_state(services, user))


def _checked_label(memory_id: str, label: object) -> float:
    # A comparison with what is no number at all is false.
    if isinstance(label, int | float) and not isinstance(label, bool) and -1.0 <= label <= 1.0:
        return float(label)
    raise InputError(
        f"{label!r} is no rating of {memory_id[:40]}",
        hint="-1 misled, 0 did not help, 1 was decisive",
    )
