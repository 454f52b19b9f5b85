"""Server-sent events: changes in the store for open pages, whichever process writes."""

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
from meritory.domain.world import Subscription
from meritory.server.connection import HANG_UP_KEY, Receive
from meritory.server.problems import Overloaded

CLIENT_LIMIT = 8
LOOK_EVERY_S = 1.0
# How often to look if the store sends notifications, in case one is lost.
SURE_EVERY_S = 15.0
# A burst of writes becomes one event.
CALM_S = 0.1
HEARTBEAT_S = 15.0
# A client that does not read for this long is gone.
STALL_LIMIT_S = 20.0
# Then the page connects again, and its login is checked again.
STREAM_LIFE_S = 600.0
MEDIA_TYPE = "text/event-stream; charset=utf-8"
Look = Callable[[], Mapping[str, int]]
Follow = Callable[[Callable[[], None]], Subscription | None]


class EventReader:
    """One open page: the topics that changed since its last event.

    Each topic is sent once however often it changed, so a slow reader gets fewer events and nothing
    piles up.
    """

    def __init__(self) -> None:
        self._topics: dict[str, None] = {}
        self._wake = asyncio.Event()
        self.is_over = False

    def add(self, topics: Collection[str]) -> None:
        """Add topics that changed."""
        self._topics |= dict.fromkeys(topics)
        self._wake.set()

    def end(self) -> None:
        """End the stream."""
        self.is_over = True
        self._wake.set()

    async def next(self) -> bytes:
        """Return the next bytes: the changes, or a heartbeat after a while without any."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HEARTBEAT_S):
                await self._wake.wait()
        self._wake.clear()
        topics, self._topics = self._topics, {}
        if not topics:
            return b": still here\n\n"
        return b"".join(
            b"event: change\ndata: " + msgspec.json.encode({"topic": topic}) + b"\n\n"
            for topic in topics
        )


class LiveEvents:
    """The open pages, and the task that looks for changes."""

    def __init__(self, look: Look, follow: Follow = lambda notify: None) -> None:
        """`look` must not write anything: a write would trigger the next look."""
        self._look = look
        self._follow = follow
        self._readers: set[EventReader] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._nudged = asyncio.Event()
        self._seen = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None

    def join(self) -> EventReader:
        """Return a new reader; the number of readers is limited."""
        if len(self._readers) >= CLIENT_LIMIT:
            raise Overloaded(
                f"{CLIENT_LIMIT} pages are connected already", hint="close some of them"
            )
        reader = EventReader()
        self._readers.add(reader)
        if self._watch is None or self._watch.done():
            self._loop = asyncio.get_running_loop()
            self._seen.clear()
            self._watch = self._loop.create_task(self._watch_store())
        return reader

    async def ready(self) -> None:
        """Wait until later changes are sure to be noticed."""
        await self._seen.wait()

    def leave(self, reader: EventReader) -> None:
        """Remove a reader; without readers the task ends."""
        self._readers.discard(reader)
        if not self._readers:
            self._nudged.set()

    def nudge(self, *event: object) -> None:
        """Look soon, because something was just written; any thread may call this."""
        if self._readers and self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._nudged.set)

    def close(self) -> None:
        """End every stream at once."""
        for reader in self._readers:
            reader.end()

    async def _watch_store(self) -> None:
        following = self._follow(self.nudge)
        look_every_s = LOOK_EVERY_S if following is None else SURE_EVERY_S
        try:
            before = await self._read_numbers({})
            self._seen.set()
            while self._readers:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(look_every_s):
                        await self._nudged.wait()
                    await asyncio.sleep(CALM_S)
                self._nudged.clear()
                numbers = await self._read_numbers(before)
                changed = [topic for topic in numbers if numbers[topic] != before.get(topic)]
                for reader in self._readers if changed else ():
                    reader.add(changed)
                before = numbers
        finally:
            if following is not None:
                following.close()

    async def _read_numbers(self, before: Mapping[str, int]) -> Mapping[str, int]:
        """Return the numbers by topic, read off the event loop; the old ones if the store fails."""
        try:
            return await asyncio.to_thread(self._look)
        except MeritoryError:
            return before


class EventStream(Response):
    """A reply that lasts until the page closes, the daemon stops, or its time is over."""

    def __init__(self, live: LiveEvents, headers: Mapping[str, str]) -> None:
        super().__init__(headers=dict(headers), media_type=MEDIA_TYPE)
        del self.headers["content-length"]
        self._live = live
        self._reader = live.join()

    async def __call__(self, scope: Any, receive: Receive, send: Any) -> None:
        """Send events until the stream ends."""
        reader = self._reader

        async def end_when_left() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            reader.end()

        leaving = asyncio.ensure_future(end_when_left())
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
                await self._send_events(reader, send, scope)
            await send({"type": "http.response.body", "body": b""})
        finally:
            leaving.cancel()
            self._live.leave(reader)

    async def _send_events(self, reader: EventReader, send: Any, scope: Any) -> None:
        piece = b"retry: 1000\n\n"
        ends_s = asyncio.get_running_loop().time() + STREAM_LIFE_S
        while not reader.is_over and asyncio.get_running_loop().time() < ends_s:
            try:
                async with asyncio.timeout(STALL_LIMIT_S):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            except TimeoutError:
                scope[HANG_UP_KEY]()
                return
            piece = await reader.next()


def file_number(path: Path) -> int:
    """Return a number that changes when a file grows or is replaced; 0 without a file."""
    try:
        info = os.stat(path)
    except OSError:
        return 0
    return hash((info.st_ino, info.st_size))
