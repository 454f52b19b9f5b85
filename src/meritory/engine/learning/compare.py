"""The end of learning from a session: both rankings are held against what really helped."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np

from meritory.domain.job import Job
from meritory.domain.predictor import Comparison
from meritory.domain.session import Event, SessionMemory, SessionRecord, SessionScore
from meritory.engine.jobs.runner import After, Effect, no_effect
from meritory.engine.learning.judge import KNOWN_BY_PROGRAM, RATED_BY_AGENT
from meritory.engine.observe.observer import publish
from meritory.engine.predictor.state import (
    CALIBRATE_EVERY,
    REPLAYED_SCORER,
    TRIAL_SESSIONS,
    PredictorState,
    decoded,
    known_state,
    rolled_back,
    tried,
)
from meritory.engine.predictor.train_job import queue
from meritory.engine.services import Services
from meritory.rank import influence
from meritory.rank.features import FEATURE_VERSION
from meritory.rank.history_proof import PROOF_SESSIONS, comparable, prove_history
from meritory.rank.influence import ComparisonOutcome, Margins
from meritory.store.contract.store import Transaction

TOP_COUNT = 10
CANARY_LIMIT = 25
# One session in so many is kept out of training, to examine models on. Others examine them, too,
# by models that learned from the rest.
CANARY_EVERY = 10
# The first model is fitted after so many sessions that teach something; the base weights hold it.
FIRST_TRAINING_SESSIONS = 3
# A scorer whose fit takes long is trained less often.
SLOW_TRAINING_SESSIONS = 10
# Who spoke in place of a judge cannot show whether the judge is right.
NO_JUDGES = frozenset({KNOWN_BY_PROGRAM, RATED_BY_AGENT})
_SILENT = "the predictor was silent"
_COUNTED_BEFORE = "counted before"


@dataclass(frozen=True, slots=True)
class _ComparedSession:
    """What is known about a session's two rankings."""

    session: SessionRecord
    score: SessionScore | None
    records: Sequence[SessionMemory]
    # None when it is left out, and why.
    outcome: ComparisonOutcome | None
    reason: str | None
    # Kept apart before it, to examine models on.
    earlier_canaries: int

    @property
    def canaries(self) -> int:
        """How many sessions are kept apart by now."""
        is_one = self.teaches and is_canary(self.session.user, self.session.key)
        return self.earlier_canaries + is_one

    @property
    def has_judge(self) -> bool:
        """Whether a judge spoke, whom people can check."""
        return self.score is not None and self.score.judge not in NO_JUDGES

    @property
    def teaches(self) -> bool:
        """Whether a model can learn from it, be it that none had a say in it."""
        has_helped = any((one.label or 0.0) > 0.0 for one in self.records)
        return self.reason in (None, _SILENT) and has_helped


def compare(services: Services, job: Job) -> Effect:
    """Compares the rankings of a session, and lets the predictor have what it has earned."""
    case = _case(services, job)
    if case is None:
        return no_effect
    user, key = job.user, job.key
    earlier = services.store.comparison(user, key)
    kind = known_state(services, user).scorer
    record = services.store.record(user, kind, influence.RECORD_SESSIONS)
    # This session is among them: its labels are stored by now.
    judged = services.store.taught_sessions(user, FEATURE_VERSION, PROOF_SESSIONS)
    proof = prove_history(judged)
    now = services.world.now()

    def effect(transaction: Transaction) -> After:
        state = replace(decoded(transaction.predictor_state(user)), history=proof)
        if earlier is not None and earlier.ema_updated:
            # Labelled anew: what it moved, it moved then, and must not move again.
            moved = _Moved(state, is_repeated=True)
            comparison = _repeated(_comparison(case, state, now), earlier)
        else:
            moved = _moved(services, state, case, record)
            comparison = _comparison(case, moved.state, now)
        transaction.put_comparison(user, comparison)
        _keep_canary(transaction, case, now)
        transaction.set_predictor_state(user, moved.state.encoded())
        if _is_to_be_queued(services, state, moved.state):
            queue(transaction, user, now)
        events = _events(case, moved, comparison, now)
        transaction.log_events(user, events)
        return partial(publish, services, events)

    return effect


def _case(services: Services, job: Job) -> _ComparedSession | None:
    store = services.store
    session = store.session(job.user, job.key)
    score = store.session_score(job.user, job.key)
    records = [
        one
        for one in store.session_memories(job.user, job.key)
        if one.candidate.source != "fts_only" and one.candidate.baseline_rank is not None
    ]
    if not records:
        return None
    labelled = _comparable(records)
    reason = _left_out(session, score, labelled)
    outcome = None
    if labelled and session.scorer is not None:
        outcome = influence.compare(
            [one.candidate.baseline_rank or 0 for one in labelled],
            [one.candidate.predictor_rank or len(records) + 1 for one in labelled],
            [one.label or 0.0 for one in labelled],
            services.policy.predictor.rrf_k,
        )
    if outcome is None and reason is None:
        reason = "nothing helped"
    canaries = store.canary_count(job.user)
    return _ComparedSession(session, score, records, outcome, reason, canaries)


