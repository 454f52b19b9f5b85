"""A daemon for the hook's tests, ways to run the hook, and what every answer must keep to."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from machine import patience
from meritory.api import client
from meritory.hook import main

WAIT_S = patience(60.0)
SCRIPT = Path(main.__file__).with_name("__main__.py")
NATIVE = {name: tuple(row.events) for name, row in main.HARNESSES.items()}
HERON = "The staging database is called heron"


def clean_environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of a client whose user keeps everything under one folder."""
    found = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MERITORY_", "CLAUDE", "CODEX", "COPILOT", "GEMINI"))
    }
    return {**found, "HOME": str(home), "MERITORY_HOME": str(home / "meritory"), **more}


@dataclass(frozen=True, slots=True)
class Ran:
    """What a process did."""

    code: int
    out: bytes
    err: bytes
    took_s: float


def run(
    arguments: list[str], sent: bytes, environ: Mapping[str, str], script: Path = SCRIPT
) -> Ran:
    """The hook as a client runs it."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(script), *arguments],
        input=sent,
        capture_output=True,
        env=dict(environ),
        timeout=WAIT_S,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr, time.monotonic() - began)


def faults(ran: Ran) -> list[str]:
    """What a client would hold against the hook."""
    found = [] if ran.code == 0 else [f"it ended with {ran.code}"]
    if ran.err:
        found.append(f"it wrote to stderr: {ran.err[-200:]!r}")
    return found + wrong_answer(ran.out)


def wrong_answer(out: bytes) -> list[str]:
    """What is wrong with something printed; nothing printed is never wrong."""
    if not out:
        return []
    try:
        answer = json.loads(out.decode("utf-8"), parse_constant=_no_constant)
    except ValueError as error:
        return [f"it is no JSON: {error}"]
    text = _context(answer)
    if not isinstance(text, str):
        return [f"no client knows this shape: {str(answer)[:200]}"]
    length = len(text.encode("utf-16-le", "surrogatepass")) // 2
    return [f"it is too long: {length}"] if length > main.CONTEXT_LIMIT_UNITS else []


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _context(answer: Any) -> Any:
    """The text for the agent, of an answer in one of the known shapes."""
    if not isinstance(answer, dict):
        return None
    if set(answer) == {"additionalContext"}:
        return answer["additionalContext"]
    if set(answer) in ({"additional_context"}, {"continue", "additional_context"}):
        return answer["additional_context"] if answer.get("continue", True) is True else None
    if set(answer) == {"decision", "reason"}:
        return answer["reason"] if answer["decision"] == "block" else None
    inner = answer.get("hookSpecificOutput")
    if set(answer) != {"hookSpecificOutput"} or not isinstance(inner, dict):
        return None
    if set(inner) == {"hookEventName", "displayContent"}:
        return "" if isinstance(inner["displayContent"], str) else None
    if set(inner) != {"hookEventName", "additionalContext"}:
        return None
    known = inner["hookEventName"] in {name for names in NATIVE.values() for name in names}
    return inner["additionalContext"] if known else None


class Running:
    """A real daemon and the events that are told it."""

    def __init__(self, home: Path, port: int = 0) -> None:
        self.home = home
        self.environ = clean_environment(home, MERITORY_HOOK="nostart")
        command = [sys.executable, "-P", "-m", "meritory", "up", "--detached"]
        command += ["--port", str(port)]
        # The model's scores are waited for, however busy the machine is.
        environ = {
            **clean_environment(home),
            "MERITORY_DAEMON_RATE_LIMIT_PER_S": "0",
            "MERITORY_PREDICTOR_SCORE_TIMEOUT_MS": "60000",
        }
        self.process = subprocess.Popen(
            command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        found: list[client.Daemon] = []

        def answers() -> bool:
            daemon = client.find(home / "meritory")
            found.extend([daemon] if daemon else [])
            return bool(found)

        try:
            wait_for(answers, "no daemon came up")
        except AssertionError:
            self.close()
            raise
        self.daemon = found[0]

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        return self.daemon.request(method, path, body)

    def out(self, harness: str, payload: Any, *flags: str, **environ: str) -> bytes:
        """What the hook prints, run in this process."""
        sent = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        return main.main(["--harness", harness, *flags], sent, {**self.environ, **environ})

    def told(self, harness: str, payload: Any, *flags: str, **environ: str) -> Any:
        """The same, decoded; None for nothing."""
        printed = self.out(harness, payload, *flags, **environ)
        assert wrong_answer(printed) == []
        return json.loads(printed) if printed else None

    def text(self, harness: str, payload: Any, **environ: str) -> str:
        """What the agent gets to see."""
        found = self.told(harness, payload, **environ)
        return "" if found is None else str(_context(found))

    def session(self, key: str) -> Any:
        return self.ask("GET", f"/api/sessions/{key}")

    def ratings(self, key: str) -> dict[str, float]:
        """Scores by handle."""
        rows = self.ask("GET", f"/api/sessions/{key}/memories")["results"]
        return {
            row["handle"]: row["agent_relevance_score"]
            for row in rows
            if row["agent_relevance_score"] is not None
        }

    def close(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(WAIT_S)


def wait_for(condition: Any, what: str) -> None:
    """Waits until something holds, and fails when it never does."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def code_in(text: str) -> str:
    """The code that ratings of an injection must name."""
    found = re.search(r"mf ([0-9a-z]{10}) ", text)
    assert found is not None, text
    return found[1]


def plain(text: str) -> str:
    """A text without what is different every time."""
    text = re.sub(r"(?<=notes )[0-9a-f]{32}", "NONCE", text)
    text = re.sub(r" \([0-9]+ excluded\)", "", text)
    return re.sub(r"(?<=mf )[0-9a-z]{10}(?= )", "CODE", text)


class Imposter:
    """Something that listens where the daemon should be, and answers what it is told to."""

    def __init__(self, home: Path, answer: bytes | None) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._answer = answer
        self._kept: list[socket.socket] = []
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path = str(home / "x.sock")
        self._listening.bind(path)
        self._listening.listen(64)
        told = {"url": "http://127.0.0.1:1", "socket": path, "pid": 1}
        (home / "daemon.json").write_text(json.dumps(told))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def answer(self, with_bytes: bytes | None) -> None:
        """What whoever comes next is answered; None keeps them waiting."""
        self._answer = with_bytes

    def _serve(self) -> None:
        while True:
            try:
                made, _ = self._listening.accept()
            except OSError:
                return
            if self._answer is None:
                self._kept.append(made)
                continue
            with made:
                made.settimeout(WAIT_S)
                try:
                    made.recv(1 << 20)
                    made.sendall(self._answer)
                except OSError:
                    pass

    def close(self) -> None:
        # Wakes whoever waits in accept.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(WAIT_S)
        for made in self._kept:
            made.close()
