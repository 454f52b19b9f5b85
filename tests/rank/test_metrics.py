"""Ranking metrics: exact values, laws that hold for any ranking, and nothing NaN can break."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meritory.rank.metrics import bootstrap_interval, dcg, ndcg_at, paired_bootstrap

LABELS = st.dictionaries(
    st.integers(0, 30), st.floats(-1.0, 1.0, allow_nan=False), min_size=1, max_size=20
)
RANKINGS = st.lists(st.integers(0, 30), max_size=40)
WILD = st.floats(allow_nan=True, allow_infinity=True)


def test_dcg_discounts_by_the_binary_logarithm_of_the_place() -> None:
    assert dcg([3.0, 2.0, 1.0]) == pytest.approx(3.0 + 2.0 / math.log2(3) + 0.5)


def test_dcg_of_nothing_is_zero() -> None:
    assert dcg([]) == 0.0


def test_negative_labels_gain_nothing() -> None:
    assert dcg([-1.0, 1.0]) == pytest.approx(1.0 / math.log2(3))


def test_ndcg_of_a_known_ranking() -> None:
    labels = {"a": 1.0, "b": 1.0}
    ideal = 1.0 + 1.0 / math.log2(3)
    assert ndcg_at(["a", "x", "b"], labels, 10) == pytest.approx(1.5 / ideal)
    assert ndcg_at(["a", "x", "b"], labels, 2) == pytest.approx(1.0 / ideal)


def test_ndcg_takes_its_ideal_from_labels_that_were_not_ranked_too() -> None:
    assert ndcg_at(["x"], {"a": 1.0}, 10) == 0.0


@pytest.mark.parametrize("labels", [{}, {"a": 0.0}, {"a": -0.5}, {"a": float("nan")}])
def test_ndcg_without_a_positive_label_is_none(labels: dict[str, float]) -> None:
    assert ndcg_at(["a"], labels, 10) is None


def test_an_item_ranked_twice_counts_once() -> None:
    assert ndcg_at(["a", "a", "b"], {"a": 1.0, "b": 1.0}, 2) == pytest.approx(1.0)


@given(RANKINGS, LABELS, st.integers(1, 20))
def test_ndcg_lies_between_zero_and_one(
    ranking: list[int], labels: dict[int, float], k: int
) -> None:
    found = ndcg_at(ranking, labels, k)
    assert found is None or 0.0 <= found <= 1.0


@given(st.lists(st.integers(0, 30), max_size=20), st.dictionaries(st.integers(0, 30), WILD))
def test_wild_labels_never_give_a_wild_result(ranking: list[int], labels: dict[int, float]) -> None:
    found = ndcg_at(ranking, labels, 10)
    assert found is None or math.isfinite(found)


@given(LABELS, st.integers(1, 20))
def test_the_ideal_order_has_ndcg_one(labels: dict[int, float], k: int) -> None:
    order = sorted(labels, key=lambda item: -labels[item])
    found = ndcg_at(order, labels, k)
    assert found is None or found == pytest.approx(1.0)


@given(st.permutations(range(8)), st.integers(0, 6))
def test_lifting_a_better_item_never_lowers_ndcg(order: list[int], at: int) -> None:
    labels = {item: item / 8 for item in range(8)}
    swapped = list(order)
    if labels[swapped[at]] < labels[swapped[at + 1]]:
        swapped[at], swapped[at + 1] = swapped[at + 1], swapped[at]
    before, after = ndcg_at(order, labels, 5), ndcg_at(swapped, labels, 5)
    assert before is not None
    assert after is not None
    assert after >= before - 1e-12


@pytest.mark.parametrize("k", [0, -3])
def test_a_cut_below_one_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        ndcg_at(["a"], {"a": 1.0}, k)


def test_the_interval_holds_the_mean_and_narrows_with_more_values() -> None:
    rng = np.random.default_rng(1)
    few = bootstrap_interval(rng.normal(0.3, 1.0, 50), np.random.default_rng(2))
    many = bootstrap_interval(rng.normal(0.3, 1.0, 5000), np.random.default_rng(2))
    assert few.low < few.mean < few.high
    assert many.high - many.low < (few.high - few.low) / 3
    assert many.excludes_zero


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(200):
        found = bootstrap_interval(rng.normal(1.0, 2.0, 60), rng, resamples=300)
        covered += found.low <= 1.0 <= found.high
    assert 175 <= covered <= 200


def test_the_interval_is_the_same_for_the_same_generator() -> None:
    values = np.linspace(0, 1, 30)
    first = bootstrap_interval(values, np.random.default_rng(3))
    assert first == bootstrap_interval(values, np.random.default_rng(3))


def test_values_that_are_not_finite_are_left_out() -> None:
    found = bootstrap_interval([1.0, float("nan"), 1.0, float("inf")], np.random.default_rng(0))
    assert (found.mean, found.low, found.high, found.count) == (1.0, 1.0, 1.0, 2)


def test_an_empty_sample_has_no_interval_and_excludes_nothing() -> None:
    found = bootstrap_interval([], np.random.default_rng(0))
    assert math.isnan(found.mean)
    assert found.count == 0
    assert not found.excludes_zero


def test_pairing_removes_what_both_methods_share() -> None:
    rng = np.random.default_rng(4)
    hard = rng.uniform(0, 1, 300)
    found = paired_bootstrap(hard + 0.05, hard, np.random.default_rng(5))
    assert found.mean == pytest.approx(0.05)
    assert found.high - found.low < 1e-9


def test_unpaired_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in size"):
        paired_bootstrap([1.0], [1.0, 2.0], np.random.default_rng(0))


@pytest.mark.parametrize(("resamples", "level"), [(0, 0.95), (10, 0.0), (10, 1.0)])
def test_impossible_intervals_are_refused(resamples: int, level: float) -> None:
    with pytest.raises(ValueError, match="resamples"):
        bootstrap_interval([1.0], np.random.default_rng(0), resamples, level)
