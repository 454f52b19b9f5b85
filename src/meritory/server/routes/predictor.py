"""The predictor: status, comparisons, training runs, drift, and admin commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from meritory.domain.codec import prepared
from meritory.domain.predictor import (
    Comparison,
    ComparisonQuery,
    EntitySlice,
    Rated,
    Slice,
    TrainingRun,
)
from meritory.engine.predictor import admin
from meritory.engine.predictor import drift as drifting
from meritory.engine.predictor import rollback as rolling_back
from meritory.engine.predictor import status as reports
from meritory.engine.predictor.state import known_state
from meritory.engine.services import Services
from meritory.rank.influence import Weighing
from meritory.server.routes.sessions import CandidateOut, EventOut, SessionOut
from meritory.server.table import (
    Call,
    Limit,
    Moment,
    ReplyShape,
    Results,
    Route,
    SessionKey,
    UserQuery,
)

OFFSET_MAX = 1_000_000
RATINGS_LIMIT_COUNT = 200
_CONTEXT_CHARS = 200

SurfaceName = Literal["start", "recall", "prompt"]

# -- requests ---------------------------------------------------------------------------------

RunsQuery = UserQuery.plus(limit=(Limit, 50))


class ComparisonsQuery(UserQuery, kw_only=True):
    """A page of comparisons, latest first; `min_margin` applies in both directions."""

    surface: SurfaceName = "start"
    winner: Literal["predictor", "baseline", "tie"] | None = None
    ema_updated: bool | None = None
    min_margin: Annotated[float, Meta(ge=0, le=1)] | None = None
    since: Moment | None = None
    until: Moment | None = None
    limit: Limit = 50
    offset: Annotated[int, Meta(ge=0, le=OFFSET_MAX)] = 0


class Rollback(UserQuery, kw_only=True):
    """The model to activate; null is the previous one."""

    version: Annotated[int, Meta(ge=0, le=999_999_999)] | None = None
    surface: SurfaceName = "start"


class RatingIn(msgspec.Struct, forbid_unknown_fields=True):
    """A person's rating of a memory in a session."""

    session_key: SessionKey
    memory_id: str
    label: Annotated[float, Meta(ge=-1, le=1)]


