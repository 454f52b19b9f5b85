"""The daemon's log read back: the latest lines that somebody asks for, out of its own files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, get_args

from meritory.codec import parse_moment
from meritory.errors import InputError

Level = Literal["debug", "info", "warning", "error"]
LEVELS: tuple[Level, ...] = get_args(Level)
# However much was logged, no more than this is looked through for a page.
READ_LIMIT_BYTES = 4 * 1024 * 1024
_BLOCK_BYTES = 64 * 1024
_FIELDS = ("at", "level", "category", "event", "request_id")


@dataclass(frozen=True, slots=True)
class LineQuery:
    """Which lines are wanted: of this level or worse, of one category, since a moment."""

    level: Level = "debug"
    category: str | None = None
    since: datetime | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the log."""

    at: datetime
    level: str
    category: str
    event: str
    request_id: str | None
    details: dict[str, Any]


def latest_lines(file: Path, query: LineQuery) -> list[Line]:
    """The latest lines that fit, newest first; from the file before where this one is short."""
    found: list[Line] = []
    for raw in _backwards(file):
        line = _parsed(raw)
        if line is None:
            continue
        if query.since is not None and line.at < query.since:
            break
        if _fits(line, query):
            found.append(line)
        if len(found) == query.limit:
            break
    return found


def _fits(line: Line, query: LineQuery) -> bool:
    # A level nobody here knows, such as `critical`, is worse than all.
    level = LEVELS.index(line.level) if line.level in LEVELS else len(LEVELS)
    is_bad_enough = level >= LEVELS.index(query.level)
    return is_bad_enough and query.category in (None, line.category)


def _backwards(file: Path) -> Iterator[bytes]:
    """The lines of a log and of the one before it, last first, within bounds."""
    left_bytes = READ_LIMIT_BYTES
    for path in (file, file.with_name(f"{file.name}.1")):
        try:
            handle = open(path, "rb")  # noqa: SIM115 - it may not be there
        except OSError:
            continue
        with handle:
            place = handle.seek(0, os.SEEK_END)
            rest = b""
            while place > 0 and left_bytes > 0:
                size = min(_BLOCK_BYTES, place)
                place -= size
                left_bytes -= size
                handle.seek(place)
                rest, *lines = (handle.read(size) + rest).split(b"\n")
                yield from reversed(lines)
            if place == 0:
                yield rest


def _parsed(raw: bytes) -> Line | None:
    """A line as it was written, or None for half a one."""
    try:
        told = json.loads(raw)
        at = parse_moment(told["at"])
        names = {name: told[name] for name in _FIELDS[1:]}
    except (ValueError, TypeError, KeyError, InputError):
        return None
    return Line(at, **names, details={k: v for k, v in told.items() if k not in _FIELDS})
