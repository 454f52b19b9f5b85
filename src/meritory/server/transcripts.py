"""Transcripts that hooks carry or name, read message by message in bounded memory."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from meritory.connect import copilot_cli
from meritory.connect.desired import harness_modules
from meritory.connect.transcript_entry import Message
from meritory.connect.transcripts import (
    EntryOrder,
    decode_line,
    document_entries,
    entry_at,
    entry_messages,
    read_messages,
)
from meritory.domain.errors import InputError
from meritory.text.normalize import strip_byte_order_mark

if TYPE_CHECKING:
    from meritory.server.table import Call


# Only the end of a longer file is read.
FILE_LIMIT_BYTES: Final = 100_000_000
# A transcript that is one JSON document must fit into memory.
DOCUMENT_LIMIT_BYTES: Final = 64 << 20
# A longer line is skipped: it holds an image or another attachment.
LINE_LIMIT_BYTES: Final = 16 << 20
_CHUNK_BYTES: Final = 1 << 20
_DOCUMENT_STARTS: Final = (b"{\n", b"{\r\n", b"\xef\xbb\xbf{\n", b"\xef\xbb\xbf{\r\n")
# Only Gemini CLI writes these, and only its entries replace or remove earlier ones.
_REVISION_MARKS: Final = (b'"$rewindTo"', b'"gemini"', b'"projectHash"')
_MARK_LIMIT_BYTES: Final = max(map(len, _REVISION_MARKS))


class TranscriptFile:
    """An open transcript; `skipped_count` is the number of unreadable lines."""

    def __init__(self, file: BinaryIO, limit_bytes: int = FILE_LIMIT_BYTES) -> None:
        self.skipped_count = 0
        self._file = file
        # Lines that a harness appends from now on belong to the next end of the session.
        self._end = os.fstat(file.fileno()).st_size
        self._start = max(0, self._end - limit_bytes)

    def messages(self) -> Iterator[Message]:
        """Yield the messages in the order of the conversation; call it once."""
        self._file.seek(self._start)
        if self._start == 0 and self._file.read(8).startswith(_DOCUMENT_STARTS):
            entries = self._document()
        elif self._has_revisions():
            entries = self._revised()
        else:
            entries = (self._decode(offset, line) for offset, line in self._lines())
        for entry in entries:
            if isinstance(entry, dict):
                yield from entry_messages(entry)

    def _document(self) -> Iterator[Any]:
        if self._end > DOCUMENT_LIMIT_BYTES:
            self.skipped_count += 1
            return
        self._file.seek(0)
        text = strip_byte_order_mark(self._file.read(self._end).decode("utf-8", "replace"))
        order = EntryOrder()
        for offset, entry in document_entries(text):
            order.note(offset, entry)
        for offset in order.places():
            yield entry_at(text, offset)

    def _has_revisions(self) -> bool:
        """Return whether an entry may replace or remove an earlier one."""
        self._file.seek(self._start)
        before, left = b"", self._end - self._start
        while left > 0 and (chunk := self._file.read(min(_CHUNK_BYTES, left))):
            left -= len(chunk)
            chunk = before + chunk
            if any(mark in chunk for mark in _REVISION_MARKS):
                return True
            before = chunk[-_MARK_LIMIT_BYTES:]
        return False

    def _revised(self) -> Iterator[Any]:
        """Yield the valid entries: one pass finds their offsets, a second reads them."""
        order = EntryOrder()
        for offset, line in self._lines():
            order.note(offset, self._decode(offset, line))
        for offset in order.places():
            self._file.seek(offset)
            yield self._decode(offset, self._file.readline(LINE_LIMIT_BYTES))

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield every line with its offset."""
        offset = self._start
        self._file.seek(offset)
        if offset:
            # The first line is cut.
            offset += self._skip_line(self._end - offset)
        while offset < self._end:
            line = self._file.readline(min(LINE_LIMIT_BYTES, self._end - offset))
            if not line:
                return
            start, offset = offset, offset + len(line)
            if line.endswith(b"\n") or offset >= self._end:
                yield start, line
            else:
                self.skipped_count += 1
                offset += self._skip_line(self._end - offset)

    def _skip_line(self, left: int) -> int:
        """Move behind the end of the line; return the number of bytes."""
        passed = 0
        while passed < left:
            piece = self._file.readline(min(_CHUNK_BYTES, left - passed))
            passed += len(piece)
            if not piece or piece.endswith(b"\n"):
                break
        return passed

    def _decode(self, offset: int, line: bytes) -> Any:
        text = line.decode("utf-8", "replace")
        text = (text if offset else strip_byte_order_mark(text)).strip()
        entry = decode_line(text) if text else None
        if text and entry is None:
            self.skipped_count += 1
        return entry


