"""The bench of the import: figures that make sense, and a bar that can be missed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import import_cost


def test_the_import_is_measured_against_numpy_and_another_version(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Path("other")
    cost = {"pass": 0.01, "import numpy": 0.11, import_cost.IMPORT: 0.06}

    def cpu_s(code: str, source: Path, home: str) -> float:
        return cost.get(code, 0.51) * (1 if source == import_cost.OWN or code == "pass" else 3)

    monkeypatch.setattr(import_cost, "cpu_s", cpu_s)
    assert import_cost.main(["--rounds", "2", "--against", str(other)]) == 0
    printed = capsys.readouterr().out
    assert "from meritory import Memory        50.0 ms CPU    0.50 x numpy" in printed
    assert "0.294 of the other version's 170.0 ms CPU" in printed
    cost[import_cost.IMPORT] = 0.01
    monkeypatch.setattr(import_cost, "OWN", other)
    assert import_cost.main(["--rounds", "1"]) == 0


def test_an_interpreter_takes_some_time(tmp_path: Path) -> None:
    assert import_cost.cpu_s("sum(range(10**6))", import_cost.OWN, str(tmp_path)) > 0.0
