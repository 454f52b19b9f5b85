"""A SQLite file as one end of a migration, locked against other processes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from meritory.domain.errors import Conflict, Corrupt, InputError
from meritory.domain.session import ModelRows
from meritory.store.migrate.endpoint import (
    GIVEN,
    MODELS,
    TABLES,
    Endpoint,
    EndpointReader,
    EndpointState,
    EndpointWriter,
    Row,
    TablePart,
    key_of,
)
from meritory.store.sql.tables import SqlTable
from meritory.store.sqlite.backup import hold, sync_file
from meritory.store.sqlite.engine import (
    connect,
    create,
    demand_ours,
    migrate,
    side_files,
    translated,
)

T = TypeVar("T")
# An incomplete file has another name, so that it is not taken for a store.
UNFINISHED_SUFFIX = ".moving"
_ASKED_AT_ONCE = 10_000
_SEQUENCE = "SELECT seq FROM sqlite_sequence WHERE name = ?"


class SqliteEndpointReader(EndpointReader):
    """A file, which is locked against other processes."""

    def __init__(self, connection: sqlite3.Connection, models: ModelRows) -> None:
        super().__init__(connection)
        self._models = models

    def users(self) -> list[str]:
        named = [
            f"SELECT user FROM {table.name}"  # noqa: S608 - constants
            for table in TABLES
            if table.owner is None and table is not MODELS
        ]
        rows = self.connection.execute(" UNION ".join(named) + " ORDER BY user")
        return [user for (user,) in rows]

    def state(self, user: str) -> EndpointState:
        numbers = {name: int(self.noted(name) or 0) for name in ("change", "purge", "learned")}
        return EndpointState(**numbers, given={name: self._highest(name) for name in GIVEN})

    def _highest(self, table: str) -> int:
        """Return the highest number that a table ever gave."""
        used = f"SELECT max({GIVEN[table]}) FROM {table}"  # noqa: S608
        asked = f"SELECT max(coalesce(({_SEQUENCE}), 0), coalesce(({used}), 0))"
        return int(self.connection.execute(asked, (table,)).fetchone()[0])

    def rows(self, user: str, part: TablePart, after: Sequence[Any] | None = None) -> Iterator[Row]:
        if part.table is not MODELS:
            return super().rows(user, part, after)
        first = 0 if after is None else after[0] + 1
        versions = (version for version in self._models.versions(user)[::-1] if version >= first)
        contents = ((version, self._models.content(user, version)) for version in versions)
        return (
            (user, version, content, hashlib.sha256(content).hexdigest())
            for version, content in contents
            if content is not None
        )

    def count(self, user: str, table: SqlTable) -> int:
        if table is MODELS:
            return len(self._models.versions(user))
        return super().count(user, table)

    def has_rows(self, user: str, table: SqlTable) -> bool:
        return bool(self.count(user, table)) if table is MODELS else super().has_rows(user, table)

    def _owned(self, table: SqlTable) -> str:
        if table.owner is not None:
            owner, column = table.owner
            return f"(SELECT o.user FROM {owner} o WHERE o.{column} = t.{column}) = ?"  # noqa: S608
        # Read in the order of the numbers, so that nothing has to be sorted first.
        return "+t.user = ?" if table.number else "t.user = ?"

    def _stream(
        self, user: str, statement: str, values: Sequence[Any], page_rows: int
    ) -> Iterator[Row]:
        return iter(self.connection.execute(statement, tuple(values)))


class SqliteEndpointWriter(SqliteEndpointReader, EndpointWriter):
    """A transaction on a file."""

    def add(self, user: str, part: TablePart, rows: Sequence[Row]) -> None:
        if part.table is MODELS:
            # Files are not part of a transaction; writing one again changes nothing.
            for _, version, content, _ in rows:
                self._models.put(user, version, content)
            return
        self.connection.executemany(
            f"INSERT INTO {part.table.name} ({', '.join(part.columns)})"  # noqa: S608
            f" VALUES ({', '.join('?' for _ in part.columns)})",
            rows,
        )

    def clear(self, user: str) -> None:
        for version in self._models.versions(user):
            self._models.drop(user, version)
        for table in reversed(TABLES):
            if table is not MODELS:
                self.connection.execute(
                    f"DELETE FROM {table.name} AS t WHERE {self._owned(table)}",  # noqa: S608
                    (user,),
                )

    def taken(self, table: SqlTable, numbers: Iterable[int]) -> int:
        highest, left = self._highest(table.name), iter(numbers)
        asked = f"""SELECT 1 FROM {table.name} WHERE {table.number} IN
            (SELECT value FROM json_each(?)) LIMIT 1"""  # noqa: S608
        while highest and (some := list(islice(left, _ASKED_AT_ONCE))):
            if self.connection.execute(asked, (json.dumps(some),)).fetchone():
                return highest
        return 0

    def settle(self, user: str, state: EndpointState) -> None:
        for name in ("change", "learned", *(("purge",) if state.purge else ())):
            self.connection.execute(
                """INSERT INTO meta VALUES (:name, CAST(:value AS TEXT)) ON CONFLICT (key)
                    DO UPDATE SET value = max(CAST(value AS INTEGER), :value)""",
                {"name": name, "value": getattr(state, name)},
            )
        # SQLite finds the numbers that are in use, but not those of deleted rows.
        for table, number in state.given.items():
            if self.connection.execute(_SEQUENCE, (table,)).fetchone():
                self.connection.execute(
                    "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?", (number, table)
                )
            elif number:
                self.connection.execute(
                    """INSERT INTO sqlite_sequence SELECT name, ? FROM sqlite_master
                        WHERE name = ? AND sql LIKE '%AUTOINCREMENT%'""",
                    (number, table),
                )


class SqliteEndpoint(Endpoint):
    """A file, for the duration of a migration."""

    kind = "sqlite"
    takes_nul = True

    def __init__(self, path: Path, models: ModelRows, *, is_target: bool) -> None:
        self.path = Path(os.path.realpath(path))
        self.name = str(self.path)
        self._models = models
        if not is_target and not self.path.is_file():
            raise InputError(f"there is no store {self.path}", hint="check the path")
        unfinished = self.path.with_name(self.path.name + UNFINISHED_SUFFIX)
        self._file = self.path if self.path.exists() else unfinished
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.closing(hold(self.path, alone=True)))
            stack.enter_context(translated(self.path))
            if self.path.exists() and unfinished.exists() and unfinished.samefile(self.path):
                # It has its new name already; only the old one was not removed.
                unfinished.unlink()
            if not self._file.exists():
                create(self._file)
            connection = stack.enter_context(contextlib.closing(connect(self._file, write=True)))
            demand_ours(connection, self._file)
            migrate(connection, self._file)
            connection.execute("PRAGMA journal_mode = WAL")
            broken = connection.execute("PRAGMA foreign_key_check").fetchone()
            if broken is not None:
                raise Corrupt(
                    f"a row of {broken[0]} in {self.path} points at nothing",
                    hint="`meritory doctor --deep` tells more; restore a backup",
                )
            if not is_target:
                connection.execute("PRAGMA query_only = ON")
            self._connection, self._held = connection, stack.pop_all()

    @property
    def is_hidden(self) -> bool:
        return self._file != self.path

    @contextlib.contextmanager
    def reading(self) -> Iterator[SqliteEndpointReader]:
        with translated(self.path):
            yield SqliteEndpointReader(self._connection, self._models)

    def write(self, user: str, work: Callable[[EndpointWriter], T]) -> T:
        connection = self._connection
        with translated(self.path):
            connection.execute("BEGIN IMMEDIATE")
            try:
                result = work(SqliteEndpointWriter(connection, self._models))
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        return result

    def reveal(self, users: Sequence[str]) -> None:
        if not self.is_hidden:
            return
        with translated(self.path):
            rows = self._connection.execute("SELECT key FROM meta WHERE key LIKE ?", (key_of("%"),))
            # Users of an earlier migration may be incomplete.
            if others := {key for (key,) in rows} - set(map(key_of, users)):
                names = ", ".join(sorted(key.removeprefix(key_of("")) for key in others))
                raise Conflict(
                    f"{self._file} holds what an earlier move brought of {names}",
                    hint="move them too, or delete that file and start over",
                )
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._connection.close()
            # Never over a file that was created since.
            os.link(self._file, self.path)
            for leftover in (self._file, *side_files(self._file)):
                leftover.unlink(missing_ok=True)
            sync_file(self.path.parent)

    def close(self) -> None:
        self._held.close()
