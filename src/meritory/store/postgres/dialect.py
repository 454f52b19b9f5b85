"""Translate statements from SQLite's SQL to PostgreSQL's, and pack arrays for the driver.

Most of a statement passes unchanged. The rest is a short list: placeholders, the reserved word
`user`, lists in JSON, comparison with `IS`, empty blobs, and the keys of conflicts, where the
tenant comes first. Each text is translated once.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from meritory.domain.errors import InputError
from meritory.store.postgres.schema import TENANT_TABLES
from meritory.store.sql.mapper import decode_vector

if TYPE_CHECKING:
    from psycopg.adapt import Dumper


STATEMENTS_KEPT = 4_096
NUL_REFUSED = "PostgreSQL cannot store a text with a NUL character in it"
_PARTS = re.compile(r"('(?:[^']|'')*')")
_BLOB = re.compile(r"\bx'([0-9a-fA-F]*)'")
_PLACE = re.compile(r"\?(\d*)|(?<![:\w]):([a-z_]\w*)")
_LIST = re.compile(
    r"(\bNOT\s+)?\bIN\s*\(SELECT value FROM json_each\((\?\d*|:[a-z_]\w*)\)\)", re.IGNORECASE
)
# Replacements; strings are never changed.
_WORDS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\+(?=\w+\.user\b)"), ""),
    (re.compile(r'(?<![:\w"])user(?![\w"])'), '"user"'),
    (re.compile(r"\bIS\s+(?=[?:])"), "IS NOT DISTINCT FROM "),
    # PostgreSQL needs the type of a value that is first compared with NULL.
    (re.compile(r"(\?|:[a-z_]\w*)(?=\s+IS\s+(?:NOT\s+)?NULL\b)"), r"\1::text"),
    (re.compile(r"\bCROSS\s+JOIN(?=\s+\w+(?:\s+\w+)?\s+ON\b)"), "JOIN"),
)
_LIST_STARTS = ("= ANY(", "<> ALL(")
_CONFLICT = re.compile(r"\bON\s+CONFLICT\s*\(([^)]*)\)")
_INTO = re.compile(r"\s*INSERT\s+INTO\s+(\w+)", re.IGNORECASE)
_CHANGES = re.compile(r"\s*(?:INSERT\s+INTO|UPDATE|DELETE\s+FROM)\s+(\w+)", re.IGNORECASE)
_ANSWERS = re.compile(r"\bRETURNING\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement in the SQL of PostgreSQL, and the places of its values."""

    text: str
    # The names of the values by place; empty when values come in order.
    names: tuple[str, ...]
    # Places whose value is a JSON list.
    lists: frozenset[int]
    # The table that it changes, empty if it only reads, and whether a change returns rows.
    changes: str
    is_answered: bool

    def values(self, given: Any) -> list[Any]:
        """Return the values by place."""
        if not self.names:
            return list(given)
        if not isinstance(given, Mapping):
            raise TypeError("a statement with named values needs a mapping")
        return [given[name] for name in self.names]


@functools.lru_cache(maxsize=STATEMENTS_KEPT)
def translate(statement: str) -> Statement:
    """Return the statement as PostgreSQL takes it."""
    text = _outside_strings(_BLOB.sub(r"'\\x\1'::bytea", statement), _reword)
    into = _INTO.match(text)
    if into and into[1] in TENANT_TABLES:
        # The tenant leads every key of a table of tenants.
        text = _CONFLICT.sub(
            lambda key: key[0] if '"user"' in key[1] else f'ON CONFLICT ("user", {key[1]})', text
        )
    names: list[str] = []
    lists: set[int] = set()
    count = 0

    def place(match: re.Match[str]) -> str:
        nonlocal count
        if match[2] is not None:
            if match[2] not in names:
                names.append(match[2])
            number = names.index(match[2]) + 1
        else:
            number = int(match[1] or count + 1)
            count = max(count, number)
        code = match.string
        if code[: match.start()].endswith(_LIST_STARTS) and code[match.end() :].startswith(")"):
            lists.add(number - 1)
        return f"${number}"

    numbered = _outside_strings(text, lambda code: _PLACE.sub(place, code))
    if names and count:
        raise ValueError("values come in order or by name, not both")
    return Statement(
        text=numbered,
        names=tuple(names),
        lists=frozenset(lists),
        changes=found[1] if (found := _CHANGES.match(numbered)) else "",
        is_answered=bool(_ANSWERS.search(numbered)),
    )


def _outside_strings(statement: str, change: Callable[[str], str]) -> str:
    parts = _PARTS.split(statement)
    # Every second part is a string.
    return "".join(part if at % 2 else change(part) for at, part in enumerate(parts))


