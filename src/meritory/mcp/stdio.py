"""The MCP server on stdin and stdout: it answers at once and relays slow requests to the daemon.

The relay finds the daemon, starts it, and retries once.
It writes only messages to stdout and nothing to stderr. It reads a few variables of the environment
and sends none of the others: clients keep tokens there.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from meritory.mcp import protocol
from meritory.mcp.protocol import (
    INTERNAL,
    LINE_LIMIT_BYTES,
    VERSION_KEY,
    Json,
    McpFault,
    McpRequest,
    failed,
    framed,
    lines,
)
from meritory.mcp.table import BY_NAME

if TYPE_CHECKING:
    from meritory.api.client import Daemon

# The longest wait of a client for an answer.
ANSWER_WAIT_MS: Final = 20_000
# Some clients list resources first: an empty list is better than a wait.
LISTING: Final = "resources/list"
LISTING_WAIT_MS: Final = 2_000
# The process that starts the daemon has already waited for it.
_SETTLE_MS: Final = 1_000
_OWN_META: Final = VERSION_KEY.rpartition("/")[0] + "/"
UNDER_WAY_LIMIT: Final = 64
# The wait for pending answers after the end of input.
LAST_ANSWERS_S: Final = 5.0
_VALUE_LIMIT_CHARS: Final = 256
_CWD_LIMIT_CHARS: Final = 4_096
_OPTIONS: Final = ("home", "user", "agent", "project", "harness")
_USAGE: Final = (
    "usage: meritory mcp [--home DIR] [--user U] [--agent A] [--project P] [--harness NAME]"
)
_WRONG_USE: Final = 2


class _Ended(Exception):
    """A signal asked this process to end."""


class Bridge:
    """The connection to the daemon for one client."""

    def __init__(self, home: str | None, caller: Mapping[str, str]) -> None:
        self._home = home
        self._caller = dict(caller)
        self._lock = threading.Lock()
        self._daemon: Daemon | None = None
        self._failure: Exception | None = None
        self._failed_at_s = 0.0

    def warm(self) -> threading.Thread:
        """Find or start the daemon in the background; requests wait for it."""

        def reach() -> None:
            from meritory.domain.errors import MeritoryError

            # The next request reports the error.
            with contextlib.suppress(MeritoryError, OSError):
                self._reach()

        thread = threading.Thread(target=reach, name="meritory-mcp-warm", daemon=True)
        thread.start()
        return thread

    def ask(self, request: McpRequest) -> Json:
        """Return the daemon's result. If it is down, a tool call fails as a tool."""
        from meritory.domain.errors import MeritoryError

        if request.method == LISTING and self._daemon is None:
            self.warm().join(LISTING_WAIT_MS / 1000)
            if self._daemon is None:
                return {"resources": []}
        try:
            reply = self._relay(request)
        except (MeritoryError, OSError) as error:
            if request.method == LISTING:
                return {"resources": []}
            message = f"memory is unavailable: {error}"
            if request.method == "tools/call":
                return failed(f"{message}. Continue without it, and try again later.")
            raise McpFault(INTERNAL, message) from error
        if isinstance(reply, dict) and isinstance(reply.get("result"), dict):
            return dict(reply["result"])
        fault = reply.get("error") if isinstance(reply, dict) else None
        if isinstance(fault, dict) and isinstance(fault.get("code"), int):
            raise McpFault(fault["code"], str(fault.get("message", "")), fault.get("data"))
        raise McpFault(INTERNAL, "the daemon sent an invalid answer")

    def _relay(self, request: McpRequest) -> Any:
        """Send a request; if the daemon is gone, start it again and repeat what may be repeated."""
        from meritory.api.client import DaemonDown

        daemon = self._reach()
        try:
            return self._send(daemon, request)
        except DaemonDown as error:
            with self._lock:
                if self._daemon is daemon:
                    self._daemon = None
                # The daemon that ended may be a child of this process.
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(-1, os.WNOHANG)
            was_sent = not isinstance(error.__cause__, FileNotFoundError | ConnectionRefusedError)
            is_call = request.method == "tools/call"
            tool = BY_NAME.get(str(request.params.get("name"))) if is_call else None
            if was_sent and tool is not None and not tool.is_idempotent:
                raise
            return self._send(self._reach(), request)

    def _send(self, daemon: Daemon, request: McpRequest) -> Any:
        from urllib.parse import urlencode

        # The fields of an era are added here, so the daemon needs none of them.
        meta = {
            name: value for name, value in request.meta.items() if not name.startswith(_OWN_META)
        }
        message = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": request.method,
            "params": {**request.params, "_meta": meta},
        }
        path = f"/mcp?{urlencode(self._caller)}" if self._caller else "/mcp"
        wait_ms = LISTING_WAIT_MS if request.method == LISTING else ANSWER_WAIT_MS
        return daemon.request("POST", path, message, wait_ms)

    def _reach(self) -> Daemon:
        from meritory.api import client
        from meritory.domain.errors import MeritoryError
        from meritory.settings.home import HOME_VARIABLE, home_folder

        began_s = time.monotonic()
        with self._lock:
            if self._daemon is not None:
                return self._daemon
            if self._failure is not None and self._failed_at_s >= began_s:
                # Another thread failed while this one waited.
                raise self._failure
            try:
                named = {HOME_VARIABLE: self._home} if self._home else {}
                home = home_folder({**os.environ, **named})
                self._daemon = client.elsewhere(os.environ, home) or client.find(home)
                if self._daemon is None:
                    # Clients kill a server with its children, so a process that ends starts it.
                    words = ["-P", "-m", "meritory", "--home", str(home), "up", "--background"]
                    null = os.devnull
                    streams = [(os.POSIX_SPAWN_OPEN, n, null, os.O_RDWR, 0) for n in range(3)]
                    child = os.posix_spawn(
                        sys.executable,
                        [sys.executable, *words],
                        os.environ,
                        file_actions=streams,
                        setsid=True,
                    )
                    with contextlib.suppress(ChildProcessError):
                        os.waitpid(child, 0)
                    self._daemon = client.ensure(home, _SETTLE_MS)
            except (MeritoryError, OSError) as error:
                self._failure, self._failed_at_s = error, time.monotonic()
                raise
            return self._daemon


