"""What the C library keeps of memory that was given back, for a process that runs for weeks."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import uvicorn

from meritory import __version__
from meritory.api.opening import settings_place
from meritory.domain.codec import moment_text
from meritory.domain.world import World
from meritory.ports.file_lock import held
from meritory.server.app import TABLE, App
from meritory.server.auth import Guard, OwnToken, load_token, write_private
from meritory.server.connection import HttpConnection, Listeners, open_doors
from meritory.server.event_stream import LiveEvents
from meritory.server.logs import Log
from meritory.server.state import ServerState
from meritory.server.table import Route
from meritory.settings import Settings, prepare_home
from meritory.settings.home import DAEMON_NAME, LOCK_NAME, LOG_NAME, TOKEN_NAME

# By number as the C library knows them, with what they are set to. Each thread would otherwise get
# a heap of its own, with its own holes, though Python runs one of them at a time anyway; and large
# arrays that live for a moment would leave holes between what stays. They get pages of their own.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
OPTIONS = ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, 256 * 1024), (_TRIM_THRESHOLD, 4 * 1024 * 1024))


class MallocTrimmer:
    """The C library's heap; where the system's is another one, nothing is done."""

    def __init__(self) -> None:
        library = _c_library()
        self._option: Callable[[int, int], int] | None = getattr(library, "mallopt", None)
        self._trim: Callable[[int], int] | None = getattr(library, "malloc_trim", None)

    def keep_together(self) -> bool:
        """Keeps small things in one heap and large ones out of it; says whether that was done."""
        option = self._option
        # Only who knows `malloc_trim` knows the options by these numbers, too.
        if option is None or self._trim is None:
            return False
        return all([option(number, value) == 1 for number, value in OPTIONS])

    def give_back(self) -> bool:
        """Returns free pages to the system; says whether there were any."""
        return self._trim is not None and self._trim(0) == 1


def _c_library() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(None)
    except (OSError, TypeError):
        return None


GRACE_S = 5
KEEP_ALIVE_S = 5
BACKLOG = 256
GC_THRESHOLDS = (20_000, 20, 20)
# How long a thread may go on while another waits: what answers at the door must not wait for
# every thread that works before it.
SWITCH_INTERVAL_S = 0.00025
TICKS_PER_S = 10
GIVE_BACK_EVERY_S = 15


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How a daemon is to be run."""

    settings: Settings
    allow_hosts: Sequence[str] = ()
    # Where the log goes besides its file: stderr in the foreground.
    stream: IO[str] | None = None
    # Told once the daemon can be reached, with what makes it stop.
    ready: Callable[[Listeners, Callable[[], None]], None] = lambda doors, stop: None
    table: Sequence[Route] = TABLE


def serve(plan: ServeOptions) -> bool:
    """Runs a daemon until it is asked to stop; says whether all that was under way is done."""
    settings = plan.settings
    prepared = prepare_home(settings.home)
    since = moment_text(World().now())
    file = settings_place(settings).file
    heap = MallocTrimmer()
    heap.keep_together()
    with contextlib.ExitStack() as stack:
        stack.enter_context(held(settings.home / LOCK_NAME, str(settings.home), since))
        if file is not None:
            # It may lie elsewhere, where another data folder's daemon could serve it too.
            stack.enter_context(held(file.with_name(file.name + ".daemon"), str(file), since))
        doors = stack.enter_context(open_doors(settings, plan.allow_hosts))
        log = Log(settings.home / LOG_NAME, settings.daemon.log_level, plan.stream)
        stack.callback(log.close)
        engine = ServerState(settings, doors.url)
        stack.callback(engine.close)
        engine.observer.listen(partial(_heard, engine, log))
        token, is_new = load_token(settings.home)
        own = OwnToken(token, settings.home / TOKEN_NAME)
        guard = Guard(own, doors.hosts, engine.world.monotonic_ms, engine.dashboard.logins)
        app = App(engine, guard, log, plan.table)

        # Most of what there is now stays for good: no collection need look at it again, and a
        # request makes thousands of short-lived objects that reference counts take care of.
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        sys.setswitchinterval(SWITCH_INTERVAL_S)

        def listening() -> None:
            log.info("daemon", "daemon.start", pid=os.getpid(), version=__version__, url=doors.url)
            for note in filter(None, [prepared.notice, *doors.notes]):
                log.warning("daemon", "daemon.note", note=note)
            if is_new:
                log.info("daemon", "daemon.new_token")
            # Last, so that whoever finds it finds all of it.
            stack.enter_context(_announced(settings.home, doors, since))
            plan.ready(doors, server.end)

        server = _Server(app, listening, engine.live, heap)
        server.live(doors.sockets)
        app.workers.close()
        left = app.workers.in_flight
        log.info("daemon", "daemon.stop", pid=os.getpid(), unfinished=left)
        return left == 0


def _heard(
    engine: ServerState, log: Log, category: str, event: str, told: Mapping[str, object]
) -> None:
    """Log an event of the engine, and let open pages ask for news."""
    log.info(category, event, **told)
    engine.live.nudge()


@contextlib.contextmanager
def _announced(home: Path, doors: Listeners, since: str) -> Iterator[None]:
    """Tells clients where the daemon is, for as long as it is there."""
    file = home / DAEMON_NAME
    told = {
        "url": doors.url,
        "socket": None if doors.unix_path is None else str(doors.unix_path),
        "pid": os.getpid(),
        "version": __version__,
        "started_at": since,
        "notes": doors.notes,
    }
    write_private(file, json.dumps(told) + "\n")
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


class _Server(uvicorn.Server):
    """The HTTP server on sockets of ours, with an end that is ours too."""

    def __init__(
        self, app: App, listening: Callable[[], None], live: LiveEvents, heap: MallocTrimmer
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
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=GRACE_S,
            )
        )
        self._listening = listening
        self._live = live
        self._heap = heap
        self._requests_before = 0

    def live(self, sockets: list[socket.socket]) -> None:
        """Serves until a signal comes."""
        asyncio.run(self.serve(sockets))

    def end(self) -> None:
        """Makes the server stop; any thread may ask for it."""
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listens, and says so."""
        await super().startup(sockets)
        self._listening()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends; streams would go on for ever, so that they are ended first."""
        self._live.close()
        await super().shutdown(sockets)

    async def on_tick(self, counter: int) -> bool:
        """Now and then memory that requests have left free goes back to the system."""
        if counter % (GIVE_BACK_EVERY_S * TICKS_PER_S) == 0:
            requests = self.server_state.total_requests
            if requests != self._requests_before:
                self._requests_before = requests
                await asyncio.to_thread(self._heap.give_back)
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Lets signals end the server, and not the process before it has tidied up."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        former = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)
