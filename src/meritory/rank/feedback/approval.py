"""How much of the feedback is approval, over all of it and lately, and where it is heading."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from meritory.rank.feedback.risk import interval

Trend = Literal["improving", "degrading", "steady", "unknown"]
TREND_MARGIN: Final = 0.05
LATEST_COUNT: Final = 20
WEEK_DAYS, MONTH_DAYS = 7, 30
# With fewer reports in the week a trend would be a single mood.
TREND_REPORTS_MIN: Final = 5


@dataclass(frozen=True, slots=True)
class Approval:
    """The share of positives among reports, with its interval; None without any."""

    positive: int
    negative: int
    rate: float | None
    low: float
    high: float


def approval(positive: int, negative: int) -> Approval:
    """The share of positives."""
    total = positive + negative
    low, high = interval(positive, total)
    rate = round(positive / total, 6) if total else None
    return Approval(positive, negative, rate, round(low, 6), round(high, 6))


def trend(week: Approval, month: Approval) -> Trend:
    """Whether the last week is better or worse than the last month."""
    if week.rate is None or month.rate is None or _count(week) < TREND_REPORTS_MIN:
        return "unknown"
    gap = week.rate - month.rate
    if abs(gap) <= TREND_MARGIN:
        return "steady"
    return "improving" if gap > 0 else "degrading"


def _count(one: Approval) -> int:
    return one.positive + one.negative
