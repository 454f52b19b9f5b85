"""The bench of writing: real processes, figures by class, and bars that can be missed."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.write_cost import BETWEEN, CLOSE, FAR, Costs

from bench import write_cost


def test_a_process_of_a_version_says_what_its_work_took(tmp_path: Path) -> None:
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"content": "Ann lives in Kiel"}\n{"content": "Bob likes tea"}\n')
    with write_cost.version(write_cost.OWN, tmp_path / "home", {}) as process:
        assert process.ask(do="import", path=str(lines)) > 0.0
        assert process.ask(do="remember", text="The staging database is called heron") > 0.0


def test_a_process_of_another_version_is_not_mistaken(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="does not run the version"),
        write_cost.version(tmp_path, tmp_path / "home", {}),
    ):
        pass


def test_texts_are_counted_by_their_neighbours_and_lines_by_their_place() -> None:
    costs = Costs({FAR: [1.0, 1.0], BETWEEN: [4.0], CLOSE: [8.0]}, [0.5] * 10 + [1.5] * 10)
    figures = costs.figures()
    assert figures["remember, no neighbour from 0.75"] == 1.0
    assert figures["remember, neighbours from 0.75"] == 8.0
    assert figures["import"] == 1.0
    assert (figures["import, first tenth"], figures["import, last tenth"]) == (0.5, 1.5)


def test_a_missed_bar_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    ratios = write_cost.shown({"here": {"import": 1.4}, "there": {"import": 1.0}})
    assert ratios == {"import": 1.4}
    assert "MISSED <= 1.3" in capsys.readouterr().out
    write_cost.shown({"here": {"import": 1.2}, "there": {"import": 1.0}})
    assert "MISSED" not in capsys.readouterr().out
