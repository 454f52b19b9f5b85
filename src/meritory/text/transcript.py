"""Reads transcripts of harnesses and programs into turns, without Meritory's own text.

The author of a text decides what may be learned from it, so nothing is attributed to the user by
default: text without a clear author is "system", and the output of a tool is "result" even in a
message with the user's role. Results of Meritory's own tools are left out: they repeat stored
memories, and are not evidence that the agent used them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from meritory.domain.errors import InputError
from meritory.domain.session import ROLES, Role, Turn
from meritory.text.commands.actions import (
    PATCH_START,
    call_paths,
    is_writing_tool,
    read_action,
    tool_family,
)
from meritory.text.commands.parse import ShellCommand, files_read
from meritory.text.language import words
from meritory.text.normalize import strip_byte_order_mark
from meritory.text.ratings_trailer import strip_own
from meritory.text.secrets import redact

PROGRAM: Final = "meritory"
# The tools of the MCP server, without the prefix of a client.
OWN_TOOLS: Final = words(
    "memory_search memory_store memory_get memory_forget memory_feedback memory_explain"
    " memory_review capture_feedback describe_entity prevention_rules"
)
# The most open calls that are tracked.
OPEN_CALLS_LIMIT: Final = 4_096
_NAME: Final = re.compile(rf"(?P<prefix>.*?)(?P<tool>{'|'.join(sorted(OWN_TOOLS))})", re.DOTALL)
_RUNNERS: Final = words("uv pipx poetry hatch")
_CALL_ID_KEYS: Final = ("call_id", "toolCallId", "tool_call_id", "id")
_RESULT_ID_KEYS: Final = ("tool_use_id", "tool_call_id", "call_id", "toolCallId")


def is_own_call(name: str, given: object) -> bool:
    """Return whether a call is of Meritory's MCP server or runs Meritory's command line."""
    if is_own_tool(name):
        return True
    if isinstance(given, Mapping) and PROGRAM in str(given.get("server", "")).lower():
        # Some clients call every tool and resource of a server through a tool of the client.
        return True
    if tool_family(name) != "shell":
        return False
    action = read_action(name, given)
    return PROGRAM in action.argument and any(map(_runs_own_program, action.commands))


def is_own_tool(name: str) -> bool:
    """Return whether a tool is of Meritory's MCP server, under any client's name for it."""
    match = _NAME.fullmatch(name.lower())
    return match is not None and (not match["prefix"] or PROGRAM in match["prefix"])


def _runs_own_program(command: ShellCommand) -> bool:
    program, named = command.program, command.named
    if program.startswith("python"):
        return "-m" in command.options and named[:1] == (PROGRAM,)
    if program in _RUNNERS:
        return named[:2] == ("run", PROGRAM)
    return program == PROGRAM or (program == "uvx" and named[:1] == (PROGRAM,))


class CallLinks:
    """Links the results in a transcript to their calls: by id, else in the order of the calls."""

    def __init__(self) -> None:
        # Open calls by id, else by number; the value says whether it is an own call.
        self._open: dict[str | int, bool] = {}
        # Ids of own calls with a result: some clients repeat a result.
        self._answered: dict[str, None] = {}
        self._count = 0

    def note_call(self, call: Mapping[object, object], name: str, given: object) -> None:
        """Track a call until its result arrives."""
        namespace = call.get("namespace")
        whole = f"{namespace}{name}" if isinstance(namespace, str) else name
        self._count += 1
        self._open[_id_of(call, _CALL_ID_KEYS) or self._count] = is_own_call(whole, given)
        _bound(self._open)

    def is_own_result(self, result: Mapping[object, object]) -> bool:
        """Return whether a result answers a call of an own tool, and close that call."""
        name = result.get("name")
        is_named = isinstance(name, str) and is_own_tool(name)
        call_id = _id_of(result, _RESULT_ID_KEYS)
        if call_id:
            is_own = self._open.pop(call_id, False) or call_id in self._answered or is_named
            if is_own:
                self._answered[call_id] = None
                _bound(self._answered)
            return is_own
        unnamed = (key for key in self._open if isinstance(key, int))
        oldest = next(unnamed, None) or next(iter(self._open), None)
        return (oldest is not None and self._open.pop(oldest)) or is_named

    def end_turn(self) -> None:
        """Forget calls without an id; results after the next prompt belong to other calls."""
        self._open = {key: own for key, own in self._open.items() if isinstance(key, str)}


def _bound(entries: dict[Any, Any]) -> None:
    """Drop the oldest entry over the limit."""
    if len(entries) > OPEN_CALLS_LIMIT:
        del entries[next(iter(entries))]


def _id_of(entry: Mapping[object, object], keys: tuple[str, ...]) -> str:
    values = (entry.get(key) for key in keys)
    return next((value for value in values if isinstance(value, str) and value), "")


TRANSCRIPT_LIMIT_CHARS: Final = 12_000
# A shorter end of a turn is dropped.
SHORTEST_TAIL_CHARS: Final = 40
NESTING_LIMIT: Final = 6

_SYNONYMS: Final[dict[str, Role]] = {
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "model", "agent", "ai", "bot"), "assistant"),
    **dict.fromkeys(("tool", "tool_use", "tool_call", "function_call"), "tool"),
    **dict.fromkeys(("result", "tool_result", "function"), "result"),
    **dict.fromkeys(("edit", "diff", "write", "file_edit"), "edit"),
}
_LIST_KEYS: Final = ("turns", "messages", "transcript")
_CONTENT_KEYS: Final = ("text", "content", "parts", "output")
_TEXT_KEYS: Final = ("text", "content", "thinking")
_CALLS: Final = frozenset({"tool_use", "tool_call", "function_call"})
_RESULTS: Final = frozenset({"tool_result", "function_call_output"})
_SPOKEN: Final = frozenset({"", "text", "input_text", "output_text"})
_WRITTEN_KEYS: Final = words(
    "content contents file_text new_string new_str new_source newString newCode insert_text patch"
    " patchText code code_edit diff input"
)
_INDENT: Final = "\n  "
_UNSTORABLE: Final = re.compile(r"[\x00\ud800-\udfff]")


def read_transcript(value: object) -> tuple[Turn, ...]:
    """Return the turns of a transcript without the text that Meritory injected."""
    return stripped(read_turns(value))


def read_turns(value: object) -> tuple[Turn, ...]:
    """Return the turns of a transcript: a list of turns, an object that holds one, or a text.

    The turns still contain ratings and injected text; strip them before storing or judging.
    """
    if isinstance(value, Mapping):
        value = next((value[key] for key in _LIST_KEYS if key in value), [value])
    if isinstance(value, str):
        return (Turn("system", value),)
    if not isinstance(value, list | tuple):
        raise _no_transcript(f"a {type(value).__name__}")
    keys = {"role", "type", *_CONTENT_KEYS}
    if value and not any(
        isinstance(item, str | Turn) or (isinstance(item, Mapping) and not keys.isdisjoint(item))
        for item in value
    ):
        raise _no_transcript("the list has no turn")
    return tuple(iter_turns(value))


def iter_turns(items: Iterable[object]) -> Iterator[Turn]:
    """Yield the turns of messages in order, without the results of Meritory's own tools."""
    links = CallLinks()
    for item in items:
        turns: Iterable[Turn] = ()
        if isinstance(item, Turn):
            turns = [item if item.role in ROLES else Turn("system", item.text)]
        elif isinstance(item, str):
            turns = [Turn("system", item)]
        elif isinstance(item, Mapping):
            turns = _message(item, links)
        for turn in turns:
            if turn.role == "user":
                links.end_turn()
            yield turn