# Before a compaction only late ratings matter.
TAIL_LIMIT_BYTES = 1 << 20
# A prompt waits for this read, and only the last replies matter.
NEAR_LIMIT_BYTES = 1 << 18
_PATH_LIMIT_CHARS = 4_096
# Opening a pipe must not block.
_STEP = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read_transcript(
    call: Call, transcript: Any, path: str | None, limit_bytes: int = TAIL_LIMIT_BYTES
) -> Any:
    """Return the transcript of a hook, or the end of the file that it names."""
    if isinstance(transcript, str) and call.body.relayed:
        # A hook on another machine sends the text of the file.
        return read_messages(transcript)
    path = path or _default_path(call.body)
    if transcript is not None or path is None:
        return transcript
    opened = _open_named(call, path)
    if opened is None:
        return None
    with opened:
        return _tail(opened, limit_bytes)


@contextlib.contextmanager
def open_transcript(call: Call, transcript: Any, path: str | None) -> Iterator[Any]:
    """Yield the transcript of a hook, or an iterator over the messages of the file that it names.

    The iterator reads the whole file as it goes, and only within the block.
    """
    path = path or _default_path(call.body)
    if transcript is not None or path is None:
        yield read_transcript(call, transcript, path)
        return
    opened = _open_named(call, path)
    if opened is None:
        yield None
        return
    with opened:
        file = TranscriptFile(opened)
        yield file.messages()
        if file.skipped_count:
            call.server.observer.count("hooks.transcript_lines_skipped", file.skipped_count)


def _open_named(call: Call, path: str) -> BinaryIO | None:
    """Open the file that a hook names; None if a relayed hook names a forbidden one."""
    try:
        if call.door != "socket":
            raise InputError(
                "transcript_path is only allowed on the Unix socket",
                hint="send the transcript itself",
            )
        return open_file(path, Path(os.path.expanduser("~")), call.body.client_home)
    except InputError:
        if not call.body.relayed:
            raise
        # A relayed hook cannot send another path, and its other fields still count.
        call.server.observer.count("hooks.transcript_refused")
        return None


def _default_path(body: Any) -> str | None:
    """Return the path of Copilot CLI's transcript, which only its replies name."""
    if body.harness != copilot_cli.NAME or not body.relayed:
        return None
    return copilot_cli.usual_transcript(body.client_home, body.session_key)


def read_file(
    path: str, home: Path, moved: str | None = None, limit_bytes: int = TAIL_LIMIT_BYTES
) -> list[Message]:
    """Return the latest messages of a harness's transcript; none before the file exists.

    `moved` is the harness's data folder if it is not in the user's home.
    """
    with open_file(path, home, moved) as opened:
        return _tail(opened, limit_bytes)


def open_file(path: str, home: Path, moved: str | None = None) -> BinaryIO:
    """Open a harness's transcript; an empty file stands in for one that does not exist yet."""
    folder, names = _locate(path, home, moved)
    try:
        return open(_open_without_links(folder, names), "rb")
    except FileNotFoundError:
        # Harnesses name the file before they write its first line.
        return open(os.devnull, "rb")
    except OSError as error:
        raise InputError(f"the transcript cannot be read: {error.strerror}") from error


def _tail(opened: BinaryIO, limit_bytes: int) -> list[Message]:
    size = os.fstat(opened.fileno()).st_size
    opened.seek(max(0, size - limit_bytes))
    raw = opened.read(limit_bytes)
    if size > limit_bytes:
        # Drop the first line, which is cut.
        raw = raw.partition(b"\n")[2]
    return read_messages(raw.decode("utf-8", "replace"))


def _locate(path: str, home: Path, moved: str | None) -> tuple[Path, tuple[str, ...]]:
    """Return the harness's folder of a path and the names below it, without reading the disk."""
    if not path or "\0" in path or len(path) > _PATH_LIMIT_CHARS:
        raise InputError("transcript_path is not a path")
    named = home / path[2:] if path.startswith("~/") else Path(path)
    folders = [home / folder for harness in harness_modules() for folder in harness.TRANSCRIPTS]
    if moved and os.path.isabs(moved) and "\0" not in moved:
        folders += [
            Path(moved) / folder
            for harness in harness_modules()
            for folder in harness.MOVED_TRANSCRIPTS
        ]
    for folder in folders:
        # The folder itself may be a link of the user's.
        real = Path(os.path.realpath(folder))
        for start in (folder, real):
            if named.is_relative_to(start) and ".." not in named.parts:
                return real, named.relative_to(start).parts
    raise InputError(
        "transcript_path is not in a folder of a harness", hint="send the transcript itself"
    )


def _open_without_links(folder: Path, names: tuple[str, ...]) -> int:
    """Open the file step by step from its folder, so that no link is ever followed."""
    step = os.open(folder, _STEP | os.O_DIRECTORY)
    for number, name in enumerate(names, start=1):
        is_last = number == len(names)
        try:
            inner = os.open(name, _STEP | (0 if is_last else os.O_DIRECTORY), dir_fd=step)
        finally:
            os.close(step)
        step = inner
    info = os.fstat(step)
    if stat.S_ISREG(info.st_mode) and info.st_nlink == 1 and info.st_uid == os.geteuid():
        return step
    os.close(step)
    raise InputError("the transcript must be a regular file of the user, not a link")
