"""Fusion of the baseline's and the predictor's ranking, and the diversity of the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meritory.domain.policy import RRF_K

Floats = NDArray[np.float64]
RankArray = NDArray[np.intp]

SIMILAR_COSINE = 0.85
DECAY = 0.5
FLOOR = 0.1


@dataclass(frozen=True, slots=True)
class Fusion:
    """Fused scores, both rankings, and the positions from best to worst."""

    scores: Floats
    baseline_ranks: RankArray
    predictor_ranks: RankArray
    order: RankArray


def ranks(scores: ArrayLike, tiebreak: ArrayLike) -> RankArray:
    """Return ranks from 1, equal scores by ascending tiebreak; not finite is count + 1."""
    values = np.asarray(scores, dtype=np.float64)
    ties = np.asarray(tiebreak)
    if values.ndim != 1 or values.shape != ties.shape:
        raise ValueError(f"{values.size} scores for {ties.size} tiebreaks")
    finite = np.isfinite(values)
    order = np.lexsort((ties, np.where(finite, -values, np.inf)))
    ranked = np.empty(values.size, dtype=np.intp)
    ranked[order] = np.arange(1, values.size + 1)
    return np.where(finite, ranked, values.size + 1)


def rrf(
    baseline_ranks: ArrayLike, predictor_ranks: ArrayLike, alpha: float, k: int = RRF_K
) -> Floats:
    """Return alpha / (k + baseline rank) + (1 - alpha) / (k + predictor rank)."""
    if not 0.0 <= alpha <= 1.0 or k < 0:
        raise ValueError(f"alpha must be between 0 and 1 and k at least 0, not {alpha} and {k}")
    baseline = np.asarray(baseline_ranks, dtype=np.float64)
    predictor = np.asarray(predictor_ranks, dtype=np.float64)
    return np.asarray(alpha / (k + baseline) + (1.0 - alpha) / (k + predictor))


def fuse(
    baseline: ArrayLike,
    predictor: ArrayLike | None,
    ids: Sequence[str],
    alpha: float,
    k: int = RRF_K,
) -> Fusion:
    """Fuse the scores of both rankers; the baseline's order decides every tie but its own.

    A memory without a finite predictor score ranks behind all that have one; without a predictor
    the order is the baseline's.
    """
    baseline_ranks = ranks(baseline, np.asarray(ids, dtype=np.str_))
    count = baseline_ranks.size
    # Every memory has a rank of its own here, even without a baseline score.
    places = ranks(-baseline_ranks, np.asarray(ids, dtype=np.str_))
    predicted = np.full(count, np.nan) if predictor is None else predictor
    predictor_ranks = ranks(predicted, places)
    scores = rrf(baseline_ranks, predictor_ranks, alpha, k)
    return Fusion(scores, baseline_ranks, predictor_ranks, np.lexsort((places, -scores)))


@dataclass(frozen=True, slots=True)
class Spread:
    """The lowered scores, how many selected memories each repeats, and the new order."""

    scores: Floats
    overlaps: RankArray
    order: RankArray


def factor(overlaps: ArrayLike) -> Floats:
    """Return the factor on a score with this many similar selected memories."""
    return np.asarray((1.0 - FLOOR) * DECAY ** np.asarray(overlaps, dtype=np.float64) + FLOOR)


def diversify(
    scores: ArrayLike,
    vectors: NDArray[np.float32],
    required: ArrayLike | None = None,
    together: Callable[[], NDArray[np.bool_]] | None = None,
) -> Spread:
    """Lower each score once, by the number of similar memories that are selected before it.

    Selection follows the lowered scores, so that a lowered memory no longer lowers others.
    Required memories are selected from the start and never lowered. Equal scores keep the given
    order. Vectors are unit rows; a zero row is not similar to any. A score that is not finite or
    below 0 counts as 0. `together` returns which pairs have helped together: those are not
    repetitions, however similar; it is called only if needed.
    """
    given = np.asarray(scores, dtype=np.float64)
    base = np.where(np.isfinite(given) & (given > 0.0), given, 0.0)
    fixed = np.zeros(base.size, bool) if required is None else np.asarray(required, dtype=bool)
    if base.shape != fixed.shape or base.ndim != 1 or len(vectors) != base.size:
        raise ValueError(
            f"{base.size} scores, {len(vectors)} vectors and {fixed.size} required flags"
        )
    # A broken vector gives NaN, which is not similar to any.
    with np.errstate(invalid="ignore", over="ignore"):
        similar = np.asarray(vectors @ vectors.T > SIMILAR_COSINE)
    np.fill_diagonal(similar, False)
    similar[:, fixed] = False
    if together is not None and similar.any():
        similar &= ~together()
    overlaps: RankArray = similar[fixed].sum(axis=0)
    # Only memories with a neighbour can be lowered or lower another.
    crowd = np.flatnonzero(similar.any(axis=1) & ~fixed)
    beside = similar[np.ix_(crowd, crowd)].astype(np.intp)
    left = factor(np.arange(base.size))
    count = overlaps[crowd]
    # A selected memory keeps its count.
    open_score = base[crowd]
    for _ in range(crowd.size):
        chosen = int((open_score * left[count]).argmax())
        open_score[chosen] = -1.0
        beside[:, chosen] = 0
        count += beside[chosen]
    overlaps[crowd] = count
    lowered = base * factor(overlaps)
    return Spread(lowered, overlaps, np.argsort(-lowered, kind="stable"))


def named_apart(openings: Sequence[str]) -> NDArray[np.bool_]:
    """Return which pairs of memories have different names, from how their texts begin.

    The first line of a document is its name, and so is a text without a space, such as a path.
    Claims have no names.
    """
    parts = [opening.partition("\n") for opening in openings]
    numbers = {title: number for number, (title, _, _) in enumerate(parts, start=1)}
    named = np.array(
        [numbers[title] if end or " " not in title else 0 for title, end, _ in parts], np.int64
    )
    return np.asarray((named[:, None] != named) & (named[:, None] > 0) & (named > 0))
