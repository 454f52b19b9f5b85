"""The status of a predictor: its phase, its influence, its models, and what needs attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from meritory.domain.errors import BadCheckpoint, NotFound
from meritory.domain.predictor import SURFACES, Comparison, ComparisonQuery, Surface
from meritory.domain.session import Event, SessionMemory, SessionScore, SessionSummary
from meritory.domain.world import moment_text
from meritory.engine.observe.observer import Latency, timeline
from meritory.engine.predictor.drift import DRIFT_SESSIONS, calibration, is_drifting, judge_drift
from meritory.engine.predictor.state import (
    PredictorState,
    known_state,
    load_checkpoint,
    scorer_facts,
    status_facts,
    versions,
)
from meritory.engine.predictor.surfaces import versions_of
from meritory.engine.services import Services
from meritory.ports.scorer import BASE_VERSION, ScorerFacts
from meritory.rank import influence
from meritory.rank.features import FEATURE_VERSION
from meritory.rank.influence import VALID_ERRORS
from meritory.store.contract.store import Store

# From this share of its timeout on, scoring is slow. The first calls, which load everything, and
# a few calls are no proof of that.
SLOW_SHARE = 0.8
SLOW_CALLS_MIN = 20
PROJECT_COUNT, ENTITY_COUNT = 5, 5


@dataclass(frozen=True, slots=True)
class SessionAudit:
    """One session with its ranking, its verdict and its events."""

    session: SessionSummary
    score: SessionScore | None
    # None until the session has ended and is judged.
    comparison: Comparison | None
    candidates: Sequence[SessionMemory]
    events: Sequence[Event]


def compared(store: Store, user: str, key: str) -> Comparison:
    """Return the comparison of a session; raise NotFound if there is none."""
    store.session(user, key)
    comparison = store.comparison(user, key)
    if comparison is None:
        raise NotFound(
            f"the rankings of session {key[:80]!r} are not compared yet",
            hint="they are compared after the session has ended and is judged",
        )
    return comparison


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


def predictor_status(services: Services, user: str) -> dict[str, Any]:
    """Return everything about a user's predictor as JSON values."""
    store, policy = services.store, services.policy.predictor
    state = known_state(services, user)
    standing, trained_at = state.standing, state.last_trained_at
    life = scorer_facts(services.scorer)
    phase, reason = _phase(services, user, state, life)
    latency, calibrated = _latency(services), calibration(store, user, state)
    model, model_warnings = _model(services, user, state)
    counted, excluded = store.judged_counts(user)
    weighings = influence.weigh(
        store.record(user, state.scorer, influence.RECORD_SESSIONS), state.history
    )
    sessions = store.taught_sessions(user, FEATURE_VERSION, DRIFT_SESSIONS)
    return {
        "phase": phase,
        "reason": reason,
        "alpha": state.alpha,
        "earned_alpha": standing.earned_alpha,
        "success_rate": round(standing.success_rate, 6),
        "scorer": services.scorer.name if services.scorer else "none",
        "influence": policy.influence,
        "training_sessions": counted,
        "min_training_sessions": policy.min_training_sessions,
        "excluded_sessions": excluded,
        "is_cold": standing.is_cold,
        "waiting_for": dict(influence.missing(standing, policy.min_training_sessions)),
        **model,
        "canaries": store.canary_count(user),
        "training_ordered": state.order_reason,
        "last_trained_at": None if trained_at is None else moment_text(trained_at),
        "last_train_loss": state.last_loss,
        "failures": state.failures,
        "fallbacks": state.fallbacks,
        "drift_resets": standing.drift_resets,
        "is_drifting": is_drifting(state),
        "scorer_drift_signal": judge_drift(sessions)["signal"],
        "history": history_status(state),
        "surfaces": [surface_status(services, user, state, surface) for surface in SURFACES],
        "weighings": [_rounded(asdict(weighing)) for weighing in weighings],
        "project_success_rates": [
            _rounded(asdict(each)) for each in store.slices(user, PROJECT_COUNT)
        ],
        "entity_success_rates": [
            _rounded(asdict(each)) for each in store.entity_slices(user, ENTITY_COUNT)
        ],
        "latency": latency,
        "calibration": calibrated,
        "sidecar": {
            "alive": life.is_alive,
            "dead": life.is_dead,
            "pid": life.pid,
            "crash_count": life.crash_count,
            "crash_disabled": life.is_disabled,
        },
        "warnings": [*model_warnings, *_warnings(store, user, latency, calibrated)],
    }


def comparisons_of(
    store: Store, user: str, surface: str, query: ComparisonQuery
) -> list[Comparison]:
    """Return the comparisons of session starts, or of the searches of another surface."""
    for one in SURFACES:
        if one == surface:
            return store.search_comparisons(user, one, query)
    return store.comparisons(user, query)


