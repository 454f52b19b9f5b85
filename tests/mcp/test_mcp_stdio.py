"""The process on stdio, spoken to in raw lines: good ones, bad ones, and the end of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp_kit import (
    ENVELOPE,
    PROJECT,
    STATELESS,
    WAIT_S,
    Piped,
    called,
    environment,
    injected,
    prepared,
    request,
    stateless,
)

from meritory.api import client
from meritory.api.client import Daemon
from meritory.mcp.protocol import HANDSHAKE, LINE_LIMIT_BYTES, VERSION_KEY, VERSIONS
from meritory.mcp.stdio import main

Pipe = Callable[..., Piped]


# -- opening ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", HANDSHAKE)
def test_a_known_version_is_agreed_on(pipe: Pipe, version: str) -> None:
    server = pipe()
    assert server.shake_hands(version)["protocolVersion"] == version
    assert server.ask(request("ping", number="p")) == {"jsonrpc": "2.0", "id": "p", "result": {}}
    assert server.end() == (0, b"", b"")


def test_an_unknown_version_is_answered_with_the_last_that_has_a_handshake(pipe: Pipe) -> None:
    assert pipe().shake_hands("1999-01-01")["protocolVersion"] == "2025-11-25"


def test_the_stateless_era_needs_no_opening(pipe: Pipe) -> None:
    server = pipe()
    told = server.ask(stateless("server/discover"))["result"]
    assert told["supportedVersions"] == list(VERSIONS)
    assert (told["resultType"], told["cacheScope"]) == ("complete", "private")
    assert told["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "meritory"
    tools = server.ask(stateless("tools/list"))["result"]
    assert tools["ttlMs"] > 0
    assert server.ask(stateless("tools/list"))["result"] == tools
    listed = server.ask(stateless("resources/list"))["result"]
    assert listed["ttlMs"] == 0
    result = server.ask(stateless("tools/call", {"name": "memory_search"}))["result"]
    assert (result["isError"], result["resultType"]) == (True, "complete")
    assert "ttlMs" not in result


def test_both_eras_are_served_side_by_side(shared: Piped) -> None:
    assert "resultType" in shared.ask(stateless("tools/list"))["result"]
    assert "resultType" not in shared.ask(request("tools/list"))["result"]


@pytest.mark.parametrize(
    ("meta", "code"),
    [
        ({VERSION_KEY: "2031-01-01"}, -32602),
        ({**ENVELOPE, VERSION_KEY: "2031-01-01"}, -32022),
        ({**ENVELOPE, VERSION_KEY: "2025-11-25"}, -32022),
        ({**ENVELOPE, VERSION_KEY: 5}, -32602),
        ({VERSION_KEY: STATELESS}, -32602),
        ({VERSION_KEY: STATELESS, "io.modelcontextprotocol/clientCapabilities": []}, -32602),
        ({}, -32602),
    ],
)
def test_an_envelope_that_is_not_sound_is_refused(shared: Piped, meta: Any, code: int) -> None:
    error = shared.ask(request("server/discover", {"_meta": meta}))["error"]
    assert error["code"] == code
    if code == -32022:
        assert error["data"] == {"supported": list(VERSIONS), "requested": meta[VERSION_KEY]}


@pytest.mark.parametrize("method", ["ping", "initialize", "logging/setLevel"])
def test_what_the_stateless_era_has_left_behind_is_unknown_to_it(
    shared: Piped, method: str
) -> None:
    assert shared.ask(stateless(method))["error"]["code"] == -32601


# -- framing ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "code", "number"),
    [
        (b"{", -32700, None),
        (b"hello", -32700, None),
        (b"\xff\xfe\x00", -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}', -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":1e999}}', -32700, None),
        (b'{"jsonrpc":"2.0","id":1' + b"0" * 5_000 + b',"method":"ping"}', -32700, None),
        (b"[" * 200_000, -32700, None),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, -32700, None),
        (b"x" * (LINE_LIMIT_BYTES + 1), -32600, None),
        (b"Content-Length: 20", -32700, None),
        (b'"text"', -32600, None),
        (b"null", -32600, None),
        (b"[]", -32600, None),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600, None),
        (b"{}", -32600, None),
        (b'{"jsonrpc":"1.0","id":7,"method":"ping"}', -32600, 7),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":7,"method":5}', -32600, 7),
        (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":[1]}', -32602, 7),
        (b'{"jsonrpc":"2.0","id":7,"method":"initialize"}', -32602, 7),
        (b'{"jsonrpc":"2.0","id":7,"method":"tools/everything"}', -32601, 7),
        (b'{"jsonrpc":"2.0","id":"\\ud800","method":"x\\udfff"}', -32601, "\ud800"),
        (b'{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"cursor":"x"}}', -32602, 7),
        (b'{"jsonrpc":"2.0","id":7,"method":"tools/call"}', -32602, 7),
        (b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":5}}', -32602, 7),
        (
            b'{"jsonrpc":"2.0","id":7,"method":"tools/call",'
            b'"params":{"name":"memory_get","arguments":[]}}',
            *(-32602, 7),
        ),
        (b'{"jsonrpc":"2.0","id":7,"method":"resources/read"}', -32602, 7),
    ],
    ids=lambda value: str(value[:40]) if isinstance(value, bytes) else None,
)
def test_a_bad_frame_is_answered_and_the_next_one_too(
    shared: Piped, frame: bytes, code: int, number: Any
) -> None:
    reply = shared.ask(frame)
    assert (reply["error"]["code"], reply["id"]) == (code, number)
    assert reply["error"]["message"]
    assert shared.ask(request("ping", number=2))["result"] == {}


def test_parameters_may_be_left_out(shared: Piped) -> None:
    for message in ({"params": None}, {}):
        assert (
            "tools"
            in shared.ask({"jsonrpc": "2.0", "id": 1, "method": "tools/list", **message})["result"]
        )


def test_what_needs_no_answer_gets_none(shared: Piped) -> None:
    shared.send(
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "memory_get"}},
        {"jsonrpc": "2.0", "method": "no/such/thing", "params": 5},
        {"jsonrpc": "2.0", "method": "notifications/cancelled"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "nobody"}},
        {"jsonrpc": "2.0", "id": 5, "result": {}},
        {"jsonrpc": "2.0", "id": 5, "error": {"code": 1, "message": "x"}},
        b"",
        b"   \r",
    )
    assert shared.ask(request("ping", number="only"))["id"] == "only"


def test_lists_of_messages_are_for_the_versions_that_have_them(pipe: Pipe) -> None:
    ping = request("ping", number=1)
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    old = pipe()
    old.shake_hands("2025-03-26")
    sent = [ping, note, called("memory_search", 2), {"jsonrpc": "2.0", "id": 3}, [ping]]
    found = old.ask([*sent, request("initialize", {"protocolVersion": "2025-03-26"}, 4)])
    assert [one["id"] for one in found] == [1, 2, 3, None, 4]
    assert found[1]["result"]["isError"] is True
    assert [one["error"]["code"] for one in found[2:]] == [-32600] * 3
    assert old.ask([ping] * 51)["error"]["code"] == -32600
    old.send([note])
    assert old.ask(ping)["result"] == {}
    new = pipe()
    new.shake_hands("2025-06-18")
    assert new.ask([ping])["error"]["code"] == -32600


def test_a_line_is_read_however_it_is_cut(pipe: Pipe) -> None:
    server = pipe()
    line = json.dumps(request("ping")).encode()
    assert server.process.stdin is not None
    for piece in (line[:5], line[5:] + b"\r\n" + line, b"\n"):
        server.process.stdin.write(piece)
        server.process.stdin.flush()
        time.sleep(0.02)
    assert [server.receive()["result"] for _ in range(2)] == [{}, {}]
    # The last one may lack its end.
    assert json.loads(server.process.communicate(line)[0])["result"] == {}


# -- what it is for ---------------------------------------------------------------------------


def test_what_an_agent_stores_is_an_agents(pipe: Pipe, daemon: Daemon) -> None:
    server = pipe("--project", PROJECT, "--harness", "codex")
    asked = called("memory_store", content="Invoices are numbered by year", kind="constraint")
    asked["params"]["_meta"] = {"threadId": "thread-1", "sessionId": "x" * 1_000}
    stored = server.ask(asked)["result"]
    assert "Only a person" in stored["content"][0]["text"]
    memory = daemon.request("GET", f"/api/memories/{stored['structuredContent']['id']}")
    assert (memory["origin"], memory["provenance"]) == ("agent", "assistant_derived")
    assert (memory["kind"], memory["pinned"]) == ("fact", False)
    assert memory["tags"] == ["proposed:constraint"]
    assert memory["sources"][0]["harness"] == "codex"
    assert memory["sources"][0]["session_key"] == "thread-1"
    history = daemon.request("GET", f"/api/memories/{memory['id']}/history")["results"]
    assert [entry["actor"] for entry in history] == ["mcp"]


def test_what_a_person_set_is_not_an_agents_to_forget(pipe: Pipe, daemon: Daemon) -> None:
    body = {"content": "Never push to main", "pinned": True, "project": PROJECT}
    pinned = daemon.request("POST", "/api/memories", body)["id"]
    told = pipe().tool("memory_forget", id=pinned)
    assert told["isError"]
    assert f"meritory forget {pinned}" in told["content"][0]["text"]
    assert daemon.request("GET", f"/api/memories/{pinned}")["deleted_at"] is None


def test_a_project_sees_its_own_and_what_holds_everywhere(pipe: Pipe) -> None:
    one, other = pipe("--project", "one"), pipe("--project", "other")
    here = one.tool("memory_store", content="The lamp of project one is green")
    everywhere = one.tool(
        "memory_store", content="Lamps are switched off at night", everywhere=True
    )
    ids = [told["structuredContent"]["id"] for told in (here, everywhere)]
    found = other.tool("memory_search", query="lamp")["structuredContent"]["results"]
    assert [hit["id"] for hit in found] == ids[1:]
    assert other.tool("memory_get", id=ids[0])["isError"]
    assert not other.tool("memory_get", id=ids[1])["isError"]
    uri = {"uri": f"meritory://memory/{ids[0]}"}
    assert other.ask(request("resources/read", uri))["error"]["code"] == -32002
    assert "result" in one.ask(request("resources/read", uri))


def test_an_explanation_tells_nothing_of_another_project(pipe: Pipe, daemon: Daemon) -> None:
    started = injected(daemon, "walls-1", "The walls of the shop are blue")
    memory_id, code = started["memories"][0]["id"], started["injection"]
    daemon.request(
        "POST", "/api/hooks/session-start", {"session_key": "walls-2", "project": "other"}
    )
    other = pipe("--project", "other")
    for more in ({"session": "walls-1"}, {"session": "walls-2"}, {"injection": code}):
        told = other.tool("memory_explain", id=memory_id, **more)
        assert told["isError"] and "blue" not in json.dumps(told)
    assert not pipe().tool("memory_explain", id=memory_id, session="walls-1")["isError"]


def test_the_session_is_known_from_the_client_and_its_secrets_stay_there(
    pipe: Pipe, daemon: Daemon
) -> None:
    started = injected(daemon, "claude-session-1", "Tests of the shop run with pytest")
    secret = "hunter2-hunter2-hunter2"
    server = pipe(CLAUDE_CODE_SESSION_ID="claude-session-1", CLAUDE_PRIVATE_TOKEN=secret)
    told = server.tool("memory_explain", id=started["memories"][0]["handle"])
    assert told["structuredContent"]["session"] == "claude-session-1"
    server.tool("memory_store", content="The client keeps a token of its own")
    code, out, err = server.end()
    assert (code, err) == (0, b"")
    kept = b"".join(path.read_bytes() for path in daemon.home.rglob("*") if path.is_file())
    assert b"claude-session-1" in kept
    assert secret.encode() not in kept + out


def test_the_project_is_the_repository_the_client_works_in(pipe: Pipe, tmp_path: Path) -> None:
    inner = tmp_path / "bakery" / "src"
    inner.mkdir(parents=True)
    (tmp_path / "bakery" / ".git").mkdir()
    server = pipe("--harness", "claude-code", CLAUDE_PROJECT_DIR=str(inner))
    stored = server.tool("memory_store", content="Bread is baked at four")["structuredContent"]
    assert stored["memory"]["project"] == "bakery"


def test_the_command_line_takes_the_short_way(daemon: Daemon) -> None:
    hello = request("initialize", {"protocolVersion": "2025-06-18"})
    code = (
        "import sys; sys.argv = ['meritory', 'mcp', '--home', sys.argv[1]]\n"
        "from meritory.cli import main\n"
        "try:\n    main()\nfinally:\n    assert 'click' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, str(daemon.home)],
        input=json.dumps(hello).encode(),
        capture_output=True,
        env=environment(),
        timeout=WAIT_S,
        check=True,
    )
    assert json.loads(done.stdout)["result"]["serverInfo"]["name"] == "meritory"
    assert done.stderr == b""


# -- the end, and what comes before it --------------------------------------------------------


def test_a_cancelled_request_is_not_answered(pipe: Pipe, daemon: Daemon) -> None:
    server = pipe()
    server.tool("memory_search", query="warm")
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        server.send(
            called("memory_search", "gone", query="a"), called("memory_search", 1, query="b")
        )
        time.sleep(0.1)
        for number in ("gone", "1"):
            note = {"method": "notifications/cancelled", "params": {"requestId": number}}
            server.send({"jsonrpc": "2.0", **note})
        # Nobody waits for a daemon that hangs but those who ask something of it.
        assert server.ask(request("ping", number="p"))["id"] == "p"
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    assert server.receive()["id"] == 1
    assert server.end() == (0, b"", b"")


def test_the_last_answers_are_out_before_it_ends(pipe: Pipe) -> None:
    server = pipe()
    server.send(*(called("memory_search", n, query="shop") for n in range(5)))
    code, out, err = server.end()
    assert (code, err) == (0, b"")
    assert sorted(json.loads(line)["id"] for line in out.splitlines()) == list(range(5))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_told_to_whatever_is_under_way(
    pipe: Pipe, daemon: Daemon, number: signal.Signals
) -> None:
    server = pipe()
    server.tool("memory_search", query="warm")
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        server.send(called("memory_search", query="a"))
        time.sleep(0.1)
        server.process.send_signal(number)
        assert server.process.wait(WAIT_S) == 0
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    assert server.end() == (0, b"", b"")


def test_a_client_that_reads_no_more_is_no_reason_to_stay(pipe: Pipe) -> None:
    server = pipe()
    server.ask(request("ping"))
    assert server.process.stdout is not None
    server.process.stdout.close()
    server.send(request("ping"))
    assert server.process.wait(WAIT_S) == 0


def test_too_much_at_once_is_refused_singly(pipe: Pipe, daemon: Daemon) -> None:
    server = pipe()
    server.tool("memory_search", query="warm")
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        server.send(*(called("memory_search", n, query="x") for n in range(70)))
        refused = [server.receive() for _ in range(6)]
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    assert [one["error"]["code"] for one in refused] == [-32603] * 6
    answered = {server.receive()["id"] for _ in range(64)}
    assert len(answered | {one["id"] for one in refused}) == 70


def test_a_daemon_that_is_down_is_started_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.environ", environment())
    home = prepared(tmp_path / "home")
    with Piped(home) as server:
        # Ready before there is any daemon; that one is on its way then.
        server.shake_hands()
        server.ask(request("tools/list"))
        stored = server.tool("memory_store", content="The owl is called Minerva", everywhere=True)
        first = client.find(home)
        assert first is not None
        os.kill(first.pid, signal.SIGKILL)
        found = server.tool("memory_get", id=stored["structuredContent"]["id"])
        assert found["structuredContent"]["memory"]["content"] == "| The owl is called Minerva"
        second = client.find(home)
        assert second is not None
        assert second.pid != first.pid
        assert server.end() == (0, b"", b"")
    # What was started for one client stays for the others.
    assert client.stop(home) == second.pid


def test_a_daemon_that_cannot_be_started_is_an_error_in_time(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("not a folder")
    began = time.monotonic()
    with Piped(place) as server:
        server.shake_hands()
        told = server.tool("memory_search", query="x")
        assert told["isError"]
        assert "Continue without it" in told["content"][0]["text"]
        # Clients list before they do anything else: they see none, and do not wait.
        assert server.ask(request("resources/list"))["result"]["resources"] == []
        read = server.ask(request("resources/read", {"uri": "meritory://memory/01h"}))
        assert read["error"]["code"] == -32603
        assert server.ask(request("ping"))["result"] == {}
        assert server.end() == (0, b"", b"")
    # Far from a measurement: it says only that nobody waited for a daemon each time.
    assert time.monotonic() - began < 2 * WAIT_S


@pytest.mark.parametrize(
    "argv",
    [["--unheard-of", "x"], ["--home"], ["serve"], ["--user", ""], ["--project=" + "x" * 300]],
)
def test_wrong_use_is_told_on_stderr(argv: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert "usage: meritory mcp" in err
