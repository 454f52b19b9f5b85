"""The living feed of the composite: the same five weights, fed by what really helped."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tenure.rank import scores
from tenure.rank.history import Usage

Floats = NDArray[np.float64]

# The context of a session is long and its words are many: here the vectors lead.
COSINE_SHARE = 0.7
# Of usefulness: what helped in the nearest sessions; the rest is how often and how lately it did.
ASSOCIATION_SHARE = 0.7
# Where at least so much of what helps has helped before, history is taken at its word; where less
# does, it counts for less (decision 13).
TRUSTED_RECURRENCE = 0.7
_TINY = 1e-9


def context_match(raw_cosine: ArrayLike, text: ArrayLike) -> Floats:
    """How well each candidate matches the context of a session: both legs of the search in 0..1.

    The plain cosine and not the centred one: centring spreads the scores so far that they drown
    what use says about a memory.
    """
    cosine = np.clip(_finite(raw_cosine), 0.0, 1.0)
    return COSINE_SHARE * cosine + (1.0 - COSINE_SHARE) * relative(text)


@dataclass(frozen=True, slots=True)
class Feed:
    """What the living composite is made from, an entry per candidate."""

    # How well it goes with the context.
    match: ArrayLike
    age_days: ArrayLike
    usage: Usage
    confidence: ArrayLike
    access_count: ArrayLike
    # Of what helps this user, the share that has helped before.
    recurrence: float = 1.0


def living_parts(feed: Feed) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Relevance, recency, usefulness, confidence and frequency, as `scores.explain` takes them.

    Recency counts from the last time a memory helped, from its beginning if it never did.
    """
    usage, trust = feed.usage, min(1.0, feed.recurrence / TRUSTED_RECURRENCE)
    age_days = np.asarray(feed.age_days, dtype=np.float64)
    since_days = np.where(usage.count > 0.0, usage.days_since, age_days)
    helped = ASSOCIATION_SHARE * relative(usage.association)
    helped += (1.0 - ASSOCIATION_SHARE) * relative(usage.frecency)
    return (
        relative(feed.match),
        trust * scores.recency(since_days),
        trust * relative(helped),
        np.asarray(feed.confidence, dtype=np.float64),
        scores.frequency(feed.access_count),
    )


def relative(values: ArrayLike) -> Floats:
    """Values as shares of the best one's; all 0 without a positive one."""
    array = np.maximum(_finite(values), 0.0)
    best = array.max(initial=0.0)
    return array / best if best > _TINY else np.zeros_like(array)


def _finite(values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    return np.where(np.isfinite(array), array, 0.0)
