"""The linear scorer: features compared within a session, their weights, and the exact fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from meritory.domain.errors import InputError
from meritory.model.base import Floats, Gradient, RankingQuery, Rows, TrainingExample, cross_entropy
from meritory.rank.features import LARGEST, START_LAYOUT, Layout

COMPOSITE: Final = START_LAYOUT.baseline
# Values are clipped to this many standard deviations.
FARTHEST: Final = 5.0
# A column with a smaller spread differs by rounding only.
_LEAST_SPREAD: Final = 1e-9


def standardised(
    features: Floats, starts: Rows | None = None, layout: Layout = START_LAYOUT
) -> Floats:
    """Return z-scores of every column within a session; 0 for constant and hidden columns.

    All but the baseline's score are clipped; that one keeps its order. `starts` has the first row
    of each of several stacked sessions; none may be empty.
    """
    table = np.asarray(features, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] != layout.width:
        raise InputError(
            f"features of the shape {table.shape} do not fit",
            hint=f"give one row per candidate and {layout.width} columns",
        )
    if not len(table):
        return np.empty_like(table)
    begins = np.zeros(1, np.int64) if starts is None else starts
    counts = np.diff(begins, append=len(table))
    known = np.clip(np.nan_to_num(table, nan=0.0), -LARGEST, LARGEST)
    spread = np.maximum.reduceat(known, begins) - np.minimum.reduceat(known, begins)
    is_flat = spread <= _LEAST_SPREAD
    # The slightest difference in its score is a difference in the baseline's order.
    baseline = layout.baseline
    is_flat[:, baseline] = spread[:, baseline] == 0.0
    is_flat[:, list(layout.hidden)] = True
    away = known - np.repeat(np.add.reduceat(known, begins) / counts[:, None], counts, axis=0)
    deviation = np.sqrt(np.add.reduceat(away * away, begins) / counts[:, None])
    # A spread too small to be squared still has an order.
    deviation = np.where(deviation > 0.0, deviation, np.maximum(spread, np.finfo(float).tiny))
    scale = np.where(is_flat, 0.0, 1.0 / np.where(is_flat, 1.0, deviation))
    scores: Floats = away * np.repeat(scale, counts, axis=0)
    kept = scores[:, baseline].copy()
    np.clip(scores, -FARTHEST, FARTHEST, out=scores)
    scores[:, baseline] = kept
    return scores


KIND = "features"
# The strength of the prior; chosen on real streams of sessions (decision 14).
PRIOR_STRENGTH = 20.0
NEWTON_STEPS = 12
# Stop at smaller steps: another one would only add rounding. A smaller limit would let rounding
# decide about one more step, and so about the result.
_CLOSE_ENOUGH = 1e-8
_NOISE = 1e-12
_SHORTEST_STEP = 1e-3
# Scores are rounded to this many decimals. Further digits depend on the processor and on the order
# of the candidates: they must not decide a tie.
_SCORE_DECIMALS = 9


def baseline_weights(layout: Layout = START_LAYOUT) -> Floats:
    """Return the weights that rank exactly as the baseline."""
    weights = np.zeros(layout.width)
    weights[layout.baseline] = 1.0
    return weights


class Ranker:
    """score = z . weights, with the features z standardised within a session."""

    kind = KIND

    def __init__(self, params: Mapping[str, Floats], layout: Layout = START_LAYOUT) -> None:
        self._params = {name: np.asarray(value, np.float64) for name, value in params.items()}
        self._layout, width = layout, layout.width
        shapes = {name: value.shape for name, value in self._params.items()}
        if shapes != {"weights": (width,), "prior": (width,)}:
            raise InputError(
                f"parameters of the shapes {shapes} are no ranker of {width} features",
                hint="train it again",
            )

    @classmethod
    def untrained(cls, prior: Floats | None = None, layout: Layout = START_LAYOUT) -> Ranker:
        """Return a ranker with the weights of a prior; without one it ranks as the baseline."""
        weights = baseline_weights(layout) if prior is None else prior
        return cls({"weights": weights, "prior": weights}, layout)

    @property
    def params(self) -> Mapping[str, Floats]:
        return self._params

    @property
    def weights(self) -> Floats:
        """The weight of each feature."""
        return self._params["weights"]

    @property
    def prior(self) -> Floats:
        """The weight of each feature before any session of this user."""
        return self._params["prior"]

    def with_params(self, params: Mapping[str, Floats]) -> Ranker:
        return Ranker(params, self._layout)

    def score(self, query: RankingQuery) -> Floats:
        if not query.count:
            return np.empty(0)
        seen = standardised(query.features, layout=self._layout)
        return np.round(seen @ self.weights, _SCORE_DECIMALS)

    def loss_and_grads(self, lesson: TrainingExample) -> tuple[float, dict[str, Gradient]]:
        seen = standardised(lesson.query.features, layout=self._layout)
        loss, by_score = cross_entropy(seen @ self.weights, lesson.labels, lesson.weights)
        return loss * lesson.weight, {"weights": seen.T @ (by_score * lesson.weight)}

    def explained(self, features: Floats) -> Floats:
        """Return the share of each feature in the score of each candidate."""
        return np.asarray(standardised(features, layout=self._layout) * self.weights)


# -- the exact fit --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Stacked:
    """The candidates of many sessions, one row each."""

    seen: Floats
    # The first row of each session, and the session of each row.
    starts: Rows
    session: Rows
    # By row its share of the session's gain and how often it counts; by session its weight.
    target: Floats
    multiple: Floats
    weight: Floats


def fitted(
    lessons: Sequence[TrainingExample],
    prior: Floats,
    strength: float = PRIOR_STRENGTH,
    should_stop: Callable[[], bool] = lambda: False,
    layout: Layout = START_LAYOUT,
) -> tuple[Ranker, float]:
    """Return the ranker that fits the sessions best, and its mean loss; without sessions the prior.

    Sessions in which nothing helped say nothing about the order and are left out.
    """
    stacked = _stack(lessons, layout)
    weights = prior.copy()
    if stacked is None:
        return Ranker({"weights": weights, "prior": prior}, layout), 0.0
    loss, softmax = _objective(stacked, weights, prior, strength)
    by_row = stacked.weight[stacked.session]
    for _ in range(NEWTON_STEPS):
        gradient = stacked.seen.T @ (by_row * (softmax - stacked.target))
        gradient = gradient + strength * (weights - prior)
        means = np.add.reduceat(softmax[:, None] * stacked.seen, stacked.starts, axis=0)
        curvature = (stacked.seen * (by_row * softmax)[:, None]).T @ stacked.seen
        curvature -= (means * stacked.weight[:, None]).T @ means
        curvature[np.diag_indices(len(weights))] += strength
        step = np.linalg.solve(curvature, gradient)
        size = 1.0
        while True:
            # Far from the optimum a whole step may be too long.
            tried, again = _objective(stacked, weights - size * step, prior, strength)
            if tried <= loss + _NOISE * abs(loss) or size < _SHORTEST_STEP:
                break
            size /= 2.0
        weights, loss, softmax = weights - size * step, tried, again
        if np.abs(size * step).max() < _CLOSE_ENOUGH or should_stop():
            break
    mean = _objective(stacked, weights, prior, 0.0)[0] / float(stacked.weight.sum())
    return Ranker({"weights": weights, "prior": prior}, layout), mean


def loss_of(
    lessons: Sequence[TrainingExample], weights: Floats, layout: Layout = START_LAYOUT
) -> float:
    """Return the summed loss of given weights over sessions; 0 without any that tells orders."""
    stacked = _stack(lessons, layout)
    return 0.0 if stacked is None else _objective(stacked, weights, weights, 0.0)[0]


def _stack(lessons: Sequence[TrainingExample], layout: Layout) -> _Stacked | None:
    telling = [
        lesson
        for lesson in lessons
        if (np.maximum(lesson.labels, 0.0) * lesson.weights).sum() > 0.0
    ]
    if not telling:
        return None
    counted = [np.flatnonzero(lesson.weights > 0.0) for lesson in telling]
    counts = np.array([len(rows) for rows in counted])
    # Standardised within the whole session, as for scoring; all sessions at once.
    sizes = np.array([len(lesson.query.features) for lesson in telling])
    tables = np.concatenate([lesson.query.features for lesson in telling])
    begins = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    whole = np.split(standardised(tables, begins, layout), begins[1:])
    gains = [
        np.maximum(lesson.labels[rows], 0.0) * lesson.weights[rows]
        for lesson, rows in zip(telling, counted, strict=True)
    ]
    return _Stacked(
        seen=np.concatenate([seen[rows] for seen, rows in zip(whole, counted, strict=True)]),
        starts=np.concatenate([[0], np.cumsum(counts)[:-1]]),
        session=np.repeat(np.arange(len(telling)), counts),
        target=np.concatenate([gain / gain.sum() for gain in gains]),
        multiple=np.concatenate(
            [lesson.weights[rows] for lesson, rows in zip(telling, counted, strict=True)]
        ),
        weight=np.array([lesson.weight for lesson in telling]),
    )


def _objective(
    stacked: _Stacked, weights: Floats, prior: Floats, strength: float
) -> tuple[float, Floats]:
    """Return the loss of all sessions with the pull of the prior, and the softmax by row."""
    scores = stacked.seen @ weights
    highest = np.maximum.reduceat(scores, stacked.starts)
    raised = stacked.multiple * np.exp(scores - highest[stacked.session])
    total = np.add.reduceat(raised, stacked.starts)
    lists = np.log(total) + highest
    hit = np.add.reduceat(stacked.target * scores, stacked.starts)
    loss = float(stacked.weight @ (lists - hit))
    pull = 0.5 * strength * float(((weights - prior) ** 2).sum())
    return loss + pull, raised / total[stacked.session]
