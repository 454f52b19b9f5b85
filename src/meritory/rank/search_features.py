"""The features of each candidate of a search, for the learned order of recall and of prompts.

As for session starts, one function serves and trains: what is recorded is what was scored.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meritory.rank.features import LARGEST, NEVER_LOG_DAYS, Layout
from meritory.rank.hybrid import Links, finite, fold_sessions, relative, unit
from meritory.rank.usage_history import Usage

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

SEARCH_FEATURE_VERSION = 2
SEARCH_FEATURES: tuple[str, ...] = (
    *("score", "own_score", "text", "cosine", "plain_cosine", "soft_match", "told"),
    *("session_words", "session_best", "neighbour", "log_length", "log_age_days", "source_weight"),
    *("is_same_project", "is_standing", "importance", "stored_usefulness"),
    *("log_useful_count", "log_days_since_useful", "frecency", "session_frecency", "never_used"),
)
SEARCH_LAYOUT = Layout(SEARCH_FEATURES, SEARCH_FEATURES.index("score"))
# The best of the formula that the learned order may move; of those behind few are ever relevant.
SEARCH_CANDIDATES = 64
# Recorded in half precision, and scored as recorded.
RECORDED = np.dtype("<f2")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFeatureInputs:
    """The facts of a search: arrays over all its hits, then arrays over the candidates alone."""

    score: Floats
    own_score: Floats
    text: ArrayLike
    # Centred and plain; not finite without a vector.
    cosine: ArrayLike
    plain_cosine: ArrayLike
    # How well the words match by meaning; 0 where that was not computed.
    soft_match: ArrayLike
    # The share of the memory's words that the question has, by meaning.
    told: ArrayLike
    length_chars: ArrayLike
    source_weight: ArrayLike
    links: Links
    # The candidates among these hits.
    at: Rows
    age_days: ArrayLike
    is_same_project: ArrayLike
    is_standing: ArrayLike
    importance: ArrayLike
    stored_usefulness: ArrayLike
    usage: Usage


def search_features(inputs: SearchFeatureInputs) -> Floats:
    """Return one row per candidate, one column per name in `SEARCH_FEATURES`; all finite."""
    links, at, usage = inputs.links, inputs.at, inputs.usage
    hits = {
        "score": inputs.score,
        "own_score": inputs.own_score,
        "text": relative(inputs.text),
        "cosine": finite(inputs.cosine),
        "plain_cosine": finite(inputs.plain_cosine),
        "soft_match": finite(np.broadcast_to(inputs.soft_match, len(inputs.score))),
        "told": finite(np.broadcast_to(inputs.told, len(inputs.score))),
        "session_words": unit(
            np.zeros(len(inputs.score)) if links.session_words is None else links.session_words
        ),
        "session_best": _session_best(inputs.own_score, links),
        "neighbour": _better_neighbour(inputs.own_score, links),
        "log_length": np.log1p(np.maximum(finite(inputs.length_chars), 0.0)),
        "source_weight": finite(inputs.source_weight),
    }
    columns: dict[str, ArrayLike] = {
        **{name: values[at] for name, values in hits.items()},
        "log_age_days": np.log1p(np.maximum(finite(inputs.age_days), 0.0)),
        "is_same_project": inputs.is_same_project,
        "is_standing": inputs.is_standing,
        "importance": inputs.importance,
        "stored_usefulness": inputs.stored_usefulness,
        "log_useful_count": np.log1p(usage.count),
        "log_days_since_useful": np.where(
            usage.count > 0.0, np.log1p(np.maximum(usage.days_since, 0.0)), NEVER_LOG_DAYS
        ),
        "frecency": usage.frecency,
        "session_frecency": np.log1p(_of_others(usage.frecency, links.session[at])),
        "never_used": usage.count == 0.0,
    }
    table = np.empty((len(at), len(SEARCH_FEATURES)))
    for index, name in enumerate(SEARCH_FEATURES):
        table[:, index] = columns[name]
    np.nan_to_num(table, copy=False, nan=0.0, posinf=LARGEST, neginf=-LARGEST)
    # What is scored is what is recorded: later training reads exactly these numbers.
    largest = float(np.finfo(RECORDED).max)
    return np.clip(table, -largest, largest).astype(RECORDED).astype(np.float64)


def _session_best(own: Floats, links: Links) -> Floats:
    """Return the best own score in the session of each memory, its own without a session."""
    count = int(links.session.max(initial=-1)) + 1
    if count == 0:
        return own
    return np.where(
        links.session >= 0, fold_sessions(own, links.session, count)[links.session], own
    )


def _of_others(values: ArrayLike, session: Rows) -> Floats:
    """Return the sum of the values of the other candidates of each one's session."""
    own = np.broadcast_to(np.asarray(values, np.float64), session.shape)
    sums = np.bincount(session + 1, own, minlength=1)
    return np.where(session >= 0, np.maximum(sums[session + 1] - own, 0.0), 0.0)


def _better_neighbour(own: Floats, links: Links) -> Floats:
    """Return the better own score of the turns before and after, 0 without one."""
    sides = (np.where(side >= 0, own[side], 0.0) for side in (links.previous_row, links.next_row))
    before, after = sides
    return np.maximum(before, after)
