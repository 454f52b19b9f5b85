"""From stdio to the daemon: which folder is meant, and what is asked again when nobody answers."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp_kit import PROJECT, WAIT_S, Piped, called, injected, request

from meritory.api.client import Daemon
from meritory.mcp.protocol import McpRequest
from meritory.mcp.stdio import Bridge

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 15\r\n\r\n"
HEALTHY = HEAD + b'{"status":"ok"}'


class Deaf:
    """A daemon that is well, takes every question, and hangs up."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.heard: list[bytes] = []
        home.mkdir(mode=0o700)
        self._lock = os.open(home / "daemon.lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.write(self._lock, json.dumps({"pid": os.getpid()}).encode())
        path = str(home / "x.sock")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path)
        self._listener.listen()
        told = {"url": "http://127.0.0.1:1", "socket": path, "pid": os.getpid()}
        told |= {"version": "0", "started_at": "2026-01-01T00:00:00+00:00"}
        (home / "daemon.json").write_text(json.dumps(told))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                made, _ = self._listener.accept()
            except OSError:
                return
            with made:
                asked = made.recv(1 << 20)
                if asked.startswith(b"GET /health"):
                    made.sendall(HEALTHY)
                else:
                    self.heard.append(asked)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(WAIT_S)
        os.close(self._lock)


@pytest.fixture
def deaf(tmp_path: Path) -> Iterator[Deaf]:
    made = Deaf(tmp_path / "home")
    yield made
    made.close()


@pytest.mark.parametrize(
    ("tool", "count"),
    [
        ("capture_feedback", 1),
        ("capture_memory_feedback", 1),
        ("memory_search", 2),
        ("memory_get", 2),
    ],
)
def test_only_what_may_be_done_twice_is_asked_again(deaf: Deaf, tool: str, count: int) -> None:
    asked = McpRequest(1, "tools/call", {"name": tool, "arguments": {}}, False)
    told = Bridge(str(deaf.home), {}).ask(asked)
    assert told["isError"] and "Continue without it" in told["content"][0]["text"]
    assert [one.split(b" ")[1] for one in deaf.heard] == [b"/mcp"] * count


def test_a_tilde_is_the_users_home(daemon: Daemon) -> None:
    place = Path("~", daemon.home.name)
    with Piped(place, "--project", PROJECT, HOME=str(daemon.home.parent)) as server:
        server.shake_hands()
        stored = server.ask(called("memory_store", content="The tilde stands for a home folder"))
        assert server.end() == (0, b"", b"")
    memory_id = stored["result"]["structuredContent"]["id"]
    assert daemon.request("GET", f"/api/memories/{memory_id}")["project"] == PROJECT
    assert not Path("~").exists()


def test_what_was_forgotten_is_no_resource(shared: Piped, daemon: Daemon) -> None:
    started = injected(daemon, "gate", "The gate of the shop opens to the left")
    (memory_id,) = [one["id"] for one in started["memories"] if "gate" in one["content"]]
    address, session = {"uri": f"meritory://memory/{memory_id}"}, {"uri": "meritory://session/gate"}

    def listed() -> list[str]:
        found = shared.ask(request("resources/list"))["result"]["resources"]
        return [one["uri"] for one in found]

    assert address["uri"] in listed()
    for one in (address, session):
        assert f"{memory_id}, fact" in (
            text := json.dumps(shared.ask(request("resources/read", one)))
        )
        assert "to the left" in text
    daemon.request("DELETE", f"/api/memories/{memory_id}")
    assert address["uri"] not in listed()
    reply = shared.ask(request("resources/read", address))
    assert reply["error"]["code"] == -32002 and "to the left" not in json.dumps(reply)
    assert memory_id not in json.dumps(shared.ask(request("resources/read", session)))
