"""The connection that every SQL statement runs on, and the mapping of records to rows.

The statements are written once, in the SQL that SQLite and PostgreSQL share. Where the two differ,
PostgreSQL's connection translates (`meritory.store.postgres.dialect`), or the PostgreSQL store has
a method of its own. Columns, statements and codecs come from the fields of a record's class.
"""

from __future__ import annotations

import json
import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from meritory.domain.codec import record_from_dict, record_to_dict, source_to_dict
from meritory.domain.errors import Corrupt, InputError, MeritoryError
from meritory.domain.memory import MemoryRecord, Source, metadata_text
from meritory.domain.session import Turn
from meritory.domain.world import moment_text, parse_moment

R = TypeVar("R")
T = TypeVar("T")
PREFIX_CHARS_MIN = 4
# A vector is stored as a scale and one byte for each of its numbers, which are multiples of it.
VECTOR_SCALE = np.dtype("<f4")
_LARGEST_STEP = 127


def encode_vector(vector: NDArray[np.float32]) -> bytes:
    """Return a vector as the store keeps it; what is decoded is encoded alike again."""
    scale = np.array(np.max(np.abs(vector), initial=0.0) / _LARGEST_STEP, VECTOR_SCALE)
    steps = np.rint(vector / scale) if scale > 0.0 else np.zeros_like(vector)
    return scale.tobytes() + steps.astype(np.int8).tobytes()


def decode_vector(blob: bytes) -> NDArray[np.float32]:
    """Return a stored vector."""
    return decode_vectors(blob, vector_dimension(blob)).reshape(-1)


def decode_vectors(blob: bytes, dimension: int) -> NDArray[np.float32]:
    """Return stored vectors that follow each other, as rows."""
    scales, steps = vector_parts(blob, dimension)
    return np.asarray(steps * scales[:, None], np.float32)


def vector_parts(blob: bytes, dimension: int) -> tuple[NDArray[np.float32], NDArray[np.int8]]:
    """Return the scales of stored vectors that follow each other, and their steps as rows."""
    cell = np.dtype([("scale", VECTOR_SCALE), ("steps", np.int8, (dimension,))])
    cells = np.frombuffer(blob, cell)
    return cells["scale"].astype(np.float32), cells["steps"]


def vector_bytes(dimension: int) -> int:
    """Return the length of a stored vector."""
    return VECTOR_SCALE.itemsize + dimension


def vector_dimension(blob: bytes) -> int:
    """Return how many numbers a stored vector has; empty bytes have none."""
    return max(0, len(blob) - VECTOR_SCALE.itemsize)


