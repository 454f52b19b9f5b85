"""The last choices of a session's start: what fits into the budget, and what is tried out."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

BUDGET_TOKENS = 1_500
# Harnesses cut at 10,000 characters.
BUDGET_CHARS = 9_500
REQUIRED_SHARE = 0.6
EXPLORATION_RATE = 0.05
# 0.29 of 100 is less than 29 in binary.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Limits:
    """What an injection may cost; what the block itself costs is taken off beforehand."""

    tokens: int = BUDGET_TOKENS
    chars: int = BUDGET_CHARS
    required_share: float = REQUIRED_SHARE
    # The most memories besides the required ones; None: as many as fit.
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """The candidates' costs and which are required, one entry per candidate."""

    tokens: ArrayLike
    chars: ArrayLike
    required: ArrayLike


@dataclass(frozen=True, slots=True)
class Packing:
    """Positions of the memories to inject, required ones first, and what is left of the limits."""

    chosen: tuple[int, ...]
    # Required memories for which there was no room: to be named and warned about.
    overflow: tuple[int, ...]
    tokens_left: int
    chars_left: int


@dataclass(frozen=True, slots=True)
class Rankings:
    """Both rankings, ranks from 1, and who may be tried out, one entry per candidate."""

    baseline_ranks: ArrayLike
    predictor_ranks: ArrayLike
    # Older than a day and trusted.
    eligible: ArrayLike


@dataclass(frozen=True, slots=True)
class Exploration:
    """The packing after chance has spoken, and how probable each candidate's outcome was."""

    packing: Packing
    explored: int | None
    replaced: int | None
    # 1 where chance had no say.
    propensities: FloatArray


def pack(order: Iterable[int], load: Load, limits: Limits) -> Packing:
    """Fill the budget in the given order, required first, skipping what does not fit.

    `order` holds the positions worth saying, best first; of nothing, nothing is packed.
    """
    costs, required = _costs(load)
    ranked = list(dict.fromkeys(int(position) for position in order))
    must = [position for position in ranked if required[position]]
    may = [position for position in ranked if not required[position]]
    reserved = _Room(
        math.floor(limits.tokens * limits.required_share + _ROUNDING),
        math.floor(limits.chars * limits.required_share + _ROUNDING),
    )
    first = [position for position in must if reserved.take(*costs[position])]
    whole = _Room(limits.tokens, limits.chars)
    for position in first:
        whole.take(*costs[position])
    # Lazily, so that nothing takes room after the last one wanted.
    fitting = (position for position in may if whole.take(*costs[position]))
    rest = tuple(islice(fitting, limits.count))
    overflow = tuple(position for position in must if position not in first)
    return Packing((*first, *rest), overflow, whole.tokens, whole.chars)


def explore(
    packing: Packing, load: Load, rankings: Rankings, draw: float, rate: float = EXPLORATION_RATE
) -> Exploration:
    """Give the lowest slot to the candidate the rankings disagree on most, when draw < rate.

    `draw` is uniform in 0..1 and handed in; a rate of 0 never explores (cold start). A required
    memory keeps its slot, and the newcomer must fit into the room that becomes free.
    """
    if not 0.0 <= rate <= 1.0:
        raise ValueError(f"the exploration rate must be between 0 and 1, not {rate}")
    costs, required = _costs(load)
    propensities = np.ones(len(costs))
    slots = [position for position in packing.chosen if not required[position]]
    if not slots or rate == 0.0:
        return Exploration(packing, None, None, propensities)
    lowest = slots[-1]
    freed_tokens, freed_chars = costs[lowest]
    room = _Room(packing.tokens_left + freed_tokens, packing.chars_left + freed_chars)
    free = np.array([room.has(*cost) for cost in costs]) & ~np.array(required)
    free[list(packing.chosen)] = False
    challenger = _most_disputed(rankings, free)
    if challenger is None:
        return Exploration(packing, None, None, propensities)
    is_explored = draw < rate
    propensities[[lowest, challenger]] = rate if is_explored else 1.0 - rate
    if not is_explored:
        return Exploration(packing, None, None, propensities)
    room.take(*costs[challenger])
    kept = tuple(position for position in packing.chosen if position != lowest)
    swapped = replace(
        packing, chosen=(*kept, challenger), tokens_left=room.tokens, chars_left=room.chars
    )
    return Exploration(swapped, challenger, lowest, propensities)


def _most_disputed(rankings: Rankings, free: NDArray[np.bool_]) -> int | None:
    baseline = np.asarray(rankings.baseline_ranks, dtype=np.intp)
    predictor = np.asarray(rankings.predictor_ranks, dtype=np.intp)
    eligible = np.asarray(rankings.eligible, dtype=bool)
    if not baseline.shape == predictor.shape == eligible.shape == free.shape:
        raise ValueError(
            f"{free.size} candidates, {baseline.size} and {predictor.size} ranks, "
            f"{eligible.size} eligible flags"
        )
    gap = np.abs(baseline - predictor)
    # A rank beyond the count says that a ranker is silent, not that it disagrees.
    spoken = np.maximum(baseline, predictor) <= free.size
    disputed = np.flatnonzero(free & eligible & spoken & (gap > 0))
    if disputed.size == 0:
        return None
    # Of equal gaps, the one that a ranker puts highest.
    best = np.minimum(baseline, predictor)[disputed]
    return int(disputed[np.lexsort((best, -gap[disputed]))[0]])


class _Room:
    """What is left of a budget."""

    def __init__(self, tokens: int, chars: int) -> None:
        self.tokens = max(0, tokens)
        self.chars = max(0, chars)

    def has(self, tokens: int, chars: int) -> bool:
        """Say whether something of this cost still fits."""
        return tokens <= self.tokens and chars <= self.chars

    def take(self, tokens: int, chars: int) -> bool:
        """Use up the cost if it fits, and say so."""
        if not self.has(tokens, chars):
            return False
        self.tokens -= tokens
        self.chars -= chars
        return True


def _costs(load: Load) -> tuple[list[tuple[int, int]], list[bool]]:
    tokens = np.asarray(load.tokens, dtype=np.int64)
    chars = np.asarray(load.chars, dtype=np.int64)
    required = np.asarray(load.required, dtype=bool)
    if not tokens.shape == chars.shape == required.shape:
        raise ValueError(
            f"{tokens.size} token costs, {chars.size} lengths and {required.size} required flags"
        )
    if min(tokens.min(initial=0), chars.min(initial=0)) < 0:
        raise ValueError("a memory cannot cost less than nothing")
    return list(zip(tokens.tolist(), chars.tolist(), strict=True)), required.tolist()
