"""The replay: every session is ranked by a model that never saw it, in whatever order they come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from tenure.model import ranker
from tenure.model.base import Floats, Gradient, Lesson, Query, Rows
from tenure.model.replay import FOLDS, replayed
from tenure.model.standard import COMPOSITE
from tenure.rank.features import FEATURES
from tenure.rank.fuse import RRF_K
from tenure.rank.influence import ALPHAS, compare

COUNT = 12


@dataclass(frozen=True)
class Memorised:
    """Knows the labels of every session it learned from by heart, and nothing else."""

    known: Mapping[bytes, Floats]
    kind: str = "memory"

    @property
    def params(self) -> Mapping[str, Floats]:
        return {}

    def with_params(self, params: Mapping[str, Floats]) -> Memorised:
        return self

    def score(self, query: Query) -> Floats:
        return self.known.get(query.features.tobytes(), np.zeros(query.count))

    def loss_and_grads(self, lesson: Lesson) -> tuple[float, dict[str, Gradient]]:
        raise NotImplementedError


def by_heart(lessons: Sequence[Lesson]) -> Memorised:
    return Memorised({one.query.features.tobytes(): one.labels for one in lessons})


def sessions(count: int, seed: int = 0) -> tuple[list[str], list[Lesson], list[Rows]]:
    """Sessions with labels that have nothing to do with the baseline's order."""
    rng = np.random.default_rng(seed)
    lessons, ranks = [], []
    for _ in range(count):
        labels = np.zeros(COUNT)
        labels[rng.permutation(COUNT)[:2]] = rng.uniform(0.4, 1.0, 2)
        table = rng.standard_normal((COUNT, len(FEATURES)))
        rank = np.empty(COUNT, np.int64)
        rank[np.argsort(-table[:, COMPOSITE])] = np.arange(1, COUNT + 1)
        query = Query(features=table)
        lessons.append(Lesson(query=query, labels=labels, weights=np.ones(COUNT)))
        ranks.append(rank)
    return [f"session {n}" for n in range(count)], lessons, ranks


def test_no_session_is_ranked_by_a_model_that_learned_from_it() -> None:
    keys, lessons, ranks = sessions(40)
    found = replayed(keys, lessons, ranks, by_heart)
    # Whoever knows a session by heart gains; here nobody did, and all scores were level.
    assert found.ndcg.shape == found.log_rank.shape == (40, len(ALPHAS))
    assert not found.ndcg.any()
    assert not found.log_rank.any()
    # The memory works: with the session itself among what was learned, it would have shown.
    cheated = replayed(keys, lessons, ranks, lambda some: by_heart(lessons))
    assert (cheated.ndcg[:, -1] >= 0.0).all()
    assert cheated.ndcg[:, -1].mean() > 0.2


def test_every_other_part_is_learned_from() -> None:
    keys, lessons, ranks = sessions(40)
    asked: list[set[int]] = []

    def learn(some: Sequence[Lesson]) -> Memorised:
        asked.append({lessons.index(one) for one in some})
        return by_heart(some)

    # An array in a lesson makes == ambiguous: by identity.
    lessons = [_Same(**{name: getattr(one, name) for name in one.__slots__}) for one in lessons]
    replayed(keys, lessons, ranks, learn)
    assert len(asked) == FOLDS
    left_out = [set(range(40)) - one for one in asked]
    assert sorted(place for one in left_out for place in one) == list(range(40))
    assert all(left_out)


class _Same(Lesson):
    """A lesson that is equal to itself alone."""

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__


def test_the_order_of_the_sessions_does_not_matter() -> None:
    keys, lessons, ranks = sessions(30, seed=4)

    def learn(some: Sequence[Lesson]) -> ranker.Ranker:
        return ranker.fitted(some, ranker.baseline_weights())[0]

    plain = replayed(keys, lessons, ranks, learn)
    order = np.random.default_rng(1).permutation(30).tolist()
    mixed = replayed(*([one[place] for place in order] for one in (keys, lessons, ranks)), learn)  # type: ignore[arg-type]
    assert mixed.ndcg == pytest.approx(plain.ndcg[order], abs=1e-9)
    assert mixed.log_rank == pytest.approx(plain.log_rank[order], abs=1e-9)
    assert plain.ndcg.any()


@pytest.mark.parametrize("k", [1, RRF_K, 60])
def test_each_session_is_compared_as_a_finished_one_is(k: int) -> None:
    keys, lessons, ranks = sessions(15, seed=2)
    weights = np.random.default_rng(8).standard_normal(len(FEATURES))
    model = ranker.Ranker({"weights": weights, "prior": weights})
    found = replayed(keys, lessons, ranks, lambda some: model, k)
    for place, lesson in enumerate(lessons):
        order = np.argsort(-model.score(lesson.query), kind="stable")
        predicted = np.empty(COUNT, np.int64)
        predicted[order] = np.arange(1, COUNT + 1)
        outcome = compare(ranks[place], predicted, lesson.labels, k)
        assert outcome is not None
        assert found.ndcg[place] == pytest.approx(outcome.ndcg)
        assert found.log_rank[place] == pytest.approx(outcome.log_rank)


def test_level_scores_leave_the_baseline_order() -> None:
    keys, lessons, ranks = sessions(10, seed=3)
    nothing = np.zeros(len(FEATURES))
    flat = ranker.Ranker({"weights": nothing, "prior": nothing})
    assert not replayed(keys, lessons, ranks, lambda some: flat).log_rank.any()


def test_only_what_somebody_judged_counts() -> None:
    keys, lessons, ranks = sessions(1)
    weights = np.where(np.arange(COUNT) < 6, 1.0, 0.25)
    labels = np.where(np.arange(COUNT) < 6, 0.0, 1.0)
    soft = Lesson(query=lessons[0].query, labels=labels, weights=weights)
    # Nobody who judged found anything that helped.
    assert len(replayed(keys, [soft], ranks, by_heart).ndcg) == 0


def test_nothing_gives_nothing() -> None:
    found = replayed([], [], [], by_heart)
    assert found.ndcg.shape == found.log_rank.shape == (0, len(ALPHAS))
