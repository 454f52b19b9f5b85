"""Bad input over HTTP: a clear problem, nothing stored, and the next request works."""

from __future__ import annotations

import json
from typing import Any

import pytest
from web_types import Reply, Serve, Served, read_all

from meritory.domain.memory import CONTENT_LIMIT_CHARS
from meritory.server import connection
from meritory.server.connection import BODY_LIMIT_BYTES

MEMORIES = "/api/memories"
PROBLEM = {"type", "title", "status", "detail", "code", "request_id"}


def assert_problem(reply: Reply, status: int) -> None:
    """The reply is a problem of this status, in the agreed shape, without internals."""
    assert reply.status == status, reply.content[:300]
    assert reply.headers["content-type"] == "application/problem+json"
    told = reply.json
    assert set(told) - {"hint"} == PROBLEM
    assert told["status"] == status
    assert told["type"] == f"urn:meritory:problem:{told['code']}"
    assert told["request_id"] == reply.headers["x-request-id"]
    assert told["detail"]
    assert b"Traceback" not in reply.content
    assert b".py" not in reply.content


@pytest.fixture(autouse=True)
def nothing_is_stored(daemon: Served) -> Any:
    """Whatever a test sends, no memory comes of it and the daemon goes on."""
    yield
    assert daemon.ask("GET", "/api/stats").json["figures"]["live"] == 0
    assert daemon.ask("GET", "/health", tcp=True).status == 200


@pytest.mark.parametrize(
    "body",
    [
        b'{"content": ',
        b"content=x",
        b"[" * 10_000 + b"]" * 10_000,
        b'{"content": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
        b'{"content": "a", "content": "b"}',
        b'{"content": "a", "source": {"turn": "1", "turn": "2"}}',
        b'{"content": "a", "importance": NaN}',
        b'{"content": "a", "importance": Infinity}',
        b'{"content": "a", "importance": 1e999}',
        b'{"content": "a", "importance": -1e999}',
        b'{"content": "a", "importance": 1' + b"0" * 5_000 + b"}",
        b'{"content": "a", "importance": 18446744073709551616}',
        b'{"content": "a\x00b"}',
        b'{"content": "a\nb"}',
        b'{"content": "a"} {}',
        b"'content'",
        b"   ",
    ],
    ids=lambda body: str(body[:30]),
)
def test_what_is_not_json_is_a_bad_request(daemon: Served, body: bytes) -> None:
    assert_problem(daemon.ask("POST", MEMORIES, body), 400)


@pytest.mark.parametrize(
    "body",
    [
        b"\xef\xbb\xbf" + b'{"content": "a"}',
        b'{"content": "\xff\xfe"}',
        b'{"content": "a\\u0000b"}',
        b'{"content": "a\\ud800b"}',
        b'{"content": "fine", "tags": ["\\udfff"]}',
        b'{"content": "fine", "project": "a\\u0000b"}',
        b'{"content": ""}',
        b'{"content": "   "}',
        b'{"content": "\\u0001\\u0002"}',
        b'{"content": 5}',
        b'{"content": null}',
        b"{}",
        b"[]",
        b'"text"',
        b"null",
        b'{"content": "a", "importance": 2}',
        b'{"content": "a", "importance": -1}',
        b'{"content": "a", "importance": "high"}',
        b'{"content": "a", "importance": true}',
        b'{"content": "a", "kind": "facts"}',
        b'{"content": "a", "pinned": "yes"}',
        b'{"content": "a", "unheard_of": 1}',
        b'{"content": "a", "created_at": "0000-01-01"}',
        b'{"content": "a", "created_at": "soon"}',
        b'{"content": "a", "created_at": 5}',
        b'{"content": "a", "user": ""}',
        b'{"content": "a", "agent": ["x"]}',
        b'{"content": "a", "memories": []}',
        b'{"content": "a", "tags": ' + json.dumps([str(n) for n in range(1_000)]).encode() + b"}",
        b'{"content": "a", "origin": "web", "provenance": "user_stated"}',
    ],
    ids=lambda body: str(body[:50]),
)
def test_what_does_not_fit_is_refused(daemon: Served, body: bytes) -> None:
    assert_problem(daemon.ask("POST", MEMORIES, body), 422)


