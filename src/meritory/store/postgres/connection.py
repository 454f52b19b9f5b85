"""One transaction on PostgreSQL, opened for one tenant, that runs the SQL of SQLite.

Row-level security hides the rows of all other tenants. A transaction without a tenant runs as the
steward, who sees all tenants but no text.

The first message of a transaction sets everything that the connection needs, and all of it ends
with the transaction. So a pooler may hand out another connection for every transaction.
"""

from __future__ import annotations

import contextlib
import json
import select
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from meritory.domain.errors import InputError, StorageError
from meritory.store.postgres.dialect import NUL_REFUSED, Statement, translate
from meritory.store.postgres.schema import APP, SETTING, STEWARD
from meritory.store.sql import mapper

if TYPE_CHECKING:
    from psycopg import Connection as RawConnection
    from psycopg import Cursor, Pipeline, RawCursor

READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED"
# A notification says that something was written, and nothing else.
CHANNEL = "meritory"
# The numbers in a tenant's row; a writer reads them when it locks the row.
COUNTED = (
    *("change", "purge", "learned", "row", "event", "action"),
    *("document_count", "token_count"),
)
# A tenant, None where all are concerned, and a table.
Changed = tuple[str | None, str]
# After an error every statement that was sent already says that it was not run; these reports
# come in so many heaps at most.
_LATE_ERRORS = 5


class QueryResult:
    """The result of a statement; reading it waits for statements that were only sent."""

    def __init__(self, cursor: RawCursor[Any], settle: Callable[[], None]) -> None:
        self._cursor = cursor
        self._settle = settle

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""
        self._settle()
        return self._cursor.rowcount

    def fetchone(self) -> Any:
        """The next row, None after the last."""
        self._settle()
        return self._cursor.fetchone()

    def fetchall(self) -> list[Any]:
        """All rows that are left."""
        self._settle()
        return self._cursor.fetchall()

    def fetchmany(self, size: int, /) -> list[Any]:
        """The next few rows."""
        self._settle()
        return self._cursor.fetchmany(size)

    def __iter__(self) -> Iterator[Any]:
        """The rows that are left, one by one."""
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
        plan = translate(statement)
        bound = _bound(plan, plan.values(values))
        self._say()
        cursor = self._cursor(plan)
        cursor.execute(plan.text.encode(), bound)
        return self._answer(cursor)

    def executemany(self, statement: str, rows: Iterable[Any], /) -> mapper.Cursor:
        """Run a statement once for every row of values, without waiting in between."""
        plan = translate(statement)
        bound = [_bound(plan, plan.values(row)) for row in rows]
        if not bound:
            return self._answer(self._raw_cursor())
        self._say()
        cursor = self._cursor(plan)
        cursor.executemany(plan.text.encode(), bound)
        return self._answer(cursor)

    def enter(self, tenant: str | None) -> None:
        """Go on for another tenant, or as the steward, in the same transaction."""
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
        """Ends the transaction, if it ever began."""
        if self._has_begun:
            done = self._raw.execute(b"COMMIT")
            self._has_begun = False
            _demand_stored(done)

    def rollback(self) -> None:
        """Takes everything back; a connection that is lost, or does not obey, is let go of."""
        import psycopg

        if self._has_begun and not self._raw.closed:
            self._has_begun = False
            try:
                self._raw.execute(b"ROLLBACK")
            except psycopg.Error:
                self._raw.close()

    def _cursor(self, plan: Statement) -> RawCursor[Any]:
        """A cursor for the next statement."""
        return self._raw_cursor()

    def _answer(self, cursor: RawCursor[Any]) -> mapper.Cursor:
        return cursor

    def _raw_cursor(self) -> RawCursor[Any]:
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
        """Send statements in one message; the first one of all begins the transaction.

        Returns what the last one brought.
        """
        if not self._has_begun:
            statements = (*self._begin, *self._identity(), *statements)
            self._has_begun = True
        return self._said(statements) if statements else None

    def _said(self, statements: Sequence[str]) -> Cursor[Any]:
        cursor = self._raw.execute("; ".join(statements).encode(), prepare=False)
        while cursor.nextset():
            pass
        return cursor


class Rings(Protocol):
    """Decides which commits that change something say so to others."""

    def rings(self) -> bool:
        """Asked before a commit: whether it is to say so."""

    def ring_later(self) -> None:
        """Told after one that was not to."""


