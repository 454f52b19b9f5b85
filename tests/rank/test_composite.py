"""The scores: seed 004's six tests by name, an independent oracle, and what must always hold."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from meritory.domain.errors import InputError
from meritory.domain.policy import RELEVANCE_FLOOR, SourceWeights
from meritory.rank import composite, hybrid
from meritory.rank.fusion import fuse

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
RAW = SourceWeights(
    user_stated=1.0, episode_summary=1.0, assistant_derived=1.0, confidence_slope=0.0
)

anything = st.floats(allow_nan=True, allow_infinity=True, width=64)
share = st.floats(min_value=0.0, max_value=1.0)
days = st.floats(min_value=-1e5, max_value=1e5)


def total(*parts: ArrayLike) -> np.ndarray:
    return composite.explain(*parts).composite


def one(values: np.ndarray) -> float:
    """The only number of an array that holds one."""
    return float(np.asarray(values).item())


def seed_composite(memory: dict[str, float | None]) -> float:
    """Seed 004's scalar formula, written down once more without numpy."""
    age = memory.get("age_days")
    count = memory.get("access_count")
    similarity, usefulness = memory.get("cosine"), memory.get("usefulness")
    confidence = memory.get("confidence")
    return (
        0.40 * (0.0 if similarity is None else similarity)
        + 0.25 * (0.5 if age is None else math.exp(-0.05 * age))
        + 0.20 * (0.5 if usefulness is None else usefulness)
        + 0.10 * (0.8 if confidence is None else confidence)
        + 0.05 * (0.0 if count is None else min(count / 50.0, 1.0))
    )


# --- seed 004's tests, by name ---------------------------------------------------------------


def test_scorer_weights_sum_to_one() -> None:
    weights = (
        composite.WEIGHT_RELEVANCE,
        composite.WEIGHT_RECENCY,
        composite.WEIGHT_USEFULNESS,
        composite.WEIGHT_CONFIDENCE,
        composite.WEIGHT_FREQUENCY,
    )
    assert weights == (0.40, 0.25, 0.20, 0.10, 0.05)
    assert math.fsum(weights) == 1.0
    assert one(total(1, 1, 1, 1, 1)) == 1.0


def test_relevance_dominates() -> None:
    """Relevance is the largest single part, yet the other four together outweigh it.

    That is the documented weakness of the formula (decision 0003): 0.40 < 0.60, so a fresh, useful,
    confident, often used memory that has nothing to do with the query outscores a perfect match.
    The relevance floor, applied before the sum, is what keeps it out of prompt-time recall.
    """
    only_relevant = one(total(1, 0, 0, 0, 0))
    all_but_relevant = one(total(0, 1, 1, 1, 1))
    assert only_relevant == pytest.approx(0.40)
    assert all_but_relevant == pytest.approx(0.60)
    assert only_relevant < all_but_relevant
    # Even with all its freshness gone, such a memory beats a good match that has nothing else.
    old_but_established = one(total(0, 0, 1, 1, 1))
    assert one(total(0.85, 0, 0, 0, 0)) < old_but_established < only_relevant
    others = [one(total(0, *row)) for row in np.eye(4)]
    assert all(only_relevant > other for other in others)
    assert one(hybrid.relevance(0.0, 1.0)) < RELEVANCE_FLOOR


def test_recency_decay_14_day_half_life() -> None:
    assert one(composite.recency(14.0)) == pytest.approx(0.5, abs=0.005)
    assert one(composite.recency(28.0)) == pytest.approx(0.25, abs=0.005)
    assert one(composite.recency(0.0)) == 1.0
    created = NOW - timedelta(days=14)
    assert one(composite.recency(composite.age_days(NOW, [created]))) == pytest.approx(
        math.exp(-0.7)
    )


def test_frequency_caps_at_50() -> None:
    assert composite.frequency([0, 1, 25, 50, 51, 100]).tolist() == [0.0, 0.02, 0.5, 1.0, 1.0, 1.0]


def test_unknown_memory_age_neutral() -> None:
    assert one(composite.recency(composite.age_days(NOW, [None]))) == 0.5


def test_scores_sorted_descending() -> None:
    values = [0.2, 0.9, 0.5]
    assert fuse(values, None, ["a", "b", "c"], 1.0).order.tolist() == [1, 2, 0]


# --- the import fails on wrong weights -------------------------------------------------------


