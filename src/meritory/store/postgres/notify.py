"""Says that something was written: at once, but only so often.

A commit that carries NOTIFY waits for every other that does, in the whole server, until it is on
disk: if all did, busy tenants would wait for each other (a tenth of the commits a second, with 16
writers). So each process says it with one commit now and then, and once more after the last.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from meritory.domain.errors import MeritoryError
from meritory.store.postgres.connection import CHANNEL
from meritory.store.postgres.pool import ConnectionPool, connect

if TYPE_CHECKING:
    from psycopg import Connection as RawConnection


RING_EVERY_S = 0.25


class NotifyThrottle:
    """Decides which commits of a process are heard by others; safe to share between threads."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._rung_s = -RING_EVERY_S
        self._later: threading.Timer | None = None

    def rings(self) -> bool:
        """Whether the commit that comes now is to say so."""
        with self._lock:
            now_s = time.monotonic()
            if self._later is not None or self._wait_s(now_s) > 0:
                return False
            self._rung_s = now_s
            return True

    def ring_later(self) -> None:
        """Says it in a moment: after a commit that did not, for before there is nothing to see."""
        with self._lock:
            if self._later is None:
                later = threading.Timer(self._wait_s(time.monotonic()), self._ring)
                later.daemon = True
                # Without a thread there is no notification; the commit has not failed.
                with contextlib.suppress(RuntimeError):
                    later.start()
                    self._later = later

    def _wait_s(self, now_s: float) -> float:
        return max(0.0, self._rung_s + RING_EVERY_S - now_s)

    def _ring(self) -> None:
        import psycopg

        with self._lock:
            self._rung_s = time.monotonic()
            self._later = None
        # Daemons that miss it poll now and then.
        with contextlib.suppress(psycopg.Error, MeritoryError), self._pool.lent() as raw:
            raw.execute(f"NOTIFY {CHANNEL}".encode())

    def close(self) -> None:
        """Says at once what was to be said later."""
        later = self._later
        if later is not None:
            later.cancel()
            self._ring()


# Pause after each notification, so that a burst of commits gives one.
CALM_S = 0.05
# How soon a lost connection is replaced, and how much later after every failure.
RECONNECT_MIN_S, RECONNECT_MAX_S = 0.2, 10.0
END_WAIT_S = 2.0

Told = Callable[[], None]


class _Follower:
    """A subscriber to changes."""

    def __init__(self, listener: Listener, told: Told) -> None:
        self._listener = listener
        self.told = told

    def close(self) -> None:
        """End the subscription."""
        self._listener.leave(self)


class Listener:
    """Tells all who follow one store; its thread and its connection are there while anybody is."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._followers: list[_Follower] = []
        self._ear: _Ear | None = None

    def follow(self, told: Told) -> _Follower:
        """Subscribe to changes."""
        follower = _Follower(self, told)
        with self._lock:
            self._followers.append(follower)
            if self._ear is None:
                self._ear = _Ear(self._url, self._tell)
        return follower

    def leave(self, follower: _Follower) -> None:
        """Unsubscribe; without subscribers the thread ends."""
        if os.getpid() != self._pid:
            # The thread is the parent's, which would hear of this without an end.
            return
        with self._lock:
            if follower in self._followers:
                self._followers.remove(follower)
            ear = None if self._followers else self._ear
            if ear is not None:
                self._ear = None
        if ear is not None:
            ear.close()

    def close(self) -> None:
        """End all subscriptions and the thread."""
        if os.getpid() != self._pid:
            # The thread is the parent's, and stays.
            return
        with self._lock:
            self._followers.clear()
            ear, self._ear = self._ear, None
        if ear is not None:
            ear.close()
            ear.join()

    def _tell(self) -> None:
        for follower in list(self._followers):
            follower.told()


class _Ear:
    """The thread that listens, and never gives up."""

    def __init__(self, url: str, tell: Told) -> None:
        self._url = url
        self._tell = tell
        self._stopping = threading.Event()
        self._waking, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._serve, name="meritory-listen", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread soon."""
        # In this order: once it has stopped, the pipe is not ours any more.
        os.write(self._wake, b"x")
        self._stopping.set()

    def join(self) -> None:
        """Waits for its end, but not for a server that does not answer."""
        self._thread.join(END_WAIT_S)

    def _serve(self) -> None:
        import psycopg

        wait_s = RECONNECT_MIN_S
        while not self._stopping.is_set():
            with contextlib.suppress(psycopg.Error), contextlib.closing(connect(self._url)) as raw:
                raw.execute(f"LISTEN {CHANNEL}".encode())
                wait_s = RECONNECT_MIN_S
                # Changes may have been missed while the connection was down.
                self._tell()
                self._hear(raw)
            self._stopping.wait(wait_s)
            wait_s = min(RECONNECT_MAX_S, 2 * wait_s)
        os.close(self._waking)
        os.close(self._wake)

    def _hear(self, raw: RawConnection[Any]) -> None:
        poll = select.poll()
        for descriptor in (raw.fileno(), self._waking):
            poll.register(descriptor, select.POLLIN)
        while not self._stopping.is_set():
            poll.poll()
            raw.pgconn.consume_input()
            is_told = False
            while raw.pgconn.notifies():
                is_told = True
            if is_told:
                self._tell()
                self._stopping.wait(CALM_S)
