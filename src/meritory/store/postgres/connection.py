"""Transactions on PostgreSQL, each opened for one tenant, that run the SQL of SQLite.

Row-level security hides the rows of all other tenants. A transaction without a tenant runs as the
steward, who sees all tenants but no text.

The first message of a transaction sets everything that the connection needs, and all of it ends
with the transaction. So a pooler may hand out another connection for every transaction.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from meritory.domain.errors import Busy, InputError, MissingExtra, ReadOnlyStore, StorageError
from meritory.store.postgres.dialect import NUL_REFUSED, Statement, translate
from meritory.store.postgres.notify import CHANNEL, NotifyThrottle
from meritory.store.postgres.pool import ConnectionPool
from meritory.store.postgres.retry import retry_on_conflict, translated
from meritory.store.postgres.schema import APP, SETTING, STEWARD, migrate, search_path
from meritory.store.sql import mapper

if TYPE_CHECKING:
    from psycopg import Connection as RawConnection
    from psycopg import Cursor, Pipeline, RawCursor

T = TypeVar("T")
C = TypeVar("C", bound="TenantConnection")

READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED"
CONNECTION_LIMIT = 16
STATEMENT_TIMEOUT_MS = 60_000
LOCK_TIMEOUT_MS = 30_000
# For so long a machine that vanished holds the row of its tenant.
IDLE_LIMIT_MS = 60_000
_IDLE_LIMITED = f"SET LOCAL idle_in_transaction_session_timeout = {IDLE_LIMIT_MS}"
# A holder of a lock is silent for as long as its work takes.
_IDLE_UNLIMITED = "SET LOCAL idle_in_transaction_session_timeout = 0"
WRITE_WAIT_LIMIT_S = 30.0
_LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))"
# The numbers in a tenant's row; a writer reads them when it locks the row.
COUNTED = (
    *("change", "purge", "learned", "row", "event", "action"),
    *("document_count", "token_count"),
)
# A tenant, None where all are concerned, and a table.
Changed = tuple[str | None, str]
# After an error every statement that was sent reports that it did not run, in so many groups.
_LATE_ERRORS = 5


class QueryResult:
    """The result of a statement; reading it waits for statements that were only sent."""

    def __init__(self, cursor: RawCursor[Any], settle: Callable[[], None]) -> None:
        self._cursor = cursor
        self._settle = settle

    def __getattr__(self, name: str) -> Any:
        self._settle()
        return getattr(self._cursor, name)

    def __iter__(self) -> Iterator[Any]:
        self._settle()
        return iter(self._cursor)


class TenantConnection:
    """A connection for one transaction, which begins with the first statement."""

    def __init__(self, raw: RawConnection[Any], tenant: str | None, *begin: str) -> None:
        """`tenant` None: the steward. `begin`: statements that come before the role is set."""
        self._raw = raw
        self.tenant = self._checked(tenant)
        self._begin = begin
        self._has_begun = False

    def execute(self, statement: str, values: Any = (), /) -> mapper.Cursor:
        """Run a statement with `?` or `:name` in place of its values."""
        self._catch_up()
        plan = translate(statement)
        bound = _bound(plan, plan.values(values))
        self._say()
        cursor = self._cursor(plan)
        cursor.execute(plan.text.encode(), bound)
        return self._answer(cursor)

    def executemany(self, statement: str, rows: Iterable[Any], /) -> mapper.Cursor:
        """Run a statement once for every row of values, without waiting in between."""
        self._catch_up()
        plan = translate(statement)
        bound = [_bound(plan, plan.values(row)) for row in rows]
        if not bound:
            return self._answer(self._cursor())
        self._say()
        cursor = self._cursor(plan)
        cursor.executemany(plan.text.encode(), bound)
        return self._answer(cursor)

    def enter(self, tenant: str | None) -> None:
        """Go on for another tenant, or as the steward, in the same transaction."""
        self._catch_up()
        if tenant != self.tenant:
            # It begins for the first one, whose row a writer locks.
            self._say()
            self.tenant = self._checked(tenant)
            self._say(*self._identity())

    @contextlib.contextmanager
    def across(self) -> Iterator[None]:
        """Run the statements of the block as the steward."""
        tenant = self.tenant
        self.enter(None)
        yield
        self.enter(tenant)

    def commit(self) -> None:
        """End the transaction, if it began."""
        if self._has_begun:
            done = self._raw.execute(b"COMMIT")
            self._has_begun = False
            _require_commit(done)

    def rollback(self) -> None:
        """Undo everything; close a connection that is lost or does not answer."""
        import psycopg

        if self._has_begun and not self._raw.closed:
            self._has_begun = False
            try:
                self._raw.execute(b"ROLLBACK")
            except psycopg.Error:
                self._raw.close()

    def _catch_up(self) -> None:
        """Do what has to come before the next statement."""

    def _answer(self, cursor: RawCursor[Any]) -> mapper.Cursor:
        return cursor

    def _cursor(self, plan: Statement | None = None) -> RawCursor[Any]:
        """Return a cursor for the next statement."""
        from psycopg import RawCursor
        from psycopg.pq import Format

        cursor = RawCursor(self._raw)
        cursor.format = Format.BINARY
        return cursor

    def _checked(self, tenant: str | None) -> str | None:
        if tenant == "":
            raise StorageError("no tenant", hint="this is a mistake in Meritory; please report it")
        # No stored name has a NUL character, so nothing is found under this one either.
        return tenant and tenant.replace("\0", "\ufffd")

    def _identity(self) -> tuple[str, ...]:
        """Return the statements that set the role and the tenant."""
        if self.tenant is None:
            return (f"SET LOCAL ROLE {STEWARD}",)
        return f"SET LOCAL ROLE {APP}", f"SET LOCAL {SETTING} = {self._quoted(self.tenant)}"

    def _quoted(self, text: str) -> str:
        from psycopg.sql import quote

        return quote(text, self._raw)

    def _say(self, *statements: str) -> Cursor[Any] | None:
        """Send statements in one message and return the last result; the first call begins."""
        if not self._has_begun:
            statements = (*self._begin, *self._identity(), *statements)
            self._has_begun = True
        return self._said(statements) if statements else None

    def _said(self, statements: Sequence[str]) -> Cursor[Any]:
        cursor = self._raw.execute("; ".join(statements).encode(), prepare=False)
        while cursor.nextset():
            pass
        return cursor


class WritingConnection(TenantConnection):
    """Locks the row of its tenant with the first statement: writers of a tenant wait in line.

    Changes are sent without waiting for their results. A read of a result, and the end
    of the transaction, waits for all of them, in their order; an error of any of them is raised
    there, and nothing after it has happened.
    """

    def __init__(
        self, notify: NotifyThrottle, raw: RawConnection[Any], tenant: str | None, *begin: str
    ) -> None:
        super().__init__(raw, tenant, *begin)
        self._notify = notify
        self._pipeline: Pipeline | None = None
        self._leave_pipeline = contextlib.ExitStack()
        # Statements that were sent and may have changed rows, and tables that have changed.
        self._sent: list[tuple[RawCursor[Any], Changed]] = []
        self._changed: set[Changed] = set()
        self._counts: tuple[int, ...] = ()
        # Called before the next statement.
        self.ahead: Callable[[], None] | None = None

    def _catch_up(self) -> None:
        ahead, self.ahead = self.ahead, None
        if ahead is not None:
            ahead()

    def _checked(self, tenant: str | None) -> str | None:
        if tenant and "\0" in tenant:
            raise InputError(NUL_REFUSED)
        return super()._checked(tenant)

    @property
    def counts(self) -> tuple[int, ...]:
        """The numbers `COUNTED` in the tenant's row when this transaction locked it."""
        self._say()
        return self._counts

    def changes(self) -> set[Changed]:
        """Return the tables that were or may have been changed, each with its tenant."""
        return self._changed | {changed for _, changed in self._sent}

    def settle(self) -> None:
        """Wait for the results of all statements that were sent."""
        if self._pipeline is None:
            return
        self._synced(self._pipeline)
        self._changed |= {changed for cursor, changed in self._sent if cursor.rowcount}
        self._sent.clear()

    def commit(self) -> None:
        if not self._has_begun:
            return
        import psycopg

        has_changed = bool(self.changes())
        notifies = has_changed and self._notify.is_due()
        done = self._say(*((f"NOTIFY {CHANNEL}",) if notifies else ()), "COMMIT")
        self.settle()
        self._has_begun = False
        _require_commit(done)
        self._pipeline = None
        try:
            self._leave_pipeline.close()
        except psycopg.Error:
            # All is stored, but the connection cannot be used again.
            self._raw.close()
        if has_changed and not notifies:
            self._notify.later()

    def rollback(self) -> None:
        import psycopg
        from psycopg.pq import TransactionStatus

        # Later errors do not matter: the first one has been raised.
        for _ in range(_LATE_ERRORS):
            with contextlib.suppress(psycopg.Error):
                if self._pipeline is not None:
                    self._synced(self._pipeline)
                break
        self._pipeline = None
        with contextlib.suppress(psycopg.Error):
            self._leave_pipeline.close()
        if self._raw.info.transaction_status == TransactionStatus.INERROR:
            # The server skipped all that was sent after the error, also statements to prepare:
            # the driver would take them for prepared.
            self._raw.close()
        super().rollback()

    def _synced(self, pipeline: Pipeline) -> None:
        # The driver reads only when it waits for results: send everything first, or both sides
        # would wait for each other.
        connection = self._raw.pgconn
        poll = select.poll()
        poll.register(connection.socket, select.POLLIN | select.POLLOUT)
        while connection.flush():
            poll.poll()
            connection.consume_input()
        pipeline.sync()

    def _cursor(self, plan: Statement | None = None) -> RawCursor[Any]:
        cursor = super()._cursor(plan)
        if plan is not None and plan.changes:
            self._sent.append((cursor, (self.tenant, plan.changes)))
            if self._pipeline is None and not plan.is_answered:
                self._pipeline = self._leave_pipeline.enter_context(self._raw.pipeline())
        return cursor

    def _answer(self, cursor: RawCursor[Any]) -> mapper.Cursor:
        if self._pipeline is None:
            return cursor
        return cast("mapper.Cursor", QueryResult(cursor, self.settle))

    def _say(self, *statements: str) -> Cursor[Any] | None:
        if self._has_begun or self.tenant is None:
            return super()._say(*statements)
        name = self._quoted(self.tenant)
        locked = super()._say(
            f'INSERT INTO tenants ("user") VALUES ({name}) ON CONFLICT DO NOTHING',  # noqa: S608
            f'SELECT {", ".join(COUNTED)} FROM tenants WHERE "user" = {name} FOR UPDATE',  # noqa: S608
        )
        self._counts = (locked.fetchone() if locked else None) or ()
        return super()._say(*statements)

    def _said(self, statements: Sequence[str]) -> Cursor[Any]:
        if self._pipeline is None:
            return super()._said(statements)
        # In a pipeline each statement is a message of its own.
        return [self._raw.execute(text.encode(), prepare=False) for text in statements][-1]


