"""Scores of memories: the composite of five weighted parts, and its two feeds.

The history feed takes the parts from what helped in past sessions. History must prove itself first
(influence.py): each part is shrunk towards a constant, the same for all candidates, until the
record shows that it helps this user. Without proof the order is that of relevance alone. The seed
feed takes the stored usefulness and the creation time.

Every function takes arrays (or numbers) and returns finite float64 arrays in 0..1. An input that is
not finite becomes a neutral value, or 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meritory.domain.memory import DEFAULT_CONFIDENCE, DEFAULT_IMPORTANCE, DEFAULT_USEFULNESS
from meritory.domain.policy import SourceWeights
from meritory.rank.hybrid import finite, relative, relevance, source_weight, unit
from meritory.rank.usage_history import Usage

Floats = NDArray[np.float64]

# The five weights change only by a new decision record with a re-run of the eval (decision 0003).
WEIGHT_RELEVANCE = 0.40
WEIGHT_RECENCY = 0.25
WEIGHT_USEFULNESS = 0.20
WEIGHT_CONFIDENCE = 0.10
WEIGHT_FREQUENCY = 0.05

# ln 2 / 14 = 0.0495: half of the recency is gone after two weeks.
RECENCY_DECAY_PER_DAY = 0.05
# More injections than this do not count.
FREQUENCY_CAP = 50
EFFECTIVE_DECAY = 0.95
NEUTRAL_RECENCY = 0.5
SCORE_DECIMALS = 6

_SECONDS_PER_DAY = 86_400.0
# The logarithm of an importance of 0 needs a lower limit.
_FAINT = 1e-9

_WEIGHTS = (
    WEIGHT_RELEVANCE,
    WEIGHT_RECENCY,
    WEIGHT_USEFULNESS,
    WEIGHT_CONFIDENCE,
    WEIGHT_FREQUENCY,
)
if not math.isclose(math.fsum(_WEIGHTS), 1.0, rel_tol=0.0, abs_tol=1e-9):
    # Not an assertion, which `python -O` would skip.
    raise ImportError(f"the five composite weights sum to {math.fsum(_WEIGHTS)}, not to 1")


@dataclass(frozen=True, slots=True)
class Composition:
    """The composite and its five parts, one array each, in the order of the memories."""

    composite: Floats
    relevance: Floats
    recency: Floats
    usefulness: Floats
    confidence: Floats
    frequency: Floats

    def row(self, index: int) -> dict[str, float]:
        """Return the numbers of one memory by name, rounded."""
        return {
            item.name: round(float(getattr(self, item.name)[index]), SCORE_DECIMALS)
            for item in fields(self)
        }


def age_days(now: datetime, moments: Sequence[datetime | None]) -> Floats:
    """Return the days from each moment to now, negative in the future, NaN if unknown."""
    present = _utc(now)
    return np.array(
        [
            np.nan
            if moment is None
            else (present - _utc(moment)).total_seconds() / _SECONDS_PER_DAY
            for moment in moments
        ],
        dtype=np.float64,
    )


def effective(importance: ArrayLike, age_days: ArrayLike, pinned: ArrayLike) -> Floats:
    """Return importance decayed by age, 1 when pinned; an unknown age counts as half."""
    known, age = _known_age(age_days)
    faded = np.where(known, EFFECTIVE_DECAY**age, NEUTRAL_RECENCY)
    return np.where(
        np.asarray(pinned, dtype=bool), 1.0, unit(importance, DEFAULT_IMPORTANCE) * faded
    )


def static_effective(importance: float | None, created_day: float | None) -> float:
    """Return a number that orders unpinned memories as `effective` does, at any time.

    importance * decay ** (now - day) has the order of log importance - day * log decay, without a
    clock.
    """
    worth = DEFAULT_IMPORTANCE if importance is None else max(float(importance), _FAINT)
    return math.log(worth) - (created_day or 0.0) * math.log(EFFECTIVE_DECAY)


def static_effectives(importance: ArrayLike, created_day: ArrayLike) -> Floats:
    """Return `static_effective` of many memories whose importance and day are known."""
    worth = np.maximum(np.asarray(importance, np.float64), _FAINT)
    days = np.asarray(created_day, np.float64)
    return np.asarray(np.log(worth) - days * math.log(EFFECTIVE_DECAY))


def recency(age_days: ArrayLike) -> Floats:
    """Return 1 for a fresh memory, halved every 14 days; 0.5 for an unknown date."""
    known, age = _known_age(age_days)
    return np.where(known, np.exp(-RECENCY_DECAY_PER_DAY * age), NEUTRAL_RECENCY)


def frequency(access_count: ArrayLike) -> Floats:
    """Return the number of injections as a share of the cap."""
    return unit(np.asarray(access_count, np.float64) / FREQUENCY_CAP)


def explain(
    relevance: ArrayLike,
    recency: ArrayLike,
    usefulness: ArrayLike,
    confidence: ArrayLike,
    frequency: ArrayLike,
) -> Composition:
    """Return the composite with the five parts as they were used."""
    parts = np.broadcast_arrays(
        unit(relevance),
        unit(recency, NEUTRAL_RECENCY),
        unit(usefulness, DEFAULT_USEFULNESS),
        unit(confidence, DEFAULT_CONFIDENCE),
        unit(frequency),
    )
    # Term by term, in this order: equal inputs give equal bits on every machine.
    total = (
        WEIGHT_RELEVANCE * parts[0]
        + WEIGHT_RECENCY * parts[1]
        + WEIGHT_USEFULNESS * parts[2]
        + WEIGHT_CONFIDENCE * parts[3]
        + WEIGHT_FREQUENCY * parts[4]
    )
    return Composition(np.minimum(total, 1.0), *parts)


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _known_age(age_days: ArrayLike) -> tuple[NDArray[np.bool_], Floats]:
    age = np.asarray(age_days, np.float64)
    known = np.isfinite(age)
    return known, np.where(known, np.maximum(age, 0.0), 0.0)


# The context of a session is long and has many words, so vectors count more.
COSINE_SHARE = 0.7
# The share of the nearest sessions in usefulness; the rest is how often and how recently it helped.
ASSOCIATION_SHARE = 0.7
# The weight of the title, relative to the match of the whole text.
TITLE_SHARE = 0.3


def context_match(raw_cosine: ArrayLike, text: ArrayLike) -> Floats:
    """Return how well each candidate matches the context of a session, 0..1, by both searches.

    The cosine is not centred: centring spreads the scores so far that usage no longer counts.
    """
    cosine = np.clip(finite(raw_cosine), 0.0, 1.0)
    return COSINE_SHARE * cosine + (1.0 - COSINE_SHARE) * relative(text)


@dataclass(frozen=True, slots=True)
class Trust:
    """How much history counts, 0..1: the time since a memory helped, and how much it helped."""

    recency: float = 0.0
    usefulness: float = 0.0


NO_TRUST = Trust()
FULL_TRUST = Trust(1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Feed:
    """The inputs of the history feed, an entry per candidate."""

    # How well it matches the context, with the source's weight, and how well its title does.
    match: ArrayLike
    title: ArrayLike
    age_days: ArrayLike
    usage: Usage
    confidence: ArrayLike
    access_count: ArrayLike


@dataclass(frozen=True, slots=True)
class HistoryParts:
    """The parts of the composite before shrinking, an entry per candidate."""

    relevance: Floats
    recency: Floats
    usefulness: Floats
    confidence: Floats
    frequency: Floats

    def shrunk(self, trust: Trust) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """Return the five parts shrunk by trust, in the order of `explain`."""
        return (
            self.relevance,
            _shrunk(self.recency, NEUTRAL_RECENCY, trust.recency),
            _shrunk(self.usefulness, DEFAULT_USEFULNESS, trust.usefulness),
            _shrunk(self.confidence, DEFAULT_CONFIDENCE, trust.usefulness),
            _shrunk(self.frequency, 0.0, trust.usefulness),
        )


def history_parts(feed: Feed) -> HistoryParts:
    """Return the parts of the composite.

    Recency counts from the last time a memory helped, or from its creation.
    """
    usage = feed.usage
    age_days = np.asarray(feed.age_days, dtype=np.float64)
    since_days = np.where(usage.count > 0.0, usage.days_since, age_days)
    helped = ASSOCIATION_SHARE * relative(usage.association)
    helped += (1.0 - ASSOCIATION_SHARE) * relative(usage.frecency)
    usefulness = relative(helped)
    return HistoryParts(
        relevance=relative(relative(feed.match) + TITLE_SHARE * relative(feed.title)),
        recency=recency(since_days),
        usefulness=usefulness,
        confidence=np.asarray(feed.confidence, dtype=np.float64),
        frequency=frequency(feed.access_count),
    )


def _shrunk(values: Floats, neutral: float, trust: float) -> Floats:
    clipped = np.clip(np.nan_to_num(values, nan=neutral), 0.0, 1.0)
    return np.asarray(neutral + trust * (clipped - neutral))


def seed_composite(features: Mapping[str, Floats], sources: SourceWeights) -> Floats:
    """Return the composite of the raw cosine, the creation time and the stored usefulness.

    `features` are recorded features by name. Demotions are not recorded: they are rare, and move a
    memory by one step.
    """
    weight = source_weight(
        features["provenance"].astype(np.intp),
        features["confidence"],
        np.zeros(len(features["cosine"]), np.intp),
        sources,
    )
    return explain(
        relevance(features["cosine"], weight),
        recency(np.expm1(features["log_age_days"])),
        features["stored_usefulness"],
        features["confidence"],
        features["frequency"],
    ).composite
