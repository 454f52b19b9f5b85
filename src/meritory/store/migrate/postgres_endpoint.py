"""A PostgreSQL database as one end of a migration."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

import numpy as np

from meritory.domain.errors import Conflict, Corrupt, InputError
from meritory.domain.place import Place
from meritory.store.migrate.endpoint import (
    GIVEN,
    TABLES,
    VECTORS,
    Endpoint,
    EndpointReader,
    EndpointState,
    EndpointWriter,
    Row,
    TablePart,
)
from meritory.store.postgres.connection import PostgresEngine, TenantConnection, demand_driver
from meritory.store.postgres.pool import connect
from meritory.store.postgres.retry import translated
from meritory.store.postgres.schema import schema_version
from meritory.store.postgres.search_index import IndexedText, add_texts
from meritory.store.postgres.vectors import vector_of
from meritory.store.postgres.write import insert_rows
from meritory.store.sql.mapper import decode_vector, encode_vector, vector_bytes
from meritory.store.sql.tables import BY_NAME, TENANT, SqlTable
from meritory.store.sqlite.fulltext import Stemmer

T = TypeVar("T")
# One reads, one writes, one holds the lock.
_CONNECTIONS = 4
# The tables that are numbered for each tenant, and the column in `tenants` with the last number.
_COUNTED = {"memories": "row", "events": "event", "actions": "action"}
_NUMBERS = "change, purge, learned, row, event, action"
# Whether the tenant's row was made, or made again, by this very transaction.
_IS_OURS = "SELECT xmin = pg_current_xact_id()::xid FROM tenants WHERE user = ?"
# Numbers can only be drawn, not set: that needs no more rights than any write.
_DRAW = """SELECT count(nextval(s.name)) FROM
    (SELECT CAST(pg_get_serial_sequence(?, ?) AS regclass) AS name) s,
    generate_series(coalesce(pg_sequence_last_value(s.name), 0) + 1, ?::bigint)"""
# Each token of a text takes two bytes of `places`.
_SETTLE = """UPDATE tenants SET change = :change, purge = :purge, learned = :learned,
    row = :memories, event = :events, action = :actions,
    document_count = (SELECT count(*) FROM memories m
        WHERE m.user = :user AND m.deleted_at IS NULL AND m.superseded_by IS NULL),
    token_count = (SELECT coalesce(sum(octet_length(t.places)) / 2, 0) FROM memory_terms t
        WHERE t.user = :user)
    WHERE user = :user"""
_UNLIMITED = "SET LOCAL statement_timeout = 0"


class PostgresEndpointReader(EndpointReader):
    """One snapshot of a database."""

    connection: TenantConnection

    def __init__(self, connection: TenantConnection) -> None:
        super().__init__(connection)
        self._cursors = itertools.count()

    def users(self) -> list[str]:
        with self._across():
            rows = self.connection.execute("SELECT user FROM tenants ORDER BY user").fetchall()
        return [user for (user,) in rows]

    def state(self, user: str) -> EndpointState:
        found = self._first(user, _NUMBERS, BY_NAME["tenants"]) or (0,) * 6
        given = dict(zip(_COUNTED, found[3:], strict=True))
        for name, column in GIVEN.items():
            if name not in given:
                highest = self._first(user, f"coalesce(max(t.{column}), 0)", BY_NAME[name])
                given[name] = highest[0]
        return EndpointState(found[0], found[1], found[2], given)

    def rows(self, user: str, part: TablePart, after: Sequence[Any] | None = None) -> Iterator[Row]:
        found = super().rows(user, part, after)
        if part.table is not VECTORS:
            return found
        # The zero vector, which means there is none, is empty in a file.
        return (
            (embedder, row, b"" if sent is None else encode_vector(vector_of(sent)))
            for embedder, row, sent in found
        )

    def _owned(self, table: SqlTable) -> str:
        return "t.user = ?"

    def _of(self, user: str) -> TenantConnection:
        self.connection.enter(user)
        return self.connection

    def _across(self) -> contextlib.AbstractContextManager[None]:
        return self.connection.across()

    def _stream(
        self, user: str, statement: str, values: Sequence[Any], page_rows: int
    ) -> Iterator[Row]:
        name = f"moving_{next(self._cursors)}"
        declare = f"DECLARE {name} NO SCROLL CURSOR FOR {statement}"
        self._of(user).execute(declare, tuple(values))
        fetch = f"FETCH {page_rows:d} FROM {name}"
        while page := self._of(user).execute(fetch).fetchall():
            yield from page
        self._of(user).execute(f"CLOSE {name}")


class PostgresEndpointWriter(PostgresEndpointReader, EndpointWriter):
    """A transaction on a database, for one tenant."""

    def __init__(self, connection: TenantConnection, user: str, stemmer: Stemmer) -> None:
        super().__init__(connection)
        self._user = user
        self._stemmer = stemmer
        self._is_settled = False

    def add(self, user: str, part: TablePart, rows: Sequence[Row]) -> None:
        at = [place for place, name in enumerate(part.columns) if name != TENANT]
        names = [part.columns[place] for place in at]
        if part.table is VECTORS:
            size_bytes = max(len(blob) for _, _, blob in rows)
            for _, row, blob in rows:
                is_whole = not blob or len(blob) == size_bytes > vector_bytes(0)
                if not is_whole or not np.isfinite(decode_vector(blob)).all():
                    raise Corrupt(
                        f"the vector of row {row} is damaged",
                        hint="`meritory doctor --deep` tells more; restore a backup",
                    )
        insert_rows(
            self.connection, user, part.table.name, names, [[row[i] for i in at] for row in rows]
        )
        if part.table.name == "memories":
            stored = [dict(zip(part.columns, row, strict=True)) for row in rows]
            texts = {
                memory["row"]: IndexedText(memory["content"], memory["words"])
                for memory in stored
                if memory["deleted_at"] is None and memory["superseded_by"] is None
            }
            add_texts(self.connection, self._stemmer, user, texts)

    def clear(self, user: str) -> None:
        self.connection.execute(_UNLIMITED)
        for name in ("memory_terms", *(table.name for table in reversed(TABLES))):
            self.connection.execute(f"DELETE FROM {name} WHERE user = ?", (user,))  # noqa: S608
        zeros = ", ".join(f"{name} = 0" for name in _NUMBERS.split(", "))
        self.connection.execute(f"UPDATE tenants SET {zeros} WHERE user = ?", (user,))  # noqa: S608

    def taken(self, table: SqlTable, numbers: Iterable[int]) -> int:
        # Each tenant has its own numbers.
        return 0

    def settle(self, user: str, state: EndpointState) -> None:
        self._demand_alone()
        self.connection.execute(_UNLIMITED)
        for name, column in GIVEN.items():
            if name not in _COUNTED:
                self.connection.execute(_DRAW, (name, column, state.given[name])).fetchone()
        self.connection.execute(_SETTLE, {"user": user, **asdict(state), **state.given})
        self._is_settled = True

    def leave(self) -> None:
        """Delete the tenant's row again, which every write makes, unless all is settled."""
        if not self._is_settled:
            self._demand_alone()
            self.connection.execute("DELETE FROM tenants WHERE user = ?", (self._user,))

    def _demand_alone(self) -> None:
        found = self.connection.execute(_IS_OURS, (self._user,)).fetchone()
        if found is not None and not found[0]:
            raise Conflict(
                f"another process writes as {self._user!r} in the target database",
                hint="stop its daemons and agents of that user, then start over with --restart,"
                " which throws away what they wrote",
            )


