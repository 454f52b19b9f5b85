"""The endpoint over HTTP: its eras, its headers, its statuses, and the door in front of it."""

from __future__ import annotations

import base64
import http.client
from typing import Any

import pytest
from mcp_kit import ENVELOPE, PROJECT, STATELESS, called, mirrored, post, request, stateless

from meritory.api.client import Daemon
from meritory.mcp.protocol import VERSION_KEY, VERSIONS
from meritory.server.connection import BODY_LIMIT_BYTES

SEARCH = stateless("tools/call", {"name": "memory_search", "arguments": {"query": "x"}})


def test_a_stateless_request_is_answered_by_itself(daemon: Daemon) -> None:
    reply = post(daemon, SEARCH, mirrored(SEARCH))
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    assert reply.json["result"]["resultType"] == "complete"
    assert "mcp-session-id" not in reply.headers
    discover = stateless("server/discover")
    told = post(daemon, discover, mirrored(discover)).json["result"]
    assert told["supportedVersions"] == list(VERSIONS)


def test_names_that_headers_cannot_hold_are_encoded(daemon: Daemon) -> None:
    for uri in ("meritory://session/ü", "=?base64?x?="):
        read = stateless("resources/read", {"uri": uri})
        encoded = f"=?base64?{base64.b64encode(uri.encode()).decode()}?="
        right = post(daemon, read, mirrored(read, mcp_name=encoded))
        assert (right.status, right.json["error"]["code"]) == (400, -32602)
        for broken in ("=?base64?!!!?=", "=?base64?/w==?=", "=?base64?ZnJvZw==?="):
            wrong = post(daemon, read, mirrored(read, mcp_name=broken))
            assert wrong.json["error"]["code"] == -32020


@pytest.mark.parametrize(
    "changed",
    [
        {"mcp_protocol_version": None},
        {"mcp_protocol_version": "2025-11-25"},
        {"mcp_protocol_version": "2031-01-01"},
        {"mcp_method": None},
        {"mcp_method": "tools/list"},
        {"mcp_method": "TOOLS/CALL"},
        {"mcp_name": None},
        {"mcp_name": "memory_get"},
        {"mcp_name": "memory_search, memory_get"},
    ],
)
def test_headers_say_what_the_body_says(daemon: Daemon, changed: dict[str, str | None]) -> None:
    reply = post(daemon, SEARCH, mirrored(SEARCH, **changed))
    assert (reply.status, reply.json["id"]) == (400, 1)
    assert reply.json["error"]["code"] == -32020


def test_a_header_that_is_given_twice_is_refused(daemon: Daemon) -> None:
    headers = {**mirrored(SEARCH), "Mcp-Method": "tools/list"}
    assert post(daemon, SEARCH, headers).json["error"]["code"] == -32020


@pytest.mark.parametrize(
    ("message", "headers", "status", "code"),
    [
        (stateless("no/such"), mirrored(stateless("no/such")), 404, -32601),
        (stateless("ping"), mirrored(stateless("ping")), 404, -32601),
        (request("ping"), {"mcp-protocol-version": STATELESS, "mcp-method": "ping"}, 400, -32602),
        (request("ping"), {"mcp-protocol-version": "2031-01-01"}, 400, -32022),
        (request("no/such"), {"mcp-protocol-version": "2025-06-18"}, 200, -32601),
        (request("no/such"), {}, 200, -32601),
        (called("nobody"), {}, 200, -32602),
        (b"{", {}, 400, -32700),
        (b"\xff", {}, 400, -32700),
        (b"[" * 100_000, {}, 400, -32700),
        (b"{}", {}, 400, -32600),
        (b"[]", {}, 400, -32600),
        (b"5", {}, 400, -32600),
        ([request("ping")], {"mcp-protocol-version": "2025-06-18"}, 400, -32600),
        ([SEARCH], {"mcp-protocol-version": STATELESS}, 400, -32600),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_wrong_has_a_status_and_a_code(
    daemon: Daemon, message: Any, headers: dict[str, str], status: int, code: int
) -> None:
    reply = post(daemon, message, headers)
    assert (reply.status, reply.json["error"]["code"]) == (status, code)
    assert reply.headers["content-type"] == "application/json"


def test_a_version_from_the_future_is_told_what_there_is(daemon: Daemon) -> None:
    future = request("server/discover", {"_meta": {**ENVELOPE, VERSION_KEY: "2031-01-01"}})
    reply = post(daemon, future, mirrored(future))
    assert reply.status == 400
    assert reply.json["error"]["data"] == {"supported": list(VERSIONS), "requested": "2031-01-01"}


def test_notifications_are_taken_note_of(daemon: Daemon) -> None:
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    for headers in ({}, {"mcp-protocol-version": STATELESS}):
        reply = post(daemon, note, headers)
        assert (reply.status, reply.content) == (202, b"")


def test_the_handshake_needs_no_session(daemon: Daemon) -> None:
    hello = request("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}})
    reply = post(daemon, hello)
    assert reply.json["result"]["protocolVersion"] == "2025-06-18"
    assert "mcp-session-id" not in reply.headers
    found = post(daemon, [request("ping", number=1), called("memory_get", 2)])
    assert [one["id"] for one in found.json] == [1, 2]


def test_the_door_is_the_same_as_everywhere(daemon: Daemon) -> None:
    assert post(daemon, b"{}", {"content-type": "text/plain"}).status == 415
    assert post(daemon, b"{}", {"origin": "http://evil.example"}).status == 403
    assert post(daemon, b"{}", query="?token=x").status == 400
    assert post(daemon, b"{}", query="?unheard_of=1").status == 422
    assert post(daemon, b" " * (BODY_LIMIT_BYTES + 1)).status == 413
    for method in ("GET", "DELETE"):
        reply = post(daemon, b"", method=method)
        assert (reply.status, reply.headers["allow"]) == (405, "POST")
    address = daemon.url.removeprefix("http://")
    token = (daemon.home / "token").read_text().strip()
    own = {"content-type": "application/json", "authorization": f"Bearer {token}"}
    for changed, status in (
        ({}, 200),
        ({"origin": daemon.url}, 200),
        ({"authorization": "Bearer x"}, 401),
        ({"host": "evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
    ):
        connection = http.client.HTTPConnection(address, timeout=10)
        body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
        connection.request("POST", "/mcp", body, {**own, **changed})
        assert connection.getresponse().status == status, changed
        connection.close()


def test_the_address_says_whose_memory_it_is(daemon: Daemon) -> None:
    stored = post(
        daemon,
        called("memory_store", content="Anna drinks tea"),
        query=f"?user=anna&project={PROJECT}&harness=other",
    ).json["result"]["structuredContent"]
    assert stored["memory"]["project"] == PROJECT
    ask = called("memory_get", id=stored["id"])
    assert post(daemon, ask, query="?user=bert").json["result"]["isError"]
    assert not post(daemon, ask, query="?user=anna").json["result"]["isError"]
