"""Fit the weights of the judge: `python -m bench.judge --fit`.

The chance that a memory helped is `limit / (1 + exp(-(bias + weights · signals)))`. The fit finds
the most likely bias and weights by Fisher scoring, with a penalty on the weights of the
standardised signals. Documents with a title are fitted on plain coding sessions, those without on
masked ones, claims on RealMem.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from meritory.text.judge import evidence
from meritory.text.judge.evidence import SIGNALS, Weights

# The penalty of documents and of claims, of which there are more.
DOCUMENT_PENALTY: Final = 2.0
CLAIM_PENALTY: Final = 3.0
# Largest chances of a claim that the fit tries.
CLAIM_LIMITS: Final = (0.6, 0.7, 0.8, 1.0)
MAX_STEPS: Final = 100
TITLED, UNTITLED, CLAIM = evidence.WEIGHTS
SHIPPED: Final[Mapping[str, Weights]] = evidence.WEIGHTS
_TINY: Final = 1e-9

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Names = NDArray[np.str_]


@dataclass(frozen=True, slots=True)
class Sample:
    """Candidates with their signals and the truth."""

    signals: Floats
    helped: Flags

    @classmethod
    def of(cls, parts: Sequence[Sample]) -> Sample:
        """Return the candidates of all parts."""
        signals = np.concatenate([one.signals for one in parts])
        return cls(signals, np.concatenate([one.helped for one in parts]))


def chances_by_name(
    found: Floats, names: Names, weights: Mapping[str, Weights] = SHIPPED
) -> Floats:
    """Return the chance of every row of signals under the weights of its name."""
    chances = np.zeros(len(found))
    for name, one in weights.items():
        rows = names == name
        chances[rows] = one.chances(found[rows])
    return chances


def fit(sample: Sample, shipped: Weights, penalty: float, limit: float | None = None) -> Weights:
    """Return weights for the signals that the shipped ones use, with another limit if wanted.

    A signal that is the same for all candidates keeps its shipped weight.
    """
    top = shipped.limit if limit is None else limit
    used = [name for name in SIGNALS if name in shipped.by_signal]
    table = sample.signals[:, [SIGNALS.index(name) for name in used]]
    varies = table.std(axis=0) > _TINY
    mean, deviation = table[:, varies].mean(axis=0), table[:, varies].std(axis=0)
    scaled = np.column_stack([np.ones(len(table)), (table[:, varies] - mean) / deviation])
    found = _maximise(scaled, sample.helped.astype(np.float64), top, penalty)
    slopes = iter((found[1:] / deviation).tolist())
    by_signal = {
        name: next(slopes) if moves else shipped.by_signal[name]
        for name, moves in zip(used, varies.tolist(), strict=True)
    }
    fixed = table[0, ~varies] @ [shipped.by_signal[used[at]] for at in np.flatnonzero(~varies)]
    bias = float(found[0] - (found[1:] / deviation) @ mean - fixed)
    return Weights(bias, top, by_signal)


def _maximise(scaled: Floats, helped: Floats, limit: float, penalty: float) -> Floats:
    """Return bias and weights by Fisher scoring; a step that makes it worse is halved."""
    weights = np.zeros(scaled.shape[1])
    rate = np.clip(helped.mean(), 1e-4, limit - 1e-4)
    weights[0] = np.log(rate / (limit - rate))
    ridge = np.full(len(weights), penalty)
    ridge[0] = 0.0
    loss = _loss(scaled @ weights, helped, limit) + 0.5 * float(ridge @ weights**2)
    for _ in range(MAX_STEPS):
        share = 1.0 / (1.0 + np.exp(-(scaled @ weights)))
        chance = np.clip(limit * share, _TINY, 1.0 - _TINY)
        slope = limit * share * (1.0 - share)
        pull = slope * (helped - chance) / (chance * (1.0 - chance))
        curve = slope**2 / (chance * (1.0 - chance))
        gradient = scaled.T @ pull - ridge * weights
        # A little on the diagonal keeps the system solvable when all chances are at an end.
        hessian = (scaled * curve[:, None]).T @ scaled + np.diag(ridge + 1e-6)
        step: Floats = np.asarray(np.linalg.solve(hessian, gradient), np.float64)
        weights, loss, moved = _stepped(scaled, helped, (limit, ridge), (weights, step, loss))
        if moved < 1e-6:
            break
    return weights


def _stepped(
    scaled: Floats,
    helped: Floats,
    model: tuple[float, Floats],
    at: tuple[Floats, Floats, float],
) -> tuple[Floats, float, float]:
    """Return the weights after one step, their loss and how far they moved."""
    (limit, ridge), (weights, step, loss) = model, at
    for _ in range(20):
        new = weights + step
        new_loss = _loss(scaled @ new, helped, limit) + 0.5 * float(ridge @ new**2)
        if new_loss <= loss:
            return new, new_loss, float(np.abs(step).max())
        step = step / 2.0
    return weights, loss, 0.0


def _loss(logits: Floats, helped: Floats, limit: float) -> float:
    chance = np.clip(limit / (1.0 + np.exp(-logits)), _TINY, 1.0 - _TINY)
    return float(-(helped * np.log(chance) + (1.0 - helped) * np.log(1.0 - chance)).sum())


def log_loss(weights: Weights, sample: Sample) -> float:
    """Return the mean negative log likelihood per candidate, times 1,000."""
    chance = np.clip(weights.chances(sample.signals), _TINY, 1.0 - _TINY)
    right = np.where(sample.helped, chance, 1.0 - chance)
    return float(-np.log(right).mean() * 1_000.0)


def cross_validated(folds: Sequence[Sample], limit: float) -> float:
    """Return the mean log loss of each fold under weights fitted on the others."""
    found = []
    for at, held_out in enumerate(folds):
        others = Sample.of([one for place, one in enumerate(folds) if place != at])
        fitted = fit(others, SHIPPED[CLAIM], CLAIM_PENALTY, limit)
        found.append(log_loss(fitted, held_out))
    return float(np.mean(found))


def fit_claims(folds: Sequence[Sample]) -> tuple[Weights, dict[float, float]]:
    """Return the weights of claims with the limit of the least loss, and the loss of each limit."""
    losses = {limit: cross_validated(folds, limit) for limit in CLAIM_LIMITS}
    best = min(losses, key=lambda limit: losses[limit])
    return fit(Sample.of(folds), SHIPPED[CLAIM], CLAIM_PENALTY, best), losses
