"""What has changed, told to open pages as it happens, however many processes write."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec
from starlette.responses import Response

from meritory.domain.errors import MeritoryError
from meritory.domain.world import Following
from meritory.server.connection import HANG_UP_KEY
from meritory.server.limits import Receive
from meritory.server.problems import Overloaded

CLIENT_LIMIT = 8
LOOK_EVERY_S = 1.0
# Where the store tells when there is something to see: to be sure.
SURE_EVERY_S = 15.0
# A burst of writes is told as one.
CALM_S = 0.1
HEARTBEAT_S = 15.0
# Who does not take in a few bytes for so long is not there any more.
STALL_LIMIT_S = 20.0
# Then the page asks anew, and whoever may not come in any more stays outside.
STREAM_LIFE_S = 600.0
RETRY_MS = 1_000
MEDIA_TYPE = "text/event-stream; charset=utf-8"
Look = Callable[[], Mapping[str, int]]
Follow = Callable[[Callable[[], None]], Following | None]


class EventReader:
    """One open page: the topics that changed since it was last told.

    There are few topics, and each is told once however often it changed meanwhile: whoever reads
    slowly is told less often, and nothing piles up.
    """

    def __init__(self) -> None:
        self._topics: dict[str, None] = {}
        self._wake = asyncio.Event()
        self.is_over = False

    def tell(self, topics: Collection[str]) -> None:
        """Notes what changed."""
        self._topics |= dict.fromkeys(topics)
        self._wake.set()

    def end(self) -> None:
        """Nothing more is to be told."""
        self.is_over = True
        self._wake.set()

    async def next(self) -> bytes:
        """What is to be sent next: what changed or, when nothing did for a while, a heartbeat."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HEARTBEAT_S):
                await self._wake.wait()
        self._wake.clear()
        topics, self._topics = self._topics, {}
        if not topics:
            return b": still here\n\n"
        return b"".join(_event({"topic": topic}) for topic in topics)


class LiveEvents:
    """The readers, and who looks for them whether something changed."""

    def __init__(self, look: Look, follow: Follow = lambda told: None) -> None:
        """`look` must not write anything: whoever writes is told about, and looked for again."""
        self._look = look
        self._follow = follow
        self._readers: set[EventReader] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._nudged = asyncio.Event()
        self._seen = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None

    def join(self) -> EventReader:
        """A new reader; there is room for a few."""
        if len(self._readers) >= CLIENT_LIMIT:
            raise Overloaded(
                f"{CLIENT_LIMIT} pages follow what happens already", hint="close some of them"
            )
        reader = EventReader()
        self._readers.add(reader)
        if self._watch is None or self._watch.done():
            self._loop = asyncio.get_running_loop()
            self._seen.clear()
            self._watch = self._loop.create_task(self._watching())
        return reader

    async def ready(self) -> None:
        """Waits until later changes are sure to be noticed."""
        await self._seen.wait()

    def leave(self, reader: EventReader) -> None:
        """A reader is gone; without any, nobody looks any more."""
        self._readers.discard(reader)
        if not self._readers:
            self._nudged.set()

    def nudge(self) -> None:
        """Something was just done here, so that it is worth a look; any thread may say so."""
        if self._readers and self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._nudged.set)

    def close(self) -> None:
        """Ends every stream at once."""
        for reader in self._readers:
            reader.end()

    async def _watching(self) -> None:
        following = self._follow(self.nudge)
        try:
            await self._tell_changes(LOOK_EVERY_S if following is None else SURE_EVERY_S)
        finally:
            if following is not None:
                following.close()

    async def _tell_changes(self, look_every_s: float) -> None:
        known = await self._looked({})
        self._seen.set()
        while self._readers:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(look_every_s):
                    await self._nudged.wait()
                await asyncio.sleep(CALM_S)
            self._nudged.clear()
            found = await self._looked(known)
            changed = [topic for topic in found if found[topic] != known.get(topic)]
            if changed:
                for reader in self._readers:
                    reader.tell(changed)
            known = found

    async def _looked(self, before: Mapping[str, int]) -> Mapping[str, int]:
        """How everything stands, found out beside the loop; unchanged when nobody can tell."""
        try:
            return await asyncio.to_thread(self._look)
        except MeritoryError:
            return before


class EventStream(Response):
    """A reply that goes on until the page is left, the daemon ends, or its time is over."""

    def __init__(self, live: LiveEvents, headers: Mapping[str, str]) -> None:
        super().__init__(headers=dict(headers), media_type=MEDIA_TYPE)
        del self.headers["content-length"]
        self._live = live
        self._reader = live.join()

    async def __call__(self, scope: Any, receive: Receive, send: Any) -> None:
        """Tells what changes, to whoever still listens."""
        reader = self._reader
        leaving = asyncio.ensure_future(_end_when_left(receive, reader))
        try:
            await self._live.ready()
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            if scope["method"] != "HEAD":
                await self._tell(reader, send, scope)
            await send({"type": "http.response.body", "body": b""})
        finally:
            leaving.cancel()
            self._live.leave(reader)

    async def _tell(self, reader: EventReader, send: Any, scope: Any) -> None:
        piece = f"retry: {RETRY_MS}\n\n".encode()
        ends_s = asyncio.get_running_loop().time() + STREAM_LIFE_S
        while not reader.is_over and asyncio.get_running_loop().time() < ends_s:
            try:
                async with asyncio.timeout(STALL_LIMIT_S):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            except TimeoutError:
                scope[HANG_UP_KEY]()
                return
            piece = await reader.next()


async def _end_when_left(receive: Receive, reader: EventReader) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    reader.end()


def file_number(path: Path) -> int:
    """A number that is another one when a file has grown or was replaced; 0 without one."""
    try:
        found = os.stat(path)
    except OSError:
        return 0
    return hash((found.st_ino, found.st_size))


def _event(told: Mapping[str, str]) -> bytes:
    return b"event: change\ndata: " + msgspec.json.encode(told) + b"\n\n"
