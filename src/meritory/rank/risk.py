"""What fails more often than the rest, with how sure that is: rates with Wilson intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

Facet = Literal["tag", "tool", "domain"]
Level = Literal["higher", "lower", "unclear"]
# The two-sided 95% point of the normal distribution.
Z_95: Final = 1.959963984540054
# Below so many reports nothing is said: their interval is nearly everything.
REPORTS_MIN: Final = 3


@dataclass(frozen=True, slots=True)
class RiskTally:
    """How many reports were positive and negative where something was in play."""

    facet: Facet
    name: str
    positive: int
    negative: int


@dataclass(frozen=True, slots=True)
class Risk:
    """How often it fails there, and whether that is more often than elsewhere."""

    facet: Facet
    name: str
    total: int
    negative: int
    rate: float
    low: float
    high: float
    base_rate: float
    level: Level


def interval(negative: int, total: int, z: float = Z_95) -> tuple[float, float]:
    """The Wilson interval of a rate; everything is possible without a report."""
    if total <= 0:
        return 0.0, 1.0
    rate = negative / total
    width = z * math.sqrt(rate * (1 - rate) / total + z * z / (4 * total * total))
    centre, scale = rate + z * z / (2 * total), 1 + z * z / total
    low = 0.0 if negative == 0 else max(0.0, (centre - width) / scale)
    high = 1.0 if negative == total else min(1.0, (centre + width) / scale)
    return low, high


def risks(tallies: Iterable[RiskTally], positive: int, negative: int) -> list[Risk]:
    """Every facet with enough reports against the rate of all, what surely fails more first."""
    base = negative / (positive + negative) if positive + negative else 0.0
    found = [_risk(one, base) for one in tallies if one.positive + one.negative >= REPORTS_MIN]
    order = {"higher": 0, "unclear": 1, "lower": 2}
    return sorted(found, key=lambda one: (order[one.level], -one.low, -one.total, one.name))


def _risk(tally: RiskTally, base: float) -> Risk:
    total = tally.positive + tally.negative
    low, high = interval(tally.negative, total)
    level: Level = "higher" if low > base else "lower" if high < base else "unclear"
    return Risk(
        tally.facet,
        tally.name,
        total,
        tally.negative,
        round(tally.negative / total, 6),
        round(low, 6),
        round(high, 6),
        round(base, 6),
        level,
    )
