"""Fusion of the baseline's and the predictor's ranking by reciprocal ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meritory.domain.policy import RRF_K

Floats = NDArray[np.float64]
RankArray = NDArray[np.intp]


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