class Calibrate(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A person's ratings; `count` asks for that many more to rate."""

    user: str | None = None
    ratings: Annotated[list[RatingIn], Meta(max_length=RATINGS_LIMIT_COUNT)] = []
    count: Annotated[int, Meta(ge=20, le=50)] | None = None


# -- status -----------------------------------------------------------------------------------


class SpeedOut(msgspec.Struct):
    """The latest durations of scoring, and its timeout."""

    count: int
    last_ms: float | None
    avg_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    timeout_ms: int
    is_slow: bool


class CalibrationOut(msgspec.Struct):
    """The difference between people's ratings and the judge's."""

    asked: int
    rated: int
    mean_absolute_error: float | None
    is_flagged: bool
    sessions_since: int
    is_due: bool


class SidecarOut(msgspec.Struct):
    """The health of the scorer process."""

    alive: bool
    dead: bool
    pid: int | None
    crash_count: int
    crash_disabled: bool


class TrialOut(msgspec.Struct):
    """The result of the active model in its first sessions."""

    sessions: int
    wins: float


class HistoryOut(msgspec.Struct):
    """The weight of usage history in the baseline, and the evidence for it."""

    recency: float
    usefulness: float
    sessions: int
    labels_valid: bool
    labels_partial: bool
    validity_errors: float
    validity_needed: float
    margin: float
    full_margin: float


class SurfaceOut(msgspec.Struct, kw_only=True):
    """The model of recall or of the prompts after the first."""

    surface: Literal["recall", "prompt"]
    phase: Literal["collecting", "warming", "active", "disabled"]
    alpha: float
    success_rate: float
    searches: int
    waiting_for: dict[str, int]
    model_version: int
    versions: list[int]
    failures: int
    drift_resets: int
    labels_valid: bool
    validity_errors: float
    weighings: list[Weighing]


class StatusOut(msgspec.Struct, kw_only=True):
    """The status of a user's predictor."""

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
    surfaces: list[SurfaceOut]
    weighings: list[Weighing]
    project_success_rates: list[Slice]
    entity_success_rates: list[EntitySlice]
    latency: SpeedOut
    calibration: CalibrationOut
    sidecar: SidecarOut
    warnings: list[str]


class ResetOut(msgspec.Struct):
    """A training run that drift triggered."""

    at: str
    model_version: int


class DriftWindow(msgspec.Struct):
    """How much higher the judge rated new memories than old ones, in a window of sessions."""

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


class ComparisonOut(
    ReplyShape,
    record=Comparison,
    names="id=session_key at project scorer model_version predictor_ndcg baseline_ndcg margin"
    " predictor_won ema_updated reason scorer_confidence success_rate alpha predictor_top_ids"
    " baseline_top_ids relevance_scores fts_overlap_score",
    kw_only=True,
):
    """Both orders of one session, measured against its labels; without the replays."""

    margin: float | None


class Comparisons(msgspec.Struct):
    """Comparisons, latest first; `next` is the offset of the next page."""

    results: list[ComparisonOut]
    next: int | None = None


class Audit(msgspec.Struct):
    """The ranking of a session with all its records."""

    session: SessionOut
    comparison: ComparisonOut | None
    results: list[CandidateOut]
    events: list[EventOut]

    @classmethod
    def of(cls, audit: reports.SessionAudit) -> Audit:
        """Return an audit whose records have their public shapes."""
        compared = audit.comparison
        return cls(
            SessionOut.judged(audit.session, audit.score),
            None if compared is None else ComparisonOut.of(compared),
            [CandidateOut.flat(row) for row in audit.candidates],
            [EventOut.of(event) for event in audit.events],
        )


class OrderedOut(ReplyShape, record=admin.Ordered, names="job reason queued=is_new"):
    """A queued training run; `queued` is false if one was queued already."""


class SwitchedOut(msgspec.Struct):
    """Whether the predictor is enabled now."""

    is_enabled: bool
    has_changed: bool


class CalibrationQuestionOut(
    ReplyShape,
    record=Rated,
    names="id session_key memory_id content context judge_label human_label delta",
):
    """A memory to rate; the judge's label is hidden until a person has rated it."""

    id: str
    content: str
    context: str
    judge_label: float | None
    delta: float | None


class Calibration(msgspec.Struct):
    """The difference between people's ratings and the judge's, and the next memories to rate."""

    calibration: CalibrationOut
    results: list[CalibrationQuestionOut]


class RatedDay(msgspec.Struct):
    """The difference between people's ratings and the judge's for the questions of one day."""

    id: str
    rated: int
    mean_absolute_error: float


class CalibrationQueue(Calibration):
    """The open questions, and the differences so far by day."""

    days: list[RatedDay]


# -- handlers ---------------------------------------------------------------------------------


def status(call: Call) -> StatusOut:
    """Show the predictor's status, its influence, and the reasons."""
    return msgspec.convert(call.user_memory().predictor_status(), prepared(StatusOut))


def comparisons(call: Call) -> Comparisons:
    """List how both rankings compared, session by session."""
    query: ComparisonsQuery = call.query
    services, user = call.whole_user()
    page = reports.comparisons_of(services.store, user, query.surface, query.to(ComparisonQuery))
    following = query.offset + query.limit if len(page) == query.limit else None
    return Comparisons([ComparisonOut.of(row) for row in page], following)


def comparison(call: Call) -> ComparisonOut:
    """Show how both rankings of a session compared."""
    services, user = call.whole_user()
    return ComparisonOut.of(reports.compared(services.store, user, call.path["session_key"]))


def audit(call: Call) -> Audit:
    """Show a session's ranking with all its records."""
    return Audit.of(reports.audit(*call.whole_user(), call.path["session_key"]))


def training(call: Call) -> Results[TrainingRun]:
    """List training runs with their gates, latest first."""
    services, user = call.whole_user()
    return Results(list(services.store.training_runs(user, call.query.limit)))


def drift(call: Call) -> DriftOut:
    """Show whether the predictor or the judge changed over time."""
    return msgspec.convert(drifting.drift(*call.whole_user()), prepared(DriftOut))


def train(call: Call) -> OrderedOut:
    """Queue a training run."""
    ordered = admin.train_now(*call.whole_user())
    call.server.engine.works.nudge()
    return OrderedOut.of(ordered)


def rollback(call: Call) -> TrainingRun:
    """Activate an earlier model again."""
    return rolling_back.rollback_any(*call.whole_user(), call.body.surface, call.body.version)


def enable(call: Call) -> SwitchedOut:
    """Enable the predictor again, with the influence it has earned."""
    return SwitchedOut(True, admin.switch(*call.whole_user(), is_on=True))


def disable(call: Call) -> SwitchedOut:
    """Disable the predictor: the baseline ranks alone."""
    return SwitchedOut(False, admin.switch(*call.whole_user(), is_on=False))


def calibrate(call: Call) -> Calibration:
    """Rate memories that the judge rated, and ask for more to rate."""
    body: Calibrate = call.body
    services, user = call.whole_user()
    labels = {(rating.session_key, rating.memory_id): rating.label for rating in body.ratings}
    rows: list[Rated] = []
    if labels:
        admin.calibrate_rate(services, user, labels)
        stored = services.store.calibration(user, drifting.CALIBRATION_READ)
        rows += [row for row in stored if (row.session_key, row.memory_id) in labels]
    if not labels or body.count is not None:
        rows += admin.calibrate_offer(services, user, body.count or admin.OFFER_MIN)
    return Calibration(_calibration(services, user), _questions(services, user, rows))


def show_calibration(call: Call) -> CalibrationQueue:
    """Show the memories that people were asked to rate, and the judge's error so far."""
    services, user = call.whole_user()
    rows = services.store.calibration(user, drifting.CALIBRATION_READ)
    errors: dict[str, list[float]] = {}
    for row in reversed(rows):
        if row.human_label is not None:
            day = row.offered_at.date().isoformat()
            errors.setdefault(day, []).append(drifting.error_of(row))
    return CalibrationQueue(
        _calibration(services, user),
        _questions(services, user, [row for row in rows if row.human_label is None]),
        [RatedDay(day, len(each), sum(each) / len(each)) for day, each in errors.items()],
    )


def _calibration(services: Services, user: str) -> CalibrationOut:
    figures = drifting.calibration(services.store, user, known_state(services, user))
    return msgspec.convert(figures, prepared(CalibrationOut))


def _questions(
    services: Services, user: str, rows: Sequence[Rated]
) -> list[CalibrationQuestionOut]:
    store = services.store
    texts = store.memories(user, [row.memory_id for row in rows])
    return [
        CalibrationQuestionOut.of(
            row,
            id=f"{row.session_key}/{row.memory_id}",
            content=texts[row.memory_id].content,
            context=store.session(user, row.session_key).context[:_CONTEXT_CHARS],
            judge_label=None if row.human_label is None else row.judge_label,
            delta=None if row.human_label is None else row.human_label - row.judge_label,
        )
        for row in rows
        if row.memory_id in texts
    ]


_BASE = "/api/predictor"
_COMPARISON, _AUDIT = f"{_BASE}/comparisons/{{session_key:path}}", "/audit/{session_key:path}"
ROUTES = (
    Route("GET", f"{_BASE}/status", status, "read", "user", query=UserQuery),
    Route("GET", f"{_BASE}/comparisons", comparisons, "read", "user", query=ComparisonsQuery),
    Route("GET", _COMPARISON, comparison, "read", "user", query=UserQuery),
    Route("GET", _BASE + _AUDIT, audit, "read", "user", query=UserQuery),
    Route("GET", f"{_BASE}/training", training, "read", "user", query=RunsQuery),
    Route("GET", f"{_BASE}/drift", drift, "read", "user", query=UserQuery),
    Route("POST", f"{_BASE}/train", train, "admin", "user", query=UserQuery),
    Route("POST", f"{_BASE}/rollback", rollback, "admin", "user", body=Rollback),
    Route("POST", f"{_BASE}/enable", enable, "admin", "user", query=UserQuery),
    Route("POST", f"{_BASE}/disable", disable, "admin", "user", query=UserQuery),
    Route("GET", f"{_BASE}/calibration", show_calibration, "read", "user", query=UserQuery),
    Route("POST", f"{_BASE}/calibration", calibrate, "admin", "user", body=Calibrate),
)
