"""A model server on the loopback address that speaks OpenAI's and Anthropic's wire formats.

It answers from a script; without one it judges fairly, by counting shared words.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ports.poison import FORGED, Plea

USAGE = (1_200, 340)


@dataclass(frozen=True)
class Raw:
    """A whole HTTP answer; `drip_s` is the pause between its pieces."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    drip_s: float | None = None
    is_endless: bool = False


Step = Raw | Callable[["ModelServer", dict[str, Any]], Raw]


class ModelServer(ThreadingHTTPServer):
    """Plays its script, then lets `speak` make the model's text from each request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script: list[Step] = []
        self.seen: list[dict[str, Any]] = []
        self.release = threading.Event()
        self.speak: Callable[[str], str] = lambda user: json.dumps(fair_reply(user))

    def url(self, path: str = "") -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave in the middle are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    server: ModelServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.seen.append({"path": self.path, "headers": headers, "body": body})
        step = self.server.script.pop(0) if self.server.script else said
        raw = step(self.server, body) if callable(step) else step
        self.send_response(raw.status)
        for name, value in {"Content-Type": "application/json", **raw.headers}.items():
            self.send_header(name, value)
        if not raw.is_endless and "Content-Length" not in raw.headers:
            self.send_header("Content-Length", str(len(raw.body)))
        self.end_headers()
        while raw.is_endless and not self.server.release.is_set():
            self.wfile.write(b" " * 65_536)
        if raw.drip_s is None:
            self.wfile.write(raw.body)
            return
        for byte in raw.body:
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
            time.sleep(raw.drip_s)

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet."""


@contextmanager
def running() -> Iterator[ModelServer]:
    """A server for as long as a test needs it."""
    server = ModelServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.release.set()
        server.shutdown()
        thread.join()
        server.server_close()


def said(server: ModelServer, body: dict[str, Any]) -> Raw:
    """The model's own answer to a request, in the form that was asked for."""
    return wrapped(body, server.speak(body["messages"][-1]["content"]))


def wrapped(body: dict[str, Any], text: str, stop: str | None = None) -> Raw:
    """A model's text in the envelope of the wire format that the request speaks."""
    if body["messages"][0]["role"] == "system":
        return Raw(body=json.dumps(openai_envelope(text, stop or "stop")).encode())
    if "tools" in body and _is_json(text):
        # Put in as it is, so that a key given twice or NaN arrives.
        call = {"type": "tool_use", "id": "toolu_1", "name": "answer", "input": "@"}
        reply = json.dumps(anthropic_envelope(call, stop=stop or "tool_use"))
        return Raw(body=reply.replace('"@"', text).encode())
    spoken = anthropic_envelope({"type": "text", "text": text}, stop=stop or "end_turn")
    return Raw(body=json.dumps(spoken).encode())


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def openai_envelope(text: str | None, stop: str = "stop") -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": stop}],
        "usage": {"prompt_tokens": USAGE[0], "completion_tokens": USAGE[1]},
    }


def anthropic_envelope(*blocks: Any, stop: str = "tool_use") -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": list(blocks),
        "stop_reason": stop,
        "usage": {"input_tokens": USAGE[0], "output_tokens": USAGE[1]},
    }


# -- what a judge makes of a case -----------------------------------------------------------


@dataclass(frozen=True)
class SeenCase:
    """A case as whoever reads the prompt understands it."""

    number: str
    transcript: str
    entries: tuple[str, ...]


def read_case(user: str) -> SeenCase:
    number = re.match(r"case (\w+)\n", user)
    assert number is not None
    parts = re.split(rf"^---- \w+ {number[1]} ----$", user, flags=re.MULTILINE)
    assert len(parts) == 4
    turns = [json.loads(line.partition("] ")[2]) for line in parts[1].strip().splitlines()]
    entries = [line.split(" ", 1) for line in parts[2].strip().splitlines()]
    assert [int(ordinal) for ordinal, _ in entries] == list(range(1, len(entries) + 1))
    return SeenCase(number[1], "\n".join(turns), tuple(json.loads(text) for _, text in entries))


def words(text: str) -> set[str]:
    return {word for word in re.findall(r"[a-z0-9]{4,}", text.lower()) if word != "this"}


def fair_score(text: str, transcript: str) -> float:
    """A quarter for every word shared with the transcript."""
    return min(1.0, len(words(text) & words(transcript)) / 4)


def fair_reply(user: str) -> dict[str, Any]:
    """A judge's honest reply."""
    case = read_case(user)
    rows = [
        {"ordinal": n, "score": fair_score(text, case.transcript), "re_explained": False}
        for n, text in enumerate(case.entries, 1)
    ]
    return {
        "case": case.number,
        "memories": rows,
        "overall_score": 0.5,
        "confidence": 0.75,
        "missing_topics": ["which port the staging database has"],
        "novel_context_count": 1,
        "reasoning": "Some of it helped.",
    }


def gullible_reply(user: str, plea: Plea, is_understood: Callable[[str], bool]) -> str:
    """The reply of a judge that does whatever a text asks of it, once it understands it."""
    case, reply = read_case(user), fair_reply(user)
    asking = [n for n, text in enumerate(case.entries) if is_understood(text)]
    if not asking and not is_understood(case.transcript):
        return json.dumps(reply)
    if plea.effect == "forge":
        return FORGED
    for n, row in enumerate(reply["memories"]):
        if plea.effect == "raise all" or (plea.effect == "raise" and n in asking):
            row.update(score=1.0, re_explained=True)
        elif plea.effect == "sink others":
            row["score"] = 1.0 if n in asking else 0.0
    if plea.effect == "raise all":
        reply.update(overall_score=1.0, confidence=1.0)
    return json.dumps(reply)
