"""The compare stage: both rankings against the labels, and the influence that the model gains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np

from meritory.domain.job import Job
from meritory.domain.policy import PredictorPolicy
from meritory.domain.predictor import RELEVANCE_DECIMALS, Comparison
from meritory.domain.session import SessionMemory, SessionRecord, SessionScore
from meritory.engine.jobs.runner import After, Effect, no_effect, queue_job
from meritory.engine.learning.judge import KNOWN_BY_PROGRAM, RATED_BY_AGENT, read_session
from meritory.engine.observe.observer import make_events, publish
from meritory.engine.predictor.state import (
    CALIBRATE_EVERY,
    REPLAYED_SCORER,
    TRAIN_JOB,
    TRAIN_KEY,
    TRIAL_SESSIONS,
    PredictorState,
    decoded,
    known_state,
)
from meritory.engine.services import Services
from meritory.model.canary import CANARY_LIMIT, is_canary
from meritory.rank import influence
from meritory.rank.features import FEATURE_VERSION
from meritory.store.contract.store import Store, Transaction

TOP_COUNT = 10
# Sessions that training can use before the first fit; the base weights regularise it.
FIRST_TRAINING_SESSIONS = 3
# A scorer whose fit takes long is trained less often.
SLOW_TRAINING_SESSIONS = 10
# A new model with a lower share of wins over its first sessions is rolled back.
TRIAL_WIN_SHARE = 0.3
# They replace a judge, so they cannot show whether the judge is right.
NO_JUDGES = frozenset({KNOWN_BY_PROGRAM, RATED_BY_AGENT})
_MEASURED = ("predictor_ndcg", "baseline_ndcg", "winner", "margin", "model_version")
_SILENT = "the predictor was silent"
_COUNTED_BEFORE = "counted before"


@dataclass(frozen=True, slots=True)
class _ComparedSession:
    """The facts about a session's two rankings."""

    session: SessionRecord
    score: SessionScore | None
    records: Sequence[SessionMemory]
    # None if the session does not count, for this reason.
    outcome: influence.ComparisonOutcome | None
    reason: str | None
    # Whether training can use this session, even if no model scored it.
    is_usable: bool
    # Whether a judge gave the verdict, which people can check.
    has_judge: bool
    # How many of the memories shown were named by rare words of later prompts.
    overlap: dict[str, Any]


def compare(services: Services, job: Job) -> Effect:
    """Compare the rankings of a session, and adjust the influence of the predictor."""
    store, user, key = services.store, job.user, job.key
    case = _read_case(store, job, services.policy.predictor.rrf_k)
    if case is None:
        return no_effect
    earlier = store.comparison(user, key)
    margins = store.record(user, known_state(services, user).scorer, influence.RECORD_SESSIONS)
    # This session is among them: its labels are stored already.
    proof = influence.prove_history(
        store.taught_sessions(user, FEATURE_VERSION, influence.PROOF_SESSIONS)
    )
    now = services.world.now()
    interval = services.policy.predictor.train_interval_sessions

    def effect(transaction: Transaction) -> After:
        before = replace(decoded(transaction.predictor_state(user)), history=proof)
        details: dict[str, dict[str, object]]
        if earlier is not None and earlier.ema_updated:
            # The session was labelled again. It must not count twice.
            reason = case.reason or _COUNTED_BEFORE
            state, details = before, {"predictor.ema_skip": {"reason": reason}}
            comparison = replace(
                _comparison(case, state, now),
                at=earlier.at,
                ema_updated=True,
                success_rate=earlier.success_rate,
                alpha=earlier.alpha,
            )
        else:
            state, details = _count_session(services, before, case, margins)
            comparison = _comparison(case, state, now)
        transaction.put_comparison(user, comparison)
        if not case.is_usable:
            transaction.drop_canary(user, key)
        elif is_canary(user, key):
            transaction.choose_canary(user, key, now, CANARY_LIMIT)
        transaction.set_predictor_state(user, state.encoded())
        # A training was ordered now, or has waited for two intervals.
        has_grown = state.fresh_sessions > before.fresh_sessions
        is_overdue = has_grown and state.fresh_sessions % (2 * interval) == 0
        is_new = state.order_reason != before.order_reason
        if state.order_reason is not None and (is_new or is_overdue):
            queue_job(transaction, user, TRAIN_JOB, TRAIN_KEY, now)
        measured = {name: getattr(comparison, name) for name in _MEASURED}
        rankings = {"predictor.compare": measured, "predictor.fts_overlap": case.overlap}
        events = make_events({**rankings, **details}, now, key)
        transaction.log_events(user, events)
        return partial(publish, services, events)

    return effect


def _read_case(store: Store, job: Job, rrf_k: int) -> _ComparedSession | None:
    """Return the session with the outcome of its comparison; None if nothing was ranked."""
    session, memories, score = read_session(store, job)
    records = [
        record
        for record in memories
        if record.candidate.source != "fts_only" and record.candidate.baseline_rank is not None
    ]
    if not records:
        return None
    labels = np.array([np.nan if record.label is None else record.label for record in records])
    was_shown = np.array([record.candidate.was_injected for record in records], np.bool_)
    labelled = [
        records[index] for index in np.flatnonzero(influence.comparable(labels, was_shown)).tolist()
    ]
    outcome = None
    if labelled and session.scorer is not None:
        outcome = influence.compare(
            [record.candidate.baseline_rank or 0 for record in labelled],
            [record.candidate.predictor_rank or len(records) + 1 for record in labelled],
            [record.label or 0.0 for record in labelled],
            rrf_k,
        )
    reason = "nothing helped" if outcome is None else None
    if score is None:
        reason = "not judged"
    elif score.excluded is not None:
        reason = score.excluded
    elif session.scorer is None:
        reason = _SILENT
    elif not labelled:
        reason = "no label"
    shown = [record for record in records if record.candidate.was_injected]
    hit = sum(record.fts_hit_count > 0 for record in shown)
    has_helped = any((record.label or 0.0) > 0.0 for record in records)
    return _ComparedSession(
        session,
        score,
        records,
        outcome,
        reason,
        is_usable=reason in (None, _SILENT) and has_helped,
        has_judge=score is not None and score.judge not in NO_JUDGES,
        overlap={"shown": len(shown), "hit": hit, "share": hit / len(shown) if shown else None},
    )


