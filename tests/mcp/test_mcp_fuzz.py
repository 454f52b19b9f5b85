"""Some thousand frames, broken in every way, through the real process and the real daemon."""

from __future__ import annotations

import json
import random
from typing import Any

from mcp_kit import ENVELOPE, Piped, called, mirrored, post, request, stateless

from meritory.api.client import Daemon
from meritory.mcp.table import TOOLS

FRAMES = 2_500
REQUESTS = 300
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 2**70, 1.5, "", " ", "x", "\x00", "\ud800", "ü" * 300),
    *([], {}, [[]], {"": {}}, "x" * 9_000, "</a>", "meritory://memory/", "meritory://session/%00"),
    *(ENVELOPE, {"m1": 5}, {"m1": None}, ["a"] * 100, "0000nobody", "m1", "2026-07-28"),
)
SEEDS = (
    *(called(tool.name, query="x", id="0000") for tool in TOOLS),
    called("memory_search", query="shop", limit=3),
    called("memory_store", content="Fuzz is on the shelf", kind="fact", tags=["a"]),
    called("memory_feedback", injection="0123456789", ratings={"m1": 1}),
    *(request(method) for method in ("ping", "tools/list", "resources/list", "no/such")),
    request("initialize", {"protocolVersion": "2025-06-18"}),
    request("resources/read", {"uri": "meritory://memory/0000"}),
    *(stateless(method) for method in ("server/discover", "tools/list", "resources/list")),
    stateless("tools/call", {"name": "memory_get", "arguments": {"id": "x"}}),
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "nobody"}},
)


def bent(rng: random.Random, value: Any) -> Any:
    """The same value with something in it lost, exchanged or added."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        name = rng.choice(list(value))
        chance = rng.random()
        if chance < 0.2:
            return {key: inner for key, inner in value.items() if key != name}
        if chance < 0.3:
            return {**value, str(rng.choice(ODD))[:20]: rng.choice(ODD)}
        return {**value, name: bent(rng, value[name])}
    return rng.choice(ODD)


def frame(rng: random.Random) -> bytes:
    message = rng.choice(SEEDS)
    for _ in range(rng.randint(0, 2)):
        message = bent(rng, message)
    raw = json.dumps([message] if rng.random() < 0.02 else message).encode()
    if rng.random() < 0.15:
        at = rng.randrange(len(raw) + 1)
        raw = raw[:at] + rng.randbytes(rng.randint(0, 3)) + raw[at + rng.randint(0, 3) :]
    return raw.replace(b"\n", b" ")


def owed(raw: bytes) -> bool:
    """Whether a frame has to be answered, by the rules of JSON-RPC alone."""
    try:
        message = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError):
        return bool(raw.strip())
    if not isinstance(message, dict):
        return True
    if "method" in message:
        return "id" in message
    return "result" not in message and "error" not in message


def test_no_frame_goes_unanswered_and_none_is_the_last(shared: Piped) -> None:
    rng = random.Random(12)
    for start in range(0, FRAMES, 50):
        frames = [frame(rng) for _ in range(50)]
        shared.send(*frames)
        # Nothing of a frame that is not strict JSON but for us may make a difference.
        count = sum(owed(raw) for raw in frames)
        for _ in range(count):
            reply = shared.receive()
            assert reply["jsonrpc"] == "2.0", (start, reply)
            assert ("result" in reply) != ("error" in reply)
            if "error" in reply:
                assert "bug" not in reply["error"]["message"], reply
    assert shared.ask(request("ping", number="last"))["id"] == "last"


def test_no_request_breaks_the_daemon(daemon: Daemon) -> None:
    rng = random.Random(13)
    for _ in range(REQUESTS):
        raw = frame(rng)
        headers: dict[str, str] = {}
        if rng.random() < 0.4:
            method = str(rng.choice(["tools/call", "tools/list", "ping"]))
            headers = mirrored(stateless(method, {"name": "memory_get"}))
        reply = post(daemon, raw, headers)
        assert reply.status in (200, 202, 400, 404), (raw, reply.content)
        if reply.status != 202 and raw.strip():
            found = reply.json
            for one in found if isinstance(found, list) else [found]:
                assert one["jsonrpc"] == "2.0"
    failures = daemon.request("GET", "/api/stats")["figures"]
    assert failures["live"] >= 0
