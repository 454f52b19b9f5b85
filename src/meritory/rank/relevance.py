"""The absolute score of a search: how likely a memory answers the question, for any question.

The order of a search is relative: the best memory always has a high hybrid score. This module
estimates a probability from what does not depend on the other results: the plain cosine, and how
much of the question the text of a memory contains. `bench.abstain` fits the weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from meritory.rank.hybrid import finite, relative

Scores = NDArray[np.float64]

# Smaller and larger stores count as these: the weights were not fitted beyond them.
_MEMORY_COUNTS: Final = (20, 1_000)
_TINY: Final = 1e-9

NAMES: Final = ("cosine", "share", "found", "phrases", "order", "unknown", "memory_count")
# Without a vector of the question.
WORD_NAMES: Final = NAMES[1:]


@dataclass(frozen=True, slots=True)
class ScoreWeights:
    """Two logistic models: of the numbers of a memory, and of their sum and its place."""

    intercept: float
    by_name: Mapping[str, float]
    # The second: intercept, and the weights of the sum, of 1 / place, and of their product.
    by_place: tuple[float, float, float, float] = (0.0, 1.0, 0.0, 0.0)

    def sums(self, numbers: Mapping[str, Scores]) -> Scores:
        """Return the weighted sum of the numbers of each memory."""
        columns = [weight * numbers[name] for name, weight in self.by_name.items()]
        total: Scores = self.intercept + np.sum(columns, axis=0)
        return total

    def probabilities(self, numbers: Mapping[str, Scores]) -> Scores:
        """Return the probability of each memory; they come best first."""
        total = self.sums(numbers)
        intercept, slope, first, first_slope = self.by_place
        total = intercept + slope * total + (first + first_slope * total) * places(len(total))
        return 1.0 / (1.0 + np.exp(-total))


@dataclass(frozen=True, slots=True)
class QueryMatch:
    """The words of a question, and which of them the best memories contain.

    `found` has a row for each memory, best first, and a column for each word.
    """

    found: NDArray[np.bool_]
    # How many phrases of the question each memory contains.
    phrases: Scores
    # How many of all memories have each word; 0 for a word that the store does not know.
    frequencies: Scores
    # The plain cosines, NaN without a vector, and the hybrid scores.
    cosine: Scores
    final: Scores
    memory_count: int


def places(count: int) -> Scores:
    """Return 1, 1/2, 1/3 and so on."""
    return 1.0 / np.arange(1.0, count + 1.0)


def numbers_of(match: QueryMatch) -> dict[str, Scores]:
    """Return what the probability of each memory is made of, by name."""
    count = max(match.memory_count, 1)
    rarity = np.log1p(
        (np.maximum(count - match.frequencies, 0.0) + 0.5) / (match.frequencies + 0.5)
    )
    total = max(float(rarity.sum()), _TINY)
    worth = match.found @ rarity
    one = np.ones(len(match.final))
    return {
        "cosine": np.maximum(finite(match.cosine), 0.0),
        # The share of the question's words that a memory contains; a rare word counts more.
        "share": worth / total,
        "found": np.log1p(worth),
        "phrases": np.log1p(match.phrases),
        # How near a memory is to the best by rank.
        "order": relative(match.final),
        "unknown": one * (rarity[match.frequencies == 0.0].sum() / total),
        "memory_count": one * np.log(np.clip(count, *_MEMORY_COUNTS)),
    }


def probabilities(match: QueryMatch) -> Scores:
    """Return for each memory how likely it answers the question, in 0..1.

    A question without a vector, as one without a word that the embedder knows, goes by its words.
    """
    weights = WEIGHTS if np.isfinite(match.cosine).any() else WORD_WEIGHTS
    return weights.probabilities(numbers_of(match))


def descending(scores: Sequence[float]) -> list[float]:
    """Return scores that never rise: where they would, the mean of those concerned.

    This is the nearest list in this order (isotonic regression), and its mean stays the same.
    """
    blocks: list[tuple[float, int]] = []
    for score in scores:
        total, count = score, 1
        while blocks and blocks[-1][0] * count < total * blocks[-1][1]:
            before, members = blocks.pop()
            total, count = total + before, count + members
        blocks.append((total, count))
    return [total / count for total, count in blocks for _ in range(count)]


# `python -m bench.abstain --fit` prints both.
WEIGHTS: Final = ScoreWeights(
    intercept=-4.728,
    by_name={
        "cosine": 3.394,
        "share": 1.887,
        "found": 0.548,
        "phrases": 0.450,
        "order": 1.637,
        "unknown": -0.692,
        "memory_count": -0.352,
    },
    by_place=(-1.321, 0.662, 1.959, 0.450),
)
WORD_WEIGHTS: Final = ScoreWeights(
    intercept=-3.430,
    by_name={
        "share": 2.493,
        "found": 0.620,
        "phrases": 0.714,
        "order": 1.942,
        "unknown": -1.275,
        "memory_count": -0.443,
    },
    by_place=(-1.409, 0.643, 2.040, 0.458),
)
