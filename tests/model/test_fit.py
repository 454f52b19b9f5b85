"""Training: it learns what is there and nothing else, the same way every time, and stops safely."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from meritory.model.attention import Attention
from meritory.model.base import (
    Floats,
    Gradient,
    RankingQuery,
    SparseRows,
    TrainingExample,
    cross_entropy,
)
from meritory.model.fit import Adam, BatchModel, FitPlan, fit
from meritory.model.ranker import standardised
from meritory.rank.features import FEATURES

WIDTH = 8
COUNT = 20
SIGNAL = FEATURES.index("association")
FRESH = Attention.fresh(WIDTH, np.random.default_rng(0))


@dataclass(frozen=True)
class Plain:
    """The smallest scorer there can be, with a table of word weights."""

    params: Mapping[str, Floats]
    kind: str = "plain"

    def with_params(self, params: Mapping[str, Floats]) -> Plain:
        return Plain(params)

    def score(self, query: RankingQuery) -> Floats:
        words = [self.params["table"][found].sum() for found in query.words] or 0.0
        return standardised(query.features) @ self.params["weights"] + words

    def loss_and_grads(self, lesson: TrainingExample) -> tuple[float, dict[str, Gradient]]:
        query = lesson.query
        loss, slope = cross_entropy(self.score(query), lesson.labels, lesson.weights)
        table = np.zeros(len(self.params["table"]))
        for place, found in enumerate(query.words):
            np.add.at(table, found, slope[place])
        rows = np.unique(np.concatenate([*query.words, np.empty(0, np.int64)]))
        weights = slope @ standardised(query.features)
        return loss, {"weights": weights, "table": SparseRows(rows, table[rows])}

    def loss_and_grads_of(
        self, lessons: Sequence[TrainingExample]
    ) -> tuple[float, dict[str, Gradient]]:
        whole = Plain(self.params)
        losses, weights, table = 0.0, np.zeros(len(FEATURES)), np.zeros(len(self.params["table"]))
        touched = [np.empty(0, np.int64)]
        for lesson in lessons:
            loss, grads = whole.loss_and_grads(lesson)
            losses += loss
            weights += np.asarray(grads["weights"])
            sparse = grads["table"]
            assert isinstance(sparse, SparseRows)
            table[sparse.rows] += sparse.values
            touched.append(sparse.rows)
        rows = np.unique(np.concatenate(touched))
        return losses, {"weights": weights, "table": SparseRows(rows, table[rows])}


def plain() -> Plain:
    return Plain({"weights": np.zeros(len(FEATURES)), "table": np.zeros(50)})


def a_lesson(rng: np.random.Generator, *, by_chance: bool = False) -> TrainingExample:
    """A session in which what was associated helped, whatever the composite says."""
    features = rng.random((COUNT, len(FEATURES)))
    order = rng.permutation(COUNT) if by_chance else np.argsort(-features[:, SIGNAL])
    labels = np.zeros(COUNT)
    labels[order[:3]] = 1.0
    query = RankingQuery(
        features=features,
        context=rng.standard_normal(WIDTH).astype(np.float32),
        vectors=rng.standard_normal((COUNT, WIDTH)).astype(np.float32),
        context_words=rng.integers(0, 50, 4),
        words=tuple(rng.integers(0, 50, 4) for _ in range(COUNT)),
        project_slot=1,
    )
    return TrainingExample(query=query, labels=labels, weights=np.ones(COUNT))


def lessons_of(count: int, seed: int = 1, *, by_chance: bool = False) -> list[TrainingExample]:
    rng = np.random.default_rng(seed)
    return [a_lesson(rng, by_chance=by_chance) for _ in range(count)]


def trained(
    model: Attention | Plain, lessons: list[TrainingExample], seed: int = 0, **plan: float | int
) -> tuple[BatchModel, list[float]]:
    made = FitPlan(**plan)  # type: ignore[arg-type]
    return fit(model, lessons, made, np.random.default_rng(seed), lambda: False)


def ndcg_of(model: Attention | Plain, lessons: list[TrainingExample]) -> float:
    orders = [np.argsort(-model.score(lesson.query), kind="stable") for lesson in lessons]
    gains = [lesson.labels[order] for lesson, order in zip(lessons, orders, strict=True)]
    return float(np.mean([ndcg(gain) for gain in gains]))


def ndcg(gains: Floats) -> float:
    discounts = 1.0 / np.log2(np.arange(10) + 2.0)
    return float(gains[:10] @ discounts / (np.sort(gains)[::-1][:10] @ discounts))


# --- learning ---------------------------------------------------------------------------------


def test_the_loss_goes_down_and_what_was_learned_holds_elsewhere() -> None:
    model, losses = trained(FRESH, lessons_of(60), epochs=20)
    assert isinstance(model, Attention)
    assert len(losses) == 20
    assert losses[-1] < losses[4] < losses[0]
    unseen = lessons_of(60, seed=2)
    assert ndcg_of(model, unseen) > ndcg_of(FRESH, unseen) + 0.15


def test_labels_by_chance_teach_nothing() -> None:
    model, _ = trained(FRESH, lessons_of(60, by_chance=True), epochs=20)
    assert isinstance(model, Attention)
    for unseen in (lessons_of(80, seed=3), lessons_of(80, seed=4, by_chance=True)):
        assert abs(ndcg_of(model, unseen) - ndcg_of(FRESH, unseen)) < 0.08


def test_words_are_learned_from_although_every_candidate_has_a_vector() -> None:
    def moved(share: float) -> bool:
        model, _ = trained(FRESH, lessons_of(10), epochs=2, hidden_share=share)
        return not np.array_equal(model.params["table"], FRESH.params["table"])

    assert moved(0.2)
    assert not moved(0.0)


def test_a_linear_scorer_is_trained_as_well() -> None:
    model, losses = trained(plain(), lessons_of(40), learning_rate=0.05)
    weights = model.params["weights"]
    assert int(np.argmax(weights)) == SIGNAL
    assert losses[-1] < losses[0]


def test_a_strong_pull_keeps_the_start() -> None:
    near, far = (trained(FRESH, lessons_of(20), pull=pull)[0] for pull in (50.0, 0.0))
    change = [np.abs(done.params["gate"] - FRESH.params["gate"]).max() for done in (near, far)]
    assert change[0] < 0.03 < change[1]


def test_the_same_generator_gives_the_same_model_and_leaves_the_old_one_alone() -> None:
    before = {name: value.copy() for name, value in FRESH.params.items()}
    lessons = lessons_of(30)
    one, same, other = (trained(FRESH, lessons, seed, epochs=2)[0] for seed in (0, 0, 1))
    for name, value in one.params.items():
        np.testing.assert_array_equal(value, same.params[name])
        np.testing.assert_array_equal(before[name], FRESH.params[name])
    assert not np.array_equal(one.params["gate"], other.params["gate"])


# --- what is learned from ---------------------------------------------------------------------


@dataclass(frozen=True)
class Watching(Plain):
    """A scorer that notes which sessions it is shown; all have a different first feature."""

    seen: tuple[list[list[float]], ...] = ()

    def with_params(self, params: Mapping[str, Floats]) -> Watching:
        return Watching(params, seen=self.seen)

    def loss_and_grads_of(
        self, lessons: Sequence[TrainingExample]
    ) -> tuple[float, dict[str, Gradient]]:
        self.seen[0].append([float(lesson.query.features[0, 0]) for lesson in lessons])
        return self.loss_and_grads(lessons[0])


def test_each_batch_is_four_fifths_recent_and_one_fifth_best() -> None:
    lessons = lessons_of(120)
    best = lessons[:20]
    best = [replace(lesson, labels=lesson.labels + (lesson.labels > 0)) for lesson in best]
    lessons[:20] = best
    model = Watching(plain().params, seen=([],))
    fit(model, lessons, FitPlan(epochs=2, recent_count=80), np.random.default_rng(0), lambda: False)
    names = [float(lesson.query.features[0, 0]) for lesson in lessons]
    batches = model.seen[0]
    assert [len(batch) for batch in batches] == [20] * 10
    for batch in batches:
        assert sum(name in names[:20] for name in batch) == 4
        assert sum(name in names[40:] for name in batch) == 16
    assert sorted(n for batch in batches[:5] for n in batch if n in names[40:]) == sorted(
        names[40:]
    )


def test_sessions_that_say_nothing_are_skipped() -> None:
    lessons = lessons_of(5)
    lessons[0] = replace(lessons[0], labels=np.full(COUNT, 0.5))
    lessons[1] = replace(lessons[1], weights=1.0 * (lessons[1].labels == 0.0))
    lessons[2] = replace(lessons[2], weight=0.0)
    (model, losses), (other, same) = (trained(plain(), some) for some in (lessons, lessons[3:]))
    assert losses == same
    for name, value in model.params.items():
        np.testing.assert_array_equal(value, other.params[name])
    assert trained(FRESH, lessons[:2]) == (FRESH, [])


# --- stopping ---------------------------------------------------------------------------------


def test_it_stops_when_told_with_what_it_has() -> None:
    answers = iter([False] * 3 + [True])
    rng = np.random.default_rng(0)
    model, losses = fit(plain(), lessons_of(32), FitPlan(), rng, lambda: next(answers))
    # Two batches are an epoch here.
    assert len(losses) == 2
    assert model.params["weights"].any()
    model, losses = fit(plain(), lessons_of(4), FitPlan(), rng, lambda: True)
    assert losses == []
    assert not model.params["weights"].any()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_leaves_the_old_model(bad: float) -> None:
    lessons = lessons_of(40)
    labels = lessons[-1].labels.copy()
    labels[0] = bad
    lessons[-1] = replace(lessons[-1], labels=labels)
    with np.errstate(invalid="ignore"):
        model, losses = trained(FRESH, lessons)
    assert model is FRESH
    assert math.isnan(losses[-1])


# --- Adam -------------------------------------------------------------------------------------


def test_adams_first_steps_are_those_of_the_paper() -> None:
    plan = FitPlan(learning_rate=0.1, pull=0.0)
    adam = Adam({"weights": np.array([1.0, -1.0])}, plan)
    adam.step({"weights": np.array([8.0, -0.004])}, 2)
    np.testing.assert_allclose(adam.params["weights"], [0.9, -0.9], atol=1e-6)
    adam.step({"weights": np.array([-2.0, 0.0])}, 1)
    slope = np.array([0.1 * 0.9 * 4.0 - 0.1 * 2.0, 0.1 * 0.9 * -0.002]) / (1 - 0.9**2)
    square = np.array([0.001 * 0.999 * 16.0 + 0.001 * 4.0, 0.001 * 0.999 * 4e-6]) / (1 - 0.999**2)
    expected = np.array([0.9, -0.9]) - 0.1 * slope / np.sqrt(square)
    np.testing.assert_allclose(adam.params["weights"], expected, atol=1e-5)


def test_only_the_named_rows_of_a_table_move_with_their_moments() -> None:
    rng = np.random.default_rng(0)
    start = rng.standard_normal((6, 3))
    adam = Adam({"table": start}, FitPlan())
    rows, other = np.array([1, 4]), np.array([0, 2, 3, 5])
    adam.step({"table": SparseRows(rows, rng.standard_normal((2, 3)))}, 1)
    assert (adam.params["table"][rows] != start[rows]).all()
    np.testing.assert_array_equal(adam.params["table"][other], start[other])
    # A row that is touched late starts as if it were the first step.
    values = rng.standard_normal((1, 3))
    late, first = adam, Adam({"table": start}, FitPlan())
    for one in (late, first):
        one.step({"table": SparseRows(np.array([5]), values)}, 1)
    np.testing.assert_array_equal(late.params["table"][5], first.params["table"][5])


def test_a_table_with_all_rows_named_moves_as_a_dense_one() -> None:
    rng = np.random.default_rng(0)
    start = {"table": rng.standard_normal((6, 3))}
    sparse, whole = Adam(start, FitPlan()), Adam(start, FitPlan())
    for _ in range(5):
        values = rng.standard_normal((6, 3))
        sparse.step({"table": SparseRows(np.arange(6), values)}, 4)
        whole.step({"table": values}, 4)
    np.testing.assert_allclose(sparse.params["table"], whole.params["table"])
