"""The features: names and order are fixed, each says what its name says, all are finite."""

from __future__ import annotations

import hashlib
import math
from dataclasses import fields, replace
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meritory.rank.composite import HistoryParts, Trust
from meritory.rank.features import (
    FEATURE_VERSION,
    FEATURES,
    LARGEST,
    NEVER_LOG_DAYS,
    FeatureInputs,
    features,
)
from meritory.rank.usage_history import Usage

# A digest of the names by version. To change a name, raise the version and add a line.
KNOWN_NAMES = {1: "5e85ba54a9d5", 2: "11658be83e8d", 3: "e9f7093c16d2"}
NOON = datetime(2026, 4, 6, 12, 0, tzinfo=UTC)


def a_usage(count: int, value: float = 0.0) -> Usage:
    return Usage(*(np.full(count, value) for _ in fields(Usage)))


def an_input(count: int = 2) -> FeatureInputs:
    return FeatureInputs(
        at=NOON,
        gap_hours=3.0,
        composite=0.75,
        parts=HistoryParts(*(np.full(count, value) for value in (0.9, 0.8, 0.7, 0.6, 0.1))),
        trust=Trust(recency=0.5, usefulness=0.25),
        usage=a_usage(count),
        age_days=np.full(count, 30.0),
        importance=0.5,
        access_count=4,
        cosine=np.full(count, 0.4),
        centred_cosine=np.full(count, 0.2),
        text=np.arange(count) * 2.0,
        hybrid=np.arange(count) + 1.0,
        title=np.arange(count) * 3.0,
        effective=0.3,
        stored_usefulness=0.55,
        provenance=1,
        is_pinned=False,
        is_same_project=True,
        is_constraint=False,
    )


def column(inputs: FeatureInputs, name: str) -> list[float]:
    return [float(value) for value in features(inputs)[:, FEATURES.index(name)]]


def test_names_and_order_belong_to_their_version() -> None:
    digest = hashlib.sha256("\n".join(FEATURES).encode()).hexdigest()
    assert digest.startswith(KNOWN_NAMES[FEATURE_VERSION])
    assert len(set(FEATURES)) == len(FEATURES)


def test_one_row_per_candidate_and_one_column_per_name() -> None:
    assert features(an_input(3)).shape == (3, len(FEATURES))
    assert features(an_input(0)).shape == (0, len(FEATURES))


def test_the_clock_is_a_point_on_a_circle() -> None:
    inputs = an_input(1)
    assert column(inputs, "hour_sin") == pytest.approx([0.0], abs=1e-9)
    assert column(inputs, "hour_cos") == pytest.approx([-1.0])
    # A Monday at noon is half a day into the week; April begins a quarter into the year.
    assert column(inputs, "weekday_sin") == pytest.approx([math.sin(math.pi / 7.0)])
    assert column(inputs, "month_sin") == pytest.approx([1.0])
    assert column(inputs, "log_gap_hours") == pytest.approx([math.log(4.0)])
    assert column(replace(inputs, gap_hours=None), "log_gap_hours") == [0.0]


def test_what_is_known_of_the_memory_itself() -> None:
    inputs = replace(an_input(1), is_pinned=True, is_superseded=True, entity_slot=7)
    assert column(inputs, "log_age_days") == pytest.approx([math.log(31.0)])
    assert column(inputs, "log_access_count") == pytest.approx([math.log(5.0)])
    assert column(inputs, "stored_usefulness") == [0.55]
    assert column(inputs, "provenance") == [1.0]
    assert [column(inputs, f"is_{name}")[0] for name in ("pinned", "superseded")] == [1.0, 1.0]
    assert [column(inputs, f"is_{name}")[0] for name in ("constraint", "same_project")] == [0, 1]
    assert column(inputs, "entity_slot") == [7.0]
    assert column(inputs, "aspect_slot") == [0.0]


def test_text_hybrid_and_title_are_relative_to_the_best_candidate() -> None:
    inputs = an_input(3)
    assert column(inputs, "text") == pytest.approx([0.0, 0.5, 1.0])
    assert column(inputs, "title") == pytest.approx([0.0, 0.5, 1.0])
    assert column(inputs, "hybrid") == pytest.approx([1 / 3, 2 / 3, 1.0])


def test_a_memory_without_a_vector_is_marked_and_has_no_cosine() -> None:
    inputs = replace(an_input(2), cosine=[math.nan, 0.4], centred_cosine=[math.nan, 0.2])
    assert column(inputs, "is_embedded") == [0.0, 1.0]
    assert column(inputs, "cosine") == [0.0, 0.4]
    assert column(inputs, "centred_cosine") == [0.0, 0.2]


def test_the_composite_is_the_served_one_and_its_parts_are_not_shrunk() -> None:
    inputs = an_input(1)
    assert column(inputs, "composite") == [0.75]
    for item in fields(HistoryParts):
        assert column(inputs, item.name) == [float(getattr(inputs.parts, item.name)[0])]


def test_the_trust_is_recorded_and_moves_no_other_feature() -> None:
    inputs = an_input(2)
    assert column(inputs, "recency_trust") == [0.5, 0.5]
    assert column(inputs, "usefulness_trust") == [0.25, 0.25]
    before, after = features(inputs), features(replace(inputs, trust=Trust(1.0, 0.0)))
    moved = [FEATURES[place] for place in np.flatnonzero((before != after).any(axis=0))]
    assert moved == ["recency_trust", "usefulness_trust"]


def test_never_is_a_long_time_ago() -> None:
    never = an_input(1)
    assert column(never, "log_days_since_useful") == [NEVER_LOG_DAYS]
    assert column(never, "log_days_since_useful_here") == [NEVER_LOG_DAYS]
    assert column(never, "never_used") == [1.0]
    elsewhere = replace(
        a_usage(1), days_since=np.array([1.0]), count=np.array([2.0]), frecency=np.array([0.7])
    )
    once = replace(never, usage=elsewhere)
    assert column(once, "log_days_since_useful") == pytest.approx([math.log(2.0)])
    assert column(once, "log_days_since_useful_here") == [NEVER_LOG_DAYS]
    assert column(once, "log_useful_count") == pytest.approx([math.log(3.0)])
    assert column(once, "frecency") == [0.7]
    assert column(once, "never_used") == [0.0]


def test_association_is_relative_and_the_other_ties_are_not() -> None:
    tied = replace(
        a_usage(2),
        association=np.array([0.1, 0.05]),
        context_cosine=np.array([0.3, 0.2]),
        co_use=np.array([0.4, 0.1]),
    )
    inputs = replace(an_input(2), usage=tied)
    assert column(inputs, "association") == pytest.approx([1.0, 0.5])
    assert column(inputs, "context_cosine") == [0.3, 0.2]
    assert column(inputs, "co_use") == [0.4, 0.1]


WILD = st.floats(allow_nan=True, allow_infinity=True)


@settings(max_examples=50, deadline=None)
@given(st.lists(WILD, min_size=1, max_size=4), WILD)
def test_every_number_is_finite(values: list[float], gap: float) -> None:
    wild = np.array(values)
    plain = {"at", "gap_hours", "parts", "trust", "usage"}
    inputs = FeatureInputs(
        at=NOON,
        gap_hours=gap,
        parts=HistoryParts(wild, wild, wild, wild, wild),
        trust=Trust(gap, gap),
        usage=Usage(*(wild for _ in fields(Usage))),
        **{item.name: wild for item in fields(FeatureInputs) if item.name not in plain},
    )
    found = features(inputs)
    assert np.isfinite(found).all()
    assert np.abs(found).max() <= LARGEST
