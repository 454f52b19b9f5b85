"""The predictor: its state, comparisons, training runs, canaries and calibration."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from meritory.domain.predictor import (
    Comparison,
    ComparisonQuery,
    EntitySlice,
    Rated,
    Slice,
    TaughtSession,
    TrainingRun,
)
from meritory.rank.influence import Margins


class PredictorReads(Protocol):
    """Reads of the predictor's records."""

    def predictor_state(self, user: str) -> str | None:
        """Return the encoded state; None before it was set."""

    def comparisons(self, user: str, query: ComparisonQuery) -> list[Comparison]:
        """Return the comparisons that match, latest first."""

    def comparison(self, user: str, key: str) -> Comparison | None:
        """Return the comparison of one session; None before there is one."""

    def record(self, user: str, scorer: str, limit: int) -> Margins:
        """Return the gain of every alpha in the latest sessions that count, oldest first.

        Only sessions that this scorer served: another one proves nothing for it.
        """

    def slices(self, user: str, limit: int) -> list[Slice]:
        """Return the success rate of each project, those with the most sessions first."""

    def entity_slices(self, user: str, limit: int) -> list[EntitySlice]:
        """Return the success rate of each entity, those with the most sessions first."""

    def training_runs(self, user: str, limit: int) -> list[TrainingRun]:
        """Return the training runs, latest first."""

    def canary_count(self, user: str) -> int:
        """Return how many sessions are kept out of training."""

    def taught_sessions(self, user: str, feature_version: int, limit: int) -> list[TaughtSession]:
        """Return the latest judged sessions that count, oldest first."""

    def calibration(self, user: str, limit: int) -> list[Rated]:
        """Return the calibration sample with the ratings of people, latest first."""


class PredictorWrites(Protocol):
    """Changes of the predictor's records."""

    def predictor_state(self, user: str) -> str | None:
        """Return the encoded state; None before it was set."""

    def set_predictor_state(self, user: str, state: str) -> None:
        """Store the state in place of the former one."""

    def put_comparison(self, user: str, comparison: Comparison) -> None:
        """Store a comparison in place of an earlier one of its session."""

    def add_training_run(self, user: str, run: TrainingRun) -> None:
        """Add to the log of training runs."""

    def choose_canary(self, user: str, key: str, at: datetime, limit: int) -> None:
        """Keep a session out of training; above the limit retire the oldest one."""

    def drop_canary(self, user: str, key: str) -> None:
        """Remove a session that no longer counts from the canaries."""

    def offer_calibration(self, user: str, items: Sequence[Rated]) -> None:
        """Add memories to the calibration sample, once each."""

    def rate_calibration(self, user: str, rated: Rated) -> None:
        """Store the rating of a person; raise NotFound for a memory outside the sample."""
