"""Whether somebody is there to score: asked of the scorer itself, in this process or apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from meritory.domain.codec import moment_text
from meritory.domain.errors import BadCheckpoint, NotFound
from meritory.domain.predictor import Comparison, Rated, TaughtSession
from meritory.domain.session import Event, SessionMemory, SessionScore, SessionSummary
from meritory.engine.observe.observer import Latency
from meritory.engine.observe.timeline import timeline
from meritory.engine.predictor.state import (
    CALIBRATE_EVERY,
    Liveness,
    PredictorState,
    known_state,
    liveness,
    standing_of,
)
from meritory.engine.services import Services
from meritory.model.checkpoint import Checkpoint
from meritory.ports.scorer import BASE_VERSION
from meritory.rank import influence
from meritory.rank.features import FEATURE_VERSION, FEATURES
from meritory.rank.history_proof import VALID_ERRORS


@dataclass(frozen=True, slots=True)
class SessionAudit:
    """One session with its ranking, its verdict and its events."""

    session: SessionSummary
    score: SessionScore | None
    # None before the session has ended and was judged.
    comparison: Comparison | None
    candidates: Sequence[SessionMemory]
    events: Sequence[Event]


def compared(services: Services, user: str, key: str) -> Comparison:
    """Return the comparison of a session; raise NotFound if there is none."""
    services.store.session(user, key)
    found = services.store.comparison(user, key)
    if found is None:
        raise NotFound(
            f"the rankings of session {key[:80]!r} were not compared yet",
            hint="that is done when it has ended and was judged",
        )
    return found


def audit(services: Services, user: str, key: str) -> SessionAudit:
    """Return everything on record about the ranking of a session."""
    store = services.store
    return SessionAudit(
        store.session_summary(user, key),
        store.session_score(user, key),
        store.comparison(user, key),
        store.session_memories(user, key),
        timeline(services, user, key),
    )


# From this share of its timeout on, scoring is about to come too late; a first call that has to
# load everything says nothing, nor do a few.
SLOW_SHARE = 0.8
SLOW_CALLS_MIN = 20
PROJECT_COUNT, ENTITY_COUNT = 5, 5
# A judge drifts when it favours what is new, or what is old.
YOUNG_DAYS, OLD_DAYS = 7.0, 30.0
DRIFT_SESSIONS = 60
DRIFT_WINDOW_SESSIONS, DRIFT_WINDOWS = 20, 10
FEW_LABELS = 5
# A mean error above this is told.
CALIBRATION_ERROR_MAX = 0.2
CALIBRATION_READ = 1_000
RUNS_READ = 50
_LOG_AGE = FEATURES.index("log_age_days")


def predictor_status(services: Services, user: str) -> dict[str, Any]:
    """Everything about a user's predictor, as JSON values."""
    state = known_state(services, user)
    life = liveness(services)
    phase, reason = _phase(services, user, state, life)
    latency, calibrated = _latency(services), calibration(services, user, state)
    model, trouble = _model(services, user, state)
    counted, excluded = services.store.judged_counts(user)
    policy = services.policy.predictor
    warnings = [*trouble, *_warnings(services, user, latency, calibrated)]
    return {
        "phase": phase,
        "reason": reason,
        "alpha": state.alpha,
        "earned_alpha": state.standing.earned_alpha,
        "success_rate": round(state.standing.success_rate, 6),
        "scorer": services.scorer.name if services.scorer else "none",
        "influence": policy.influence,
        "training_sessions": counted,
        "min_training_sessions": policy.min_training_sessions,
        "excluded_sessions": excluded,
        "is_cold": state.standing.is_cold,
        "waiting_for": dict(influence.missing(state.standing, policy.min_training_sessions)),
        **model,
        "canaries": services.store.canary_count(user),
        "training_ordered": state.order_reason,
        "last_trained_at": None
        if state.last_trained_at is None
        else moment_text(state.last_trained_at),
        "last_train_loss": state.last_loss,
        "failures": state.failures,
        "fallbacks": state.fallbacks,
        "drift_resets": state.standing.drift_resets,
        "is_drifting": is_drifting(state),
        "scorer_drift_signal": judge_drift(_taught(services, user, DRIFT_SESSIONS))["signal"],
        "history": history_status(state),
        "weighings": _weighings(services, user, state),
        "project_success_rates": [
            {**asdict(one), "success_rate": round(one.success_rate, 6)}
            for one in services.store.slices(user, PROJECT_COUNT)
        ],
        "entity_success_rates": [
            {**asdict(one), "success_rate": round(one.success_rate, 6)}
            for one in services.store.entity_slices(user, ENTITY_COUNT)
        ],
        "latency": latency,
        "calibration": calibrated,
        "sidecar": {
            "alive": life.is_alive,
            "dead": life.is_dead,
            "pid": life.pid,
            "crash_count": life.crash_count,
            "crash_disabled": life.is_crash_disabled,
        },
        "warnings": warnings,
    }


