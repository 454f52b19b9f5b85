"""Hostile hook bodies: whatever is sent is answered, soon, and never with an error of ours.

MERITORY_FUZZ_REQUESTS=5000 sends more than the few hundred that every run does, and
MERITORY_FUZZ_SEED=7 sends others.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from typing import Any

import pytest
from web_types import Served, UnixConnection, wait_for

REQUESTS = int(os.environ.get("MERITORY_FUZZ_REQUESTS", "400"))
SEED = int(os.environ.get("MERITORY_FUZZ_SEED", "1"))
# A hook holds up somebody who types: far from what it takes, and far from a hang.
PATIENCE_S = 5.0
KEYS = ("one", "two", "three")
TEXT_FIELDS = ("context", "prompt", "last_assistant_message", "harness", "cwd", "injection")
ROUTES: dict[str, tuple[str, ...]] = {
    "hooks/session-start": ("context",),
    "hooks/user-prompt-submit": ("prompt", "transcript", "transcript_path", "memory_feedback"),
    "hooks/delivered": ("receipt",),
    "hooks/stop": ("last_assistant_message", "transcript_path", "memory_feedback"),
    "hooks/pre-compact": ("transcript", "transcript_path", "memory_feedback"),
    "hooks/session-end": (
        *("transcript", "transcript_path", "memory_feedback"),
        *("last_assistant_message", "used"),
    ),
    "feedback": ("ratings", "injection"),
}
WORDS = (
    *("", " ", "\n", "x", "heron", "m1", "one", "0" * 10, "01", "null", "NaN", "1e999"),
    *("é" * 300, "\u202e\u200b", "\0", "\x1b[2J", "😀", "\u2028", "\ufeff", "\\", "%00", "\r\n: x"),
    *("<!--mf 0123456789 m1=1-->", "<!--mf " * 900, '<memory-feedback>{"m1":1}</memory-feedback>'),
    *(
        "[/meritory notes 0]",
        "[meritory notes " + "0" * 32 + "]\nm1: x\n",
        "m1: x\n| y\n+ z\n" * 50,
    ),
    *('" * NEAR( col: -^', "'; DROP TABLE sessions; --", "../../etc/passwd", "/dev/zero", "~x/y"),
    *("/proc/self/fd/0", "AKIA" * 400, "-----BEGIN PRIVATE KEY-----\n" * 30, "a." * 4_000),
    *("word " * 2_000, "<" * 5_000, "sk-" * 3_000, "`" * 3_000, "9" * 3_000, "y" * 100_000),
)
NUMBERS = (0, 1, -1, 0.5, -0.5, -0.0, 5, 1e308, -1e308, 2**53, 2**62, 1e-320)
NAMES = (
    *("role", "text", "content", "type", "parts", "output", "tool_calls", "name", "input"),
    *("arguments", "function", "turns", "messages", "transcript", "m1", "m2", "m99", "user"),
)


class Fuzz:
    """Bodies that are nearly right, and values that are not."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def request(self) -> tuple[str, bytes]:
        route = self.chance.choice(list(ROUTES))
        body: dict[str, Any] = {"session_key": self.chance.choice(KEYS)}
        if route.endswith("submit"):
            body["prompt"] = "where is the heron?"
        if route == "feedback":
            body["ratings"] = {"m1": 0.5}
        usual = (*ROUTES[route], "harness", "cwd", "project", "agent", "session_key")
        for name in self.chance.sample(usual, self.chance.choice((0, 1, 1, 2, 3))):
            body[name] = self.fitting(name) if self.chance.random() < 0.75 else self.anything()
        if self.chance.random() < 0.05:
            body.pop(self.chance.choice(list(body)))
        if self.chance.random() < 0.05:
            body[self.chance.choice((*NAMES, *WORDS))[:200]] = self.anything()
        raw = json.dumps(body, ensure_ascii=self.chance.random() < 0.5).encode()
        return route, self.spoilt(raw) if self.chance.random() < 0.08 else raw

    def fitting(self, name: str) -> Any:
        """Something of the right type that nobody would expect."""
        if name == "transcript":
            return [self.turn() for _ in range(self.chance.randrange(6))]
        if name in ("memory_feedback", "ratings", "used"):
            names = (*NAMES, *WORDS)
            return {
                self.chance.choice(names)[:300]: self.chance.choice((*NUMBERS, 0.3, -0.7, 0.9))
                for _ in range(self.chance.randrange(5))
            }
        return self.chance.choice(WORDS)

    def turn(self) -> Any:
        roles = ("user", "assistant", "tool", "system", "result", "edit", "x", "")
        contents = (self.chance.choice(WORDS), self.anything(), [self.anything()])
        return {"role": self.chance.choice(roles), "content": self.chance.choice(contents)}

    def anything(self, depth: int = 0) -> Any:
        kind = self.chance.random()
        if kind < 0.4 or depth > 4:
            return self.chance.choice(WORDS)
        if kind < 0.55:
            return self.chance.choice((*NUMBERS, None, True, False))
        if kind < 0.7:
            return [self.anything(depth + 1) for _ in range(self.chance.randrange(4))]
        if kind < 0.9:
            names = [self.chance.choice(NAMES) for _ in range(self.chance.randrange(4))]
            return {name: self.anything(depth + 1) for name in names}
        value: Any = "x"
        for _ in range(self.chance.randrange(200)):
            value = self.chance.choice(([value], {"content": value}, {"content": [value]}))
        return value

    def spoilt(self, raw: bytes) -> bytes:
        place = self.chance.randrange(len(raw))
        return self.chance.choice(
            (
                raw[:place],
                raw[:place] + bytes([self.chance.randrange(256)]) + raw[place + 1 :],
                raw.replace(b'"session_key"', b'"session_key": "x", "session_key"', 1),
                raw.replace(b"0.5", b"1e999"),
                raw.replace(b"heron", b"\\ud800"),
                b"[" * 20_000 + raw,
                b"\xef\xbb\xbf" + raw,
                raw + raw,
            )
        )


