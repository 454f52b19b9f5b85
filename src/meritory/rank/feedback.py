"""How much a report gives to work with, by plain rules: shown to people, never a gate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from meritory.rank.risk import interval

WEIGHTS: Final = {
    "is_actionable": 0.30,
    "has_context": 0.15,
    "has_advice": 0.15,
    "has_action": 0.15,
    "has_rubric": 0.15,
    "has_tags": 0.10,
}


@dataclass(frozen=True, slots=True)
class QualityFacts:
    """What is known about a report."""

    is_actionable: bool
    has_context: bool
    # What to change after a mistake; why it worked after a success.
    has_advice: bool
    has_action: bool
    has_rubric: bool
    has_tags: bool


def quality(facts: QualityFacts) -> float:
    """The sum of the weights of all that holds, 0 to 1."""
    return round(sum((w for name, w in WEIGHTS.items() if getattr(facts, name)), 0.0), 6)


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


# Below this two reports have too little in common to be answers to one question.
OVERLAP_MIN: Final = 0.2
_TAG_SHARE: Final = 0.5


@dataclass(frozen=True, slots=True)
class FeedbackText:
    """One report as far as pairing needs it."""

    id: str
    prompt: str
    text: str
    # What to do instead, when the report itself says so.
    better: str
    words: frozenset[str]
    tags: frozenset[str]


@dataclass(frozen=True, slots=True)
class Pair:
    """One prompt with the answer to prefer and the one to avoid."""

    prompt: str
    chosen: str
    rejected: str
    negative_id: str
    # None when the negative itself says what would have been right.
    positive_id: str | None
    overlap: float


def pairs(negatives: Sequence[FeedbackText], positives: Sequence[FeedbackText]) -> list[Pair]:
    """Each negative with its own correction, else with the unused positive nearest to it."""
    own = [
        Pair(one.prompt, one.better, one.text, one.id, None, 1.0) for one in negatives if one.better
    ]
    open_ones = [one for one in negatives if not one.better]
    scored = sorted(
        (
            (score, bad, good)
            for bad, negative in enumerate(open_ones)
            for good, positive in enumerate(positives)
            if (score := overlap(negative, positive)) >= OVERLAP_MIN
        ),
        key=lambda found: (-found[0], found[1], found[2]),
    )
    used_bad: set[int] = set()
    used_good: set[int] = set()
    matched: list[Pair] = []
    for score, bad, good in scored:
        if bad in used_bad or good in used_good:
            continue
        used_bad.add(bad)
        used_good.add(good)
        negative, positive = open_ones[bad], positives[good]
        matched.append(
            Pair(
                negative.prompt,
                positive.text,
                negative.text,
                negative.id,
                positive.id,
                round(score, 6),
            )
        )
    return [*own, *matched]


def overlap(one: FeedbackText, other: FeedbackText) -> float:
    """How much two reports have in common, by words and by tags, 0 to 1.

    Reports that share tags alone say nothing about each other.
    """
    shared_words = _jaccard(one.words, other.words)
    if not shared_words:
        return 0.0
    return (1 - _TAG_SHARE) * shared_words + _TAG_SHARE * _jaccard(one.tags, other.tags)


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    both = len(one & other)
    return both / (len(one) + len(other) - both) if both else 0.0