class WritingConnection(TenantConnection):
    """Locks the row of its tenant with the first statement: writers of a tenant wait in line.

    Changes are sent without waiting for their results. A read of a result, and the end
    of the transaction, waits for all of them, in their order; an error of any of them is raised
    there, and nothing after it has happened.
    """

    def __init__(
        self, bell: Rings, raw: RawConnection[Any], tenant: str | None, *begin: str
    ) -> None:
        super().__init__(raw, tenant, *begin)
        self._bell = bell
        self._pipelined: AbstractContextManager[Pipeline] | None = None
        self._pipeline: Pipeline | None = None
        # What was sent and may have changed something, and what is known to have.
        self._sent: list[tuple[RawCursor[Any], Changed]] = []
        self._changed: set[Changed] = set()
        self._counts: tuple[int, ...] = ()
        # What has to be done before the next statement of anybody else.
        self.ahead: Callable[[], None] | None = None

    def execute(self, statement: str, values: Any = (), /) -> mapper.Cursor:
        self._catch_up()
        return super().execute(statement, values)

    def executemany(self, statement: str, rows: Iterable[Any], /) -> mapper.Cursor:
        self._catch_up()
        return super().executemany(statement, rows)

    def _catch_up(self) -> None:
        ahead, self.ahead = self.ahead, None
        if ahead is not None:
            ahead()

    def _checked(self, tenant: str | None) -> str | None:
        if tenant and "\0" in tenant:
            raise InputError(NUL_REFUSED)
        return super()._checked(tenant)

    def enter(self, tenant: str | None) -> None:
        self._catch_up()
        super().enter(tenant)

    @property
    def counts(self) -> tuple[int, ...]:
        """The numbers in the tenant's row when this transaction locked it, as in `COUNTED`."""
        self._say()
        return self._counts

    def changes(self) -> set[Changed]:
        """The tables that were changed, or may have been, each with its tenant."""
        return self._changed | {changed for _, changed in self._sent}

    def settle(self) -> None:
        """Waits for the answers to all that was sent."""
        if self._pipeline is None:
            return
        self._synced(self._pipeline)
        self._changed |= {changed for cursor, changed in self._sent if cursor.rowcount}
        self._sent.clear()

    def commit(self) -> None:
        if not self._has_begun:
            return
        has_changed = bool(self.changes())
        says = has_changed and self._bell.rings()
        done = self._say(*((f"NOTIFY {CHANNEL}",) if says else ()), "COMMIT")
        if self._pipelined is not None:
            self.settle()
        self._has_begun = False
        _demand_stored(done)
        self._part()
        if has_changed and not says:
            self._bell.ring_later()

    def _part(self) -> None:
        """Leaves a connection behind that can be used again, or none; what is stored is stored."""
        import psycopg

        try:
            self._leave_pipeline()
        except psycopg.Error:
            self._raw.close()

    def rollback(self) -> None:
        import psycopg
        from psycopg.pq import TransactionStatus

        # What comes in late is of no interest any more: why it all ends has been raised.
        for _ in range(_LATE_ERRORS):
            with contextlib.suppress(psycopg.Error):
                if self._pipeline is not None:
                    self._synced(self._pipeline)
                break
        with contextlib.suppress(psycopg.Error):
            self._leave_pipeline()
        if self._raw.info.transaction_status == TransactionStatus.INERROR:
            # What was sent behind the error was passed over, and statements that were to be kept
            # ready with it: the driver would go on believing that they are.
            self._raw.close()
        super().rollback()

    def _synced(self, pipeline: Pipeline) -> None:
        # The driver only listens once it waits for answers: what is left to be sent goes first,
        # or both sides would wait for each other.
        connection = self._raw.pgconn
        poll = select.poll()
        poll.register(connection.socket, select.POLLIN | select.POLLOUT)
        while connection.flush():
            poll.poll()
            connection.consume_input()
        pipeline.sync()

    def _leave_pipeline(self) -> None:
        held, self._pipelined, self._pipeline = self._pipelined, None, None
        if held is not None:
            held.__exit__(None, None, None)

    def _cursor(self, plan: Statement) -> RawCursor[Any]:
        cursor = self._raw_cursor()
        if plan.changes:
            self._sent.append((cursor, (self.tenant, plan.changes)))
            if self._pipelined is None and not plan.is_answered:
                self._pipelined = self._raw.pipeline()
                self._pipeline = self._pipelined.__enter__()
        return cursor

    def _answer(self, cursor: RawCursor[Any]) -> mapper.Cursor:
        return cursor if self._pipeline is None else QueryResult(cursor, self.settle)

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
        if self._pipelined is None:
            return super()._said(statements)
        # In a pipeline each statement is a message of its own.
        return [self._raw.execute(text.encode(), prepare=False) for text in statements][-1]


def _demand_stored(done: Cursor[Any] | None) -> None:
    """Raise if PostgreSQL rolled back, because the caller ignored a failed statement."""
    if done is not None and done.statusmessage != "COMMIT":
        raise StorageError(
            "nothing was stored, for a statement before the end had failed",
            hint="this is a mistake in Meritory; please report it",
        )


def _bound(plan: Statement, values: list[Any]) -> list[Any]:
    """The values as PostgreSQL takes them."""
    for at, value in enumerate(values):
        if isinstance(value, bool):
            values[at] = int(value)
        elif at in plan.lists and value is not None:
            values[at] = json.loads(value)
        elif isinstance(value, str) and "\0" in value:
            if plan.changes:
                raise InputError(NUL_REFUSED)
            # Nothing that is stored has one, so nothing is found by this either.
            values[at] = value.replace("\0", "\ufffd")
    return values
