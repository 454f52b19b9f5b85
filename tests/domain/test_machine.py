"""Tests wait longer on a slower machine."""

from __future__ import annotations

import pytest

from machine import REFERENCE_S, SLOWEST, SLOWNESS, factor, patience


@pytest.mark.parametrize(
    ("round_s", "expected"),
    [(REFERENCE_S / 3, 1.0), (REFERENCE_S, 1.0), (REFERENCE_S * 7, 7.0), (60.0, SLOWEST)],
)
def test_a_slower_machine_gets_more_time(round_s: float, expected: float) -> None:
    assert factor(round_s) == pytest.approx(expected)


def test_every_test_runs_under_the_scaled_limit(request: pytest.FixtureRequest) -> None:
    marker = request.node.get_closest_marker("timeout")
    if request.config.getoption("timeout") is None:
        assert marker.args == (patience(float(request.config.getini("timeout"))),)
    assert SLOWNESS >= 1.0
