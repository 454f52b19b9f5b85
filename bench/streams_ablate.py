"""Measure each kind of feature: train on recorded sessions with some columns left out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.streams_kept import EVERY, Kept, learned
from meritory.rank.features import FEATURES

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
# The composite is made from history and text. A model without them must not see it either.
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
    """Return NDCG@10 over all sessions and over the second half, for each set of columns."""
    return {name: _figures(kept, left_out) for name, left_out in LEFT_OUT.items()}


def _figures(kept: Sequence[Kept], left_out: Sequence[str]) -> tuple[float, float]:
    hidden = [FEATURES.index(name) for name in left_out]
    found = learned(kept, hidden, lambda number: number % EVERY == 0)
    return float(np.nanmean(found)), float(np.nanmean(found[len(found) // 2 :]))