def test_limits_are_named(daemon: Served) -> None:
    long = daemon.ask("POST", MEMORIES, {"content": "x" * (CONTENT_LIMIT_CHARS + 1)})
    assert_problem(long, long.status)
    assert long.status in (413, 422)
    assert f"{CONTENT_LIMIT_CHARS}" in long.json["detail"].replace(",", "")
    many = daemon.ask("POST", MEMORIES, {"memories": [{"content": f"c {n}"} for n in range(201)]})
    assert_problem(many, 413)
    assert "200" in many.json["detail"]


@pytest.mark.parametrize("tcp", [False, True])
def test_a_body_over_the_limit_is_refused_before_and_while_it_comes(
    daemon: Served, tcp: bool
) -> None:
    body = b'{"content": "' + b"x" * BODY_LIMIT_BYTES + b'"}'
    declared = daemon.ask("POST", MEMORIES, body, tcp=tcp, headers=daemon.bearer)
    assert_problem(declared, 413)
    assert str(BODY_LIMIT_BYTES) in declared.json["detail"]
    head = f"POST {MEMORIES} HTTP/1.1\r\nHost: localhost:{daemon.address[1]}\r\n"
    head += f"Authorization: Bearer {daemon.token}\r\nContent-Type: application/json\r\n"
    chunk = b"%x\r\n%s\r\n" % (len(body), body)
    sent = head.encode() + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + chunk
    assert b" 413 " in read_all(daemon.raw(sent + b"0\r\n\r\n", tcp=tcp)).split(b"\r\n")[0]


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "json"]
)
def test_a_body_must_be_declared_as_json(daemon: Served, kind: str) -> None:
    headers = {"content-type": kind}
    assert_problem(daemon.ask("POST", MEMORIES, b'{"content": "a"}', headers=headers), 415)
    body = b'{"confirm": "x"}'
    assert daemon.ask("POST", "/api/memories/x/purge", body, headers=headers).status == 415


def test_json_in_another_encoding_is_refused(daemon: Served) -> None:
    headers = {"content-type": "application/json; charset=utf-16"}
    reply = daemon.ask("POST", MEMORIES, '{"content": "a"}'.encode("utf-16"), headers=headers)
    assert_problem(reply, 400)


@pytest.mark.parametrize(
    "memory_id", ["0000nobody", "x", "%00", "%2e%2e", "a" * 5_000, "%27%20or%201=1", "%F0%9F%92%A9"]
)
def test_absurd_and_unknown_ids_are_not_found_alike(daemon: Served, memory_id: str) -> None:
    for method, tail in (("GET", ""), ("DELETE", ""), ("GET", "/history"), ("POST", "/restore")):
        reply = daemon.ask(method, f"{MEMORIES}/{memory_id}{tail}")
        assert reply.status in (404, 422), (method, tail, reply.content)
        assert_problem(reply, reply.status)


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("limit=0", 422),
        ("limit=1001", 422),
        ("limit=many", 422),
        ("limit=1e9", 422),
        ("limit=5&limit=6", 400),
        ("unheard_of=1", 422),
        ("kind=facts", 422),
        ("user=%00", 422),
        ("user=%ff", 422),
        ("project=", 422),
        ("everywhere=perhaps", 422),
        ("&".join(f"a{n}=1" for n in range(60)), 400),
    ],
)
def test_query_strings_are_checked(daemon: Served, query: str, status: int) -> None:
    reply = daemon.ask("GET", f"{MEMORIES}?{query}")
    assert_problem(reply, status)


@pytest.mark.parametrize(
    "query",
    ['"', "*", "NEAR(a b)", "content:x", "-a", "^a", "a OR", "'; drop table memories;--", "(" * 99],
)
def test_search_syntax_is_plain_words(daemon: Served, query: str) -> None:
    reply = daemon.ask("POST", f"{MEMORIES}/search", {"query": query})
    assert (reply.status, reply.json["results"]) == (200, [])


