"""Fusion: the formula, missing ranks, ties, and that alpha 1 is the baseline exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meritory.domain.policy import RRF_K
from meritory.rank.fusion import fuse, ranks, rrf

WILD = st.floats(allow_nan=True, allow_infinity=True)
COARSE = st.integers(-3, 3).map(float)
PAIRS = st.lists(st.tuples(COARSE | WILD, COARSE | WILD), max_size=12).map(
    lambda pairs: np.array(pairs, dtype=np.float64).reshape(-1, 2).T
)


def names(count: int) -> list[str]:
    # Not in the order of the positions, so that a tie by id differs from a tie by position.
    return [f"id{(count - n) * 7 % 31:02d}-{n}" for n in range(count)]


def test_the_formula_by_hand() -> None:
    found = fuse([0.9, 0.5, 0.1], [0.2, 0.9, 0.3], ["a", "b", "c"], 0.6)
    assert found.baseline_ranks.tolist() == [1, 2, 3]
    assert found.predictor_ranks.tolist() == [3, 1, 2]
    expected = [0.6 / 13 + 0.4 / 15, 0.6 / 14 + 0.4 / 13, 0.6 / 15 + 0.4 / 14]
    assert found.scores == pytest.approx(expected)
    assert found.order.tolist() == [1, 0, 2]


def test_k_sets_how_much_the_first_ranks_matter() -> None:
    assert rrf([1], [1], 1.0, 0) == pytest.approx([1.0])
    assert rrf([1, 50], [1, 50], 1.0) == pytest.approx([1 / (RRF_K + 1), 1 / (RRF_K + 50)])


def test_a_missing_rank_is_the_count_plus_one() -> None:
    found = fuse([3.0, 2.0, 1.0], [np.nan, 0.5, np.inf], ["a", "b", "c"], 0.5)
    assert found.predictor_ranks.tolist() == [4, 1, 4]
    assert found.scores[0] == pytest.approx(0.5 / 13 + 0.5 / 16)


def test_without_a_predictor_the_baseline_decides_whatever_alpha_is() -> None:
    for alpha in (0.0, 0.3, 1.0):
        found = fuse([0.1, 0.9, 0.5], None, ["a", "b", "c"], alpha)
        assert found.order.tolist() == [1, 2, 0]
        assert found.predictor_ranks.tolist() == [4, 4, 4]


def test_a_predictor_that_cannot_tell_memories_apart_follows_the_baseline() -> None:
    found = fuse([0.1, 0.9, 0.5], [0.7, 0.7, 0.7], ["a", "b", "c"], 0.0)
    assert found.order.tolist() == [1, 2, 0]
    assert found.predictor_ranks.tolist() == found.baseline_ranks.tolist()


def test_the_baseline_breaks_its_own_ties_by_id() -> None:
    assert fuse([0.5, 0.5, 0.9], None, ["z", "b", "c"], 1.0).order.tolist() == [2, 1, 0]


def test_ties_of_the_fused_score_go_to_the_baseline() -> None:
    found = fuse([0.1, 0.9], [0.9, 0.1], ["a", "b"], 0.5)
    assert found.scores[0] == found.scores[1]
    assert found.order.tolist() == [1, 0]


@given(PAIRS)
@settings(max_examples=60)
def test_alpha_one_is_exactly_the_baseline_order(pair: np.ndarray) -> None:
    baseline, predictor = pair
    ids = names(len(baseline))
    found = fuse(baseline, predictor, ids, 1.0)
    score = [value if np.isfinite(value) else -np.inf for value in baseline]
    expected = sorted(range(len(ids)), key=lambda n: (-score[n], ids[n]))
    assert found.order.tolist() == expected


@given(PAIRS)
@settings(max_examples=60)
def test_alpha_zero_is_the_predictor_order_with_the_silent_last(
    pair: np.ndarray,
) -> None:
    baseline, predictor = pair
    found = fuse(baseline, predictor, names(len(baseline)), 0.0)
    score = np.where(np.isfinite(predictor), predictor, -np.inf)[found.order]
    assert (score[:-1] >= score[1:]).all()


@given(PAIRS, st.floats(0.0, 1.0))
@settings(max_examples=60)
def test_fused_scores_are_bounded_sorted_and_complete(pair: np.ndarray, alpha: float) -> None:
    baseline, predictor = pair
    count = len(baseline)
    found = fuse(baseline, predictor, names(count), alpha)
    assert sorted(found.order.tolist()) == list(range(count))
    assert (np.diff(found.scores[found.order]) <= 0.0).all()
    assert ((found.scores > 0.0) & (found.scores <= 1.0 / (RRF_K + 1) + 1e-12)).all()
    for given_scores, got in ((baseline, found.baseline_ranks), (predictor, found.predictor_ranks)):
        heard = int(np.isfinite(given_scores).sum())
        assert sorted(got.tolist()) == [*range(1, heard + 1), *[count + 1] * (count - heard)]


@given(st.permutations(range(8)), st.floats(0.0, 1.0))
def test_the_order_of_the_rows_does_not_matter(order: list[int], alpha: float) -> None:
    baseline = np.array([5.0, 3.0, 3.0, 1.0, np.nan, np.nan, 2.0, 5.0])
    predictor = np.array([1.0, 1.0, 4.0, np.nan, 2.0, 2.0, np.inf, 0.0])
    ids = np.array(list("hgfedcba"))
    straight = fuse(baseline, predictor, ids.tolist(), alpha)
    shuffled = fuse(baseline[order], predictor[order], ids[order].tolist(), alpha)
    assert ids[straight.order].tolist() == ids[order][shuffled.order].tolist()
    assert straight.scores[order].tolist() == shuffled.scores.tolist()


@pytest.mark.parametrize(("alpha", "k"), [(-0.1, 12), (1.1, 12), (np.nan, 12), (0.5, -1)])
def test_a_weight_or_constant_out_of_bounds_is_refused(alpha: float, k: int) -> None:
    with pytest.raises(ValueError, match="alpha must be"):
        rrf([1], [1], alpha, k)


def test_arrays_of_different_size_are_refused() -> None:
    with pytest.raises(ValueError, match="2 scores for 1"):
        ranks([1.0, 2.0], ["a"])
    with pytest.raises(ValueError, match="1 scores for 2"):
        fuse([1.0, 2.0], [1.0], ["a", "b"], 0.5)
    with pytest.raises(ValueError, match="scores for"):
        ranks([[1.0]], [["a"]])
