"""Numbers of feedback: risk, quality, trend, preference pairs, attribution, and the rubric."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from meritory.domain.errors import InputError

Facet = Literal["tag", "tool", "domain"]
Level = Literal["higher", "lower", "unclear"]
# The two-sided 95% point of the normal distribution.
Z_95: Final = 1.959963984540054
# With fewer reports the interval is too wide to say anything.
REPORTS_MIN: Final = 3


@dataclass(frozen=True, slots=True)
class RiskTally:
    """The number of positive and negative reports about a tag, tool or domain."""

    facet: Facet
    name: str
    positive: int
    negative: int


@dataclass(frozen=True, slots=True)
class Risk:
    """The failure rate of a tag, tool or domain, compared with the overall rate."""

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
    """Return the Wilson interval of a rate; 0..1 without a report."""
    if total <= 0:
        return 0.0, 1.0
    rate = negative / total
    width = z * math.sqrt(rate * (1 - rate) / total + z * z / (4 * total * total))
    centre, scale = rate + z * z / (2 * total), 1 + z * z / total
    low = 0.0 if negative == 0 else max(0.0, (centre - width) / scale)
    high = 1.0 if negative == total else min(1.0, (centre + width) / scale)
    return low, high


def risks(tallies: Iterable[RiskTally], positive: int, negative: int) -> list[Risk]:
    """Return the risk of every facet with enough reports, the clearly higher ones first."""
    base = negative / (positive + negative) if positive + negative else 0.0
    found: list[Risk] = []
    for tally in tallies:
        total = tally.positive + tally.negative
        if total < REPORTS_MIN:
            continue
        low, high = interval(tally.negative, total)
        level: Level = "higher" if low > base else "lower" if high < base else "unclear"
        found.append(
            Risk(
                tally.facet,
                tally.name,
                total,
                tally.negative,
                rate=round(tally.negative / total, 6),
                low=round(low, 6),
                high=round(high, 6),
                base_rate=round(base, 6),
                level=level,
            )
        )
    order = {"higher": 0, "unclear": 1, "lower": 2}
    return sorted(found, key=lambda risk: (order[risk.level], -risk.low, -risk.total, risk.name))


WEIGHTS: Final = {
    "is_actionable": 0.30,
    "has_context": 0.15,
    # What to change after a mistake; why it worked after a success.
    "has_advice": 0.15,
    "has_action": 0.15,
    "has_rubric": 0.15,
    "has_tags": 0.10,
}


def quality(facts: Mapping[str, bool]) -> float:
    """Return the completeness of a report, 0 to 1; shown to users, never a gate."""
    return round(sum((w for name, w in WEIGHTS.items() if facts[name]), 0.0), 6)


Trend = Literal["improving", "degrading", "steady", "unknown"]
TREND_MARGIN: Final = 0.05
LATEST_COUNT: Final = 20
WEEK_DAYS, MONTH_DAYS = 7, 30
# With fewer reports in the week a trend would be noise.
TREND_REPORTS_MIN: Final = 5


@dataclass(frozen=True, slots=True)
class Approval:
    """The share of positive reports with its interval; the rate is None without reports."""

    positive: int
    negative: int
    rate: float | None
    low: float
    high: float


def approval(positive: int, negative: int) -> Approval:
    """Return the share of positive reports."""
    total = positive + negative
    low, high = interval(positive, total)
    rate = round(positive / total, 6) if total else None
    return Approval(positive, negative, rate, round(low, 6), round(high, 6))


def trend(week: Approval, month: Approval) -> Trend:
    """Return whether the last week is better or worse than the last month."""
    if (
        week.rate is None
        or month.rate is None
        or (week.positive + week.negative < TREND_REPORTS_MIN)
    ):
        return "unknown"
    gap = week.rate - month.rate
    if abs(gap) <= TREND_MARGIN:
        return "steady"
    return "improving" if gap > 0 else "degrading"


# With less overlap two reports are not about the same prompt.
OVERLAP_MIN: Final = 0.2
_TAG_SHARE: Final = 0.5


@dataclass(frozen=True, slots=True)
class FeedbackText:
    """The parts of a report that pairing needs."""

    id: str
    prompt: str
    text: str
    # What to do instead, when the report itself says so.
    better: str
    words: frozenset[str]
    tags: frozenset[str]


@dataclass(frozen=True, slots=True)
class Pair:
    """One prompt with a preferred and a rejected answer."""

    prompt: str
    chosen: str
    rejected: str
    negative_id: str
    # None when the negative report itself has the correction.
    positive_id: str | None
    overlap: float


def pairs(negatives: Sequence[FeedbackText], positives: Sequence[FeedbackText]) -> list[Pair]:
    """Return each negative with its own correction, else with the nearest unused positive."""
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
    """Return the overlap of two reports by words and tags, 0 to 1.

    Reports that share only tags have no overlap.
    """
    shared_words = _jaccard(one.words, other.words)
    if not shared_words:
        return 0.0
    return (1 - _TAG_SHARE) * shared_words + _TAG_SHARE * _jaccard(one.tags, other.tags)


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    both = len(one & other)
    return both / (len(one) + len(other) - both) if both else 0.0


WINDOW_S: Final = 20 * 60.0
FADE_S: Final = 6 * 60.0
TEXT_SHARE, TIME_SHARE, RISK_SHARE = 0.45, 0.30, 0.20
# For a report that names the tool, the file or the command itself.
NAMED_SHARE: Final = 0.25
# More words in common than this do not count.
WORDS_ENOUGH: Final = 3
NEGATIVE_FLOOR, POSITIVE_FLOOR = 0.33, 0.38
LIMIT_COUNT: Final = 3
RISK_MAX: Final = 10
# With fewer words in common, a report is near an action in time, but not about it.
EVIDENCE_WORDS: Final = 2


@dataclass(frozen=True, slots=True)
class Seen:
    """A recent action with the facts for attribution."""

    action: int
    age_s: float
    risk: int
    words: frozenset[str]
    # Whether the report names it explicitly.
    is_named: bool = False


@dataclass(frozen=True, slots=True)
class Match:
    """An action that a report is likely about."""

    action: int
    score: float
    shared: frozenset[str]
    is_named: bool

    @property
    def is_evidence(self) -> bool:
        """Whether the report is about the action, so that something can be learned from it."""
        return self.is_named or len(self.shared) >= EVIDENCE_WORDS


def attribute(words: frozenset[str], polarity: int, seen: Sequence[Seen]) -> list[Match]:
    """Return the actions that a report is likely about, best first; the latest of equal ones."""
    floor = NEGATIVE_FLOOR if polarity < 0 else POSITIVE_FLOOR
    matches = []
    for action in seen:
        if not 0 <= action.age_s <= WINDOW_S:
            continue
        shared = words & action.words
        score = (
            TEXT_SHARE * min(len(shared), WORDS_ENOUGH) / WORDS_ENOUGH
            + TIME_SHARE * math.exp(-action.age_s / FADE_S)
            + RISK_SHARE * action.risk / RISK_MAX
            + NAMED_SHARE * action.is_named
        )
        if min(1.0, score) >= floor:
            matches.append(Match(action.action, min(1.0, score), shared, action.is_named))
    matches.sort(key=lambda match: (-match.score, -match.action))
    return matches[:LIMIT_COUNT]


# The rubric: criteria with weights, judged 1 to 5, and guardrails that hold or do not.
SCORE_MIN, SCORE_MAX = 1, 5
# Judges this far apart disagree; a score this high needs evidence where a criterion asks for it.
DISAGREEMENT: Final = 2
EVIDENCED_SCORE: Final = 4
SCORES_LIMIT_COUNT: Final = 64
GUARDRAILS_LIMIT_COUNT: Final = 32
_NAME_LIMIT_CHARS: Final = 64
_EVIDENCE_LIMIT_CHARS: Final = 500


class Criterion(NamedTuple):
    """The weight of a criterion, its least score, and whether high scores need evidence."""

    weight: float
    minimum: float
    needs_evidence: bool = False


CRITERIA: Final[Mapping[str, Criterion]] = {
    "correctness": Criterion(0.30, 3),
    "verification_evidence": Criterion(0.25, 3, needs_evidence=True),
    "safety": Criterion(0.20, 3),
    "instruction_following": Criterion(0.15, 3),
    "clarity": Criterion(0.10, 2),
}


@dataclass(frozen=True, slots=True)
class Score:
    """One judge's score for one criterion."""

    criterion: str
    score: float
    evidence: str = ""
    judge: str = ""


