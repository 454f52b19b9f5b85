"""The soak in small, with its control: without retention the store is too large."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import soak


@pytest.fixture(autouse=True)
def shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer sessions than the small size, in a store that has room for no candidates."""
    size = soak.SoakSize(sessions=12, memories=240, days=4, store_mb=1.3)
    monkeypatch.setitem(soak.SIZES, "small", size)


def test_the_store_stays_small_with_retention_and_not_without(tmp_path: Path) -> None:
    report, lines = soak.measure("small", tmp_path / "home")
    assert [check.name for check in report.checks if not check.is_met] == []
    assert any("kB a session" in line for line in lines)

    control, _ = soak.measure("small", tmp_path / "control", is_control=True)
    missed = {check.name for check in control.checks if not check.is_met}
    # The size itself goes red, by the same bar that the store with retention keeps.
    assert missed >= {"sessions packed", "store, MB"}


def test_a_run_continues_where_it_stopped(tmp_path: Path) -> None:
    first = soak.Soak(tmp_path, soak.SIZES["small"], is_control=False)
    first.run(minutes=0.0)
    assert first.progress.sessions == 1
    second = soak.Soak(tmp_path, soak.SIZES["small"], is_control=False)
    second.run(minutes=0.0)
    assert second.progress.sessions == 2
