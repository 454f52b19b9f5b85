"""The non-regression gate: compares two runs on the same questions by a paired bootstrap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

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

Floats = NDArray[np.float64]


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
    verdict = _verdict(int(found.size), low, high, margin)
    return Paired(float(found.mean()), low, high, int(found.size), margin, verdict)


def overall(verdicts: list[Verdict]) -> Verdict:
    """Return one verdict of several: any failure fails, and all must pass."""
    if FAIL in verdicts:
        return FAIL
    return PASS if verdicts and set(verdicts) == {PASS} else UNDECIDED


def interval(values: ArrayLike) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the mean of finite values."""
    sample = np.asarray(values, dtype=np.float64).ravel()
    sample = sample[np.isfinite(sample)]
    if not sample.size:
        return float("nan"), float("nan")
    block = max(1, _BLOCK_CELLS // sample.size)
    means = np.concatenate(
        [
            sample[_draws(start, min(block, RESAMPLES - start), sample.size)].mean(axis=1)
            for start in range(0, RESAMPLES, block)
        ]
    )
    tail = (1.0 - LEVEL) / 2.0
    low, high = np.quantile(means, [tail, 1.0 - tail])
    return float(low), float(high)


def _verdict(count: int, low: float, high: float, margin: float) -> Verdict:
    if count < MIN_PAIRS:
        return UNDECIDED
    if low >= -margin:
        return PASS
    return FAIL if high < -margin else UNDECIDED


def _draws(start: int, rows: int, size: int) -> NDArray[np.int64]:
    """Return pseudo-random indices from a mixed counter (splitmix64), the same in every run."""
    first, last = start * size, (start + rows) * size
    mixed = (np.arange(first, last, dtype=np.uint64) + np.uint64(1)) * _WEYL
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX_ONE
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX_TWO
    mixed ^= mixed >> np.uint64(31)
    return (mixed % np.uint64(size)).astype(np.int64).reshape(rows, size)
