"""The daemon process: lock, listen, open, announce, serve, and shut down in order."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import gc
import json
import os
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

import uvicorn

from meritory import __version__
from meritory.api.embedded import settings_place
from meritory.domain.errors import DiskFull, StorageError
from meritory.domain.world import World, moment_text
from meritory.ports.file_lock import held
from meritory.server.app import TABLE, App
from meritory.server.auth import Guard, OwnToken, load_token
from meritory.server.connection import HttpConnection, Listeners, open_listeners
from meritory.server.event_stream import LiveEvents
from meritory.server.logs import Log
from meritory.server.spool import Spool
from meritory.server.table import Route, ServerState
from meritory.settings import Settings, prepare_home
from meritory.settings.home import (
    DAEMON_NAME,
    LOCK_NAME,
    LOG_NAME,
    RESERVE_NAME,
    TOKEN_NAME,
    write_private,
)

# Options by their number in the C library. One arena: Python runs one thread at a time, and each
# arena would keep its own holes. Large arrays get their own pages: they are short-lived and would
# leave holes in the heap.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
OPTIONS = ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, 256 * 1024), (_TRIM_THRESHOLD, 4 * 1024 * 1024))


class MallocTrimmer:
    """The C library's heap; does nothing where the system has another one."""

    def __init__(self) -> None:
        try:
            library = ctypes.CDLL(None)
        except (OSError, TypeError):
            library = None
        self._option: Callable[[int, int], int] | None = getattr(library, "mallopt", None)
        self._trim: Callable[[int], int] | None = getattr(library, "malloc_trim", None)

    def keep_together(self) -> bool:
        """Keep small objects in one heap and large ones out of it; return whether that worked."""
        option = self._option
        # Only a library with `malloc_trim` has these option numbers.
        if option is None or self._trim is None:
            return False
        return all([option(number, value) == 1 for number, value in OPTIONS])

    def trim(self) -> bool:
        """Return free pages to the system; say whether there were any."""
        return self._trim is not None and self._trim(0) == 1


