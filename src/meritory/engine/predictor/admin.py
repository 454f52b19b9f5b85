"""Administration of a predictor: people switch it, train it and check its judge."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meritory.domain.errors import Conflict, InputError, NotFound
from meritory.domain.predictor import Rated
from meritory.domain.session import Event
from meritory.engine.jobs.runner import JobRunner
from meritory.engine.learning.compare import NO_JUDGES
from meritory.engine.observe.observer import publish
from meritory.engine.pipeline import TRAIN, job_handler
from meritory.engine.predictor import train_job
from meritory.engine.predictor.drift import CALIBRATION_READ, calibration
from meritory.engine.predictor.state import TRAIN_JOB, TRAIN_KEY, decoded, known_state
from meritory.engine.services import Services
from meritory.rank.features import FEATURE_VERSION
from meritory.rank.labels import MIN_CONFIDENCE
from meritory.store.contract.store import Transaction

OFFER_MIN, OFFER_MAX = 20, 50
# The memories to rate are drawn from this many recent sessions.
OFFER_SESSIONS = 100


# -- on and off -----------------------------------------------------------------------------


def switch(services: Services, user: str, *, is_on: bool) -> bool:
    """Give the predictor its influence, or let the baseline rank alone and stop training.

    Return False if that was so already.
    """
    reset = getattr(services.scorer, "enable", None)
    if is_on and reset is not None:
        # A scorer that crashed too often gets another chance.
        reset()
    name = "predictor.enabled" if is_on else "predictor.disabled"
    event = Event(at=services.world.now(), category="predictor", name=name, details={})

    def work(transaction: Transaction) -> bool:
        state = decoded(transaction.predictor_state(user))
        if state.is_enabled == is_on:
            return False
        reason = state.order_reason if is_on else None
        changed = replace(state, is_enabled=is_on, order_reason=reason)
        transaction.set_predictor_state(user, changed.encoded())
        transaction.log_events(user, [event])
        return True

    has_changed = services.store.write(user, work)
    if has_changed:
        publish(services, [event])
    return has_changed


# -- training -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ordered:
    """A training in the queue, its reason, and whether this call ordered it."""

    job: str
    reason: str
    is_new: bool


def train_now(services: Services, user: str) -> Ordered:
    """Order a training, which the next worker runs."""
    state = known_state(services, user)
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
            hint="a session counts if its verdict is clear and a memory helped in it",
        )
    now = services.world.now()
    is_waiting = False
    if state.order_reason is not None:
        with contextlib.suppress(NotFound):
            job = services.store.job(user, TRAIN_JOB, TRAIN_KEY)
            is_waiting = job.state in ("queued", "running")
    if not is_waiting:
        services.store.write(
            user, lambda transaction: train_job.order(transaction, user, "asked", now)
        )
    return Ordered(f"{TRAIN_JOB}/{TRAIN_KEY}", state.order_reason or "asked", not is_waiting)


def run_training(services: Services) -> None:
    """Run the trainings that are due, and no other job."""
    handlers = {TRAIN_JOB: job_handler(services, TRAIN)}
    JobRunner(services.store, services.world, handlers).drain()


# -- calibration of the judge ---------------------------------------------------------------


def calibrate_offer(services: Services, user: str, count: int = OFFER_MIN) -> list[Rated]:
    """Return memories for people to rate: those still open, then recently judged ones.

    The ratings are compared with the judge's and never learned from.
    """
    is_count = isinstance(count, int) and not isinstance(count, bool)
    if not is_count or not OFFER_MIN <= count <= OFFER_MAX:
        raise InputError(
            f"invalid number of memories to rate: {count!r}",
            hint=f"choose {OFFER_MIN} to {OFFER_MAX}",
        )
    offered = services.store.calibration(user, CALIBRATION_READ)
    known = {(rated.session_key, rated.memory_id) for rated in offered}
    still_open = [rated for rated in offered if rated.human_label is None]
    fresh = [
        rated
        for rated in _recently_judged(services, user)
        if (rated.session_key, rated.memory_id) not in known
    ]
    drawn = np.random.default_rng(services.world.random_bits(32)).permutation(len(fresh))
    added = [fresh[index] for index in drawn[: max(0, count - len(still_open))].tolist()]

    def work(transaction: Transaction) -> None:
        transaction.offer_calibration(user, added)
        state = decoded(transaction.predictor_state(user))
        transaction.set_predictor_state(user, replace(state, uncalibrated=0).encoded())

    if added:
        services.store.write(user, work)
    return [*still_open, *added][:count]


def _recently_judged(services: Services, user: str) -> list[Rated]:
    """Return the memories of recent sessions that a judge was confident about."""
    store, now = services.store, services.world.now()
    judged: list[Rated] = []
    for session in store.sessions(user, OFFER_SESSIONS):
        score = store.session_score(user, session.key)
        if score is None or score.excluded or score.confidence < MIN_CONFIDENCE:
            continue
        if score.judge in NO_JUDGES:
            continue
        records = store.session_memories(user, session.key)
        scored = {
            record.memory_id: record.relevance_score
            for record in records
            if record.relevance_score is not None
        }
        # An erased memory cannot be shown.
        existing = store.memories(user, list(scored))
        judged += [
            Rated(session.key, memory_id, relevance, now)
            for memory_id, relevance in scored.items()
            if memory_id in existing
        ]
    return judged


def calibrate_rate(
    services: Services, user: str, ratings: Mapping[tuple[str, str], object]
) -> dict[str, Any]:
    """Store people's ratings by session and memory, all or none; return the new calibration."""
    now = services.world.now()
    rated = []
    for (key, memory_id), label in ratings.items():
        if isinstance(label, bool) or not isinstance(label, int | float) or not -1 <= label <= 1:
            raise InputError(
                f"invalid rating of {memory_id[:40]}: {label!r}",
                hint="-1 misled, 0 did not help, 1 was decisive",
            )
        rated.append(Rated(key, memory_id, 0.0, now, float(label), now))

    def work(transaction: Transaction) -> None:
        for rating in rated:
            transaction.rate_calibration(user, rating)

    services.store.write(user, work)
    return calibration(services.store, user, known_state(services, user))
