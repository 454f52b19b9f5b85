"""The ASGI application: authenticate, limit, decode, run, encode and log every request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute
from starlette.routing import Router

from meritory.domain.errors import MeritoryError
from meritory.engine.access import TokenClaim
from meritory.server.auth import ANYONE, Grant, Guard, Visit
from meritory.server.connection import DOOR_KEY
from meritory.server.dashboard import PAGE_HEADERS, PAGES, refusal_page
from meritory.server.limits import Body, RateLimit, Receive, Workers
from meritory.server.logs import Log
from meritory.server.payload import decode_body, decode_query
from meritory.server.problems import (
    MEDIA_TYPE,
    BadRequest,
    Bug,
    NoRoute,
    NotJson,
    Overloaded,
    TooMany,
    WrongMethod,
    as_problem,
    extra_headers,
    raw_reply,
)
from meritory.server.routes import (
    access,
    dashboard,
    feedback,
    jobs,
    library,
    mcp,
    memories,
    observe,
    predictor,
    quality,
    rules,
    sessions,
)
from meritory.server.state import ServerState
from meritory.server.table import Call, Page, Route, TextReply

# A new route is one row in the file of its noun; a new noun is one file and one name here.
TABLE: tuple[Route, ...] = (
    *observe.ROUTES,
    *memories.ROUTES,
    *sessions.ROUTES,
    *rules.ROUTES,
    *feedback.ROUTES,
    *predictor.ROUTES,
    *jobs.ROUTES,
    *access.ROUTES,
    *quality.ROUTES,
    *library.ROUTES,
    *mcp.ROUTES,
    *dashboard.ROUTES,
)

JSON = "application/json"
_SAFE_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_READING = frozenset({"GET", "HEAD"})
_STATE_KEY = "meritory.request"
REFUSAL_LOG_EVERY_MS = 1_000.0
Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@dataclass(slots=True)
class _RequestState:
    """The state of one request."""

    id: str
    body: Body
    started_ms: float
    # The path as the table writes it: counters must not contain text of callers.
    path: str = ""
    grant: Grant = ANYONE


class App:
    """The route table as an ASGI application."""

    def __init__(
        self, server: ServerState, guard: Guard, log: Log, table: Sequence[Route] = TABLE
    ) -> None:
        limits = server.settings.daemon
        self._server = server
        self._guard = guard
        self._log = log
        self._table = table
        self._rate = RateLimit(limits.rate_limit_per_s, server.world.monotonic_ms)
        self.workers = Workers(limits.in_flight_limit)
        # msgspec builds decoders on first use, which is not thread-safe.
        for kind in {kind for route in table for kind in (route.query, route.body) if kind}:
            msgspec.json.Decoder(kind)
        self._public = {route.path for route in table if route.access in ("health", "login")}
        self._unbounded = {r.path.encode("ascii") for r in table if r.access == "health"}
        self._refused_count = 0
        self._next_log_ms = 0.0
        self._router = Router(
            [
                StarletteRoute(route.path, partial(self._answer, route), methods=[route.method])
                for route in table
            ],
            redirect_slashes=False,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Turn every outcome into a reply."""
        if scope["type"] != "http":
            return
        world = self._server.world
        state = _RequestState(
            world.new_id(), Body(receive, _declared_bytes(scope)), world.monotonic_ms()
        )
        scope[_STATE_KEY] = state
        # With an application in scope the router raises instead of replying itself.
        scope["app"] = self
        error: MeritoryError | None = None
        try:
            state.grant = await self._authenticate(scope)
            await self._router(scope, receive, partial(self._send, send, state))
        except MeritoryError as refused:
            error = refused
        except HTTPException as routed:
            error = self._routing_error(routed, scope)
        except Exception as bug:
            self._log.error("http", "request.bug", bug, request_id=state.id, path=state.path)
            error = Bug("internal error", hint="see the daemon's log")
        if error is not None:
            if error.status >= 500:
                self._server.observer.failed("http", error, state.id)
            await self._refuse(error, state, scope, receive, send)
        # Break the reference cycle, or every request would wait for the garbage collector.
        del scope[_STATE_KEY]

    async def _authenticate(self, scope: Scope) -> Grant:
        """Return the caller's grant; look up the token that a caller claims to have."""
        caller = self._guard.check(
            Visit(
                scope[DOOR_KEY],
                scope["headers"],
                scope["query_string"],
                scope["path"] in self._public,
                scope["method"] in _READING,
            )
        )
        if not isinstance(caller, TokenClaim):
            return caller
        token = await self._server.tokens.redeem(caller)
        if token is None:
            raise self._guard.wrong_secret()
        return Grant.of(token)

    def refusal(self, address: bytes, is_kept: bool) -> bytes | None:
        """Return the reply to a request beyond the limits, None if it is within; cheaply."""
        if address.partition(b"?")[0] in self._unbounded:
            return None
        try:
            self._rate.require()
            self.workers.require()
        except (TooMany, Overloaded) as error:
            world, observer = self._server.world, self._server.observer
            request_id, now_ms = world.new_id(), world.monotonic_ms()
            observer.count(f"http.{error.status}")
            if error.status >= 500:
                observer.failed("http", error, request_id)
            self._refused_count += 1
            if now_ms >= self._next_log_ms:
                # At most one line a second: more would bury the rest of the log.
                self._next_log_ms = now_ms + REFUSAL_LOG_EVERY_MS
                count, self._refused_count = self._refused_count, 0
                self._log.info("http", "request.refused", code=error.code, count=count)
            return raw_reply(error, request_id, is_kept)
        return None

    async def _answer(self, route: Route, request: Request) -> Response:
        """Run the handler of a route and build its reply."""
        state: _RequestState = request.scope[_STATE_KEY]
        state.path = route.path
        state.grant.require(route)
        if route.access == "login" and request.method == "HEAD":
            # Link previews send HEAD, which must not use up a one-time link.
            raise WrongMethod("GET")
        if route.access == "health":
            # Answered at once, however busy the daemon is.
            reply = self._run(route, request, b"")
        elif route.is_quick:
            self._rate.take(state.grant.user)
            _require_json(request, state.body)
            reply = self._run(route, request, b"")
        else:
            # Before the body arrives, so that a refusal comes at once.
            tenant = state.grant.user
            self.workers.require(tenant)
            self._rate.take(tenant)
            _require_json(request, state.body)
            raw = await state.body.read()
            reply = await self.workers.run(partial(self._run, route, request, raw), tenant)
        if route.method != "GET":
            self._server.live.nudge()
        return reply

    def _run(self, route: Route, request: Request, raw: bytes) -> Response:
        """Decode, call the handler and encode; on a worker thread, because it takes time."""
        query = decode_query(request.scope["query_string"], route.query)
        body: object = None if route.body is None else raw
        if route.body is not None and route.body is not bytes:
            body = decode_body(raw, cast("type[msgspec.Struct]", route.body))
        call = Call(
            self._server,
            request.scope[_STATE_KEY].grant,
            request.path_params,
            query,
            body,
            request.scope[_STATE_KEY].id,
            request.scope[DOOR_KEY],
            request.headers,
        )
        if route.operation is None:
            reply = route.handler(call)
        else:
            with self._server.observer.timed(route.operation):
                reply = route.handler(call)
        if isinstance(reply, Response):
            return reply
        if isinstance(reply, Page):
            return Response(reply.content, reply.status, reply.headers, reply.media_type)
        if isinstance(reply, TextReply):
            content = reply.content.encode("utf-8")
            return Response(content, reply.status, _SAFE_HEADERS, reply.media_type)
        return Response(route.encode(reply), headers=_SAFE_HEADERS, media_type=JSON)

    def _routing_error(self, routed: HTTPException, scope: Scope) -> MeritoryError:
        if routed.status_code != 405:
            return NoRoute("there is no route for this path", hint="/openapi.json lists the paths")
        allowed = {
            route.method
            for route, compiled in zip(self._table, self._router.routes, strict=True)
            if isinstance(compiled, StarletteRoute) and compiled.path_regex.match(scope["path"])
        }
        return WrongMethod(*sorted(allowed))

    async def _refuse(
        self, error: MeritoryError, state: _RequestState, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Reply with an error, after the rest of a refused body was read, within limits."""
        headers = {**_SAFE_HEADERS, **extra_headers(error)}
        if not await state.body.drain():
            headers["connection"] = "close"
        path = scope["path"]
        if path == PAGES or path.startswith(f"{PAGES}/"):
            # A person with a browser reads this reply.
            page = refusal_page(error)
            reply = Response(page, error.status, {**headers, **PAGE_HEADERS}, "text/html")
        else:
            content = msgspec.json.encode(as_problem(error, state.id))
            reply = Response(content, error.status, headers, MEDIA_TYPE)
        await reply(scope, receive, partial(self._send, send, state))

    async def _send(
        self, send: Send, state: _RequestState, message: MutableMapping[str, Any]
    ) -> None:
        """Pass a message on; log and count the request when its reply starts."""
        if message["type"] == "http.response.start":
            status: int = message["status"]
            message["headers"] = [*message["headers"], (b"x-request-id", state.id.encode("ascii"))]
            self._server.observer.count(f"http.{status}")
            took_ms = self._server.world.monotonic_ms() - state.started_ms
            write = self._log.debug if status < 400 else self._log.info
            write(
                "http",
                "request",
                request_id=state.id,
                path=state.path,
                status=status,
                duration_ms=round(took_ms, 3),
                **({} if state.grant.token_id is None else {"token": state.grant.token_id}),
            )
        await send(message)


def _declared_bytes(scope: Scope) -> int | None:
    """Return the declared length of the body; None if it is chunked."""
    length = 0
    for name, value in scope["headers"]:
        if name == b"transfer-encoding":
            return None
        if name == b"content-length":
            length = int(value)
    return length


def _require_json(request: Request, body: Body) -> None:
    """Refuse other content types: a foreign web page can post forms to any port, but not JSON."""
    if body.is_complete:
        return
    kind, _, parameter = request.headers.get("content-type", "").partition(";")
    if kind.strip().lower() != JSON:
        raise NotJson("a body must be JSON", hint=f"send it with Content-Type: {JSON}")
    if parameter.strip().lower() not in ("", "charset=utf-8"):
        raise BadRequest("JSON must be UTF-8")
