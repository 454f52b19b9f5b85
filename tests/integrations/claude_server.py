"""A model on loopback that answers by a script, in the form of Anthropic's API."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


def said(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "stop_reason": "end_turn"}


def used(**told: Any) -> dict[str, Any]:
    block = {"type": "tool_use", "id": "toolu_1", "name": "memory", "input": told}
    return {"content": [block], "stop_reason": "tool_use"}


class ModelServer:
    """Answers one request after another."""

    def __init__(self, script: list[dict[str, Any]]) -> None:
        self.asked: list[dict[str, Any]] = []
        left = iter(script)
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                asked.append(json.loads(self.rfile.read(length)))
                reply = {
                    "id": "msg_1",
                    "type": "message",
                    "role": "assistant",
                    "model": "scripted",
                    "stop_sequence": None,
                    "usage": {"input_tokens": 1, "output_tokens": 1},
                    **next(left),
                }
                content = json.dumps(reply).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *told: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *told: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