def surface_status(
    services: Services, user: str, state: PredictorState, surface: Surface
) -> dict[str, Any]:
    """Return the model of recall or of prompts, its record and its influence."""
    one, needed = state.surface(surface), services.policy.predictor.min_training_sessions
    standing = one.standing
    phase = "collecting" if standing.judged < needed else "warming"
    if services.scorer is None or not one.is_enabled:
        phase = "disabled"
    elif one.alpha < 1.0:
        phase = "active"
    weighings = influence.weigh(
        services.store.search_record(user, surface, influence.RECORD_SESSIONS), one.history
    )
    return {
        "surface": surface,
        "phase": phase,
        "alpha": one.alpha,
        "success_rate": round(standing.success_rate, 6),
        "searches": standing.judged,
        "waiting_for": dict(influence.missing(standing, needed)),
        "model_version": one.version,
        "versions": versions_of(one),
        "failures": one.failures,
        "drift_resets": standing.drift_resets,
        "labels_valid": one.history.is_valid,
        "validity_errors": round(one.history.validity, 4),
        "weighings": [_rounded(asdict(weighing)) for weighing in weighings],
    }


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: round(value, 6) if isinstance(value, float) else value
        for name, value in values.items()
    }


def _phase(
    services: Services, user: str, state: PredictorState, life: ScorerFacts
) -> tuple[str, str | None]:
    """Return one of the five phases, and the reason where it is not obvious."""
    if services.scorer is None:
        return "disabled", "the setting predictor.enabled is off"
    if not state.is_enabled:
        return "disabled", "switched off; `meritory predictor enable` switches it on"
    if life.is_disabled:
        return "disabled", f"{life.crash_count} crashes/h; `meritory predictor enable` tries again"
    phase = status_facts(services, user, state).state
    if state.shadow_left:
        return phase, f"a new kind of scorer is watched for {state.shadow_left} more sessions"
    return phase, "drift" if phase == "retraining" else None


def _model(
    services: Services, user: str, state: PredictorState
) -> tuple[dict[str, Any], list[str]]:
    """Return the figures of the model that serves, and warnings about it."""
    figures = {
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
        return figures, []
    try:
        model = load_checkpoint(services, user, state.version)
    except BadCheckpoint as error:
        hint = "the next session uses an earlier one"
        if state.version == BASE_VERSION:
            hint = "the baseline ranks alone; reinstall the package to restore the base"
        return figures, [f"model {state.version} is not usable: {error.message}; {hint}"]
    figures["parameter_count"] = sum(value.size for value in model.params.values())
    if state.lost is None:
        return figures, []
    return figures, [
        f"{state.lost}; model {state.version} serves in its place until one is trained"
        " (`meritory predictor train`)"
    ]


def history_status(state: PredictorState) -> dict[str, Any]:
    """Return how far history counts in the baseline, and the evidence for it."""
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


def _latency(services: Services) -> dict[str, Any]:
    latencies = services.observer.latencies()
    scoring = next(one for one in latencies if one.operation == "predictor_score")
    timeout_ms = services.policy.predictor.score_timeout_ms
    return {
        "count": scoring.count,
        "last_ms": scoring.last_ms,
        "avg_ms": round(scoring.total_ms / scoring.count, 3) if scoring.count else None,
        "p50_ms": scoring.p50_ms,
        "p95_ms": scoring.p95_ms,
        "timeout_ms": timeout_ms,
        "is_slow": is_slow(scoring, timeout_ms),
    }


def is_slow(scoring: Latency, timeout_ms: float) -> bool:
    """Return whether scoring recently took almost as long as it may."""
    is_known = scoring.p95_ms is not None and scoring.count >= SLOW_CALLS_MIN
    return is_known and (scoring.p95_ms or 0.0) >= SLOW_SHARE * timeout_ms


def _warnings(
    store: Store, user: str, latency: dict[str, Any], calibrated: dict[str, Any]
) -> list[str]:
    warnings = []
    if latency["is_slow"]:
        warnings.append(
            f"scoring is slow: p95 {latency['p95_ms']:.0f} ms of {latency['timeout_ms']} ms"
            " (predictor.score_timeout_ms)"
        )
    if calibrated["is_flagged"]:
        warnings.append(
            f"people differ from the judge by {calibrated['mean_absolute_error']:.2f} on average;"
            " `judge.kind = llm` may judge better"
        )
    if calibrated["is_due"]:
        warnings.append(
            f"{calibrated['sessions_since']} sessions were judged since people were last asked"
            " about the judge: `meritory predictor calibrate` offers some to rate"
        )
    last = store.training_runs(user, 1, "start")
    if last and not last[0].is_accepted:
        rejected_by = [str(gate["name"]) for gate in last[0].gates if not gate["passed"]]
        reason = last[0].error or f"rejected by {', '.join(rejected_by)}"
        warnings.append(f"the last training produced no model: {reason}")
    return warnings
