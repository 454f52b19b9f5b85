"""Tokens at the door: looked up beside the loop, kept for a moment, and noted when used."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from meritory.domain.access import AccessToken
from meritory.domain.errors import Busy, MeritoryError
from meritory.engine.access import TokenClaim, proves
from meritory.engine.services import Services
from meritory.server.problems import Overloaded

# A token that was revoked lets nobody in after a second, whichever daemon is asked.
FRESH_MS = 900.0
KEPT_LIMIT_COUNT = 1_024
# Whoever sends tokens without end keeps but these threads busy.
THREAD_COUNT, LOOKUP_LIMIT_COUNT = 2, 32
LOOKUP_TIMEOUT_S = 5.0
NOTED_EVERY = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class _CachedToken:
    token: AccessToken
    at_ms: float


class Tokens:
    """Says whose a token is."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._kept: dict[TokenClaim, _CachedToken] = {}
        self._looking_count = 0
        self._noted_ms: dict[tuple[str, str], float] = {}
        self._pool = ThreadPoolExecutor(THREAD_COUNT, thread_name_prefix="meritory-access")

    async def redeem(self, claim: TokenClaim) -> AccessToken | None:
        """The token that a claim proves to be; None for a wrong one, Busy when nobody can tell."""
        world = self._services.world
        began_ms = world.monotonic_ms()
        kept = self._kept.get(claim)
        if kept is None or began_ms - kept.at_ms >= FRESH_MS:
            found = await self._looked_up(claim, is_known=kept is not None)
            self._kept.pop(claim, None)
            if not proves(claim, found, world.now()) or found is None:
                return None
            kept = self._keep(claim, _CachedToken(found, began_ms))
        if not kept.token.is_valid(world.now()):
            return None
        self._note(kept.token)
        return kept.token

    def close(self) -> None:
        """Takes on nothing more, and lets what is under way end."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    async def _looked_up(self, claim: TokenClaim, *, is_known: bool) -> AccessToken | None:
        # Whoever was let in a moment ago is not turned away because others guess.
        if self._looking_count >= LOOKUP_LIMIT_COUNT and not is_known:
            raise Overloaded("too many tokens are being looked up", hint="try again in a second")
        self._looking_count += 1
        look = partial(self._services.store.access_token, claim.user, claim.token_id)
        future = asyncio.get_running_loop().run_in_executor(self._pool, look)
        future.add_done_callback(self._looked)
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT_S):
                return await asyncio.shield(future)
        except (MeritoryError, TimeoutError) as error:
            self._services.observer.failed("access", error)
            raise Busy(
                "the token cannot be looked up now", hint="try again when the store is back"
            ) from error

    def _looked(self, future: asyncio.Future[AccessToken | None]) -> None:
        self._looking_count -= 1
        if not future.cancelled():
            # Taken note of here: a caller who left must not leave a warning behind.
            future.exception()

    def _keep(self, claim: TokenClaim, kept: _CachedToken) -> _CachedToken:
        while len(self._kept) >= KEPT_LIMIT_COUNT:
            del self._kept[next(iter(self._kept))]
        self._kept[claim] = kept
        return kept

    def _note(self, token: AccessToken) -> None:
        """Has the use written down, not oftener than once in a minute and with nobody waiting."""
        world, place = self._services.world, (token.user, token.id)
        now, now_ms = world.now(), world.monotonic_ms()
        every_ms = NOTED_EVERY.total_seconds() * 1000
        last_ms = self._noted_ms.get(place)
        if last_ms is not None and now_ms - last_ms < every_ms:
            return
        if last_ms is None and len(self._noted_ms) >= KEPT_LIMIT_COUNT:
            self._noted_ms.clear()
        self._noted_ms[place] = now_ms
        known = token.last_used_at
        # Another daemon of the same store may have noted it.
        if known is None or now - known >= NOTED_EVERY:
            with contextlib.suppress(RuntimeError):
                self._pool.submit(self._write_note, token, now)

    def _write_note(self, token: AccessToken, now: datetime) -> None:
        # A store that cannot be written right now is not worth refusing anybody for.
        with contextlib.suppress(MeritoryError):
            self._services.store.write(lambda t: t.note_access(token.user, token.id, now))
