"""The rule by which a default is kept or changed, stated before anything is measured.

Of the values that lose no more than the margin on any measure of any data set's tuning half, the
one with the best mean over them is the candidate. On the reporting half it must gain beyond its
interval somewhere, and lose more than the margin nowhere: one measure whose interval reaches below
-margin is enough to keep what is shipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from meritory.rank.metrics import MARGIN, PASS, Paired, compare

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
# Differences of means below this are rounding.
_TINY = 1e-9


@dataclass(frozen=True, slots=True)
class Sweep:
    """One default, the values tried for it, and the shipped one among them."""

    name: str
    shipped: float
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.shipped not in self.values:
            raise ValueError(f"{self.name}: the shipped {self.shipped} is not among the values")


@dataclass(frozen=True, slots=True)
class Table:
    """One data set: values by setting, question and measure; NaN where a measure does not apply."""

    measures: tuple[str, ...]
    values: Floats
    is_tuning: Flags

    def means(self, tuning: bool) -> Floats:
        """The mean of each measure over one half, by setting."""
        return np.asarray(np.nanmean(self.values[:, self.is_tuning == tuning], axis=1))

    def compared(self, measure: int, pair: tuple[int, int], tuning: bool) -> Paired:
        """What the second setting gains over the first on one half."""
        half = self.values[:, self.is_tuning == tuning, measure]
        return compare(half[pair[0]], half[pair[1]], MARGIN)


@dataclass(frozen=True, slots=True)
class Row:
    """One measure on one data set: what is shipped, the candidate and their difference."""

    data: str
    measure: str
    shipped: float
    candidate: float
    tuned: Paired
    reported: Paired

    @property
    def has_gained(self) -> bool:
        """Whether both halves gain, the reporting one beyond its interval."""
        return self.tuned.mean > 0.0 and self.reported.low > 0.0


@dataclass(frozen=True, slots=True)
class Decision:
    """What the rule says about one default."""

    sweep: Sweep
    candidate: float
    verdict: Literal["keep", "change"]
    reason: str
    rows: tuple[Row, ...]


def decide(sweep: Sweep, tables: Mapping[str, Table]) -> Decision:
    """Chooses on the tuning half and judges on the other."""
    best = candidate(sweep, tables)
    value = sweep.values[best]
    pair = (sweep.values.index(sweep.shipped), best)
    rows = tuple(row for name, table in tables.items() for row in _rows(name, table, pair))
    if value == sweep.shipped:
        return Decision(sweep, value, "keep", "the shipped value is the best one tried", rows)
    verdict, reason = _judged(rows)
    return Decision(sweep, value, verdict, reason, rows)


def candidate(sweep: Sweep, tables: Mapping[str, Table]) -> int:
    """The place of the best value on the tuning half, the shipped one's if none is better."""
    shipped = sweep.values.index(sweep.shipped)
    means = [table.means(True) for table in tables.values()]
    worst = np.min([(one - one[shipped]).min(axis=1) for one in means], axis=0)
    merit = np.mean([one.mean(axis=1) for one in means], axis=0)
    merit[worst < -MARGIN] = -np.inf
    best = int(np.argmax(merit))
    return best if merit[best] > merit[shipped] + _TINY else shipped


def _rows(name: str, table: Table, pair: tuple[int, int]) -> list[Row]:
    means = table.means(False)
    return [
        Row(
            data=name,
            measure=measure,
            shipped=float(means[pair[0], place]),
            candidate=float(means[pair[1], place]),
            tuned=table.compared(place, pair, True),
            reported=table.compared(place, pair, False),
        )
        for place, measure in enumerate(table.measures)
    ]


def _judged(rows: Sequence[Row]) -> tuple[Literal["keep", "change"], str]:
    lost = [f"{row.data} {row.measure}" for row in rows if row.reported.verdict != PASS]
    gained = [f"{row.data} {row.measure}" for row in rows if row.has_gained]
    if lost:
        return "keep", f"may lose more than {MARGIN} on {', '.join(lost)}"
    if not gained:
        return "keep", "no gain outlives the reporting half"
    return "change", f"gains on {', '.join(gained)} and loses nowhere"
