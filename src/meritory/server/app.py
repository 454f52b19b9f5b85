"""The application: every request is guarded, bounded, decoded, answered and written down."""

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
REFUSALS_TOLD_EVERY_MS = 1_000.0
Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@dataclass(slots=True)
class _Asked:
    """One request on its way through."""

    id: str
    body: Body
    started_ms: float
    # The path as the table writes it: what a caller made up does not belong into counters.
    path: str = ""
    grant: Grant = ANYONE


class App:
    """The table of routes as an ASGI application."""

    def __init__(self, engine: ServerState, guard: Guard, log: Log, table: Sequence[Route] = TABLE):
        limits = engine.settings.daemon
        self._engine = engine
        self._guard = guard
        self._log = log
        self._table = table
        self._rate = RateLimit(limits.rate_limit_per_s, engine.world.monotonic_ms)
        self.workers = Workers(limits.in_flight_limit)
        # Decoders are made on first use, and not safely by several threads at once.
        for kind in {kind for route in table for kind in (route.query, route.body) if kind}:
            msgspec.json.Decoder(kind)
        self._public = {route.path for route in table if route.access in ("health", "login")}
        self._unbounded = {r.path.encode("ascii") for r in table if r.access == "health"}
        self._refused_count = 0
        self._next_told_ms = 0.0
        self._router = Router(
            [
                StarletteRoute(route.path, partial(self._answer, route), methods=[route.method])
                for route in table
            ],
            redirect_slashes=False,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The edge: whatever happens becomes a reply."""
        if scope["type"] != "http":
            return
        world = self._engine.world
        asked = _Asked(world.new_id(), Body(receive, _declared_bytes(scope)), world.monotonic_ms())
        scope[_STATE_KEY] = asked
        # The router raises instead of answering in its own words when it sees an application.
        scope["app"] = self
        error: MeritoryError | None = None
        try:
            asked.grant = await self._granted(scope)
            await self._router(scope, receive, partial(self._send, send, asked))
        except MeritoryError as known:
            error = known
        except HTTPException as routed:
            error = self._routed(routed, scope)
        except Exception as unknown:
            self._log.error("http", "request.bug", unknown, request_id=asked.id, path=asked.path)
            error = Bug("something went wrong inside", hint="the daemon's log says what and where")
        if error is not None:
            if error.status >= 500:
                self._engine.observer.failed("http", error, asked.id)
            await self._refuse(error, asked, scope, receive, send)
        # The two know each other: without this every request would wait for the collector.
        del scope[_STATE_KEY]

    async def _granted(self, scope: Scope) -> Grant:
        """What whoever asks may do; what they only claim is looked up."""
        found = self._guard.check(
            Visit(
                scope[DOOR_KEY],
                scope["headers"],
                scope["query_string"],
                scope["path"] in self._public,
                scope["method"] in _READING,
            )
        )
        if not isinstance(found, TokenClaim):
            return found
        token = await self._engine.tokens.redeem(found)
        if token is None:
            raise self._guard.wrong_secret()
        return Grant.of(token)

    def refusal(self, address: bytes, is_kept: bool) -> bytes | None:
        """The answer to a request that is not even looked at; cheap, as it must be then."""
        if address.partition(b"?")[0] in self._unbounded:
            return None
        try:
            self._rate.demand()
            self.workers.demand()
        except (TooMany, Overloaded) as error:
            request_id = self._engine.world.new_id()
            self._note_refusal(error, request_id)
            return raw_reply(error, request_id, is_kept)
        return None

    def _note_refusal(self, error: MeritoryError, request_id: str) -> None:
        """Counts every one; a line in the log for each would bury what else is there."""
        self._engine.observer.count(f"http.{error.status}")
        if error.status >= 500:
            self._engine.observer.failed("http", error, request_id)
        self._refused_count += 1
        now_ms = self._engine.world.monotonic_ms()
        if now_ms >= self._next_told_ms:
            self._next_told_ms = now_ms + REFUSALS_TOLD_EVERY_MS
            self._log.info("http", "request.refused", code=error.code, count=self._refused_count)
            self._refused_count = 0

    async def _answer(self, route: Route, request: Request) -> Response:
        """Runs the handler of a route and makes its reply."""
        asked: _Asked = request.scope[_STATE_KEY]
        asked.path = route.path
        asked.grant.demand(route)
        if route.access == "login" and request.method == "HEAD":
            # Whatever looks at links before a person does must not use one up.
            raise WrongMethod("GET")
        if route.access == "health":
            # Answered at once, however much is under way.
            reply = self._worked(route, request, b"")
        elif route.is_quick:
            self._rate.take(asked.grant.user)
            _demand_json(request, asked.body)
            reply = self._worked(route, request, b"")
        else:
            # Before the body is waited for: whoever is refused shall know it at once.
            tenant = asked.grant.user
            self.workers.demand(tenant)
            self._rate.take(tenant)
            _demand_json(request, asked.body)
            raw = await asked.body.read()
            reply = await self.workers.run(partial(self._worked, route, request, raw), tenant)
        if route.method != "GET":
            self._engine.live.nudge()
        return reply

    def _worked(self, route: Route, request: Request, raw: bytes) -> Response:
        """Everything that takes time, on a thread of its own: decode, do, encode."""
        call = Call(
            self._engine,
            request.scope[_STATE_KEY].grant,
            request.path_params,
            decode_query(request.scope["query_string"], route.query),
            _decoded(raw, route),
            request.scope[_STATE_KEY].id,
            request.scope[DOOR_KEY],
            request.headers,
        )
        if route.operation is None:
            reply = route.handler(call)
        else:
            with self._engine.observer.timed(route.operation):
                reply = route.handler(call)
        if isinstance(reply, Response):
            return reply
        if isinstance(reply, Page):
            return Response(reply.content, reply.status, reply.headers, reply.media_type)
        if isinstance(reply, TextReply):
            content = reply.content.encode("utf-8")
            return Response(content, reply.status, _SAFE_HEADERS, reply.media_type)
        return Response(route.encode(reply), headers=_SAFE_HEADERS, media_type=JSON)

    def _routed(self, routed: HTTPException, scope: Scope) -> MeritoryError:
        if routed.status_code != 405:
            return NoRoute("there is nothing under this path", hint="/openapi.json lists the paths")
        allowed = {
            route.method
            for route, compiled in zip(self._table, self._router.routes, strict=True)
            if isinstance(compiled, StarletteRoute) and compiled.path_regex.match(scope["path"])
        }
        return WrongMethod(", ".join(sorted(allowed)))

    async def _refuse(
        self, error: MeritoryError, asked: _Asked, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Tells what is wrong; the rest of a refused body is taken in first, within bounds."""
        headers = {**_SAFE_HEADERS, **extra_headers(error)}
        if not await asked.body.drain():
            headers["connection"] = "close"
        if _is_page(scope["path"]):
            page = refusal_page(error)
            reply = Response(page, error.status, {**headers, **PAGE_HEADERS}, "text/html")
        else:
            content = msgspec.json.encode(as_problem(error, asked.id))
            reply = Response(content, error.status, headers, MEDIA_TYPE)
        await reply(scope, receive, partial(self._send, send, asked))

    async def _send(self, send: Send, asked: _Asked, message: MutableMapping[str, Any]) -> None:
        """Passes a message on; the first of a reply is where the request is written down."""
        if message["type"] == "http.response.start":
            status: int = message["status"]
            message["headers"] = [*message["headers"], (b"x-request-id", asked.id.encode("ascii"))]
            self._engine.observer.count(f"http.{status}")
            took = self._engine.world.monotonic_ms() - asked.started_ms
            write = self._log.debug if status < 400 else self._log.info
            write(
                "http",
                "request",
                request_id=asked.id,
                path=asked.path,
                status=status,
                duration_ms=round(took, 3),
                **({} if asked.grant.token_id is None else {"token": asked.grant.token_id}),
            )
        await send(message)


def _declared_bytes(scope: Scope) -> int | None:
    """How long the body says it is; None when it only says where it ends."""
    found = 0
    for name, value in scope["headers"]:
        if name == b"transfer-encoding":
            return None
        if name == b"content-length":
            found = int(value)
    return found


def _is_page(path: str) -> bool:
    """Whether somebody with a browser reads the answer."""
    return path == PAGES or path.startswith(f"{PAGES}/")


def _decoded(raw: bytes, route: Route) -> Any:
    if route.body is None or route.body is bytes:
        return raw if route.body else None
    return decode_body(raw, cast("type[msgspec.Struct]", route.body))


def _demand_json(request: Request, body: Body) -> None:
    """Browsers can post forms to any port without asking, but not this type."""
    if body.is_complete:
        return
    kind, _, parameter = request.headers.get("content-type", "").partition(";")
    if kind.strip().lower() != JSON:
        raise NotJson("a body must be JSON", hint=f"send it with Content-Type: {JSON}")
    if parameter.strip().lower() not in ("", "charset=utf-8"):
        raise BadRequest("JSON is sent as UTF-8")
