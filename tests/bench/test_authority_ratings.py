"""No rating is taken that nobody gave, and the attempts succeed against a weakened reader."""

from __future__ import annotations

from bench.authority import measure


def test_no_false_rating_is_taken_and_every_genuine_one_is() -> None:
    report = measure("ratings", "small")
    assert {one.name for one in report.checks if not one.is_met} == set()
    assert len(report.checks) == 11
