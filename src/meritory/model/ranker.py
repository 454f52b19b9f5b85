"""Features as the scorers see them: each column compared with the other candidates at hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from meritory.domain.errors import InputError
from meritory.model.base import Floats, Gradient, RankingQuery, Rows, TrainingExample, cross_entropy
from meritory.rank.features import EXPOSURE, FEATURES, LARGEST

COMPOSITE: Final = FEATURES.index("composite")
# Values further out say no more than this many standard deviations.
FARTHEST: Final = 5.0
# Columns that spread less than this differ by rounding alone.
_LEAST_SPREAD: Final = 1e-9
# Who learns from how often a memory was shown learns the old ranking, not what helps.
_HIDDEN: Final = sorted(FEATURES.index(name) for name in EXPOSURE)


def standardised(features: Floats, starts: Rows | None = None) -> Floats:
    """Z-scores of every column within a session, 0 for constant and for exposure columns.

    All are clipped but the composite's, whose order is kept. `starts` says at which row
    each of several stacked sessions begins; none of them may be empty.
    """
    table = np.asarray(features, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] != len(FEATURES):
        raise InputError(
            f"features of the shape {table.shape} do not fit",
            hint=f"give one row per candidate and {len(FEATURES)} columns",
        )
    if not len(table):
        return np.empty_like(table)
    begins = np.zeros(1, np.int64) if starts is None else starts
    counts = np.diff(begins, append=len(table))
    known = np.clip(np.nan_to_num(table, nan=0.0), -LARGEST, LARGEST)
    spread = np.maximum.reduceat(known, begins) - np.minimum.reduceat(known, begins)
    is_flat = spread <= _LEAST_SPREAD
    # The slightest difference in the composite is a difference in the baseline's order.
    is_flat[:, COMPOSITE] = spread[:, COMPOSITE] == 0.0
    is_flat[:, _HIDDEN] = True
    away = known - np.repeat(np.add.reduceat(known, begins) / counts[:, None], counts, axis=0)
    deviation = np.sqrt(np.add.reduceat(away * away, begins) / counts[:, None])
    # A spread too small to be squared still has an order.
    deviation = np.where(deviation > 0.0, deviation, np.maximum(spread, np.finfo(float).tiny))
    scale = np.where(is_flat, 0.0, 1.0 / np.where(is_flat, 1.0, deviation))
    found: Floats = away * np.repeat(scale, counts, axis=0)
    composite = found[:, COMPOSITE].copy()
    np.clip(found, -FARTHEST, FARTHEST, out=found)
    found[:, COMPOSITE] = composite
    return found


KIND = "features"
# How strongly weights are held to what was believed before; chosen on real streams (decision 14).
PRIOR_STRENGTH = 20.0
NEWTON_STEPS = 12
# Where steps get this small, another one would only add the noise of sums; short of that, the
# noise could decide whether one more is taken, and so what is found.
_CLOSE_ENOUGH = 1e-8
_NOISE = 1e-12
_SHORTEST_STEP = 1e-3
# Scores are rounded to this many decimals. The rest is the noise of sums, which depends on the
# processor and on a candidate's place among the others: it must not decide a tie.
_SCORE_DECIMALS = 9


def baseline_weights() -> Floats:
    """The weights that rank exactly as the baseline."""
    weights = np.zeros(len(FEATURES))
    weights[COMPOSITE] = 1.0
    return weights


class Ranker:
    """score = z . weights + tanh(z . hidden_in) . hidden_out, z being features within a session."""

    kind = KIND

    def __init__(self, params: Mapping[str, Floats]) -> None:
        self._params = {name: np.asarray(value, np.float64) for name, value in params.items()}
        width = len(FEATURES)
        shapes = {name: value.shape for name, value in self._params.items()}
        units = shapes.get("hidden_out", (0,))[0]
        fitting: dict[str, tuple[int, ...]] = {"weights": (width,), "prior": (width,)}
        if units:
            fitting |= {"hidden_in": (width, units), "hidden_out": (units,)}
        if shapes != fitting:
            raise InputError(
                f"parameters of the shapes {shapes} are no ranker of {width} features",
                hint="train it again",
            )

    @classmethod
    def untrained(cls, prior: Floats | None = None) -> Ranker:
        """One that ranks as believed before any session; exactly as the baseline without that."""
        believed = baseline_weights() if prior is None else prior
        return cls({"weights": believed, "prior": believed})

    @property
    def params(self) -> Mapping[str, Floats]:
        return self._params

    @property
    def weights(self) -> Floats:
        """What each feature counts."""
        return self._params["weights"]

    @property
    def prior(self) -> Floats:
        """What each feature counted before any session of this user."""
        return self._params["prior"]

    def with_params(self, params: Mapping[str, Floats]) -> Ranker:
        return Ranker(params)

    def with_hidden(self, units: int, rng: np.random.Generator) -> Ranker:
        """With a hidden layer that says nothing yet."""
        size = (len(FEATURES), units)
        hidden = rng.normal(0.0, 1.0 / np.sqrt(len(FEATURES)), size)
        return Ranker({**self._params, "hidden_in": hidden, "hidden_out": np.zeros(units)})

    def score(self, query: RankingQuery) -> Floats:
        if not query.count:
            return np.empty(0)
        return np.round(self._summed(standardised(query.features)), _SCORE_DECIMALS)

    def _summed(self, seen: Floats) -> Floats:
        scores: Floats = seen @ self.weights
        if "hidden_out" in self._params:
            scores = scores + self._raised(seen) @ self._params["hidden_out"]
        return scores

    def loss_and_grads(self, lesson: TrainingExample) -> tuple[float, dict[str, Gradient]]:
        seen = standardised(lesson.query.features)
        loss, by_score = cross_entropy(self._summed(seen), lesson.labels, lesson.weights)
        by_score = by_score * lesson.weight
        found: dict[str, Gradient] = {"weights": seen.T @ by_score}
        if "hidden_out" in self._params:
            raised = self._raised(seen)
            slope = (1.0 - raised**2) * np.outer(by_score, self._params["hidden_out"])
            found |= {"hidden_in": seen.T @ slope, "hidden_out": raised.T @ by_score}
        return loss * lesson.weight, found

    def _raised(self, seen: Floats) -> Floats:
        return np.asarray(np.tanh(seen @ self._params["hidden_in"]))

    def explained(self, features: Floats) -> Floats:
        """What each feature adds to each candidate's score, without the hidden layer."""
        return np.asarray(standardised(features) * self.weights)


