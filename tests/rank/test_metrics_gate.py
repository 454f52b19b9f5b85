"""The non-regression gate: it refuses a loss, passes a gain, and says when it cannot tell."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meritory.rank.metrics import (
    FAIL,
    MIN_PAIRS,
    PASS,
    UNDECIDED,
    bootstrap_interval,
    compare,
    interval,
    overall,
)

SHARES = st.lists(st.floats(0.0, 1.0, allow_nan=False), min_size=1, max_size=60)


def answers(found: int, count: int) -> list[float]:
    return [1.0] * found + [0.0] * (count - found)


def test_a_planted_regression_fails() -> None:
    before, after = answers(80, 100), answers(50, 100)
    found = compare(before, after, 0.02)
    assert found.verdict == FAIL
    assert found.mean == pytest.approx(-0.3)
    assert found.low < found.mean < found.high < -0.02


def test_an_improvement_passes() -> None:
    assert compare(answers(50, 100), answers(80, 100), 0.02).verdict == PASS


def test_equal_answers_pass_even_without_a_margin() -> None:
    same = answers(13, 40)
    found = compare(same, same, 0.0)
    assert (found.verdict, found.low, found.high) == (PASS, 0.0, 0.0)


@pytest.mark.parametrize(("before", "after"), [(5, 0), (0, 5), (5, 5)])
def test_five_probes_are_not_enough_whatever_they_say(before: int, after: int) -> None:
    assert compare(answers(before, 5), answers(after, 5), 0.02).verdict == UNDECIDED


def test_the_least_count_is_where_it_says() -> None:
    lost, kept = [0.0], [1.0]
    assert compare(kept * (MIN_PAIRS - 1), lost * (MIN_PAIRS - 1)).verdict == UNDECIDED
    assert compare(kept * MIN_PAIRS, lost * MIN_PAIRS).verdict == FAIL


def test_a_loss_that_may_be_chance_is_not_decided() -> None:
    before, after = answers(50, 100), answers(50, 100)
    for place in (0, 1, 2):
        after[place] = 0.0
    for place in (60, 61):
        after[place] = 1.0
    assert compare(before, after, 0.02).verdict == UNDECIDED


def test_a_loss_within_the_margin_passes() -> None:
    before, after = answers(50, 100), answers(49, 100)
    assert compare(before, after, 0.05).verdict == PASS
    assert compare(before, after, 0.0).verdict == UNDECIDED


def test_pairs_that_were_not_measured_are_left_out() -> None:
    before = [*answers(20, 40), float("nan"), 1.0]
    after = [*answers(20, 40), 1.0, float("nan")]
    assert compare(before, after).count == 40
    nothing = compare([float("nan")], [1.0])
    assert (nothing.verdict, nothing.count) == (UNDECIDED, 0)


def test_the_same_data_always_gives_the_same_verdict() -> None:
    rng = np.random.default_rng(3)
    before, after = rng.random(80), rng.random(80)
    assert compare(before, after) == compare(before.copy(), after.copy())


def test_the_interval_is_the_usual_bootstrap() -> None:
    """Drawn from a counter instead of by chance, and as wide as by chance."""
    rng = np.random.default_rng(5)
    for size in (20, 100, 1_000):
        sample = rng.normal(size=size)
        usual = bootstrap_interval(sample, np.random.default_rng(1), resamples=8_000)
        low, high = interval(sample)
        width = usual.high - usual.low
        assert low == pytest.approx(usual.low, abs=0.08 * width)
        assert high == pytest.approx(usual.high, abs=0.08 * width)


def test_the_interval_covers_what_it_should() -> None:
    rng = np.random.default_rng(11)
    samples = (rng.random(60) < 0.7 for _ in range(300))
    covered = sum(low <= 0.7 <= high for low, high in map(interval, samples))
    assert 0.89 <= covered / 300 <= 0.99


@given(SHARES, st.floats(0.0, 0.2))
@settings(max_examples=50, deadline=None)
def test_what_fails_one_way_never_fails_the_other(values: list[float], margin: float) -> None:
    other = values[::-1]
    verdicts = {compare(values, other, margin).verdict, compare(other, values, margin).verdict}
    assert verdicts != {FAIL}


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="differ in size"):
        compare([1.0], [1.0, 0.0])
    for margin in (-0.1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="margin"):
            compare([1.0], [1.0], margin)


def test_several_verdicts_make_one() -> None:
    assert overall([PASS, PASS]) == PASS
    assert overall([PASS, UNDECIDED]) == UNDECIDED
    assert overall([UNDECIDED, FAIL, PASS]) == FAIL
    assert overall([]) == UNDECIDED
