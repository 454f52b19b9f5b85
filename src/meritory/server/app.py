"""The ASGI application: authenticate, limit, decode, run, encode and log every request."""

from __future__ import annotations

import asyncio
import codecs
import itertools
import json
import math
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute
from starlette.routing import Router

from meritory.domain.codec import prepared
from meritory.domain.errors import InputError, MeritoryError
from meritory.engine.access import TokenClaim
from meritory.mcp.protocol import finite, refuse_constant
from meritory.server.auth import ANYONE, Grant, Guard
from meritory.server.connection import DOOR_KEY, Body, Receive, declared_bytes
from meritory.server.dashboard import PAGE_HEADERS, PAGES, refusal_page
from meritory.server.logs import Log
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
    hooks,
    jobs,
    library,
    mcp,
    memories,
    observe,
    predictor,
    quality,
    review,
    rules,
    sessions,
)
from meritory.server.table import SAFE_HEADERS, Call, Route, ServerState

# A new route is one row in the file of its noun; a new noun is one file and one name here.
TABLE: tuple[Route, ...] = (
    *observe.ROUTES,
    *memories.ROUTES,
    *hooks.ROUTES,
    *sessions.ROUTES,
    *rules.ROUTES,
    *feedback.ROUTES,
    *predictor.ROUTES,
    *jobs.ROUTES,
    *access.ROUTES,
    *quality.ROUTES,
    *review.ROUTES,
    *library.ROUTES,
    *mcp.ROUTES,
    *dashboard.ROUTES,
)

JSON = "application/json"
_STATE_KEY = "meritory.request"
REFUSAL_LOG_EVERY_MS = 1_000.0
# Python runs one thread at a time, and the event loop waits behind the workers: more workers
# would only make it wait longer.
WORKER_COUNT = 4
# A request is refused when it would wait longer than this, or than its caller waits.
WAIT_LIMIT_MS = 10_000.0
# How long hooks wait for a reply that they print (see `meritory.hook.main`). Afterwards the work
# is useless, so it is not begun. The end of a session counts without its hook.
BUDGETS_MS = {
    "/api/hooks/session-start": 1_900.0,
    "/api/hooks/user-prompt-submit": 1_900.0,
    "/api/hooks/pre-tool": 250.0,
}
# The weight of the latest duration of a route, and the most that one waiting request counts for: a
# request that takes minutes blocks only one worker.
_DURATION_WEIGHT, _DURATION_LIMIT_MS = 0.2, 1_000.0
# The largest share that one user with tokens may take, so that others get through.
TENANT_SHARE = 0.5
TENANT_LIMIT_COUNT = 1_024
_HINT = "`GET /openapi.json` describes what each route takes"
T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)
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
        self.workers = Workers(limits.in_flight_limit, server.world.monotonic_ms)
        for kind in {kind for route in table for kind in (route.query, route.body) if kind}:
            prepared(kind)
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
            world.new_id(), Body(receive, declared_bytes(scope["headers"])), world.monotonic_ms()
        )
        scope[_STATE_KEY] = state
        # With an application in scope the router raises instead of replying itself.
        scope["app"] = self
        error: MeritoryError | None = None
        try:
            caller = self._guard.check(
                scope[DOOR_KEY],
                scope["headers"],
                scope["query_string"],
                is_public=scope["path"] in self._public,
                is_reading=scope["method"] in ("GET", "HEAD"),
            )
            if isinstance(caller, TokenClaim):
                token = await self._server.tokens.redeem(caller)
                if token is None:
                    raise self._guard.wrong_secret()
                caller = Grant.of(token)
            state.grant = caller
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

    def refusal(self, address: bytes, is_kept: bool) -> bytes | None:
        """Return the reply to a request beyond the limits, None if it is within; cheaply."""
        path = address.partition(b"?")[0]
        if path in self._unbounded:
            return None
        try:
            self._rate.require()
            self.workers.require(budget_ms=BUDGETS_MS.get(path.decode("latin-1")))
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
        tenant = state.grant.user
        is_quick = route.is_quick or route.access == "health"
        if not is_quick:
            # Before the body arrives, so that a refusal comes at once.
            self.workers.require(tenant, BUDGETS_MS.get(route.path))
        if route.access != "health":
            # Health is answered however busy the daemon is.
            self._rate.take(tenant)
            _require_json(request, state.body)
        if is_quick:
            reply = self._run(route, request, b"")
        else:
            raw = await state.body.read()
            until_ms = state.started_ms + BUDGETS_MS.get(route.path, math.inf)
            work = partial(self._run, route, request, raw)
            reply = await self.workers.run(work, tenant, route.path, until_ms)
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
            route.is_agent,
        )
        reply = route.handler(call)
        if isinstance(reply, Response):
            return reply
        return Response(route.encode(reply), headers=SAFE_HEADERS, media_type=JSON)

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
        headers = {**SAFE_HEADERS, **extra_headers(error)}
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