def test_searches_for_nothing_at_all_are_answered_or_refused(daemon: Served) -> None:
    for query in ("", " ", "\x00", "a\x00b", "word " * 10_000):
        reply = daemon.ask("POST", f"{MEMORIES}/search", {"query": query})
        assert reply.status in (200, 413, 422), (query[:20], reply.content)


def test_a_purge_asks_again(daemon: Served) -> None:
    made = daemon.ask("POST", MEMORIES, {"content": "my diary"}).json["id"]
    place = f"{MEMORIES}/{made}/purge"
    assert_problem(daemon.ask("POST", place), 400)
    assert_problem(daemon.ask("POST", place, {}), 422)
    assert_problem(daemon.ask("POST", place, {"confirm": made[:12]}), 422)
    assert daemon.ask("GET", f"{MEMORIES}/{made}").status == 200
    assert daemon.ask("POST", place, {"confirm": made}).json == {"id": made, "purged": True}
    assert_problem(daemon.ask("GET", f"{MEMORIES}/{made}"), 404)


@pytest.mark.parametrize("tcp", [False, True])
@pytest.mark.parametrize(
    "head",
    [
        b"GET /health HTTP/1.1\r\nX: " + b"a" * 65_536 + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\n" + b"X: y\r\n" * 10_000 + b"\r\n",
        b"GET /" + b"a" * 65_536 + b" HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nX: " + b"a" * 40_000,
    ],
    ids=["long", "many", "address", "unfinished"],
)
def test_a_head_over_the_limit_is_refused(daemon: Served, tcp: bool, head: bytes) -> None:
    reply = read_all(daemon.raw(head, tcp=tcp))
    assert reply.startswith(b"HTTP/1.1 431 ")
    assert b"application/problem+json" in reply


@pytest.mark.parametrize("tcp", [False, True])
def test_what_follows_a_body_is_bounded_like_a_head(daemon: Served, tcp: bool) -> None:
    head = f"POST {MEMORIES} HTTP/1.1\r\nHost: localhost:{daemon.address[1]}\r\n".encode()
    head += b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    reply = read_all(daemon.raw(head + b"X: yyyyyyyyyy\r\n" * 5_000, tcp=tcp))
    assert reply.startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 32,
        b"GET /health HTTP/9.9\r\n\r\n",
        b"POST /api/memories HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"POST /api/memories HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"POST /api/memories HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0",
        b"POST /api/memories HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"POST /api/memories HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        b"POST /api/memories HTTP/1.1\r\nContent-Length : 5\r\n\r\nabcde",
    ],
    ids=[
        *("words", "tls", "version", "negative", "two lengths", "two ends", "unknown coding"),
        *("huge chunk", "space before the colon"),
    ],
)
def test_what_is_not_http_is_told_so(daemon: Served, sent: bytes) -> None:
    reply = read_all(daemon.raw(sent))
    assert reply.startswith(b"HTTP/1.1 400 ")
    assert b"urn:meritory:problem:bad_request" in reply


def test_an_upgrade_to_websocket_is_not_taken(daemon: Served) -> None:
    headers = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
    assert daemon.ask("GET", "/health", headers=headers).status == 200


def test_slow_heads_and_bodies_are_not_waited_for(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_TIMEOUT_S", 0.2)
    monkeypatch.setattr(connection, "BODY_TIMEOUT_S", 0.2)
    monkeypatch.setattr(connection, "DRAIN_TIMEOUT_S", 0.1)
    server = serve()
    assert read_all(server.raw(b"GET /hea")) == b""
    assert read_all(server.raw(b"")) == b""
    head = b"POST /api/memories HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    for begun in (b"Content-Length: 100\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"):
        reply = read_all(server.raw(head + begun))
        assert reply.startswith(b"HTTP/1.1 408 "), reply
        assert b"connection: close" in reply
    assert server.ask("GET", "/health").status == 200