@pytest.mark.parametrize("flags", [[], ["-O"], ["-OO"]])
@pytest.mark.parametrize("weight", ["0.41", "0.40", "float('nan')"])
def test_import_fails_unless_weights_sum_to_one(
    tmp_path: Path, flags: list[str], weight: str
) -> None:
    source = Path(composite.__file__).read_text("utf-8")
    patched = source.replace("WEIGHT_RELEVANCE = 0.40\n", f"WEIGHT_RELEVANCE = {weight}\n", 1)
    assert (patched == source) is (weight == "0.40")
    (tmp_path / "patched_scores.py").write_text(patched, "utf-8")
    done = subprocess.run(
        [sys.executable, *flags, "-c", "import patched_scores"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    if weight == "0.40":
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode != 0
        assert "ImportError: the five composite weights sum to" in done.stderr


# --- an independent oracle -------------------------------------------------------------------


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "cosine": st.none() | share,
                "age_days": st.none() | st.floats(min_value=0.0, max_value=4000.0),
                "usefulness": st.none() | share,
                "confidence": st.none() | share,
                "access_count": st.none() | st.integers(min_value=0, max_value=10_000),
            }
        ),
        max_size=8,
    )
)
def test_composite_equals_the_scalar_formula(memories: list[dict[str, float | None]]) -> None:
    def column(name: str) -> np.ndarray:
        return np.array([np.nan if m[name] is None else m[name] for m in memories], dtype=float)

    weight = hybrid.source_weight(
        np.zeros(len(memories)), column("confidence"), np.zeros(len(memories)), RAW
    )
    got = total(
        hybrid.relevance(column("cosine"), weight),
        composite.recency(column("age_days")),
        column("usefulness"),
        column("confidence"),
        composite.frequency(column("access_count")),
    )
    assert got == pytest.approx([seed_composite(memory) for memory in memories], abs=1e-12)


def test_a_worked_example_by_hand() -> None:
    explained = composite.explain(0.8, composite.recency(10.0), 0.25, 0.9, composite.frequency(10))
    # .4*.8 + .25*exp(-.5) + .2*.25 + .1*.9 + .05*.2 = .32 + .151633 + .05 + .09 + .01
    assert {name: value.item() for name, value in explained_parts(explained).items()} == {
        "composite": pytest.approx(0.621633, abs=5e-7),
        "relevance": 0.8,
        "recency": pytest.approx(math.exp(-0.5)),
        "usefulness": 0.25,
        "confidence": 0.9,
        "frequency": 0.2,
    }


def test_the_example_of_the_known_weakness_in_decision_0003() -> None:
    matching = one(total(0.6, composite.recency(60), 0.5, 0.8, composite.frequency(0)))
    unrelated = one(total(0.0, composite.recency(0), 0.5, 0.9, composite.frequency(20)))
    assert (round(matching, 3), round(unrelated, 3)) == (0.432, 0.46)


def explained_parts(explained: composite.Composition) -> dict[str, np.ndarray]:
    """The arrays of a composition by name."""
    return {
        name: getattr(explained, name)
        for name in (
            "composite",
            "relevance",
            "recency",
            "usefulness",
            "confidence",
            "frequency",
        )
    }


def test_explained_rows_are_rounded_to_six_decimals() -> None:
    explained = composite.explain(
        [1 / 3, np.nan], [1 / 7, np.nan], [2 / 3, np.nan], np.nan, [0.02, 7]
    )
    assert explained.row(0) == {
        "composite": round(0.4 / 3 + 0.25 / 7 + 0.4 / 3 + 0.08 + 0.001, 6),
        "relevance": 0.333333,
        "recency": 0.142857,
        "usefulness": 0.666667,
        "confidence": 0.8,
        "frequency": 0.02,
    }
    assert explained.row(1) == {
        "composite": 0.355,
        "relevance": 0.0,
        "recency": 0.5,
        "usefulness": 0.5,
        "confidence": 0.8,
        "frequency": 1.0,
    }


# --- effective -------------------------------------------------------------------------------


def test_effective_fades_by_five_percent_a_day_unless_pinned() -> None:
    got = composite.effective([0.5, 0.5, 0.5, 0.0], [0.0, 1.0, 10.0, 900.0], [False] * 3 + [True])
    assert got == pytest.approx([0.5, 0.475, 0.5 * 0.95**10, 1.0])


