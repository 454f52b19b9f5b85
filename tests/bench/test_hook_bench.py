"""The bench of the hook can fail: a bar too low is missed, and a hook that says nothing is seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.speed import show

from bench import hook, sessions

# The hook's own time is what is left of two: on a busy machine it may even be below zero.
TINY = hook.Plan(memories=40, rounds=3, downs=1, own_ms=-60_000.0, down_start_ms=60_000.0)


def test_an_honest_run_has_every_figure_and_one_over_its_bar_is_missed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = hook.measured(tmp_path, TINY)
    assert all(value > 0.0 for name, value, *_ in rows if "own time" not in name)
    assert sessions.finish(rows, tmp_path / "found.json", {}) == 1
    assert "the hook's own time, p50 ms" in show(rows)
    assert "MISSED <= -60000" in capsys.readouterr().out


def test_a_hook_that_says_nothing_or_complains_is_no_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook, "HOOK", [*hook.BARE[:-1], "import sys; sys.stderr.write('x')"])
    with pytest.raises(RuntimeError, match="stderr"):
        hook.run(hook.HOOK, tmp_path)
    monkeypatch.setattr(hook, "HOOK", hook.BARE)
    with pytest.raises(RuntimeError, match="never printed"):
        hook.measured(tmp_path, TINY)
