"""The messages in harnesses' transcripts, out of whatever each of them wraps them in.

The formats are nobody's promise and change: what is not known is passed over, never guessed at.
Left out is all that nobody said: what was put in beside a prompt (our own notes among it), what
subagents said among themselves, and the client's bookkeeping.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from meritory.text.normalize import strip_byte_order_mark

Message = dict[str, Any]

# Texts that clients send under the user's name.
INSERTED: Final = (
    "<environment_context>",
    "<user_instructions>",
    "# AGENTS.md instructions",
    "<turn_aborted>",
)
_MADE_UP: Final = ("isSidechain", "isMeta", "isCompactSummary")
_BOOKKEEPING: Final = ("attachment", "queue-operation")
_TELLING: Final = ("role", "content", "text", "arguments", "output")
_DECODER: Final = json.JSONDecoder()
_DOCUMENT_START: Final = re.compile(r"\{\r?\n")
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_CODEX_TOOLS: Final = {
    "custom_tool_call": "function_call",
    "custom_tool_call_output": "function_call_output",
}


def read_messages(text: str) -> list[Message]:
    """The messages of a transcript: JSON lines, or one JSON document that holds a list of them."""
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


def without_context(text: str) -> str:
    """A prompt without what Gemini CLI was given to show beside it, and hands back with it."""
    opening, closing = "<hook_context>", "</hook_context>"
    pieces: list[str] = []
    end = 0
    while (start := text.find(opening, end)) >= 0 and (stop := text.find(closing, start)) >= 0:
        pieces.append(text[end:start])
        end = stop + len(closing)
    return "".join((*pieces, text[end:])).strip() if end else text


def decode_line(line: str) -> Any:
    """Return the value of a line of JSON; None for a line that cannot be read."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        # A harness may be writing the last line right now.
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
    """What one entry says, as messages with a role."""
    kind = entry.get("type")
    data, payload, message = (_inner(entry, name) for name in ("data", "payload", "message"))
    if any(entry.get(name) for name in _MADE_UP) or kind in _BOOKKEEPING:
        return
    if message is not None and kind not in (None, "user", "assistant"):
        # Claude Code keeps its whole requests there too, each as if the user had said it.
        return
    if data is not None:
        yield from _copilot(str(kind), data)
    elif kind == "gemini":
        yield from _gemini(entry)
    elif payload is not None:
        if kind in (None, "response_item"):
            yield from _codex(payload)
    else:
        yield from _plain(entry, message)


def _inner(entry: Mapping[str, Any], name: str) -> Message | None:
    found = entry.get(name)
    return found if isinstance(found, dict) else None


def _plain(entry: Message, message: Message | None) -> Iterator[Message]:
    """Claude Code, Cursor, and whoever writes role and text."""
    found = entry if message is None else message
    if not any(key in found for key in _TELLING) or _is_inserted(found):
        return
    # Cursor has the role outside the message.
    role = found.get("role") or entry.get("role") or found.get("type")
    said = {**found, "role": role} if role else {**found}
    if role == "user" and "content" in said:
        said["content"] = _asked(said["content"])
    yield said


def _copilot(kind: str, data: Message) -> Iterator[Message]:
    """Copilot CLI and VS Code: events with data; what was put in has a field of its own."""
    if data.get("parentToolCallId"):
        return
    if kind == "user.message" and data.get("source") in (None, "", "user"):
        yield {"role": "user", "content": data.get("content")}
    elif kind == "assistant.message":
        yield {"role": "assistant", "content": data.get("content")}
        yield from _calls(data.get("toolRequests"))
    elif kind == "tool.execution_complete":
        yield _result(data.get("result"), data.get("toolCallId"), data.get("toolName"))


def _gemini(entry: Message) -> Iterator[Message]:
    """Gemini CLI: what the model said, then what it did."""
    yield {"role": "assistant", "content": entry.get("content")}
    calls = entry.get("toolCalls")
    yield from _calls(calls)
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict) and call.get("resultDisplay"):
            yield _result(call["resultDisplay"], call.get("id"), call.get("name"))


def _result(content: object, call_id: object, name: object) -> Message:
    """Return the message of a result, with the id and the tool of its call."""
    return {"type": "tool_result", "content": content, "tool_use_id": call_id, "name": name}


def _calls(calls: object) -> Iterator[Message]:
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            given = call.get("arguments", call.get("args"))
            call_id = call.get("toolCallId", call.get("id"))
            yield {"type": "tool_call", "id": call_id, "name": call.get("name"), "arguments": given}


def _codex(payload: Message) -> Iterator[Message]:
    """Codex: items of the conversation; what hooks and the client say is a developer's word."""
    if payload.get("role") in ("developer", "system") or _is_inserted(payload):
        return
    kind = str(payload.get("type"))
    if kind == "local_shell_call":
        call = {"type": "function_call", "name": "local_shell", "arguments": payload.get("action")}
        yield {**payload, **call}
    elif kind in _CODEX_TOOLS:
        yield {**payload, "type": _CODEX_TOOLS[kind], "arguments": payload.get("input")}
    elif any(key in payload for key in _TELLING):
        yield payload


def _is_inserted(message: Message) -> bool:
    """Whether the client wrote this in the user's name."""
    content = message.get("content")
    first = content[0] if isinstance(content, list) and content else content
    text = first.get("text") if isinstance(first, dict) else first
    return isinstance(text, str) and text.lstrip().startswith(INSERTED)


def _asked(content: Any) -> Any:
    """What the user asked, of a text in which the client marked it."""
    if isinstance(content, list):
        return [
            {**part, "text": _asked(part["text"])} if _has_text(part) else part for part in content
        ]
    if not isinstance(content, str):
        return content
    _, opened, rest = content.partition("<user_query>")
    inside, closed, _ = rest.partition("</user_query>")
    return without_context(inside.strip() if opened and closed else content)


def _has_text(part: object) -> bool:
    return isinstance(part, dict) and isinstance(part.get("text"), str)
