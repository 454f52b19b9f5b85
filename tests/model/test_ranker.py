"""The default scorer: the baseline at birth, then the exact optimum; exposure teaches nothing.

Gradients are checked twice: against differences of its own loss, and against a loss that is
written a second time here and differentiated by autograd.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from meritory.domain.errors import InputError
from meritory.model.base import Floats, RankingQuery, TrainingExample
from meritory.model.ranker import (
    COMPOSITE,
    PRIOR_STRENGTH,
    Ranker,
    baseline_weights,
    fitted,
    standardised,
)
from meritory.rank.features import EXPOSURE, FEATURES
from meritory.rank.fusion import ranks

WIDTH = len(FEATURES)
HIDDEN_FROM_IT = sorted(FEATURES.index(name) for name in EXPOSURE)
PRIOR = baseline_weights()


def a_lesson(seed: int, count: int = 12, weight: float = 1.0) -> TrainingExample:
    """A session in which one feature besides the composite tells something."""
    rng = np.random.default_rng(seed)
    labels = np.where(rng.random(count) < 0.3, rng.uniform(0.2, 1.0, count), 0.0)
    labels[0] = 0.8
    labels[1] = -0.5
    table = rng.standard_normal((count, WIDTH))
    table[:, COMPOSITE] += labels
    table[:, FEATURES.index("co_use")] += 2.0 * labels
    weights = np.where(rng.random(count) < 0.2, 0.25, 1.0)
    weights[2] = 0.0
    return TrainingExample(
        query=RankingQuery(features=table), labels=labels, weights=weights, weight=weight
    )


LESSONS = [a_lesson(seed, 8 + seed, 0.5 + seed / 10) for seed in range(12)]


def plain_loss(weights: Any, lesson: TrainingExample) -> Any:
    """The loss once more: every candidate stands in the list as often as its weight says."""
    table = lesson.query.features
    away = table - table.mean(axis=0)
    seen = away / np.maximum(table.std(axis=0), 1e-12)
    clipped = np.clip(seen, -5.0, 5.0)
    clipped[:, COMPOSITE] = seen[:, COMPOSITE]
    clipped[:, HIDDEN_FROM_IT] = 0.0
    scores = anp.dot(clipped, weights)
    counted = lesson.weights > 0.0
    gain = np.maximum(lesson.labels, 0.0) * lesson.weights
    total = anp.log(anp.sum(lesson.weights[counted] * anp.exp(scores[counted])))
    return lesson.weight * (total - anp.sum(gain / gain.sum() * scores))


def objective(weights: Any, lessons: list[TrainingExample], prior: Floats, strength: float) -> Any:
    """What the exact fit minimises."""
    pull = 0.5 * strength * anp.sum((weights - prior) ** 2)
    return sum(plain_loss(weights, one) for one in lessons) + pull


# -- before any session -----------------------------------------------------------------------


COARSE = st.integers(0, 6).map(lambda n: n / 7)


@given(
    st.lists(COARSE | st.floats(0.0, 1.0), min_size=1, max_size=40),
    st.integers(0, 2**31),
)
def test_untrained_it_ranks_exactly_as_the_baseline(composites: list[float], seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = rng.standard_normal((len(composites), WIDTH)) * 10.0 ** rng.integers(-9, 6)
    table[:, COMPOSITE] = composites
    scores = Ranker.untrained().score(RankingQuery(features=table))
    names = [f"m{n:03d}" for n in rng.permutation(len(composites))]
    baseline = ranks(composites, names)
    # As the fusion does it: where the scores are level the baseline decides.
    assert ranks(scores, baseline).tolist() == baseline.tolist()
    # What differs by more than rounding is told apart, what is level stays level.
    by = np.argsort(composites, kind="stable")
    steps, told = np.diff(np.array(composites)[by]), np.diff(scores[by])
    assert (told >= 0.0).all()
    assert (told[steps > 1e-8] > 0.0).all()
    assert (told[steps == 0.0] == 0.0).all()


def test_without_any_session_the_prior_is_the_answer() -> None:
    prior = PRIOR + 0.25
    model, loss = fitted([], prior)
    assert model.weights.tolist() == model.prior.tolist() == prior.tolist()
    assert loss == 0.0
    barren = replace(LESSONS[0], labels=-np.abs(LESSONS[0].labels))
    model, loss = fitted([barren], prior)
    assert model.weights.tolist() == prior.tolist()
    assert loss == 0.0


def test_no_candidates_have_no_scores() -> None:
    assert Ranker.untrained().score(RankingQuery(features=np.empty((0, WIDTH)))).shape == (0,)


# -- the exact fit ------------------------------------------------------------------------------


@pytest.mark.parametrize("strength", [1.0, PRIOR_STRENGTH])
def test_it_finds_the_optimum(strength: float) -> None:
    prior = PRIOR + np.random.default_rng(5).standard_normal(WIDTH) * 0.1
    model, loss = fitted(LESSONS, prior, strength)
    slope = grad(objective)(model.weights, LESSONS, prior, strength)
    assert np.abs(slope).max() < 1e-6
    mean = sum(float(plain_loss(model.weights, one)) for one in LESSONS)
    assert loss == pytest.approx(mean / sum(one.weight for one in LESSONS))
    # Somebody who goes downhill in small steps ends at the same place.
    slow = prior.copy()
    for _ in range(1_000):
        step = grad_by_hand(slow, prior, strength)
        slow -= step / (strength + 20.0)
        if np.abs(step).max() < 1e-8:
            break
    assert model.weights == pytest.approx(slow, abs=1e-6)
    assert not np.allclose(model.weights, prior, atol=1e-3)


def grad_by_hand(weights: Floats, prior: Floats, strength: float) -> Floats:
    """The slope of the objective by the model's own gradients, session by session."""
    model = Ranker({"weights": weights, "prior": prior})
    found = strength * (weights - prior)
    for one in LESSONS:
        found = found + model.loss_and_grads(one)[1]["weights"]
    return np.asarray(found)


