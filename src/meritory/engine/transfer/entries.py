"""Import entries: the output of all readers, bounded file reading and cleaned fields."""

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

from meritory.domain.errors import InputError, MeritoryError, TooLarge
from meritory.domain.memory import NAME_LIMIT_CHARS, TAG_LIMIT_CHARS, TAG_LIMIT_COUNT
from meritory.domain.world import parse_moment
from meritory.engine.memories.write import BATCH_LIMIT
from meritory.store.sqlite.foreign import MAGIC
from meritory.text.entities import MAX_NAME_CHARS
from meritory.text.normalize import content_hash

Form = Literal["meritory", "jsonl", "mem0", "claude-mem", "basic-memory", "markdown"]
FORMS: tuple[str, ...] = get_args(Form)
# The harness of an imported memory starts with this; a second import finds it by that.
HARNESS_START = "import/"
TEXT_LIMIT_BYTES = 4_000_000
FILE_LIMIT_COUNT = 20_000
_MS_PER_S = 1_000
# A pickle may contain a number of a million digits, which Python refuses to print.
_NUMBER_MAX = 1 << 128
# A timestamp above this is in milliseconds: in seconds it would be in the far future.
_SECONDS_MAX = 100_000_000_000


class Skipped(InputError):
    """An entry that an import leaves out on purpose."""


@dataclass(frozen=True, slots=True)
class ImportEntry:
    """The fields of a draft, or the error that prevents one, and their location."""

    place: str
    value: Mapping[str, Any] | MeritoryError
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The format that was recognised at a path, the reason, and the files to read."""

    form: Form
    path: Path
    files: tuple[Path, ...]
    why: str
    # Remarks about skipped files, such as links.
    remarks: tuple[str, ...] = ()
    # Import the memories of this user only, if the format names users.
    only_user: str | None = None


def open_regular(path: Path) -> IO[bytes]:
    """Open a regular file for reading; reject devices, pipes and folders."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path} cannot be read: {reason}", hint="check the path") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InputError(f"{path} is not a regular file", hint="give the path of a JSONL file")
    return open(descriptor, "rb")


def is_database(path: Path) -> bool:
    """Return whether a file is a SQLite database."""
    with open_regular(path) as file:
        return file.read(len(MAGIC)) == MAGIC


def read_text(path: Path, limit_bytes: int = TEXT_LIMIT_BYTES) -> str:
    """Return the text of a file with newlines as line breaks."""
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
    """Return the source of a memory; its hash identifies the text in a later import."""
    return {
        "harness": f"{HARNESS_START}{form}",
        "session_key": name_or_none(session_key),
        "turn": name_or_none(turn),
        "quote_hash": content_hash(content),
    }


def name_or_none(value: object) -> str | None:
    """Return the value as a printable, short name; None if it is empty or not a name."""
    if not isinstance(value, str | int) or isinstance(value, bool):
        return None
    if isinstance(value, int) and abs(value) > _NUMBER_MAX:
        return None
    return _printable(str(value))[:NAME_LIMIT_CHARS].strip() or None


def tags(*groups: object) -> list[str]:
    """Return the valid tags of lists or comma-separated texts."""
    unique: dict[str, None] = {}
    for group in groups:
        items = group.split(",") if isinstance(group, str) else group
        for item in items if isinstance(items, list | tuple) else ():
            if isinstance(item, str) and (tag := _printable(item).strip()[:TAG_LIMIT_CHARS]):
                unique[tag.strip()] = None
    return list(unique)[:TAG_LIMIT_COUNT]


def entity(title: str) -> str | None:
    """Return a title as the name of an entity, without slashes, which would mark an aspect."""
    return " ".join(_printable(title).replace("/", " ").split())[:MAX_NAME_CHARS].strip() or None


def when(*values: object) -> datetime | None:
    """Return the first value that is a time: ISO text, or seconds or milliseconds since 1970."""
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
    """Return the time of the last change of a file."""
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


def make_entry(place: str, *, content: str, **fields: Any) -> ImportEntry:
    """Return an entry with the fields that have a value."""
    given = {"content": content, **fields}
    filled = {name: value for name, value in given.items() if value not in (None, (), [])}
    return ImportEntry(place, filled, len(content.encode("utf-8", "replace")))


def digest_of(files: tuple[Path, ...], first: bytes) -> str:
    """Return the hash of a prefix and of all files, including the logs of databases."""
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
# A line of an export contains the whole history of a memory.
EXPORT_LINE_LIMIT_BYTES = 64_000_000
# The most bytes of a batch; only a single line may be longer.
BATCH_LIMIT_BYTES = 8_000_000
_SKIP_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ImportLine:
    """One line or entry: its number, its value or error, and its end in the file."""

    number: int
    size_bytes: int
    end_bytes: int
    value: Any
    # The location, for formats without lines.
    place: str = ""

    def problem(self, reason: str) -> tuple[int, str]:
        """Return the number of the line and the reason with its location."""
        return self.number, f"{self.place}: {reason}" if self.place else reason


def is_header(value: Any) -> bool:
    """Return whether a line is the header of an export."""
    return isinstance(value, dict) and "meritory_export" in value


def json_lines(file: IO[bytes]) -> Iterator[ImportLine]:
    """Yield the parsed lines that are not blank; the value of an invalid line is its error."""
    at_bytes, limit, is_first = 0, LINE_LIMIT_BYTES, True
    for number in itertools.count(1):
        raw = file.readline(limit)
        if not raw:
            return
        start_bytes, at_bytes = at_bytes, at_bytes + len(raw)
        if len(raw) == limit and not raw.endswith(b"\n"):
            # Skip the rest of the line.
            while rest := file.readline(_SKIP_BYTES):
                at_bytes += len(rest)
                if rest.endswith(b"\n"):
                    break
            value: Any = InputError(f"longer than {limit} bytes")
        elif raw.strip():
            try:
                value = json.loads(raw.decode("utf-8-sig"), parse_constant=_reject_constant)
            except RecursionError:
                value = InputError("nested too deeply")
            except ValueError as error:
                value = InputError(f"not a line of JSON in UTF-8: {str(error)[:80]}")
        else:
            continue
        if is_first and is_header(value):
            limit = EXPORT_LINE_LIMIT_BYTES
        is_first = False
        yield ImportLine(number, at_bytes - start_bytes, at_bytes, value)


def entry_lines(entries: Iterable[ImportEntry], total_bytes: int) -> Iterator[ImportLine]:
    """Yield the entries of a reader as numbered lines."""
    at_bytes = 0
    for number, entry in enumerate(entries, 1):
        at_bytes = min(total_bytes, at_bytes + entry.size_bytes)
        yield ImportLine(number, entry.size_bytes, at_bytes, entry.value, entry.place)


def batches(lines: Iterable[ImportLine]) -> Iterator[tuple[list[ImportLine], bool]]:
    """Yield lines in batches, limited in number and bytes, and whether a batch is the last."""
    batch: list[ImportLine] = []
    size_bytes = 0
    for line in lines:
        if batch and (
            len(batch) >= BATCH_LIMIT or size_bytes + line.size_bytes > BATCH_LIMIT_BYTES
        ):
            yield batch, False
            batch, size_bytes = [], 0
        batch.append(line)
        size_bytes += line.size_bytes
    if batch:
        yield batch, True


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")
