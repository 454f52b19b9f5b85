"""The predictor over the wire: what can be asked about it, and what it is told."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from meritory.domain.codec import moment_text
from meritory.domain.predictor import Comparison, Rated, TrainingRun
from meritory.engine.predictor.status import SessionAudit
from meritory.rank.features import FEATURES
from meritory.server.schemas.memories import Limit, Moment
from meritory.server.schemas.sessions import (
    CandidateOut,
    EventOut,
    SessionKey,
    SessionOut,
    UserQuery,
    candidate_out,
)

OFFSET_MAX = 1_000_000
Offset = Annotated[int, Meta(ge=0, le=OFFSET_MAX)]
Version = Annotated[int, Meta(ge=0, le=999_999_999)]
RATINGS_LIMIT_COUNT = 200


class ComparisonsQuery(UserQuery, kw_only=True):
    """Which comparisons are wanted, latest first; `min_margin` counts in both directions."""

    winner: Literal["predictor", "baseline", "tie"] | None = None
    ema_updated: bool | None = None
    min_margin: Annotated[float, Meta(ge=0, le=1)] | None = None
    since: Moment | None = None
    until: Moment | None = None
    limit: Limit = 50
    offset: Offset = 0


class RunsQuery(UserQuery, kw_only=True):
    """How many trainings are wanted."""

    limit: Limit = 50


class Rollback(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The model that is to serve; null is the one before."""

    user: str | None = None
    version: Version | None = None


class RatingIn(msgspec.Struct, forbid_unknown_fields=True):
    """How much a memory helped in a session, by a person's word."""

    session_key: SessionKey
    memory_id: str
    label: Annotated[float, Meta(ge=-1, le=1)]


