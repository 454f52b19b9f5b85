"""`meritory top` and `meritory dashboard` at a real daemon: a frame, JSON, a screen, a link."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from machine import patience
from meritory.api import client
from meritory.cli.app import APP
from meritory.cli.output import Fields, Table
from meritory.cli.top import blocks, sparkline
from meritory.domain.world import parse_moment

NOW = parse_moment("2026-05-04T03:02:01Z")
WAIT_S = patience(60.0)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data folder of a daemon that has seen one session."""
    home = tmp_path_factory.mktemp("top") / "home"
    with pytest.MonkeyPatch.context() as patch:
        # Both are waited for, however busy the machine is.
        patch.setenv("MERITORY_PREDICTOR_SCORE_TIMEOUT_MS", "60000")
        daemon = client.ensure(home, wait_ms=60_000, options=["--port", "0"])
    try:
        daemon.request("POST", "/api/memories", {"content": "We deploy on Mondays"})
        start = {"session_key": "run", "context": "deploy \x1b[31mnow"}
        daemon.request("POST", "/api/hooks/session-start", start)
        yield home
    finally:
        client.stop(home)


def run(home: Path, *words: str) -> Any:
    """Runs a command in this process."""
    done = CliRunner().invoke(APP, ["--home", str(home), *words])
    assert "Traceback" not in done.output
    return done


def test_one_object_has_every_figure(place: Path) -> None:
    done = run(place, "top", "--json")
    assert done.exit_code == 0
    told = json.loads(done.stdout)
    assert told["health"]["status"] in ("healthy", "degraded")
    assert {one["domain"] for one in told["health"]["domains"]} >= {"storage", "queue", "predictor"}
    assert told["predictor"]["phase"] == "collecting"
    assert [one["id"] for one in told["sessions"]] == ["run"]
    assert told["activity"]["memories"] == 1
    assert set(told["queue"]) == {"queued", "running", "done", "parked"}
    assert {one["id"] for one in told["latencies"]} >= {"remember", "session_start"}
    assert told["errors"] == []
    assert told["outcomes"] == []


def test_one_frame_goes_into_a_pipe_and_steers_no_terminal(place: Path) -> None:
    done = run(place, "top", "--once")
    assert done.exit_code == 0
    for word in ("health", "predictor", "queue", "session_start", "run", "collecting"):
        assert word in done.stdout
    assert "\x1b" not in done.stdout
    # Without a terminal there is nothing to draw on: the same, once.
    assert "queue" in run(place, "top").stdout
    nobody = json.loads(run(place, "--user", "nobody", "top", "--json").stdout)
    assert nobody["sessions"] == []


@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_on_a_terminal_it_stays_until_somebody_leaves(place: Path, key: bytes) -> None:
    leader, follower = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "meritory", "--home", str(place), "top"],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"},
        # Ctrl-C is for whoever the terminal belongs to.
        preexec_fn=_own_terminal,
    )
    os.close(follower)
    try:
        told = _read_until(leader, b"q quits")
        assert b"\x1b[?1049h" in told
        assert child.poll() is None
        os.write(leader, key)
        told = _read_until(leader, b"\x1b[?1049l")
        assert b"Traceback" not in told
        assert child.wait(WAIT_S) == 0
    finally:
        child.kill()
        child.wait()
        os.close(leader)


def _own_terminal() -> None:
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _read_until(leader: int, wanted: bytes) -> bytes:
    told, deadline = b"", time.monotonic() + WAIT_S
    while wanted not in told:
        assert time.monotonic() < deadline, told
        if select.select([leader], [], [], 0.1)[0]:
            try:
                told += os.read(leader, 65_536)
            except OSError:
                break
    assert wanted in told, told
    return told


def test_a_link_is_printed_works_once_and_all_can_be_thrown_out(place: Path) -> None:
    done = run(place, "dashboard", "--no-open", "--json")
    told = json.loads(done.stdout)
    assert told["opened"] is False
    assert told["expires_in_s"] == 60
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with opener.open(told["url"], timeout=WAIT_S) as reply:
        assert reply.url.endswith("/dashboard/")
        assert reply.headers["content-type"].startswith("text/html")
    base = told["url"].partition("/dashboard/")[0]
    with opener.open(f"{base}/api/stats", timeout=WAIT_S) as reply:
        assert json.loads(reply.read())["figures"]["live"] == 1
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(told["url"], timeout=WAIT_S)
    assert json.loads(run(place, "dashboard", "--logout-all", "--json").stdout) == {"ended": 1}
    with pytest.raises(urllib.error.HTTPError, match="401"):
        opener.open(f"{base}/api/stats", timeout=WAIT_S)
    assert run(place, "dashboard", "--logout-all", "--no-open").exit_code == 2


