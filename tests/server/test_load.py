"""More than the daemon takes on: refused at once and in words, and nothing begun is lost."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import resource
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import Any

import msgspec
import pytest
from web_types import Processes, Reply, Serve, Served, read_all, wait_for

from meritory.domain.errors import TooLarge
from meritory.hook.main import BUDGET_S, GUARD_BUDGET_S
from meritory.server import app as application
from meritory.server import connection as server_connection
from meritory.server import serve as serving
from meritory.server.app import WORKER_COUNT, RateLimit, Workers
from meritory.server.connection import CONNECTION_LIMIT, Body
from meritory.server.problems import Overloaded, TooMany
from meritory.server.table import Call, Route


class Blocked:
    """A route that does not answer until it is let go, and then stores what it was told to."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.release = threading.Event()

    def __call__(self, call: Call) -> dict[str, Any]:
        self.entered.release()
        assert self.release.wait(60)
        return {"id": call.memory().remember("written at the last moment").id}

    def route(self) -> Route:
        return Route(
            method="POST",
            path="/blocked",
            handler=self,
            access="write",
            reach="scope",
            summary="Waits.",
            reply=dict[str, Any],
        )


@pytest.fixture
def blocked() -> Any:
    made = Blocked()
    yield made
    made.release.set()


def together(server: Served, count: int) -> tuple[ThreadPoolExecutor, list[Future[Reply]]]:
    pool = ThreadPoolExecutor(count)
    return pool, [pool.submit(server.ask, "POST", "/blocked") for _ in range(count)]


def test_more_than_the_limit_is_refused_at_once_and_the_rest_is_done(
    serve: Serve, blocked: Blocked
) -> None:
    server = serve([blocked.route()], in_flight_limit=3)
    pool, running = together(server, 3)
    for _ in range(3):
        assert blocked.entered.acquire(timeout=30)
    for path in ("/api/stats", "/api/memories", "/blocked"):
        method = "POST" if path == "/blocked" else "GET"
        refused = server.ask(method, path)
        assert refused.status == 503
        assert refused.headers["retry-after"] == "1"
        assert refused.json["code"] == "overloaded"
    # Whether it is alive can be asked all the same.
    assert server.ask("GET", "/health").status == 200
    assert not any(future.done() for future in running)
    blocked.release.set()
    assert {future.result(30).status for future in running} == {200}
    pool.shutdown()
    assert server.ask("GET", "/api/stats").status == 200
    assert (
        'meritory_events_total{name="http.503"} 3' in server.ask("GET", "/metrics").content.decode()
    )
    stage = server.ask("GET", "/api/analytics/errors?stage=http").json["results"]
    assert [item["code"] for item in stage] == ["overloaded"] * 3


HEAD = b"POST /api/memories HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
NOTE = json.dumps({"content": "the kettle is in the tea room"}).encode()


@contextlib.contextmanager
def crowded(serve: Serve, blocked: Blocked) -> Iterator[Served]:
    """A daemon that has as much to do as it takes on."""
    server = serve([blocked.route()], in_flight_limit=1)
    pool, (running,) = together(server, 1)
    assert blocked.entered.acquire(timeout=30)
    yield server
    blocked.release.set()
    assert running.result(30).status == 200
    pool.shutdown()