class StdioServer:
    """The server of one client, on two pipes."""

    def __init__(self, bridge: Bridge, source: int = 0, sink: int = 1) -> None:
        self._bridge = bridge
        self._source = source
        self._sink = sink
        self._write_lock = threading.Lock()
        self._lock = threading.Lock()
        self._under_way: dict[int, Any] = {}
        self._numbers = itertools.count()
        self._version: str | None = None
        self._is_warm = False

    def serve(self) -> None:
        """Answer until the end of input, then wait for pending answers."""
        for line in lines(lambda size: os.read(self._source, size)):
            if line is None:
                limit = f"a message has at most {LINE_LIMIT_BYTES} bytes"
                self._write(protocol.refusal(None, McpFault(protocol.INVALID_REQUEST, limit)))
                continue
            try:
                message = protocol.parse(line)
            except McpFault as fault:
                self._write(protocol.refusal(None, fault))
                continue
            self._take(message)
        deadline = time.monotonic() + LAST_ANSWERS_S
        while self._under_way and time.monotonic() < deadline:
            time.sleep(0.005)

    def _take(self, message: Any) -> None:
        if protocol.needs_daemon(message):
            with self._lock:
                number = next(self._numbers)
                is_full = len(self._under_way) >= UNDER_WAY_LIMIT
                if not is_full:
                    self._under_way[number] = message
            if is_full:
                busy = f"{UNDER_WAY_LIMIT} requests are pending; wait for one of them"
                self._write(protocol.refusal(message, McpFault(INTERNAL, busy)))
                return
            name = f"meritory-mcp-{number}"
            threading.Thread(target=self._work, args=(number,), name=name, daemon=True).start()
            return
        if isinstance(message, dict) and message.get("method") == "notifications/cancelled":
            self._cancel(message.get("params"))
            return
        reply = protocol.respond(message, self._bridge.ask)
        if reply is None:
            return
        self._write(reply)
        result = reply.get("result", {})
        self._version = result.get("protocolVersion", self._version)
        if result and not self._is_warm:
            # Not earlier: the client waits for the first answer.
            self._is_warm = True
            self._bridge.warm()

    def _work(self, number: int) -> None:
        message = self._under_way.get(number)
        try:
            reply = protocol.respond(message, self._bridge.ask, self._version)
        except Exception:
            # No details: an unknown error may contain secrets.
            fault = McpFault(INTERNAL, "internal error: this is a bug in Meritory")
            reply = protocol.refusal(message, fault)
        with self._lock:
            is_wanted = number in self._under_way
        try:
            if is_wanted and reply is not None:
                # The reading thread notices that a client is gone.
                with contextlib.suppress(OSError):
                    self._write(reply)
        finally:
            with self._lock:
                self._under_way.pop(number, None)

    def _cancel(self, params: Any) -> None:
        """Drop the answer to a cancelled request; the daemon still finishes it."""
        asked = params.get("requestId") if isinstance(params, dict) else None
        with self._lock:
            for number, message in list(self._under_way.items()):
                known = protocol.id_of(message)
                if known is not None and known == asked and type(known) is type(asked):
                    del self._under_way[number]

    def _write(self, message: Any) -> None:
        content = memoryview(framed(message))
        with self._write_lock:
            while content:
                content = content[os.write(self._sink, content) :]