def test_effective_has_no_cliff() -> None:
    """A two-year-old memory is ranked low, never at zero, and still above an older one."""
    got = composite.effective(0.5, [730.0, 731.0], False)
    assert 0.0 < got[1] < got[0] < 1e-10


def test_effective_takes_neutral_values_for_what_is_unknown() -> None:
    assert composite.effective([np.nan, 0.4], [0.0, np.nan], False).tolist() == [0.5, 0.2]


@given(share, share, days, days)
def test_effective_grows_with_importance_and_falls_with_age(
    first: float, second: float, age: float, later: float
) -> None:
    low, high = sorted((first, second))
    young, old = sorted((age, later))
    assert one(composite.effective(low, age, False)) <= one(composite.effective(high, age, False))
    assert one(composite.effective(first, old, False)) <= one(
        composite.effective(first, young, False)
    )


# --- source weight and relevance -------------------------------------------------------------


def test_source_weights_by_class() -> None:
    codes = hybrid.provenance_codes(["user_stated", "episode_summary", "assistant_derived", "?"])
    assert codes.tolist() == [0, 1, 2, 2]
    got = hybrid.source_weight(codes, 1.0, 0, SourceWeights())
    assert got.tolist() == [1.0, 0.85, 0.7, 0.7]


def test_doubt_lowers_the_weight_along_the_slope() -> None:
    got = hybrid.source_weight([0, 0, 2], [1.0, 0.0, 0.5], 0, SourceWeights())
    assert got == pytest.approx([1.0, 0.7, 0.7 * 0.85])


@pytest.mark.parametrize(
    ("level", "expected"),
    [(0, [1.0, 0.85, 0.7]), (1, [0.85, 0.7, 0.7]), (2, [0.7] * 3), (99, [0.7] * 3)],
)
def test_a_demotion_lowers_by_one_class_per_level(level: int, expected: list[float]) -> None:
    assert hybrid.source_weight([0, 1, 2], 1.0, level, SourceWeights()).tolist() == expected


def test_an_unknown_class_is_the_lowest_and_an_unknown_demotion_is_none() -> None:
    got = hybrid.source_weight([np.nan, 0, 0], 1.0, [0, np.nan, np.inf], SourceWeights())
    assert got.tolist() == [0.7, 1.0, 1.0]


def test_a_demotion_never_raises_even_with_unordered_weights() -> None:
    odd = SourceWeights(user_stated=0.2, episode_summary=0.9, assistant_derived=0.5)
    got = hybrid.source_weight([0, 0, 1, 1], 1.0, [0, 1, 0, 1], odd)
    assert got.tolist() == [0.2, 0.2, 0.9, 0.5]


@given(
    st.floats(min_value=-1.0, max_value=1.0), st.integers(0, 2), share, st.integers(0, 5), anything
)
def test_weights_of_one_give_the_raw_cosine_back(
    cosine: float, code: int, confidence: float, demotion: int, extra: float
) -> None:
    for doubt in (confidence, extra):
        weight = hybrid.source_weight(code, doubt, demotion, RAW)
        assert one(hybrid.relevance(cosine, weight)) == max(0.0, cosine)


@given(anything, st.integers(0, 2), anything, st.integers(-3, 9), share, share)
def test_source_weights_only_demote(
    cosine: float, code: int, confidence: float, demotion: int, low: float, slope: float
) -> None:
    weights = SourceWeights(assistant_derived=low, confidence_slope=slope)
    weight = hybrid.source_weight(code, confidence, demotion, weights)
    assert 0.0 <= one(weight) <= 1.0
    demoted = hybrid.source_weight(code, confidence, demotion + 1, weights)
    assert one(demoted) <= one(weight)
    assert one(hybrid.relevance(cosine, weight)) <= one(hybrid.relevance(cosine, 1.0))