def version_of(place: Place) -> int:
    """Return the version of the tables in a database, 0 for none; nothing is changed."""
    demand_driver()
    with translated(), contextlib.closing(connect(place.url)) as raw:
        return schema_version(raw)


class PostgresEndpoint(Endpoint):
    """A database, for the duration of a migration."""

    kind = "postgresql"
    takes_nul = False

    def __init__(self, place: Place, *, is_target: bool = True) -> None:
        if not is_target and not version_of(place):
            # Tables are not made in a database that is only read.
            raise InputError(f"there is no store in {place.name}", hint="check the address")
        self.name = place.name
        self._engine = PostgresEngine(place.url, _CONNECTIONS)
        self._stemmer = Stemmer()

    @contextlib.contextmanager
    def reading(self) -> Iterator[PostgresEndpointReader]:
        with self._engine.read_across() as connection:
            # The transaction stays open while the other side works.
            connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            yield PostgresEndpointReader(connection)

    def write(self, user: str, work: Callable[[EndpointWriter], T]) -> T:
        def whole(connection: TenantConnection) -> T:
            writing = PostgresEndpointWriter(connection, user, self._stemmer)
            result = work(writing)
            writing.leave()
            return result

        return self._engine.write(user, whole)

    @contextlib.contextmanager
    def claimed(self, user: str) -> Iterator[None]:
        with self._engine.try_lock(f"moving {user}") as is_locked:
            if not is_locked:
                raise Conflict(
                    f"{user!r} is being moved into {self.name} by another process",
                    hint="wait for it",
                )
            yield

    def reveal(self, users: Sequence[str]) -> None:
        """Do nothing: `settle` made the users visible."""

    def close(self) -> None:
        self._engine.close()
        self._stemmer.close()
