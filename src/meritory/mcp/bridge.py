"""Relays requests from stdio to the daemon: finds it, starts it, and retries once."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from meritory.mcp.protocol import INTERNAL, VERSION_KEY, Json, McpFault, McpRequest, failed
from meritory.mcp.table import BY_NAME

if TYPE_CHECKING:
    from pathlib import Path

    from meritory.api.client import Daemon

# The longest wait of a client for an answer.
ANSWER_WAIT_MS: Final = 20_000
# Some clients list resources first: an empty list is better than a wait.
LISTING: Final = "resources/list"
LISTING_WAIT_MS: Final = 2_000
# The process that starts the daemon has already waited for it.
_SETTLE_MS: Final = 1_000
_OWN_META: Final = VERSION_KEY.rpartition("/")[0] + "/"


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
            reply = self._send_or_retry(request)
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

    def _send_or_retry(self, request: McpRequest) -> Any:
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
                    _start(home)
                    self._daemon = client.ensure(home, _SETTLE_MS)
            except (MeritoryError, OSError) as error:
                self._failure, self._failed_at_s = error, time.monotonic()
                raise
            return self._daemon


def _start(home: Path) -> None:
    """Start the daemon through a process that ends: clients kill a server with its children."""
    words = ["-P", "-m", "meritory", "--home", str(home), "up", "--background"]
    streams = [(os.POSIX_SPAWN_OPEN, place, os.devnull, os.O_RDWR, 0) for place in range(3)]
    child = os.posix_spawn(
        sys.executable, [sys.executable, *words], os.environ, file_actions=streams, setsid=True
    )
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)
