"""Cross-fitting: every session is scored by a model that never saw it, in whatever order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from meritory.model import ranker
from meritory.model.base import Floats, Gradient, RankingQuery, TrainingExample
from meritory.model.fit import FOLDS, crossed
from meritory.model.ranker import COMPOSITE
from meritory.rank.features import FEATURES

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

    def score(self, query: RankingQuery) -> Floats:
        return self.known.get(query.features.tobytes(), np.zeros(query.count))

    def loss_and_grads(self, lesson: TrainingExample) -> tuple[float, dict[str, Gradient]]:
        raise NotImplementedError


def by_heart(lessons: Sequence[TrainingExample]) -> Memorised:
    return Memorised({one.query.features.tobytes(): one.labels for one in lessons})


def sessions(count: int, seed: int = 0) -> tuple[list[str], list[TrainingExample]]:
    """Return sessions whose labels the composite says something about."""
    rng = np.random.default_rng(seed)
    lessons = []
    for _ in range(count):
        labels = np.zeros(COUNT)
        labels[rng.permutation(COUNT)[:2]] = rng.uniform(0.4, 1.0, 2)
        table = rng.standard_normal((COUNT, len(FEATURES)))
        table[:, COMPOSITE] += labels
        lessons.append(
            TrainingExample(
                query=RankingQuery(features=table), labels=labels, weights=np.ones(COUNT)
            )
        )
    return [f"session {n}" for n in range(count)], lessons


def test_no_session_is_scored_by_a_model_that_learned_from_it() -> None:
    keys, lessons = sessions(40)
    found = crossed(keys, lessons, by_heart)
    # A model that knew the session by heart would return its labels.
    assert [scores.tolist() for scores in found] == [[0.0] * COUNT] * 40
    cheated = crossed(keys, lessons, lambda some: by_heart(lessons))
    for scores, lesson in zip(cheated, lessons, strict=True):
        assert scores.tolist() == lesson.labels.tolist()


def test_each_model_learns_from_all_other_parts() -> None:
    keys, lessons = sessions(40)
    places = {id(lesson): place for place, lesson in enumerate(lessons)}
    learned: list[set[int]] = []

    def learn(some: Sequence[TrainingExample]) -> Memorised:
        learned.append({places[id(one)] for one in some})
        return by_heart(some)

    crossed(keys, lessons, learn)
    assert len(learned) == FOLDS
    left_out = [set(range(40)) - one for one in learned]
    assert sorted(place for one in left_out for place in one) == list(range(40))
    assert all(left_out)


def learn_weights(lessons: Sequence[TrainingExample]) -> ranker.Ranker:
    return ranker.fitted(lessons, ranker.baseline_weights())[0]


def test_the_order_of_the_sessions_does_not_matter() -> None:
    keys, lessons = sessions(30, seed=4)
    plain = crossed(keys, lessons, learn_weights)
    order = np.random.default_rng(1).permutation(30).tolist()
    mixed = crossed(
        [keys[place] for place in order], [lessons[place] for place in order], learn_weights
    )
    for place, scores in zip(order, mixed, strict=True):
        assert scores == pytest.approx(plain[place], abs=1e-9)


def test_a_session_stays_in_its_part_when_others_are_added() -> None:
    keys, lessons = sessions(30, seed=5)
    parts: dict[str, list[frozenset[int]]] = {"few": [], "many": []}
    places = {id(lesson): place for place, lesson in enumerate(lessons)}

    def left_out(name: str, count: int) -> None:
        def learn(some: Sequence[TrainingExample]) -> Memorised:
            parts[name].append(frozenset(range(count)) - {places[id(one)] for one in some})
            return by_heart(some)

        crossed(keys[:count], lessons[:count], learn)

    left_out("few", 15)
    left_out("many", 30)
    kept = {frozenset(place for place in part if place < 15) for part in parts["many"]}
    assert kept == set(parts["few"])


def test_the_scores_are_those_of_the_model() -> None:
    keys, lessons = sessions(10, seed=2)
    weights = np.random.default_rng(8).standard_normal(len(FEATURES))
    model = ranker.Ranker({"weights": weights, "prior": weights})
    found = crossed(keys, lessons, lambda some: model)
    for scores, lesson in zip(found, lessons, strict=True):
        assert scores.tolist() == model.score(lesson.query).tolist()


def test_a_single_session_is_scored_by_a_model_that_learned_nothing() -> None:
    keys, lessons = sessions(1)
    counts: list[int] = []

    def learn(some: Sequence[TrainingExample]) -> ranker.Ranker:
        counts.append(len(some))
        return learn_weights(some)

    (scores,) = crossed(keys, lessons, learn)
    assert counts == [0]
    assert scores.tolist() == ranker.Ranker.untrained().score(lessons[0].query).tolist()


def test_no_session_gives_no_scores() -> None:
    assert crossed([], [], by_heart) == []
