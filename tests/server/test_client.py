"""Clients and commands: they find the daemon, start it once, ask it and stop it."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from web_types import Serve

from meritory import __version__
from meritory.api import client
from meritory.cli.app import APP
from meritory.domain.errors import InputError, NotFound, PortError, PortTimeout
from meritory.settings.home import DAEMON_NAME, LOCK_NAME

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def test_a_client_asks_and_gets_values_or_errors_of_ours(serve: Serve) -> None:
    server = serve()
    daemon = client.find(server.home)
    assert daemon is not None
    made = daemon.request("POST", "/api/memories", {"content": "asked by a client ☕"})
    assert daemon.request("GET", f"/api/memories/{made['id']}")["content"].endswith("☕")
    assert daemon.request("GET", "/metrics").startswith("# HELP")
    with pytest.raises(NotFound, match="no memory"):
        daemon.request("GET", "/api/memories/0000nobody")
    with pytest.raises(InputError) as refused:
        daemon.request("POST", "/api/memories", {"content": ""})
    assert type(refused.value) is InputError
    with pytest.raises(client.Refused) as unknown:
        daemon.request("PUT", "/health")
    assert (unknown.value.code, unknown.value.status) == ("wrong_method", 405)
    for path in ("health", "/a b\r\nX: y", "/ä", "/a b"):
        with pytest.raises(InputError, match="a path begins with /"):
            daemon.request("GET", path)
    with pytest.raises(InputError, match="given twice") as twice:
        daemon.request("GET", "/api/stats?user=x&user=y")
    assert (twice.value.code, twice.value.status) == ("bad_request", 400)
    with pytest.raises(InputError, match="a number"):
        daemon.request("POST", "/api/memories", {"content": "x", "importance": float("nan")})
    by_token = client.Daemon(server.home, server.url, None, 0, "", "")
    assert by_token.request("GET", "/api/stats")["figures"]["live"] == 1
    # What is no token is none of the owner's, whoever wrote it.
    (server.home / "token").write_text("0" * 63)
    with pytest.raises(client.Refused) as unauthorized:
        by_token.request("GET", "/api/stats")
    assert unauthorized.value.status == 401


def test_what_a_copied_folder_announces_is_not_its_own_daemon(serve: Serve, tmp_path: Path) -> None:
    server = serve()
    copy = tmp_path / "copy"
    copy.mkdir(mode=0o700)
    for name in (DAEMON_NAME, LOCK_NAME):
        (copy / name).write_bytes((server.home / name).read_bytes())
    assert client.find(copy) is None
    assert client.holder_pid(copy) is None
    assert client.find(server.home) is not None


def test_a_client_finds_nobody_where_nobody_is(home: Path) -> None:
    assert client.find(home) is None
    assert client.stop(home) is None
    home.mkdir()
    for text in ("", "{", "[]", "{}", '{"url": 5, "socket": 7, "pid": "x"}'):
        (home / DAEMON_NAME).write_text(text)
        assert client.find(home) is None
    gone = client.Daemon(home, "http://127.0.0.1:9", str(home / "none.sock"), 0, "", "")
    with pytest.raises(PortError, match="cannot be reached"):
        gone.request("GET", "/health")


def test_a_daemon_that_cannot_start_says_why(home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text("nonsense = 1\n")
    with pytest.raises(client.DaemonDown, match="unknown setting 'nonsense'"):
        client.ensure(home, wait_ms=60_000)


def test_a_daemon_that_is_slow_to_start_is_waited_for(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An interpreter that is busy for longer than the wait before it becomes the real one.
    fake = tmp_path / "python"
    busy = "import os, sys, time\nwhile time.process_time() < 1.5: pass\n"
    fake.write_text(
        f"#!{sys.executable}\n{busy}os.execv(sys.executable, [sys.executable, *sys.argv[1:]])\n"
    )
    fake.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(fake))
    found = client.ensure(home, wait_ms=1_200, options=["--port", "0"])
    assert found.pid == client.stop(home)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import os; os.kill(os.getpid(), 9)", "signal 9 ended it"),
        ("raise SystemExit(3)", "exit code 3"),
        ("raise RuntimeError('no luck')", "exit code 1, RuntimeError: no luck"),
    ],
)
def test_a_daemon_that_dies_while_it_starts_says_how(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, message: str
) -> None:
    # An interpreter that runs the program instead of the daemon.
    fake = tmp_path / "python"
    fake.write_text(f"#!{sys.executable}\n{program}\n")
    fake.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(fake))
    with pytest.raises(client.DaemonDown, match=message):
        client.ensure(home, wait_ms=60_000)


def test_a_daemon_that_hangs_while_it_starts_is_given_up(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\nkill -STOP $$\n")
    fake.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(fake))
    with pytest.raises(PortTimeout, match="makes no progress") as failed:
        client.ensure(home, wait_ms=500)
    os.kill(int(failed.value.message.partition("process ")[2].partition(")")[0]), signal.SIGKILL)
    # There is no log yet, so the hint must not send anybody there.
    assert failed.value.hint == "`meritory status` shows whether it runs"


def test_a_module_beside_the_caller_is_not_run(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = tmp_path / "meritory"
    trap.mkdir()
    (trap / "__main__.py").write_text("raise SystemExit('trapped')")
    (trap / "__init__.py").write_text("")
    monkeypatch.chdir(tmp_path)
    try:
        found = client.ensure(home, wait_ms=60_000, options=["--port", "0"])
        assert found.version == __version__
    finally:
        assert client.stop(home) is not None


@pytest.fixture
def run(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    for name in [name for name in os.environ if name.startswith("MERITORY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MERITORY_DAEMON_PORT", "0")

    def call(*words: str) -> tuple[int, str, str]:
        done = CliRunner().invoke(APP, ["--home", str(home), *words])
        return done.exit_code, done.stdout, done.stderr

    yield call
    client.stop(home)


def test_the_status_tells_of_a_store_that_is_gone(run: Run, home: Path) -> None:
    assert run("up", "--background")[0] == 0
    code, out, _ = run("status", "--json")
    assert (code, json.loads(out)["health"]) == (0, "healthy")
    for file in home.glob("meritory.db*"):
        file.unlink()
    code, out, _ = run("status", "--json")
    told = json.loads(out)
    assert (code, told["health"]) == (1, "unhealthy")
    assert "meritory.db is gone" in told["troubles"]
    code, out, complaint = run("status")
    assert (code, "unhealthy" in out, "meritory.db is gone" in complaint) == (1, True, True)


def test_up_status_api_and_down(run: Run) -> None:
    code, out, _ = run("status")
    assert code == 1
    assert "`meritory up --background` starts one" in out
    code, out, _ = run("status", "--json")
    assert (code, json.loads(out)["running"]) == (1, False)
    assert run("down") == (0, "no daemon runs\n", "")
    code, out, _ = run("up", "--background", "--json")
    started = json.loads(out)
    assert (code, started["running"], started["version"]) == (0, True, __version__)
    code, out, _ = run("up", "--background")
    assert (code, out.split(":")[0]) == (0, "the daemon is already running")
    code, out, _ = run("status", "--json")
    told = json.loads(out)
    assert {name: told[name] for name in ("url", "socket", "pid")} == {
        name: started[name] for name in ("url", "socket", "pid")
    }
    assert code == 0
    code, out, _ = run("api", "/api/memories", "--data", '{"content": "by hand"}', "--json")
    assert (code, json.loads(out)["outcome"]) == (0, "stored")
    code, out, _ = run("api", "/api/memories/0000", "--json")
    assert (code, json.loads(out)["error"]["code"]) == (1, "not_found")
    for nonsense in ("{", "", "NaN", '{"content": 1e999}', "[" * 9_999, '{"content": 5}'):
        code, _, complaint = run("api", "/api/memories", "--data", nonsense)
        assert (code, "a bug" in complaint) == (2, False), nonsense
    for path in ("", "api", "/a b", "/\n", "/é", "//", "/api/stats?user=x&user=y"):
        code, _, complaint = run("api", path)
        assert (code, "cannot be reached" in complaint) == (1 if path == "//" else 2, False), path
    assert "meritory_memories 1" in run("api", "/metrics")[1]
    code, out, _ = run("down", "--json")
    assert json.loads(out) == {"stopped": True, "pid": told["pid"]}
    # Asking starts it again, and what was stored is still there.
    code, out, _ = run("api", "/api/stats", "--json")
    assert json.loads(out)["figures"]["live"] == 1


def test_a_remote_address_needs_names(run: Run) -> None:
    code, _, complaint = run("up", "--host", "0.0.0.0")
    assert code == 2
    assert "--allow-host" in complaint
    for name in ("a b", "", "é", "a/b", "a\n"):
        assert run("up", "--allow-host", name)[0] == 2