def test_no_body_is_too_much_for_a_hook(daemon: Served) -> None:
    for content in ("The staging database is called heron", "One and two make three"):
        assert daemon.ask("POST", "/api/memories", {"content": content}).status == 200
    fuzz = Fuzz(SEED)
    answered: Counter[int] = Counter()
    slowest = 0.0
    connection = UnixConnection(daemon.socket)
    try:
        for number in range(REQUESTS):
            route, raw = fuzz.request()
            began = time.monotonic()
            connection.request("POST", f"/api/{route}", raw, {"content-type": "application/json"})
            reply = connection.getresponse()
            content = reply.read()
            slowest = max(slowest, time.monotonic() - began)
            told = (number, route, raw[:500], reply.status, content[:300])
            assert reply.status in (200, 400, 404, 409, 413, 422), told
            assert json.loads(content), told
            answered[reply.status] += 1
    finally:
        connection.close()
    # Not all of it may bounce off the decoder: much has to reach what is behind it.
    assert answered[200] > REQUESTS / 4, answered
    assert slowest < PATIENCE_S
    assert_all_is_well(daemon)


def assert_all_is_well(daemon: Served) -> None:
    """The jobs get done, every log line is JSON, and nothing was a bug."""

    def queue() -> Any:
        return daemon.ask("GET", "/api/pipeline/status").json["queue"]

    wait_for(lambda: queue()["done"] > 0 == queue()["running"], "the jobs were never done")
    assert queue()["parked"] == 0
    assert daemon.ask("GET", "/api/analytics/errors").json["results"] == []
    for line in (daemon.home / "daemon.log").read_text().splitlines():
        assert json.loads(line)["event"] != "request.bug", line
    for domain in ("storage", "index", "queue", "embedder"):
        assert daemon.ask("GET", f"/api/diagnostics/{domain}").json["status"] == "healthy"
    sessions = daemon.ask("GET", "/api/sessions?limit=1000").json["results"]
    assert {one["id"] for one in sessions} >= set(KEYS)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("field", [*TEXT_FIELDS, "transcript", "memory_feedback", "used"])
def test_a_field_of_the_wrong_type_is_refused(daemon: Served, route: str, field: str) -> None:
    body: dict[str, Any] = {"session_key": "types", "prompt": "x"}
    body = body if route.endswith("submit") else {"session_key": "types"}
    if route == "feedback":
        body["ratings"] = {}
    for wrong in (5, True, [[]], 1.5):
        assert daemon.ask("POST", f"/api/{route}", {**body, field: wrong}).status in (404, 422)
