"""A session as it was recorded, for models that the bench trains itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.streams_rows import table
from meritory.domain.session import Candidate
from meritory.model import ranker
from meritory.model.base import RankingQuery, TrainingExample

DEPTH = 10
# The newest sessions that a model is trained on.
SESSIONS = 1_000
# Training after every session is cheap for so many sessions; later it follows every tenth.
EVERY_SESSION_UNTIL, EVERY = 200, 10

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Kept:
    """The candidates of one session with their features, true gains and labels."""

    features: Floats
    baseline_ranks: NDArray[np.int64]
    gains: Floats
    # The library's own labels, -1..1; NaN for a candidate without one.
    labels: Floats
    # The discounted gain of the best order possible.
    ideal: float
    # Which candidates were shown.
    shown: NDArray[np.bool_]


def keep(
    served: Sequence[Candidate], gains: Mapping[str, float], labels: Mapping[str, float]
) -> Kept:
    """Return a session for later training."""
    best = np.sort(list(gains.values()) or [0.0])[::-1][:DEPTH]
    return Kept(
        features=table(served),
        baseline_ranks=np.array([one.baseline_rank or 0 for one in served], np.int64),
        gains=np.array([gains.get(one.memory_id, 0.0) for one in served]),
        labels=np.array([labels.get(one.memory_id, np.nan) for one in served]),
        ideal=float((best / np.log2(np.arange(len(best)) + 2.0)).sum()),
        shown=np.array([one.was_injected for one in served], np.bool_),
    )


def lesson(kept: Kept, features: Floats | None = None) -> TrainingExample:
    """Return a session as a lesson; candidates without a label do not count."""
    is_known = np.isfinite(kept.labels)
    return TrainingExample(
        query=RankingQuery(features=kept.features if features is None else features),
        labels=np.where(is_known, kept.labels, 0.0),
        weights=is_known.astype(np.float64),
    )


def learned(
    kept: Sequence[Kept], hidden: Sequence[int] = (), is_due: Callable[[int], bool] | None = None
) -> list[float]:
    """Return NDCG@10 of a linear model that is trained online on what the sessions before say.

    It starts as the baseline: the weight of the composite is 1, all others are 0. `hidden` are
    columns that the model does not see; `is_due` says after how many sessions it is trained.
    """
    columns = list(hidden)
    prior = ranker.baseline_weights()
    prior[columns] = 0.0
    model, lessons = ranker.Ranker.untrained(prior), list[TrainingExample]()
    found: list[float] = []
    for number, session in enumerate(kept, start=1):
        features = session.features.copy()
        features[:, columns] = 0.0
        found.append(_ndcg(session, model.score(RankingQuery(features=features))))
        one = lesson(session, features)
        if (one.labels > 0.0).any():
            lessons.append(one)
        if (is_due or is_often)(number):
            model, _ = ranker.fitted(lessons[-SESSIONS:], prior)
    return found


def is_often(number: int) -> bool:
    """Whether a cheap model is trained after so many sessions."""
    return number <= EVERY_SESSION_UNTIL or number % EVERY == 0


def _ndcg(session: Kept, values: Floats) -> float:
    if session.ideal <= 0.0:
        return float("nan")
    order = np.lexsort((session.baseline_ranks, -values))[:DEPTH]
    gained = session.gains[order] / np.log2(np.arange(len(order)) + 2.0)
    return float(gained.sum()) / session.ideal