def _comparable(records: Sequence[SessionMemory]) -> list[SessionMemory]:
    """The candidates by which both orders may be compared."""
    labels = np.array([np.nan if one.label is None else one.label for one in records])
    shown = np.array([one.candidate.was_injected for one in records], np.bool_)
    return [records[place] for place in np.flatnonzero(comparable(labels, shown)).tolist()]


def _left_out(
    session: SessionRecord, score: SessionScore | None, labelled: Sequence[SessionMemory]
) -> str | None:
    """Why a session neither trains nor moves the success rate."""
    if score is None:
        return "not judged"
    if score.excluded is not None:
        return score.excluded
    if session.scorer is None:
        return _SILENT
    return None if labelled else "no label"


# -- what it moves --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Trial:
    """How a new model did in its first sessions."""

    version: int
    wins: float
    has_failed: bool


@dataclass(frozen=True, slots=True)
class _Moved:
    """The state after a session, and what happened on the way."""

    state: PredictorState
    # After a drift: sessions in a row with a low success rate, and sessions that are replayed.
    low_streak: int | None = None
    replay_size: int = 0
    has_left_cold_start: bool = False
    gave_way_to: int | None = None
    # The model's first sessions are over with this one.
    trial: _Trial | None = None
    # It counted before, so nothing moved.
    is_repeated: bool = False


def _moved(
    services: Services, state: PredictorState, case: _ComparedSession, record: Margins
) -> _Moved:
    policy = services.policy.predictor
    outcome = case.outcome if case.reason is None else None
    won = None if outcome is None else outcome.won
    low_streak = state.standing.low_streak + 1
    standing, has_drifted = influence.judged(state.standing, won, policy.drift_reset_window)
    was_cold = standing.is_cold
    seen = record
    if won is not None and outcome is not None:
        # What another kind of scorer won or lost says nothing about this one.
        is_alike = case.session.scorer == state.scorer
        seen = _with(record, outcome) if is_alike else record
        weighings = influence.weigh(seen, state.history)
        standing = influence.weighed(
            standing, weighings, policy.influence, policy.min_training_sessions
        )
    state = replace(
        state,
        standing=standing,
        fresh_sessions=state.fresh_sessions + case.teaches,
        uncalibrated=state.uncalibrated + (won is not None and case.has_judge),
    )
    gave_way_to, trial = None, None
    if case.session.model_version == state.version:
        former = state.trial_sessions
        state, has_failed = tried(state, won)
        if former < state.trial_sessions == TRIAL_SESSIONS:
            trial = _Trial(state.version, state.trial_wins, has_failed)
        if has_failed and state.previous is not None:
            gave_way_to = state.previous
            state = rolled_back(state, state.previous, state.previous_scorer)
    return _Moved(
        replace(state, order_reason=_order_reason(services, state, has_drifted)),
        low_streak=low_streak if has_drifted else None,
        replay_size=len(seen.ndcg),
        has_left_cold_start=was_cold and not standing.is_cold,
        gave_way_to=gave_way_to,
        trial=trial,
    )


def _is_to_be_queued(services: Services, before: PredictorState, after: PredictorState) -> bool:
    """Whether a training is ordered anew, or has been waiting for as long as one usually takes."""
    if after.order_reason is None:
        return False
    is_overdue = (
        after.fresh_sessions > before.fresh_sessions
        and after.fresh_sessions % (2 * services.policy.predictor.train_interval_sessions) == 0
    )
    return after.order_reason != before.order_reason or is_overdue


def _with(record: Margins, outcome: ComparisonOutcome) -> Margins:
    return Margins(
        np.vstack([record.ndcg, outcome.ndcg]), np.vstack([record.log_rank, outcome.log_rank])
    )


def _order_reason(services: Services, state: PredictorState, has_drifted: bool) -> str | None:
    """Why it is time to train; None when it is not."""
    policy = services.policy.predictor
    if services.trainer is None or not state.is_enabled:
        return None
    if has_drifted:
        return "drift"
    if state.order_reason is not None:
        return state.order_reason
    interval = policy.train_interval_sessions if state.latest else FIRST_TRAINING_SESSIONS
    if policy.scorer != REPLAYED_SCORER:
        interval = max(interval, SLOW_TRAINING_SESSIONS)
    return "interval" if state.fresh_sessions >= interval else None


