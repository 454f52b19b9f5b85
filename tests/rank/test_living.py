"""The living feed: the match with a context, what recency and usefulness count from, and bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.rank import scores
from tenure.rank.history import Moment, Past, Usage, look_back, usage
from tenure.rank.living import (
    TRUSTED_RECURRENCE,
    Feed,
    context_match,
    living_parts,
    relative,
)

WILD = st.floats(allow_nan=True, allow_infinity=True)
NOTHING = np.zeros(0, np.int64)
NO_PAST = Past(np.zeros(0), np.zeros((0, 2), np.float32), NOTHING, NOTHING, NOTHING, np.zeros(0))


def used(past: Past, count: int) -> Usage:
    moment = Moment(100.0, np.array([1.0, 0.0], np.float32))
    return usage(look_back(past, moment), np.arange(count, dtype=np.int64))


def helped(day: float, *gains: float) -> Past:
    """A past of one session about the same, in which the first memories helped."""
    rows = np.arange(len(gains), dtype=np.int64)
    context = np.array([[1.0, 0.0]], np.float32)
    return Past(np.array([day]), context, np.zeros(1, np.int64), rows * 0, rows, np.array(gains))


def test_the_match_is_seven_parts_cosine_and_three_parts_words() -> None:
    found = context_match([0.5, -0.2, math.nan], [4.0, 8.0, 0.0])
    assert found == pytest.approx([0.35 + 0.15, 0.3, 0.0])


def test_without_history_it_is_about_relevance_and_age_alone() -> None:
    parts = living_parts(Feed([0.2, 0.4], [14.0, 0.0], used(NO_PAST, 2), [0.8, 0.8], [0, 0]))
    relevance, recency, usefulness, confidence, frequency = parts
    assert relevance.tolist() == [0.5, 1.0]
    assert recency == pytest.approx([math.exp(-0.7), 1.0])
    assert usefulness.tolist() == [0.0, 0.0]
    assert confidence.tolist() == [0.8, 0.8]
    assert frequency.tolist() == [0.0, 0.0]


def test_recency_counts_from_the_last_time_it_helped() -> None:
    past = helped(98.0, 1.0)
    _, recency, *_ = living_parts(
        Feed([1.0, 1.0], [400.0, 10.0], used(past, 2), [0.8, 0.8], [0, 0])
    )
    assert recency == pytest.approx([math.exp(-0.1), math.exp(-0.5)])


def test_an_unknown_age_is_neutral() -> None:
    _, recency, *_ = living_parts(Feed([1.0], [math.nan], used(NO_PAST, 1), [0.8], [0]))
    assert recency == pytest.approx([scores.NEUTRAL_RECENCY])


def test_the_most_useful_candidate_has_a_usefulness_of_one() -> None:
    past = helped(100.0, 1.0, 0.5)
    _, _, usefulness, *_ = living_parts(
        Feed([1.0] * 3, [5.0] * 3, used(past, 3), [0.8] * 3, [0] * 3)
    )
    frecency = math.log1p(0.5) / math.log1p(1.0)
    assert usefulness == pytest.approx([1.0, 0.7 * 0.5 + 0.3 * frecency, 0.0])


def test_what_helped_goes_before_an_equal_match_that_never_did() -> None:
    past = helped(99.0, 0.5)
    parts = living_parts(Feed([0.3, 0.3], [50.0, 50.0], used(past, 2), [0.8, 0.8], [0, 0]))
    composite = scores.explain(*parts).composite
    assert composite[0] > composite[1] + 0.3


@given(st.lists(WILD, max_size=8))
def test_shares_lie_in_0_to_1_and_the_best_has_1(values: list[float]) -> None:
    found = relative(values)
    assert np.isfinite(found).all()
    assert ((found >= 0.0) & (found <= 1.0)).all()
    if any(math.isfinite(value) and value > 1e-6 for value in values):
        assert found.max() == 1.0


@given(st.lists(st.tuples(WILD, WILD, WILD, WILD), min_size=1, max_size=6))
def test_the_composite_is_finite_whatever_comes_in(rows: list[tuple[float, ...]]) -> None:
    match, age, confidence, access = (np.array(column) for column in zip(*rows, strict=True))
    parts = living_parts(Feed(match, age, used(helped(90.0, 1.0), len(rows)), confidence, access))
    whole = scores.explain(*parts)
    assert ((whole.composite >= 0.0) & (whole.composite <= 1.0)).all()


def test_history_counts_for_less_where_what_helps_is_mostly_new() -> None:
    past = used(helped(90.0, 1.0), 2)

    def parts(recurrence: float) -> tuple[float, float]:
        feed = Feed([1.0, 1.0], [400.0, 10.0], past, [0.8, 0.8], [0, 0], recurrence)
        _, recency, usefulness, *_ = living_parts(feed)
        return float(recency[0]), float(usefulness[0])

    assert parts(TRUSTED_RECURRENCE) == parts(1.0)
    whole, half = parts(1.0), parts(TRUSTED_RECURRENCE / 2.0)
    assert half == pytest.approx((whole[0] / 2.0, whole[1] / 2.0))