def test_a_browser_is_opened_where_there_is_a_screen(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: bool(opened.append(url)) or True)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert "/dashboard/enter?code=" in run(place, "dashboard").stdout
    assert opened == []
    monkeypatch.setenv("DISPLAY", ":0")
    done = run(place, "dashboard")
    assert len(opened) == 1
    # The link is in the browser; in a scrollback it would only be read by others.
    assert "code=" not in done.stdout


def test_nobody_is_thrown_out_of_a_daemon_that_does_not_run(tmp_path: Path) -> None:
    done = run(tmp_path / "none", "dashboard", "--logout-all", "--json")
    assert json.loads(done.stdout) == {"ended": 0}


# -- the view -------------------------------------------------------------------------------------


def seen(**more: Any) -> dict[str, Any]:
    """What a daemon told."""
    return {
        "health": {"status": "degraded", "score": 0.6, "domains": []},
        "predictor": {
            "phase": "active",
            "alpha": 0.2,
            "success_rate": 0.75,
            "scorer": "features",
            "model_version": 3,
            "training_sessions": 44,
            "min_training_sessions": 10,
        },
        "outcomes": [],
        "success_rates": [],
        "activity": {"memories": 1, "sessions": 2, "injected": 3, "win": 4, "loss": 5},
        "sessions": [],
        "queue": {"queued": 1, "parked": 0},
        "latencies": [],
        "errors": [],
        **more,
    }


def test_outcomes_are_told_by_shape_and_in_their_order() -> None:
    rates = [0.0, 0.5, 1.0, 2.0]
    told = blocks(seen(outcomes=["win", "loss", "tie", "excluded"], success_rates=rates), NOW)
    assert isinstance(told[0], Fields)
    pairs = dict(told[0].pairs)
    assert pairs["outcomes"] == "●▲■○"
    assert pairs["success"] == "▁▅██"
    assert "influence 80 % (alpha 0.20)" in pairs["predictor"]
    assert sparkline([-1.0]) == "▁"


def test_parts_that_are_not_well_say_why() -> None:
    domains = [
        {"domain": "storage", "status": "healthy", "score": 1.0, "warnings": []},
        {"domain": "queue", "status": "unhealthy", "score": 0.1, "warnings": ["stuck"]},
        {"domain": "index", "status": "healthy", "score": 0.9, "warnings": ["slow"]},
    ]
    told = blocks(seen(health={"status": "unhealthy", "score": 0.1, "domains": domains}), NOW)
    assert isinstance(told[0], Fields)
    health = dict(told[0].pairs)["health"]
    assert health.splitlines() == [
        "unhealthy 0.10",
        "queue unhealthy 0.10: stuck",
        "index healthy 0.90: slow",
    ]


def test_sessions_latencies_and_errors_have_tables_when_there_are_any() -> None:
    session = {
        "id": "s" * 40,
        "started_at": "2026-05-04T01:02:01Z",
        "state": "open",
        "outcome": None,
        "margin": None,
        "shown": 2,
        "context": "about",
    }
    latency = {"id": "recall", "count": 2, "last_ms": 1.0, "p50_ms": 1.0, "p95_ms": 2, "p99_ms": 3}
    error = {"code": "busy", "at": "2026-05-04T03:01:01Z", "stage": "judge", "message": "later"}
    judged = {**session, "outcome": "loss", "margin": -0.25}
    told = blocks(seen(sessions=[session, judged], latencies=[latency], errors=[error]), NOW)
    tables = [one.rows for one in told if isinstance(one, Table)]
    assert tables[0][0] == ("s" * 20, "2h", "open", "-", "2", "about")
    assert tables[0][1][2:4] == ("▲ loss", "-0.250")
    assert tables[1] == [("recall", "2", "1.0 ms", "1.0 ms", "2.0 ms", "3.0 ms")]
    assert tables[2] == [("busy", "1m", "judge", "later")]
