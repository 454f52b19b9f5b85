"""What tests of the predictor's process have in common: fakes that misbehave, and a real one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from meritory.domain.place import Place
from meritory.domain.world import World
from meritory.ports.scorer import ModelFolders, ScoreRequest, base_weights
from meritory.ports.sidecar import SidecarScorer, SidecarSpec
from meritory.rank.features import FEATURE_VERSION, FEATURES

WIDTH = len(FEATURES)
PATIENT_MS = 20_000.0
# A process that speaks the language, up to what `on` does with a call for scores.
FAKE = """
import json, os, signal, sys, time

def read():
    line = sys.stdin.buffer.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)

def write(text):
    sys.stdout.write(text)
    sys.stdout.flush()

def answer(call, **changes):
    reply = {"jsonrpc": "2.0", "id": call["id"], "result": {}, **changes}
    write(json.dumps(reply) + "\\n")

def result(call):
    asked = call["params"]
    scores = [{"id": one, "score": float(n)} for n, one in enumerate(asked["candidate_ids"])]
    return {"scores": scores, "model_ready": True, "model_version": asked["version"]}

def fine(call):
    answer(call, result=result(call))

lives = os.path.join(os.path.dirname(__file__), "lives")
with open(lives, "a") as file:
    file.write("x")
life = os.path.getsize(lives)
seen = 0
{body}
while True:
    call = read()
    if call["method"] == "score":
        seen += 1
        on(call)
    else:
        answer(call)
"""


class Jumping(World):
    """A world whose clock can be set forward."""

    ahead_ms = 0.0

    def monotonic_ms(self) -> float:
        return super().monotonic_ms() + self.ahead_ms


def fake(folder: Path, body: str) -> tuple[str, ...]:
    """The command of a process that behaves as this code says."""
    script = folder / "fake.py"
    script.write_text(FAKE.replace("{body}", body))
    return sys.executable, "-S", "-E", str(script)


def shelves(folder: Path) -> ModelFolders:
    return ModelFolders(folder / "models", base_weights())


@contextmanager
def scorer(folder: Path, world: World | None = None, **spec: Any) -> Iterator[SidecarScorer]:
    """A scorer, of which nothing is left afterwards."""
    known: dict[str, Any] = {"score_timeout_ms": PATIENT_MS, "first_pause_ms": 1.0, **spec}
    wanted = SidecarSpec(store=Place(file=folder / "meritory.db"), shelves=shelves(folder), **known)
    made = SidecarScorer(wanted, "features", world or World())
    before = _held()
    try:
        yield made
    finally:
        pid = made.facts.pid
        made.close()
        made.close()
        assert not made.facts.is_alive
        assert pid is None or not os.path.exists(f"/proc/{pid}"), "a process is left"
        until(lambda: _held() <= before)


def _held() -> tuple[int, int]:
    """How many files and threads there are."""
    return len(os.listdir("/proc/self/fd")), threading.active_count()


def request(count: int = 3, seed: int = 0, **changes: Any) -> ScoreRequest:
    """A request for scores of made up candidates."""
    table = np.random.default_rng(seed).standard_normal((count, WIDTH))
    ids = tuple(f"memory-{number}" for number in range(count))
    known = {"session_key": "run", "memory_ids": ids, "features": table}
    return ScoreRequest(**{"feature_version": FEATURE_VERSION, **known, **changes})


def until(is_so: Callable[[], bool], limit_s: float = 20.0) -> None:
    """Waits for what must come."""
    deadline = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.005)


def trainer_of(pid: int) -> int:
    """The training that a process started, once it really is one."""
    found: list[int] = []

    def is_there() -> bool:
        for task in Path(f"/proc/{pid}/task").iterdir():
            # Threads come and go.
            with suppress(OSError):
                started = map(int, (task / "children").read_text().split())
                # Until then it is a copy of its parent, which waits for it.
                found.extend(one for one in started if "meritory.sidecar train" in _command(one))
        return bool(found)

    until(is_there)
    return found[0]


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")


class Talk:
    """A real process, spoken to line by line."""

    def __init__(self, folder: Path, *options: str) -> None:
        command = [
            sys.executable,
            "-m",
            "meritory.sidecar",
            folder / "meritory.db",
            folder / "models",
        ]
        self.process = subprocess.Popen(
            [*map(str, command), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
        self._count = 0

    def send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def heard(self) -> dict[str, Any]:
        """The next answer."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "it has ended"
        known: dict[str, Any] = json.loads(line)
        assert known["jsonrpc"] == "2.0"
        assert ("result" in known) != ("error" in known)
        return known

    def call(self, method: str, **params: Any) -> int:
        """Sends a call and gives its number."""
        self._count += 1
        body = {"jsonrpc": "2.0", "id": self._count, "method": method, "params": params}
        self.send(json.dumps(body).encode())
        return self._count

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a call."""
        number = self.call(method, **params)
        reply = self.heard()
        assert reply["id"] == number
        assert "error" not in reply, reply
        known: dict[str, Any] = reply["result"]
        return known

    def fails(self, method: str, **params: Any) -> tuple[int, str]:
        """The error of a call."""
        number = self.call(method, **params)
        reply = self.heard()
        assert reply["id"] == number
        return reply["error"]["code"], reply["error"]["message"]

    def close(self) -> int:
        """Closes its stdin and waits for its end."""
        process = self.process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            code = process.wait(20.0)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        return code


@contextmanager
def talking(folder: Path, *options: str) -> Iterator[Talk]:
    talk = Talk(folder, *options)
    try:
        yield talk
    finally:
        talk.close()
