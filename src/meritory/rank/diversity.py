"""Topic diversity: lowers the scores of memories that repeat selected ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
IndexArray = NDArray[np.intp]

SIMILAR_COSINE = 0.85
DECAY = 0.5
FLOOR = 0.1


@dataclass(frozen=True, slots=True)
class Spread:
    """The lowered scores, how many selected memories each repeats, and the new order."""

    scores: Floats
    overlaps: IndexArray
    order: IndexArray


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
    similar = _similar(vectors)
    similar[:, fixed] = False
    if together is not None and similar.any():
        similar &= ~together()
    overlaps = _overlaps(base, similar, fixed)
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


def _similar(vectors: NDArray[np.float32]) -> NDArray[np.bool_]:
    # A broken vector gives NaN, which is not similar to any.
    with np.errstate(invalid="ignore", over="ignore"):
        similar = np.asarray(vectors @ vectors.T > SIMILAR_COSINE)
    np.fill_diagonal(similar, False)
    return similar


def _overlaps(base: Floats, similar: NDArray[np.bool_], fixed: NDArray[np.bool_]) -> IndexArray:
    overlaps: IndexArray = similar[fixed].sum(axis=0)
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
    return overlaps
