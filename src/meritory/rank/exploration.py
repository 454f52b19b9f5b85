"""Exploration: gives one slot to a candidate that the rankings disagree on, at random."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from meritory.domain.policy import EXPLORATION_RATE
from meritory.rank.packing import Floats, Load, Packing, Room, loaded_costs


@dataclass(frozen=True, slots=True)
class Rankings:
    """Both rankings, ranks from 1, and the eligible candidates, one entry per candidate."""

    baseline_ranks: ArrayLike
    predictor_ranks: ArrayLike
    # Older than a day and trusted.
    eligible: ArrayLike


@dataclass(frozen=True, slots=True)
class Exploration:
    """The packing after exploration, and the probability of each candidate's outcome."""

    packing: Packing
    explored: int | None
    replaced: int | None
    # 1 without a random choice.
    propensities: Floats


def explore(
    packing: Packing, load: Load, rankings: Rankings, draw: float, rate: float = EXPLORATION_RATE
) -> Exploration:
    """Give the lowest slot to the candidate the rankings disagree on most, when draw < rate.

    `draw` is uniform in 0..1; a rate of 0 never explores (cold start). A required memory keeps its
    slot, and the new memory must fit into the freed budget.
    """
    if not 0.0 <= rate <= 1.0:
        raise ValueError(f"the exploration rate must be between 0 and 1, not {rate}")
    costs, required = loaded_costs(load)
    propensities = np.ones(len(costs))
    slots = [position for position in packing.chosen if not required[position]]
    if not slots or rate == 0.0:
        return Exploration(packing, None, None, propensities)
    lowest = slots[-1]
    freed_tokens, freed_chars = costs[lowest]
    room = Room(packing.tokens_left + freed_tokens, packing.chars_left + freed_chars)
    free = np.array([room.has(*cost) for cost in costs]) & ~np.array(required)
    free[list(packing.chosen)] = False
    baseline = np.asarray(rankings.baseline_ranks, dtype=np.intp)
    predictor = np.asarray(rankings.predictor_ranks, dtype=np.intp)
    eligible = np.asarray(rankings.eligible, dtype=bool)
    if not baseline.shape == predictor.shape == eligible.shape == free.shape:
        raise ValueError(
            f"{free.size} candidates, {baseline.size} and {predictor.size} ranks, "
            f"{eligible.size} eligible flags"
        )
    gap = np.abs(baseline - predictor)
    # A rank beyond the count means that a ranker gave none, not that it disagrees.
    spoken = np.maximum(baseline, predictor) <= free.size
    disputed = np.flatnonzero(free & eligible & spoken & (gap > 0))
    if disputed.size == 0:
        return Exploration(packing, None, None, propensities)
    # Of equal gaps, the one that a ranker puts highest.
    best = np.minimum(baseline, predictor)[disputed]
    challenger = int(disputed[np.lexsort((best, -gap[disputed]))[0]])
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