def test_a_stronger_prior_pulls_harder() -> None:
    moved = [
        float(np.linalg.norm(fitted(LESSONS, PRIOR, strength)[0].weights - PRIOR))
        for strength in (1.0, 30.0, 1e3, 1e9)
    ]
    assert moved == sorted(moved, reverse=True)
    assert moved[-1] < 1e-6
    # It pulls to what was believed, not to zero.
    believed = PRIOR + 3.0
    assert fitted(LESSONS, believed, 1e9)[0].weights == pytest.approx(believed, abs=1e-5)


def test_it_learns_what_tells_and_nothing_from_what_was_shown() -> None:
    model, _ = fitted([a_lesson(seed, 40) for seed in range(60)], PRIOR)
    gained = np.abs(model.weights - PRIOR)
    assert gained.argmax() == FEATURES.index("co_use")
    assert (model.weights - PRIOR)[FEATURES.index("co_use")] > 0.3
    assert gained[HIDDEN_FROM_IT].tolist() == [0.0] * len(HIDDEN_FROM_IT)


def test_exposure_never_moves_a_score() -> None:
    """Not even with a weight that somebody put there."""
    weights = np.ones(WIDTH)
    query = LESSONS[3].query
    other = query.features.copy()
    other[:, HIDDEN_FROM_IT] = np.random.default_rng(1).uniform(
        0, 1e6, other[:, HIDDEN_FROM_IT].shape
    )
    model = Ranker({"weights": weights, "prior": weights})
    assert model.score(query).tolist() == model.score(RankingQuery(features=other)).tolist()
    assert model.explained(other)[:, HIDDEN_FROM_IT].any() == np.False_


