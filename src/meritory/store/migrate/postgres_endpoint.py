"""Columns of any kind as PostgreSQL takes arrays in binary, with what is missing among them."""

from __future__ import annotations

import contextlib
import functools
import itertools
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from meritory.domain.errors import Conflict, Corrupt, InputError
from meritory.domain.place import Place
from meritory.store.migrate.endpoint import (
    GIVEN,
    TABLES,
    VECTORS,
    Added,
    EndpointEmbedder,
    EndpointReader,
    EndpointState,
    EndpointWriter,
    Row,
    TablePart,
)
from meritory.store.postgres import terms
from meritory.store.postgres.connection import TenantConnection
from meritory.store.postgres.dialect import (
    PackedArray,
    packed_dumper,
    packed_numbers,
    packed_vectors,
)
from meritory.store.postgres.engine import PostgresEngine, demand_driver
from meritory.store.postgres.pool import connect
from meritory.store.postgres.retry import translated
from meritory.store.postgres.schema import MIGRATIONS, TYPES, schema_version
from meritory.store.sql.tables import SqlTable
from meritory.store.sqlite.fulltext import Stemmer

_HEADER = struct.Struct(">iiiii")
_INTEGER, _REAL, _LENGTH = struct.Struct(">iq"), struct.Struct(">id"), struct.Struct(">i")
_MISSING = _LENGTH.pack(-1)


def packed_column(kind: str, values: Sequence[Any]) -> PackedArray:
    """The values of a column of this kind, at least one of them."""
    number, cell = _KINDS[kind]
    cells = [_MISSING if value is None else cell(value) for value in values]
    # Dimensions, whether something is missing, the type, the size, counted from one.
    return PackedArray(_HEADER.pack(1, 1, number, len(values), 1) + b"".join(cells))


def _integer(value: int) -> bytes:
    return _INTEGER.pack(8, value)


def _real(value: float) -> bytes:
    return _REAL.pack(8, value)


def _blob(value: bytes) -> bytes:
    return _LENGTH.pack(len(value)) + value


def _text(value: str) -> bytes:
    return _blob(value.encode())


# By kind PostgreSQL's own number of the type, which never changes.
_KINDS: dict[str, tuple[int, Callable[[Any], bytes]]] = {
    "INTEGER": (20, _integer),
    "REAL": (701, _real),
    "TEXT": (25, _text),
    "BLOB": (17, _blob),
}


T = TypeVar("T")
# One looks, one writes, one keeps others away.
_CONNECTIONS = 4
# What is counted for every tenant by itself, and the table that has the numbers.
_COUNTED = {"memories": "row", "events": "event", "actions": "action"}
_NUMBERS = "change, purge, learned, row, event, action"
# Whether the tenant's row was made, or made again, by this very transaction.
_IS_OURS = "SELECT xmin = pg_current_xact_id()::xid FROM tenants WHERE user = ?"
_VECTOR_TYPE = "SELECT CAST('vector'::regtype AS oid)::bigint"
_ADD_VECTORS = """INSERT INTO memory_vectors (user, embedder, row, vector)
    SELECT :user, :embedder::bigint, t.* FROM unnest(:row::bigint[], :vector::vector[]) t"""
_ADD_NO_VECTORS = """INSERT INTO memory_vectors (user, embedder, row)
    SELECT :user, :embedder::bigint, t.* FROM unnest(:row::bigint[]) t"""
# Numbers can only be drawn, not set: that needs no more rights than any write.
_DRAW = """SELECT count(nextval(s.name)) FROM
    (SELECT CAST(pg_get_serial_sequence(?, ?) AS regclass) AS name) s,
    generate_series(coalesce(pg_sequence_last_value(s.name), 0) + 1, ?::bigint)"""
_SETTLE = """UPDATE tenants SET change = :change, purge = :purge, learned = :learned,
    row = :memories, event = :events, action = :actions,
    document_count = :document_count, token_count = :token_count WHERE user = :user"""


@functools.cache
def _insert(table: SqlTable) -> str:
    """Whole columns as arrays: COPY is refused behind row-level security."""
    columns = [column for column in table.columns if column.name != "user"]
    names = ", ".join(column.name for column in columns)
    arrays = ", ".join(f":{column.name}::{TYPES[column.type]}[]" for column in columns)
    return (
        f"INSERT INTO {table.name} (user, {names})"  # noqa: S608 - constants
        f" SELECT :user, t.* FROM unnest({arrays}) t"
    )