class DiskReserve:
    """A file that keeps some space of the disk, so that a daemon can start on a full one.

    A start needs space for the daemon's address and for the shared memory of SQLite.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._file = home / RESERVE_NAME

    def release(self) -> None:
        """Delete the file if the disk is full."""
        if shutil.disk_usage(self._home).free < RESERVE_BYTES:
            self._file.unlink(missing_ok=True)

    def fill(self) -> None:
        """Write the file if there is space for it."""
        if not self._file.exists() and shutil.disk_usage(self._home).free >= RESERVE_BYTES:
            with contextlib.suppress(StorageError):
                write_private(self._file, "\0" * RESERVE_BYTES)


GRACE_S = 5
# How long a thread may run while another waits: the event loop must not wait for every worker.
SWITCH_INTERVAL_S = 0.00025
HANDLES_LOG_EVERY_S = 60.0
TEND_EVERY_S = 15
# SQLite needs 32 KiB, the daemon's files some blocks.
RESERVE_BYTES = 128 * 1024


def serve(
    settings: Settings,
    allow_hosts: Sequence[str] = (),
    stream: IO[str] | None = None,
    ready: Callable[[Listeners, Callable[[], None]], None] = lambda listeners, stop: None,
    table: Sequence[Route] = TABLE,
) -> bool:
    """Run a daemon until it is stopped; return whether all requests were finished.

    The log goes to `stream` too. Once the daemon is reachable, `ready` gets a function that stops
    it.
    """
    notice = prepare_home(settings.home)
    reserve = DiskReserve(settings.home)
    reserve.release()
    since = moment_text(World().now())
    file = settings_place(settings).file
    heap = MallocTrimmer()
    heap.keep_together()
    with contextlib.ExitStack() as stack:
        # Last, when the files of the store have given their space back.
        stack.callback(reserve.fill)
        stack.enter_context(held(settings.home / LOCK_NAME, str(settings.home), since))
        if file is not None:
            # The file may be elsewhere, where the daemon of another data folder could serve it too.
            file = Path(os.path.realpath(file))
            stack.enter_context(held(file.with_name(file.name + ".daemon"), str(file), since))
        listeners = stack.enter_context(open_listeners(settings, allow_hosts))
        log = Log(settings.home / LOG_NAME, settings.daemon.log_level, stream)
        stack.callback(log.close)
        engine = ServerState(settings, listeners.url)
        stack.callback(engine.close)
        engine.observer.listen(log.write_event)
        # Open pages look for changes.
        engine.observer.listen(engine.live.nudge)
        token, is_new = load_token(settings.home)
        own = OwnToken(token, settings.home / TOKEN_NAME)
        guard = Guard(own, listeners.hosts, engine.world.monotonic_ms, engine.logins)
        app = App(engine, guard, log, table)

        # Most of the present objects live until the end, so no collection need look at them.
        # A request makes thousands of short-lived objects, which reference counts free.
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        sys.setswitchinterval(SWITCH_INTERVAL_S)

        def listening() -> None:
            log.info(
                "daemon", "daemon.start", pid=os.getpid(), version=__version__, url=listeners.url
            )
            for note in filter(None, [notice, *listeners.notes]):
                log.warning("daemon", "daemon.note", note=note)
            if is_new:
                log.info("daemon", "daemon.new_token")
            # Last, so that a client that finds the file finds everything ready.
            stack.enter_context(_announced(settings.home, listeners, since))
            reserve.fill()
            ready(listeners, server.end)

        tend = partial(_tend, Spool(engine, log), heap)
        server = _Server(app, listening, engine.live, tend, log)
        asyncio.run(server.serve(listeners.sockets))
        app.workers.close()
        left = app.workers.in_flight
        log.info("daemon", "daemon.stop", pid=os.getpid(), unfinished=left)
        return left == 0


def _tend(spool: Spool, heap: MallocTrimmer, has_served: bool) -> None:
    """Take what hooks kept; after requests, return free memory to the system."""
    spool.take()
    if has_served:
        heap.trim()


@contextlib.contextmanager
def _announced(home: Path, listeners: Listeners, since: str) -> Iterator[None]:
    """Write the daemon's address for clients, and remove it at the end."""
    file = home / DAEMON_NAME
    announced = {
        "url": listeners.url,
        "socket": None if listeners.unix_path is None else str(listeners.unix_path),
        "pid": os.getpid(),
        "version": __version__,
        "started_at": since,
        "notes": listeners.notes,
    }
    text = json.dumps(announced) + "\n"
    try:
        write_private(file, text)
    except DiskFull:
        # A killed daemon left its file, whose space can be used again.
        if not file.exists():
            raise
        file.write_text(text, "utf-8")
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


class _Server(uvicorn.Server):
    """The HTTP server on given sockets, with its own shutdown."""

    def __init__(
        self,
        app: App,
        listening: Callable[[], None],
        live: LiveEvents,
        tend: Callable[[bool], object],
        log: Log,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=HttpConnection,
                loop="asyncio",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=256,
                timeout_keep_alive=5,
                timeout_graceful_shutdown=GRACE_S,
            )
        )
        self._listening = listening
        self._live = live
        self._tend = tend
        self._log = log
        self._refused_count = 0
        self._next_log_s = 0.0

    def end(self) -> None:
        """Stop the server; any thread may call this."""
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and report it."""
        asyncio.get_running_loop().set_exception_handler(self._report)
        await super().startup(sockets)
        self._tending = asyncio.create_task(self._tend_often())
        self._listening()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down; event streams never end by themselves, so they are ended first."""
        self._live.close()
        self._tending.cancel()
        await super().shutdown(sockets)

    def _report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an error of the event loop; of connections without a file handle only a count."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
            loop.default_exception_handler(context)
            return
        self._refused_count += 1
        if loop.time() >= self._next_log_s:
            # The event loop reports each attempt, hundreds a second.
            self._next_log_s = loop.time() + HANDLES_LOG_EVERY_S
            count, self._refused_count = self._refused_count, 0
            self._log.error("daemon", "daemon.no_file_handles", error, count=count)

    async def _tend_often(self) -> None:
        """Take what hooks kept, and return free memory to the system, now and then."""
        last_count = 0
        while True:
            count = self.server_state.total_requests
            await asyncio.to_thread(self._tend, count != last_count)
            last_count = count
            await asyncio.sleep(TEND_EVERY_S)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let signals stop the server, so that the process can clean up."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        previous = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
