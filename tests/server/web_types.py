"""Daemons for tests and how they are asked: real processes, on this machine only."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from machine import patience

WAIT_S = patience(60.0)
Fields = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a daemon answered."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=WAIT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(WAIT_S)
        self.sock.connect(self._path)


@dataclass(slots=True)
class Served:
    """A daemon that can be asked in every way, also in wrong ones."""

    home: Path
    url: str
    socket: str
    token: str
    pid: int = 0
    stop: Callable[[], None] = lambda: None
    finished: list[bool] = field(default_factory=list)

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        return host, int(port)

    @property
    def bearer(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token}"}

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        tcp: bool = False,
        headers: Sequence[tuple[str, str]] | Fields = (),
    ) -> Reply:
        """One request; bytes are sent as they are, anything else as JSON."""
        pairs = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
        names = {name.lower() for name, _ in pairs}
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = (
            http.client.HTTPConnection(*self.address, timeout=WAIT_S)
            if tcp
            else UnixConnection(self.socket)
        )
        try:
            connection.putrequest(
                method, path, skip_host="host" in names, skip_accept_encoding=True
            )
            if content is not None and not names & {"content-length", "transfer-encoding"}:
                pairs.append(("content-length", str(len(content))))
            if content is not None and "content-type" not in names:
                pairs.append(("content-type", "application/json"))
            for name, value in pairs:
                connection.putheader(name, value)
            connection.endheaders(content)
            found = connection.getresponse()
            told = {name.lower(): value for name, value in found.getheaders()}
            # A stream has no end that one could wait for.
            is_stream = told.get("content-type", "").startswith("text/event-stream")
            return Reply(found.status, told, b"" if is_stream else found.read())
        finally:
            connection.close()

    def enter(self) -> dict[str, str]:
        """The cookie of a browser that was let in just now, as headers."""
        link = self.ask("POST", "/api/dashboard/links").json["url"]
        reply = self.ask("GET", link.removeprefix(self.url), tcp=True)
        assert reply.status == 303
        return {"cookie": reply.headers["set-cookie"].partition(";")[0]}

    def raw(self, sent: bytes, *, tcp: bool = False) -> socket.socket:
        """A connection on which some bytes were sent."""
        if tcp:
            made = socket.create_connection(self.address, WAIT_S)
        else:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            made.settimeout(WAIT_S)
        try:
            if not tcp:
                made.connect(self.socket)
            made.sendall(sent)
        except OSError:
            made.close()
            raise
        return made


def read_all(connection: socket.socket) -> bytes:
    """Everything until the other side closes."""
    pieces = []
    with connection:
        while piece := connection.recv(65_536):
            pieces.append(piece)
    return b"".join(pieces)


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Waits until something holds, and fails when it never does."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def clean_environment(**more: str) -> dict[str, str]:
    """The environment without settings of whoever runs the tests."""
    found = {name: value for name, value in os.environ.items() if not name.startswith("MERITORY_")}
    return {**found, **more}


def read_served(home: Path) -> Served:
    """A daemon as it announced itself."""
    told = json.loads((home / "daemon.json").read_text())
    token = (home / "token").read_text().strip()
    return Served(home, told["url"], told["socket"], token, told["pid"])


class Processes:
    """Starts daemons as processes of their own, and ends every one of them by its id."""

    def __init__(self) -> None:
        self._children: list[subprocess.Popen[bytes]] = []

    def start(self, home: Path, *options: str, **environ: str) -> Served:
        """A daemon that answers."""
        child = self.spawn(home, *options, **environ)
        wait_for(
            lambda: (home / "daemon.json").exists() or child.poll() is not None, "no daemon came up"
        )
        assert child.poll() is None, child.communicate()
        return read_served(home)

    def spawn(self, home: Path, *options: str, **environ: str) -> subprocess.Popen[bytes]:
        """A daemon that may not even start."""
        command = [sys.executable, "-P", "-m", "meritory", "--home", str(home), "up", "--detached"]
        # The model's scores are waited for, however busy the machine is.
        environ = {"MERITORY_PREDICTOR_SCORE_TIMEOUT_MS": "60000", **environ}
        child = subprocess.Popen(
            [*command, "--port", "0", *options],
            env=clean_environment(**environ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._children.append(child)
        return child

    def end(self, number: int = signal.SIGTERM) -> list[int]:
        """Ends all that still run; returns how each ended."""
        for child in self._children:
            if child.poll() is None:
                child.send_signal(number)
        codes = [child.wait(WAIT_S) for child in self._children]
        for child in self._children:
            for stream in (child.stdout, child.stderr):
                if stream is not None:
                    stream.close()
        self._children = []
        return codes


Serve = Callable[..., Served]
