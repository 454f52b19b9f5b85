"""Whole columns as PostgreSQL takes arrays in binary: made by numpy, not value by value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from meritory.domain.errors import InputError
from meritory.store.postgres.connection import NUL_REFUSED

if TYPE_CHECKING:
    from psycopg.adapt import Dumper


# PostgreSQL's own numbers for its types, which never change.
_BYTEA, _BIGINT, _INTEGER, _TEXT, _REAL = 17, 20, 23, 25, 700
_NUMBERS: dict[str, tuple[int, str]] = {
    "i8": (_BIGINT, ">i8"),
    "i4": (_INTEGER, ">i4"),
    "f4": (_REAL, ">f4"),
}
_LENGTH_BYTES = 4
# In the place of a length.
_MISSING = b"\xff\xff\xff\xff"


@dataclass(frozen=True, slots=True)
class PackedArray:
    """An array of one dimension, as it goes over the wire."""

    content: bytes


def packed_dumper() -> type[Dumper]:
    """What hands a packed array to the driver; the statement says its type."""
    from psycopg.adapt import Buffer, Dumper
    from psycopg.pq import Format

    class PackedDumper(Dumper):
        format = Format.BINARY

        def dump(self, obj: Any) -> Buffer:
            content: bytes = obj.content
            return content

    return PackedDumper


def packed_numbers(values: NDArray[Any], kind: str) -> PackedArray:
    """An array of numbers: `i8`, `i4` or `f4`."""
    number, sent_as = _NUMBERS[kind]
    size = np.dtype(sent_as).itemsize
    cells = np.empty(len(values), np.dtype([("length", ">i4"), ("value", sent_as)]))
    cells["length"], cells["value"] = size, values
    return _packed(number, len(values), cells.tobytes())


def packed_texts(texts: Sequence[str], at: Iterable[int], count: int) -> PackedArray:
    """An array of texts, each told by its place in a list that has it once."""
    cells = [_cell(text) for text in texts]
    return _packed(_TEXT, count, b"".join([cells[one] for one in at]))


def packed_column(texts: Sequence[str | None]) -> PackedArray:
    """An array of texts, some of which may be missing."""
    cells, has_missing = [], False
    for text in texts:
        if text is None:
            cells.append(_MISSING)
            has_missing = True
        else:
            cells.append(_cell(text))
    return _packed(_TEXT, len(texts), b"".join(cells), has_missing=has_missing)


def _cell(text: str) -> bytes:
    if "\0" in text:
        raise InputError(NUL_REFUSED)
    encoded = text.encode()
    return len(encoded).to_bytes(_LENGTH_BYTES, "big") + encoded


def packed_pieces(values: NDArray[np.uint16], starts: NDArray[np.int64]) -> PackedArray:
    """An array of byte strings: small numbers, cut where each string begins."""
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


def packed_vectors(vectors: NDArray[np.float32], number: int) -> PackedArray:
    """An array of pgvector's vectors, whose type has this number in its database."""
    count, dimension = vectors.shape
    cell = [("length", ">i4"), ("width", ">i2"), ("unused", ">i2"), ("numbers", ">f4", dimension)]
    cells = np.zeros(count, np.dtype(cell))
    cells["length"], cells["width"], cells["numbers"] = 4 + 4 * dimension, dimension, vectors
    return _packed(number, count, cells.tobytes())


def _packed(number: int, count: int, cells: bytes, *, has_missing: bool = False) -> PackedArray:
    """With the header in front: dimensions, missing ones, the type, the size, counted from one."""
    header = [1, int(has_missing), number, count, 1] if count else [0, 0, number]
    return PackedArray(np.array(header, ">i4").tobytes() + cells)
