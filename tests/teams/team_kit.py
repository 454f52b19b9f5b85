"""Daemons and commands of people who share one database, each with a data folder of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from machine import patience
from meritory.api import client
from meritory.api.client import Daemon
from meritory.domain.place import URL_VARIABLE

WAIT_S = patience(60.0)


def environment(home: Path, address: str, **more: str) -> dict[str, str]:
    """The environment of somebody who works with a team's database."""
    apart = ("MERITORY_", "CLAUDE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(apart)}
    return {**kept, "MERITORY_HOME": str(home), URL_VARIABLE: address, **more}


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Waits until something holds, and fails when it never does."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@dataclass
class Team:
    """One database, and the processes of those who use it."""

    folder: Path
    address: str
    _children: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def begin(self, name: str, **environ: str) -> subprocess.Popen[bytes]:
        """Starts the daemon of a data folder, and does not wait for it."""
        command = [sys.executable, "-P", "-m", "meritory", "--home", str(self.folder / name)]
        child = subprocess.Popen(
            [*command, "up", "--detached", "--port", "0"],
            env=environment(self.folder / name, self.address, **environ),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self._children.append(child)
        return child

    def reached(self, name: str, child: subprocess.Popen[bytes]) -> Daemon:
        """The daemon of a data folder, once it answers."""
        home = self.folder / name
        found: list[Daemon] = []

        def answers() -> bool:
            assert child.poll() is None, child.stderr and child.stderr.read()
            daemon = client.find(home)
            found.extend([daemon] if daemon else [])
            return bool(found)

        wait_for(answers, "no daemon came up")
        return found[0]

    def daemon(self, name: str, **environ: str) -> Daemon:
        """The daemon of a data folder."""
        return self.reached(name, self.begin(name, **environ))

    def run(
        self, name: str, *words: str, sent: str = "", **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """A command of somebody; it must succeed."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "meritory", *words],
            env=environment(self.folder / name, self.address, **environ),
            cwd=self.folder,
            input=sent,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done

    def end(self, number: int = signal.SIGTERM) -> list[int]:
        """Ends every daemon that still runs, by its id; says how each ended."""
        for child in self._children:
            if child.poll() is None:
                child.send_signal(number)
        codes = [child.wait(WAIT_S) for child in self._children]
        for child in self._children:
            if child.stderr is not None:
                child.stderr.close()
        self._children.clear()
        return codes