def _phase(
    services: Services, user: str, state: PredictorState, life: Liveness
) -> tuple[str, str | None]:
    """In which of its five phases it is, and why where that is not plain."""
    if services.scorer is None:
        return "disabled", "the setting predictor.enabled is off"
    if not state.is_enabled:
        return "disabled", "switched off; `meritory predictor enable` switches it on"
    if life.is_crash_disabled:
        return "disabled", f"{life.crash_count} crashes/h; `meritory predictor enable` tries again"
    told = standing_of(services, user, state)
    if state.shadow_left:
        return told.state, f"a new kind of scorer is watched for {state.shadow_left} more sessions"
    return told.state, "drift" if told.state == "retraining" else None


def is_drifting(state: PredictorState) -> bool:
    """Whether it lost its influence to drift and has not come through the time after it."""
    standing = state.standing
    has_reset = standing.drift_resets > 0 and standing.judged < standing.calm_until
    return state.order_reason == "drift" or has_reset


# -- the model ------------------------------------------------------------------------------


def versions(services: Services, user: str) -> list[int]:
    """The models that can serve, the latest first; the base is always among them."""
    kept = services.shelves.of(user).versions() if services.shelves else []
    return [*(version for version in kept if version != BASE_VERSION), BASE_VERSION]


def checkpoint_of(services: Services, user: str, version: int) -> Checkpoint:
    """A model of the shelf; BadCheckpoint when it is not there, or not sound."""
    if services.shelves is None:
        raise BadCheckpoint("this store keeps no models", hint="choose another scorer")
    return services.shelves.checkpoint(user, version)


def _model(
    services: Services, user: str, state: PredictorState
) -> tuple[dict[str, Any], list[str]]:
    told = {
        "model_version": state.version,
        "model_scorer": state.scorer,
        "previous_version": state.previous,
        "best_version": state.best,
        "versions": versions(services, user),
        "parameter_count": None,
        "shadow_left": state.shadow_left,
        "trial": {"sessions": state.trial_sessions, "wins": state.trial_wins},
    }
    if services.scorer is None or services.scorer.name == "random":
        return told, []
    try:
        kept = checkpoint_of(services, user, state.version)
    except BadCheckpoint as error:
        hint = "the next session goes on with an earlier one"
        if state.version == BASE_VERSION:
            hint = "the baseline ranks alone; reinstall the package to restore the base"
        return told, [f"model {state.version} cannot be used: {error.message}; {hint}"]
    told["parameter_count"] = sum(value.size for value in kept.params.values())
    if state.lost is None:
        return told, []
    return told, [
        f"{state.lost}; model {state.version} serves in its place until one is trained"
        " (`meritory predictor train`)"
    ]


def history_status(state: PredictorState) -> dict[str, Any]:
    """How far history counts in the baseline, and what the record says about it."""
    proof = state.history
    return {
        "recency": proof.trust.recency,
        "usefulness": proof.trust.usefulness,
        "sessions": proof.session_count,
        "labels_valid": proof.is_valid,
        "labels_partial": proof.is_partial,
        "validity_errors": round(proof.validity, 4),
        "validity_needed": VALID_ERRORS,
        "margin": round(proof.margin, 6),
        "full_margin": round(proof.full_margin, 6),
    }


def _weighings(services: Services, user: str, state: PredictorState) -> list[dict[str, Any]]:
    record = services.store.record(user, state.scorer, influence.RECORD_SESSIONS)
    weighings = influence.weigh(record, state.history)
    return [
        {name: round(value, 6) if isinstance(value, float) else value for name, value in one}
        for one in (asdict(found).items() for found in weighings)
    ]


# -- speed ----------------------------------------------------------------------------------


def _latency(services: Services) -> dict[str, Any]:
    found = next(one for one in services.observer.latencies() if one.operation == "predictor_score")
    timeout_ms = services.policy.predictor.score_timeout_ms
    return {
        "count": found.count,
        "last_ms": found.last_ms,
        "avg_ms": round(found.total_ms / found.count, 3) if found.count else None,
        "p50_ms": found.p50_ms,
        "p95_ms": found.p95_ms,
        "timeout_ms": timeout_ms,
        "is_slow": is_slow(found, timeout_ms),
    }


