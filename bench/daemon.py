"""What the daemon costs: its start, its end and single requests: `python -m bench.daemon`.

Server CPU is the figure that a busy machine disturbs least; the wall clock is beside it.
"""

from __future__ import annotations

import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from meritory.api import client

STARTS, REQUESTS, MEMORIES = 7, 1_000, 300
WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa")
JSON = {"content-type": "application/json"}


def main() -> int:
    """Measures and prints."""
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        starts(home)
        requests(home)
    return 0


def starts(home: Path) -> None:
    """From the start of the process to the first answer, and from SIGTERM to its end."""
    walls, busy, ends = [], [], []
    for _ in range(STARTS):
        began = time.perf_counter()
        child = start(home)
        while client.find(home) is None:
            time.sleep(0.005)
        walls.append(time.perf_counter() - began)
        busy.append(cpu_s(child.pid))
        began = time.perf_counter()
        child.terminate()
        child.wait()
        ends.append(time.perf_counter() - began)
    print(
        f"start {statistics.median(walls):.2f} s (least {min(walls):.2f}), "
        f"of it CPU {statistics.median(busy):.2f} s; end {statistics.median(ends):.2f} s"
    )


def start(home: Path) -> subprocess.Popen[bytes]:
    """A daemon on any free port."""
    command = [sys.executable, "-m", "meritory", "--home", str(home), "up", "--detached"]
    environ = {**os.environ, "MERITORY_DAEMON_RATE_LIMIT_PER_S": "0"}
    return subprocess.Popen([*command, "--port", "0"], env=environ, stderr=subprocess.DEVNULL)


def cpu_s(pid: int) -> float:
    """CPU seconds a process has used."""
    parts = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def requests(home: Path) -> None:
    """Single requests, one after the other, on a kept connection for each kind."""
    child = start(home)
    try:
        while (daemon := client.find(home)) is None:
            time.sleep(0.005)
        token = (home / "token").read_text().strip()
        socket = Caller(daemon, child.pid, {})
        tcp = Caller(replace(daemon, socket=None), child.pid, {"authorization": f"Bearer {token}"})
        made: dict[str, Any] = {}
        for number in range(MEMORIES):
            made = json.loads(socket.ask("POST", "/api/memories", body(number)))
        place = f"/api/memories/{made['id']}"
        for name, caller in (("socket", socket), ("tcp", tcp)):
            caller.measure(f"health, {name}", "GET", "/health")
            caller.measure(f"get, {name}", "GET", place)
            caller.measure(f"search, {name}", "POST", "/api/memories/search", question)
        socket.measure("remember, socket", "POST", "/api/memories", lambda n: body(MEMORIES + n))
        print(f"resident {resident_mb(child.pid):.0f} MB")
    finally:
        child.terminate()
        child.wait()


class Caller:
    """One way into the daemon."""

    def __init__(self, daemon: client.Daemon, pid: int, headers: dict[str, str]) -> None:
        self._pid = pid
        self._headers = {**JSON, **headers}
        self._connection: http.client.HTTPConnection
        if daemon.socket is None:
            self._connection = http.client.HTTPConnection(urlsplit(daemon.url).netloc, timeout=30)
        else:
            self._connection = client.UnixConnection(daemon.socket, 30)

    def ask(self, method: str, path: str, content: Any = None) -> bytes:
        """One request that must succeed."""
        sent = None if content is None else json.dumps(content)
        self._connection.request(method, path, sent, self._headers)
        reply = self._connection.getresponse()
        found = reply.read()
        assert reply.status == 200, found
        return found

    def measure(
        self, name: str, method: str, path: str, made: Callable[[int], Any] = lambda n: None
    ) -> None:
        """Many requests of one kind."""
        # A connection that idled meanwhile was closed; the next request opens it again.
        self._connection.close()
        taken = []
        before = cpu_s(self._pid)
        for number in range(REQUESTS):
            content = made(number)
            began = time.perf_counter()
            self.ask(method, path, content)
            taken.append((time.perf_counter() - began) * 1000)
        used_us = (cpu_s(self._pid) - before) / REQUESTS * 1e6
        taken.sort()
        p50, p99 = taken[REQUESTS // 2], taken[REQUESTS * 99 // 100]
        print(f"{name:20} p50 {p50:6.2f} ms  p99 {p99:6.2f} ms  server CPU {used_us:5.0f} us")


def resident_mb(pid: int) -> float:
    """Memory that a process holds."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def question(number: int) -> dict[str, str]:
    """Something to look for."""
    return {"query": f"which port has the {WORDS[number % len(WORDS)]} service"}


def body(number: int) -> dict[str, Any]:
    """A memory that is like no other."""
    word = WORDS[number % len(WORDS)]
    text = f"The {word} service number {number} listens on port {4_000 + number}"
    return {"content": text, "on_similar": "keep"}


if __name__ == "__main__":
    sys.exit(main())
