"""A transcript in a file, read message by message in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from meritory.text.normal import strip_byte_order_mark
from meritory.web.messages import (
    EntryOrder,
    Message,
    decode_line,
    document_entries,
    entry_at,
    entry_messages,
)

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
