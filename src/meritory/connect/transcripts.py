"""Transcripts of all harnesses: their entries, and files of them in bounded memory.

A transcript is a file of JSON lines or one JSON document with a list of messages. Each harness
reads its own entries (`read_entry` in its module). The formats are undocumented and change: an
unknown entry is skipped, never guessed at. Readers leave out what no person or agent said: context
that was inserted next to a prompt, talk among subagents, and bookkeeping.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from meritory.connect.desired import Message, harness_modules
from meritory.domain.errors import InputError
from meritory.text import embedded
from meritory.text.normalize import strip_byte_order_mark

# A message has at least one of these.
MESSAGE_KEYS: Final = ("role", "content", "text", "arguments", "output")


def is_inserted(message: Message) -> bool:
    """Return whether the client wrote a message in the user's name."""
    content = message.get("content")
    first = content[0] if isinstance(content, list) and content else content
    text = first.get("text") if isinstance(first, dict) else first
    return isinstance(text, str) and embedded.is_inserted(text)


def tool_calls(calls: object) -> list[Message]:
    """Return a message for each tool call of a list."""
    return [
        {
            "type": "tool_call",
            "id": call.get("toolCallId", call.get("id")),
            "name": call.get("name"),
            "arguments": call.get("arguments", call.get("args")),
        }
        for call in (calls if isinstance(calls, list) else ())
        if isinstance(call, dict)
    ]


def tool_result(content: object, call_id: object, name: object) -> Message:
    """Return the message of a result, with the id and the tool of its call."""
    return {"type": "tool_result", "content": content, "tool_use_id": call_id, "name": name}


def without_context(text: str) -> str:
    """Return a prompt without the context that Gemini CLI puts next to it and hands back."""
    opening, closing = "<hook_context>", "</hook_context>"
    pieces: list[str] = []
    end = 0
    while (start := text.find(opening, end)) >= 0 and (stop := text.find(closing, start)) >= 0:
        pieces.append(text[end:start])
        end = stop + len(closing)
    return "".join((*pieces, text[end:])).strip() if end else text


def read_common(entry: Message) -> list[Message]:
    """Return the message with a role and a text that most programs write."""
    inner = entry.get("message")
    message = inner if isinstance(inner, dict) else entry
    if not any(key in message for key in MESSAGE_KEYS) or is_inserted(message):
        return []
    # Cursor has the role outside the message.
    role = message.get("role") or entry.get("role") or message.get("type")
    said = {**message, "role": role} if role else {**message}
    if role == "user" and "content" in said:
        said["content"] = _typed(said["content"])
    return [said]


def _typed(content: Any) -> Any:
    """Return what the user typed, where the client marked it."""
    if isinstance(content, list):
        return [
            {**part, "text": _typed(part["text"])}
            if isinstance(part, dict) and isinstance(part.get("text"), str)
            else part
            for part in content
        ]
    if not isinstance(content, str):
        return content
    return without_context(embedded.user_query(content))


def no_own_format(entry: Message) -> None:
    """Recognise no entry: for a harness that writes the common shape, or another's."""
    return None


# -- whole transcripts ------------------------------------------------------------------------

_DECODER: Final = json.JSONDecoder()
_DOCUMENT_START: Final = re.compile(r"\{\r?\n")
_SPACE: Final = re.compile(r"[ \t\r\n]*")


def read_messages(text: str) -> list[Message]:
    """Return the messages of a transcript."""
    text = strip_byte_order_mark(text)
    entries = dict(_document_entries(text))
    if not entries:
        # Not splitlines: other line separators may stand inside a JSON text as they are.
        entries = dict(enumerate(map(_decode_line, text.split("\n"))))
    return [
        message
        for position in _valid_positions(entries.items())
        for message in _entry_messages(entries[position])
    ]


