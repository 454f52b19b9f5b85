"""Limits of the daemon: body sizes, timeouts, request rates and requests in flight."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from meritory.domain.errors import TooLarge
from meritory.server.problems import BadRequest, Overloaded, SlowBody, TooMany

BODY_LIMIT_BYTES = 2 * 1024 * 1024
BODY_TIMEOUT_S = 10.0
# How much of a refused body is still read, so that the client can read the reply.
DRAIN_LIMIT_BYTES = 4 * BODY_LIMIT_BYTES
DRAIN_TIMEOUT_S = 1.0
# Python runs one thread at a time, and the event loop waits behind the workers: more workers
# would only make it wait longer.
WORKER_COUNT = 4
# The largest share that one user with tokens may take, so that others get through.
TENANT_SHARE = 0.5
TENANT_LIMIT_COUNT = 1_024

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
T = TypeVar("T")


class Body:
    """The body of one request, read at most once."""

    def __init__(self, receive: Receive, declared_bytes: int | None) -> None:
        self._receive = receive
        self._declared_bytes = declared_bytes
        self.is_complete = declared_bytes == 0

    async def read(self) -> bytes:
        """Return the whole body; raise an error if it is too large or too slow."""
        if self._declared_bytes is not None and self._declared_bytes > BODY_LIMIT_BYTES:
            raise _too_large()
        pieces: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                while not self.is_complete:
                    pieces.append(await self._next())
                    size += len(pieces[-1])
                    if size > BODY_LIMIT_BYTES:
                        raise _too_large()
        except TimeoutError as error:
            raise SlowBody(f"the body did not arrive within {BODY_TIMEOUT_S:g} seconds") from error
        return b"".join(pieces)

    async def drain(self) -> bool:
        """Read the rest of a refused body; return whether the connection can be used again."""
        size = 0
        with contextlib.suppress(TimeoutError, BadRequest):
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                while not self.is_complete and size <= DRAIN_LIMIT_BYTES:
                    size += len(await self._next())
        return self.is_complete

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] != "http.request":
            raise BadRequest("the connection closed before the body was complete")
        self.is_complete = not message.get("more_body", False)
        piece: bytes = message.get("body", b"")
        return piece


def _too_large() -> TooLarge:
    return TooLarge(
        f"a request may have at most {BODY_LIMIT_BYTES} bytes", hint="split it into several"
    )


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
            self._share(tenant).take()
        self._tokens -= 1

    def _share(self, tenant: str) -> RateLimit:
        if tenant not in self._shares:
            if len(self._shares) >= TENANT_LIMIT_COUNT:
                self._shares.clear()
            self._shares[tenant] = RateLimit(_share(self._per_s), self._now_ms)
        return self._shares[tenant]


class Workers:
    """Worker threads for handlers, with a limit on requests in flight."""

    def __init__(self, in_flight_limit: int) -> None:
        self._limit = in_flight_limit
        self._pool = ThreadPoolExecutor(
            max_workers=min(WORKER_COUNT, in_flight_limit), thread_name_prefix="meritory-web"
        )
        self.in_flight = 0
        self._by_tenant: Counter[str] = Counter()

    def require(self, tenant: str | None = None) -> None:
        """Raise Overloaded if too many requests are in flight, of all or of one tenant."""
        share = _share(self._limit)
        is_greedy = tenant is not None and self._by_tenant[tenant] >= share
        if is_greedy or self.in_flight >= self._limit:
            limit = share if is_greedy else self._limit
            raise Overloaded(
                f"{limit} requests are in flight already", hint="try again in a second"
            )

    async def run(self, work: Callable[[], T], tenant: str | None = None) -> T:
        """Run blocking work in a thread; refuse it at once if too many requests are in flight."""
        self.require(tenant)
        self.in_flight += 1
        if tenant is not None:
            self._by_tenant[tenant] += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, work)
        # Counted until the work is done, even if the client left.
        future.add_done_callback(partial(self._done, tenant))
        return await asyncio.shield(future)

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
