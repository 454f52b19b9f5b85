"""A daemon process of its own, for the benches that ask one over its Unix socket."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meritory.api import client

READY_WITHIN_S = 60.0
REPLY_WITHIN_S = 900.0


@dataclass(frozen=True, slots=True)
class Reply:
    """What a request was answered, and how long that took."""

    status: int
    body: Any
    took_ms: float


class Daemon:
    """A daemon process on a data folder, and one kept connection to its socket."""

    def __init__(self, home: Path, settings: dict[str, str] | None = None) -> None:
        kept = {name: value for name, value in os.environ.items() if not _is_setting(name)}
        began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "meritory", "up", "--detached", "--port", "0"],
            env={**kept, **(settings or {}), "MERITORY_HOME": str(home)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.socket = self._wait(home)
        self.ready_ms = (time.perf_counter() - began) * 1e3
        self._connection = _Connection(self.socket)

    def _wait(self, home: Path) -> str:
        deadline = time.monotonic() + READY_WITHIN_S
        while self.process.poll() is None and time.monotonic() < deadline:
            found = client.find(home)
            if found is not None and found.socket is not None:
                return found.socket
            time.sleep(0.002)
        self.process.kill()
        raise RuntimeError(f"the daemon did not come up; see {home / 'daemon.log'}")

    def ask(self, method: str, path: str, body: Any = None) -> Reply:
        """One request on the kept connection, which is opened anew where it was closed."""
        sent = None if body is None else json.dumps(body)
        began = time.perf_counter()
        try:
            found = self._ask(method, path, sent)
        except (http.client.HTTPException, ConnectionError):
            self._connection.close()
            began = time.perf_counter()
            found = self._ask(method, path, sent)
        raw = found.read()
        took_ms = (time.perf_counter() - began) * 1e3
        return Reply(found.status, json.loads(raw), took_ms)

    def _ask(self, method: str, path: str, sent: str | None) -> http.client.HTTPResponse:
        self._connection.request(method, path, sent, {"content-type": "application/json"})
        return self._connection.getresponse()

    def cpu_ms(self) -> float:
        """CPU time the process has used so far."""
        parts = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(parts[11]) + int(parts[12])) * 1e3 / os.sysconf("SC_CLK_TCK")

    def rss_mb(self) -> float:
        """Memory the process holds."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024

    def open_files(self) -> int:
        """Files, sockets and the like that the process has open."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def close(self) -> None:
        """Ends the process in good order."""
        self._connection.close()
        self.process.terminate()
        self.process.wait()


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=REPLY_WITHIN_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _is_setting(name: str) -> bool:
    return name.startswith("MERITORY_") and not name.startswith(
        ("MERITORY_BENCH_", "MERITORY_TEST_")
    )


@contextmanager
def running(home: Path, settings: dict[str, str] | None = None) -> Iterator[Daemon]:
    """A daemon for the length of a block."""
    daemon = Daemon(home, settings)
    try:
        yield daemon
    finally:
        daemon.close()
