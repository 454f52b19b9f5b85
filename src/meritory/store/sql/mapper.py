"""Map records to rows: columns, statements and codecs from the fields of a record's class."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from meritory.domain.codec import record_from_dict, record_to_dict
from meritory.domain.errors import Corrupt, InputError
from meritory.domain.memory import MemoryRecord
from meritory.domain.world import moment_text, parse_moment

R = TypeVar("R")


class ColumnCodec(NamedTuple):
    """How a column stores the value of a field."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


def moment(text: str) -> datetime:
    """Return a stored moment; raise Corrupt if it is not one."""
    try:
        return parse_moment(text)
    except InputError as error:
        raise Corrupt(f"a stored moment cannot be read: {error.message}") from error


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


UNCHANGED = ColumnCodec(lambda value: value, lambda value: value)
FLAG = ColumnCodec(int, bool)
_JSON_TUPLE = ColumnCodec(_json_text, lambda text: tuple(json.loads(text)))
# By annotation. Annotations stay strings: resolving them would import numpy for every record.
CODECS: Mapping[str, ColumnCodec] = {
    "datetime": ColumnCodec(moment_text, moment),
    "bool": FLAG,
    "bytes": ColumnCodec(bytes, bytes),
    "tuple[str, ...]": _JSON_TUPLE,
    "tuple[float, ...]": _JSON_TUPLE,
    "Mapping[str, float]": ColumnCodec(lambda mapping: json.dumps(dict(mapping)), json.loads),
    "FloatArray": ColumnCodec(
        lambda vector: np.asarray(vector, np.float32).tobytes(),
        lambda blob: np.frombuffer(blob, np.float32),
    ),
    "MemoryRecord": ColumnCodec(lambda record: _json_text(record_to_dict(record)), _past_record),
}


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