class ColumnCodec(NamedTuple):
    """How a column stores the value of a field."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


def moment(text: str) -> datetime:
    """Return a stored moment; raise Corrupt if it is not one."""
    try:
        at = datetime.fromisoformat(text)
        return at if at.tzinfo is UTC else parse_moment(at)
    except (TypeError, ValueError, InputError) as error:
        raise Corrupt(f"a stored moment cannot be read: {str(text)[:40]!r}") from error


def _past_record(text: str) -> MemoryRecord:
    try:
        return record_from_dict(json.loads(text))
    except (ValueError, TypeError, AttributeError, InputError) as error:
        raise Corrupt(
            f"a history entry cannot be read: {error}",
            hint="run `meritory doctor --deep`; a backup may still have the undamaged entry",
        ) from error


def _json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _json_tuple(text: str) -> tuple[Any, ...]:
    # Most memories have no tags and no sources.
    return () if text == "[]" else tuple(json.loads(text))


def _json_mapping(text: str) -> Mapping[str, Any]:
    # Most memories have no metadata.
    found = {} if text == "{}" else json.loads(text)
    if not isinstance(found, dict):
        raise Corrupt(f"stored metadata is not an object: {text[:40]!r}")
    return found


UNCHANGED = ColumnCodec(lambda value: value, lambda value: value)
FLAG = ColumnCodec(int, bool)
# SQLite does not keep a negative zero: hashed with one, the row would look damaged when read.
FLOAT = ColumnCodec(lambda number: float(number) + 0.0, lambda number: number)
DOUBLES = ColumnCodec(
    lambda numbers: struct.pack(f"={len(numbers)}d", *numbers),
    lambda blob: struct.unpack(f"={len(blob) // 8}d", blob),
)
_JSON_TUPLE = ColumnCodec(_json_text, _json_tuple)
# By annotation. Annotations stay strings: resolving them would import numpy for every record.
CODECS: Mapping[str, ColumnCodec] = {
    "datetime": ColumnCodec(moment_text, moment),
    "bool": FLAG,
    "bytes": ColumnCodec(bytes, bytes),
    "tuple[str, ...]": _JSON_TUPLE,
    "tuple[float, ...]": _JSON_TUPLE,
    "tuple[Source, ...]": ColumnCodec(
        lambda sources: _json_text([source_to_dict(source) for source in sources]),
        lambda text: tuple(Source(**source) for source in _json_tuple(text)),
    ),
    "Mapping[str, float]": ColumnCodec(lambda mapping: json.dumps(dict(mapping)), json.loads),
    "Mapping[str, Any]": ColumnCodec(metadata_text, _json_mapping),
    "Mapping[str, object]": ColumnCodec(
        lambda mapping: json.dumps(dict(mapping), ensure_ascii=False, default=str), json.loads
    ),
    "Sequence[Mapping[str, object]]": ColumnCodec(
        lambda items: json.dumps(list(items)), json.loads
    ),
    "dict[str, float | str | None]": ColumnCodec(
        json.dumps, lambda text: json.loads(text) if text else {}
    ),
    "FloatArray": ColumnCodec(encode_vector, decode_vector),
    "MemoryRecord": ColumnCodec(lambda record: _json_text(record_to_dict(record)), _past_record),
}


def encode_transcript(turns: Sequence[Turn]) -> bytes:
    """Return turns as the store keeps them."""
    text = json.dumps([[turn.role, turn.text] for turn in turns], ensure_ascii=False)
    return zlib.compress(text.encode("utf-8", "surrogatepass"))


def decode_transcript(content: bytes | None) -> tuple[Turn, ...]:
    """Return the turns of a stored transcript; none without one."""
    if content is None:
        return ()
    try:
        text = zlib.decompress(bytes(content)).decode("utf-8", "surrogatepass")
    except (zlib.error, ValueError) as error:
        raise Corrupt(f"a stored transcript cannot be read: {error}") from error
    return tuple(Turn(role, said) for role, said in json.loads(text))


class RecordTable(Generic[R]):
    """The columns of a table that hold a record, and the statements to read and write them.

    `owner` names the columns in front of the record's own, such as `user`; they are written, not
    read. `numbered` names the field that the database numbers; it is read, not written. `omit`
    names fields that are not stored. `renamed` gives the column of a field where the two differ.
    `codecs` is by field; a property that is named there is written, too, but not read.
    """

    def __init__(
        self,
        table: str,
        record: type[R],
        *,
        owner: Sequence[str] = (),
        numbered: str | None = None,
        omit: Sequence[str] = (),
        renamed: Mapping[str, str] | None = None,
        codecs: Mapping[str, ColumnCodec] | None = None,
    ) -> None:
        self.table, self.record, self.owner = table, record, tuple(owner)
        annotations = _annotations(record)
        read = [name for name in annotations if name not in omit]
        properties = [name for name in codecs or () if name not in annotations]
        write = [*(name for name in read if name != numbered), *properties]

        def coded(names: Sequence[str]) -> list[tuple[int, ColumnCodec, bool]]:
            found = []
            for index, name in enumerate(names):
                annotation = annotations.get(name, "")
                value_type = annotation.removesuffix(" | None")
                codec = (codecs or {}).get(name) or CODECS.get(value_type)
                if codec is not None:
                    found.append((index, codec, annotation != value_type))
            return found

        self._names, self._get = read, attrgetter(*write)
        # A named tuple is made by position, which is faster; there are many candidates.
        self._is_positional = not is_dataclass(record)
        self._encoders, self._decoders = coded(write), coded(read)
        column = {name: (renamed or {}).get(name, name) for name in (*read, *write)}
        self.columns = tuple(column[name] for name in read)
        self.written = tuple(column[name] for name in write)
        every = (*self.owner, *self.written)
        self.select = f"SELECT {', '.join(self.columns)} FROM {table}"  # noqa: S608 - our names
        self.insert = (
            f"INSERT INTO {table} ({', '.join(every)})"  # noqa: S608 - our names
            f" VALUES ({', '.join(':' + name for name in every)})"
        )
        # For many rows: takes the values of `owner` and `row` in their order.
        self.insert_rows = (
            f"INSERT INTO {table} ({', '.join(every)})"  # noqa: S608 - our names
            f" VALUES ({', '.join('?' for _ in every)})"
        )

    def upsert(self, *key: str) -> str:
        """Return the statement that inserts a row or replaces the one with this key."""
        changed = (name for name in self.written if name not in key)
        sets = ", ".join(f"{name} = excluded.{name}" for name in changed)
        return f"{self.insert} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {sets}"

    def update(self, *key: str) -> str:
        """Return the statement that replaces the row with this key."""
        changed = (name for name in (*self.owner, *self.written) if name not in key)
        return (
            f"UPDATE {self.table} SET {', '.join(f'{name} = :{name}' for name in changed)}"  # noqa: S608
            f" WHERE {' AND '.join(f'{name} = :{name}' for name in key)}"
        )

    def selected(self, alias: str) -> str:
        """Return the columns for a SELECT from several tables."""
        return ", ".join(f"{alias}.{name}" for name in self.columns)

    def row(self, record: R) -> list[Any]:
        """Return the stored values of a record in the order of `written`."""
        row = list(self._get(record))
        for index, codec, is_optional in self._encoders:
            if not is_optional or row[index] is not None:
                row[index] = codec.encode(row[index])
        return row

    def values(self, record: R, **owner: Any) -> dict[str, Any]:
        """Return the stored values of a record by column, with those of its owner."""
        return dict(zip(self.written, self.row(record), strict=True)) | owner

    def _decoded(self, row: Sequence[Any]) -> list[Any]:
        values = list(row)
        for index, codec, is_optional in self._decoders:
            if not is_optional or values[index] is not None:
                values[index] = codec.decode(values[index])
        return values

    def fields(self, row: Sequence[Any]) -> dict[str, Any]:
        """Return the fields of a row of `columns` by name."""
        return dict(zip(self._names, self._decoded(row), strict=True))

    def decode(self, row: Sequence[Any], **omitted: Any) -> R:
        """Return the record of a row of `columns`, with the fields that the table omits."""
        if self._is_positional:
            return self.record(*self._decoded(row))
        return self.record(**dict(zip(self._names, self._decoded(row), strict=True)), **omitted)


def _annotations(record: type[Any]) -> dict[str, str]:
    if is_dataclass(record):
        return {field.name: str(field.type) for field in fields(record)}
    # A named tuple wraps its annotations.
    return {
        name: getattr(annotation, "__forward_arg__", str(annotation))
        for name, annotation in record.__annotations__.items()
    }


# -- connections --------------------------------------------------------------------------------


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

    def _all(self, user: str | None, statement: str, values: Any) -> list[tuple[Any, ...]]:
        with self._reading(user) as connection:
            return connection.execute(statement, values).fetchall()

    def _record(self, table: RecordTable[R], user: str, where: str, values: Any) -> R | None:
        """Return the first record of a table that meets a condition."""
        row = self._one(user, f"{table.select} WHERE {where}", values)
        return None if row is None else table.decode(row)

    def _records(self, table: RecordTable[R], user: str, where: str, values: Any) -> list[R]:
        """Return the records of a table that meet a condition."""
        rows = self._all(user, f"{table.select} WHERE {where}", values)
        return [table.decode(row) for row in rows]

    def _by_prefix(
        self, select: str, user: str, prefix: str, unknown: MeritoryError, **values: Any
    ) -> tuple[Any, ...]:
        """Return the only row whose id starts with `prefix`, which may be a whole id.

        `select` ends in a condition.
        """
        wanted = prefix.strip().lower()
        rows = []
        if len(wanted) >= PREFIX_CHARS_MIN and wanted.isascii():
            rows = self._all(
                user,
                f"{select} AND id >= :low AND id < :high ORDER BY id LIMIT 2",
                {"user": user, "low": wanted, "high": wanted + "~", **values},
            )
        if not rows:
            raise unknown
        if len(rows) > 1:
            raise InputError(
                f"{prefix[:40]!r} is the start of several ids", hint="give more of its characters"
            )
        return rows[0]


def stored(value: Any) -> Any:
    """Return a value as a column has it: a moment as text, others unchanged."""
    return moment_text(value) if isinstance(value, datetime) else value


def chosen_filters(query: object, filters: Mapping[str, str]) -> tuple[list[str], dict[str, Any]]:
    """Return the filters of the fields of a query that are not None, and the values of all."""
    values = {name: stored(getattr(query, name)) for name in filters}
    return [filters[name] for name, value in values.items() if value is not None], values


def as_json(values: Iterable[Any]) -> str:
    """Return a list for `json_each`: one bound parameter instead of many."""
    return json.dumps(list(values))