def stripped(turns: Iterable[Turn]) -> tuple[Turn, ...]:
    """Return the turns without injected text and ratings; empty turns are left out."""
    bare = (
        Turn(turn.role, strip_own(_storable(turn.text)), tuple(map(_storable, turn.paths)))
        for turn in turns
    )
    return tuple(turn for turn in bare if turn.text.strip())


def redacted(turns: Iterable[Turn]) -> tuple[Turn, ...]:
    """Return the turns with every secret replaced by its kind; do this before shortening."""
    return tuple(
        Turn(turn.role, redact(turn.text), tuple(map(redact, turn.paths))) for turn in turns
    )


def shorten(turns: Sequence[Turn], limit_chars: int = TRANSCRIPT_LIMIT_CHARS) -> tuple[Turn, ...]:
    """Return the last turns, the first of them cut, so that as_text stays within the limit."""
    kept: list[Turn] = []
    room = limit_chars
    for turn in reversed(turns):
        whole = len(_written(turn)) + (1 if kept else 0)
        if whole > room:
            kept += _tail(turn, room - (1 if kept else 0))
            break
        kept.append(turn)
        room -= whole
    return tuple(reversed(kept))


def as_text(turns: Iterable[Turn]) -> str:
    """Return the turns as one text; other lines are indented, so that no turn can be forged."""
    return "\n".join(_written(turn) for turn in turns)


def _storable(text: str) -> str:
    return _UNSTORABLE.sub("\ufffd", strip_byte_order_mark(text))


def _no_transcript(what: str) -> InputError:
    hint = 'give a list of {"role": ..., "text": ...}'
    return InputError(f"not a transcript: {what}", hint=hint)


