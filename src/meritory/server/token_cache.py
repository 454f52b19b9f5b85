"""Access tokens: looked up off the event loop, cached for a moment, their use recorded."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial

from meritory.domain.access import AccessToken
from meritory.domain.errors import Busy, MeritoryError
from meritory.engine.access import TokenClaim, proves
from meritory.engine.services import Services
from meritory.server.problems import Overloaded

# Every daemon refuses a revoked token after at most a second.
FRESH_MS = 900.0
CACHE_LIMIT_COUNT = 1_024
# A flood of tokens keeps only these threads busy.
THREAD_COUNT, LOOKUP_LIMIT_COUNT = 2, 32
LOOKUP_TIMEOUT_S = 5.0
RECORD_EVERY = timedelta(minutes=1)


class Tokens:
    """Looks up access tokens and caches them."""

    def __init__(self, services: Services) -> None:
        self._services = services
        # Each token with the time of its lookup.
        self._cache: dict[TokenClaim, tuple[AccessToken, float]] = {}
        self._lookup_count = 0
        self._recorded_ms: dict[tuple[str, str], float] = {}
        self._pool = ThreadPoolExecutor(THREAD_COUNT, thread_name_prefix="meritory-access")

    async def redeem(self, claim: TokenClaim) -> AccessToken | None:
        """Return the token of a valid claim, None for a wrong one; raise Busy if it is unknown."""
        world = self._services.world
        began_ms = world.monotonic_ms()
        token, at_ms = self._cache.get(claim, (None, 0.0))
        if token is None or began_ms - at_ms >= FRESH_MS:
            token = await self._look_up(claim, is_cached=token is not None)
            self._cache.pop(claim, None)
            if not proves(claim, token, world.now()) or token is None:
                return None
            while len(self._cache) >= CACHE_LIMIT_COUNT:
                del self._cache[next(iter(self._cache))]
            self._cache[claim] = token, began_ms
        if not token.is_valid(world.now()):
            return None
        self._record_use(token)
        return token

    def close(self) -> None:
        """Accept no more lookups, and finish those in progress."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    async def _look_up(self, claim: TokenClaim, *, is_cached: bool) -> AccessToken | None:
        # A token that was valid a moment ago is not refused because others guess.
        if self._lookup_count >= LOOKUP_LIMIT_COUNT and not is_cached:
            raise Overloaded("too many tokens are being looked up", hint="try again in a second")
        self._lookup_count += 1
        look = partial(self._services.store.access_token, claim.user, claim.token_id)
        future = asyncio.get_running_loop().run_in_executor(self._pool, look)
        future.add_done_callback(self._finish_lookup)
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT_S):
                return await asyncio.shield(future)
        except (MeritoryError, TimeoutError) as error:
            self._services.observer.failed("access", error)
            raise Busy(
                "the token cannot be looked up now", hint="try again when the store is available"
            ) from error

    def _finish_lookup(self, future: asyncio.Future[AccessToken | None]) -> None:
        self._lookup_count -= 1
        if not future.cancelled():
            # Read here, so that asyncio does not warn about a caller who left.
            future.exception()

    def _record_use(self, token: AccessToken) -> None:
        """Record the use of a token in the background, at most once a minute."""
        world, key = self._services.world, (token.user, token.id)
        now, now_ms = world.now(), world.monotonic_ms()
        every_ms = RECORD_EVERY.total_seconds() * 1000
        last_ms = self._recorded_ms.get(key)
        if last_ms is not None and now_ms - last_ms < every_ms:
            return
        if last_ms is None and len(self._recorded_ms) >= CACHE_LIMIT_COUNT:
            self._recorded_ms.clear()
        self._recorded_ms[key] = now_ms
        last = token.last_used_at
        # Another daemon of the same store may have recorded it.
        if last is None or now - last >= RECORD_EVERY:
            with contextlib.suppress(RuntimeError):
                self._pool.submit(self._write_use, token, now)

    def _write_use(self, token: AccessToken, now: datetime) -> None:
        # A store that cannot be written is no reason to refuse the request.
        with contextlib.suppress(MeritoryError):
            self._services.store.write(
                token.user, lambda t: t.note_access(token.user, token.id, now)
            )