def _reword(code: str) -> str:
    code = _LIST.sub(lambda m: f"{'<> ALL' if m[1] else '= ANY'}({m[2]})", code)
    for pattern, becomes in _WORDS:
        code = pattern.sub(becomes, code)
    return code


# PostgreSQL's own numbers for its types, which never change.
_BYTEA, _BIGINT, _INTEGER, _TEXT, _REAL, _DOUBLE = 17, 20, 23, 25, 700, 701
_NUMBERS: dict[str, tuple[int, str]] = {
    "i8": (_BIGINT, ">i8"),
    "i4": (_INTEGER, ">i4"),
    "f4": (_REAL, ">f4"),
}
_LENGTH_BYTES = 4
# In place of a length.
_MISSING = b"\xff\xff\xff\xff"


@dataclass(frozen=True, slots=True)
class PackedArray:
    """An array of one dimension, in PostgreSQL's binary format."""

    content: bytes


def packed_dumper() -> type[Dumper]:
    """Return the class by which the driver sends a packed array; the statement names its type."""
    from psycopg.adapt import Buffer, Dumper
    from psycopg.pq import Format

    class PackedDumper(Dumper):
        format = Format.BINARY

        def dump(self, obj: Any) -> Buffer:
            content: bytes = obj.content
            return content

    return PackedDumper


def packed_numbers(values: NDArray[Any], kind: str) -> PackedArray:
    """Return an array of numbers: `i8`, `i4` or `f4`."""
    number, sent_as = _NUMBERS[kind]
    size = np.dtype(sent_as).itemsize
    cells = np.empty(len(values), np.dtype([("length", ">i4"), ("value", sent_as)]))
    cells["length"], cells["value"] = size, values
    return _packed(number, len(values), cells.tobytes())


def packed_texts(texts: Sequence[str], at: Iterable[int], count: int) -> PackedArray:
    """Return an array of texts, each given by its place in a list of different texts."""
    cells = [_text_cell(text) for text in texts]
    return _packed(_TEXT, count, b"".join([cells[place] for place in at]))


def packed_column(kind: str, values: Sequence[Any], number: int | None = None) -> PackedArray:
    """Return the values of a column as an array; `number` is that of a type without a fixed one."""
    known, cell = _CELLS[kind]
    cells = [_MISSING if value is None else cell(value) for value in values]
    return _packed(known if number is None else number, len(values), b"".join(cells))


def _blob_cell(value: bytes) -> bytes:
    return len(value).to_bytes(_LENGTH_BYTES, "big") + value


def _text_cell(text: str) -> bytes:
    if "\0" in text:
        raise InputError(NUL_REFUSED)
    return _blob_cell(text.encode())


def _vector_cell(blob: bytes) -> bytes:
    """Return a vector of `vector_blob` as pgvector takes it: empty means there is none."""
    numbers = decode_vector(blob).astype(">f4")
    return _blob_cell(struct.pack(">hh", len(numbers), 0) + numbers.tobytes()) if blob else _MISSING


# By type of a column PostgreSQL's number for it, and how a value is sent.
_CELLS: dict[str, tuple[int, Callable[[Any], bytes]]] = {
    "INTEGER": (_BIGINT, partial(struct.Struct(">iq").pack, 8)),
    "REAL": (_DOUBLE, partial(struct.Struct(">id").pack, 8)),
    "TEXT": (_TEXT, _text_cell),
    "BLOB": (_BYTEA, _blob_cell),
    "VECTOR": (0, _vector_cell),
}


def packed_pieces(values: NDArray[np.uint16], starts: NDArray[np.int64]) -> PackedArray:
    """Return an array of byte strings: small numbers, cut where each string begins."""
    sizes = 2 * np.diff(np.append(starts, len(values)))
    ends = np.cumsum(sizes + _LENGTH_BYTES)
    total = int(ends[-1]) if len(ends) else 0
    # In words of two bytes: a length takes two of them, every number one.
    words = np.empty(total // 2, ">u2")
    is_number = np.ones(len(words), np.bool_)
    heads = (ends - sizes - _LENGTH_BYTES) // 2
    is_number[heads] = is_number[heads + 1] = False
    words[heads], words[heads + 1] = sizes >> 16, sizes & 0xFFFF
    words[is_number] = values
    return _packed(_BYTEA, len(starts), words.tobytes())


def _packed(number: int, count: int, cells: bytes) -> PackedArray:
    # Dimensions, whether values may be missing, the type, the size, and the first index.
    header = [1, 1, number, count, 1] if count else [0, 0, number]
    return PackedArray(np.array(header, ">i4").tobytes() + cells)
