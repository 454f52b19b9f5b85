"""Ranking quality (NDCG), metrics of probes, and bootstrap intervals.

`compare` is the non-regression gate: it compares two runs on the same questions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Verdict = Literal["pass", "fail", "not enough data"]
PASS: Final[Verdict] = "pass"  # noqa: S105 - a verdict, not a password
FAIL: Final[Verdict] = "fail"
UNDECIDED: Final[Verdict] = "not enough data"

MARGIN: Final = 0.02
# Fewer pairs are not enough evidence.
MIN_PAIRS: Final = 20
RESAMPLES: Final = 2_000
LEVEL: Final = 0.95
# A block of resamples is drawn at once; this bounds its memory to about 32 MB.
_BLOCK_CELLS: Final = 4_000_000
_WEYL, _MIX_ONE, _MIX_TWO = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xBF58476D1CE4E5B9),
    np.uint64(0x94D049BB133111EB),
)


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its bootstrap interval."""

    mean: float
    low: float
    high: float
    count: int

    @property
    def excludes_zero(self) -> bool:
        """Return whether zero is outside the interval; an empty sample never excludes it."""
        return self.low > 0.0 or self.high < 0.0


def dcg(labels: ArrayLike) -> float:
    """Return the discounted gain of labels in ranked order, gain / log2(place + 2) from place 0."""
    gains = _gains(labels)
    return float(gains @ (1.0 / np.log2(np.arange(gains.size, dtype=np.float64) + 2.0)))


def ndcg_at(ranking: Sequence[Hashable], labels: Mapping[Hashable, float], k: int) -> float | None:
    """Return the NDCG of the first k ranks, or None when no label is positive.

    The gain is max(0, label). A missing label, or one that is not finite, counts as 0. An item
    ranked twice counts at its first rank only.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    items = list(labels)
    values = _gains([labels[item] for item in items])
    # Only ratios matter, and a sum of huge labels would overflow.
    gains = dict(zip(items, values / (values.max(initial=0.0) or 1.0), strict=True))
    ideal = dcg(sorted(gains.values(), reverse=True)[:k])
    if ideal <= 0.0:
        return None
    top = list(dict.fromkeys(ranking))[:k]
    return min(1.0, dcg([gains.get(item, 0.0) for item in top]) / ideal)


def bootstrap_interval(
    values: ArrayLike,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
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

    def draw(_: int, rows: int) -> NDArray[np.int64]:
        return rng.integers(sample.size, size=(rows, sample.size))

    low, high = _percentiles(sample, draw, resamples, level)
    return Interval(float(sample.mean()), low, high, int(sample.size))


def paired_bootstrap(
    ours: ArrayLike,
    theirs: ArrayLike,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> Interval:
    """Return the interval of the mean difference ours - theirs over the same queries."""
    left = np.asarray(ours, dtype=np.float64).ravel()
    right = np.asarray(theirs, dtype=np.float64).ravel()
    if left.size != right.size:
        raise ValueError(f"paired samples differ in size: {left.size} and {right.size}")
    return bootstrap_interval(left - right, rng, resamples)


def _gains(labels: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(labels, dtype=np.float64).ravel()
    return np.where(np.isfinite(values) & (values > 0.0), values, 0.0)


DEPTH: Final = 10
METRICS: Final = ("p@1", "p@3", "p@5", "mrr", "in_prompt")
_DEPTHS: Final = {"p@1": 1, "p@3": 3, "p@5": 5}


@dataclass(frozen=True, slots=True)
class ProbeHit:
    """The result of one probe: the rank of its target, and whether the target was shown.

    `rank` is None when the target is not among the first DEPTH; `in_prompt` is None when unchecked.
    """

    rank: int | None
    in_prompt: bool | None = None
    took_ms: float = 0.0
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean with its interval."""

    mean: float
    low: float
    high: float


def values(hits: Sequence[ProbeHit], metric: str) -> Floats:
    """Return the value of a metric for each probe; NaN if it was not checked."""
    if metric == "mrr":
        return np.array([0.0 if hit.rank is None else 1.0 / hit.rank for hit in hits], np.float64)
    if metric == "in_prompt":
        seen = [np.nan if hit.in_prompt is None else float(hit.in_prompt) for hit in hits]
        return np.array(seen, np.float64)
    depth = _DEPTHS[metric]
    found = [hit.rank is not None and hit.rank <= depth for hit in hits]
    return np.array(found, np.float64)


