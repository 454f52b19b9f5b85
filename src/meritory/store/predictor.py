"""The contract of the predictor's records: comparisons, trainings, canaries and calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from meritory.rank.influence import TIE, Margins

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


class PredictorVerbs(Protocol):
    """What a transaction can do with the predictor's records."""

    def set_predictor_state(self, user: str, state: str) -> None:
        """Keeps the state in place of the former one."""

    def predictor_state_of(self, user: str) -> str | None:
        """The state as this transaction sees it."""

    def put_comparison(self, user: str, comparison: Comparison) -> None:
        """Records a comparison in place of an earlier one of the same session."""

    def add_training_run(self, user: str, run: TrainingRun) -> None:
        """Adds to the log of trainings."""

    def choose_canary(self, user: str, key: str, at: datetime, limit: int) -> None:
        """Keeps a session out of training; above the limit the oldest one is retired."""

    def drop_canary(self, user: str, key: str) -> None:
        """Takes a session that no longer counts off the canary set."""

    def offer_calibration(self, user: str, items: Sequence[Rated]) -> None:
        """Asks for a person's word on these, once each."""

    def rate_calibration(self, user: str, rated: Rated) -> None:
        """Keeps a person's word; NotFound for what was not offered."""


class PredictorReads(Protocol):
    """What can be asked about the predictor."""

    def predictor_state(self, user: str) -> str | None:
        """The state, as it was set last."""

    def comparisons(self, user: str, query: ComparisonQuery) -> list[Comparison]:
        """Comparisons that match, latest first."""

    def comparison(self, user: str, key: str) -> Comparison | None:
        """The comparison of one session; None before there is one."""

    def record(self, user: str, scorer: str, limit: int) -> Margins:
        """What every alpha would have gained in the latest sessions that count, oldest first.

        Only those that a scorer of this kind served: another one proves nothing for it.
        """

    def slices(self, user: str, limit: int) -> list[Slice]:
        """Return the success rate of each project, those with the most sessions first."""

    def entity_slices(self, user: str, limit: int) -> list[EntitySlice]:
        """Success by entity that what helped was about, those with the most sessions first."""

    def training_runs(self, user: str, limit: int) -> list[TrainingRun]:
        """Trainings, latest first."""

    def canary_count(self, user: str) -> int:
        """How many sessions are kept out of training."""

    def taught_sessions(self, user: str, feature_version: int, limit: int) -> list[TaughtSession]:
        """The latest judged sessions that count and were recorded alike, oldest first."""

    def calibration(self, user: str, limit: int) -> list[Rated]:
        """What people were asked, latest first, with what they said."""
