"""Gradient training by Adam, and scores of each session by a model trained without it."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np

from meritory.model.base import Floats, Gradient, Model, Rows, SparseRows, TrainingExample

FOLDS = 5


def crossed(
    keys: Sequence[str],
    lessons: Sequence[TrainingExample],
    learn: Callable[[Sequence[TrainingExample]], Model],
) -> list[Floats]:
    """Return the scores of the candidates of every session, by a model trained without it.

    The sessions are dealt into five parts by their keys; each part is scored by a model that was
    trained on the other four.
    """
    parts = np.array([zlib.crc32(key.encode()) % FOLDS for key in keys], np.int64)
    scores: dict[int, Floats] = {}
    for part in np.unique(parts).tolist():
        model = learn([lessons[index] for index in np.flatnonzero(parts != part).tolist()])
        for index in np.flatnonzero(parts == part).tolist():
            scores[index] = model.score(lessons[index].query)
    return [scores[index] for index in range(len(lessons))]


# Adam's decay rates of the mean gradient and of its square.
_SLOPE_KEPT: Final = 0.9
_SQUARE_KEPT: Final = 0.999
_TINY: Final = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class FitPlan:
    """The parameters of a training."""

    epochs: int = 10
    learning_rate: float = 0.01
    # How strongly parameters are pulled back to their start.
    pull: float = 1.0
    batch_count: int = 20
    # An epoch goes through this many of the newest sessions; older ones are only replayed.
    recent_count: int = 500
    # The share of each batch that is taken from the best sessions.
    replay_share: float = 0.2
    replay_count: int = 20
    # The share of vectors that are left out, so that words are trained as well. Without that a
    # memory without a vector would be scored by untrained words.
    hidden_share: float = 0.1


class BatchModel(Model, Protocol):
    """A model that is trained on many sessions at once."""

    def with_params(self, params: Mapping[str, Floats]) -> BatchModel:
        """Return the same scorer with other parameters of the same shapes."""

    def loss_and_grads_of(
        self, lessons: Sequence[TrainingExample]
    ) -> tuple[float, dict[str, Gradient]]:
        """Return the loss and the gradients, each summed over these sessions."""


def fit(
    model: BatchModel,
    lessons: Sequence[TrainingExample],
    plan: FitPlan,
    rng: np.random.Generator,
    should_stop: Callable[[], bool],
) -> tuple[BatchModel, list[float]]:
    """Train a copy of the model on sessions, oldest first; return it and the loss of each epoch.

    If the time is up, the model has the steps until then. If a loss or a gradient is not finite,
    the last loss is NaN and the model is the one before training.
    """
    usable = [lesson for lesson in lessons if _says_something(lesson)]
    adam, trained = Adam(model.params, plan), model
    losses: list[float] = []
    for _ in range(plan.epochs if usable else 0):
        total, count, finished = 0.0, 0, losses
        for batch in _batches(usable, plan, rng):
            if should_stop():
                return trained, losses
            loss, grads = trained.loss_and_grads_of(batch)
            arrays = [g.values if isinstance(g, SparseRows) else g for g in grads.values()]
            if not (math.isfinite(loss) and all(np.isfinite(array).all() for array in arrays)):
                return model, [*finished, math.nan]
            adam.step(grads, len(batch))
            total, count = total + loss, count + len(batch)
            losses = [*finished, total / count]
            trained = model.with_params(adam.params)
    return trained, losses


class Adam:
    """Adam on a copy of some parameters, pulled back to their start.

    Of a table only the rows in a gradient and their moments change: each row counts its own steps
    and moves independently of the others.
    """

    def __init__(self, params: Mapping[str, Floats], plan: FitPlan) -> None:
        self.params: dict[str, Floats] = {name: value.copy() for name, value in params.items()}
        self._start = params
        self._rate = plan.learning_rate
        self._pull = plan.learning_rate * plan.pull
        self._slope = {name: np.zeros_like(value) for name, value in params.items()}
        self._square = {name: np.zeros_like(value) for name, value in params.items()}
        self._steps = {name: np.zeros(len(value)) for name, value in params.items()}

    def step(self, grads: Mapping[str, Gradient], count: int) -> None:
        """Make one step along gradients that are sums over this many sessions."""
        for name, grad in grads.items():
            if isinstance(grad, SparseRows):
                self._move(name, grad.rows, grad.values / count)
            else:
                self._move(name, slice(None), grad / count)

    def _move(self, name: str, rows: slice | Rows, grad: Floats) -> None:
        self._steps[name][rows] += 1.0
        taken = self._steps[name][rows].reshape(-1, *(1,) * (grad.ndim - 1))
        # Views if all rows move, copies if some do.
        slope, square = self._slope[name][rows], self._square[name][rows]
        slope += (1.0 - _SLOPE_KEPT) * (grad - slope)
        square += (1.0 - _SQUARE_KEPT) * (grad * grad - square)
        self._slope[name][rows], self._square[name][rows] = slope, square
        way = np.sqrt(square / (1.0 - _SQUARE_KEPT**taken))
        way += _TINY
        np.divide(slope * (self._rate / (1.0 - _SLOPE_KEPT**taken)), way, out=way)
        value = self.params[name][rows]
        way += self._pull * (value - self._start[name][rows])
        self.params[name][rows] = value - way


def _says_something(lesson: TrainingExample) -> bool:
    labels = lesson.labels[lesson.weights > 0.0]
    return len(labels) > 0 and bool(np.ptp(labels) != 0.0) and lesson.weight > 0.0


def _gain(lesson: TrainingExample) -> float:
    return float(np.maximum(lesson.labels, 0.0) @ lesson.weights)


def _batches(
    lessons: Sequence[TrainingExample], plan: FitPlan, rng: np.random.Generator
) -> Iterator[list[TrainingExample]]:
    """Yield the recent sessions once in random order, each batch with its share of the best."""
    recent = lessons[-plan.recent_count :]
    best = sorted(lessons, key=_gain, reverse=True)[: plan.replay_count]
    fresh = max(1, round(plan.batch_count * (1.0 - plan.replay_share)))
    order = rng.permutation(len(recent))
    for start in range(0, len(recent), fresh):
        chosen = [recent[index] for index in order[start : start + fresh]]
        again = round(len(chosen) * plan.replay_share / (1.0 - plan.replay_share))
        replayed = rng.choice(len(best), min(again, len(best)), replace=False)
        drawn = chosen + [best[index] for index in replayed]
        yield [_with_hidden(lesson, plan.hidden_share, rng) for lesson in drawn]


def _with_hidden(
    lesson: TrainingExample, share: float, rng: np.random.Generator
) -> TrainingExample:
    """Return the session with some vectors left out, if its words are known."""
    query = lesson.query
    if query.vectors is None or not query.words:
        return lesson
    is_shown = rng.random(query.count) >= share
    vectors = np.where(is_shown[:, None], query.vectors, np.float32(0.0))
    return replace(lesson, query=replace(query, vectors=vectors))
