"""One transaction on PostgreSQL that speaks the store's SQL and never leaves its tenant.

The tenant is the one a statement names itself, by `user = ?` or `:user`; statements that go by
numbers alone run for the tenant that was named before them in the same transaction, and are
refused where there is none. Row-level security keeps everything else out of sight.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tenure.errors import InputError, StorageError
from tenure.store.postgres.tenancy import APP, SETTING, STEWARD
from tenure.store.postgres.translate import Statement, rows_by_tenant, translate

if TYPE_CHECKING:
    from psycopg import Connection as RawConnection
    from psycopg import RawCursor

READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED"
_NO_TENANT = "a statement on tenants' tables named no tenant"


class TenantConnection:
    """A connection for the length of one transaction, which begins with the first statement."""

    def __init__(self, raw: RawConnection[Any], begin: str) -> None:
        self._raw = raw
        self._begin = begin
        self._has_begun = False
        self._is_across = False
        self.tenant: str | None = None

    def execute(self, statement: str, values: Any = (), /) -> RawCursor[Any]:
        """Runs a statement with `?` or `:name` in place of its values."""
        plan = translate(statement)
        bound = _bound(plan, plan.values(values))
        self._enter(plan, None if plan.tenant_at is None else bound[plan.tenant_at])
        cursor = self._cursor()
        cursor.execute(plan.text.encode(), bound)
        return cursor

    def executemany(self, statement: str, rows: Iterable[Any], /) -> RawCursor[Any]:
        """Runs a statement once for every row of values, without waiting in between."""
        plan = translate(statement)
        cursor = self._cursor()
        bound = [_bound(plan, plan.values(row)) for row in rows]
        for tenant, some in rows_by_tenant(plan, bound):
            self._enter(plan, tenant)
            cursor.executemany(plan.text.encode(), some)
        return cursor

    @contextlib.contextmanager
    def across(self) -> Iterator[None]:
        """Asks about all tenants, as the steward, for the length of the block."""
        self._say(f"SET LOCAL ROLE {STEWARD}")
        self._is_across = True
        yield
        self._is_across = False
        self._say(f"SET LOCAL ROLE {APP}")

    def commit(self) -> None:
        """Ends the transaction, if it ever began."""
        if self._has_begun:
            self._has_begun = False
            self._raw.execute(b"COMMIT")

    def rollback(self) -> None:
        """Takes everything back; a connection that is lost has done so by itself."""
        if self._has_begun and not self._raw.closed:
            self._has_begun = False
            self._raw.execute(b"ROLLBACK")

    def _cursor(self) -> RawCursor[Any]:
        from psycopg import RawCursor
        from psycopg.pq import Format

        cursor = RawCursor(self._raw)
        cursor.format = Format.BINARY
        return cursor

    def _enter(self, plan: Statement, tenant: Any) -> None:
        if self._is_across or not plan.is_tenants:
            self._say()
            return
        wanted = self.tenant if tenant is None else tenant
        if not isinstance(wanted, str) or not wanted:
            raise StorageError(_NO_TENANT, hint="this is a mistake in Tenure; please report it")
        if wanted != self.tenant:
            self._say(*self._entrance(wanted))
            self.tenant = wanted

    def _entrance(self, tenant: str) -> tuple[str, ...]:
        """The statements that lead into a tenant's rows."""
        from psycopg import sql

        return (f"SET LOCAL {SETTING} = {sql.quote(tenant, self._raw)}",)

    def _say(self, *statements: str) -> None:
        """Statements of ours, all in one message; the transaction begins with the first of all."""
        told = statements if self._has_begun else (self._begin, *self._greeting(), *statements)
        if told:
            self._has_begun = True
            self._raw.execute("; ".join(told).encode(), prepare=False)

    def _greeting(self) -> tuple[str, ...]:
        return ()


class WritingConnection(TenantConnection):
    """Holds a tenant's own row from the first statement on: its writers wait for each other."""

    def _entrance(self, tenant: str) -> tuple[str, ...]:
        from psycopg import sql

        name = sql.quote(tenant, self._raw)
        return (
            *super()._entrance(tenant),
            f'INSERT INTO tenants ("user") VALUES ({name}) ON CONFLICT DO NOTHING',  # noqa: S608
            f'SELECT 1 FROM tenants WHERE "user" = {name} FOR UPDATE',  # noqa: S608
        )


class StewardConnection(TenantConnection):
    """Asks about all tenants together, as the role that may see no text of theirs."""

    def _enter(self, plan: Statement, tenant: Any) -> None:
        self._say()

    def _greeting(self) -> tuple[str, ...]:
        return (f"SET LOCAL ROLE {STEWARD}",)


def _bound(plan: Statement, values: list[Any]) -> list[Any]:
    """The values as PostgreSQL takes them."""
    for at, value in enumerate(values):
        if isinstance(value, bool):
            values[at] = int(value)
        elif at in plan.lists and value is not None:
            values[at] = json.loads(value)
        elif isinstance(value, str) and "\0" in value:
            if plan.is_change:
                raise InputError("PostgreSQL cannot store a text with a NUL character in it")
            # Nothing that is stored has one, so nothing is found by this either.
            values[at] = value.replace("\0", "\ufffd")
    return values
