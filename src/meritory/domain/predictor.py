"""How much influence the predictor has earned: comparisons in, alpha out. Pure.

Alpha is the baseline's weight in the fusion; 1 leaves the predictor without influence. Both orders
of every judged session are on record as they were served, so every weight of the fusion can be
replayed on it. Trust is shared out among these weights: the baseline alone has most of it in the
beginning, and each session moves some of it to the weights that would have ranked better, as in
Hedge (Freund and Schapire, 1997). The alpha served is the mean by trust, so one lucky session
changes little. Hedge's bound on the loss does not hold here: only the latest sessions count, and
only after checks. What is lost by an equal or a worse order is measured in the tests.

Labels that mean nothing would move trust all the same. So nothing counts until the labels are
valid: until what helped is more relevant than chance by an order that no label ever touched (see
proof.py). A weight must also be ahead in the mean log rank of what helped, which sees beyond the
tenth place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import numpy as np
from numpy.typing import NDArray

TIE = 0.5


# -- one session ----------------------------------------------------------------------------


# -- many sessions --------------------------------------------------------------------------


# -- the state ------------------------------------------------------------------------------


Winner = Literal["predictor", "baseline", "tie"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Both orders of one session, held against what really helped."""

    session_key: str
    at: datetime
    project: str | None
    scorer: str | None
    model_version: int | None
    # None when nothing helped, or the predictor was silent.
    predictor_ndcg: float | None
    baseline_ndcg: float | None
    # 1, 0.5 or 0; None when the session is left out, and then `reason` says why.
    predictor_won: float | None
    scorer_confidence: float
    reason: str | None
    # Whether it moved the success rate, now or before it was labelled anew.
    ema_updated: bool
    # After this session.
    success_rate: float
    alpha: float
    predictor_top_ids: tuple[str, ...]
    baseline_top_ids: tuple[str, ...]
    relevance_scores: Mapping[str, float]
    # The share of injected memories that a prompt hit; None when nothing was injected.
    fts_overlap_score: float | None
    # By alpha what its fusion would have gained.
    replay_ndcg: tuple[float, ...] = ()
    replay_log_rank: tuple[float, ...] = ()
    number: int | None = None

    @property
    def margin(self) -> float | None:
        """How much better the predictor's order was."""
        if self.predictor_ndcg is None or self.baseline_ndcg is None:
            return None
        return self.predictor_ndcg - self.baseline_ndcg

    @property
    def winner(self) -> Winner | None:
        """The better order; None when the comparison does not count."""
        if self.predictor_won is None:
            return None
        if self.predictor_won == TIE:
            return "tie"
        return "predictor" if self.predictor_won > TIE else "baseline"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonQuery:
    """Which comparisons are wanted, latest first."""

    winner: Winner | None = None
    ema_updated: bool | None = None
    min_margin: float | None = None
    since: datetime | None = None
    until: datetime | None = None
    limit: int = 50
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRun:
    """One attempt to train, whatever came of it."""

    at: datetime
    model_version: int
    scorer: str
    # What it was for: interval, full, asked, drift, rollback.
    reason: str
    loss: float | None
    sample_count: int
    skipped_count: int
    duration_ms: float
    is_accepted: bool
    canary_ndcg: float | None = None
    canary_ndcg_delta: float | None = None
    canary_score_variance: float | None = None
    canary_topk_churn: float | None = None
    # Every gate with its value and limit, as it was told.
    gates: Sequence[Mapping[str, object]] = ()
    train_validation_failures: int = 0
    drift_resets: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class EntitySlice:
    """How the predictor does where something about an entity helped, for show."""

    kind: str
    name: str
    session_count: int
    success_rate: float


@dataclass(frozen=True, slots=True)
class Slice:
    """How the predictor does in one project, for show."""

    project: str | None
    session_count: int
    # A moving average over the project's own comparisons, as the overall success rate is.
    success_rate: float


@dataclass(frozen=True, slots=True)
class Rated:
    """One judged memory that a person was asked about."""

    session_key: str
    memory_id: str
    judge_label: float
    offered_at: datetime
    human_label: float | None = None
    rated_at: datetime | None = None


@dataclass(frozen=True, slots=True, eq=False)
class TaughtSession:
    """A judged session as it was served, to learn from; arrays with one entry per candidate."""

    key: str
    started_at: datetime
    project: str | None
    context: str
    embedder: str | None
    context_vector: NDArray[np.float32] | None
    memory_ids: tuple[str, ...]
    features: NDArray[np.float64]
    # NaN where nobody said how much it helped.
    labels: NDArray[np.float64]
    rules: tuple[str, ...]
    was_injected: NDArray[np.bool_]
    baseline_ranks: NDArray[np.int64]
    # 0 where the predictor was silent.
    predictor_ranks: NDArray[np.int64]
    is_canary: bool
