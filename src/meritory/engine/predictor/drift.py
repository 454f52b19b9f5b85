"""Drift: whether the predictor or the judge changed over time, and how far people agree with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meritory.domain.predictor import Rated, TaughtSession
from meritory.domain.world import moment_text
from meritory.engine.predictor.state import CALIBRATE_EVERY, PredictorState, known_state
from meritory.engine.services import Services
from meritory.rank.features import FEATURE_VERSION, FEATURES
from meritory.store.contract.store import Store

# A judge drifts when it favours new memories, or old ones.
YOUNG_DAYS, OLD_DAYS = 7.0, 30.0
DRIFT_SESSIONS = 60
DRIFT_WINDOW_SESSIONS, DRIFT_WINDOWS = 20, 10
# With fewer labels there is no signal.
MIN_LABELS = 5
# A greater mean error is reported.
CALIBRATION_ERROR_MAX = 0.2
CALIBRATION_READ = 1_000
RUNS_READ = 50
_LOG_AGE = FEATURES.index("log_age_days")


def drift(services: Services, user: str) -> dict[str, Any]:
    """Return drift figures as JSON values, with windows of sessions, oldest first."""
    state = known_state(services, user)
    limit = DRIFT_WINDOW_SESSIONS * DRIFT_WINDOWS
    sessions = services.store.taught_sessions(user, FEATURE_VERSION, limit)
    # Counted from the end, so that the latest window is complete.
    starts = range(len(sessions) % DRIFT_WINDOW_SESSIONS, len(sessions), DRIFT_WINDOW_SESSIONS)
    windows = [sessions[start : start + DRIFT_WINDOW_SESSIONS] for start in starts]
    runs = services.store.training_runs(user, RUNS_READ)
    return {
        "success_rate": round(state.standing.success_rate, 6),
        "low_streak": state.standing.low_streak,
        "drift_reset_window": services.policy.predictor.drift_reset_window,
        "drift_resets": state.standing.drift_resets,
        "is_drifting": is_drifting(state),
        "resets": [
            {"at": moment_text(run.at), "model_version": run.model_version}
            for run in runs
            if run.reason == "drift"
        ],
        "scorer_drift_signal": judge_drift(sessions[-DRIFT_SESSIONS:])["signal"],
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


def is_drifting(state: PredictorState) -> bool:
    """Return whether the model lost its influence to drift and has not recovered."""
    standing = state.standing
    has_reset = standing.drift_resets > 0 and standing.judged < standing.calm_until
    return state.order_reason == "drift" or has_reset


def judge_drift(sessions: Sequence[TaughtSession]) -> dict[str, Any]:
    """Return how much higher the judge labels new memories than old ones."""
    young: list[float] = []
    old: list[float] = []
    for session in sessions:
        age_days = np.expm1(session.features[:, _LOG_AGE])
        is_labelled = np.isfinite(session.labels)
        young += session.labels[is_labelled & (age_days < YOUNG_DAYS)].tolist()
        old += session.labels[is_labelled & (age_days > OLD_DAYS)].tolist()
    has_signal = min(len(young), len(old)) >= MIN_LABELS
    return {
        "sessions": len(sessions),
        "young_labels": len(young),
        "old_labels": len(old),
        "signal": round(float(np.mean(young) - np.mean(old)), 6) if has_signal else None,
    }


def calibration(store: Store, user: str, state: PredictorState) -> dict[str, Any]:
    """Return how far people and the judge differ, as JSON values."""
    offered = store.calibration(user, CALIBRATION_READ)
    errors = [error_of(rated) for rated in offered if rated.human_label is not None]
    mean = round(float(np.mean(errors)), 6) if errors else None
    return {
        "asked": len(offered),
        "rated": len(errors),
        "mean_absolute_error": mean,
        "is_flagged": mean is not None and mean > CALIBRATION_ERROR_MAX,
        "sessions_since": state.uncalibrated,
        "is_due": state.uncalibrated >= CALIBRATE_EVERY,
    }


def error_of(rated: Rated) -> float:
    """Return by how much a person and the judge differ about one memory."""
    return abs((rated.human_label or 0.0) - rated.judge_label)
