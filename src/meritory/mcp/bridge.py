"""From the process on stdio to the daemon: found, started when it is down, asked again once."""

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

# What a client waits at most for an answer.
ANSWER_WAIT_MS: Final = 20_000
# Some clients list resources before they do anything else: they had better see none than wait.
LISTING: Final = "resources/list"
LISTING_WAIT_MS: Final = 2_000
# A start that was waited for already.
_SETTLE_MS: Final = 1_000
_OWN_META: Final = VERSION_KEY.rpartition("/")[0] + "/"


class Bridge:
    """The daemon of one data folder, asked on behalf of one client."""

    def __init__(self, home: str | None, caller: Mapping[str, str]) -> None:
        self._home = home
        self._caller = dict(caller)
        self._lock = threading.Lock()
        self._daemon: Daemon | None = None
        self._failure: Exception | None = None
        self._failed_at_s = 0.0

    def warm(self) -> threading.Thread:
        """Finds or starts the daemon meanwhile; whoever asks before it is there waits for it."""
        thread = threading.Thread(target=self._warm, name="meritory-mcp-warm", daemon=True)
        thread.start()
        return thread

    def _warm(self) -> None:
        from meritory.domain.errors import MeritoryError

        # Whoever asks will hear what is wrong.
        with contextlib.suppress(MeritoryError, OSError):
            self._reached()

    def ask(self, request: McpRequest) -> Json:
        """What the daemon answers; a tool that cannot be asked fails as a tool, not as a server."""
        from meritory.domain.errors import MeritoryError

        if request.method == LISTING and not self._is_reached_soon():
            return {"resources": []}
        try:
            reply = self._asked(request)
        except (MeritoryError, OSError) as error:
            if request.method == LISTING:
                return {"resources": []}
            told = f"memory is out of reach: {error}"
            if request.method == "tools/call":
                return failed(f"{told}. Go on without it, and try again later.")
            raise McpFault(INTERNAL, told) from error
        if isinstance(reply, dict) and isinstance(reply.get("result"), dict):
            return dict(reply["result"])
        fault = reply.get("error") if isinstance(reply, dict) else None
        if isinstance(fault, dict) and isinstance(fault.get("code"), int):
            raise McpFault(fault["code"], str(fault.get("message", "")), fault.get("data"))
        raise McpFault(INTERNAL, "the daemon answered something else than was agreed")

    def _is_reached_soon(self) -> bool:
        """Whether the daemon is there, or will be before long."""
        if self._daemon is None:
            self.warm().join(LISTING_WAIT_MS / 1000)
        return self._daemon is not None

    def _asked(self, request: McpRequest) -> Any:
        from meritory.api.client import DaemonDown

        daemon = self._reached()
        try:
            return self._sent(daemon, request)
        except DaemonDown as error:
            # It ended since.
            self._forget(daemon)
            was_heard = not isinstance(error.__cause__, FileNotFoundError | ConnectionRefusedError)
            if was_heard and not _may_repeat(request):
                raise
            return self._sent(self._reached(), request)

    def _sent(self, daemon: Daemon, request: McpRequest) -> Any:
        from urllib.parse import urlencode

        # Between us and the daemon no era is needed: what belongs to one is added here.
        meta = {name: value for name, value in request.meta.items() if _is_for_daemon(name)}
        message = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": request.method,
            "params": {**request.params, "_meta": meta},
        }
        path = f"/mcp?{urlencode(self._caller)}" if self._caller else "/mcp"
        wait_ms = LISTING_WAIT_MS if request.method == LISTING else ANSWER_WAIT_MS
        return daemon.request("POST", path, message, wait_ms)

    def _reached(self) -> Daemon:
        from meritory.api import client
        from meritory.domain.errors import MeritoryError
        from meritory.settings.home import HOME_VARIABLE, home_folder

        began_s = time.monotonic()
        with self._lock:
            if self._daemon is not None:
                return self._daemon
            if self._failure is not None and self._failed_at_s >= began_s:
                # Whoever waited while another tried in vain need not try for as long again.
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

    def _forget(self, daemon: Daemon) -> None:
        with self._lock:
            if self._daemon is daemon:
                self._daemon = None
            # The one that ended may have been started here.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, os.WNOHANG)


def _start(home: Path) -> None:
    """Starts the daemon by way of a process that ends: clients end a server with its children."""
    words = ["-P", "-m", "meritory", "--home", str(home), "up", "--background"]
    streams = [(os.POSIX_SPAWN_OPEN, place, os.devnull, os.O_RDWR, 0) for place in range(3)]
    child = os.posix_spawn(
        sys.executable, [sys.executable, *words], os.environ, file_actions=streams, setsid=True
    )
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)


def _may_repeat(request: McpRequest) -> bool:
    """Whether asking twice does what asking once does."""
    tool = BY_NAME.get(str(request.params.get("name"))) if request.method == "tools/call" else None
    return tool is None or tool.is_idempotent


def _is_for_daemon(name: str) -> bool:
    return not name.startswith(_OWN_META)
