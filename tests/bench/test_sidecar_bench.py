"""The bench of the predictor's process can fail: bars too low are missed, and faults are seen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench.speed import show

from bench import sessions, sidecar

TINY = sidecar.Plan(
    rounds=1, scores_per_round=3, starts=1, sessions=6, candidates=5, epochs=2, score_p50_ms=0.0
)


def test_an_honest_run_has_every_figure_and_one_over_its_bar_is_missed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [*sidecar.process_rows(tmp_path, TINY), *sidecar.training_rows(TINY)]
    values = {name: value for name, value, *_ in rows}
    assert values.pop("crashes and timeouts") == 0.0
    assert all(value > 0.0 for value in values.values())
    assert sessions.finish(rows, tmp_path / "found.json", {}) == 1
    missed = show(rows)
    assert {"score 150, p50 ms", "score 150 while training, p50 ms"} <= set(missed)
    assert "MISSED <= 0 " in capsys.readouterr().out
    kept = json.loads((tmp_path / "found.json").read_text())["figures"]["rows"]
    assert [row["name"] for row in kept] == [name for name, *_ in rows]


def test_a_training_that_is_too_slow_or_does_not_end_is_seen() -> None:
    name, value, bar, _ = sidecar._train_row("slow", lambda: sum(range(10_000)), 0.0)
    assert show([(name, value, bar, "")]) == ["slow"]
    hopeless = [lesson for lesson in sidecar.lessons(3, 4)]
    for lesson in hopeless:
        lesson.labels[:] = 0.0
    with pytest.raises(RuntimeError, match="ended after 0 epochs"):
        sidecar.adam_epochs(hopeless, 2, attention=False)


def test_a_process_that_does_not_come_up_is_no_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar, "READY_WITHIN_S", 0.0)
    with pytest.raises(RuntimeError, match="did not come up"), sidecar.running(tmp_path):
        pass
