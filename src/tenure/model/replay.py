"""What a way of learning makes of each session when it learns from all others."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import numpy as np

from tenure.model.base import Floats, Lesson, Model, Rows
from tenure.rank.fuse import RRF_K, ranks
from tenure.rank.influence import Margins, compare, no_margins

FOLDS = 5


def crossed(
    keys: Sequence[str],
    lessons: Sequence[Lesson],
    learn: Callable[[Sequence[Lesson]], Model],
) -> list[Floats]:
    """The scores of every session's candidates, by a model that never saw it.

    The sessions are dealt into five parts by their keys; each part is scored by a model that
    learned from the other four.
    """
    parts = np.array([zlib.crc32(key.encode()) % FOLDS for key in keys], np.int64)
    found: dict[int, Floats] = {}
    for part in np.unique(parts).tolist():
        model = learn([lessons[place] for place in np.flatnonzero(parts != part).tolist()])
        for place in np.flatnonzero(parts == part).tolist():
            found[place] = model.score(lessons[place].query)
    return [found[place] for place in range(len(lessons))]


def replayed(
    keys: Sequence[str],
    lessons: Sequence[Lesson],
    baseline_ranks: Sequence[Rows],
    learn: Callable[[Sequence[Lesson]], Model],
    k: int = RRF_K,
) -> Margins:
    """By session and alpha what the fusion gains over the baseline, with a model that never saw it.

    One in which nothing helped says nothing.
    """
    outcomes = []
    scored = zip(crossed(keys, lessons, learn), lessons, baseline_ranks, strict=True)
    for scores, lesson, baseline in scored:
        judged = np.flatnonzero(lesson.weights >= 1.0)
        predicted = ranks(scores, baseline)
        outcome = compare(baseline[judged], predicted[judged], lesson.labels[judged], k)
        if outcome is not None:
            outcomes.append(outcome)
    if not outcomes:
        return no_margins()
    return Margins(
        np.array([one.ndcg for one in outcomes]), np.array([one.log_rank for one in outcomes])
    )
