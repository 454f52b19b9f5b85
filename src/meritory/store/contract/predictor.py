"""The contract of the predictor's records: comparisons, trainings, canaries and calibration."""

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


class PredictorVerbs(Protocol):
    """What a transaction can do with the predictor's records."""

    def set_predictor_state(self, user: str, state: str) -> None:
        """Keeps the state in place of the former one."""

    def predictor_state(self, user: str) -> str | None:
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
