"""The figures of one replay, session by session."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bench.streams_kept import Kept
from bench.streams_regimes import Control, Regime
from bench.streams_rows import BASELINE, PREDICTOR, SERVED, SERVED_BASELINE, TEXT

QUARTERS = 4
# A label of at least this means "helped".
HELPED_LABEL = 0.4
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class LabelCount:
    """The candidates of one session by label and truth."""

    helped_and_used: int
    helped: int
    used: int

    @classmethod
    def of(cls, labels: Mapping[str, float], used: Collection[str]) -> LabelCount:
        """Count labels on record against the candidates that were truly used."""
        helped = {one for one, label in labels.items() if label >= HELPED_LABEL - _ROUNDING}
        return cls(len(helped & set(used)), len(helped), len(used))


@dataclass(slots=True)
class Outcome:
    """The figures of one run; NaN for a session that used no known memory."""

    name: str
    seed: int = 0
    pool_recall: list[float] = field(default_factory=list)
    ndcg: dict[str, list[float]] = field(default_factory=dict)
    # As served, and the version of the model that scored.
    alpha: list[float] = field(default_factory=list)
    version: list[int] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    regime: Regime = "complete"
    control: Control | None = None
    label_counts: list[LabelCount] = field(default_factory=list)

    def mean(self, method: str, part: slice = slice(None)) -> float:
        """Return the mean over the sessions of a part that used something."""
        return float(np.nanmean(self.ndcg[method][part]))

    @property
    def second_half(self) -> slice:
        """The later sessions."""
        return slice(len(self.pool_recall) // 2, None)

    def ratio(self, method: str) -> float:
        """Return the ratio of a ranking to the baseline in the second half."""
        half = self.second_half
        return self.mean(method, half) / self.mean(BASELINE, half)

    def quarters(self, method: str) -> list[float]:
        """Return the mean in each quarter of the stream."""
        parts = np.array_split(np.array(self.ndcg[method]), QUARTERS)
        return [float(np.nanmean(part)) for part in parts if np.isfinite(part).any()]

    @property
    def first_influence(self) -> int | None:
        """The number of sessions before the first one in which the model had weight."""
        return next((place for place, alpha in enumerate(self.alpha) if alpha < 1.0), None)

    @property
    def win_rate(self) -> float:
        """The share of sessions that the model ranked better; a tie counts half."""
        margins = np.array(self.ndcg[PREDICTOR]) - np.array(self.ndcg[BASELINE])
        margins = margins[np.isfinite(margins)]
        return float(np.mean(np.where(np.abs(margins) < 1e-6, 0.5, margins > 0.0)))

    @property
    def harm(self) -> float:
        """The NDCG@10 lost to the model: the same run's baseline as served, less served."""
        return self.mean(SERVED_BASELINE) - self.mean(SERVED)

    @property
    def text_margin(self) -> float:
        """How far served is above plain text."""
        return self.mean(SERVED) - self.mean(TEXT)

    @property
    def label_precision(self) -> float:
        """The share of "helped" labels that are true; NaN without such a label."""
        return _share(
            [one.helped_and_used for one in self.label_counts],
            [one.helped for one in self.label_counts],
        )

    @property
    def label_recall(self) -> float:
        """The share of truly used candidates that are labelled "helped"."""
        return _share(
            [one.helped_and_used for one in self.label_counts],
            [one.used for one in self.label_counts],
        )


def _share(part: Sequence[int], whole: Sequence[int]) -> float:
    return sum(part) / sum(whole) if sum(whole) else float("nan")