def figures(hits: Sequence[ProbeHit]) -> dict[str, Figure]:
    """Return every measured metric with its bootstrap interval."""
    found: dict[str, Figure] = {}
    for metric in METRICS:
        each = values(hits, metric)
        each = each[np.isfinite(each)]
        if each.size:
            found[metric] = Figure(float(each.mean()), *interval(each))
    return found


def latency_ms(hits: Sequence[ProbeHit]) -> dict[str, float]:
    """Return the median and the 95th percentile of the answer times."""
    if not hits:
        return {}
    p50, p95 = np.quantile([hit.took_ms for hit in hits], [0.5, 0.95])
    return {"p50": float(p50), "p95": float(p95)}


def by_tag(hits: Sequence[ProbeHit]) -> dict[str, list[ProbeHit]]:
    """Return the hits of each tag, sorted by tag."""
    found: dict[str, list[ProbeHit]] = {}
    for hit in hits:
        for tag in hit.tags:
            found.setdefault(tag, []).append(hit)
    return dict(sorted(found.items()))


def front(rows: Sequence[Mapping[str, float]], metrics: Iterable[str]) -> list[int]:
    """Return the indices of the rows on the Pareto front: no other row dominates them."""
    names = [name for name in metrics if all(name in row for row in rows)]
    table = np.array([[row[name] for name in names] for row in rows], np.float64)
    if not table.size:
        return []
    dominated = (((table >= row).all(axis=1) & (table > row).any(axis=1)).any() for row in table)
    return [index for index, is_dominated in enumerate(dominated) if not is_dominated]


@dataclass(frozen=True, slots=True)
class Paired:
    """The mean difference after - before with its interval, and the verdict."""

    mean: float
    low: float
    high: float
    count: int
    margin: float
    verdict: Verdict


def compare(before: ArrayLike, after: ArrayLike, margin: float = MARGIN) -> Paired:
    """Compare `after` with `before` on the same questions, pair by pair.

    pass: the whole interval of the mean difference lies at or above -margin. fail: all of it lies
    below -margin. Otherwise, and on fewer than MIN_PAIRS pairs, there is not enough data. Pairs
    with a value that is not finite are left out. The same input always gives the same verdict.
    """
    if not (np.isfinite(margin) and margin >= 0.0):
        raise ValueError(f"the margin must be a number of at least 0, not {margin}")
    left = np.asarray(before, dtype=np.float64).ravel()
    right = np.asarray(after, dtype=np.float64).ravel()
    if left.size != right.size:
        raise ValueError(f"paired samples differ in size: {left.size} and {right.size}")
    found = right - left
    found = found[np.isfinite(found)]
    if not found.size:
        nothing = float("nan")
        return Paired(nothing, nothing, nothing, 0, margin, UNDECIDED)
    low, high = interval(found)
    verdict = UNDECIDED
    if found.size >= MIN_PAIRS and (low >= -margin or high < -margin):
        verdict = PASS if low >= -margin else FAIL
    return Paired(float(found.mean()), low, high, int(found.size), margin, verdict)


def overall(verdicts: list[Verdict]) -> Verdict:
    """Return one verdict of several: any failure fails, and all must pass."""
    if FAIL in verdicts:
        return FAIL
    return PASS if verdicts and set(verdicts) == {PASS} else UNDECIDED


def interval(values: ArrayLike) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the mean of finite values.

    It draws from a mixed counter (splitmix64), so that it is the same in every run.
    """
    sample = np.asarray(values, dtype=np.float64).ravel()
    sample = sample[np.isfinite(sample)]
    if not sample.size:
        return float("nan"), float("nan")

    def draw(start: int, rows: int) -> NDArray[np.int64]:
        first, last = start * sample.size, (start + rows) * sample.size
        mixed = (np.arange(first, last, dtype=np.uint64) + np.uint64(1)) * _WEYL
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX_ONE
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX_TWO
        mixed ^= mixed >> np.uint64(31)
        return (mixed % np.uint64(sample.size)).astype(np.int64).reshape(rows, sample.size)

    return _percentiles(sample, draw, RESAMPLES, LEVEL)


def _percentiles(
    sample: Floats, draw: Callable[[int, int], NDArray[np.int64]], resamples: int, level: float
) -> tuple[float, float]:
    """Return the bounds of the resampled means; `draw` gives the indices of some resamples."""
    block = max(1, _BLOCK_CELLS // sample.size)
    means = np.concatenate(
        [
            sample[draw(start, min(block, resamples - start))].mean(axis=1)
            for start in range(0, resamples, block)
        ]
    )
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(means, [tail, 1.0 - tail])
    return float(low), float(high)
