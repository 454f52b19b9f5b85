"""The bench of the dashboard can fail: pages that are slow, heavy or broken are seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.served import running
from bench.stock import fill, settings_of

from bench import dashboard, sessions
from meritory.api.memory import Memory
from meritory.domain.session import SessionQuery

TINY = dashboard.Plan(memories=20, sessions=10, candidates=9, rounds=1, paint_ms=0.0)
TEXTS = [f"The service number {number} lives in src/part{number}.py" for number in range(20)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small store of the bench's own making."""
    made = tmp_path_factory.mktemp("dashboard") / "home"
    fill(made, TEXTS, [])
    dashboard.pour_sessions(made, TINY)
    return made


def test_the_sessions_look_like_judged_ones(home: Path) -> None:
    with Memory(settings=settings_of(home), background=False) as memory:
        store, user = memory.services.store, memory.scope.user
        found = store.session_page(user, SessionQuery(limit=50))
        assert [one.outcome for one in found].count("win") == 4
        assert {one.outcome for one in found} == {"win", "loss", "tie", "excluded"}
        one = store.session_memories(user, found[0].session.key)
        assert len(one) == TINY.candidates
        assert sum(each.candidate.was_injected for each in one) == dashboard.SHOWN


@pytest.mark.skipif(dashboard.chromium() is None, reason="needs Chromium")
def test_an_honest_run_has_every_figure_and_one_over_its_bar_is_missed(
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("playwright.sync_api")
    monkeypatch.setattr(dashboard, "PAGES", ("", "sessions"))
    rows = dashboard.measured(home, TINY)
    assert all(value > 0.0 for _, value, *_ in rows)
    assert sessions.finish(rows, tmp_path / "found.json", {}) == 1
    assert "MISSED <= 0 " in capsys.readouterr().out


def test_a_route_that_does_not_answer_is_no_figure(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(home) as daemon:
        asked = daemon.ask
        monkeypatch.setattr(daemon, "ask", lambda method, path: asked(method, "/api/nothing"))
        with pytest.raises(RuntimeError, match="was answered 404"):
            dashboard.api_rows(daemon)


def test_without_a_browser_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dashboard, "CHROMIUM", ())
    assert dashboard.main([]) == 0
    assert "nothing is measured" in capsys.readouterr().out
