"""Listwise losses over the candidates of one session, with their gradients by the scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Of the labels' softmax; sharper where labels lie close together.
TEMPERATURE = 0.5
SHARP_TEMPERATURE = 0.3
CLOSE_LABELS = 0.1
_NO_LOSS = 0.0

# Takes scores, labels and weights; gives the loss and its gradient by the scores.
Loss: TypeAlias = Callable[[Floats, Floats, Floats], tuple[float, Floats]]


def list_net(scores: Floats, labels: Floats, weights: Floats) -> tuple[float, Floats]:
    """KL divergence of the scores' softmax from the labels' one; 0 where all labels are equal."""
    counted = np.flatnonzero(weights > 0.0)
    gradient = np.zeros(len(scores))
    spread = float(np.ptp(labels[counted])) if len(counted) else 0.0
    if spread <= 0.0:
        return _NO_LOSS, gradient
    temperature = SHARP_TEMPERATURE if spread < CLOSE_LABELS else TEMPERATURE
    weight = weights[counted]
    target = _softmax(labels[counted] / temperature, weight)
    found = _softmax(scores[counted], weight)
    with np.errstate(divide="ignore"):
        divergence = target * (np.log(target) - np.log(np.maximum(found, _smallest(found))))
    gradient[counted] = found - target
    return float(np.nansum(divergence)), gradient


def cross_entropy(scores: Floats, labels: Floats, weights: Floats) -> tuple[float, Floats]:
    """Cross entropy of the scores' softmax against each label's share of all gain.

    Gain is max(0, label); a weight is how often a candidate stands in the list.
    """
    counted = np.flatnonzero(weights > 0.0)
    gradient = np.zeros(len(scores))
    gain = np.maximum(labels[counted], 0.0) * weights[counted]
    if gain.sum() <= 0.0:
        return _NO_LOSS, gradient
    target = gain / gain.sum()
    found = _softmax(scores[counted], weights[counted])
    logs = np.log(np.maximum(found / weights[counted], _smallest(found)))
    gradient[counted] = found - target
    return -float(target @ logs), gradient


def _softmax(values: Floats, weights: Floats) -> Floats:
    raised = weights * np.exp(values - values.max())
    return np.asarray(raised / raised.sum())


def _smallest(values: Floats) -> float:
    return float(np.finfo(values.dtype).tiny)


Vectors = NDArray[np.float32]
Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingQuery:
    """The candidates of one session as a model sees them, a row each."""

    # As they were recorded when the session was served, a column per name in `rank.features`.
    features: Floats
    # The context's vector; None when words alone must do.
    context: Vectors | None = None
    # A row per candidate, zeros where a memory has no vector; None when they were not looked up.
    vectors: Vectors | None = None
    # Numbers of hashed words, of the context and of each candidate; empty when not looked up.
    context_words: Rows = field(default_factory=lambda: np.empty(0, np.int64))
    words: tuple[Rows, ...] = ()
    # A small number of the project, 0 for none.
    project_slot: int = 0

    @property
    def count(self) -> int:
        """How many candidates there are."""
        return len(self.features)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingExample:
    """A finished session to learn from."""

    query: RankingQuery
    # How much each candidate helped, -1..1.
    labels: Floats
    # How much each candidate counts: 1, less for one that was not judged, 0 for one left out.
    weights: Floats
    # How much the session counts beside others.
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class SparseRows:
    """A gradient that is zero but for some rows of a table."""

    rows: Rows
    values: Floats


Gradient: TypeAlias = Floats | SparseRows


class Model(Protocol):
    """A scorer that can be trained; one object is never changed while another thread scores."""

    @property
    def kind(self) -> str:
        """Which scorer it is; checkpoints carry it."""

    @property
    def params(self) -> Mapping[str, Floats]:
        """All parameters by name, in the order in which they are stored."""

    def with_params(self, params: Mapping[str, Floats]) -> Model:
        """The same scorer with other parameters of the same shapes."""

    def score(self, query: RankingQuery) -> Floats:
        """A score per candidate, the higher the better; always finite."""

    def loss_and_grads(self, lesson: TrainingExample) -> tuple[float, dict[str, Gradient]]:
        """The loss over one session, and its gradient by every parameter that is learned."""
