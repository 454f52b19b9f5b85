"""The absolute score: what raises it, what lowers it, and the order that it keeps."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from meritory.rank.relevance import (
    NAMES,
    WEIGHTS,
    WORD_NAMES,
    WORD_WEIGHTS,
    QueryMatch,
    descending,
    numbers_of,
    probabilities,
)

FOUND = np.array([[True, True, True], [True, False, False], [False, False, False]])
MATCH = QueryMatch(
    found=FOUND,
    phrases=np.array([1.0, 0.0, 0.0]),
    frequencies=np.array([2.0, 5.0, 1.0]),
    cosine=np.array([0.6, 0.3, 0.1]),
    final=np.array([0.9, 0.5, 0.2]),
    memory_count=100,
)


def test_better_matches_are_more_likely() -> None:
    likely = probabilities(MATCH)
    assert likely[0] > 0.5 > likely[1] > likely[2] > 0.0


def test_the_same_match_has_the_same_score_whatever_else_was_found() -> None:
    alone = replace(
        MATCH,
        found=FOUND[:1],
        phrases=MATCH.phrases[:1],
        cosine=MATCH.cosine[:1],
        final=MATCH.final[:1],
    )
    assert np.isclose(probabilities(alone)[0], probabilities(MATCH)[0])


def test_words_that_the_store_does_not_know_lower_the_score() -> None:
    known = replace(MATCH, found=FOUND & [True, True, False])
    unknown = replace(known, frequencies=np.array([2.0, 5.0, 0.0]))
    assert (probabilities(unknown) < probabilities(known)).all()


def test_without_a_vector_the_words_decide() -> None:
    words = replace(MATCH, cosine=np.full(3, np.nan))
    expected = WORD_WEIGHTS.probabilities(numbers_of(words))
    assert np.array_equal(probabilities(words), expected)
    assert expected[0] > 0.4
    assert expected[2] < 0.05


def test_every_weight_has_the_sign_of_its_meaning() -> None:
    for weights, names in ((WEIGHTS, NAMES), (WORD_WEIGHTS, WORD_NAMES)):
        assert set(weights.by_name) <= set(names)
        for name, weight in weights.by_name.items():
            assert (weight < 0.0) == (name in ("unknown", "memory_count")), name
        assert min(weights.by_place[1:]) > 0.0


def test_nothing_was_read() -> None:
    none = np.empty(0)
    empty = QueryMatch(np.empty((0, 1), bool), none, np.array([0.0]), none, none, 0)
    assert probabilities(empty).shape == (0,)


@given(st.lists(st.floats(0.0, 1.0), max_size=12))
def test_scores_never_rise_and_keep_their_mean(scores: list[float]) -> None:
    served = descending(scores)
    assert len(served) == len(scores)
    assert all(left >= right - 1e-12 for left, right in pairwise(served))
    assert np.isclose(sum(served), sum(scores))
    assert np.allclose(descending(served), served)


def test_scores_in_order_stay_as_they_are() -> None:
    assert descending([0.9, 0.4, 0.4, 0.1]) == [0.9, 0.4, 0.4, 0.1]
    assert descending([0.2, 0.6, 0.1]) == [0.4, 0.4, 0.1]
