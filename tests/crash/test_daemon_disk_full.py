"""A daemon on a full disk: it starts, serves what it can read, and refuses writes by name."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from machine import patience
from meritory.api import client
from meritory.api.client import Daemon
from meritory.domain.errors import MeritoryError

WAIT_MS = int(patience(60.0) * 1_000)
MOUNT = 'mount -t tmpfs -o size=12m full "$1"'
NOTE = "the kettle is in the tea room"


def fill(folder: Path) -> None:
    """Leave no free byte on the disk."""
    with open(folder / "ballast", "ab", buffering=0) as file:
        for size in (65_536, 512, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    assert os.statvfs(folder).f_bavail == 0


def write(daemon: Daemon, text: str) -> str:
    try:
        return str(daemon.request("POST", "/api/memories", {"content": text})["outcome"])
    except MeritoryError as error:
        return error.code


def look(home: Path, name: str) -> dict[str, object]:
    """Start a daemon; return what it answers. It runs on."""
    daemon = client.ensure(home, WAIT_MS, ["--port", "0"])
    found = daemon.request("POST", "/api/memories/search", {"query": "where is the kettle?"})
    begun = daemon.request("POST", "/api/hooks/session-start", {"session_key": name})
    outcomes = [write(daemon, f"{name} {number} {'word ' * 1_000}") for number in range(8)]
    storage = daemon.request("GET", "/api/diagnostics/storage")
    return {
        "recalled": [one["content"] for one in found["results"]],
        "is_injected": NOTE in begun["inject"],
        "last_write": outcomes[-1],
        "warnings": storage["warnings"],
    }


def play(folder: Path) -> dict[str, object]:
    """Start a daemon after a kill, after another, and after a stop, each time on a full disk."""
    home, seen = folder / "home", dict[str, object]()
    assert write(client.ensure(home, WAIT_MS, ["--port", "0"]), NOTE) == "stored"
    for name in ("first kill", "second kill"):
        pid = client.holder_pid(home)
        assert pid
        os.kill(pid, signal.SIGKILL)
        while client.holder_pid(home) is not None:
            time.sleep(0.01)
        fill(folder)
        seen[name] = look(home, name)
    client.stop(home)
    fill(folder)
    seen["stop"] = look(home, "stop")
    (folder / "ballast").unlink()
    daemon = client.find(home)
    assert daemon is not None
    seen["space"] = write(daemon, "there is space again")
    client.stop(home)
    return seen


def test_a_daemon_starts_on_a_full_disk_and_serves_reads(tmp_path: Path) -> None:
    probe = ["unshare", "-rm", "sh", "-c", MOUNT, "sh", str(tmp_path)]
    try:
        subprocess.run(probe, check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        pytest.skip("this system does not let a test mount a small disk")
    command = f'{MOUNT} && exec "$2" "$3" "$1"'
    words = [str(tmp_path), sys.executable, __file__]
    environ = {name: text for name, text in os.environ.items() if not name.startswith("MERITORY")}
    environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", command, "sh", *words],
        capture_output=True,
        text=True,
        env=environ,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    served = {
        "recalled": [NOTE],
        "is_injected": True,
        "last_write": "disk_full",
        "warnings": ["the disk is full: free some space"],
    }
    assert json.loads(done.stdout) == {
        "first kill": served,
        "second kill": served,
        "stop": served,
        "space": "stored",
    }


if __name__ == "__main__":
    print(json.dumps(play(Path(sys.argv[1]))))
