"""Figures of a run over probes: exact values, and fronts that hold what nothing beats."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meritory.rank.metrics import ProbeHit, by_tag, figures, front, latency_ms, values

HITS = [
    ProbeHit(1, True, 4.0, ("a",)),
    ProbeHit(3, True, 6.0, ("a", "b")),
    ProbeHit(5, False, 8.0, ("b",)),
    ProbeHit(None, False, 100.0),
]


def test_every_depth_counts_what_it_holds() -> None:
    found = figures(HITS)
    assert {name: one.mean for name, one in found.items()} == pytest.approx(
        {"p@1": 0.25, "p@3": 0.5, "p@5": 0.75, "mrr": (1 + 1 / 3 + 1 / 5) / 4, "in_prompt": 0.5}
    )
    for one in found.values():
        assert one.low <= one.mean <= one.high


def test_what_nobody_looked_at_has_no_figure() -> None:
    assert "in_prompt" not in figures([ProbeHit(1), ProbeHit(2)])
    assert np.isnan(values([ProbeHit(1)], "in_prompt")).all()
    assert figures([]) == {}
    assert latency_ms([]) == {}


def test_latency_is_told_by_its_quantiles() -> None:
    told = latency_ms(HITS)
    assert told["p50"] == pytest.approx(7.0)
    assert 8.0 < told["p95"] <= 100.0


def test_a_hit_counts_for_each_of_its_tags() -> None:
    assert {tag: len(some) for tag, some in by_tag(HITS).items()} == {"a": 2, "b": 2}


def test_a_front_holds_what_no_other_beats() -> None:
    rows = [{"x": 0.5, "y": 0.5}, {"x": 0.6, "y": 0.4}, {"x": 0.5, "y": 0.4}, {"x": 0.5, "y": 0.5}]
    assert front(rows, ["x", "y"]) == [0, 1, 3]
    assert front(rows, ["x"]) == [1]
    assert front([], ["x"]) == []


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12))
def test_everything_off_the_front_is_beaten_by_something_on_it(
    pairs: list[tuple[int, int]],
) -> None:
    rows = [{"x": float(x), "y": float(y)} for x, y in pairs]
    kept = front(rows, ["x", "y"])
    assert kept
    for place, row in enumerate(rows):
        beaten = any(
            rows[other]["x"] >= row["x"] and rows[other]["y"] >= row["y"] and rows[other] != row
            for other in kept
        )
        assert beaten == (place not in kept)
    assert not math.isnan(rows[kept[0]]["x"])
