"""Transcripts of all harnesses, read into messages.

A transcript is a file of JSON lines or one JSON document with a list of messages.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any, Final

from meritory.connect.desired import harness_modules
from meritory.connect.transcript_entry import Message, read_common
from meritory.text.normalize import strip_byte_order_mark

_DECODER: Final = json.JSONDecoder()
_DOCUMENT_START: Final = re.compile(r"\{\r?\n")
_SPACE: Final = re.compile(r"[ \t\r\n]*")


def read_messages(text: str) -> list[Message]:
    """Return the messages of a transcript."""
    text = strip_byte_order_mark(text)
    known = dict(document_entries(text))
    if not known:
        # Not splitlines: other line separators may stand inside a JSON text as they are.
        known = dict(enumerate(map(decode_line, text.split("\n"))))
    order = EntryOrder()
    for place, entry in known.items():
        order.note(place, entry)
    return [message for place in order.places() for message in entry_messages(known[place])]


def document_entries(text: str) -> Iterator[tuple[int, Any]]:
    """Yield the list of messages of a JSON document, one by one, each with its place in the text.

    A document that is cut off yields the messages before the cut.
    """
    if not _DOCUMENT_START.match(text):
        return
    # The members before the list are passed over.
    with contextlib.suppress(ValueError, RecursionError):
        at = _after_space(text, 1)
        while text.startswith('"', at):
            name, at = _DECODER.raw_decode(text, at)
            at = _after_space(text, _after_space(text, at) + 1)
            if name == "messages" and text.startswith("[", at):
                yield from _elements(text, _after_space(text, at + 1))
                return
            _, at = _DECODER.raw_decode(text, at)
            at = _after_space(text, _after_space(text, at) + 1)


def _elements(text: str, at: int) -> Iterator[tuple[int, Any]]:
    while not text.startswith("]", at):
        value, end = _DECODER.raw_decode(text, at)
        yield at, value
        at = _after_space(text, _after_space(text, end) + 1)


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def entry_at(text: str, place: int) -> Any:
    """Return the entry of a document at a place that `document_entries` named."""
    return _DECODER.raw_decode(text, place)[0]


def decode_line(line: str) -> Any:
    """Return the value of a line of JSON; None for a line that cannot be read."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        # The client may be in the middle of writing the last line.
        return None


class EntryOrder:
    """The order of a transcript's entries by their places.

    Gemini CLI writes an entry again when it grows, and takes entries back.
    """

    def __init__(self) -> None:
        self._found: dict[object, int] = {}

    def note(self, place: int, entry: Any) -> None:
        """Take in the entry at a place; places rise from entry to entry."""
        if not isinstance(entry, dict):
            return
        back = entry.get("$rewindTo")
        if isinstance(back, str) and back in self._found:
            while self._found.popitem()[0] != back:
                pass
        is_named = entry.get("type") in ("user", "gemini") and isinstance(entry.get("id"), str)
        self._found[entry["id"] if is_named and "message" not in entry else place] = place

    def places(self) -> list[int]:
        """Return the places of the entries that count, in the order of the conversation."""
        return list(self._found.values())


def entry_messages(entry: Message) -> Iterator[Message]:
    """Yield what one entry says, as messages with a role."""
    for harness in harness_modules():
        messages = harness.read_entry(entry)
        if messages is not None:
            yield from messages
            return
    yield from read_common(entry)
