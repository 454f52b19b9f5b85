"""What every reader yields, and what all of them share: bounded reading, and cleaned fields."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Literal, get_args

from meritory.domain.codec import parse_moment
from meritory.domain.errors import InputError, MeritoryError, TooLarge
from meritory.domain.memory import NAME_LIMIT_CHARS, TAG_LIMIT_CHARS, TAG_LIMIT_COUNT
from meritory.engine.memories.write import BATCH_LIMIT
from meritory.text.entities import MAX_NAME_CHARS
from meritory.text.normalize import content_hash

Form = Literal["meritory", "jsonl", "mem0", "claude-mem", "basic-memory", "markdown"]
FORMS: tuple[str, ...] = get_args(Form)
# How a source names an import, so that a second one finds what the first brought.
HARNESS_START = "import/"
TEXT_LIMIT_BYTES = 4_000_000
FILE_LIMIT_COUNT = 20_000
_MS_PER_S = 1_000
# A pickle may hold a number of a million digits, which cannot even be written out.
_NUMBER_MAX = 1 << 128
# An epoch above this counts milliseconds: as seconds it would lie far ahead.
_SECONDS_MAX = 100_000_000_000


class Skipped(InputError):
    """Something that an import leaves out on purpose, and says so."""


@dataclass(frozen=True, slots=True)
class ImportEntry:
    """One thing that was read: the fields of a draft or why there are none, and where it was."""

    place: str
    value: Mapping[str, Any] | MeritoryError
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """What was recognised at a path: its format, how it was told, and the files to read."""

    form: Form
    path: Path
    files: tuple[Path, ...]
    why: str
    # What was seen and is left alone, links for instance.
    remarks: tuple[str, ...] = ()
    # Of several people's memories only these, where the format tells them apart.
    only_user: str | None = None


def open_regular(path: Path) -> IO[bytes]:
    """Opens a plain file for reading; devices, pipes and folders are refused."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path} cannot be read: {reason}", hint="check the path") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InputError(f"{path} is not a plain file", hint="give the path of a JSONL file")
    return open(descriptor, "rb")


def read_text(path: Path, limit_bytes: int = TEXT_LIMIT_BYTES) -> str:
    """A text file as a whole, with every line break a newline."""
    with open_regular(path) as file:
        raw = file.read(limit_bytes + 1)
    if len(raw) > limit_bytes:
        raise TooLarge(f"{path.name} is larger than {limit_bytes:,} bytes", hint="split it")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path.name} is not text in UTF-8", hint="convert it first") from error
    if "\0" in text:
        raise InputError(f"{path.name} is not a text file")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def source(form: Form, turn: str, content: str, session_key: object = None) -> dict[str, Any]:
    """Where a memory came from; its hash tells the same text when it is imported again."""
    return {
        "harness": f"{HARNESS_START}{form}",
        "session_key": name_or_none(session_key),
        "turn": name_or_none(turn),
        "quote_hash": content_hash(content),
    }


def name_or_none(value: object) -> str | None:
    """A name as our fields take it: printable, not empty, not too long."""
    if not isinstance(value, str | int) or isinstance(value, bool):
        return None
    if isinstance(value, int) and abs(value) > _NUMBER_MAX:
        return None
    return _printable(str(value))[:NAME_LIMIT_CHARS].strip() or None


def tags(*groups: object) -> list[str]:
    """All that can be a tag out of lists, or texts with commas."""
    found: dict[str, None] = {}
    for group in groups:
        items = group.split(",") if isinstance(group, str) else group
        for item in items if isinstance(items, list | tuple) else ():
            if isinstance(item, str) and (tag := _printable(item).strip()[:TAG_LIMIT_CHARS]):
                found[tag.strip()] = None
    return list(found)[:TAG_LIMIT_COUNT]


def entity(title: str) -> str | None:
    """A title as the name of an entity, in which a slash would tell an aspect."""
    return " ".join(_printable(title).replace("/", " ").split())[:MAX_NAME_CHARS].strip() or None


def when(*values: object) -> datetime | None:
    """The first of several values that is a time: ISO text, or seconds or ms since 1970."""
    for value in values:
        try:
            if isinstance(value, int | float) and not isinstance(value, bool):
                seconds = value / _MS_PER_S if abs(value) > _SECONDS_MAX else value
                return datetime.fromtimestamp(seconds, UTC)
            if value is not None:
                return parse_moment(value)
        except (InputError, OverflowError, ValueError, OSError):
            continue
    return None


def changed_at(path: Path) -> datetime:
    """When a file was last written."""
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


def filled(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that say something."""
    return {name: value for name, value in fields.items() if value not in (None, (), [])}


def digest_of(files: tuple[Path, ...], first: bytes) -> str:
    """What names a set of files: their bytes in order, after what else belongs to it.

    The log beside a database belongs to it.
    """
    whole = hashlib.sha256(first)
    logs = [path.with_name(f"{path.name}-wal") for path in files]
    for path in (*files, *(log for log in logs if log.is_file())):
        whole.update(f"\0{path.name}\0".encode("utf-8", "surrogateescape"))
        with open_regular(path) as file:
            for chunk in iter(lambda: file.read(1 << 20), b""):
                whole.update(chunk)
    return whole.hexdigest()


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


LINE_LIMIT_BYTES = 2_000_000
# A memory of ours brings its whole history along.
EXPORT_LINE_LIMIT_BYTES = 64_000_000
# A batch ends before its lines grow beyond this together; only a single line may be longer.
BATCH_LIMIT_BYTES = 8_000_000
_SKIP_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ImportLine:
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
class LineBatch:
    """Lines for one transaction; the one with the file's end is the last."""

    lines: list[ImportLine]
    is_last: bool

    @property
    def last_number(self) -> int:
        """How far it reaches."""
        return self.lines[-1].number


def is_header(value: Any) -> bool:
    """Whether a line opens an export of ours."""
    return isinstance(value, dict) and "meritory_export" in value


def json_lines(file: IO[bytes]) -> Iterator[ImportLine]:
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
        yield ImportLine(number, at_bytes - start_bytes, at_bytes, value)


def entry_lines(entries: Iterable[ImportEntry], total_bytes: int) -> Iterator[ImportLine]:
    """A reader's entries, numbered; they never reach beyond the end."""
    at_bytes = 0
    for number, entry in enumerate(entries, 1):
        at_bytes = min(total_bytes, at_bytes + entry.size_bytes)
        yield ImportLine(number, entry.size_bytes, at_bytes, entry.value, entry.place)


def batches(lines: Iterable[ImportLine]) -> Iterator[LineBatch]:
    """Lines by the batch, limited in number and in bytes."""
    batch: list[ImportLine] = []
    size_bytes = 0
    for line in lines:
        if batch and (
            len(batch) >= BATCH_LIMIT or size_bytes + line.size_bytes > BATCH_LIMIT_BYTES
        ):
            yield LineBatch(batch, is_last=False)
            batch, size_bytes = [], 0
        batch.append(line)
        size_bytes += line.size_bytes
    if batch:
        yield LineBatch(batch, is_last=True)


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
