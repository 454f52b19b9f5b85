"""The section on hostile texts: every bar is kept, and the control goes red."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.authority_hostile import measure
from bench.authority_hostile_cases import genuine, hostile


def test_a_small_run_keeps_every_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERITORY_HOME", str(tmp_path))
    checks = measure("small").checks
    assert [check.name for check in checks if not check.is_met] == []
    assert next(check.figure for check in checks if check.name.startswith("control")) > 5


def test_there_are_enough_cases_of_every_client() -> None:
    attacks = [*hostile("tune"), *hostile("report")]
    assert len({case.turn for case in attacks}) >= 400
    assert len({case.turn for case in (*genuine("tune"), *genuine("report"))}) >= 300
    assert len({case.client for case in hostile("report")}) == 8
