"""Faults between the daemon and the hook, few of them: the bars are kept, the controls go red."""

from __future__ import annotations

from bench.authority_faults import measure


def test_few_faults_show_and_lose_nothing() -> None:
    report = measure("small")
    assert [check for check in report.checks if not check.is_met] == []
    assert len(report.checks) == 8
