"""Transactions on PostgreSQL, each opened for one tenant or for the steward."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from meritory.domain.errors import Busy, MissingExtra, ReadOnlyStore, StorageError
from meritory.store.postgres.connection import READ, WRITE, TenantConnection, WritingConnection
from meritory.store.postgres.notify import NotifyThrottle
from meritory.store.postgres.pool import ConnectionPool
from meritory.store.postgres.retry import retry_on_conflict, translated
from meritory.store.postgres.schema import migrate, search_path

if TYPE_CHECKING:
    from psycopg import Connection as RawConnection


T = TypeVar("T")
C = TypeVar("C", bound=TenantConnection)

CONNECTION_LIMIT = 16
STATEMENT_TIMEOUT_MS = 60_000
LOCK_TIMEOUT_MS = 30_000
# A machine that vanishes says nothing: its tenant's row is not held for it any longer than this.
IDLE_LIMIT_MS = 60_000
_LET_GO = f"SET LOCAL idle_in_transaction_session_timeout = {IDLE_LIMIT_MS}"
# Who has the turn at something is silent for as long as that takes.
_UNHURRIED = "SET LOCAL idle_in_transaction_session_timeout = 0"
WRITE_WAIT_LIMIT_S = 30.0
_TURN = "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))"


def demand_driver() -> None:
    """Says what to install when the driver is missing."""
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise MissingExtra(
            "PostgreSQL needs its driver", hint="pip install 'meritory[postgres]'"
        ) from error


def _settings(raw: RawConnection[Any]) -> tuple[str, ...]:
    """Return the settings that begin every transaction, before it takes its role."""
    return (
        f"SET LOCAL search_path = {search_path(raw)}",
        f"SET LOCAL statement_timeout = {STATEMENT_TIMEOUT_MS}",
        f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}",
        # Compiling a statement takes longer than running any of them.
        "SET LOCAL jit = off",
    )


class PostgresEngine:
    """All connections to one database; any number of daemons may have one each."""

    def __init__(self, url: str, connection_limit: int = CONNECTION_LIMIT) -> None:
        demand_driver()
        self._pid = os.getpid()
        self._closed = False
        # Half of the connections are for reads: who writes may have to read something else, and
        # writers of one tenant wait for each other, each with a connection.
        limit = max(2, connection_limit)
        self._writers = threading.BoundedSemaphore(limit // 2)
        self._pool = ConnectionPool(url, limit)
        self._bell = NotifyThrottle(self._pool)
        try:
            with translated(), self._pool.lent() as raw:
                migrate(raw)
                self._settings = _settings(raw)
        except BaseException:
            self.close()
            raise

    @property
    def is_pooled(self) -> bool:
        """Whether a pooler stands in between, so that nothing outlasts a transaction."""
        return self._pool.is_pooled

    @contextlib.contextmanager
    def read(self, user: str) -> Iterator[TenantConnection]:
        """One snapshot of one tenant, for the length of the block."""
        with self._transaction(TenantConnection, user, READ) as connection:
            yield connection

    @contextlib.contextmanager
    def read_across(self) -> Iterator[TenantConnection]:
        """One snapshot of all tenants, without their texts."""
        with self._transaction(TenantConnection, None, READ) as connection:
            yield connection

    def write(self, user: str | None, work: Callable[[WritingConnection], T]) -> T:
        """Run `work` in a transaction of one tenant; None: as the steward, for all tenants."""

        def attempt() -> T:
            kind = partial(WritingConnection, self._bell)
            with self._transaction(kind, user, WRITE, _LET_GO) as connection:
                return work(connection)

        if not self._writers.acquire(timeout=WRITE_WAIT_LIMIT_S):
            raise Busy("too many writes are waiting", hint="try again in a moment")
        try:
            return retry_on_conflict(attempt)
        except ReadOnlyStore:
            # The primary has become a replica: connect to the new primary next time.
            self._pool.renew()
            raise
        finally:
            self._writers.release()

    def write_across(self, work: Callable[[WritingConnection], T]) -> T:
        """Run `work` in a transaction for all tenants."""
        return self.write(None, work)

    @contextlib.contextmanager
    def turn(self, what: str) -> Iterator[bool]:
        """Has the turn at something, with a connection of its own; the server knows who lives."""
        import psycopg

        with translated(), self._ready().lent() as raw:
            raw.execute(WRITE.encode())
            found = raw.execute(_TURN, (f"meritory {what}",)).fetchone()
            # A plain statement last, which ends the question and its view of the rows: now the
            # transaction sees nothing, and holds nothing back but the turn.
            raw.execute(_UNHURRIED.encode())
            try:
                yield bool(found and found[0])
            finally:
                with contextlib.suppress(psycopg.Error):
                    raw.rollback()

    @contextlib.contextmanager
    def _transaction(self, kind: Callable[..., C], tenant: str | None, *begin: str) -> Iterator[C]:
        with translated(), self._ready().lent() as raw:
            connection = kind(raw, tenant, *begin, *self._settings)
            try:
                yield connection
                connection.commit()
            except BaseException:
                connection.rollback()
                raise

    def _ready(self) -> ConnectionPool:
        if os.getpid() != self._pid:
            raise StorageError(
                "the store was opened before a fork", hint="open it again in this process"
            )
        if self._closed:
            raise StorageError("the store is closed")
        return self._pool

    def close(self) -> None:
        """Lets go of every connection; safe to call twice."""
        if not self._closed and os.getpid() == self._pid:
            self._closed = True
            self._bell.close()
            self._pool.close()
