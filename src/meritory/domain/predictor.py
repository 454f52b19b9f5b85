"""The predictor: comparisons with the baseline, training runs, calibration and training data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TIE = 0.5
# Of the relevance scores of a comparison; the candidates have the labels themselves.
RELEVANCE_DECIMALS = 4
Winner = Literal["predictor", "baseline", "tie"]
# What a learned order is served on besides session starts, each with a model and a record of its
# own: the searches of agents and programs, and the prompts after the first.
Surface = Literal["recall", "prompt"]
SURFACES: tuple[Surface, ...] = get_args(Surface)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The predictor's and the baseline's order of one session, measured by its labels."""

    session_key: str
    at: datetime
    project: str | None
    scorer: str | None
    model_version: int | None
    # None if no memory helped, or the predictor did not answer.
    predictor_ndcg: float | None
    baseline_ndcg: float | None
    # 1, 0.5 or 0; None if the session does not count, and then `reason` says why.
    predictor_won: float | None
    scorer_confidence: float
    reason: str | None
    # Whether it changed the success rate, now or before it was labelled again.
    ema_updated: bool
    # After this session.
    success_rate: float
    alpha: float
    predictor_top_ids: tuple[str, ...]
    baseline_top_ids: tuple[str, ...]
    relevance_scores: Mapping[str, float]
    # The share of injected memories that a prompt hit; None without an injection.
    fts_overlap_score: float | None
    # By alpha the gain that its fusion would have had.
    replay_ndcg: tuple[float, ...] = ()
    replay_log_rank: tuple[float, ...] = ()
    number: int | None = None

    @property
    def margin(self) -> float | None:
        """Return how much better the predictor's order was."""
        if self.predictor_ndcg is None or self.baseline_ndcg is None:
            return None
        return self.predictor_ndcg - self.baseline_ndcg

    @property
    def winner(self) -> Winner | None:
        """Return the better order; None if the comparison does not count."""
        if self.predictor_won is None:
            return None
        if self.predictor_won == TIE:
            return "tie"
        return "predictor" if self.predictor_won > TIE else "baseline"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankedSearch:
    """A search within a session: its candidates as served and, later, what helped of them."""

    surface: Surface
    at: datetime
    # The model that scored it, and the weight of the formula in what was served.
    model_version: int
    alpha: float
    feature_version: int
    # In the order of the formula. Empty in place of an id that was erased.
    memory_ids: tuple[str, ...]
    # The places among these of what the agent got, in the order it got them.
    shown: tuple[int, ...]
    predictor_ranks: tuple[int, ...]
    # One row after the other, one row per candidate.
    features: NDArray[np.float64]
    # Its number in the session, from 1.
    number: int = 0
    # Of each candidate; empty until the session is labelled, None without a label.
    labels: tuple[float | None, ...] = ()
    # As in a comparison of a session's rankings.
    predictor_ndcg: float | None = None
    baseline_ndcg: float | None = None
    predictor_won: float | None = None
    reason: str | None = None
    success_rate: float | None = None
    alpha_after: float | None = None
    replay_ndcg: tuple[float, ...] = ()
    replay_log_rank: tuple[float, ...] = ()

    @property
    def table(self) -> NDArray[np.float64]:
        """Return the features with a row per candidate."""
        return self.features.reshape(len(self.memory_ids), -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonQuery:
    """A page of comparisons, latest first."""

    winner: Winner | None = None
    ema_updated: bool | None = None
    min_margin: float | None = None
    since: datetime | None = None
    until: datetime | None = None
    limit: int = 50
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRun:
    """One attempt to train a model, successful or not."""

    at: datetime
    model_version: int
    scorer: str
    # The cause: interval, full, asked, drift, rollback.
    reason: str
    loss: float | None = None
    sample_count: int = 0
    skipped_count: int = 0
    duration_ms: float = 0.0
    is_accepted: bool = True
    canary_ndcg: float | None = None
    canary_ndcg_delta: float | None = None
    canary_score_variance: float | None = None
    canary_topk_churn: float | None = None
    # Every gate with its value and limit.
    gates: Sequence[Mapping[str, object]] = ()
    train_validation_failures: int = 0
    drift_resets: int = 0
    error: str | None = None
    # "start", or the surface that the model is for.
    surface: str = "start"


@dataclass(frozen=True, slots=True)
class EntitySlice:
    """The success of the predictor where a memory about an entity helped, for display."""

    kind: str
    name: str
    session_count: int
    success_rate: float


@dataclass(frozen=True, slots=True)
class Slice:
    """The success of the predictor in one project, for display."""

    project: str | None
    session_count: int
    # A moving average over the project's comparisons, like the overall success rate.
    success_rate: float


@dataclass(frozen=True, slots=True)
class Rated:
    """A judged memory in the calibration sample, which a person rates."""

    session_key: str
    memory_id: str
    judge_label: float
    offered_at: datetime
    human_label: float | None = None
    rated_at: datetime | None = None


@dataclass(frozen=True, slots=True, eq=False)
class TaughtSession:
    """A judged session to train on; the arrays have one entry per candidate."""

    key: str
    started_at: datetime
    project: str | None
    context: str
    embedder: str | None
    context_vector: NDArray[np.float32] | None
    memory_ids: tuple[str, ...]
    features: NDArray[np.float64]
    # NaN without a label.
    labels: NDArray[np.float64]
    rules: tuple[str, ...]
    was_injected: NDArray[np.bool_]
    baseline_ranks: NDArray[np.int64]
    # 0 where the predictor did not answer.
    predictor_ranks: NDArray[np.int64]
    is_canary: bool