def test_a_weight_is_how_often_a_candidate_stands_in_the_list() -> None:
    lesson = replace(a_lesson(1, 10), weights=np.ones(10))
    heavy = replace(lesson, weights=np.where(np.isin(np.arange(10), [0, 4]), 3.0, 1.0))
    model = Ranker({"weights": PRIOR + 0.3, "prior": PRIOR})
    # The same scores, so that only the lists differ: z-scores would see the doubles.
    scores = model.score(lesson.query)
    places = np.concatenate([np.arange(10), [0, 0, 4, 4]])
    gains = np.maximum(lesson.labels[places], 0.0)
    wanted = np.log(np.exp(scores[places]).sum()) - gains @ scores[places] / gains.sum()
    assert model.loss_and_grads(heavy)[0] == pytest.approx(wanted)
    # And a session counts as often as its weight says.
    twice, _ = fitted([replace(lesson, weight=2.0), LESSONS[2]], PRIOR)
    again, _ = fitted([lesson, lesson, LESSONS[2]], PRIOR)
    assert twice.weights == pytest.approx(again.weights, abs=1e-9)


def test_what_is_left_out_has_no_say_but_stands_beside_the_others() -> None:
    lesson = replace(LESSONS[4], weights=np.ones(len(LESSONS[4].labels)))
    without = lesson.weights.copy()
    without[5] = 0.0
    left_out = replace(lesson, weights=without)
    changed = replace(left_out, labels=np.where(np.arange(len(without)) == 5, 1.0, lesson.labels))
    assert fitted([changed], PRIOR)[0].weights == pytest.approx(
        fitted([left_out], PRIOR)[0].weights, abs=1e-12
    )
    # Its features still set what is usual within the session, as when it is scored.
    table = lesson.query.features.copy()
    table[5] += 4.0
    moved = replace(left_out, query=RankingQuery(features=table))
    assert (
        np.abs(fitted([moved], PRIOR)[0].weights - fitted([left_out], PRIOR)[0].weights).max()
        > 1e-4
    )


def test_a_soft_negative_pulls_down_a_little() -> None:
    """What nobody judged, at a quarter of the weight: between no say and a full one."""
    base = a_lesson(9, 10)
    found = []
    for soft in (0.0, 0.25, 1.0):
        weights = np.ones(10)
        weights[7] = soft
        labels = base.labels.copy()
        labels[7] = 0.0
        lesson = replace(base, labels=labels, weights=weights)
        found.append(fitted([lesson] * 20, PRIOR)[0].score(lesson.query)[7])
    assert found[0] > found[1] > found[2]


def test_sessions_without_gain_are_ignored() -> None:
    barren = replace(LESSONS[1], labels=np.minimum(LESSONS[1].labels, 0.0))
    zeroed = replace(LESSONS[2], weights=np.zeros(len(LESSONS[2].labels)))
    with_them = fitted([LESSONS[0], barren, LESSONS[3], zeroed], PRIOR)
    alone = fitted([LESSONS[0], LESSONS[3]], PRIOR)
    assert with_them[0].weights.tolist() == alone[0].weights.tolist()
    assert with_them[1] == alone[1]
    assert Ranker.untrained().loss_and_grads(barren)[0] == 0.0


def test_it_stops_when_time_is_up() -> None:
    asked = []

    def should_stop() -> bool:
        asked.append(True)
        return True

    model, _ = fitted(LESSONS, PRIOR, 1.0, should_stop)
    assert len(asked) == 1
    assert objective(model.weights, LESSONS, PRIOR, 1.0) < objective(PRIOR, LESSONS, PRIOR, 1.0)


def test_far_from_the_optimum_it_still_arrives() -> None:
    """A whole Newton step from here would overshoot."""
    far = np.random.default_rng(3).standard_normal(WIDTH) * 2.0

    def loss(weights: Floats) -> float:
        model = Ranker({"weights": weights, "prior": far})
        pull = 0.25 * float(((weights - far) ** 2).sum())
        return sum(model.loss_and_grads(one)[0] for one in LESSONS) + pull

    model, _ = fitted(LESSONS, far, 0.5)
    assert loss(model.weights) < loss(far)
    assert np.abs(grad_by_hand(model.weights, far, 0.5)).max() < 1e-3


# -- gradients ----------------------------------------------------------------------------------


