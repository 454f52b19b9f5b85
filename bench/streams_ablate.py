"""What each kind of feature is worth: the learner over recorded sessions, some columns left out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.streams_replay import DEPTH, Kept
from tenure.model import ranker
from tenure.model.base import Lesson, Query
from tenure.rank.features import FEATURES

EVERY = 10
SESSIONS = 1_000
HISTORY = (
    *("log_days_since_useful", "log_useful_count", "log_days_since_useful_here"),
    *("log_useful_count_here", "frecency", "used_in_previous", "share_of_recent", "never_used"),
    *("recency", "usefulness", "stored_usefulness"),
)
ASSOCIATION = ("association", "context_cosine", "co_use", "word_association", "word_overlap")
TEXT = ("cosine", "centred_cosine", "text", "hybrid", "relevance")
TIME = (
    *("log_age_days", "hour_sin", "hour_cos", "weekday_sin", "weekday_cos", "month_sin"),
    *("month_cos", "log_gap_hours", "effective"),
)
# The composite is fed by history and text, so what leaves those out leaves it out as well.
_COMPOSITE = ("composite",)
LEFT_OUT: dict[str, Sequence[str]] = {
    "all features": (),
    "without history": (*HISTORY, *ASSOCIATION, *_COMPOSITE),
    "without association": (*ASSOCIATION, "usefulness", *_COMPOSITE),
    "without shared words": ("word_association", "word_overlap"),
    "without text": (*TEXT, *_COMPOSITE),
    "without time": TIME,
}


def ablations(kept: Sequence[Kept]) -> dict[str, tuple[float, float]]:
    """NDCG@10 over all sessions and over the second half, from the baseline's weights on."""
    return {name: _learned(kept, left_out) for name, left_out in LEFT_OUT.items()}


def _learned(kept: Sequence[Kept], left_out: Sequence[str]) -> tuple[float, float]:
    hidden = [FEATURES.index(name) for name in left_out]
    prior = ranker.baseline_weights()
    prior[hidden] = 0.0
    model, lessons = ranker.Ranker.untrained(prior), list[Lesson]()
    found: list[float] = []
    for number, session in enumerate(kept, start=1):
        features = session.features.copy()
        features[:, hidden] = 0.0
        query = Query(features=features)
        order = np.lexsort((session.baseline_ranks, -model.score(query)))[:DEPTH]
        gained = session.gains[order] / np.log2(np.arange(len(order)) + 2.0)
        found.append(float(gained.sum()) / session.ideal if session.ideal > 0.0 else np.nan)
        if session.told.any():
            weights = np.ones(len(session.told))
            lessons.append(Lesson(query=query, labels=session.told / 2.0, weights=weights))
        if number % EVERY == 0:
            model, _ = ranker.fitted(lessons[-SESSIONS:], prior)
    half = len(found) // 2
    return float(np.nanmean(found)), float(np.nanmean(found[half:]))
