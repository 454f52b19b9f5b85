"""Ranking quality: NDCG, recall, reciprocal rank and bootstrap intervals."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

DEFAULT_RESAMPLES = 2000
# A block of resamples is drawn at once; this bounds its memory to about 32 MB.
_BLOCK_CELLS = 4_000_000


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with the interval its bootstrap resamples fall into."""

    mean: float
    low: float
    high: float
    count: int

    @property
    def excludes_zero(self) -> bool:
        """Say whether zero lies outside the interval; an empty sample never excludes it."""
        return self.low > 0.0 or self.high < 0.0


def dcg(labels: ArrayLike) -> float:
    """Return the discounted gain of labels in ranked order, gain / log2(place + 2) from place 0."""
    gains = _gains(labels)
    return float(gains @ _discounts(gains.size))


def ndcg_at(ranking: Sequence[Hashable], labels: Mapping[Hashable, float], k: int) -> float | None:
    """Return the NDCG of the first k places, or None when no label is positive.

    Gain is max(0, label), a label that is not finite counts as 0, an item without a label too;
    an item ranked twice counts at its first place only.
    """
    _check_k(k)
    known = list(labels)
    values = _gains([labels[item] for item in known])
    # Only relations matter here, and a sum of huge labels would overflow.
    gains = dict(zip(known, values / (values.max(initial=0.0) or 1.0), strict=True))
    ideal = dcg(sorted(gains.values(), reverse=True)[:k])
    if ideal <= 0.0:
        return None
    top = list(dict.fromkeys(ranking))[:k]
    return min(1.0, dcg([gains.get(item, 0.0) for item in top]) / ideal)


def recall_at(ranking: Sequence[Hashable], relevant: Collection[Hashable], k: int) -> float | None:
    """Return the share of the relevant items in the first k places, None when there are none."""
    _check_k(k)
    wanted = set(relevant)
    if not wanted:
        return None
    return len(wanted.intersection(list(dict.fromkeys(ranking))[:k])) / len(wanted)


def any_at(ranking: Sequence[Hashable], relevant: Collection[Hashable], k: int) -> float | None:
    """Return 1 when a relevant item is in the first k places, else 0, None when there are none."""
    share = recall_at(ranking, relevant, k)
    return None if share is None else float(share > 0.0)


def mrr(ranking: Sequence[Hashable], relevant: Collection[Hashable]) -> float | None:
    """Return 1 / place of the first relevant item, 0 when it is not ranked, None without any."""
    wanted = set(relevant)
    if not wanted:
        return None
    for place, item in enumerate(dict.fromkeys(ranking), start=1):
        if item in wanted:
            return 1.0 / place
    return 0.0


def bootstrap_interval(
    values: ArrayLike,
    rng: np.random.Generator,
    resamples: int = DEFAULT_RESAMPLES,
    level: float = 0.95,
) -> Interval:
    """Return the mean of the finite values with its percentile bootstrap interval.

    Without a finite value mean and bounds are NaN.
    """
    if resamples < 1 or not 0.0 < level < 1.0:
        raise ValueError("resamples must be at least 1 and level between 0 and 1")
    sample = np.asarray(values, dtype=np.float64).ravel()
    sample = sample[np.isfinite(sample)]
    if sample.size == 0:
        return Interval(float("nan"), float("nan"), float("nan"), 0)
    block = max(1, _BLOCK_CELLS // sample.size)
    means = np.concatenate(
        [
            sample[
                rng.integers(sample.size, size=(min(block, resamples - start), sample.size))
            ].mean(axis=1)
            for start in range(0, resamples, block)
        ]
    )
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(means, [tail, 1.0 - tail])
    return Interval(float(sample.mean()), float(low), float(high), int(sample.size))


def paired_bootstrap(
    ours: ArrayLike,
    theirs: ArrayLike,
    rng: np.random.Generator,
    resamples: int = DEFAULT_RESAMPLES,
) -> Interval:
    """Return the interval of the mean difference ours - theirs over the same queries."""
    left = np.asarray(ours, dtype=np.float64).ravel()
    right = np.asarray(theirs, dtype=np.float64).ravel()
    if left.size != right.size:
        raise ValueError(f"paired samples differ in size: {left.size} and {right.size}")
    return bootstrap_interval(left - right, rng, resamples)


def _check_k(k: int) -> None:
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k}")


def _gains(labels: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(labels, dtype=np.float64).ravel()
    return np.where(np.isfinite(values) & (values > 0.0), values, 0.0)


def _discounts(count: int) -> NDArray[np.float64]:
    return np.asarray(1.0 / np.log2(np.arange(count, dtype=np.float64) + 2.0))
