"""The bench of a crowded daemon: its figures hold, and its control fails."""

from __future__ import annotations

from bench.authority_daemon import measure


def test_the_bench_of_a_crowded_daemon_holds() -> None:
    report = measure("small")
    # Latencies of a busy machine prove nothing: their ratio is for the full size.
    checks = {check.name: check for check in report.checks if "p99" not in check.name}
    assert len(checks) == 3
    assert all(check.is_met for check in checks.values()), checks
