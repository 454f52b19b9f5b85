"""What both databases have in common for whoever speaks SQL to them.

The statements of the store are written once, in the SQL that SQLite and PostgreSQL share; where
they differ, PostgreSQL's connection translates (`meritory.store.postgres.translate`) or a verb is
written a second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Cursor(Protocol):
    """What a statement brought."""

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""

    def fetchone(self) -> Any:
        """The next row, None after the last."""

    def fetchall(self) -> list[Any]:
        """All rows that are left."""

    def fetchmany(self, size: int, /) -> list[Any]:
        """The next few rows."""

    def __iter__(self) -> Iterator[Any]:
        """The rows that are left, one by one."""


class Connection(Protocol):
    """One connection inside a transaction."""

    def execute(self, statement: str, values: Any = ..., /) -> Cursor:
        """Runs a statement with `?` or `:name` in place of its values."""

    def executemany(self, statement: str, rows: Iterable[Any], /) -> Cursor:
        """Runs a statement once for every row of values."""


class Reader(Protocol):
    """Where reads get their connection."""

    def read(self) -> AbstractContextManager[Connection]:
        """A connection for reads of one user, for the length of the block."""

    def read_across(self) -> AbstractContextManager[Connection]:
        """A connection for the few reads that are about all users together."""
