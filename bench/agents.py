"""Made-up agents and their line to a daemon: sessions with prompts, replies, ratings and an end."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from bench import stock

PROMPTS_PER_SESSION, PROMPTS_PER_STOP = 14, 3
LINES_LIMIT = 400

Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


# -- the line -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """A status, whether it says when to come back, the body, and how long it took once sent."""

    status: int
    says_when: bool
    body: Any
    took_ms: float = 0.0


class Lines:
    """Kept connections to a Unix socket, as many as are in use at once."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._idle: list[Line] = []
        self._room = asyncio.Semaphore(LINES_LIMIT)

    async def ask(self, path: str, body: dict[str, Any]) -> Answer:
        """One request; a kept connection that was closed meanwhile is opened anew."""
        async with self._room:
            if self._idle:
                with suppress(ConnectionError, asyncio.IncompleteReadError):
                    return await self._on(self._idle.pop(), path, body)
            return await self._on(await asyncio.open_unix_connection(self._path), path, body)

    async def _on(self, line: Line, path: str, body: dict[str, Any]) -> Answer:
        reader, writer = line
        is_kept = False
        content = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            f"content-length: {len(content)}\r\n\r\n"
        )
        sent_s = time.perf_counter()
        try:
            writer.write(head.encode() + content)
            found = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
            fields = dict(part.split(": ", 1) for part in found[1:] if part)
            raw = await reader.readexactly(int(fields["content-length"]))
            took_ms = (time.perf_counter() - sent_s) * 1e3
            is_kept = fields.get("connection") != "close"
        finally:
            if is_kept:
                self._idle.append(line)
            else:
                writer.close()
        status = int(found[0].split()[1])
        return Answer(status, "retry-after" in fields, json.loads(raw), took_ms)

    async def close(self) -> None:
        """Hangs up."""
        for _, writer in self._idle:
            writer.close()
            await writer.wait_closed()
        self._idle.clear()


# -- who asks -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    """One thing to ask."""

    kind: str
    path: str
    body: dict[str, Any]


class Agent:
    """One agent that has one session after the other."""

    def __init__(self, name: str, draw: random.Random, asked: list[str]) -> None:
        self._name, self._draw, self._asked = name, draw, asked
        self._count = 0
        # The first session is cut short somewhere, or all agents would end theirs together.
        self._begin(draw.randint(1, PROMPTS_PER_SESSION))

    def _begin(self, prompt_count: int = PROMPTS_PER_SESSION) -> None:
        self._count += 1
        self._key = f"{self._name}-{self._count}"
        self._steps = list(_script(prompt_count))
        self._said: list[dict[str, str]] = []
        self._shown: dict[str, Any] = {}

    def request(self) -> Request:
        """What it asks next."""
        kind = self._steps[0]
        body: dict[str, Any] = {"session_key": self._key, "project": stock.PROJECT}
        text = self._draw.choice(self._asked)
        if kind == "start":
            body["context"] = text
        elif kind == "prompt":
            body["prompt"] = text
        elif kind == "stop":
            body["last_assistant_message"] = f"It is done, see {text}\n{self._ratings()}"
        else:
            body["transcript"] = self._said
        return Request(kind, f"/api/hooks/{_HOOKS[kind]}", body)

    def _ratings(self) -> str:
        handles = [one["handle"] for one in self._shown.get("memories", [])][:3]
        if not handles:
            return ""
        rated = " ".join(f"{handle}={self._draw.choice((0, 0.5, 1))}" for handle in handles)
        return f"<!--mf {self._shown['injection']} {rated}-->"

    def took(self, request: Request, answer: dict[str, Any]) -> None:
        """What was asked is done: on to the next step."""
        self._steps.pop(0)
        if request.kind == "prompt":
            self._said.append({"role": "user", "text": request.body["prompt"]})
        if request.kind == "stop":
            told = request.body["last_assistant_message"]
            self._said.append({"role": "assistant", "text": told})
        if request.kind in ("start", "prompt"):
            self._shown = answer
        if not self._steps:
            self._begin()


_HOOKS = {
    "start": "session-start",
    "prompt": "user-prompt-submit",
    "stop": "stop",
    "end": "session-end",
}


def _script(prompt_count: int) -> Iterator[str]:
    yield "start"
    for number in range(1, prompt_count + 1):
        yield "prompt"
        if number % PROMPTS_PER_STOP == 0 or number == prompt_count:
            yield "stop"
    yield "end"