def _message(item: Mapping[object, object], links: CallLinks) -> Iterator[Turn]:
    role = _role(item)
    content = next((item[key] for key in _CONTENT_KEYS if item.get(key)), None)
    parts = content if isinstance(content, list | tuple) else ()
    holds_results = any(isinstance(part, Mapping) and _kind(part) in _RESULTS for part in parts)
    if _kind(item) in _CALLS | _RESULTS:
        yield from _part(item, role, links)
    elif content is None and role == "tool":
        yield from _call(item, links)
    elif role == "result" and not holds_results and links.is_own_result(item):
        return
    elif isinstance(content, str) and role in ("edit", "tool"):
        links.note_call(item, "", None)
        yield Turn(role, content, call_paths(item))
    elif isinstance(content, list | tuple):
        for part in parts:
            yield from _part(part, role, links)
    elif content is not None:
        yield from _part(content, role, links)
    calls = item.get("tool_calls")
    if isinstance(calls, list | tuple):
        for call in calls:
            yield from _call(call, links)


def _role(item: Mapping[object, object]) -> Role:
    name = item.get("role") or item.get("type")
    # In the chat format of OpenAI, "tool" is the output of a tool.
    if name == "tool" and "tool_call_id" in item:
        return "result"
    return _SYNONYMS.get(name.strip().lower(), "system") if isinstance(name, str) else "system"


def _kind(part: Mapping[object, object]) -> str:
    return str(part.get("type") or "")


def _part(part: object, role: Role, links: CallLinks) -> Iterator[Turn]:
    """Yield the turns of one part of a message's content."""
    if isinstance(part, str):
        yield Turn(role, part)
        return
    if not isinstance(part, Mapping):
        return
    kind = _kind(part)
    if kind in _CALLS:
        yield from _call(part, links)
    elif kind in _RESULTS:
        if not links.is_own_result(part):
            yield Turn("result", _plain(part.get("content") or part.get("output")))
    else:
        # Thinking is neither speech nor an action.
        yield Turn(role if kind in _SPOKEN else "system", _plain(part))


def _call(call: object, links: CallLinks) -> Iterator[Turn]:
    if not isinstance(call, Mapping):
        return
    function = call.get("function")
    inner = function if isinstance(function, Mapping) else call
    name = inner.get("name")
    raw = next((inner[key] for key in ("input", "arguments") if inner.get(key)), None)
    try:
        given = json.loads(raw) if isinstance(raw, str) else raw
    except (ValueError, RecursionError):
        given = raw
    known = name if isinstance(name, str) else ""
    links.note_call(call, known, given)
    # The arguments of a shell are commands.
    lines = _texts(given) if tool_family(known) == "shell" else []
    read = dict.fromkeys(path for line in lines for path in files_read(line))
    paths = call_paths(given) or tuple(read)
    # Codex also applies patches through its shell.
    is_patch = any(PATCH_START in line for line in lines)
    written = "\n".join(_writings(given) if is_writing_tool(known) else lines if is_patch else ())
    if written:
        yield Turn("edit", written, paths)
        return
    dumped = given if isinstance(given, str) else ""
    try:
        if given is not None and not isinstance(given, str):
            dumped = json.dumps(given, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        dumped = ""
    yield Turn("tool", f"{name or 'tool'} {dumped}".strip(), paths)


def _plain(value: object, depth: int = 0) -> str:
    """Return the text of a part, of a list of parts or of a string."""
    if isinstance(value, str):
        return value
    if depth >= NESTING_LIMIT:
        return ""
    if isinstance(value, list | tuple):
        return "\n".join(filter(None, (_plain(item, depth + 1) for item in value)))
    if isinstance(value, Mapping):
        return next((_plain(value[key], depth + 1) for key in _TEXT_KEYS if value.get(key)), "")
    return ""


def _writings(value: object, depth: int = 0) -> Iterator[str]:
    """Yield the texts that a call writes into files, from a single patch to a list of edits."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping) and depth < NESTING_LIMIT:
        for key, inner in value.items():
            if key in _WRITTEN_KEYS or not isinstance(inner, str):
                yield from _writings(inner, depth + 1)
    elif isinstance(value, list | tuple) and depth < NESTING_LIMIT:
        for inner in value:
            yield from _writings(inner, depth + 1)


def _texts(given: object) -> list[str]:
    """Return the strings in a shell's arguments."""
    values = given.values() if isinstance(given, Mapping) else [given]
    lists = (value if isinstance(value, list | tuple) else [value] for value in values)
    return [text for texts in lists for text in texts if isinstance(text, str)]


def _written(turn: Turn) -> str:
    lines = turn.text.splitlines() or [""]
    return _INDENT.join([f"{turn.role}: {lines[0]}", *lines[1:]])


def _tail(turn: Turn, room: int) -> list[Turn]:
    """Return the end of a turn's text that fits, or nothing if it is too short."""
    room -= len(_written(Turn(turn.role, "…")))
    start = len(turn.text)
    for line in reversed(turn.text.splitlines(keepends=True)):
        length = len(line.splitlines()[0])
        if length > room:
            start -= room + len(line) - length if room > 0 else 0
            break
        start -= len(line)
        room -= length + len(_INDENT)
    kept = turn.text[start:]
    return [Turn(turn.role, f"…{kept}")] if len(kept) >= SHORTEST_TAIL_CHARS else []
