"""The connection that every SQL statement of a store runs on.

The statements are written once, in the SQL that SQLite and PostgreSQL share. Where the two differ,
PostgreSQL's connection translates (`meritory.store.postgres.dialect`), or the PostgreSQL store has
a method of its own.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from meritory.domain.errors import InputError, MeritoryError

T = TypeVar("T")
PREFIX_CHARS_MIN = 4


class Cursor(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int:
        """Return the number of rows that were changed."""

    def fetchone(self) -> Any:
        """Return the next row, None after the last."""

    def fetchall(self) -> list[Any]:
        """Return all rows that are left."""

    def fetchmany(self, size: int, /) -> list[Any]:
        """Return the next few rows."""

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the rows that are left."""


class SqlConnection(Protocol):
    """One connection inside a transaction."""

    def execute(self, statement: str, values: Any = ..., /) -> Cursor:
        """Run a statement with `?` or `:name` in place of its values."""

    def executemany(self, statement: str, rows: Iterable[Any], /) -> Cursor:
        """Run a statement once for every row of values."""


class SqlEngine(Protocol):
    """The source of a store's connections."""

    def read(self, user: str) -> AbstractContextManager[SqlConnection]:
        """Return a connection for reads of one user, for the length of the block."""

    def read_across(self) -> AbstractContextManager[SqlConnection]:
        """Return a connection for the few reads that cover all users."""

    def write_across(self, work: Callable[[SqlConnection], T]) -> T:
        """Run `work`, which covers all users, in one transaction."""


class SqlReader(ABC):
    """The base of all reads; a store and a transaction each say where their connection is."""

    # Row numbers of memories that did not match their hash.
    damaged: set[int]

    @abstractmethod
    def _reading(self, user: str | None) -> AbstractContextManager[SqlConnection]:
        """Return the connection to read rows of a user from, for the block. Do not nest.

        Without a user it reads tables that all users share.
        """

    def _one(self, user: str | None, statement: str, values: Any) -> tuple[Any, ...] | None:
        with self._reading(user) as connection:
            row: tuple[Any, ...] | None = connection.execute(statement, values).fetchone()
            return row

    def _all(self, user: str, statement: str, values: Any) -> list[tuple[Any, ...]]:
        with self._reading(user) as connection:
            return connection.execute(statement, values).fetchall()

    def _by_prefix(
        self, select: str, user: str, prefix: str, unknown: MeritoryError
    ) -> tuple[Any, ...]:
        """Return the only row whose id starts with `prefix`, which may be a whole id."""
        wanted = prefix.strip().lower()
        rows = []
        if len(wanted) >= PREFIX_CHARS_MIN and wanted.isascii():
            rows = self._all(
                user,
                f"{select} WHERE user = :user AND id >= :low AND id < :high ORDER BY id LIMIT 2",
                {"user": user, "low": wanted, "high": wanted + "~"},
            )
        if not rows:
            raise unknown
        if len(rows) > 1:
            raise InputError(
                f"{prefix[:40]!r} is the start of several ids", hint="give more of its characters"
            )
        return rows[0]


def as_json(values: Iterable[Any]) -> str:
    """Return a list for `json_each`: one bound parameter instead of many."""
    return json.dumps(list(values))