def is_canary(user: str, key: str) -> bool:
    """Whether a session is one to examine models on, if it teaches anything."""
    return zlib.crc32(f"canary {user} {key}".encode()) % CANARY_EVERY == 0


def _keep_canary(transaction: Transaction, case: _ComparedSession, now: datetime) -> None:
    """Some sessions are kept out of training; which, their keys decide."""
    user, key = case.session.user, case.session.key
    if not case.teaches:
        transaction.drop_canary(user, key)
    elif is_canary(user, key):
        transaction.choose_canary(user, key, now, CANARY_LIMIT)


# -- what is written down -------------------------------------------------------------------


def _comparison(case: _ComparedSession, state: PredictorState, now: datetime) -> Comparison:
    session, outcome = case.session, case.outcome
    by_model = [one for one in case.records if one.candidate.predictor_rank is not None]
    return Comparison(
        session_key=session.key,
        at=now,
        project=session.project,
        scorer=session.scorer,
        model_version=session.model_version,
        predictor_ndcg=outcome.predictor_ndcg if outcome else None,
        baseline_ndcg=outcome.baseline_ndcg if outcome else None,
        predictor_won=outcome.won if outcome and case.reason is None else None,
        scorer_confidence=case.score.confidence if case.score else 0.0,
        reason=case.reason,
        ema_updated=outcome is not None and case.reason is None,
        success_rate=state.standing.success_rate,
        alpha=state.alpha,
        predictor_top_ids=_top({one.memory_id: one.candidate.predictor_rank for one in by_model}),
        baseline_top_ids=_top({one.memory_id: one.candidate.baseline_rank for one in case.records}),
        relevance_scores={
            one.memory_id: one.label for one in case.records if one.label is not None
        },
        fts_overlap_score=_overlap(case)["share"],
        replay_ndcg=outcome.ndcg if outcome else (),
        replay_log_rank=outcome.log_rank if outcome else (),
    )


def _overlap(case: _ComparedSession) -> dict[str, Any]:
    """How much of what was shown later prompts named by rare words."""
    shown = [one for one in case.records if one.candidate.was_injected]
    hit = sum(one.fts_hit_count > 0 for one in shown)
    return {"shown": len(shown), "hit": hit, "share": hit / len(shown) if shown else None}


def _repeated(comparison: Comparison, earlier: Comparison) -> Comparison:
    """A comparison made anew, in the place of the one that counted."""
    return replace(
        comparison,
        at=earlier.at,
        ema_updated=True,
        success_rate=earlier.success_rate,
        alpha=earlier.alpha,
    )


def _top(ranks: Mapping[str, int | None]) -> tuple[str, ...]:
    ordered = sorted(ranks, key=lambda memory_id: (ranks[memory_id] or 0, memory_id))
    return tuple(ordered[:TOP_COUNT])


def _events(
    case: _ComparedSession, moved: _Moved, compared: Comparison, now: datetime
) -> list[Event]:
    state = moved.state
    numbers: dict[str, dict[str, object]] = {
        "predictor.compare": {
            "predictor_ndcg": compared.predictor_ndcg,
            "baseline_ndcg": compared.baseline_ndcg,
            "winner": compared.winner,
            "margin": compared.margin,
            "model_version": case.session.model_version,
        },
        "predictor.fts_overlap": _overlap(case),
    }
    rate: dict[str, object] = {
        "success_rate": round(state.standing.success_rate, 6),
        "alpha": state.alpha,
    }
    skipped = case.reason or (_COUNTED_BEFORE if moved.is_repeated else None)
    if skipped is None:
        numbers["predictor.ema_update"] = rate
    else:
        numbers["predictor.ema_skip"] = {"reason": skipped}
    if moved.low_streak is not None:
        numbers["predictor.drift_reset"] = {
            "drift_resets": state.standing.drift_resets,
            "streak": moved.low_streak,
            "replay_size": moved.replay_size,
        }
    if moved.has_left_cold_start:
        numbers["predictor.cold_start_exit"] = {"judged": state.standing.judged, **rate}
    if moved.trial is not None:
        numbers["predictor.trial"] = {
            "model_version": moved.trial.version,
            "sessions": TRIAL_SESSIONS,
            "wins": moved.trial.wins,
            "passed": not moved.trial.has_failed,
        }
    if moved.gave_way_to is not None:
        numbers["predictor.gave_way"] = {"to": moved.gave_way_to}
    if skipped is None and case.has_judge and state.uncalibrated == CALIBRATE_EVERY:
        numbers["predictor.calibration_due"] = {"sessions": state.uncalibrated}
    return [
        Event(
            at=now, category="predictor", name=name, session_key=case.session.key, details=details
        )
        for name, details in numbers.items()
    ]
