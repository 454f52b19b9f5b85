"""The losses: their values by definition, their gradients by two independent ways."""

from __future__ import annotations

import math

import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad
from hypothesis import given, settings
from hypothesis import strategies as st

from meritory.model.base import Floats, Loss, cross_entropy, list_net

LOSSES: list[Loss] = [list_net, cross_entropy]
LABELS = np.array([1.0, 0.0, 0.5, -0.3, 0.0])
SCORES = np.array([0.2, 1.1, -0.4, 0.0, 2.0])
WEIGHTS = np.array([1.0, 0.25, 1.0, 1.0, 0.0])


def expected_list_net(scores: Floats, labels: Floats, weights: Floats) -> Floats:
    """KL divergence written out, with every weight as a multiplicity in both softmaxes."""
    used = weights > 0
    spread = labels[used].max() - labels[used].min()
    raised = weights[used] * np.exp(labels[used] / (0.3 if spread < 0.1 else 0.5))
    target = raised / raised.sum()
    found = weights[used] * anp.exp(scores[used])
    return anp.sum(target * (np.log(target) - anp.log(found / anp.sum(found))))


def expected_cross_entropy(scores: Floats, labels: Floats, weights: Floats) -> Floats:
    used = weights > 0
    gain = np.maximum(labels[used], 0.0) * weights[used]
    logs = scores[used] - anp.log(anp.sum(weights[used] * anp.exp(scores[used])))
    return -anp.sum(gain / gain.sum() * logs)


@pytest.mark.parametrize("labels", [LABELS, LABELS / 20.0])
@pytest.mark.parametrize(
    ("loss", "expected"), [(list_net, expected_list_net), (cross_entropy, expected_cross_entropy)]
)
def test_value_and_gradient_are_those_of_the_definition(
    loss: Loss, expected: Loss, labels: Floats
) -> None:
    value, gradient = loss(SCORES, labels, WEIGHTS)
    assert value == pytest.approx(float(expected(SCORES, labels, WEIGHTS)))
    np.testing.assert_allclose(gradient, grad(expected)(SCORES, labels, WEIGHTS), atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_gradient_is_the_slope(loss: Loss) -> None:
    _, gradient = loss(SCORES, LABELS, WEIGHTS)
    for place in range(len(SCORES)):
        aside = np.eye(len(SCORES))[place] * 1e-6
        rise = loss(SCORES + aside, LABELS, WEIGHTS)[0] - loss(SCORES - aside, LABELS, WEIGHTS)[0]
        assert gradient[place] == pytest.approx(rise / 2e-6, abs=1e-8)


def test_labels_that_lie_close_together_are_sharpened() -> None:
    scores, weights = np.zeros(2), np.ones(2)
    for apart, temperature in ((0.09, 0.3), (0.11, 0.5)):
        _, gradient = list_net(scores, np.array([apart, 0.0]), weights)
        share = 1.0 / (1.0 + math.exp(-apart / temperature))
        assert gradient[0] == pytest.approx(0.5 - share)


@pytest.mark.parametrize("loss", LOSSES)
def test_nothing_is_learned_without_a_difference(loss: Loss) -> None:
    nothing: list[tuple[Floats, Floats]] = [
        (np.zeros(5), WEIGHTS),
        (LABELS, np.zeros(5)),
        (np.array([0.0, 0.0, 0.0, 0.0, 1.0]), WEIGHTS),
    ]
    for labels, weights in nothing:
        value, gradient = loss(SCORES, labels, weights)
        assert value == 0.0
        assert not gradient.any()


@pytest.mark.parametrize("loss", LOSSES)
def test_a_weight_of_two_is_the_candidate_twice(loss: Loss) -> None:
    twice, by_twice = loss(SCORES[:3], LABELS[:3], np.array([2.0, 1.0, 1.0]))
    again, by_again = loss(SCORES[[0, 0, 1, 2]], LABELS[[0, 0, 1, 2]], np.ones(4))
    assert twice == pytest.approx(again)
    assert by_twice[0] == pytest.approx(by_again[:2].sum())


@pytest.mark.parametrize("loss", LOSSES)
@settings(max_examples=50)
@given(
    st.lists(st.floats(-1e3, 1e3), min_size=4, max_size=4),
    st.lists(st.floats(-1.0, 1.0), min_size=4, max_size=4),
    st.floats(-100.0, 100.0),
)
def test_losses_are_finite_and_blind_to_a_shift(
    loss: Loss, scores: list[float], labels: list[float], shift: float
) -> None:
    at, wanted, weights = np.array(scores), np.array(labels), np.ones(4)
    value, gradient = loss(at, wanted, weights)
    assert math.isfinite(value)
    assert value >= -1e-9
    assert abs(gradient.sum()) < 1e-9
    moved, _ = loss(at + shift, wanted, weights)
    assert moved == pytest.approx(value, abs=1e-6)
