"""A model on loopback that says what a script tells it, and writes down what it was asked.

    python model_server.py FOLDER [--own-network]

FOLDER/script.json is read anew for every request:

    {"text": "Done. <!--mf {code} {handle}=0.7-->",   what it replies
     "find": {"code": "regex", "handle": "regex"},    filled in from the request, the last match
     "tool": {"name": "memory_feedback",              called once per script, where it is offered
              "arguments": {"injection": "{code}"}}}

FOLDER/requests.jsonl gets a line for every request, FOLDER/port the port. What is not found in a
request becomes the word no-NAME (side requests, such as those for a title, hold no memories);
without a script, and to what it does not understand, the server answers with an error.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import re
import socket
import struct
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from model_wire import MODEL, Json, Protocol, Reply, Tool, protocol_of, texts

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_SET_FLAGS, _UP_AND_RUNNING = 0x8914, 0x41


class ScriptFailed(Exception):
    """The script cannot be followed for this request."""


class Author:
    """Decides what the model says: the script, applied to a request."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._number = 0
        self._has_called: str | None = None

    def reply(self, protocol: Protocol, body: Json) -> Reply:
        """The reply to a request; a tool is called once per script, where it is offered."""
        try:
            source = (self._folder / "script.json").read_text("utf-8")
        except FileNotFoundError as error:
            raise ScriptFailed("there is no script") from error
        script = json.loads(source)
        said = "\n".join(texts(body))
        with self._lock:
            self._number += 1
            number, wanted = self._number, script.get("tool")
            tool = _offered(protocol.tools(body), wanted["name"]) if wanted else None
            if wanted and tool and self._has_called != source:
                self._has_called = source
                arguments = _filled(wanted["arguments"], script, said)
                return Reply(tool=tool, arguments=arguments, number=number)
        return Reply(text=_filled(script["text"], script, said), number=number)

    def note(self, entry: Json) -> None:
        """Writes down a request and what was said to it."""
        with self._lock, (self._folder / "requests.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(entry) + "\n")


def _offered(tools: Iterable[Tool], name: str) -> Tool | None:
    """The tool of that name; clients put the name of the server before it, each in its own way."""
    return next((tool for tool in tools if tool.name.endswith(name)), None)


def _filled(value: Any, script: Json, said: str) -> Any:
    """The value with every placeholder taken from what the request says."""
    if isinstance(value, str):
        return _PLACEHOLDER.sub(lambda found: _found(found[1], script, said), value)
    if isinstance(value, dict):
        return {
            _filled(key, script, said): _filled(inner, script, said) for key, inner in value.items()
        }
    return value


def _found(name: str, script: Json, said: str) -> str:
    pattern = script.get("find", {}).get(name)
    if pattern is None:
        raise ScriptFailed(f"the script does not say how to find {{{name}}}")
    matches = list(re.finditer(pattern, said))
    if not matches:
        return f"no-{name}"
    return matches[-1][1]


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    author: Author

    def do_HEAD(self) -> None:
        """Clients look whether anybody is there."""
        self._send(200, {})

    def do_GET(self) -> None:
        """The list of models, in the shape that most clients read."""
        one = {"id": MODEL, "object": "model", "name": MODEL, "created": 0, "owned_by": "tests"}
        is_list = self.path.partition("?")[0].endswith("/models")
        self._send(200 if is_list else 404, {"object": "list", "data": [one]} if is_list else {})

    def do_POST(self) -> None:
        """A request to the model."""
        raw = self._body()
        path = self.path.partition("?")[0]
        try:
            body = json.loads(raw or b"{}")
        except ValueError:
            self._refuse(path, raw.decode("utf-8", "replace"), "the body is not JSON")
            return
        if path.endswith("/count_tokens"):
            self._send(200, {"input_tokens": 11})
            return
        protocol = protocol_of(path)
        if protocol is None:
            self._refuse(path, body, "no protocol has this path", status=404)
            return
        try:
            reply = self.author.reply(protocol, body)
        except ScriptFailed as error:
            self._refuse(path, body, str(error))
            return
        said = {"tool": reply.tool.name, "arguments": reply.arguments} if reply.tool else reply.text
        self.author.note({"protocol": protocol.name, "path": path, "body": body, "reply": said})
        if protocol.wants_stream(path, body):
            self._stream(protocol.pieces(reply))
        else:
            self._send(200, protocol.whole(reply))

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def _refuse(self, path: str, body: Any, why: str, status: int = 400) -> None:
        self.author.note({"protocol": None, "path": path, "body": body, "failed": why})
        self._send(status, {"error": {"type": "invalid_request_error", "message": why}})

    def _send(self, status: int, value: Json) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _stream(self, pieces: Iterable[str]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            content = piece.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing: the log of requests is what counts."""


class Server(ThreadingHTTPServer):
    """A server that does not outlive whoever started it."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        handler = type("Scripted", (Handler,), {"author": Author(folder)})
        super().__init__(("127.0.0.1", 0), handler)
        self._parent = os.getppid()

    def service_actions(self) -> None:
        """Looked at between requests, and twice a second."""
        if os.getppid() != self._parent:
            raise KeyboardInterrupt


def server(folder: Path) -> Server:
    """A server on a free port of loopback that follows the script in the folder."""
    return Server(folder)


def raise_loopback() -> None:
    """In a network namespace of its own even loopback is down at first."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        request = struct.pack("16sh14x", b"lo", _UP_AND_RUNNING)
        fcntl.ioctl(handle, _SET_FLAGS, request)


def main() -> None:
    """Serves until it is ended."""
    parser = argparse.ArgumentParser(description="A scripted model on loopback.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--own-network", action="store_true", help="bring loopback up first")
    given = parser.parse_args()
    if given.own_network:
        raise_loopback()
    with server(given.folder) as made, contextlib.suppress(KeyboardInterrupt):
        announced = given.folder / "port.new"
        announced.write_text(str(made.server_address[1]), "ascii")
        announced.rename(given.folder / "port")
        made.serve_forever()


if __name__ == "__main__":
    main()