def main(argv: Sequence[str]) -> int:
    """Serve one client; return the exit code."""
    try:
        options = _options(argv)
    except ValueError as error:
        with contextlib.suppress(OSError):
            os.write(2, f"error: {error}\n{_USAGE}\n".encode("utf-8", "replace"))
        return _WRONG_USE
    home = options.pop("home", None)
    server = StdioServer(Bridge(home, caller(options, os.environ)))

    def end(*_: object) -> None:
        raise _Ended

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    # A client ends by closing a stream.
    with contextlib.suppress(_Ended, OSError):
        server.serve()
    return 0


def caller(options: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the caller: from the command line, else from the client's environment."""
    given = {"user": environ.get("MERITORY_USER", ""), **options}
    given["session_key"] = environ.get("CLAUDE_CODE_SESSION_ID", "")
    known = {name: value for name, value in given.items() if _is_valid(value, _VALUE_LIMIT_CHARS)}
    with contextlib.suppress(OSError):
        folder = environ.get("CLAUDE_PROJECT_DIR") or os.getcwd()
        if environ.get("MERITORY_URL"):
            # A remote daemon cannot look into the folder.
            from meritory.hook.remote import repository

            folder = repository(folder)
        if "project" not in known and _is_valid(folder, _CWD_LIMIT_CHARS):
            known["cwd"] = folder
    return known


def _is_valid(value: str, longest: int) -> bool:
    """Return whether the daemon would accept a value from outside."""
    return 0 < len(value) <= longest and value.isprintable() and bool(value.strip())


def _options(argv: Sequence[str]) -> dict[str, str]:
    """Parse the options: `--name value` or `--name=value`."""
    options: dict[str, str] = {}
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or name not in _OPTIONS:
            raise ValueError(f"unknown option {word[:80]!r}")
        if not equals:
            if not rest:
                raise ValueError(f"--{name} needs a value")
            value = rest.pop(0)
        longest = _CWD_LIMIT_CHARS if name == "home" else _VALUE_LIMIT_CHARS
        if not _is_valid(value, longest):
            raise ValueError(f"--{name} must have 1 to {longest} printable characters")
        options[name] = value
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
