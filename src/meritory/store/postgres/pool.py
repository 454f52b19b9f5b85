"""A pool of connections; a caller that needs a new one opens it and gets its error.

A dead server must not block callers, because an agent waits for its memory. The pool notices a
dropped connection without asking the server. After a failed attempt, one caller at a time tries
again, and all others get the error at once.
"""

from __future__ import annotations

import contextlib
import select
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from meritory.domain.errors import Busy, StorageError
from meritory.store.postgres.dialect import PackedArray, packed_dumper
from meritory.store.postgres.retry import translate_error

if TYPE_CHECKING:
    import psycopg
    from psycopg import Connection as RawConnection

WAIT_S = 5.0
# Renewed now and then: a server keeps a little more for a connection the longer it lives.
_LIFE_S = 3_600.0
_IDLE_LIMIT_S = 600.0
# More than a hundred different statements are usual here.
_PREPARED_LIMIT = 400
# Unless the address says otherwise. A machine that is gone says nothing: it is asked after.
_DEFAULTS: dict[str, Any] = {
    "connect_timeout": 3,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    "application_name": "meritory",
}


def connect(url: str) -> RawConnection[Any]:
    """Return a new connection with short timeouts."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    # Whatever the address says: statements are written in UTF-8, and quoted for it.
    parts = {**_DEFAULTS, **conninfo_to_dict(url), "client_encoding": "utf8"}
    try:
        return psycopg.connect(autocommit=True, **parts)
    except psycopg.Error as error:
        # The driver's frames hold the half-made connection: a server that was only slow would
        # serve it for as long as the error is remembered.
        raise error.with_traceback(None)  # noqa: B904 - it is the very same


def is_pooled(raw: RawConnection[Any]) -> bool:
    """Return whether a pooler such as pgbouncer is between this process and the server.

    A pooler may use another connection of the server for every transaction, so session settings
    are lost or reach another client. The server reports its own process id.
    """
    (number,) = raw.execute(b"SELECT pg_backend_pid()", prepare=False).fetchone() or (None,)
    return number != raw.info.backend_pid


@dataclass(slots=True, eq=False)
class _PooledConnection:
    """A connection with the moments at which it was made and last given back."""

    raw: RawConnection[Any]
    made_s: float
    idle_s: float = 0.0


class ConnectionPool:
    """Up to so many connections to one database; safe to share between threads."""

    def __init__(self, url: str, limit: int) -> None:
        self._url = url
        self._slots = threading.BoundedSemaphore(limit)
        self._lock = threading.Lock()
        self._idle: list[_PooledConnection] = []
        self._closed = False
        # Whether the last connection that was made leads through a pooler.
        self.is_pooled = False
        # Connections from before are of no use any more.
        self._anew_s = 0.0
        # Why the server could not be reached when it was last tried, and who is trying again.
        self._trouble: psycopg.Error | None = None
        self._trying = threading.Lock()

    @contextlib.contextmanager
    def lent(self) -> Iterator[RawConnection[Any]]:
        """A connection for the length of the block; Busy when there is none for too long."""
        if not self._slots.acquire(timeout=WAIT_S):
            raise Busy("no connection to the database is free", hint="try again in a moment")
        try:
            kept = self._kept() or self._made()
            try:
                yield kept.raw
            finally:
                self._take_back(kept)
        finally:
            self._slots.release()

    def _kept(self) -> _PooledConnection | None:
        """Return an idle connection that the server has not dropped."""
        while True:
            with self._lock:
                if self._closed:
                    raise StorageError("the store is closed")
                if not self._idle:
                    return None
                kept = self._idle.pop()
            if is_silent(kept.raw):
                return kept
            kept.raw.close()

    def _made(self) -> _PooledConnection:
        import psycopg

        trouble = self._trouble
        if trouble is not None and not self._trying.acquire(blocking=False):
            raise translate_error(trouble) from None
        try:
            made = _PooledConnection(self._connected(), time.monotonic())
            self._trouble = None
            return made
        except psycopg.Error as error:
            self._trouble = error
            raise
        finally:
            if trouble is not None:
                self._trying.release()

    def _connected(self) -> RawConnection[Any]:
        raw = connect(self._url)
        try:
            self.is_pooled = is_pooled(raw)
        except BaseException:
            raw.close()
            raise
        raw.prepared_max = _PREPARED_LIMIT
        raw.adapters.register_dumper(PackedArray, packed_dumper())
        if self.is_pooled:
            # Not every pooler knows on which connection a statement was prepared.
            raw.prepare_threshold = None
        return raw

    def _take_back(self, kept: _PooledConnection) -> None:
        now_s = time.monotonic()
        kept.idle_s = now_s
        with self._lock:
            is_young = kept.made_s >= self._anew_s and now_s - kept.made_s < _LIFE_S
            is_good = not self._closed and is_young and is_at_rest(kept.raw)
            if is_good:
                self._idle.append(kept)
            old = [one for one in self._idle if now_s - one.idle_s > _IDLE_LIMIT_S]
            self._idle = [one for one in self._idle if one not in old]
        for one in (*old, *(() if is_good else (kept,))):
            one.raw.close()

    def renew(self) -> None:
        """Lends only new connections from now on: the address may lead elsewhere by now."""
        with self._lock:
            self._anew_s = time.monotonic()
            idle, self._idle = self._idle, []
        for kept in idle:
            kept.raw.close()

    def close(self) -> None:
        """Closes what is idle at once, and the rest when it is given back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for kept in idle:
            kept.raw.close()


def is_silent(raw: RawConnection[Any]) -> bool:
    """Whether the server has said nothing since the last answer; its farewell would be there."""
    poll = select.poll()
    poll.register(raw.fileno(), select.POLLIN)
    return not poll.poll(0)


def is_at_rest(raw: RawConnection[Any]) -> bool:
    """Whether a connection is outside of any transaction and can be used again."""
    from psycopg.pq import PipelineStatus, TransactionStatus

    return (
        not raw.closed
        and raw.pgconn.transaction_status == TransactionStatus.IDLE
        and raw.pgconn.pipeline_status == PipelineStatus.OFF
    )
