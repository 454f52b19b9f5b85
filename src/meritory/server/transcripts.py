"""A transcript in a file, read message by message in bounded memory."""

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


# Of a longer file, the end is read.
FILE_LIMIT_BYTES: Final = 100_000_000
# A transcript that is one JSON document has to be in memory as a whole.
DOCUMENT_LIMIT_BYTES: Final = 64 << 20
# A longer line is skipped. It holds an image or another attachment.
LINE_LIMIT_BYTES: Final = 16 << 20
_CHUNK_BYTES: Final = 1 << 20
_DOCUMENT_STARTS: Final = (b"{\n", b"{\r\n", b"\xef\xbb\xbf{\n", b"\xef\xbb\xbf{\r\n")
# Only Gemini CLI writes these, and only its entries are written again or taken back.
_REVISION_MARKS: Final = (b'"$rewindTo"', b'"gemini"', b'"projectHash"')
_MARK_LIMIT_BYTES: Final = max(map(len, _REVISION_MARKS))


class TranscriptFile:
    """An open transcript; `skipped_count` says how many lines could not be read."""

    def __init__(self, file: BinaryIO, limit_bytes: int = FILE_LIMIT_BYTES) -> None:
        self.skipped_count = 0
        self._file = file
        # What a client appends from now on belongs to the next end of the session.
        self._end = os.fstat(file.fileno()).st_size
        self._start = max(0, self._end - limit_bytes)

    def messages(self) -> Iterator[Message]:
        """Yield the messages in the order of the conversation; call it once."""
        if self._is_document():
            entries = self._document()
        elif self._has_revisions():
            entries = self._revised()
        else:
            entries = (self._decoded(place, line) for place, line in self._lines())
        for entry in entries:
            if isinstance(entry, dict):
                yield from entry_messages(entry)

    def _is_document(self) -> bool:
        self._file.seek(self._start)
        return self._start == 0 and self._file.read(8).startswith(_DOCUMENT_STARTS)

    def _document(self) -> Iterator[Any]:
        if self._end > DOCUMENT_LIMIT_BYTES:
            self.skipped_count += 1
            return
        self._file.seek(0)
        text = strip_byte_order_mark(self._file.read(self._end).decode("utf-8", "replace"))
        order = EntryOrder()
        for place, entry in document_entries(text):
            order.note(place, entry)
        for place in order.places():
            yield entry_at(text, place)

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
        """Yield the entries that count: one pass finds their places, a second reads them."""
        order = EntryOrder()
        for place, line in self._lines():
            order.note(place, self._decoded(place, line))
        for place in order.places():
            self._file.seek(place)
            yield self._decoded(place, self._file.readline(LINE_LIMIT_BYTES))

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield every line with its place."""
        place = self._start
        self._file.seek(place)
        if place:
            # The first line is cut.
            place += self._pass_line(self._end - place)
        while place < self._end:
            line = self._file.readline(min(LINE_LIMIT_BYTES, self._end - place))
            if not line:
                return
            start, place = place, place + len(line)
            if line.endswith(b"\n") or place >= self._end:
                yield start, line
            else:
                self.skipped_count += 1
                place += self._pass_line(self._end - place)

    def _pass_line(self, left: int) -> int:
        """Move behind the end of the line; return how many bytes that were."""
        passed = 0
        while passed < left:
            piece = self._file.readline(min(_CHUNK_BYTES, left - passed))
            passed += len(piece)
            if not piece or piece.endswith(b"\n"):
                break
        return passed

    def _decoded(self, place: int, line: bytes) -> Any:
        text = line.decode("utf-8", "replace")
        text = (text if place else strip_byte_order_mark(text)).strip()
        entry = decode_line(text) if text else None
        if text and entry is None:
            self.skipped_count += 1
        return entry


# Before a compaction, only late ratings are of interest.
TAIL_LIMIT_BYTES = 1 << 20
# Whoever waits for a prompt waits for this too, and only the last replies are of interest.
NEAR_LIMIT_BYTES = 1 << 18
_PATH_LIMIT_CHARS = 4_096
# A pipe must not be waited for.
_STEP = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def told(call: Call, transcript: Any, path: str | None, limit_bytes: int = TAIL_LIMIT_BYTES) -> Any:
    """The transcript itself, or what stands in the file that was named instead."""
    if isinstance(transcript, str) and call.body.relayed:
        # A hook on another machine sends what stands in the file.
        return read_messages(transcript)
    path = path or _usual(call.body)
    if transcript is not None or path is None:
        return transcript
    opened = _followed(call, path)
    if opened is None:
        return None
    with opened:
        return _tail(opened, limit_bytes)


@contextlib.contextmanager
def whole(call: Call, transcript: Any, path: str | None) -> Iterator[Any]:
    """Yield the transcript, or an iterator over the messages of the file that was named instead.

    The iterator reads the whole file as it goes, and only within the block.
    """
    path = path or _usual(call.body)
    if transcript is not None or path is None:
        yield told(call, transcript, path)
        return
    opened = _followed(call, path)
    if opened is None:
        yield None
        return
    with opened:
        found = TranscriptFile(opened)
        yield found.messages()
        if found.skipped_count:
            call.server.observer.count("hooks.transcript_lines_skipped", found.skipped_count)


def _followed(call: Call, path: str) -> BinaryIO | None:
    """Return the file that a hook names, open; None for one that is refused."""
    try:
        if call.door != "socket":
            raise InputError(
                "transcript_path is only followed for callers on the Unix socket",
                hint="send the transcript itself",
            )
        return open_file(path, Path(os.path.expanduser("~")), call.body.client_home)
    except InputError:
        if not call.body.relayed:
            raise
        # Who relays cannot send another one, and the rest is worth hearing.
        call.server.observer.count("hooks.transcript_refused")
        return None


def _usual(body: Any) -> str | None:
    """Where Copilot CLI keeps its transcript, which it names at a reply only."""
    if body.harness != copilot_cli.NAME or not body.relayed:
        return None
    return copilot_cli.usual_transcript(body.client_home, body.session_key)


def read_file(
    path: str, home: Path, moved: str | None = None, limit_bytes: int = TAIL_LIMIT_BYTES
) -> list[Message]:
    """The messages of a harness's transcript, the latest ones if it is long; none before it exists.

    `moved` is where the harness keeps its own data when that is not in the user's home.
    """
    with open_file(path, home, moved) as opened:
        return _tail(opened, limit_bytes)


def open_file(path: str, home: Path, moved: str | None = None) -> BinaryIO:
    """Open a harness's transcript; an empty file stands in for one that does not exist yet."""
    folder, names = _placed(path, home, moved)
    try:
        return open(_opened(folder, names), "rb")
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
        # A cut first line is no whole object any more.
        raw = raw.partition(b"\n")[2]
    return read_messages(raw.decode("utf-8", "replace"))


