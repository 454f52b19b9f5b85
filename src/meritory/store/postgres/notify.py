"""Notify other daemons of changes, and listen to theirs.

A commit with NOTIFY waits for every other such commit in the whole server until it is on disk: if
all had it, busy tenants would wait for each other (a tenth of the commits a second, with 16
writers). So each process notifies with one commit now and then, and once more after the last.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from meritory.domain.errors import MeritoryError
from meritory.store.postgres.pool import ConnectionPool, connect

if TYPE_CHECKING:
    from psycopg import Connection as RawConnection


# A notification says that something was written, and nothing else.
CHANNEL = "meritory"
NOTIFY_EVERY_S = 0.25


class NotifyThrottle:
    """Decides which commits of a process notify others; safe to share between threads."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._notified_s = -NOTIFY_EVERY_S
        self._later: threading.Timer | None = None

    def is_due(self) -> bool:
        """Return whether the commit that follows notifies others."""
        with self._lock:
            now_s = time.monotonic()
            if self._later is not None or self._wait_s(now_s) > 0:
                return False
            self._notified_s = now_s
            return True

    def later(self) -> None:
        """Notify in a moment; called after a commit that did not."""
        with self._lock:
            if self._later is None:
                later = threading.Timer(self._wait_s(time.monotonic()), self._notify)
                later.daemon = True
                # Without a thread there is no notification; the commit has not failed.
                with contextlib.suppress(RuntimeError):
                    later.start()
                    self._later = later

    def _wait_s(self, now_s: float) -> float:
        return max(0.0, self._notified_s + NOTIFY_EVERY_S - now_s)

    def _notify(self) -> None:
        import psycopg

        with self._lock:
            self._notified_s = time.monotonic()
            self._later = None
        # Daemons that miss it poll now and then.
        with contextlib.suppress(psycopg.Error, MeritoryError), self._pool.lent() as raw:
            raw.execute(f"NOTIFY {CHANNEL}".encode())

    def close(self) -> None:
        """Notify at once if it was put off."""
        later = self._later
        if later is not None:
            later.cancel()
            self._notify()


# Pause after each notification, so that a burst of commits gives one.
CALM_S = 0.05
# How soon a lost connection is replaced, and how much later after every failure.
RECONNECT_MIN_S, RECONNECT_MAX_S = 0.2, 10.0
END_WAIT_S = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class _Subscriber:
    """A subscription to changes."""

    listener: Listener
    call: Callable[[], None]

    def close(self) -> None:
        """End the subscription; without any the thread ends."""
        self.listener.keep(lambda one: one is not self)


class Listener:
    """Calls all subscribers of a store; its thread and connection exist while there are any."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._subscribers: list[_Subscriber] = []
        self._thread: _ListenThread | None = None

    def follow(self, call: Callable[[], None]) -> _Subscriber:
        """Subscribe to changes."""
        subscriber = _Subscriber(self, call)
        with self._lock:
            self._subscribers.append(subscriber)
            if self._thread is None:
                self._thread = _ListenThread(self._url, self._call_all)
        return subscriber

    def close(self) -> None:
        """End all subscriptions, and wait for the thread."""
        if thread := self.keep(lambda _: False):
            thread.join()

    def keep(self, is_kept: Callable[[_Subscriber], bool]) -> _ListenThread | None:
        """Keep some subscribers; without any, stop the thread and return it."""
        if os.getpid() != self._pid:
            # After a fork the thread is the parent's.
            return None
        with self._lock:
            self._subscribers = list(filter(is_kept, self._subscribers))
            if self._subscribers or self._thread is None:
                return None
            thread, self._thread = self._thread, None
        thread.close()
        return thread

    def _call_all(self) -> None:
        for subscriber in list(self._subscribers):
            subscriber.call()


class _ListenThread:
    """The thread that listens; it reconnects until it is closed."""

    def __init__(self, url: str, call: Callable[[], None]) -> None:
        self._url = url
        self._call = call
        self._stopping = threading.Event()
        self._waking, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._serve, name="meritory-listen", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread soon."""
        # In this order: once the thread has stopped, the pipe is closed.
        os.write(self._wake, b"x")
        self._stopping.set()

    def join(self) -> None:
        """Wait for its end, but not for a server that does not answer."""
        self._thread.join(END_WAIT_S)

    def _serve(self) -> None:
        import psycopg

        wait_s = RECONNECT_MIN_S
        while not self._stopping.is_set():
            with contextlib.suppress(psycopg.Error), contextlib.closing(connect(self._url)) as raw:
                raw.execute(f"LISTEN {CHANNEL}".encode())
                wait_s = RECONNECT_MIN_S
                # Changes may have been missed while the connection was down.
                self._call()
                self._wait_for_notifications(raw)
            self._stopping.wait(wait_s)
            wait_s = min(RECONNECT_MAX_S, 2 * wait_s)
        os.close(self._waking)
        os.close(self._wake)

    def _wait_for_notifications(self, raw: RawConnection[Any]) -> None:
        poll = select.poll()
        for descriptor in (raw.fileno(), self._waking):
            poll.register(descriptor, select.POLLIN)
        while not self._stopping.is_set():
            poll.poll()
            raw.pgconn.consume_input()
            has_changed = False
            while raw.pgconn.notifies():
                has_changed = True
            if has_changed:
                self._call()
                self._stopping.wait(CALM_S)
