"""Recall and reciprocal rank: exact values, and laws that hold for any ranking."""

from __future__ import annotations

import pytest
from bench.measures import mrr, recall_at
from hypothesis import given
from hypothesis import strategies as st

RANKINGS = st.lists(st.integers(0, 30), max_size=40)


def test_an_item_ranked_twice_counts_once() -> None:
    assert recall_at(["a", "a", "b"], {"a", "b"}, 2) == 1.0
    assert mrr(["x", "x", "a"], {"a"}) == 0.5


@given(st.permutations(range(10)), st.sets(st.integers(0, 9), min_size=1))
def test_order_inside_the_cut_does_not_change_recall(order: list[int], relevant: set[int]) -> None:
    shuffled = sorted(order[:5]) + order[5:]
    assert recall_at(order, relevant, 5) == recall_at(shuffled, relevant, 5)


@given(RANKINGS, st.sets(st.integers(0, 30), min_size=1), st.integers(1, 20))
def test_recall_grows_with_k(ranking: list[int], relevant: set[int], k: int) -> None:
    share, more = recall_at(ranking, relevant, k), recall_at(ranking, relevant, k + 1)
    assert share is not None
    assert more is not None
    assert 0.0 <= share <= more <= 1.0


def test_nothing_relevant_has_no_recall_and_no_rank() -> None:
    assert recall_at(["a"], set(), 5) is None
    assert mrr(["a"], set()) is None


def test_mrr_is_one_over_the_first_relevant_place() -> None:
    assert mrr(["x", "y", "a", "b"], {"a", "b"}) == pytest.approx(1 / 3)
    assert mrr(["x"], {"a"}) == 0.0


@pytest.mark.parametrize("k", [0, -3])
def test_a_cut_below_one_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        recall_at(["a"], {"a"}, k)
