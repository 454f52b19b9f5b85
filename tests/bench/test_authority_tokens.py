"""The section about tokens holds its bars at a small size."""

from __future__ import annotations

from bench.authority import measure


def test_no_agent_sets_or_lifts_a_constraint() -> None:
    report = measure("tokens", "small")
    assert len(report.checks) == 5
    assert [check for check in report.checks if not check.is_met] == []
