"""Soft match: how well two texts cover each other's words, by the meaning of single words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meritory.rank.hybrid import Scores, finite, relative

# Two pieces below this cosine have nothing in common.
COSINE_FLOOR = 0.2
# The share of the soft match in a memory's own score.
SOFT_SHARE = 0.4
# In a store of longer texts that share falls: a long text covers every question.
SOFT_LENGTH_CHARS = 200.0
# What the question covers of a memory counts half of what the memory covers of the question.
TOLD_SHARE = 0.5
# Three quarters of a pool match by accident: what they reach is no match.
COMMON_QUANTILE = 0.75
# A smaller pool is filled up with memories that match nothing: its best are no accident.
POOL_PRIOR_COUNT = 64
# What an instruction or a preference gains: a factor, and what its condition adds if it is met.
STANDING_FACTOR = 1.2
CONDITION_SHARE = 0.3

Pieces = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Bags:
    """Several texts as bags of pieces: all their distinct pieces, and the places of each text."""

    distinct: Pieces
    # For every piece of every text, its place in `distinct`; the texts follow each other.
    places: Pieces
    sizes: Pieces

    @classmethod
    def of(cls, texts: Sequence[Pieces]) -> Bags:
        """Return the bags of texts, each of which has a piece once."""
        flat = np.concatenate([np.empty(0, np.int64), *texts])
        # Marking is several times faster than sorting.
        is_used = np.zeros(int(flat.max(initial=-1)) + 1, np.bool_)
        is_used[flat] = True
        distinct = np.flatnonzero(is_used)
        number = np.empty(len(is_used), np.int64)
        number[distinct] = np.arange(len(distinct))
        return cls(distinct, number[flat], np.array([len(text) for text in texts], np.int64))


@dataclass(frozen=True, slots=True)
class Coverage:
    """How far a question and each memory cover each other, in 0..1."""

    # The share of the question's words that the memory has, by meaning.
    asked: Scores
    # The share of the memory's words that the question has.
    told: Scores

    @classmethod
    def none(cls, count: int) -> Coverage:
        """Return the coverage of memories that share nothing with the question."""
        return cls(np.zeros(count), np.zeros(count))


def cover(
    cosines: NDArray[np.float32], bags: Bags, asked_weights: Scores, told_weights: Scores
) -> Coverage:
    """Return how far a question and the memories cover each other.

    `cosines` has a row for each piece of the question and a column for each of `bags.distinct`;
    `asked_weights` and `told_weights` say how much these pieces mean.
    """
    count, total = len(bags.sizes), float(asked_weights.sum())
    filled = np.flatnonzero(bags.sizes)
    if not len(filled) or total <= 0.0:
        return Coverage.none(count)
    alike = np.clip((cosines - COSINE_FLOOR) / (1.0 - COSINE_FLOOR), 0.0, 1.0)
    starts = (np.cumsum(bags.sizes) - bags.sizes)[filled]
    asked, told = np.zeros(count), np.zeros(count)
    best = np.maximum.reduceat(alike[:, bags.places], starts, axis=1)
    asked[filled] = asked_weights @ best / total
    weights = told_weights[bags.places]
    covered = np.add.reduceat(alike.max(axis=0)[bags.places] * weights, starts)
    told[filled] = covered / np.maximum(np.add.reduceat(weights, starts), 1e-9)
    return Coverage(asked, told)


def soft_scores(coverage: Coverage) -> Scores:
    """Return the soft match of each memory in 0..1, relative to the others of the pool."""
    joined = coverage.asked + TOLD_SHARE * coverage.told
    if not len(joined):
        return joined
    others = np.zeros(max(0, POOL_PRIOR_COUNT - len(joined)))
    return relative(joined - np.quantile(np.append(joined, others), COMMON_QUANTILE))


def with_soft(own: Scores, soft: Scores, mean_length_chars: float) -> Scores:
    """Return own scores with the share of the soft match; unchanged if nothing matches softly."""
    if not soft.any():
        return own
    share = SOFT_SHARE * min(1.0, SOFT_LENGTH_CHARS / max(mean_length_chars, 1.0))
    return (1.0 - share) * own + share * soft


def with_standing(own: Scores, standing: NDArray[np.bool_], condition: Scores) -> Scores:
    """Return own scores with instructions and preferences raised, most of all those that apply."""
    raised = own * STANDING_FACTOR + CONDITION_SHARE * finite(condition)
    return np.where(standing & (own > 0.0), np.minimum(raised, 1.0), own)
