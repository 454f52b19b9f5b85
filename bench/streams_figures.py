"""The figures of one stream over all seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.streams_outcome import QUARTERS, Outcome
from bench.streams_regimes import Control, Regime
from bench.streams_rows import BASELINE, MIX, PREDICTOR, SEED_FUSION, SERVED, TEXT
from meritory.rank.metrics import Interval, bootstrap_interval, paired_bootstrap

# The differences that are reported with an interval.
LEADS = ((SERVED, TEXT), (SERVED, BASELINE), (PREDICTOR, BASELINE))
SEED = 20261115


@dataclass(frozen=True, slots=True)
class Figures:
    """Means over the seeds; the worst seed where no single run may fail."""

    outcomes: Sequence[Outcome]

    @property
    def name(self) -> str:
        """The name of the stream."""
        return self.outcomes[0].name

    @property
    def regime(self) -> Regime:
        """The evidence that the library received."""
        return self.outcomes[0].regime

    @property
    def control(self) -> Control | None:
        """The control, None for a run with true evidence."""
        return self.outcomes[0].control

    @property
    def session_count(self) -> int:
        """The number of sessions in each run."""
        return len(self.outcomes[0].pool_recall)

    @property
    def pool_recall(self) -> float:
        """The share of used memories that were among the candidates."""
        return self._mean(lambda one: float(np.nanmean(one.pool_recall)))

    @property
    def label_precision(self) -> float:
        """The share of "helped" labels that are true."""
        return self._mean(lambda one: one.label_precision)

    @property
    def label_recall(self) -> float:
        """The share of truly used candidates that are labelled "helped"."""
        return self._mean(lambda one: one.label_recall)

    @property
    def seed_ratio(self) -> float:
        """The ratio of the model alone to seed 001's fusion."""
        return self._mean(lambda one: one.mean(PREDICTOR) / one.mean(SEED_FUSION))

    @property
    def first_influence(self) -> int | None:
        """The latest first session with weight over the seeds; None when a seed has none."""
        found = [one.first_influence for one in self.outcomes]
        known = [one for one in found if one is not None]
        return max(known) if len(known) == len(found) else None

    @property
    def has_influence(self) -> bool:
        """Whether the model had weight in any session of any seed."""
        return any(one.first_influence is not None for one in self.outcomes)

    @property
    def worst_quarter(self) -> float:
        """The lowest upper bound of served - baseline over quarters and seeds."""
        return min(bound for one in self.outcomes for bound in quarter_bounds(one))

    @property
    def harms(self) -> list[float]:
        """The NDCG@10 lost to the model in each run."""
        return [one.harm for one in self.outcomes]

    @property
    def text_margins(self) -> list[float]:
        """Served - text in each run."""
        return [one.text_margin for one in self.outcomes]

    def mean(self, method: str) -> float:
        """Return the mean of a ranking over all sessions."""
        return self._mean(lambda one: one.mean(method))

    def later(self, method: str) -> float:
        """Return the mean of a ranking over the second half."""
        return self._mean(lambda one: one.mean(method, one.second_half))

    def ratio(self, method: str) -> float:
        """Return the ratio of a ranking to the baseline in the second half."""
        return self._mean(lambda one: one.ratio(method))

    def quarters(self, method: str) -> list[float]:
        """Return the mean of a ranking in each quarter."""
        found = np.mean([one.quarters(method) for one in self.outcomes], axis=0)
        return [float(value) for value in found]

    def lead(self, ours: str, theirs: str) -> Interval:
        """Return the mean difference of two rankings with its 95 % interval over sessions."""
        rng = np.random.default_rng(SEED)
        return paired_bootstrap(self._by_session(ours), self._by_session(theirs), rng)

    def interval(self, method: str) -> Interval:
        """Return the mean of a ranking with its 95 % interval over sessions."""
        return bootstrap_interval(self._by_session(method), np.random.default_rng(SEED))

    def line(self) -> str:
        """Return the main figures in one line."""
        return (
            f"{self.name:18s} {self.regime}: served {self.mean(SERVED):.3f}, "
            f"text {self.mean(TEXT):.3f}, baseline {self.mean(BASELINE):.3f}, "
            f"mix {self.mean(MIX):.3f}; second half x baseline: predictor "
            f"{self.ratio(PREDICTOR):.3f}, served {self.ratio(SERVED):.3f}; helped labels: "
            f"precision {self.label_precision:.2f}, recall {self.label_recall:.2f}; "
            f"active from {self.first_influence}; pool {self.pool_recall:.3f}"
        )

    def _mean(self, figure: Callable[[Outcome], float]) -> float:
        return float(np.mean([figure(one) for one in self.outcomes]))

    def _by_session(self, method: str) -> NDArray[np.float64]:
        """Return the mean over the seeds for each session; all seeds share the sessions."""
        return np.asarray(np.mean([one.ndcg[method] for one in self.outcomes], axis=0))


def quarter_bounds(outcome: Outcome) -> list[float]:
    """Return by quarter the upper bound of served - baseline, one-sided at 95 %."""
    rng = np.random.default_rng(SEED)
    margins = np.array(outcome.ndcg[SERVED]) - np.array(outcome.ndcg[BASELINE])
    parts = np.array_split(margins, QUARTERS)
    return [bootstrap_interval(part, rng, level=0.90).high for part in parts]