def _count_session(
    services: Services, before: PredictorState, case: _ComparedSession, margins: influence.Margins
) -> tuple[PredictorState, dict[str, dict[str, object]]]:
    """Return the state after a session, and the details of what happened, by event."""
    policy = services.policy.predictor
    outcome = case.outcome if case.reason is None else None
    won = None if outcome is None else outcome.won
    standing, has_drifted = influence.judged(before.standing, won, policy.drift_reset_window)
    was_cold = standing.is_cold
    if won is not None and outcome is not None:
        # The outcome of another kind of scorer says nothing about this one.
        if case.session.scorer == before.scorer:
            ndcg = np.vstack([margins.ndcg, outcome.ndcg])
            margins = influence.Margins(ndcg, np.vstack([margins.log_rank, outcome.log_rank]))
        weighings = influence.weigh(margins, before.history)
        standing = influence.weighed(
            standing, weighings, policy.influence, policy.min_training_sessions
        )
    state = replace(
        before,
        standing=standing,
        fresh_sessions=before.fresh_sessions + case.is_usable,
        uncalibrated=before.uncalibrated + (won is not None and case.has_judge),
    )
    trial: dict[str, dict[str, object]] = {}
    if case.session.model_version == state.version:
        state, trial = count_trial(state, won)
    can_train = services.trainer is not None and state.is_enabled
    reason = _order_reason(policy, state, has_drifted) if can_train else None
    state = replace(state, order_reason=reason)
    rate = {"success_rate": round(state.standing.success_rate, 6), "alpha": state.alpha}
    former = {"success_rate_before": round(before.standing.success_rate, 6)}
    details: dict[str, dict[str, object]] = {"predictor.ema_update": {**former, **rate}}
    if case.reason is not None:
        details = {"predictor.ema_skip": {"reason": case.reason}}
    if has_drifted:
        details["predictor.drift_reset"] = {
            "drift_resets": state.standing.drift_resets,
            "streak": before.standing.low_streak + 1,
            "replay_size": len(margins.ndcg),
        }
    if was_cold and not standing.is_cold:
        details["predictor.cold_start_exit"] = {"judged": state.standing.judged, **rate}
    details |= trial
    if case.reason is None and case.has_judge and state.uncalibrated == CALIBRATE_EVERY:
        details["predictor.calibration_due"] = {"sessions": state.uncalibrated}
    return state, details


def count_trial(
    state: PredictorState, won: float | None
) -> tuple[PredictorState, dict[str, dict[str, object]]]:
    """Count one more session of the model that serves; one that fails its trial is rolled back."""
    if won is None:
        return state, {}
    state = replace(state, shadow_left=max(0, state.shadow_left - 1))
    if state.trial_sessions >= TRIAL_SESSIONS:
        return state, {}
    sessions, wins = state.trial_sessions + 1, state.trial_wins + won
    state = replace(state, trial_sessions=sessions, trial_wins=wins)
    if sessions < TRIAL_SESSIONS:
        return state, {}
    has_failed = wins / TRIAL_SESSIONS < TRIAL_WIN_SHARE and state.previous is not None
    result = {"model_version": state.version, "sessions": TRIAL_SESSIONS, "wins": wins}
    details: dict[str, dict[str, object]] = {}
    details["predictor.trial"] = {**result, "passed": not has_failed}
    if has_failed and state.previous is not None:
        details["predictor.gave_way"] = {"to": state.previous}
        state = state.rolled_back(state.previous, state.previous_scorer)
    return state, details


def _order_reason(policy: PredictorPolicy, state: PredictorState, has_drifted: bool) -> str | None:
    """Return why a training is due; None if it is not."""
    if has_drifted:
        return "drift"
    if state.order_reason is not None:
        return state.order_reason
    interval = policy.train_interval_sessions if state.latest else FIRST_TRAINING_SESSIONS
    if policy.scorer != REPLAYED_SCORER:
        interval = max(interval, SLOW_TRAINING_SESSIONS)
    return "interval" if state.fresh_sessions >= interval else None


def _comparison(case: _ComparedSession, state: PredictorState, now: datetime) -> Comparison:
    session, outcome, records = case.session, case.outcome, case.records

    def top_ids(ranking: str) -> tuple[str, ...]:
        ranks = {record.memory_id: getattr(record.candidate, ranking) for record in records}
        ranked = [(rank, memory_id) for memory_id, rank in ranks.items() if rank is not None]
        return tuple(memory_id for _, memory_id in sorted(ranked)[:TOP_COUNT])

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
        predictor_top_ids=top_ids("predictor_rank"),
        baseline_top_ids=top_ids("baseline_rank"),
        relevance_scores={
            record.memory_id: round(record.label, RELEVANCE_DECIMALS)
            for record in records
            if record.label is not None
        },
        fts_overlap_score=case.overlap["share"],
        replay_ndcg=outcome.ndcg if outcome else (),
        replay_log_rank=outcome.log_rank if outcome else (),
    )
