"""A user's machine in a folder: a home, a project, a network with nobody but the scripted model."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MERITORY = Path(sys.executable).parent / "meritory"
START_TIMEOUT_S = 20
MERITORY_TIMEOUT_S = 40
_PAUSE_S = 0.02
_OUTPUT_LIMIT_CHARS = 3_000


@dataclass(frozen=True, slots=True)
class Ran:
    """A program that has ended, or was ended because it took too long."""

    command: tuple[str, ...]
    code: int | None
    out: str
    err: str
    took_s: float

    def ok(self) -> Ran:
        """Itself, when it ended well."""
        assert self.code == 0, str(self)
        return self

    def json(self) -> Any:
        """The one JSON value that it printed."""
        return json.loads(self.ok().out)

    def __str__(self) -> str:
        ended = "was ended" if self.code is None else f"ended with {self.code}"
        name = " ".join(self.command)[-300:]
        out, err = self.out[-_OUTPUT_LIMIT_CHARS:], self.err[-_OUTPUT_LIMIT_CHARS:]
        return f"{name}\n{ended} after {self.took_s:.1f} s\nstdout: {out}\nstderr: {err}"


@cache
def network_command() -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """How a network namespace is made and entered on this machine; None where it may not be."""
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        return None
    ways: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
        (("unshare", "--net"), ("nsenter", "--net")),
        (
            ("unshare", "--net", "--map-current-user", "--keep-caps"),
            ("nsenter", "--net", "--user", "--preserve-credentials"),
        ),
    )
    probe = f"import sys; sys.path.insert(0, {str(HERE)!r}); import model_server as m; "
    for make, enter in ways:
        command = [*make, sys.executable, "-c", probe + "m.raise_loopback()"]
        done = subprocess.run(command, capture_output=True, check=False, timeout=START_TIMEOUT_S)
        if done.returncode == 0:
            return make, enter
    return None


def run(
    command: Sequence[str], env: Mapping[str, str], cwd: Path, timeout_s: float, given: str = ""
) -> Ran:
    """Runs a program with exactly this environment; it and its children end when it is too slow."""
    began = time.monotonic()
    with subprocess.Popen(
        command,
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    ) as process:
        code: int | None
        try:
            out, err = process.communicate(given, timeout_s)
            code = process.returncode
        except subprocess.TimeoutExpired:
            # Its own session: the group is the client with everything it started and nobody else.
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            code = None
    return Ran(tuple(command), code, out, err, time.monotonic() - began)


class Model:
    """The scripted model of a sandbox, in a network of its own where the machine allows it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        network = network_command()
        make, enter = network or ((), ())
        own = ["--own-network"] if network else []
        self._process = subprocess.Popen(
            [*make, sys.executable, str(HERE / "model_server.py"), str(folder), *own],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            until((folder / "port").exists, lambda: "the model server did not start")
        except AssertionError:
            self.close()
            raise
        self.port = int((folder / "port").read_text("ascii"))
        self.enter = (*enter, "--target", str(self._process.pid)) if network else ()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def script(self, **script: Any) -> None:
        """What it says from now on; the same script again counts as a new one."""
        script["at"] = time.monotonic_ns()
        new = self._folder / "script.new"
        new.write_text(json.dumps(script), "utf-8")
        new.rename(self._folder / "script.json")

    def requests(self) -> list[dict[str, Any]]:
        """All that it was asked so far."""
        log = self._folder / "requests.jsonl"
        if not log.exists():
            return []
        return [json.loads(line) for line in log.read_text("utf-8").splitlines()]

    def close(self) -> None:
        """Ends it."""
        self._process.kill()
        self._process.wait()


class Sandbox:
    """A home folder with a project in it, Meritory as a user has it, and the scripted model."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.project = self.home / "shop"
        self.temporary = folder / "tmp"
        self.temporary.mkdir(parents=True)
        (self.project / ".git").mkdir(parents=True)
        (self.project / ".git" / "HEAD").write_text("ref: refs/heads/main\n", "ascii")
        self.model = Model(folder / "model")
        self.env = {
            "HOME": str(self.home),
            "PATH": f"{MERITORY.parent}:/usr/local/bin:/usr/bin:/bin",
            "TMPDIR": str(self.temporary),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "USER": "tester",
            "SHELL": "/bin/sh",
        }
        if not self.model.enter:
            # On the machine's own loopback another daemon may have the usual port.
            self.env["MERITORY_DAEMON_PORT"] = "0"

    @property
    def meritory_home(self) -> Path:
        """Meritory's data folder, where it is by default."""
        return self.home / ".meritory"

    def run(
        self,
        command: Sequence[str],
        timeout_s: float,
        extra: Mapping[str, str] | None = None,
        given: str = "",
    ) -> Ran:
        """Runs a program as the user, in the project, with no network but the model's."""
        env = {**self.env, **(extra or {})}
        return run([*self.model.enter, *command], env, self.project, timeout_s, given)

    def meritory(self, *words: str, given: str = "") -> Ran:
        """Runs one of Meritory's own commands."""
        return self.run([str(MERITORY), *words], MERITORY_TIMEOUT_S, given=given)

    def daemon_pid(self) -> int | None:
        """The daemon's process, if one answers."""
        told = self.meritory("status", "--json")
        status = json.loads(told.out)
        return int(status["pid"]) if status.get("running") else None

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """What the store itself holds."""
        store = f"file:{self.meritory_home / 'meritory.db'}?mode=ro"
        with contextlib.closing(sqlite3.connect(store, uri=True)) as connection:
            return connection.execute(query, values).fetchall()

    def close(self) -> None:
        """Ends the daemon and the model."""
        try:
            if self.meritory_home.exists():
                self.meritory("down")
        finally:
            self.model.close()


def until(
    is_so: Callable[[], object], complaint: Callable[[], str], timeout_s: float = START_TIMEOUT_S
) -> None:
    """Waits until something is so, and fails when it does not come about."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, complaint()
        time.sleep(_PAUSE_S)
