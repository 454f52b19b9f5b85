"""The history feed of the composite: the same five weights, fed by what really helped.

History has to earn its place (see proof.py): each part is shrunk towards a constant that is the
same for all candidates until the record shows that it helps this user. With nothing proved the
order is that of relevance alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meritory.domain.memory import DEFAULT_CONFIDENCE, DEFAULT_USEFULNESS
from meritory.domain.policy import SourceWeights
from meritory.rank import composite
from meritory.rank.usage_history import Usage

Floats = NDArray[np.float64]

# The context of a session is long and its words are many: here the vectors lead.
COSINE_SHARE = 0.7
# Of usefulness: what helped in the nearest sessions; the rest is how often and how lately it did.
ASSOCIATION_SHARE = 0.7
# How much the words of a memory's title count beside the match of its whole text.
TITLE_SHARE = 0.3
_TINY = 1e-9


def context_match(raw_cosine: ArrayLike, text: ArrayLike) -> Floats:
    """How well each candidate matches the context of a session: both legs of the search in 0..1.

    The plain cosine and not the centred one: centring spreads the scores so far that they drown
    what use says about a memory.
    """
    cosine = np.clip(_finite(raw_cosine), 0.0, 1.0)
    return COSINE_SHARE * cosine + (1.0 - COSINE_SHARE) * relative(text)


@dataclass(frozen=True, slots=True)
class Trust:
    """How far history counts, 0..1: time since a memory helped, and how much it helped."""

    recency: float = 0.0
    usefulness: float = 0.0


NO_TRUST = Trust()
FULL_TRUST = Trust(1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Feed:
    """What the composite is made from, an entry per candidate."""

    # How well it matches the context, with the source's weight, and how well its title does.
    match: ArrayLike
    title: ArrayLike
    age_days: ArrayLike
    usage: Usage
    confidence: ArrayLike
    access_count: ArrayLike


@dataclass(frozen=True, slots=True)
class HistoryParts:
    """The parts of the composite before they are shrunk, an entry per candidate."""

    relevance: Floats
    recency: Floats
    usefulness: Floats
    confidence: Floats
    frequency: Floats

    def shrunk(self, trust: Trust) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """Return the five parts as far as they are trusted, as `scores.explain` takes them."""
        return (
            self.relevance,
            _shrunk(self.recency, composite.NEUTRAL_RECENCY, trust.recency),
            _shrunk(self.usefulness, DEFAULT_USEFULNESS, trust.usefulness),
            _shrunk(self.confidence, DEFAULT_CONFIDENCE, trust.usefulness),
            _shrunk(self.frequency, 0.0, trust.usefulness),
        )


def history_parts(feed: Feed) -> HistoryParts:
    """Return the parts of the composite.

    Recency counts from the last time a memory helped, from its beginning if it never did.
    """
    usage = feed.usage
    age_days = np.asarray(feed.age_days, dtype=np.float64)
    since_days = np.where(usage.count > 0.0, usage.days_since, age_days)
    helped = ASSOCIATION_SHARE * relative(usage.association)
    helped += (1.0 - ASSOCIATION_SHARE) * relative(usage.frecency)
    return HistoryParts(
        relevance=relative(relative(feed.match) + TITLE_SHARE * relative(feed.title)),
        recency=composite.recency(since_days),
        usefulness=relative(helped),
        confidence=np.asarray(feed.confidence, dtype=np.float64),
        frequency=composite.frequency(feed.access_count),
    )


def _shrunk(values: Floats, neutral: float, trust: float) -> Floats:
    known = np.clip(np.nan_to_num(values, nan=neutral), 0.0, 1.0)
    return np.asarray(neutral + trust * (known - neutral))


def relative(values: ArrayLike) -> Floats:
    """Values as shares of the best one's; all 0 without a positive one."""
    array = np.maximum(_finite(values), 0.0)
    best = array.max(initial=0.0)
    return array / best if best > _TINY else np.zeros_like(array)


def _finite(values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    return np.where(np.isfinite(array), array, 0.0)


def seed_composite(known: Mapping[str, Floats], sources: SourceWeights) -> Floats:
    """The five weights fed with the raw cosine, the creation time and the stored usefulness.

    `known` are recorded features by name. How often a memory was demoted is not recorded; a
    demotion is rare, and moves one step.
    """
    weight = composite.source_weight(
        known["provenance"].astype(np.intp),
        known["confidence"],
        np.zeros(len(known["cosine"]), np.intp),
        sources,
    )
    return composite.explain(
        composite.relevance(known["cosine"], weight),
        composite.recency(np.expm1(known["log_age_days"])),
        known["stored_usefulness"],
        known["confidence"],
        known["frequency"],
    ).composite