class PostgresEndpointReader(EndpointReader):
    """A look at a database, in one snapshot."""

    connection: TenantConnection

    def __init__(self, connection: TenantConnection) -> None:
        super().__init__(connection)
        self._cursors = itertools.count()

    def users(self) -> list[str]:
        with self.connection.across():
            found = self.connection.execute("SELECT user FROM tenants ORDER BY user").fetchall()
        return [user for (user,) in found]

    def standing(self, user: str) -> EndpointState:
        found = (
            self._of(user)
            .execute(
                f"SELECT {_NUMBERS} FROM tenants WHERE user = ?",  # noqa: S608
                (user,),
            )
            .fetchone()
            or (0,) * 6
        )
        given = dict(zip(_COUNTED, found[3:], strict=True))
        for name, column in GIVEN.items():
            if name not in given:
                (highest,) = (
                    self._of(user)
                    .execute(
                        f"SELECT coalesce(max({column}), 0) FROM {name} WHERE user = ?",  # noqa: S608
                        (user,),
                    )
                    .fetchone()
                )
                given[name] = highest
        change, purge, learned = found[:3]
        return EndpointState(change, purge, learned, given)

    def rows(self, user: str, part: TablePart, after: Sequence[Any] | None = None) -> Iterator[Row]:
        found = super().rows(user, part, after)
        return map(_with_blob, found) if part.table is VECTORS else found

    def _owned(self, table: SqlTable) -> str:
        return "t.user = ?"

    def _of(self, user: str) -> TenantConnection:
        self.connection.enter(user)
        return self.connection

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
        self._is_there = False

    def add(self, user: str, part: TablePart, rows: Sequence[Row]) -> Added:
        self.connection.adapt(PackedArray, packed_dumper())
        turned = zip(part.table.columns, zip(*rows, strict=True), strict=True)
        columns = {column: values for column, values in turned if column.name != "user"}
        known = {column.name: values for column, values in columns.items()}
        if part.table is VECTORS:
            self._add_vectors(user, known)
        else:
            sent = {one.name: packed_column(one.type, values) for one, values in columns.items()}
            self.connection.execute(_insert(part.table), {**sent, "user": user})
        return self._indexed(user, known) if part.table.name == "memories" else Added()

    def _add_vectors(self, user: str, values: Mapping[str, Sequence[Any]]) -> None:
        rows, blobs = np.array(values["row"], np.int64), values["vector"]
        known = {"user": user, "embedder": values["embedder"][0]}
        there = np.array([bool(blob) for blob in blobs])
        if there.any():
            (vector_type,) = self.connection.execute(_VECTOR_TYPE).fetchone()
            packed = packed_vectors(_matrix(rows, blobs), vector_type)
            sent = {"row": packed_numbers(rows[there], "i8"), "vector": packed}
            self.connection.execute(_ADD_VECTORS, {**known, **sent})
        if not there.all():
            self.connection.execute(_ADD_NO_VECTORS, {**known, "row": rows[~there].tolist()})

    def _indexed(self, user: str, values: Mapping[str, Sequence[Any]]) -> Added:
        """Puts the texts of live memories into the full-text index."""
        gone = zip(values["deleted_at"], values["superseded_by"], strict=True)
        live = [at for at, ends in enumerate(gone) if ends == (None, None)]
        texts = [terms.IndexedText(values["content"][at], values["words"][at]) for at in live]
        rows = np.array(values["row"], np.int64)[live]
        token_count = terms.add_many(self.connection, self._stemmer, user, (rows, texts))
        return Added(len(live), token_count)

    def clear(self, user: str) -> None:
        self.connection.execute("SET LOCAL statement_timeout = 0")
        for name in ("memory_terms", *(table.name for table in reversed(TABLES))):
            self.connection.execute(f"DELETE FROM {name} WHERE user = ?", (user,))  # noqa: S608
        zeros = ", ".join(f"{name} = 0" for name in _NUMBERS.split(", "))
        self.connection.execute(f"UPDATE tenants SET {zeros} WHERE user = ?", (user,))  # noqa: S608

    def taken(self, table: SqlTable, numbers: Iterable[int]) -> int:
        # Here every user has numbers of his own.
        return 0

    def has_vectors(self) -> bool:
        with self.connection.across():
            found = self.connection.execute("SELECT embedder FROM memory_vectors LIMIT 1")
            return found.fetchone() is not None

    def settle(self, user: str, standing: EndpointState, added: Added) -> None:
        self._demand_alone()
        for name, column in GIVEN.items():
            if name not in _COUNTED:
                self.connection.execute(_DRAW, (name, column, standing.given[name])).fetchone()
        counted = {name: standing.given[name] for name in _COUNTED}
        self.connection.execute(
            _SETTLE,
            {
                "user": user,
                "change": standing.change,
                "purge": standing.purge,
                "learned": standing.learned,
                **counted,
                **added._asdict(),
            },
        )
        self._is_there = True

    def leave(self) -> None:
        """Takes the tenant's row away again, which every writer makes when he comes."""
        if not self._is_there:
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

    def note(self, key: str, value: str) -> None:
        with self.connection.across():
            self.connection.execute(
                """INSERT INTO meta VALUES (?, ?)
                    ON CONFLICT (key) DO UPDATE SET value = excluded.value""",
                (key, value),
            )

    def register(self, embedder: EndpointEmbedder) -> None:
        with self.connection.across():
            self.connection.execute(
                """INSERT INTO embedders (name, dimension, spec) VALUES (?, ?, ?)
                    ON CONFLICT (name) DO NOTHING""",
                embedder[1:],
            )