def test_the_gradient_is_that_of_differences_and_of_autograd() -> None:
    weights = PRIOR + np.random.default_rng(11).standard_normal(WIDTH) * 0.3
    model, lesson = Ranker({"weights": weights, "prior": PRIOR}), LESSONS[6]
    loss, grads = model.loss_and_grads(lesson)
    assert set(grads) == {"weights"}

    def twin(value: Any) -> Any:
        return plain_loss(value, lesson)

    assert loss == pytest.approx(float(twin(weights)))
    assert grads["weights"] == pytest.approx(grad(twin)(weights), abs=1e-10)
    step = 1e-5
    for index in range(WIDTH):
        ends = []
        for sign in (1.0, -1.0):
            value = weights.copy()
            value[index] += sign * step
            moved = model.with_params({**model.params, "weights": value})
            ends.append(moved.loss_and_grads(lesson)[0])
        slope = (ends[0] - ends[1]) / (2.0 * step)
        assert np.asarray(grads["weights"])[index] == pytest.approx(slope, abs=1e-7)


def test_the_linear_gradient_is_that_of_the_exact_fit() -> None:
    model, _ = fitted(LESSONS, PRIOR, 2.0)
    assert np.abs(grad_by_hand(model.weights, PRIOR, 2.0)).max() < 1e-6


# -- wild input ---------------------------------------------------------------------------------


@given(
    arrays.arrays(
        np.float64,
        st.tuples(st.integers(1, 6), st.just(WIDTH)),
        elements=st.floats(allow_nan=True, allow_infinity=True),
    )
)
@settings(max_examples=60)
def test_scores_are_finite_whatever_the_features(table: Floats) -> None:
    moved = PRIOR + np.random.default_rng(11).standard_normal(WIDTH) * 0.3
    for model in (Ranker.untrained(), Ranker({"weights": moved, "prior": PRIOR})):
        scores = model.score(RankingQuery(features=table))
        assert scores.shape == (len(table),)
        assert np.isfinite(scores).all()
    labels = np.zeros(len(table))
    labels[0] = 1.0
    lesson = TrainingExample(
        query=RankingQuery(features=table), labels=labels, weights=np.ones(len(table))
    )
    assert np.isfinite(fitted([lesson], PRIOR)[0].weights).all()


@pytest.mark.parametrize("count", range(2, 34))
def test_what_looks_alike_scores_alike_wherever_it_stands(count: int) -> None:
    """Their sums may differ in the last bits; who comes first is the baseline's to decide."""
    rng = np.random.default_rng(count)
    # Two kinds of candidates, so that they differ within their session.
    kinds = rng.standard_normal((2, WIDTH))
    table = kinds[np.arange(count) % 2]
    scores = Ranker({"weights": rng.standard_normal(WIDTH), "prior": PRIOR}).score(
        RankingQuery(features=table)
    )
    assert len(set(scores.tolist())) == 2


def test_what_is_explained_adds_up_to_the_score() -> None:
    model = Ranker({"weights": PRIOR + 0.1, "prior": PRIOR})
    table = LESSONS[7].query.features
    parts = model.explained(table)
    assert parts.shape == table.shape
    assert parts.sum(axis=1) == pytest.approx(model.score(LESSONS[7].query))
    assert parts == pytest.approx(standardised(table) * (PRIOR + 0.1))


@pytest.mark.parametrize(
    "params",
    [
        {"weights": PRIOR},
        {"weights": PRIOR[:-1], "prior": PRIOR},
        {"weights": PRIOR, "prior": PRIOR, "more": PRIOR},
        {"weights": PRIOR, "prior": PRIOR, "hidden_out": np.zeros(3)},
        {
            "weights": PRIOR,
            "prior": PRIOR,
            "hidden_in": np.zeros((WIDTH, 2)),
            "hidden_out": np.zeros(3),
        },
    ],
)
def test_parameters_that_do_not_fit_are_refused(params: dict[str, Floats]) -> None:
    with pytest.raises(InputError, match="no ranker"):
        Ranker(params)
