"""What a way of learning makes of each session when it learns from all others."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, runtime_checkable

import numpy as np

from meritory.model.base import Floats, Gradient, Model, Rows, SparseRows, TrainingExample

FOLDS = 5


def crossed(
    keys: Sequence[str],
    lessons: Sequence[TrainingExample],
    learn: Callable[[Sequence[TrainingExample]], Model],
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


# Adam's memory of the slope and of its square.
_SLOPE_KEPT: Final = 0.9
_SQUARE_KEPT: Final = 0.999
_TINY: Final = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class FitPlan:
    """How to train."""

    epochs: int = 10
    learning_rate: float = 0.01
    # How strongly parameters are pulled back to where they started.
    pull: float = 1.0
    batch_count: int = 20
    # The newest this many are gone through; older ones come back as replay only.
    recent_count: int = 500
    # Of each batch, taken from the best sessions.
    replay_share: float = 0.2
    replay_count: int = 20
    # Of the candidates' vectors, left out so that their words are learned from as well. Without
    # that a memory that has no vector yet would be scored by words that were never learned.
    hidden_share: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """What came of a training."""

    model: Model
    # The mean over the sessions of each epoch; a last one that is not finite when it went astray.
    losses: tuple[float, ...] = ()
    # The finished ones.
    epochs: int = 0
    samples_used: int
    # They say nothing: all their labels are equal.
    samples_skipped: int
    # The time was up; the model is what it had become by then.
    stopped_early: bool = False
    # A loss or a gradient was not finite; the model is the one from before.
    diverged: bool = False

    @property
    def loss(self) -> float:
        """The last epoch's, 0 where there was nothing to learn from."""
        return self.losses[-1] if self.losses else 0.0


@runtime_checkable
class Batched(Protocol):
    """A model that takes many sessions at once, quicker than one by one."""

    def loss_and_grads_of(
        self, lessons: Sequence[TrainingExample]
    ) -> tuple[float, dict[str, Gradient]]:
        """The loss and the gradients, each summed over these sessions."""


def fit(
    model: Model,
    lessons: Sequence[TrainingExample],
    plan: FitPlan,
    rng: np.random.Generator,
    should_stop: Callable[[], bool],
) -> Fitted:
    """Train a copy of the model on sessions, given from the oldest to the newest."""
    usable = [lesson for lesson in lessons if _says_something(lesson)]
    adam = Adam(model.params, plan)
    skipped = len(lessons) - len(usable)
    done = Fitted(model=model, samples_used=len(usable), samples_skipped=skipped)
    for epoch in range(1, plan.epochs + 1 if usable else 1):
        total, count = 0.0, 0
        finished = done.losses
        for batch in _batches(usable, plan, rng):
            if should_stop():
                return replace(done, stopped_early=True)
            loss, grads = _loss_and_grads(done.model, batch)
            if not (math.isfinite(loss) and all(map(_is_finite, grads.values()))):
                return replace(done, model=model, losses=(*finished, math.nan), diverged=True)
            adam.step(grads, len(batch))
            total, count = total + loss, count + len(batch)
            losses = (*finished, total / count)
            done = replace(done, model=model.with_params(adam.params), losses=losses)
        done = replace(done, epochs=epoch)
    return done


class Adam:
    """Adam on a copy of some parameters, held near where they started.

    Of a table only the rows that a gradient names are touched, their moments included: each row
    counts its own steps and moves as if there were no other.
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
        """Go one step down gradients that are sums over this many sessions."""
        for name, grad in grads.items():
            if isinstance(grad, SparseRows):
                self._move(name, grad.rows, grad.values / count)
            else:
                self._move(name, slice(None), grad / count)

    def _move(self, name: str, rows: slice | Rows, grad: Floats) -> None:
        self._steps[name][rows] += 1.0
        taken = self._steps[name][rows].reshape(-1, *(1,) * (grad.ndim - 1))
        # Both are views of what is kept where all rows move, copies where some do.
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
    """One pass over the recent sessions in random order, each batch with its share of the best."""
    recent = lessons[-plan.recent_count :]
    best = sorted(lessons, key=_gain, reverse=True)[: plan.replay_count]
    fresh = max(1, round(plan.batch_count * (1.0 - plan.replay_share)))
    order = rng.permutation(len(recent))
    for start in range(0, len(recent), fresh):
        chosen = [recent[place] for place in order[start : start + fresh]]
        again = round(len(chosen) * plan.replay_share / (1.0 - plan.replay_share))
        replayed = rng.choice(len(best), min(again, len(best)), replace=False)
        drawn = chosen + [best[place] for place in replayed]
        yield [_with_hidden(lesson, plan.hidden_share, rng) for lesson in drawn]


def _with_hidden(
    lesson: TrainingExample, share: float, rng: np.random.Generator
) -> TrainingExample:
    """The session with some candidates known by their words alone, if words are known."""
    query = lesson.query
    if query.vectors is None or not query.words:
        return lesson
    is_shown = rng.random(query.count) >= share
    vectors = np.where(is_shown[:, None], query.vectors, np.float32(0.0))
    return replace(lesson, query=replace(query, vectors=vectors))


def _loss_and_grads(
    model: Model, lessons: list[TrainingExample]
) -> tuple[float, dict[str, Gradient]]:
    if isinstance(model, Batched):
        return model.loss_and_grads_of(lessons)
    total, sums = model.loss_and_grads(lessons[0])
    for lesson in lessons[1:]:
        loss, grads = model.loss_and_grads(lesson)
        total += loss
        sums = {name: _sum(sums[name], grad) for name, grad in grads.items()}
    return total, sums


def _sum(one: Gradient, other: Gradient) -> Gradient:
    if isinstance(one, SparseRows) and isinstance(other, SparseRows):
        rows, place = np.unique(np.concatenate([one.rows, other.rows]), return_inverse=True)
        values = np.zeros((len(rows), *one.values.shape[1:]))
        np.add.at(values, place, np.concatenate([one.values, other.values]))
        return SparseRows(rows, values)
    if isinstance(one, SparseRows) or isinstance(other, SparseRows):
        raise TypeError("a gradient is sparse for every session or for none")
    return one + other


def _is_finite(grad: Gradient) -> bool:
    values = grad.values if isinstance(grad, SparseRows) else grad
    return bool(np.isfinite(values).all())