def _require_json(request: Request, body: Body) -> None:
    """Refuse other content types: a foreign web page can post forms to any port, but not JSON."""
    if body.is_complete:
        return
    kind, _, parameter = request.headers.get("content-type", "").partition(";")
    if kind.strip().lower() != JSON:
        raise NotJson("a body must be JSON", hint=f"send it with Content-Type: {JSON}")
    if parameter.strip().lower() not in ("", "charset=utf-8"):
        raise BadRequest("JSON must be UTF-8")


# -- limits -----------------------------------------------------------------------------------


class RateLimit:
    """A token bucket that holds one second's worth of requests."""

    def __init__(self, per_s: int, now_ms: Callable[[], float]) -> None:
        self._per_s = per_s
        self._now_ms = now_ms
        self._tokens = float(per_s)
        self._at_ms = now_ms()
        self._shares: dict[str, RateLimit] = {}

    def require(self) -> None:
        """Raise TooMany if the bucket is empty, but take nothing."""
        if not self._per_s:
            return
        now = self._now_ms()
        gained = (now - self._at_ms) / 1000 * self._per_s
        self._tokens = min(float(self._per_s), self._tokens + gained)
        self._at_ms = now
        if self._tokens < 1:
            raise TooMany(
                f"more than {self._per_s} requests a second",
                hint="raise the setting daemon.rate_limit_per_s",
            )

    def take(self, tenant: str | None = None) -> None:
        """Take one request from the bucket and the tenant's share; raise TooMany if it is empty."""
        self.require()
        if tenant is not None and self._per_s:
            if tenant not in self._shares:
                if len(self._shares) >= TENANT_LIMIT_COUNT:
                    self._shares.clear()
                self._shares[tenant] = RateLimit(_share(self._per_s), self._now_ms)
            self._shares[tenant].take()
        self._tokens -= 1


