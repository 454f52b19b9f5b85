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
# Connections are replaced now and then: the server's memory for each grows with its age.
_LIFE_S = 3_600.0
_IDLE_LIMIT_S = 600.0
# More than a hundred different statements are usual here.
_PREPARED_LIMIT = 400
# Unless the address says otherwise. Keepalives detect a machine that vanished.
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

    # Statements are written and quoted in UTF-8, whatever the address says.
    parts = {**_DEFAULTS, **conninfo_to_dict(url), "client_encoding": "utf8"}
    try:
        return psycopg.connect(autocommit=True, **parts)
    except psycopg.Error as error:
        # The driver's frames hold the incomplete connection: a slow server would serve it for as
        # long as the error is kept.
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
    """A connection with the times when it was made and last returned."""

    raw: RawConnection[Any]
    made_s: float
    idle_s: float = 0.0


class ConnectionPool:
    """A limited number of connections to one database; safe to share between threads."""

    def __init__(self, url: str, limit: int) -> None:
        self._url = url
        self._slots = threading.BoundedSemaphore(limit)
        self._lock = threading.Lock()
        self._idle: list[_PooledConnection] = []
        self._closed = False
        # Whether the last connection that was made leads through a pooler.
        self.is_pooled = False
        # Connections from before are not used any more.
        self._renewed_s = 0.0
        # Why the last attempt to connect failed, and the lock of the caller who tries again.
        self._trouble: psycopg.Error | None = None
        self._trying = threading.Lock()

    @contextlib.contextmanager
    def lent(self) -> Iterator[RawConnection[Any]]:
        """Lend a connection for the block; raise Busy when none is free for too long."""
        if not self._slots.acquire(timeout=WAIT_S):
            raise Busy("no connection to the database is free", hint="try again in a moment")
        try:
            pooled = self._take_idle() or self._make()
            try:
                yield pooled.raw
            finally:
                self._take_back(pooled)
        finally:
            self._slots.release()

    def _take_idle(self) -> _PooledConnection | None:
        """Return an idle connection that the server has not dropped."""
        while True:
            with self._lock:
                if self._closed:
                    raise StorageError("the store is closed")
                if not self._idle:
                    return None
                pooled = self._idle.pop()
            # Between statements a server sends nothing but its farewell.
            poll = select.poll()
            poll.register(pooled.raw.fileno(), select.POLLIN)
            if not poll.poll(0):
                return pooled
            pooled.raw.close()

    def _make(self) -> _PooledConnection:
        import psycopg

        trouble = self._trouble
        if trouble is not None and not self._trying.acquire(blocking=False):
            raise translate_error(trouble) from None
        try:
            raw = connect(self._url)
            try:
                self.is_pooled = is_pooled(raw)
            except BaseException:
                raw.close()
                raise
            self._trouble = None
        except psycopg.Error as error:
            self._trouble = error
            raise
        finally:
            if trouble is not None:
                self._trying.release()
        raw.prepared_max = _PREPARED_LIMIT
        raw.adapters.register_dumper(PackedArray, packed_dumper())
        if self.is_pooled:
            # Not every pooler knows on which connection a statement was prepared.
            raw.prepare_threshold = None
        return _PooledConnection(raw, time.monotonic())

    def _take_back(self, pooled: _PooledConnection) -> None:
        from psycopg.pq import PipelineStatus, TransactionStatus

        raw, now_s = pooled.raw, time.monotonic()
        is_at_rest = (
            not raw.closed
            and raw.pgconn.transaction_status == TransactionStatus.IDLE
            and raw.pgconn.pipeline_status == PipelineStatus.OFF
        )
        pooled.idle_s = now_s
        with self._lock:
            is_young = pooled.made_s >= self._renewed_s and now_s - pooled.made_s < _LIFE_S
            is_reused = not self._closed and is_young and is_at_rest
            if is_reused:
                self._idle.append(pooled)
            old = [one for one in self._idle if now_s - one.idle_s > _IDLE_LIMIT_S]
            self._idle = [one for one in self._idle if one not in old]
        for one in (*old, *(() if is_reused else (pooled,))):
            one.raw.close()

    def renew(self) -> None:
        """Lend only new connections from now on: the address may lead to another server."""
        with self._lock:
            self._renewed_s = time.monotonic()
            idle, self._idle = self._idle, []
        for pooled in idle:
            pooled.raw.close()

    def close(self) -> None:
        """Close idle connections at once, and the others when they are returned."""
        self._closed = True
        self.renew()
