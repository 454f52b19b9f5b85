"""Soft match: coverage of a question and a text by the meaning of their words."""

from __future__ import annotations

import numpy as np
import pytest

from meritory.rank.soft import (
    COSINE_FLOOR,
    STANDING_FACTOR,
    Bags,
    Coverage,
    cover,
    soft_scores,
    with_soft,
    with_standing,
)


def pieces(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def test_bags_hold_each_piece_once_and_keep_every_text_apart() -> None:
    bags = Bags.of([pieces(7, 3), pieces(), pieces(3, 9)])
    assert bags.distinct.tolist() == [3, 7, 9]
    assert bags.sizes.tolist() == [2, 0, 2]
    assert bags.distinct[bags.places].tolist() == [7, 3, 3, 9]


def test_a_memory_covers_a_question_by_its_closest_words_and_their_rarity() -> None:
    bags = Bags.of([pieces(0), pieces(1), pieces(0, 1), pieces()])
    cosines = np.array([[1.0, 0.6], [0.0, 1.0]], np.float32)
    found = cover(cosines, bags, np.array([3.0, 1.0]), np.array([1.0, 1.0]))
    near = (0.6 - COSINE_FLOOR) / (1.0 - COSINE_FLOOR)
    assert found.asked == pytest.approx([0.75, (3 * near + 1) / 4, 1.0, 0.0])
    assert found.told == pytest.approx([1.0, 1.0, 1.0, 0.0])


def test_words_of_a_memory_that_the_question_lacks_count_against_it() -> None:
    bags = Bags.of([pieces(0), pieces(0, 1)])
    cosines = np.array([[1.0, 0.1]], np.float32)
    found = cover(cosines, bags, np.array([1.0]), np.array([1.0, 3.0]))
    assert found.asked.tolist() == [1.0, 1.0]
    assert found.told == pytest.approx([1.0, 0.25])


@pytest.mark.parametrize("texts", [[], [pieces()]])
def test_without_words_nothing_is_covered(texts: list[np.ndarray]) -> None:
    bags = Bags.of(texts)
    found = cover(np.zeros((1, 0), np.float32), bags, np.array([1.0]), np.zeros(0))
    assert found.asked.tolist() == found.told.tolist() == [0.0] * len(texts)
    assert soft_scores(found).tolist() == [0.0] * len(texts)


def test_what_three_quarters_of_the_pool_reach_is_no_match() -> None:
    asked = np.array([0.9, 0.5] + [0.3] * 126)
    found = soft_scores(Coverage(asked, np.zeros(128)))
    assert found[0] == 1.0
    assert 0.0 < found[1] < 1.0
    assert not found[2:].any()


def test_in_a_small_pool_every_match_counts() -> None:
    found = soft_scores(Coverage(np.array([0.9, 0.6, 0.0]), np.zeros(3)))
    assert found == pytest.approx([1.0, 2 / 3, 0.0])


def test_a_pool_without_a_soft_match_keeps_its_scores() -> None:
    own = np.array([0.8, 0.2])
    assert with_soft(own, np.zeros(2), 100.0).tolist() == own.tolist()
    found = with_soft(own, np.array([0.0, 1.0]), 100.0)
    assert found == pytest.approx([0.48, 0.52])
    among_long_texts = with_soft(own, np.array([0.0, 1.0]), 800.0)
    assert among_long_texts == pytest.approx([0.72, 0.28])


def test_only_standing_memories_that_match_gain_and_the_score_stays_in_range() -> None:
    own = np.array([0.5, 0.5, 0.5, 0.0, 0.9])
    standing = np.array([False, True, True, True, True])
    condition = np.array([0.0, 0.0, 0.5, 1.0, 1.0])
    found = with_standing(own, standing, condition)
    assert found[0] == 0.5
    assert found[1] == pytest.approx(0.5 * STANDING_FACTOR)
    assert found[1] < found[2] < 1.0
    assert found[3] == 0.0
    assert found[4] == 1.0