# -- the exact fit --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Stacked:
    """All candidates of many sessions under each other."""

    seen: Floats
    # Where each session begins, and the session of each row.
    starts: Rows
    session: Rows
    # The share of its session's gain; how often the row stands in its list; by session its weight.
    target: Floats
    multiple: Floats
    weight: Floats


def fitted(
    lessons: Sequence[TrainingExample],
    prior: Floats,
    strength: float = PRIOR_STRENGTH,
    should_stop: Callable[[], bool] = lambda: False,
) -> tuple[Ranker, float]:
    """The ranker that explains the sessions best, and its mean loss; no session leaves the prior.

    Sessions in which nothing helped say nothing about an order and are left out.
    """
    stacked = _stack(lessons)
    weights = prior.copy()
    if stacked is None:
        return Ranker({"weights": weights, "prior": prior}), 0.0
    loss, found = _objective(stacked, weights, prior, strength)
    for _ in range(NEWTON_STEPS):
        step = _newton_step(stacked, found, strength, weights - prior)
        size = 1.0
        while True:
            # Far from the optimum a whole step may be too long.
            tried, again = _objective(stacked, weights - size * step, prior, strength)
            if tried <= loss + _NOISE * abs(loss) or size < _SHORTEST_STEP:
                break
            size /= 2.0
        weights, loss, found = weights - size * step, tried, again
        if np.abs(size * step).max() < _CLOSE_ENOUGH or should_stop():
            break
    mean = _objective(stacked, weights, prior, 0.0)[0] / float(stacked.weight.sum())
    return Ranker({"weights": weights, "prior": prior}), mean


def _stack(lessons: Sequence[TrainingExample]) -> _Stacked | None:
    telling = [one for one in lessons if (np.maximum(one.labels, 0.0) * one.weights).sum() > 0.0]
    if not telling:
        return None
    counted = [np.flatnonzero(one.weights > 0.0) for one in telling]
    counts = np.array([len(rows) for rows in counted])
    # Within their whole session, as they are when they are scored.
    whole = [standardised(one.query.features) for one in telling]
    gains = [
        np.maximum(one.labels[rows], 0.0) * one.weights[rows]
        for one, rows in zip(telling, counted, strict=True)
    ]
    return _Stacked(
        seen=np.concatenate([seen[rows] for seen, rows in zip(whole, counted, strict=True)]),
        starts=np.concatenate([[0], np.cumsum(counts)[:-1]]),
        session=np.repeat(np.arange(len(telling)), counts),
        target=np.concatenate([gain / gain.sum() for gain in gains]),
        multiple=np.concatenate(
            [one.weights[rows] for one, rows in zip(telling, counted, strict=True)]
        ),
        weight=np.array([one.weight for one in telling]),
    )


def _objective(
    stacked: _Stacked, weights: Floats, prior: Floats, strength: float
) -> tuple[float, Floats]:
    """The loss of all sessions with the prior's pull, and each row's share of its softmax."""
    scores = stacked.seen @ weights
    highest = np.maximum.reduceat(scores, stacked.starts)
    raised = stacked.multiple * np.exp(scores - highest[stacked.session])
    total = np.add.reduceat(raised, stacked.starts)
    lists = np.log(total) + highest
    hit = np.add.reduceat(stacked.target * scores, stacked.starts)
    loss = float(stacked.weight @ (lists - hit))
    pull = 0.5 * strength * float(((weights - prior) ** 2).sum())
    return loss + pull, raised / total[stacked.session]


def _newton_step(stacked: _Stacked, found: Floats, strength: float, moved: Floats) -> Floats:
    by_row = stacked.weight[stacked.session]
    gradient = stacked.seen.T @ (by_row * (found - stacked.target)) + strength * moved
    means = np.add.reduceat(found[:, None] * stacked.seen, stacked.starts, axis=0)
    curvature = (stacked.seen * (by_row * found)[:, None]).T @ stacked.seen
    curvature -= (means * stacked.weight[:, None]).T @ means
    curvature[np.diag_indices(len(moved))] += strength
    return np.asarray(np.linalg.solve(curvature, gradient))