def _require_commit(done: Cursor[Any] | None) -> None:
    """Raise if PostgreSQL rolled back, because the caller ignored a failed statement."""
    if done is not None and done.statusmessage != "COMMIT":
        raise StorageError(
            "nothing was stored, because an earlier statement had failed",
            hint="this is a mistake in Meritory; please report it",
        )


def _bound(plan: Statement, values: list[Any]) -> list[Any]:
    """Return the values as PostgreSQL takes them."""
    for at, value in enumerate(values):
        if isinstance(value, bool):
            values[at] = int(value)
        elif at in plan.lists and value is not None:
            values[at] = json.loads(value)
        elif isinstance(value, str) and "\0" in value:
            if plan.changes:
                raise InputError(NUL_REFUSED)
            # No stored text has one, so nothing is found by this either.
            values[at] = value.replace("\0", "\ufffd")
    return values


def demand_driver() -> None:
    """Raise MissingExtra with the package to install if the driver is missing."""
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise MissingExtra(
            "PostgreSQL needs its driver", hint="pip install 'meritory[postgres]'"
        ) from error


class PostgresEngine:
    """All connections to one database; any number of daemons may have one each."""

    def __init__(self, url: str, connection_limit: int = CONNECTION_LIMIT) -> None:
        demand_driver()
        self._pid = os.getpid()
        self._closed = False
        # Half of the connections are for reads: a writer may have to read something else, and
        # writers of one tenant wait for each other, each with a connection.
        limit = max(2, connection_limit)
        self._writers = threading.BoundedSemaphore(limit // 2)
        self._pool = ConnectionPool(url, limit)
        self._notify = NotifyThrottle(self._pool)
        try:
            with translated(), self._pool.lent() as raw:
                migrate(raw)
                # These begin every transaction, before it takes its role.
                self._settings = (
                    f"SET LOCAL search_path = {search_path(raw)}",
                    f"SET LOCAL statement_timeout = {STATEMENT_TIMEOUT_MS}",
                    f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}",
                    # Compiling a statement takes longer than running any of them.
                    "SET LOCAL jit = off",
                )
        except BaseException:
            self.close()
            raise

    @property
    def is_pooled(self) -> bool:
        """Whether a pooler is in between, so that nothing outlasts a transaction."""
        return self._pool.is_pooled

    def read(self, user: str) -> AbstractContextManager[TenantConnection]:
        """Open one snapshot of one tenant, for the block."""
        return self._transaction(TenantConnection, user, READ)

    def read_across(self) -> AbstractContextManager[TenantConnection]:
        """Open one snapshot of all tenants, without their texts."""
        return self._transaction(TenantConnection, None, READ)

    def write(self, user: str | None, work: Callable[[WritingConnection], T]) -> T:
        """Run `work` in a transaction of one tenant; None: as the steward, for all tenants."""

        def attempt() -> T:
            kind = partial(WritingConnection, self._notify)
            with self._transaction(kind, user, WRITE, _IDLE_LIMITED) as connection:
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
    def try_lock(self, name: str) -> Iterator[bool]:
        """Hold a lock for the block, if it is free; the server releases it when a holder dies."""
        import psycopg

        with translated(), self._ready().lent() as raw:
            raw.execute(WRITE.encode())
            found = raw.execute(_LOCK, (f"meritory {name}",)).fetchone()
            # A plain statement ends the query and its snapshot: the transaction then holds
            # nothing but the lock.
            raw.execute(_IDLE_UNLIMITED.encode())
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
        """Close every connection; safe to call twice."""
        if not self._closed and os.getpid() == self._pid:
            self._closed = True
            self._notify.close()
            self._pool.close()
