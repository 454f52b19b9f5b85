"""What a way of learning makes of each session when it learns from all others."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import numpy as np

from tenure.model.base import Floats, Lesson, Model, Rows
from tenure.rank.fuse import RRF_K
from tenure.rank.influence import Margins, compare, no_margins

FOLDS = 5


def replayed(
    keys: Sequence[str],
    lessons: Sequence[Lesson],
    baseline_ranks: Sequence[Rows],
    learn: Callable[[Sequence[Lesson]], Model],
    k: int = RRF_K,
) -> Margins:
    """By session and alpha what the fusion gains over the baseline, with a model that never saw it.

    The sessions are dealt into five parts by their keys; each part is ranked by a model that
    learned from the other four. One in which nothing helped says nothing.
    """
    parts = np.array([zlib.crc32(key.encode()) % FOLDS for key in keys], np.int64)
    found: dict[int, tuple[tuple[float, ...], tuple[float, ...]]] = {}
    for part in range(FOLDS):
        asked = np.flatnonzero(parts == part)
        if not len(asked):
            continue
        model = learn([lessons[place] for place in np.flatnonzero(parts != part).tolist()])
        for place in asked.tolist():
            outcome = _outcome(model, lessons[place], baseline_ranks[place], k)
            if outcome is not None:
                found[place] = outcome
    if not found:
        return no_margins()
    rows = [found[place] for place in sorted(found)]
    return Margins(np.array([row[0] for row in rows]), np.array([row[1] for row in rows]))


def _outcome(
    model: Model, lesson: Lesson, baseline: Rows, k: int
) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    judged = np.flatnonzero(lesson.weights >= 1.0)
    ranks = _ranks(model.score(lesson.query), baseline)
    outcome = compare(baseline[judged], ranks[judged], lesson.labels[judged], k)
    return None if outcome is None else (outcome.ndcg, outcome.log_rank)


def _ranks(scores: Floats, baseline: Rows) -> Rows:
    """Ranks from 1, equal scores in the baseline's order."""
    order = np.lexsort((baseline, -scores))
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(1, len(order) + 1)
    return ranks