class Workers:
    """Worker threads for handlers, with limits on the requests in flight and on their wait."""

    def __init__(self, in_flight_limit: int, now_ms: Callable[[], float]) -> None:
        self._limit = in_flight_limit
        self._now_ms = now_ms
        # When each waiting request came, and how long it will probably take, oldest first.
        self._waiting: dict[int, tuple[float, float]] = {}
        self._numbers = itertools.count()
        # The usual duration of each route.
        self._usual_ms: dict[str, float] = {}
        self._pool = ThreadPoolExecutor(
            max_workers=min(WORKER_COUNT, in_flight_limit), thread_name_prefix="meritory-web"
        )
        self.in_flight = 0
        self._by_tenant: Counter[str] = Counter()

    def wait_ms(self) -> float:
        """Return how long a new request would probably wait for a worker."""
        # A copy, made in one step: workers take requests out meanwhile.
        waiting = tuple(self._waiting.values())
        if not waiting:
            return 0.0
        ahead_ms = sum(usual_ms for _, usual_ms in waiting) / WORKER_COUNT
        # Where the workers are stuck, the wait of the oldest tells more.
        return max(ahead_ms, self._now_ms() - waiting[0][0])

    def require(self, tenant: str | None = None, budget_ms: float | None = None) -> None:
        """Raise Overloaded if too many requests are in flight, or the wait would be too long.

        A tenant has a share of the requests in flight. The budget is how long the caller waits.
        """
        share = _share(self._limit)
        is_greedy = tenant is not None and self._by_tenant[tenant] >= share
        if is_greedy or self.in_flight >= self._limit:
            limit = share if is_greedy else self._limit
            raise Overloaded(
                f"{limit} requests are in flight already", hint="try again in a second"
            )
        wait_ms = self.wait_ms()
        if wait_ms > (WAIT_LIMIT_MS if budget_ms is None else budget_ms):
            raise Overloaded(
                f"a request waits about {wait_ms:.0f} ms now", hint="try again in a second"
            )

    async def run(
        self,
        work: Callable[[], T],
        tenant: str | None = None,
        path: str = "",
        until_ms: float = math.inf,
    ) -> T:
        """Run blocking work of a route in a thread, unless its caller has given up until then."""
        self.require(tenant)
        self.in_flight += 1
        if tenant is not None:
            self._by_tenant[tenant] += 1
        number = next(self._numbers)
        self._waiting[number] = (self._now_ms(), self._usual_ms.get(path, 0.0))
        begun = partial(self._work, work, number, path, until_ms)
        future = asyncio.get_running_loop().run_in_executor(self._pool, begun)
        # Counted until the work is done, even if the client left.
        future.add_done_callback(partial(self._done, tenant))
        return await asyncio.shield(future)

    def _work(self, work: Callable[[], T], number: int, path: str, until_ms: float) -> T:
        del self._waiting[number]
        began_ms = self._now_ms()
        if began_ms > until_ms:
            raise Overloaded("the caller has stopped waiting", hint="try again in a second")
        try:
            return work()
        finally:
            took_ms = min(_DURATION_LIMIT_MS, self._now_ms() - began_ms)
            usual_ms = self._usual_ms.get(path, took_ms)
            self._usual_ms[path] = usual_ms + _DURATION_WEIGHT * (took_ms - usual_ms)

    def _done(self, tenant: str | None, future: asyncio.Future[Any]) -> None:
        self.in_flight -= 1
        if tenant is not None:
            self._by_tenant[tenant] -= 1
            # Drop zeros, so that the counter does not grow for years.
            self._by_tenant += Counter()
        if not future.cancelled():
            # Read here, so that asyncio does not warn about a caller who left.
            future.exception()

    def close(self) -> None:
        """Accept no more work; running work continues."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _share(limit: int) -> int:
    return max(1, int(limit * TENANT_SHARE))


# -- JSON -------------------------------------------------------------------------------------


def decode_body(raw: bytes, kind: type[S]) -> S:
    """Return the body as its type; reject malformed JSON with 400 and wrong values with 422."""
    if not raw.strip():
        raise BadRequest("a JSON body is needed", hint=_HINT)
    if raw.startswith(codecs.BOM_UTF8):
        raise InputError("the body begins with a byte order mark", hint="send plain UTF-8")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"the body is not UTF-8: byte {error.start + 1} does not fit") from error
    try:
        value = json.loads(
            text,
            object_pairs_hook=_distinct,
            parse_constant=refuse_constant,
            parse_float=finite,
            parse_int=_bounded,
        )
    except RecursionError as error:
        raise BadRequest("the JSON is nested too deeply") from error
    except ValueError as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from error
    if "\\u" in text:
        try:
            msgspec.json.encode(value)
        except UnicodeEncodeError as error:
            # Such text can neither be stored nor sent back.
            raise InputError("the body holds half a character (a lone surrogate)") from error
    return _convert(value, kind, strict=True)


def decode_query(query_string: bytes, kind: type[S]) -> S:
    """Return the query string as its type."""
    try:
        pairs = parse_qsl(
            query_string.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(query_string),
            errors="strict",
            max_num_fields=50,
        )
    except UnicodeDecodeError as error:
        raise InputError("the query string is not UTF-8") from error
    except ValueError as error:
        raise BadRequest("the query string cannot be read") from error
    if len(dict(pairs)) != len(pairs):
        raise BadRequest("a query parameter is given twice")
    return _convert(dict(pairs), kind, strict=False)


def _convert(value: Any, kind: type[S], *, strict: bool) -> S:
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise InputError(
            str(error).replace("`$.", "`").replace("`$`", "the top"), hint=_HINT
        ) from error


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key is given twice")
    return members


def _bounded(text: str) -> int:
    if len(text) > 40 or abs(value := int(text)) >= 2**63:
        raise ValueError("a whole number is too large")
    return value