class Calibrate(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A person's ratings; `count` asks for that many to be rated next."""

    user: str | None = None
    ratings: Annotated[list[RatingIn], Meta(max_length=RATINGS_LIMIT_COUNT)] = []
    count: Annotated[int, Meta(ge=20, le=50)] | None = None


# -- status -----------------------------------------------------------------------------------


class WeighingOut(msgspec.Struct):
    """What evidence says about one weight of the baseline."""

    alpha: float
    session_count: int
    ndcg_margin: float
    ndcg_errors: float
    log_rank_margin: float
    trust: float


class ProjectOut(msgspec.Struct):
    """How the predictor does in one project, for show."""

    project: str | None
    session_count: int
    success_rate: float


class EntitySliceOut(msgspec.Struct):
    """How the predictor does where something about an entity helped, for show."""

    kind: str
    name: str
    session_count: int
    success_rate: float


class SpeedOut(msgspec.Struct):
    """How long scoring took lately, and how long it may."""

    count: int
    last_ms: float | None
    avg_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    timeout_ms: int
    is_slow: bool


class CalibrationOut(msgspec.Struct):
    """How far people and the judge are apart."""

    asked: int
    rated: int
    mean_absolute_error: float | None
    is_flagged: bool
    sessions_since: int
    is_due: bool


class SidecarOut(msgspec.Struct):
    """Whether somebody is there to score."""

    alive: bool
    dead: bool
    pid: int | None
    crash_count: int
    crash_disabled: bool


class TrialOut(msgspec.Struct):
    """How the model that serves did in its first sessions."""

    sessions: int
    wins: float


class HistoryOut(msgspec.Struct):
    """How far history counts in the baseline, and what the record says about it."""

    recency: float
    usefulness: float
    sessions: int
    labels_valid: bool
    labels_partial: bool
    validity_errors: float
    validity_needed: float
    margin: float
    full_margin: float


class StatusOut(msgspec.Struct, kw_only=True):
    """Everything about a user's predictor."""

    phase: Literal["collecting", "warming", "active", "disabled", "retraining"]
    reason: str | None
    alpha: float
    earned_alpha: float
    success_rate: float
    scorer: str
    influence: str
    training_sessions: int
    min_training_sessions: int
    excluded_sessions: int
    is_cold: bool
    waiting_for: dict[str, int]
    model_version: int
    model_scorer: str
    previous_version: int | None
    best_version: int
    versions: list[int]
    parameter_count: int | None
    shadow_left: int
    trial: TrialOut
    canaries: int
    training_ordered: str | None
    last_trained_at: str | None
    last_train_loss: float | None
    failures: int
    fallbacks: int
    drift_resets: int
    is_drifting: bool
    scorer_drift_signal: float | None
    history: HistoryOut
    weighings: list[WeighingOut]
    project_success_rates: list[ProjectOut]
    entity_success_rates: list[EntitySliceOut]
    latency: SpeedOut
    calibration: CalibrationOut
    sidecar: SidecarOut
    warnings: list[str]


class ResetOut(msgspec.Struct):
    """A training that was ordered by drift."""

    at: str
    model_version: int


class DriftWindow(msgspec.Struct):
    """How much more the judge thought of what is new than of what is old, in some sessions."""

    id: str
    since: str
    until: str
    sessions: int
    young_labels: int
    old_labels: int
    signal: float | None


class DriftOut(msgspec.Struct, kw_only=True):
    """Whether the predictor or the judge changed over time."""

    success_rate: float
    low_streak: int
    drift_reset_window: int
    drift_resets: int
    is_drifting: bool
    resets: list[ResetOut]
    scorer_drift_signal: float | None
    results: list[DriftWindow]


# -- records ----------------------------------------------------------------------------------


class ComparisonOut(msgspec.Struct, kw_only=True):
    """Both orders of one session, held against what really helped."""

    id: str
    at: str
    project: str | None
    scorer: str | None
    model_version: int | None
    predictor_ndcg: float | None
    baseline_ndcg: float | None
    margin: float | None
    predictor_won: float | None
    ema_updated: bool
    reason: str | None
    scorer_confidence: float
    success_rate: float
    alpha: float
    predictor_top_ids: list[str]
    baseline_top_ids: list[str]
    relevance_scores: dict[str, float]
    fts_overlap_score: float | None

    @classmethod
    def of(cls, found: Comparison) -> ComparisonOut:
        """A comparison for the wire."""
        known = {
            name: getattr(found, name)
            for name in cls.__struct_fields__
            if name not in ("id", "at", "predictor_top_ids", "baseline_top_ids", "relevance_scores")
        }
        return cls(
            id=found.session_key,
            at=moment_text(found.at),
            predictor_top_ids=list(found.predictor_top_ids),
            baseline_top_ids=list(found.baseline_top_ids),
            relevance_scores=dict(found.relevance_scores),
            **known,
        )


class Comparisons(msgspec.Struct):
    """Comparisons, latest first; `next` is the offset of the page after a full one."""

    results: list[ComparisonOut]
    next: int | None = None


class Audit(msgspec.Struct):
    """A session's ranking with all that is on record about it."""

    session: SessionOut
    comparison: ComparisonOut | None
    results: list[CandidateOut]
    events: list[EventOut]

    @classmethod
    def of(cls, found: SessionAudit) -> Audit:
        """Return an audit for the wire."""
        compared = found.comparison
        return cls(
            SessionOut.of(found.session, found.score),
            None if compared is None else ComparisonOut.of(compared),
            [candidate_out(one, FEATURES) for one in found.candidates],
            [EventOut.of(event) for event in found.events],
        )


class RunOut(msgspec.Struct, kw_only=True):
    """One attempt to train, whatever came of it."""

    at: str
    model_version: int
    scorer: str
    reason: str
    loss: float | None
    sample_count: int
    skipped_count: int
    duration_ms: float
    is_accepted: bool
    canary_ndcg: float | None
    canary_ndcg_delta: float | None
    canary_score_variance: float | None
    canary_topk_churn: float | None
    gates: list[dict[str, Any]]
    train_validation_failures: int
    drift_resets: int
    error: str | None

    @classmethod
    def of(cls, run: TrainingRun) -> RunOut:
        """A training for the wire."""
        known = {name: getattr(run, name) for name in cls.__struct_fields__}
        known |= {"at": moment_text(run.at), "gates": [dict(one) for one in run.gates]}
        return cls(**known)


class Runs(msgspec.Struct):
    """Trainings, latest first."""

    results: list[RunOut]


class OrderedOut(msgspec.Struct):
    """A training that is to come; not queued anew when one was under way."""

    job: str
    reason: str
    queued: bool


class SwitchedOut(msgspec.Struct):
    """Whether the predictor may be heard now."""

    is_enabled: bool
    has_changed: bool


class CalibrationQuestionOut(msgspec.Struct):
    """A memory to be rated; what the judge said is told after a person has spoken."""

    id: str
    session_key: str
    memory_id: str
    content: str
    context: str
    judge_label: float | None
    human_label: float | None
    delta: float | None

    @classmethod
    def of(cls, rated: Rated, content: str, context: str) -> CalibrationQuestionOut:
        """A question for the wire."""
        is_rated = rated.human_label is not None
        return cls(
            f"{rated.session_key}/{rated.memory_id}",
            rated.session_key,
            rated.memory_id,
            content,
            context,
            rated.judge_label if is_rated else None,
            rated.human_label,
            (rated.human_label or 0.0) - rated.judge_label if is_rated else None,
        )


class Calibration(msgspec.Struct):
    """How far people and the judge are apart, and what is to be rated next."""

    calibration: CalibrationOut
    results: list[CalibrationQuestionOut]


class RatedDay(msgspec.Struct):
    """How far people and the judge were apart about what was asked on one day."""

    id: str
    rated: int
    mean_absolute_error: float


class CalibrationQueue(Calibration):
    """What people were asked and have not answered, and how their answers compared so far."""

    days: list[RatedDay]