@dataclass(frozen=True, slots=True)
class RubricVerdict:
    """The result of a rubric; `reasons` say why a positive report may not become a lesson."""

    # Criteria without a score do not count.
    weighted_score: float
    means: Mapping[str, float]
    failing: tuple[str, ...] = ()
    failed_guardrails: tuple[str, ...] = ()
    disagreements: tuple[str, ...] = ()
    missing_evidence: tuple[str, ...] = ()

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons against it, in words."""
        return (
            *(f"{name} is below its minimum" for name in self.failing),
            *(f"guardrail {name} is false" for name in self.failed_guardrails),
            *(f"judges disagree about {name}" for name in self.disagreements),
            *(f"{name} is rated high without evidence" for name in self.missing_evidence),
        )

    @property
    def is_eligible(self) -> bool:
        """Whether there is no reason against it."""
        return not self.reasons


def read_scores(given: object) -> tuple[Score, ...]:
    """Return the scores of a list, or of an object from criteria to numbers."""
    if given is None:
        return ()
    if isinstance(given, Mapping):
        given = [{"criterion": name, "score": score} for name, score in given.items()]
    if not isinstance(given, list | tuple):
        raise InputError(
            "rubric_scores must be a list",
            hint='such as [{"criterion": "safety", "score": 4, "evidence": "...", "judge": "me"}]',
        )
    if len(given) > SCORES_LIMIT_COUNT:
        raise InputError(f"at most {SCORES_LIMIT_COUNT} rubric scores, not {len(given)}")
    return tuple(map(_score, given))


def _score(item: object) -> Score:
    if not isinstance(item, Mapping):
        raise InputError("a rubric score must be an object with criterion and score")
    unknown = set(item) - {"criterion", "score", "evidence", "judge"}
    if unknown:
        raise InputError(f"a rubric score has no field {min(map(str, unknown))[:40]!r}")
    criterion, value = item.get("criterion"), item.get("score")
    if not isinstance(criterion, str) or criterion not in CRITERIA:
        raise InputError(
            f"unknown criterion {str(criterion)[:40]!r}", hint=f"known: {', '.join(CRITERIA)}"
        )
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"the score of {criterion} must be a number from 1 to 5")
    if not SCORE_MIN <= value <= SCORE_MAX:
        raise InputError(f"the score of {criterion} must lie between 1 and 5, not {value}")
    texts = {name: item.get(name) or "" for name in ("evidence", "judge")}
    for name, text in texts.items():
        if not isinstance(text, str):
            raise InputError(f"the {name} of {criterion} must be text")
    return Score(
        criterion,
        float(value),
        texts["evidence"].strip()[:_EVIDENCE_LIMIT_CHARS],
        texts["judge"][:_NAME_LIMIT_CHARS],
    )


def read_guardrails(given: object) -> dict[str, bool | None]:
    """Return the guardrails with whether they held; None is unknown."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or len(given) > GUARDRAILS_LIMIT_COUNT:
        raise InputError(
            f"guardrails must be at most {GUARDRAILS_LIMIT_COUNT} names with true, false or null",
            hint='such as {"tests_passed": true, "path_safety": null}',
        )
    for name, held in given.items():
        if not isinstance(name, str) or not 0 < len(name) <= _NAME_LIMIT_CHARS:
            raise InputError(f"a guardrail's name has 1 to {_NAME_LIMIT_CHARS} characters")
        if held is not None and not isinstance(held, bool):
            raise InputError(f"guardrail {name[:40]!r} must be true, false or null")
    return dict(given)