def is_slow(found: Latency, timeout_ms: float) -> bool:
    """Whether scoring lately took nearly as long as it may."""
    is_known = found.p95_ms is not None and found.count >= SLOW_CALLS_MIN
    return is_known and (found.p95_ms or 0.0) >= SLOW_SHARE * timeout_ms


def _warnings(
    services: Services, user: str, latency: dict[str, Any], calibrated: dict[str, Any]
) -> list[str]:
    found = []
    if latency["is_slow"]:
        found.append(
            f"scoring is slow: p95 {latency['p95_ms']:.0f} ms of {latency['timeout_ms']} ms"
            " (predictor.score_timeout_ms)"
        )
    if calibrated["is_flagged"]:
        found.append(
            f"people differ from the judge by {calibrated['mean_absolute_error']:.2f} on average;"
            " `judge.kind = llm` may judge better"
        )
    if calibrated["is_due"]:
        found.append(
            f"{calibrated['sessions_since']} sessions were judged since people were last asked"
            " about the judge: `meritory predictor calibrate` offers some to rate"
        )
    last = services.store.training_runs(user, 1)
    if last and not last[0].is_accepted:
        refused = [str(one["name"]) for one in last[0].gates if not one["passed"]]
        why = last[0].error or f"refused by {', '.join(refused)}"
        found.append(f"the last training left no model: {why}")
    return found


# -- the judge ------------------------------------------------------------------------------


def _taught(services: Services, user: str, limit: int) -> list[TaughtSession]:
    return services.store.taught_sessions(user, FEATURE_VERSION, limit)


def judge_drift(sessions: Sequence[TaughtSession]) -> dict[str, Any]:
    """How much more what is new is said to help than what is old; no signal from a few labels."""
    young: list[float] = []
    old: list[float] = []
    for one in sessions:
        age_days = np.expm1(one.features[:, _LOG_AGE])
        known = np.isfinite(one.labels)
        young += one.labels[known & (age_days < YOUNG_DAYS)].tolist()
        old += one.labels[known & (age_days > OLD_DAYS)].tolist()
    is_told = min(len(young), len(old)) >= FEW_LABELS
    return {
        "sessions": len(sessions),
        "young_labels": len(young),
        "old_labels": len(old),
        "signal": round(float(np.mean(young) - np.mean(old)), 6) if is_told else None,
    }


def drift(services: Services, user: str) -> dict[str, Any]:
    """Whether the predictor or the judge changed over time; windows of sessions, oldest first."""
    state = known_state(services, user)
    taught = _taught(services, user, DRIFT_WINDOW_SESSIONS * DRIFT_WINDOWS)
    # From the end, so that the latest window is a whole one.
    starts = range(len(taught) % DRIFT_WINDOW_SESSIONS, len(taught), DRIFT_WINDOW_SESSIONS)
    windows = [taught[at : at + DRIFT_WINDOW_SESSIONS] for at in starts]
    runs = services.store.training_runs(user, RUNS_READ)
    return {
        "success_rate": round(state.standing.success_rate, 6),
        "low_streak": state.standing.low_streak,
        "drift_reset_window": services.policy.predictor.drift_reset_window,
        "drift_resets": state.standing.drift_resets,
        "is_drifting": is_drifting(state),
        "resets": [
            {"at": moment_text(one.at), "model_version": one.model_version}
            for one in runs
            if one.reason == "drift"
        ],
        "scorer_drift_signal": judge_drift(taught[-DRIFT_SESSIONS:])["signal"],
        "results": [
            {
                "id": window[0].key,
                "since": moment_text(window[0].started_at),
                "until": moment_text(window[-1].started_at),
                **judge_drift(window),
            }
            for window in windows
        ],
    }


def calibration(services: Services, user: str, state: PredictorState) -> dict[str, Any]:
    """How far people and the judge are apart, all in all and lately."""
    asked = services.store.calibration(user, CALIBRATION_READ)
    errors = [error_of(one) for one in asked if one.human_label is not None]
    mean = round(float(np.mean(errors)), 6) if errors else None
    return {
        "asked": len(asked),
        "rated": len(errors),
        "mean_absolute_error": mean,
        "is_flagged": mean is not None and mean > CALIBRATION_ERROR_MAX,
        "sessions_since": state.uncalibrated,
        "is_due": state.uncalibrated >= CALIBRATE_EVERY,
    }


def error_of(rated: Rated) -> float:
    """By how much a person and the judge differ about one memory."""
    return abs((rated.human_label or 0.0) - rated.judge_label)
