"""Topic diversity: the factor, who counts as selected, who is never lowered, and a plain twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from meritory.rank.fusion import SIMILAR_COSINE, diversify, factor, named_apart

EAST, NORTH = [1.0, 0.0], [0.0, 1.0]


def rows(*vectors: list[float]) -> np.ndarray:
    return np.array(vectors, dtype=np.float32).reshape(len(vectors), -1)


def at(degrees: float) -> list[float]:
    return [float(np.cos(np.radians(degrees))), float(np.sin(np.radians(degrees)))]


def test_the_factor_halves_down_to_a_floor() -> None:
    assert factor([0, 1, 2]) == pytest.approx([1.0, 0.55, 0.325])
    assert factor(1000) == pytest.approx(0.1)


def test_the_second_and_third_on_a_topic_count_for_less() -> None:
    found = diversify([1.0, 0.9, 0.8, 0.7], rows(EAST, EAST, EAST, NORTH))
    assert found.overlaps.tolist() == [0, 1, 2, 0]
    assert found.scores == pytest.approx([1.0, 0.9 * 0.55, 0.8 * 0.325, 0.7])
    assert found.order.tolist() == [0, 3, 1, 2]


def test_the_best_of_a_topic_is_found_wherever_it_stands() -> None:
    found = diversify([0.5, 0.9, 0.7], rows(EAST, EAST, EAST))
    assert found.overlaps.tolist() == [2, 0, 1]


def test_what_has_sunk_no_longer_stands_in_the_way() -> None:
    # The middle one resembles both others, which do not resemble each other.
    found = diversify([1.0, 0.9, 0.8], rows(at(0), at(30), at(60)))
    assert found.overlaps.tolist() == [0, 2, 0]
    assert found.order.tolist() == [0, 2, 1]


def test_the_threshold_itself_is_not_similar() -> None:
    below = at(np.degrees(np.arccos(SIMILAR_COSINE)) + 0.05)
    above = at(np.degrees(np.arccos(SIMILAR_COSINE)) - 0.05)
    assert diversify([2.0, 1.0], rows(EAST, below)).overlaps.tolist() == [0, 0]
    assert diversify([2.0, 1.0], rows(EAST, above)).overlaps.tolist() == [0, 1]


def test_opposite_vectors_are_not_similar() -> None:
    assert diversify([2.0, 1.0], rows(EAST, [-1.0, 0.0])).overlaps.tolist() == [0, 0]


def test_required_memories_are_never_lowered_and_lower_others_from_the_start() -> None:
    found = diversify([0.9, 0.1, 0.2], rows(EAST, EAST, EAST), [False, True, True])
    assert found.overlaps.tolist() == [2, 0, 0]
    assert found.scores == pytest.approx([0.9 * 0.325, 0.1, 0.2])


def test_a_memory_without_a_vector_is_similar_to_nothing() -> None:
    nothing = [0.0, 0.0]
    found = diversify([3.0, 2.0, 1.0], rows(nothing, nothing, nothing))
    assert found.scores.tolist() == [3.0, 2.0, 1.0]


def test_a_broken_vector_is_similar_to_nothing() -> None:
    found = diversify([3.0, 2.0, 1.0], rows([np.nan, 0.0], EAST, EAST))
    assert found.overlaps.tolist() == [0, 0, 1]


def test_equal_scores_keep_the_order_given() -> None:
    found = diversify([1.0, 1.0, 1.0], rows(EAST, EAST, NORTH))
    assert found.overlaps.tolist() == [0, 1, 0]
    assert found.order.tolist() == [0, 2, 1]


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf, -1.0])
def test_a_broken_score_counts_as_nothing(broken: float) -> None:
    found = diversify([broken, 0.5], rows(EAST, EAST))
    assert found.scores.tolist() == [0.0, 0.5]


def test_no_candidates_are_no_trouble() -> None:
    found = diversify([], np.zeros((0, 4), np.float32))
    assert found.scores.shape == found.overlaps.shape == found.order.shape == (0,)


def test_arrays_of_different_size_are_refused() -> None:
    with pytest.raises(ValueError, match="2 scores, 1 vectors and 2"):
        diversify([1.0, 2.0], rows(EAST))
    with pytest.raises(ValueError, match="1 scores, 1 vectors and 2"):
        diversify([1.0], rows(EAST), [True, False])


def plain_overlaps(scores: list[float], vectors: np.ndarray, required: list[bool]) -> list[int]:
    """The same by its definition, one memory at a time."""
    cosine = vectors @ vectors.T
    selected = [n for n, flag in enumerate(required) if flag]
    overlaps = [0] * len(scores)
    waiting = [n for n, flag in enumerate(required) if not flag]
    while waiting:
        for n in waiting:
            overlaps[n] = sum(bool(cosine[n, m] > SIMILAR_COSINE) for m in selected)
        best = max(waiting, key=lambda n: (scores[n] * float(factor(overlaps[n])), -n))
        waiting.remove(best)
        selected.append(best)
    return overlaps


CASES = st.integers(1, 12).flatmap(
    lambda n: st.tuples(
        hnp.arrays(np.float64, n, elements=st.floats(0.0, 1.0)),
        hnp.arrays(np.float64, n, elements=st.integers(0, 23).map(float)),
        hnp.arrays(bool, n),
    )
)


@given(CASES)
@settings(max_examples=60)
def test_it_does_what_its_definition_says(case: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    scores, clock, required = case
    vectors = rows(*[at(15.0 * hour) for hour in clock])
    found = diversify(scores, vectors, required)
    assert found.overlaps.tolist() == plain_overlaps(scores.tolist(), vectors, required.tolist())
    assert found.scores == pytest.approx(scores * factor(found.overlaps))


@given(CASES)
@settings(max_examples=60)
def test_scores_only_fall_and_never_below_the_floor(
    case: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    scores, clock, required = case
    found = diversify(scores, rows(*[at(15.0 * hour) for hour in clock]), required)
    assert (found.scores <= scores).all()
    assert (found.scores >= 0.1 * scores - 1e-15).all()
    assert (found.scores[required] == scores[required]).all()
    assert (np.diff(found.scores[found.order]) <= 0.0).all()
    assert sorted(found.order.tolist()) == list(range(len(scores)))


@given(CASES)
@settings(max_examples=60)
def test_without_required_ones_the_best_memory_is_never_lowered(
    case: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    scores, clock, _ = case
    found = diversify(scores, rows(*[at(15.0 * hour) for hour in clock]))
    assert found.overlaps[int(np.argmax(scores))] == 0


def test_what_helped_side_by_side_does_not_repeat_itself() -> None:
    scores, vectors = [3.0, 2.0, 1.0], rows(EAST, EAST, EAST)
    together = np.zeros((3, 3), bool)
    together[0, 1] = together[1, 0] = True
    assert diversify(scores, vectors, None, lambda: together).overlaps.tolist() == [0, 0, 2]
    assert diversify(scores, vectors).overlaps.tolist() == [0, 1, 2]


def test_memories_with_different_names_are_apart() -> None:
    openings = ["a.py\nx", "b.py\nx", "a.py\ny", "src/c.py", "src/d.py", "The port is 1", "The 2"]
    apart = named_apart(openings)
    assert (apart == apart.T).all()
    pairs = {(i, j) for i, j in np.argwhere(apart).tolist() if i < j}
    assert pairs == {(0, 1), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 4)}
    assert named_apart([]).shape == (0, 0)
