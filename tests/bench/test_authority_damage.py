"""The bench of damage: its bars hold at a small size, and its control goes red."""

from __future__ import annotations

from bench import authority_damage


def test_single_bytes_are_noticed_and_repaired() -> None:
    report = authority_damage.measure("small")
    assert [check.name for check in report.checks if not check.is_met] == []
    (control,) = (check for check in report.checks if check.name.startswith("control"))
    assert control.figure > 0.5
