"""Says that something was written: at once, but only so often.

A commit that carries NOTIFY waits for every other that does, in the whole server, until it is on
disk: if all did, busy tenants would wait for each other (a tenth of the commits a second, with 16
writers). So each process says it with one commit now and then, and once more after the last.
"""

from __future__ import annotations

import contextlib
import threading
import time

from meritory.errors import MeritoryError
from meritory.store.postgres.connection import CHANNEL
from meritory.store.postgres.pool import Pool

RING_EVERY_S = 0.25


class Bell:
    """Decides which commits of a process are heard by others; safe to share between threads."""

    def __init__(self, pool: Pool) -> None:
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
                # Without a thread nobody is told, which is no reason to call a commit failed.
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
        # Whoever does not hear it looks now and then.
        with contextlib.suppress(psycopg.Error, MeritoryError), self._pool.lent() as raw:
            raw.execute(f"NOTIFY {CHANNEL}".encode())

    def close(self) -> None:
        """Says at once what was to be said later."""
        later = self._later
        if later is not None:
            later.cancel()
            self._ring()
