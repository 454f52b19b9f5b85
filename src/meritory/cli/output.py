"""What a command has to say, as data: once for programs, once as blocks for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; one that wraps takes the room that is left."""

    name: str
    style: str = ""
    wraps: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of short texts; every cell is made safe for a terminal when it is drawn."""

    columns: tuple[Column, ...]
    rows: Sequence[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Fields:
    """Names with their values, one below the other."""

    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Lines:
    """Plain lines."""

    lines: Sequence[str]


Block = Table | Fields | Lines


@dataclass(frozen=True, slots=True)
class Answer:
    """The object for programs, the blocks for people, and the exit code."""

    plain: dict[str, Any]
    blocks: Sequence[Block] = ()
    code: int = 0