def _document_entries(text: str) -> Iterator[tuple[int, Any]]:
    """Yield each message in the list of a JSON document with its position in the text.

    A document that is cut off yields the messages before the cut.
    """
    if not _DOCUMENT_START.match(text):
        return
    with contextlib.suppress(ValueError, RecursionError):
        at = _after_space(text, 1)
        while text.startswith('"', at):
            name, at = _DECODER.raw_decode(text, at)
            at = _after_space(text, _after_space(text, at) + 1)
            if name == "messages" and text.startswith("[", at):
                break
            _, at = _DECODER.raw_decode(text, at)
            at = _after_space(text, _after_space(text, at) + 1)
        else:
            return
        at = _after_space(text, at + 1)
        while not text.startswith("]", at):
            value, end = _DECODER.raw_decode(text, at)
            yield at, value
            at = _after_space(text, _after_space(text, end) + 1)


def _after_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def _decode_line(line: str) -> Any:
    """Return the value of a line of JSON; None for an invalid line."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        # The client may be in the middle of writing the last line.
        return None


def _valid_positions(entries: Iterable[tuple[int, Any]]) -> list[int]:
    """Return the positions of the valid entries, in the order of the conversation.

    Gemini CLI writes an entry again when it grows, and takes entries back.
    """
    positions: dict[object, int] = {}
    for position, entry in entries:
        if not isinstance(entry, dict):
            continue
        back = entry.get("$rewindTo")
        if isinstance(back, str) and back in positions:
            while positions.popitem()[0] != back:
                pass
        is_named = entry.get("type") in ("user", "gemini") and isinstance(entry.get("id"), str)
        key = entry["id"] if is_named and "message" not in entry else position
        positions[key] = position
    return list(positions.values())


def _entry_messages(entry: Message) -> list[Message]:
    """Return the messages of one entry, each with a role."""
    readings = (harness.read_entry(entry) for harness in harness_modules())
    own = next((messages for messages in readings if messages is not None), None)
    return read_common(entry) if own is None else own


# -- files ------------------------------------------------------------------------------------

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
                yield from _entry_messages(entry)

    def _document(self) -> Iterator[Any]:
        if self._end > DOCUMENT_LIMIT_BYTES:
            self.skipped_count += 1
            return
        self._file.seek(0)
        text = strip_byte_order_mark(self._file.read(self._end).decode("utf-8", "replace"))
        for offset in _valid_positions(_document_entries(text)):
            yield _DECODER.raw_decode(text, offset)[0]

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
        lines = ((offset, self._decode(offset, line)) for offset, line in self._lines())
        for offset in _valid_positions(lines):
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
        entry = _decode_line(text) if text else None
        if text and entry is None:
            self.skipped_count += 1
        return entry


_PATH_LIMIT_CHARS: Final = 4_096
# Opening a pipe must not block.
_STEP: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_file(path: str, home: Path, moved: str | None = None) -> BinaryIO:
    """Open a harness's transcript; an empty file stands in for one that does not exist yet.

    `moved` is the harness's data folder if it is not in the user's home.
    """
    folder, names = _locate(path, home, moved)
    try:
        # Step by step from the folder, so that no link is ever followed.
        step = os.open(folder, _STEP | os.O_DIRECTORY)
        for number, name in enumerate(names, start=1):
            is_last = number == len(names)
            try:
                inner = os.open(name, _STEP | (0 if is_last else os.O_DIRECTORY), dir_fd=step)
            finally:
                os.close(step)
            step = inner
    except FileNotFoundError:
        # Harnesses name the file before they write its first line.
        return open(os.devnull, "rb")
    except OSError as error:
        raise InputError(f"the transcript cannot be read: {error.strerror}") from error
    info = os.fstat(step)
    if stat.S_ISREG(info.st_mode) and info.st_nlink == 1 and info.st_uid == os.geteuid():
        return open(step, "rb")
    os.close(step)
    raise InputError("the transcript must be a regular file of the user, not a link")


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


def read_tail(file: BinaryIO, limit_bytes: int) -> list[Message]:
    """Return the latest messages of an open transcript."""
    size = os.fstat(file.fileno()).st_size
    file.seek(max(0, size - limit_bytes))
    raw = file.read(limit_bytes)
    if size > limit_bytes:
        # Drop the first line, which is cut.
        raw = raw.partition(b"\n")[2]
    return read_messages(raw.decode("utf-8", "replace"))