def is_made(place: Place) -> bool:
    """Whether a database has our tables as this version knows them; nothing is changed."""
    return _version(place) == MIGRATIONS[-1].version


def demand_store(place: Place) -> None:
    """Refuses a database without our tables: in one that is only read none are made."""
    if not _version(place):
        raise InputError(f"there is no store in {place.name}", hint="check the address")


def _version(place: Place) -> int:
    demand_driver()
    with translated(), contextlib.closing(connect(place.url)) as raw:
        return schema_version(raw)


class PostgresEndpoint:
    """A database, for as long as a move takes."""

    kind = "postgresql"
    takes_nul = False
    # Not from those who write as the very user.
    is_hidden = False

    def __init__(self, place: Place) -> None:
        self.name = place.name
        self._engine = PostgresEngine(place.url, _CONNECTIONS)
        self._stemmer = Stemmer()

    @contextlib.contextmanager
    def reading(self) -> Iterator[PostgresEndpointReader]:
        """Open one snapshot; later writes do not show in it."""
        with self._held() as connection:
            yield PostgresEndpointReader(connection)

    def write(self, user: str, work: Callable[[EndpointWriter], T]) -> T:
        """Runs `work` in a transaction."""

        def whole(connection: TenantConnection) -> T:
            writing = PostgresEndpointWriter(connection, user, self._stemmer)
            made = work(writing)
            writing.leave()
            return made

        return self._engine.write(user, whole)

    @contextlib.contextmanager
    def claimed(self, user: str) -> Iterator[None]:
        """Two moves of one user would mix their rows."""
        with self._held() as connection:
            found = connection.execute(
                "SELECT pg_try_advisory_xact_lock(hashtextextended(?, 0))",
                (f"meritory moving {user}",),
            ).fetchone()
            if not found[0]:
                raise Conflict(
                    f"{user!r} is being moved into {self.name} by another process",
                    hint="wait for it",
                )
            yield

    @contextlib.contextmanager
    def _held(self) -> Iterator[TenantConnection]:
        """A transaction that stays open while the other side works."""
        with self._engine.read_across() as connection:
            connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            yield connection

    def reveal(self, users: Sequence[str]) -> None:
        """Everything is in its place already."""

    def close(self) -> None:
        """Lets go of the database."""
        self._engine.close()
        self._stemmer.close()


def _matrix(rows: NDArray[np.int64], blobs: Sequence[bytes]) -> NDArray[np.float32]:
    """The vectors of one embedder, without those that are none."""
    size = max(map(len, blobs))
    for row, blob in zip(rows.tolist(), blobs, strict=True):
        if len(blob) not in (0, size) or size % 4:
            raise _damaged(row)
    matrix = np.frombuffer(b"".join(blobs), "<f4").reshape(-1, size // 4)
    if not (is_finite := np.isfinite(matrix).all(axis=1)).all():
        raise _damaged(rows[[bool(blob) for blob in blobs]][~is_finite][0])
    return matrix


def _damaged(row: int) -> Corrupt:
    return Corrupt(
        f"the vector of row {row} is damaged",
        hint="`meritory doctor --deep` tells more; restore a backup",
    )


def _with_blob(row: Row) -> Row:
    """The vector as a file has it: the zero vector, which means there is none, is empty."""
    embedder, number, sent = row
    blob = b"" if sent is None else np.frombuffer(sent, ">f4", offset=4).astype("<f4").tobytes()
    return embedder, number, blob
