"""Numbered lines out of a file of JSON or a reader's entries, and batches of them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any

from meritory.errors import InputError
from meritory.flow.importing.entries import Entry
from meritory.flow.write import BATCH_LIMIT

LINE_LIMIT_BYTES = 2_000_000
# A memory of ours brings its whole history along.
EXPORT_LINE_LIMIT_BYTES = 64_000_000
# A batch ends before its lines grow beyond this together; only a single line may be longer.
BATCH_LIMIT_BYTES = 8_000_000
_SKIP_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Line:
    """One line, or one entry: its number, what it holds or why nothing, and how far it reaches."""

    number: int
    size_bytes: int
    end_bytes: int
    value: Any
    # Where it was, for what has no lines.
    place: str = ""

    def problem(self, reason: str) -> tuple[int, str]:
        """What is wrong with it, and where it is."""
        return self.number, f"{self.place}: {reason}" if self.place else reason


@dataclass(frozen=True, slots=True)
class Batch:
    """Lines for one transaction; the one with the file's end is the last."""

    lines: list[Line]
    is_last: bool

    @property
    def last_number(self) -> int:
        """How far it reaches."""
        return self.lines[-1].number


def is_header(value: Any) -> bool:
    """Whether a line opens an export of ours."""
    return isinstance(value, dict) and "meritory_export" in value


def json_lines(file: IO[bytes]) -> Iterator[Line]:
    """The parsed lines that are not blank; a bad one has the reason as its value."""
    at_bytes, limit, is_first = 0, LINE_LIMIT_BYTES, True
    for number in itertools.count(1):
        raw = file.readline(limit)
        if not raw:
            return
        start_bytes, at_bytes = at_bytes, at_bytes + len(raw)
        if len(raw) == limit and not raw.endswith(b"\n"):
            at_bytes += _skip_line(file)
            value: Any = InputError(f"longer than {limit} bytes")
        elif raw.strip():
            value = _parsed(raw)
        else:
            continue
        if is_first and is_header(value):
            limit = EXPORT_LINE_LIMIT_BYTES
        is_first = False
        yield Line(number, at_bytes - start_bytes, at_bytes, value)


def entry_lines(entries: Iterable[Entry], total_bytes: int) -> Iterator[Line]:
    """A reader's entries, numbered; they never reach beyond the end."""
    at_bytes = 0
    for number, entry in enumerate(entries, 1):
        at_bytes = min(total_bytes, at_bytes + entry.size_bytes)
        yield Line(number, entry.size_bytes, at_bytes, entry.value, entry.place)


def batches(lines: Iterable[Line]) -> Iterator[Batch]:
    """Lines by the batch, limited in number and in bytes."""
    batch: list[Line] = []
    size_bytes = 0
    for line in lines:
        if batch and (
            len(batch) >= BATCH_LIMIT or size_bytes + line.size_bytes > BATCH_LIMIT_BYTES
        ):
            yield Batch(batch, is_last=False)
            batch, size_bytes = [], 0
        batch.append(line)
        size_bytes += line.size_bytes
    if batch:
        yield Batch(batch, is_last=True)


def _skip_line(file: IO[bytes]) -> int:
    skipped = 0
    while raw := file.readline(_SKIP_BYTES):
        skipped += len(raw)
        if raw.endswith(b"\n"):
            break
    return skipped


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode("utf-8-sig"), parse_constant=_no_constant)
    except RecursionError:
        return InputError("nested too deeply")
    except ValueError as error:
        return InputError(f"not a line of JSON in UTF-8: {str(error)[:80]}")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")
