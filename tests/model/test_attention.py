"""The attention scorer: residual at birth, right gradients, fair to memories without vectors.

Its gradients are checked twice: against differences of its own loss, and against a forward pass
that is written a second time here, candidate by candidate, and differentiated by autograd.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad
from hypothesis import given, settings
from hypothesis import strategies as st

from meritory.domain.errors import InputError
from meritory.model.attention import INNER, LOSSES, PROJECTS, VALUES, Attention, shapes
from meritory.model.base import BUCKETS, Floats, Gradient, RankingQuery, SparseRows, TrainingExample
from meritory.model.ranker import COMPOSITE
from meritory.rank.features import EXPOSURE, FEATURES

WIDTH = 6
COUNT = 7
FRESH = Attention.fresh(WIDTH, np.random.default_rng(3))


def grown(loss: str = "cross_entropy", seed: int = 4) -> Attention:
    """A scorer with every parameter moved away from its start, computing in full precision."""
    rng = np.random.default_rng(seed)
    params = {
        name: value + rng.standard_normal(value.shape) * (0.3 if value.ndim == 1 else 1.0)
        for name, value in FRESH.params.items()
    }
    return Attention(params, loss, np.float64)


def a_query(seed: int = 0, count: int = COUNT, slot: int = 5) -> RankingQuery:
    """Candidates of which some have a vector and words, some one of both, some neither."""
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((count, WIDTH)).astype(np.float32)
    vectors[1::3] = 0.0
    words = [rng.integers(0, 40, rng.integers(1, 6)) for _ in range(count)]
    words[0] = words[-1][:0]
    if count > 4:
        words[4] = words[4][:0]
    return RankingQuery(
        features=rng.random((count, len(FEATURES))),
        context=rng.standard_normal(WIDTH).astype(np.float32),
        vectors=vectors,
        context_words=rng.integers(0, 40, 4),
        words=tuple(words),
        project_slot=slot,
    )


def a_lesson(query: RankingQuery, seed: int = 0) -> TrainingExample:
    rng = np.random.default_rng(seed)
    return TrainingExample(
        query=query,
        labels=rng.choice([1.0, 0.5, 0.0, -0.3], query.count),
        weights=rng.choice([1.0, 0.25, 0.0], query.count, p=[0.6, 0.3, 0.1]),
        weight=0.7,
    )


def mixed_lessons() -> list[TrainingExample]:
    """Every way in which vectors and words can be there or not."""
    query = a_query()
    return [
        a_lesson(query, 1),
        a_lesson(replace(query, vectors=None, context=None), 2),
        a_lesson(replace(query, context=None, project_slot=0), 3),
        a_lesson(replace(a_query(8, count=12), words=()), 4),
        a_lesson(replace(query, vectors=None, words=(), context=None), 5),
    ]


def dense(name: str, gradient: Gradient) -> Floats:
    if not isinstance(gradient, SparseRows):
        return gradient
    table = np.zeros(shapes(WIDTH)[name])
    table[gradient.rows] = gradient.values
    return table


# --- the second writing -----------------------------------------------------------------------


def slow_scores(params: Mapping[str, Any], query: RankingQuery) -> Any:
    def encoded(vector: Any, words: Any) -> Any:
        if vector is not None and anp.any(vector != 0.0):
            path, inner = "vector", anp.dot(vector.astype(np.float64), params["down"])
        elif len(words):
            path, inner = "word", anp.mean(params["table"][words], axis=0)
        else:
            return anp.zeros(INNER)
        away = inner - anp.mean(inner)
        normed = away / anp.sqrt(anp.mean(away**2) + 1e-5)
        return normed * params[f"{path}_scale"] + params[f"{path}_shift"]

    context = encoded(query.context, query.context_words) + params["projects"][query.project_slot]
    asked = anp.dot(context, params["query"]) / INNER
    vectors = [None] * query.count if query.vectors is None else list(query.vectors)
    words = query.words or ((),) * query.count
    items = [encoded(*item) for item in zip(vectors, words, strict=True)]
    keys = [anp.dot(item, params["key"]) / INNER for item in items]
    values = [anp.dot(item, params["value"]) / INNER for item in items]
    matches = [anp.dot(asked, key) / np.sqrt(INNER) for key in keys]
    raised = [anp.exp(match) for match in matches]
    attended = sum(one * value for one, value in zip(raised, values, strict=True)) / sum(raised)
    standard = slow_standard(query.features)
    gate = params["gate"]
    scores = [
        row[COMPOSITE]
        + anp.dot(value * attended, gate[:VALUES])
        + match * gate[VALUES]
        + anp.dot(row, gate[VALUES + 1 :])
        for row, value, match in zip(standard, values, matches, strict=True)
    ]
    return anp.array(scores)


def slow_standard(features: Floats) -> Floats:
    found = (features - features.mean(0)) / features.std(0)
    found[:, [FEATURES.index(name) for name in EXPOSURE]] = 0.0
    return found


def slow_loss(params: Mapping[str, Any], lessons: list[TrainingExample], loss: str) -> Any:
    total = 0.0
    for lesson in lessons:
        used = lesson.weights > 0.0
        weights, labels = lesson.weights[used], lesson.labels[used]
        raised = weights * anp.exp(slow_scores(params, lesson.query)[used])
        logs = anp.log(raised / anp.sum(raised))
        if loss == "list_net":
            target = weights * np.exp(labels / 0.5)
            target /= target.sum()
            total = total + lesson.weight * anp.sum(target * (np.log(target) - logs))
        else:
            target = weights * np.maximum(labels, 0.0)
            target /= target.sum()
            total = total - lesson.weight * anp.sum(target * (logs - np.log(weights)))
    return total


# --- gradients --------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_scores_loss_and_every_gradient_are_those_of_the_second_writing(loss: str) -> None:
    model, lessons = grown(loss), mixed_lessons()
    for lesson in lessons:
        expected = slow_scores(model.params, lesson.query)
        np.testing.assert_allclose(model.score(lesson.query), expected, atol=1e-10)
    total, grads = model.loss_and_grads_of(lessons)
    params = dict(model.params)
    assert total == pytest.approx(float(slow_loss(params, lessons, loss)))
    expected_grads = grad(slow_loss)(params, lessons, loss)
    assert set(grads) == set(expected_grads) == set(shapes(WIDTH))
    for name, gradient in grads.items():
        found = dense(name, gradient)
        assert np.abs(found).max() > 1e-6, name
        np.testing.assert_allclose(found, expected_grads[name], atol=1e-9, err_msg=name)


@pytest.mark.parametrize("name", sorted(shapes(WIDTH)))
def test_every_gradient_is_the_slope_of_the_loss(name: str) -> None:
    model, lessons = grown(), mixed_lessons()
    _, grads = model.loss_and_grads_of(lessons)
    gradient = dense(name, grads[name])
    rng = np.random.default_rng(9)
    largest = np.unravel_index(np.argsort(-np.abs(gradient), axis=None)[:3], gradient.shape)
    directions = [np.zeros(gradient.shape) for _ in range(3)]
    for direction, place in zip(directions, zip(*largest, strict=True), strict=True):
        direction[place] = 1.0
    directions += [rng.standard_normal(gradient.shape) for _ in range(3)]
    for direction in directions:
        aside = 1e-5 * direction
        ends = [
            model.with_params(
                {**model.params, name: model.params[name] + sign * aside}
            ).loss_and_grads_of(lessons)[0]
            for sign in (1.0, -1.0)
        ]
        slope = (ends[0] - ends[1]) / 2e-5
        assert float(np.sum(gradient * direction)) == pytest.approx(slope, rel=1e-5, abs=1e-8)


def test_many_sessions_at_once_are_the_sum_of_each() -> None:
    model, lessons = grown(), mixed_lessons()
    empty = a_lesson(
        replace(a_query(), features=np.empty((0, len(FEATURES))), vectors=None, words=())
    )
    total, grads = model.loss_and_grads_of([*lessons, empty])
    ones = [model.loss_and_grads(lesson) for lesson in lessons]
    assert total == pytest.approx(sum(loss for loss, _ in ones))
    for name, gradient in grads.items():
        summed = sum(dense(name, parts[name]) for _, parts in ones)
        np.testing.assert_allclose(dense(name, gradient), summed, atol=1e-10)


def test_the_tables_gradient_names_each_used_row_once_and_no_other() -> None:
    lesson = mixed_lessons()[1]
    _, grads = grown().loss_and_grads(lesson)
    table = grads["table"]
    assert isinstance(table, SparseRows)
    used = np.unique(np.concatenate([lesson.query.context_words, *lesson.query.words]))
    assert table.rows.tolist() == used.tolist()
    assert table.values.shape == (len(used), INNER)


def test_a_word_in_very_many_texts_gets_its_whole_gradient() -> None:
    query = replace(a_query(count=200), vectors=None, context=None)
    query = replace(query, words=tuple(np.array([7, 7 + place % 3]) for place in range(200)))
    lesson = replace(a_lesson(query), labels=np.arange(200) / 200.0, weights=np.ones(200))
    model = grown()
    found = dense("table", model.loss_and_grads(lesson)[1]["table"])
    expected = grad(slow_loss)(dict(model.params), [lesson], "cross_entropy")["table"]
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_single_precision_is_close_to_double() -> None:
    exact, lessons = grown(), mixed_lessons()
    quick = Attention(exact.params)
    for (name, one), other in zip(
        exact.loss_and_grads_of(lessons)[1].items(),
        quick.loss_and_grads_of(lessons)[1].values(),
        strict=True,
    ):
        found, expected = dense(name, other), dense(name, one)
        np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


# --- residual ---------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.lists(st.integers(0, 2000), min_size=1, max_size=60), st.integers(0, 9))
def test_untrained_it_ranks_exactly_as_the_composite(values: list[int], seed: int) -> None:
    query = a_query(seed, count=len(values))
    query.features[:, COMPOSITE] = np.array(values) / 2000.0
    scores = FRESH.score(query)
    expected = np.argsort(-query.features[:, COMPOSITE], kind="stable")
    assert np.argsort(-scores, kind="stable").tolist() == expected.tolist()
    assert len(np.unique(scores)) == len(set(values))


def test_after_one_step_every_parameter_is_learned() -> None:
    lessons = mixed_lessons()
    _, first = FRESH.loss_and_grads_of(lessons)
    gate = first["gate"]
    assert isinstance(gate, np.ndarray)
    hidden = [VALUES + 1 + FEATURES.index(name) for name in EXPOSURE]
    assert not gate[hidden].any()
    assert np.delete(gate, hidden).all()
    assert len(np.unique(gate[:VALUES])) == VALUES
    stepped = FRESH.with_params({**FRESH.params, "gate": FRESH.params["gate"] - 0.01 * gate})
    for name, gradient in stepped.loss_and_grads_of(lessons)[1].items():
        assert dense(name, gradient).any(), name


# --- what it can be given ---------------------------------------------------------------------


@settings(max_examples=30)
@given(st.permutations(range(COUNT)))
def test_the_order_of_the_candidates_does_not_matter(order: list[int]) -> None:
    model, query = grown(), a_query()
    assert query.vectors is not None
    mixed = replace(
        query,
        features=query.features[order],
        vectors=query.vectors[order],
        words=tuple(query.words[place] for place in order),
    )
    np.testing.assert_allclose(model.score(mixed), model.score(query)[order], atol=1e-10)


def test_the_same_text_scores_alike_beside_embedded_ones_and_with_a_stray_vector() -> None:
    """A vector of zeros or of nonsense is none, whoever stands beside it."""
    model, query = grown(), a_query()
    assert query.vectors is not None
    words = (*query.words[:5], query.words[3], query.words[3])
    features = query.features.copy()
    features[[5, 6]] = features[3]
    vectors = query.vectors.copy()
    vectors[[3, 5, 6]] = [[0.0], [np.nan], [np.inf]]
    scores = model.score(replace(query, features=features, words=words, vectors=vectors))
    assert np.isfinite(scores).all()
    assert scores[3] == pytest.approx(scores[5]) == pytest.approx(scores[6])


def test_both_paths_reach_scores_of_the_same_spread() -> None:
    rng = np.random.default_rng(0)
    width = 256
    query = RankingQuery(
        features=np.ones((300, len(FEATURES))),
        context=rng.standard_normal(width).astype(np.float32) * 9.0,
        vectors=rng.standard_normal((300, width)).astype(np.float32) * 9.0,
        context_words=rng.integers(0, BUCKETS, 9),
        words=tuple(rng.integers(0, BUCKETS, 9) for _ in range(300)),
    )
    fresh = Attention.fresh(width, rng)
    gate = rng.standard_normal(fresh.params["gate"].shape)
    model = fresh.with_params({**fresh.params, "gate": gate})
    by_vector = model.score(query).std()
    by_words = model.score(replace(query, vectors=None, context=None)).std()
    assert 0.7 < by_words / by_vector < 1.4


def test_candidates_without_vector_and_words_are_told_apart_by_features_alone() -> None:
    model, query = grown(), a_query()
    bare = replace(query, vectors=None, words=(), context=None, context_words=query.words[0])
    scores = model.score(bare)
    standard = slow_standard(query.features)
    expected = standard[:, COMPOSITE] + standard @ model.params["gate"][VALUES + 1 :]
    np.testing.assert_allclose(scores, expected)


@pytest.mark.parametrize("count", [0, 1])
def test_few_candidates(count: int) -> None:
    query = replace(a_query(count=1), project_slot=0)
    vectors = None if query.vectors is None else query.vectors[:count]
    few = replace(query, features=query.features[:count], vectors=vectors, words=())
    assert grown().score(few).shape == (count,)
    assert np.isfinite(grown().score(few)).all()


def test_absurd_weights_still_give_finite_scores() -> None:
    params = {name: value * 1e30 for name, value in grown().params.items()}
    assert np.isfinite(Attention(params).score(a_query())).all()


def test_a_project_has_a_slot_whatever_its_number() -> None:
    model = grown()
    same, other = (model.score(a_query(slot=slot)) for slot in (5 + PROJECTS, 6))
    np.testing.assert_array_equal(model.score(a_query()), same)
    assert not np.allclose(same, other)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="vectors of 6"):
        FRESH.score(replace(a_query(), context=np.ones(WIDTH + 1, np.float32)))
    with pytest.raises(InputError, match="words"):
        FRESH.score(replace(a_query(), words=(np.array([1]),)))
    with pytest.raises(InputError, match="loss"):
        Attention(FRESH.params, "hinge")
    with pytest.raises(InputError, match="attention"):
        FRESH.with_params({**FRESH.params, "gate": np.zeros(3)})


def test_where_nothing_is_embedded_words_alone_are_learned_from() -> None:
    fresh = Attention.fresh(0, np.random.default_rng(0))
    lesson = a_lesson(replace(a_query(), vectors=None, context=None))
    _, grads = fresh.with_params({**fresh.params, "gate": grown().params["gate"]}).loss_and_grads(
        lesson
    )
    assert isinstance(grads["table"], SparseRows)
    assert grads["table"].values.any()
    assert dense("down", grads["down"]).shape == (0, INNER)


@pytest.mark.parametrize("width", [256, 384, 768])
def test_it_has_about_a_million_parameters(width: int) -> None:
    count = sum(int(np.prod(shape)) for shape in shapes(width).values())
    assert 1_050_000 < count < 1_150_000
    assert FRESH.kind == "attention"
    assert FRESH.width == WIDTH