def evaluate(
    scores: Sequence[Score], guardrails: Mapping[str, bool | None]
) -> RubricVerdict | None:
    """Return the verdict of all judges together; None without scores and guardrails."""
    if not scores and not guardrails:
        return None
    by_criterion: defaultdict[str, list[Score]] = defaultdict(list)
    for score in scores:
        by_criterion[score.criterion].append(score)
    values = {
        name: [score.score for score in by_criterion[name]]
        for name in CRITERIA
        if name in by_criterion
    }
    means = {name: sum(given) / len(given) for name, given in values.items()}
    return RubricVerdict(
        weighted_score=round(
            sum(CRITERIA[name].weight * mean / SCORE_MAX for name, mean in means.items()), 6
        ),
        means=means,
        failing=tuple(name for name, mean in means.items() if mean < CRITERIA[name].minimum),
        # An unknown guardrail has not failed.
        failed_guardrails=tuple(name for name, held in guardrails.items() if held is False),
        disagreements=tuple(
            name for name, given in values.items() if max(given) - min(given) >= DISAGREEMENT
        ),
        missing_evidence=tuple(
            name
            for name in means
            if CRITERIA[name].needs_evidence
            and any(s.score >= EVIDENCED_SCORE and not s.evidence for s in by_criterion[name])
        ),
    )