def next_reply(connection: socket.socket) -> tuple[bytes, bytes]:
    """The head and the body of one answer, and nothing behind it."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        piece = connection.recv(1)
        assert piece, head
        head += piece
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    body = b""
    while len(body) < length:
        body += connection.recv(length - len(body))
    return head, body


@pytest.mark.parametrize("tcp", [False, True])
def test_a_refusal_does_not_wait_for_the_body_and_the_connection_goes_on(
    serve: Serve, blocked: Blocked, tcp: bool
) -> None:
    with crowded(serve, blocked) as server:
        sized = HEAD + b"Content-Length: %d\r\n\r\n" % len(NOTE)
        with server.raw(sized, tcp=tcp) as connection:
            head, body = next_reply(connection)
            assert head.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 1\r\n" in head
            assert b"connection: close" not in head
            assert json.loads(body)["code"] == "overloaded"
            # In two pieces, and what looks like a request in it is none.
            connection.sendall(NOTE[:10])
            connection.sendall(NOTE[10:] + b"GET /health HTTP/1.1\r\nHost: localhost:1\r\n\r\n")
            head, _ = next_reply(connection)
            assert b" 403 " in head if tcp else head.startswith(b"HTTP/1.1 200")
            connection.sendall(sized + NOTE + sized + NOTE)
            assert [next_reply(connection)[0][:12] for _ in range(2)] == [b"HTTP/1.1 503"] * 2
    assert server.ask("POST", "/api/memories", NOTE).status == 200
    found = server.ask("GET", "/api/memories?limit=10").json["results"]
    assert sum("kettle" in one["content"] for one in found) == 1


@pytest.mark.parametrize(
    ("sent", "is_closed"),
    [
        (b"GET /api/stats HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", True),
        (b"GET /api/stats HTTP/1.0\r\nHost: x\r\n\r\n", True),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", False),
        (HEAD + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n{}", False),
        (HEAD + b"Content-Length: 100000\r\n\r\n" + b" " * 100_000, False),
    ],
)
def test_every_kind_of_request_is_refused_once(
    serve: Serve, blocked: Blocked, sent: bytes, is_closed: bool
) -> None:
    with crowded(serve, blocked) as server, server.raw(sent) as connection:
        # Whoever asked whether to send gets an answer to that first, or none.
        connection.settimeout(30)
        head = b""
        while b"HTTP/1.1 503 " not in head:
            head = (head if b"100 Continue" not in head else b"") + connection.recv(1)
        rest = next_reply(connection)[0]
        assert b"retry-after: 1\r\n" in rest
        assert (b"connection: close" in rest) == is_closed
        if is_closed:
            assert connection.recv(1) == b""
        else:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert next_reply(connection)[0].startswith(b"HTTP/1.1 200")


def test_nonsense_behind_a_request_under_way_ends_the_connection(
    serve: Serve, blocked: Blocked
) -> None:
    server = serve([blocked.route()])
    ask = b"POST /blocked HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
    with server.raw(ask) as connection:
        assert blocked.entered.acquire(timeout=30)
        connection.sendall(b"\x00\x01 nonsense\r\n\r\n")
        assert next_reply(connection)[0].startswith(b"HTTP/1.1 400 ")
        # What was begun is done all the same.
        blocked.release.set()
        wait_for(lambda: bool(server.ask("GET", "/api/memories").json["results"]), "not stored")
        server.stop()
        wait_for(lambda: server.finished == [True], "it did not end")
    logged = (server.home / "daemon.log").read_text()
    assert "Exception in ASGI application" not in logged


def test_many_refusals_are_counted_but_not_all_written_down(
    serve: Serve, blocked: Blocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "REFUSAL_LOG_EVERY_MS", 60_000.0)
    with crowded(serve, blocked) as server:
        for _ in range(20):
            assert server.ask("GET", "/api/stats").status == 503
        logged = [json.loads(one) for one in (server.home / "daemon.log").read_text().splitlines()]
        told = [line for line in logged if line["event"] == "request.refused"]
        assert [(line["code"], line["count"]) for line in told] == [("overloaded", 1)]
    page = server.ask("GET", "/metrics").content.decode()
    assert 'meritory_events_total{name="http.503"} 20' in page


def test_what_is_under_way_is_finished_before_the_daemon_ends(
    serve: Serve, blocked: Blocked
) -> None:
    server = serve([blocked.route()])
    pool, (running,) = together(server, 1)
    assert blocked.entered.acquire(timeout=30)
    server.stop()
    # It takes nobody in any more while it still works.
    wait_for(lambda: not listens(server), "it still listens")
    assert not running.done()
    assert server.finished == []
    blocked.release.set()
    made = running.result(30)
    pool.shutdown()
    assert made.status == 200
    wait_for(lambda: server.finished == [True], "it did not end")
    again = serve()
    assert again.ask("GET", f"/api/memories/{made.json['id']}").status == 200


def listens(server: Served) -> bool:
    try:
        server.raw(b"").close()
    except OSError:
        return False
    return True


def test_what_hangs_is_not_waited_for_for_ever(
    serve: Serve, blocked: Blocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "GRACE_S", 0.2)
    server = serve([blocked.route()])
    pool, (running,) = together(server, 1)
    assert blocked.entered.acquire(timeout=30)
    server.stop()
    wait_for(lambda: server.finished == [False], "it did not end")
    blocked.release.set()
    # Cut off is as clear an answer as any.
    with contextlib.suppress(OSError, HTTPException):
        assert running.result(30).status >= 500
    pool.shutdown()


def test_an_unknown_error_is_told_without_its_inside(serve: Serve) -> None:
    def handler(call: Call) -> None:
        raise RuntimeError("the secret ingredient")

    route = Route(
        method="GET",
        path="/bug",
        handler=handler,
        access="read",
        reach="scope",
        summary="Fails.",
        reply=Any,
    )
    server = serve([route])
    reply = server.ask("GET", "/bug")
    assert reply.status == 500
    assert reply.json["code"] == "bug"
    assert b"ingredient" not in reply.content
    logged = [json.loads(line) for line in (server.home / "daemon.log").read_text().splitlines()]
    (bug,) = [line for line in logged if line["event"] == "request.bug"]
    assert bug["request_id"] == reply.json["request_id"]
    assert bug["trace"][0] == "RuntimeError"
    assert "ingredient" not in json.dumps(logged)
    assert server.ask("GET", "/api/analytics/errors").json["results"][0]["code"] == "bug"


def test_nothing_of_a_request_is_left_for_the_collector(serve: Serve) -> None:
    server = serve()
    gc.collect()
    gc.disable()
    try:
        for path in ("/api/stats", "/health", "/nowhere"):
            server.ask("GET", path)
        server.ask("POST", "/api/memories", NOTE)

        def left() -> list[object]:
            return [one for one in gc.get_objects() if isinstance(one, Body)]

        wait_for(lambda: not left(), "requests are still there")
    finally:
        gc.enable()


def test_too_many_busy_connections_are_turned_away(
    serve: Serve, blocked: Blocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_connection, "CONNECTION_LIMIT", 3)
    server = serve([blocked.route()])
    kept = [server.raw(b"POST /blocked HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(3)]
    for _ in kept:
        assert blocked.entered.acquire(timeout=30)
    refused = read_all(server.raw(b""))
    assert refused.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1\r\n" in refused
    # It can be read even by who has sent much before.
    large = server.raw(HEAD + b"Content-Length: 50000\r\n\r\n" + b" " * 50_000)
    assert b"too many connections" in read_all(large)
    # Whoever fills one door does not shut the other.
    assert server.ask("GET", "/health", tcp=True).status == 200
    blocked.release.set()
    for one in kept:
        assert one.recv(1_000).startswith(b"HTTP/1.1 200")
        one.close()
    assert server.ask("GET", "/health").status == 200


def test_idle_connections_keep_nobody_out(daemon: Served) -> None:
    idle = [daemon.raw(b"", tcp=True) for _ in range(CONNECTION_LIMIT)]
    try:
        assert daemon.ask("GET", "/health", tcp=True).status == 200
        # The one that was idle longest gave way, and only that one.
        idle[0].settimeout(60)
        assert idle[0].recv(1) == b""
        host = daemon.url.removeprefix("http://")
        idle[-1].sendall(f"GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert idle[-1].recv(1_000).startswith(b"HTTP/1.1 200")
    finally:
        for one in idle:
            one.close()


def test_a_lack_of_file_handles_fills_no_log_and_locks_nobody_out(
    processes: Processes, tmp_path: Path
) -> None:
    served = processes.start(tmp_path / "home")
    resource.prlimit(served.pid, resource.RLIMIT_NOFILE, (64, 64))
    idle = [served.raw(b"", tcp=True) for _ in range(80)]
    try:
        for _ in range(20):
            assert served.ask("GET", "/health").status == 200
        log = (served.home / "daemon.log").read_text().splitlines()
        lines = [json.loads(line) for line in log if "handles" in line or "accept" in line]
        assert len(lines) <= 1
        assert [line["event"] for line in lines] in ([], ["daemon.no_file_handles"])
    finally:
        for one in idle:
            one.close()


def test_a_rate_limit_lets_bursts_through_and_fills_up_again() -> None:
    now = [0.0]
    limit = RateLimit(10, lambda: now[0])
    for _ in range(10):
        limit.take()
    with pytest.raises(TooMany):
        limit.take()
    now[0] = 99.0
    with pytest.raises(TooMany):
        limit.take()
    now[0] = 200.0
    limit.take()
    limit.take()
    with pytest.raises(TooMany):
        limit.take()
    now[0] = 1e9
    for _ in range(10):
        limit.take()
    with pytest.raises(TooMany):
        limit.take()
    for _ in range(1_000):
        RateLimit(0, lambda: 0.0).take()


def test_what_nobody_waits_for_any_more_is_done_and_makes_room() -> None:
    async def scenario() -> None:
        workers = Workers(2, lambda: 0.0)
        entered, release, done = threading.Event(), threading.Event(), threading.Event()

        def slow() -> None:
            entered.set()
            assert release.wait(30)
            done.set()

        left = asyncio.create_task(workers.run(slow))
        await asyncio.to_thread(entered.wait, 30)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        assert workers.in_flight == 1
        with pytest.raises(ZeroDivisionError):
            await workers.run(lambda: 1 // 0)
        release.set()
        assert await asyncio.to_thread(done.wait, 30)
        while workers.in_flight:
            await asyncio.sleep(0.001)
        assert await asyncio.gather(*(workers.run(lambda: 7) for _ in range(2))) == [7, 7]
        workers.close()

    asyncio.run(scenario())


def test_the_budgets_of_the_daemon_are_those_of_the_hook() -> None:
    prompt_ms, guard_ms = (BUDGET_S - 0.1) * 1_000, GUARD_BUDGET_S * 1_000
    assert {
        "/api/hooks/session-start": prompt_ms,
        "/api/hooks/user-prompt-submit": prompt_ms,
        "/api/hooks/pre-tool": guard_ms,
    } == application.BUDGETS_MS
    assert set(application.BUDGETS_MS) < {route.path for route in application.TABLE}


def test_work_whose_caller_has_given_up_is_not_begun() -> None:
    async def scenario() -> None:
        now, begun = [0.0], []
        workers = Workers(20, lambda: now[0])
        release = threading.Event()
        busy = [asyncio.create_task(workers.run(release.wait)) for _ in range(WORKER_COUNT)]
        late = asyncio.create_task(workers.run(lambda: begun.append("late"), None, "/a", 1_900.0))
        early = asyncio.create_task(workers.run(lambda: begun.append("early"), None, "/a", 9_000.0))
        end = asyncio.create_task(workers.run(lambda: begun.append("end")))
        await asyncio.sleep(0)
        now[0] = 2_000.0
        # The oldest request waits for two seconds already: so would a new one.
        with pytest.raises(Overloaded, match="about 2000 ms"):
            workers.require(budget_ms=1_900.0)
        workers.require()
        release.set()
        await asyncio.gather(*busy, early, end)
        with pytest.raises(Overloaded, match="stopped waiting"):
            await late
        assert sorted(begun) == ["early", "end"]
        assert workers.wait_ms() == 0.0
        workers.close()

    asyncio.run(scenario())


def test_the_wait_follows_from_what_requests_of_a_route_usually_take() -> None:
    async def scenario() -> None:
        now = [0.0]
        workers = Workers(64, lambda: now[0])

        def slow() -> None:
            now[0] += 400.0

        def endless() -> None:
            now[0] += 1e6

        for _ in range(3):
            await workers.run(slow, None, "/slow")
        await workers.run(endless, None, "/endless")
        release = threading.Event()
        busy = [asyncio.create_task(workers.run(release.wait)) for _ in range(WORKER_COUNT)]
        waiting = [asyncio.create_task(workers.run(int, None, "/slow")) for _ in range(16)]
        await asyncio.sleep(0)
        assert workers.wait_ms() == pytest.approx(16 * 400 / WORKER_COUNT)
        workers.require(budget_ms=1_900.0)
        waiting += [asyncio.create_task(workers.run(int, None, "/slow")) for _ in range(8)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="about 2400 ms"):
            workers.require(budget_ms=1_900.0)
        # What takes minutes blocks one worker, not all of them.
        waiting.append(asyncio.create_task(workers.run(int, None, "/endless")))
        await asyncio.sleep(0)
        assert workers.wait_ms() < 2_400 + 1_000
        release.set()
        await asyncio.gather(*busy, *waiting)
        workers.close()

    asyncio.run(scenario())


def test_a_hook_is_refused_at_once_when_the_wait_would_be_too_long(
    serve: Serve, blocked: Blocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Workers] = []

    def make(*limits: Any) -> Workers:
        made.append(Workers(*limits))
        return made[0]

    monkeypatch.setattr(application, "Workers", make)
    server = serve([blocked.route()])
    prompt = {"session_key": "s", "prompt": "where is the kettle?"}
    pool, running = together(server, WORKER_COUNT + 1)
    for _ in range(WORKER_COUNT):
        assert blocked.entered.acquire(timeout=30)
    wait_for(lambda: made[0].in_flight == WORKER_COUNT + 1, "none waits")
    monkeypatch.setitem(application.BUDGETS_MS, "/api/hooks/user-prompt-submit", 0.0)
    for tcp in (False, True):
        headers = server.bearer if tcp else {}
        refused = server.ask(
            "POST", "/api/hooks/user-prompt-submit", prompt, tcp=tcp, headers=headers
        )
        assert (refused.status, refused.json["code"]) == (503, "overloaded")
    blocked.release.set()
    assert {future.result(30).status for future in running} == {200}
    pool.shutdown()


def test_the_rate_limit_answers_429_but_never_hides_health(serve: Serve) -> None:
    server = serve(rate_limit_per_s=1)
    statuses = [server.ask("GET", "/api/analytics/latency").status for _ in range(4)]
    assert statuses[0] == 200
    assert 429 in statuses
    assert server.ask("GET", "/health").status == 200


def test_a_route_without_a_class_cannot_be_written() -> None:
    whole: dict[str, Any] = {
        "method": "GET",
        "path": "/x",
        "handler": lambda call: None,
        "access": "read",
        "reach": "scope",
        "summary": "X.",
        "reply": None,
    }
    Route(**whole)
    for needed in ("access", "reach"):
        with pytest.raises(TypeError, match=needed):
            Route(**{name: value for name, value in whole.items() if name != needed})
    for access in ("write", "hooks"):
        with pytest.raises(ValueError, match="must not change"):
            Route(**{**whole, "access": access})
    with pytest.raises(ValueError, match="must not have a body"):
        Route(**whole, body=msgspec.Struct)


def test_a_body_is_read_in_pieces_up_to_the_limit() -> None:
    async def scenario() -> None:
        pieces = [b"a" * 1_000_000] * 3
        messages = iter(
            {"type": "http.request", "body": piece, "more_body": True} for piece in pieces
        )

        async def receive() -> dict[str, Any]:
            return next(messages)

        with pytest.raises(TooLarge):
            await Body(receive, None).read()
        with pytest.raises(TooLarge):
            await Body(receive, 3_000_000).read()
        assert await Body(receive, 0).read() == b""

    asyncio.run(scenario())
