"""The history feed: which numbers feed the composite, and how far trust lets history count."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from meritory.domain.memory import DEFAULT_CONFIDENCE, DEFAULT_USEFULNESS
from meritory.rank import composite as rank_composite
from meritory.rank.composite import (
    FULL_TRUST,
    NO_TRUST,
    TITLE_SHARE,
    Feed,
    HistoryParts,
    Trust,
    context_match,
    history_parts,
    relative,
)
from meritory.rank.usage_history import Moment, Usage, UsedSessions, look_back, usage

WILD = st.floats(allow_nan=True, allow_infinity=True)
SHARE = st.floats(0.0, 1.0)
NOTHING = np.zeros(0, np.int64)
NO_PAST = UsedSessions(
    np.zeros(0), np.zeros((0, 2), np.float32), NOTHING, NOTHING, NOTHING, np.zeros(0)
)


def used(past: UsedSessions, count: int) -> Usage:
    moment = Moment(100.0, np.array([1.0, 0.0], np.float32))
    return usage(look_back(past, moment), np.arange(count, dtype=np.int64))


def helped(day: float, *gains: float) -> UsedSessions:
    """Return a past of one session with the same context, in which the first memories helped."""
    rows = np.arange(len(gains), dtype=np.int64)
    context = np.array([[1.0, 0.0]], np.float32)
    return UsedSessions(
        np.array([day]), context, np.zeros(1, np.int64), rows * 0, rows, np.array(gains)
    )


def feed(match: ArrayLike, age_days: ArrayLike, past: UsedSessions = NO_PAST) -> Feed:
    """Return a feed without title matches, with the default confidence and no access."""
    count = len(np.asarray(match))
    return Feed(
        match=match,
        title=[0.0] * count,
        age_days=age_days,
        usage=used(past, count),
        confidence=[DEFAULT_CONFIDENCE] * count,
        access_count=[0] * count,
    )


def composite(parts: HistoryParts, trust: Trust) -> NDArray[np.float64]:
    return rank_composite.explain(*parts.shrunk(trust)).composite


# -- relevance ------------------------------------------------------------------------------


def test_the_match_is_seven_parts_cosine_and_three_parts_words() -> None:
    found = context_match([0.5, -0.2, math.nan], [4.0, 8.0, 0.0])
    assert found == pytest.approx([0.35 + 0.15, 0.3, 0.0])


def test_title_words_add_their_share_to_the_match() -> None:
    titled = replace(feed([0.2, 0.4, 0.4], [0.0] * 3), title=[3.0, 0.0, 6.0])
    best = 1.0 + TITLE_SHARE
    assert history_parts(titled).relevance == pytest.approx(
        [(0.5 + TITLE_SHARE / 2.0) / best, 1.0 / best, 1.0]
    )


def test_without_a_title_match_relevance_is_the_match_alone() -> None:
    assert history_parts(feed([0.2, 0.4], [14.0, 0.0])).relevance.tolist() == [0.5, 1.0]


@given(st.lists(WILD, max_size=8))
def test_shares_lie_in_0_to_1_and_the_best_has_1(values: list[float]) -> None:
    found = relative(values)
    assert np.isfinite(found).all()
    assert ((found >= 0.0) & (found <= 1.0)).all()
    if any(math.isfinite(value) and value > 1e-6 for value in values):
        assert found.max() == 1.0


# -- the parts of history -------------------------------------------------------------------


def test_without_history_age_and_stored_numbers_are_the_parts() -> None:
    parts = history_parts(feed([0.2, 0.4], [14.0, 0.0]))
    assert parts.recency == pytest.approx([math.exp(-0.7), 1.0])
    assert parts.usefulness.tolist() == [0.0, 0.0]
    assert parts.confidence.tolist() == [DEFAULT_CONFIDENCE] * 2
    assert parts.frequency.tolist() == [0.0, 0.0]


def test_recency_counts_from_the_last_time_it_helped() -> None:
    parts = history_parts(feed([1.0, 1.0], [400.0, 10.0], helped(98.0, 1.0)))
    assert parts.recency == pytest.approx([math.exp(-0.1), math.exp(-0.5)])


def test_an_unknown_age_is_neutral() -> None:
    assert history_parts(feed([1.0], [math.nan])).recency == pytest.approx(
        [rank_composite.NEUTRAL_RECENCY]
    )


def test_the_most_useful_candidate_has_a_usefulness_of_one() -> None:
    parts = history_parts(feed([1.0] * 3, [5.0] * 3, helped(100.0, 1.0, 0.5)))
    frecency = math.log1p(0.5) / math.log1p(1.0)
    assert parts.usefulness == pytest.approx([1.0, 0.7 * 0.5 + 0.3 * frecency, 0.0])


# -- trust ----------------------------------------------------------------------------------


def some_parts(seed: int, count: int = 20) -> HistoryParts:
    rng = np.random.default_rng(seed)
    return HistoryParts(*(rng.random(count) for _ in fields(HistoryParts)))


@pytest.mark.parametrize("seed", range(5))
def test_with_no_trust_the_order_is_that_of_relevance(seed: int) -> None:
    parts = some_parts(seed)
    found = composite(parts, NO_TRUST)
    assert np.argsort(found).tolist() == np.argsort(parts.relevance).tolist()
    # Everything but relevance is one and the same number.
    assert np.diff(found) == pytest.approx(
        rank_composite.WEIGHT_RELEVANCE * np.diff(parts.relevance)
    )
    # With full trust this would be another order.
    assert np.argsort(composite(parts, FULL_TRUST)).tolist() != np.argsort(found).tolist()


def test_with_full_trust_the_parts_are_left_as_they_are() -> None:
    parts = some_parts(7)
    whole = (parts.relevance, parts.recency, parts.usefulness, parts.confidence, parts.frequency)
    for shrunk, part in zip(parts.shrunk(FULL_TRUST), whole, strict=True):
        assert shrunk == pytest.approx(part)


def test_a_part_without_trust_is_its_neutral_value() -> None:
    parts = some_parts(8)
    _, recency, usefulness, confidence, frequency = parts.shrunk(NO_TRUST)
    assert set(recency) == {rank_composite.NEUTRAL_RECENCY}
    assert set(usefulness) == {DEFAULT_USEFULNESS}
    assert set(confidence) == {DEFAULT_CONFIDENCE}
    assert set(frequency) == {0.0}


def test_each_trust_moves_its_own_parts_alone() -> None:
    parts = some_parts(9)
    recent = parts.shrunk(Trust(recency=1.0))
    useful = parts.shrunk(Trust(usefulness=1.0))
    neutral = parts.shrunk(NO_TRUST)
    assert recent[1] == pytest.approx(parts.recency)
    for place in (2, 3, 4):
        assert recent[place].tolist() == neutral[place].tolist()
    assert useful[1].tolist() == neutral[1].tolist()
    assert useful[2] == pytest.approx(parts.usefulness)
    assert useful[3] == pytest.approx(parts.confidence)
    assert useful[4] == pytest.approx(parts.frequency)


@given(SHARE, SHARE)
def test_trust_goes_evenly_from_neutral_to_full(recency: float, usefulness: float) -> None:
    parts = some_parts(10)
    low, high = parts.shrunk(NO_TRUST), parts.shrunk(FULL_TRUST)
    found = parts.shrunk(Trust(recency, usefulness))
    for place, share in ((1, recency), (2, usefulness), (3, usefulness), (4, usefulness)):
        assert found[place] == pytest.approx(low[place] + share * (high[place] - low[place]))
    assert found[0].tolist() == parts.relevance.tolist()


def test_a_trusted_history_puts_what_helped_before_an_equal_match() -> None:
    parts = history_parts(feed([0.3, 0.3], [50.0, 50.0], helped(99.0, 0.5)))
    level = composite(parts, NO_TRUST)
    assert level[0] == level[1]
    half = composite(parts, Trust(0.5, 0.5))
    full = composite(parts, FULL_TRUST)
    assert full[0] - full[1] > 0.3
    assert half[0] - half[1] == pytest.approx((full[0] - full[1]) / 2.0)


@given(st.lists(st.tuples(WILD, WILD, WILD, WILD, WILD), min_size=1, max_size=6), SHARE, SHARE)
def test_the_composite_is_finite_whatever_comes_in(
    rows: list[tuple[float, ...]], recency: float, usefulness: float
) -> None:
    match, title, age, confidence, access = (np.array(one) for one in zip(*rows, strict=True))
    past = used(helped(90.0, 1.0), len(rows))
    parts = history_parts(Feed(match, title, age, past, confidence, access))
    found = composite(parts, Trust(recency, usefulness))
    assert ((found >= 0.0) & (found <= 1.0)).all()
