"""The page about measuring: its example runs, and its figures are the code's."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from meritory.cli.app import APP
from meritory.lab.probes import AMBIGUOUS_FROM, read_probes
from meritory.rank.metrics import DEPTH, MARGIN, MIN_PAIRS

PAGE = (Path(__file__).resolve().parents[2] / "docs/operations/evaluation.md").read_text("utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_example_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERITORY_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (probes,) = blocks("jsonl")
    Path("probes.jsonl").write_text(probes)
    for line in blocks("sh")[0].splitlines():
        done = CliRunner().invoke(APP, [*shlex.split(line)[1:], "--json"])
        assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["scored"] == len(read_probes(probes.splitlines())) == 3
    assert found["drifted"] == 0
    assert found["figures"]["p@1"]["mean"] == 1.0
    assert found["figures"]["in_prompt"]["mean"] == 1.0
    kept = json.loads(CliRunner().invoke(APP, ["eval", "list", "--json"]).stdout)
    assert [run["name"] for run in kept["results"]] == ["before"]


def test_every_command_of_the_page_exists() -> None:
    known = {
        line.split()[2] for block in blocks("sh") for line in block.splitlines() if " eval " in line
    }
    known |= set(re.findall(r"`meritory eval (\w+)", PAGE))
    group = APP.get_command(None, "eval")  # type: ignore[arg-type]
    assert group is not None
    assert known == set(group.commands)  # type: ignore[attr-defined]


def test_the_figures_are_the_codes() -> None:
    assert f"(`--margin`, {MARGIN})" in PAGE
    assert f"fewer than {MIN_PAIRS} pairs" in PAGE
    assert f"among the first {DEPTH} |" in PAGE
    assert AMBIGUOUS_FROM == 6
    assert "fits six memories or more means none" in PAGE