def _placed(path: str, home: Path, moved: str | None) -> tuple[Path, tuple[str, ...]]:
    """The harness's folder that a path lies in, and the way from there; nothing is looked at."""
    if not path or "\0" in path or len(path) > _PATH_LIMIT_CHARS:
        raise InputError("transcript_path is no path")
    named = home / path[2:] if path.startswith("~/") else Path(path)
    folders = [home / folder for harness in harness_modules() for folder in harness.TRANSCRIPTS]
    if moved and os.path.isabs(moved) and "\0" not in moved:
        folders += [
            Path(moved) / folder
            for harness in harness_modules()
            for folder in harness.MOVED_TRANSCRIPTS
        ]
    for folder in folders:
        # The folder itself may be kept elsewhere, behind a link of the user's.
        real = Path(os.path.realpath(folder))
        for start in (folder, real):
            if named.is_relative_to(start) and ".." not in named.parts:
                return real, named.relative_to(start).parts
    raise InputError(
        "a transcript lies where a harness keeps its sessions", hint="send the transcript itself"
    )


def _opened(folder: Path, names: tuple[str, ...]) -> int:
    """The file, open; each step is taken from the one before, so no link is ever followed."""
    step = os.open(folder, _STEP | os.O_DIRECTORY)
    for place, name in enumerate(names, start=1):
        is_last = place == len(names)
        try:
            inner = os.open(name, _STEP | (0 if is_last else os.O_DIRECTORY), dir_fd=step)
        finally:
            os.close(step)
        step = inner
    about = os.fstat(step)
    if stat.S_ISREG(about.st_mode) and about.st_nlink == 1 and about.st_uid == os.geteuid():
        return step
    os.close(step)
    raise InputError("a transcript is a regular file of one's own, and no link to one")
