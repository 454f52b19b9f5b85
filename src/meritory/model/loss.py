"""Listwise losses over the candidates of one session, with their gradients by the scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from meritory.model.base import Floats

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
