"""Servers for tests and how they are asked: real processes, raw lines, and the official client."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from machine import patience
from meritory.api import client
from meritory.mcp.protocol import CAPABILITIES_KEY, VERSION_KEY

STATELESS = "2026-07-28"
PROJECT = "shop"
WAIT_S = patience(60.0)
ENVELOPE = {VERSION_KEY: STATELESS, CAPABILITIES_KEY: {}}
Json = dict[str, Any]


def environment(**more: str) -> dict[str, str]:
    """The environment without settings of whoever runs the tests, or of the agent they run in."""
    apart = ("MERITORY_", "CLAUDE")
    return {name: value for name, value in os.environ.items() if not name.startswith(apart)} | more


def prepared(home: Path) -> Path:
    """A data folder whose daemon takes any port and any number of requests."""
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text("[daemon]\nport = 0\nrate_limit_per_s = 0\n")
    return home


def request(method: str, params: Json | None = None, number: int | str = 1) -> Json:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}


def stateless(method: str, params: Json | None = None, number: int | str = 1) -> Json:
    return request(method, {**(params or {}), "_meta": ENVELOPE}, number)


def called(name: str, number: int | str = 1, **arguments: Any) -> Json:
    return request("tools/call", {"name": name, "arguments": arguments}, number)


class Piped:
    """The server as a client starts it, at the other end of two pipes."""

    def __init__(self, home: Path, *options: str, **environ: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "meritory.mcp.stdio", "--home", str(home), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(**environ),
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._into, self._out_of = self.process.stdin, self.process.stdout

    def send(self, *frames: Any) -> None:
        """Bytes are sent as they are, anything else as a message on its line."""
        for frame in frames:
            sent = frame if isinstance(frame, bytes) else json.dumps(frame).encode()
            self._into.write(sent + b"\n")
        self._into.flush()

    def receive(self) -> Any:
        line = self._out_of.readline()
        assert line.endswith(b"\n"), (line, self.process.poll())
        return json.loads(line)

    def ask(self, message: Any) -> Any:
        self.send(message)
        return self.receive()

    def tool(self, name: str, **arguments: Any) -> Any:
        """The result of a tool that could be called."""
        return self.ask(called(name, **arguments))["result"]

    def shake_hands(self, version: str = "2025-06-18") -> Json:
        asked = {"protocolVersion": version, "capabilities": {}, "clientInfo": {}}
        reply = self.ask(request("initialize", asked, "hello"))
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return dict(reply["result"])

    def end(self) -> tuple[int, bytes, bytes]:
        """Says that nothing more comes; the exit code and what was still said."""
        out, err = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, out, err

    def __enter__(self) -> Piped:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@dataclass(frozen=True, slots=True)
class Answered:
    """What came back over HTTP."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)


class _Unix(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=WAIT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self._path)


def post(
    daemon: client.Daemon,
    message: Any,
    headers: Mapping[str, str] | None = None,
    *,
    method: str = "POST",
    query: str = "",
) -> Answered:
    """One request to the endpoint over the socket, in any form."""
    assert daemon.socket is not None
    connection = _Unix(daemon.socket)
    content = message if isinstance(message, bytes) else json.dumps(message).encode()
    accept = "application/json, text/event-stream"
    given = {"content-type": "application/json", "accept": accept, **(headers or {})}
    try:
        connection.request(method, f"/mcp{query}", content, given)
        reply = connection.getresponse()
        told = {name.lower(): value for name, value in reply.getheaders()}
        return Answered(reply.status, told, reply.read())
    finally:
        connection.close()


def mirrored(message: Json, **changed: str | None) -> dict[str, str]:
    """The headers that belong to a message of the stateless era, with some of them changed."""
    params = message["params"]
    found: dict[str, str | None] = {
        "mcp-protocol-version": params["_meta"][VERSION_KEY],
        "mcp-method": message["method"],
        "mcp-name": params.get("name") or params.get("uri"),
    }
    found |= {name.replace("_", "-"): value for name, value in changed.items()}
    return {name: value for name, value in found.items() if value is not None}


def injected(daemon: client.Daemon, key: str, content: str, user: str = "default") -> Json:
    """A session that was shown a memory: its code, and the memory with its handle."""
    body = {"content": content, "user": user, "project": PROJECT}
    daemon.request("POST", "/api/memories", body)
    asked = {"session_key": key, "context": content, "user": user, "project": PROJECT}
    return dict(daemon.request("POST", "/api/hooks/session-start", asked))
