"""Memory as function tools, for every model API that accepts OpenAI's form of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal

from meritory.api.memory import Memory
from meritory.api.session import Session
from meritory.domain.errors import InputError, MeritoryError, NotFound
from meritory.domain.memory import KINDS, MemoryRecord

Form = Literal["chat", "responses"]
_ID = {"type": "string", "description": "The id of a memory, from memory_search"}


def _search(memory: Memory, session: Session | None, arguments: Mapping[str, Any]) -> object:
    found = memory.recall(arguments["query"], arguments.get("limit") or 10)
    return {"results": [{**_to_json(hit.memory), "score": round(hit.score, 4)} for hit in found]}


def _store(memory: Memory, session: Session | None, arguments: Mapping[str, Any]) -> object:
    fields = {name: arguments[name] for name in ("kind", "tags") if arguments.get(name)}
    # An agent speaks for itself, not for the user.
    result = memory.remember_many([{"content": arguments["content"], "origin": "agent", **fields}])[
        0
    ]
    if result.memory is None:
        raise result.error or InputError(result.reason)
    return {"id": result.memory.id, "outcome": result.outcome}


def _get(memory: Memory, session: Session | None, arguments: Mapping[str, Any]) -> object:
    return _to_json(memory.get(arguments["id"]))


def _forget(memory: Memory, session: Session | None, arguments: Mapping[str, Any]) -> object:
    memory.forget(arguments["id"], why=arguments.get("why") or "")
    return {"forgotten": arguments["id"]}


def _feedback(memory: Memory, session: Session | None, arguments: Mapping[str, Any]) -> object:
    if session is None:
        raise InputError("ratings need a session", hint="pass session= to call_tool")
    taken = session.rate(arguments["ratings"])
    return {"accepted": len(taken.taken), "ignored": [name for name, _ in taken.refused]}


def _to_json(record: MemoryRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "content": record.content,
        "kind": record.kind,
        "trust": record.trust,
        "tags": list(record.tags),
        "created_at": record.created_at.isoformat(),
    }


Handler = Callable[[Memory, Session | None, Mapping[str, Any]], object]
# By name: description, parameters, required parameters, handler.
TOOLS: Mapping[str, tuple[str, dict[str, Any], tuple[str, ...], Handler]] = {
    "memory_search": (
        "Search long-term memory for what was learned in earlier sessions.",
        {
            "query": {"type": "string", "description": "What to look for, in plain words"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 50},
        },
        ("query",),
        _search,
    ),
    "memory_store": (
        "Keep one claim that will be worth knowing in later sessions. No secrets.",
        {
            "content": {"type": "string", "description": "One claim in one or two sentences"},
            "kind": {"type": "string", "enum": list(KINDS)},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        ("content",),
        _store,
    ),
    "memory_get": ("Read one memory by its id.", {"id": _ID}, ("id",), _get),
    "memory_forget": (
        "Forget one memory, because it is wrong or the user wants it gone.",
        {"id": _ID, "why": {"type": "string"}},
        ("id",),
        _forget,
    ),
    "memory_feedback": (
        "Rate how useful shown memories were: -1 misled, 0 unused, 1 decisive.",
        {
            "ratings": {
                "type": "object",
                "additionalProperties": {"type": "number", "minimum": -1, "maximum": 1},
                "description": "Scores by handle (m1, m2, ...) or id",
            }
        },
        ("ratings",),
        _feedback,
    ),
}


def openai_tools(form: Form = "chat") -> list[dict[str, Any]]:
    """Return the tools in the form of chat completions or of responses."""
    tools = []
    for name, (description, properties, required, _) in TOOLS.items():
        tool = {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": list(required),
                "additionalProperties": False,
            },
        }
        nested = {"type": "function", "function": tool}
        tools.append(nested if form == "chat" else {"type": "function", **tool})
    return tools


def call_tool(
    memory: Memory,
    name: str,
    arguments: str | Mapping[str, Any],
    *,
    session: Session | None = None,
) -> str:
    """Run a tool call; return the result or the error as JSON."""
    try:
        if name not in TOOLS:
            raise NotFound(f"unknown tool {str(name)[:40]!r}")
        _, properties, required, handler = TOOLS[name]
        checked = _check_arguments(arguments, properties, required)
        return json.dumps(handler(memory, session, checked), ensure_ascii=False)
    except MeritoryError as error:
        return json.dumps({"error": error.code, "message": str(error)}, ensure_ascii=False)


def _check_arguments(
    given: object, properties: Mapping[str, Any], required: tuple[str, ...]
) -> Mapping[str, Any]:
    """Return the arguments of a call; raise an error if a model made them up."""
    try:
        arguments = json.loads(given) if isinstance(given, str) else given
    except ValueError as error:
        raise InputError(f"the arguments are not JSON: {error}") from error
    if not isinstance(arguments, Mapping):
        raise InputError("the arguments must be an object")
    for name in required:
        if name not in arguments:
            raise InputError(f"{name} is missing")
    kinds: dict[str, type] = {"string": str, "integer": int, "array": list, "object": dict}
    for name, value in arguments.items():
        if name not in properties:
            raise InputError(f"unknown argument {str(name)[:40]!r}")
        kind = properties[name]["type"]
        is_right = isinstance(value, kinds[kind]) and not isinstance(value, bool)
        if value is not None and not is_right:
            raise InputError(f"{name} must be of type {kind}")
    return arguments
