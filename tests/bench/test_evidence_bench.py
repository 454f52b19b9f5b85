"""The bench of evidence can fail: a bar too low is missed, and a file that is not read is seen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import evidence, sessions

TINY = evidence.Case("tiny file", 200_000, 0.8, 60.0, -1.0, is_file=True)


def test_an_honest_run_has_every_figure_and_one_over_its_bar_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MERITORY_HOME", str(tmp_path / "home"))
    rows = evidence.measured(TINY, tmp_path / "case")
    assert [value > 0.0 for name, value, *_ in rows if "CPU" in name] == [True]
    assert sessions.finish(rows, tmp_path / "found.json", {}) == 1
    printed = capsys.readouterr().out
    assert printed.count("MISSED") == 1
    assert "MISSED <= -1" in printed


def test_a_transcript_has_its_size_and_its_share_of_results() -> None:
    made = list(evidence.lines(TINY))
    assert 200_000 <= sum(map(len, made)) < 220_000
    parts = [
        part
        for line in made
        if isinstance(content := json.loads(line)["message"]["content"], list)
        for part in content
    ]
    results = sum(len(part["content"]) for part in parts if part["type"] == "tool_result")
    assert 0.65 < results / sum(map(len, made)) < 0.85


def test_a_transcript_that_is_not_read_is_no_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MERITORY_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(evidence, "lines", lambda _: ["{broken\n"])
    with pytest.raises(RuntimeError, match="not read"):
        evidence.measured(TINY, tmp_path / "case")