def test_relevance_is_never_negative_and_never_above_one() -> None:
    got = hybrid.relevance([-0.4, 0.0, 0.5, 1.0000002, np.nan, np.inf, -np.inf], 1.0)
    assert got.tolist() == [0.0, 0.0, 0.5, 1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("value", [-0.01, 1.01, math.nan, math.inf])
@pytest.mark.parametrize(
    "name", ["user_stated", "episode_summary", "assistant_derived", "confidence_slope"]
)
def test_source_weights_outside_their_bounds_are_refused(name: str, value: float) -> None:
    with pytest.raises(InputError, match=name):
        SourceWeights(**{name: value})


# --- ages and recency ------------------------------------------------------------------------


@pytest.fixture
def far_from_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose own time zone is not UTC."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "UTC-11")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("far_from_utc")
def test_ages_count_days_across_offsets_and_take_naive_moments_as_utc() -> None:
    plus_two = timezone(timedelta(hours=2))
    got = composite.age_days(
        NOW,
        [
            NOW - timedelta(hours=36),
            datetime(2026, 2, 28, 14, 0, tzinfo=plus_two),
            datetime(2026, 2, 28, 12, 0),
            NOW + timedelta(days=3),
            None,
        ],
    )
    assert got[:4].tolist() == [1.5, 1.0, 1.0, -3.0]
    assert math.isnan(got[4])
    assert composite.age_days(NOW, []).shape == (0,)


def test_ages_span_the_whole_calendar() -> None:
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    assert one(composite.recency(composite.age_days(last, [first]))) == 0.0
    assert one(composite.recency(composite.age_days(first, [last]))) == 1.0


def test_a_future_date_is_no_better_than_today() -> None:
    assert composite.recency([-0.001, -400.0]).tolist() == [1.0, 1.0]


@given(days, days)
def test_recency_never_rises_with_age(first: float, second: float) -> None:
    young, old = sorted((first, second))
    assert one(composite.recency(old)) <= one(composite.recency(young))


# --- bounds ----------------------------------------------------------------------------------


@given(anything, anything, anything, anything, anything, st.booleans())
def test_every_score_is_finite_and_within_zero_and_one(
    a: float, b: float, c: float, d: float, e: float, pinned: bool
) -> None:
    explained = composite.explain(a, b, c, d, e)
    got = [
        composite.effective(a, b, pinned),
        hybrid.source_weight(c, d, e, SourceWeights()),
        hybrid.relevance(a, b),
        composite.recency(a),
        composite.frequency(b),
        *explained_parts(explained).values(),
    ]
    assert all(0.0 <= one(value) <= 1.0 for value in got)


@given(st.lists(share, min_size=5, max_size=5), st.integers(0, 4), share)
def test_composite_grows_with_every_part(parts: list[float], index: int, other: float) -> None:
    changed = [*parts[:index], other, *parts[index + 1 :]]
    before, after = one(total(*parts)), one(total(*changed))
    assert (after >= before) if other >= parts[index] else (after <= before)


@given(st.lists(st.tuples(anything, anything, anything, anything, anything), max_size=12))
def test_composite_does_not_depend_on_the_neighbours(
    rows: list[tuple[float, float, float, float, float]],
) -> None:
    table = np.array(rows, dtype=float).reshape(len(rows), 5)
    together = total(*table.T)
    alone = [one(total(*row)) for row in table]
    assert together.tolist() == alone


# --- the order -------------------------------------------------------------------------------


def test_what_is_not_finite_comes_last_and_ties_go_by_id() -> None:
    values = [np.inf, 0.5, np.nan, 0.5, -3.0, -np.inf]
    order = fuse(values, None, ["e", "d", "c", "b", "a", "f"], 1.0).order
    assert order.tolist() == [3, 1, 4, 2, 0, 5]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.0, -0.0, 0.5, 1.0, math.nan, math.inf, -math.inf]), st.uuids()
        ),
        unique_by=lambda pair: pair[1],
        max_size=20,
    ),
    st.randoms(use_true_random=False),
)
def test_the_order_is_the_same_whatever_order_the_rows_came_in(
    pairs: list[tuple[float, object]], random: object
) -> None:
    shuffled = list(pairs)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    def ranked(rows: list[tuple[float, object]]) -> list[str]:
        ids = [str(name) for _, name in rows]
        return [ids[i] for i in fuse([score for score, _ in rows], None, ids, 1.0).order]

    expected = sorted(
        pairs,
        key=lambda pair: (
            not math.isfinite(pair[0]),
            -pair[0] if math.isfinite(pair[0]) else 0,
            str(pair[1]),
        ),
    )
    assert ranked(shuffled) == ranked(pairs) == [str(name) for _, name in expected]


def test_scores_and_ids_must_have_the_same_length() -> None:
    with pytest.raises(ValueError, match="2 scores for 1 tiebreaks"):
        fuse([0.1, 0.2], None, ["a"], 1.0)
