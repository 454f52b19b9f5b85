"""Columns of any kind as PostgreSQL takes arrays in binary, with what is missing among them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from meritory.store.postgres.packing import Packed

_HEADER = struct.Struct(">iiiii")
_INTEGER, _REAL, _LENGTH = struct.Struct(">iq"), struct.Struct(">id"), struct.Struct(">i")
_MISSING = _LENGTH.pack(-1)


def packed_column(kind: str, values: Sequence[Any]) -> Packed:
    """The values of a column of this kind, at least one of them."""
    number, cell = _KINDS[kind]
    cells = [_MISSING if value is None else cell(value) for value in values]
    # Dimensions, whether something is missing, the type, the size, counted from one.
    return Packed(_HEADER.pack(1, 1, number, len(values), 1) + b"".join(cells))


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
