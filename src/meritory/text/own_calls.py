"""Calls of Meritory's own tools in transcripts, and the results that answer them.

A result of one of these tools repeats stored memories. It is no evidence that the agent used them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from meritory.text.claims.words import words
from meritory.text.commands.actions import read_action, tool_family
from meritory.text.commands.parse import ShellCommand

PROGRAM: Final = "meritory"
# The tools of the MCP server, without the prefix that a client puts before them.
OWN_TOOLS: Final = words(
    "memory_search memory_store memory_get memory_forget memory_feedback memory_explain"
    " capture_feedback describe_entity prevention_rules"
)
# Calls that are remembered.
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
        # Some clients call every tool and resource of a server through one tool of their own.
        return True
    if tool_family(name) != "shell":
        return False
    action = read_action(name, given)
    return PROGRAM in action.argument and any(map(_runs_own_program, action.commands))


def is_own_tool(name: str) -> bool:
    """Return whether a tool is of Meritory's MCP server, under whatever name a client gives it."""
    found = _NAME.fullmatch(name.lower())
    return found is not None and (not found["prefix"] or PROGRAM in found["prefix"])


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
        # Open calls by id, by number where they have none; the value says whether it is an own one.
        self._open: dict[str | int, bool] = {}
        # Ids of own calls whose result came: some clients write a result again.
        self._answered: dict[str, None] = {}
        self._count = 0

    def note_call(self, call: Mapping[object, object], name: str, given: object) -> None:
        """Remember a call until its result comes."""
        namespace = call.get("namespace")
        whole = f"{namespace}{name}" if isinstance(namespace, str) else name
        self._count += 1
        self._open[_id_of(call, _CALL_ID_KEYS) or self._count] = is_own_call(whole, given)
        _bound(self._open)

    def is_own_result(self, result: Mapping[object, object]) -> bool:
        """Return whether a result answers a call of an own tool; its call is over then."""
        name = result.get("name")
        is_named = isinstance(name, str) and is_own_tool(name)
        found = _id_of(result, _RESULT_ID_KEYS)
        if found:
            is_own = self._open.pop(found, False) or found in self._answered or is_named
            if is_own:
                self._answered[found] = None
                _bound(self._answered)
            return is_own
        unnamed = (key for key in self._open if isinstance(key, int))
        oldest = next(unnamed, None) or next(iter(self._open), None)
        return (oldest is not None and self._open.pop(oldest)) or is_named

    def end_turn(self) -> None:
        """Forget calls without an id: a result after the next prompt is not theirs."""
        self._open = {key: own for key, own in self._open.items() if isinstance(key, str)}


def _bound(known: dict[Any, Any]) -> None:
    """Drop the oldest entry of one too many."""
    if len(known) > OPEN_CALLS_LIMIT:
        del known[next(iter(known))]


def _id_of(entry: Mapping[object, object], keys: tuple[str, ...]) -> str:
    found = (entry.get(key) for key in keys)
    return next((value for value in found if isinstance(value, str) and value), "")
