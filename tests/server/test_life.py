"""The daemon's life: one per store, killed and started again, and gone without a trace."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from web_types import Processes, clean_environment

from meritory import __version__
from meritory.api import client
from meritory.domain.errors import PortTimeout
from meritory.engine.jobs.runner import STOP_WAIT_S
from meritory.server.serve import GRACE_S
from meritory.settings.home import DAEMON_NAME, SOCKET_NAME

LEFT = {
    "daemon.lock",
    "daemon.log",
    "daemon.reserve",
    "meritory.db",
    "meritory.db.daemon",
    "meritory.db.lock",
    "token",
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def test_it_leaves_as_it_came(home: Path, processes: Processes) -> None:
    daemon = processes.start(home)
    for name in (DAEMON_NAME, SOCKET_NAME, "token", "daemon.lock", "daemon.log"):
        assert (home / name).stat().st_mode & 0o777 == 0o600, name
    told = json.loads((home / DAEMON_NAME).read_text())
    assert told["pid"] == daemon.pid
    assert told["version"] == __version__
    # A connection that idles must not keep it from ending.
    idle = daemon.raw(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    assert idle.recv(1_000).startswith(b"HTTP/1.1 200")
    assert processes.end() == [0]
    idle.close()
    assert set(os.listdir(home)) == LEFT
    assert (home / "daemon.lock").read_text() == ""


def test_a_second_daemon_is_refused_and_told_who_is_there(
    home: Path, tmp_path: Path, processes: Processes
) -> None:
    first = processes.start(home)
    same_folder = processes.spawn(home)
    out, complaint = same_folder.communicate(timeout=60)
    assert (same_folder.returncode, out) == (1, b"")
    assert f"process {first.pid}, since 2".encode() in complaint
    assert b"`meritory down` stops it" in complaint
    same_store = processes.spawn(tmp_path / "other", MERITORY_STORE_PATH=str(home / "meritory.db"))
    _, complaint = same_store.communicate(timeout=60)
    assert same_store.returncode == 1
    assert f"process {first.pid}".encode() in complaint
    assert str(home / "meritory.db").encode() in complaint
    assert first.ask("GET", "/health").status == 200


@pytest.mark.parametrize("kind", ["symbolic", "hard"])
def test_a_second_daemon_is_refused_under_another_name_of_the_file(
    home: Path, tmp_path: Path, processes: Processes, kind: str
) -> None:
    first = processes.start(home)
    link, store = tmp_path / "link.db", home / "meritory.db"
    if kind == "symbolic":
        link.symlink_to(store)
    else:
        link.hardlink_to(store)
    second = processes.spawn(tmp_path / "other", MERITORY_STORE_PATH=str(link))
    _, complaint = second.communicate(timeout=60)
    assert second.returncode == 1
    expected = f"process {first.pid}" if kind == "symbolic" else "is a hard link"
    assert expected in complaint.decode()
    assert first.ask("GET", "/health").status == 200


def test_after_a_kill_it_starts_again_with_all_that_was_stored(
    home: Path, processes: Processes
) -> None:
    first = processes.start(home)
    made = first.ask("POST", "/api/memories", {"content": "kept through a kill"}).json["id"]
    assert processes.end(signal.SIGKILL) == [-signal.SIGKILL]
    assert (home / SOCKET_NAME).exists()
    assert (home / DAEMON_NAME).exists()
    assert client.find(home) is None
    assert client.holder_pid(home) is None
    (home / DAEMON_NAME).unlink()
    again = processes.start(home)
    assert again.token == first.token
    assert again.ask("GET", f"/api/memories/{made}").json["content"] == "kept through a kill"


def test_eight_clients_at_once_start_one_daemon(home: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from meritory.api import client\n"
        "print(client.ensure(Path(sys.argv[1]), 60_000, ['--port', '0']).pid)\n"
    )
    command = [sys.executable, "-c", code, str(home)]
    children = [
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment()
        )
        for _ in range(8)
    ]
    try:
        told = {child.communicate(timeout=90) for child in children}
    finally:
        stopped = client.stop(home)
    assert told == {(b"%d\n" % (stopped or 0), b"")}
    log = [json.loads(line) for line in (home / "daemon.log").read_text().splitlines()]
    assert [line["event"] for line in log if line["event"] == "daemon.start"] == ["daemon.start"]
    assert client.find(home) is None


def test_whoever_stops_it_waits_longer_than_it_takes() -> None:
    assert client.STOP_WAIT_MS > (GRACE_S + STOP_WAIT_S) * 1_000


def test_a_daemon_that_hangs_is_named(home: Path, processes: Processes) -> None:
    pid = processes.start(home).pid
    os.kill(pid, signal.SIGSTOP)
    try:
        assert client.find(home) is None
        assert client.holder_pid(home) == pid
        with pytest.raises(PortTimeout, match=rf"process {pid}\) runs but does not answer"):
            client.ensure(home, wait_ms=50)
        with pytest.raises(PortTimeout, match=f"process {pid} did not end"):
            client.stop(home, wait_ms=50)
    finally:
        os.kill(pid, signal.SIGCONT)
