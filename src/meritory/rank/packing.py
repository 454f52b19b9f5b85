"""Packing: selects the memories of an injection that fit into the budget."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meritory.domain.policy import START_TOKENS

Floats = NDArray[np.float64]

# 0.29 of 100 is less than 29 in binary.
_ROUNDING = 1e-9


def loaded_costs(load: Load) -> tuple[list[tuple[int, int]], list[bool]]:
    """Return the cost of each memory and whether it is required, both checked."""
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


# Harnesses cut at 10,000 characters.
BUDGET_CHARS = 9_500
REQUIRED_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class Limits:
    """The budget of an injection, without the cost of the block itself."""

    tokens: int = START_TOKENS
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
    """Positions of the memories to inject, required ones first, and the rest of the budget."""

    chosen: tuple[int, ...]
    # Required memories that did not fit; they are named in the block.
    overflow: tuple[int, ...]
    tokens_left: int
    chars_left: int


def pack(order: Iterable[int], load: Load, limits: Limits) -> Packing:
    """Fill the budget in the given order, required first, skipping what does not fit.

    `order` has the positions of the candidates, best first.
    """
    costs, required = loaded_costs(load)
    ranked = list(dict.fromkeys(int(position) for position in order))
    must = [position for position in ranked if required[position]]
    may = [position for position in ranked if not required[position]]
    reserved = Room(
        math.floor(limits.tokens * limits.required_share + _ROUNDING),
        math.floor(limits.chars * limits.required_share + _ROUNDING),
    )
    first = [position for position in must if reserved.take(*costs[position])]
    whole = Room(limits.tokens, limits.chars)
    for position in first:
        whole.take(*costs[position])
    # Lazy, so that nothing is taken after the last wanted one.
    fitting = (position for position in may if whole.take(*costs[position]))
    rest = tuple(islice(fitting, limits.count))
    overflow = tuple(position for position in must if position not in first)
    return Packing((*first, *rest), overflow, whole.tokens, whole.chars)


class Room:
    """The rest of a budget."""

    def __init__(self, tokens: int, chars: int) -> None:
        self.tokens = max(0, tokens)
        self.chars = max(0, chars)

    def has(self, tokens: int, chars: int) -> bool:
        """Return whether this cost still fits."""
        return tokens <= self.tokens and chars <= self.chars

    def take(self, tokens: int, chars: int) -> bool:
        """Spend the cost if it fits, and return whether it did."""
        if not self.has(tokens, chars):
            return False
        self.tokens -= tokens
        self.chars -= chars
        return True
