"""Standardised features: z-scores within a session, nothing to learn from exposure."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meritory.domain.errors import InputError
from meritory.model.base import Floats
from meritory.model.ranker import COMPOSITE, FARTHEST, standardised
from meritory.rank.features import EXPOSURE, FEATURES

SHOWN = [FEATURES.index(name) for name in EXPOSURE]
LEARNED = [place for place in range(len(FEATURES)) if place not in SHOWN]


def some_features(count: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(3.0, 2.0, (count, len(FEATURES)))


def test_every_learned_column_has_mean_0_and_deviation_1() -> None:
    found = standardised(some_features(20))[:, LEARNED]
    np.testing.assert_allclose(found.mean(0), 0.0, atol=1e-12)
    np.testing.assert_allclose(found.std(0), 1.0)


def test_exposure_is_hidden() -> None:
    assert set(EXPOSURE) == {"log_access_count", "frequency"}
    assert not standardised(some_features(20))[:, SHOWN].any()


@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, -7.7, 1e6])
def test_constant_columns_are_0_whatever_the_constant(value: float) -> None:
    assert not standardised(np.full((7, len(FEATURES)), value)).any()


def test_noise_of_rounding_is_no_difference() -> None:
    features = np.full((3, len(FEATURES)), 0.1)
    features[1] += 1e-15
    found = standardised(features)
    assert found[1, COMPOSITE] > found[0, COMPOSITE]
    found[:, COMPOSITE] = 0.0
    assert not found.any()


def test_outliers_are_clipped_except_the_composites() -> None:
    features = np.zeros((101, len(FEATURES)))
    features[0] = 1.0
    found = standardised(features)
    assert found[0, FEATURES.index("cosine")] == FARTHEST
    assert found[0, COMPOSITE] == pytest.approx(10.0)


def test_stacked_sessions_are_each_compared_within_themselves() -> None:
    parts = [some_features(count, seed) for seed, count in enumerate((4, 1, 9))]
    stacked = standardised(np.concatenate(parts), np.array([0, 4, 5]))
    np.testing.assert_allclose(stacked, np.concatenate([standardised(part) for part in parts]))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_what_is_not_finite_or_absurd_stays_finite(bad: float) -> None:
    features = some_features(5)
    features[2] = bad
    assert np.isfinite(standardised(features)).all()


def test_no_candidates_are_no_rows_and_foreign_columns_are_refused() -> None:
    assert standardised(np.empty((0, len(FEATURES)))).shape == (0, len(FEATURES))
    for shape in ((3, len(FEATURES) + 1), (len(FEATURES),)):
        with pytest.raises(InputError):
            standardised(np.zeros(shape))


@settings(max_examples=100)
@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=40), st.sampled_from([1e-9, 1e-3]))
def test_the_composites_order_survives(values: list[int], unit: float) -> None:
    features = some_features(len(values))
    features[:, COMPOSITE] = np.array(values) * unit
    found = standardised(features)[:, COMPOSITE]
    smaller = np.less.outer(features[:, COMPOSITE], features[:, COMPOSITE])
    assert (np.less.outer(found, found) == smaller).all()
