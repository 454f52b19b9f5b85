"""Memory as function tools, for every model API that accepts OpenAI's form of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from meritory.api.memory import Memory
from meritory.api.session import Session
from meritory.domain.errors import InputError, MeritoryError, NotFound
from meritory.domain.memory import KINDS, NOTHING_KNOWN, MemoryRecord, Recalled

Form = Literal["chat", "responses"]
_ID = {"type": "string", "description": "The id of a memory, from memory_search"}


def _to_json(record: MemoryRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "content": record.content,
        "kind": record.kind,
        "trust": record.trust,
        "tags": list(record.tags),
        "created_at": record.created_at.isoformat(),
    }


# By name: description, parameters, required parameters.
TOOLS: Mapping[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "memory_search": (
        "Search long-term memory for what was learned in earlier sessions.",
        {
            "query": {"type": "string", "description": "What to look for, in plain words"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 50},
            "min_score": {"type": "number", "minimum": 0, "maximum": 1},
            "kind": {"type": "string", "enum": list(KINDS)},
            "tags": {"type": "array", "items": {"type": "string"}},
            "since": {"type": "string", "description": "Only what holds since then (ISO 8601)"},
            "until": {"type": "string", "description": "Only what holds since before then"},
        },
        ("query",),
    ),
    "memory_store": (
        "Keep one claim that will be worth knowing in later sessions. No secrets.",
        {
            "content": {"type": "string", "description": "One claim in one or two sentences"},
            "kind": {"type": "string", "enum": list(KINDS)},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        ("content",),
    ),
    "memory_get": ("Read one memory by its id.", {"id": _ID}, ("id",)),
    "memory_forget": (
        "Forget one memory, because it is wrong or the user wants it gone.",
        {"id": _ID, "why": {"type": "string"}},
        ("id",),
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
    ),
}
_FILTERS = ("min_score", "kind", "tags", "since", "until")
_TYPES: Mapping[str, Any] = {
    "number": int | float,
    "string": str,
    "integer": int,
    "array": list,
    "object": dict,
}


def openai_tools(form: Form = "chat") -> list[dict[str, Any]]:
    """Return the tools in the form of chat completions or of responses."""
    tools = []
    for name, (description, properties, required) in TOOLS.items():
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
        checked = _check_arguments(arguments, *TOOLS[name][1:])
        return json.dumps(_run(memory, session, name, checked), ensure_ascii=False)
    except MeritoryError as error:
        return json.dumps({"error": error.code, "message": str(error)}, ensure_ascii=False)


def _run(memory: Memory, session: Session | None, name: str, given: Mapping[str, Any]) -> object:
    """Return the result of a tool call whose arguments are checked."""
    if name == "memory_search":
        filters = {name: given[name] for name in _FILTERS if given.get(name) is not None}
        hits = memory.recall(given["query"], given.get("limit") or 10, **filters)
        if not hits:
            return {"results": [], "note": NOTHING_KNOWN}
        return {"results": [_hit_json(hit) for hit in hits]}
    if name == "memory_store":
        fields = {field: given[field] for field in ("kind", "tags") if given.get(field)}
        # An agent speaks for itself, not for the user.
        draft = {"content": given["content"], "origin": "agent", **fields}
        result = memory.remember_many([draft])[0]
        if result.memory is None:
            raise result.error or InputError(result.reason)
        return {"id": result.memory.id, "outcome": result.outcome}
    if name == "memory_get":
        return _to_json(memory.get(given["id"]))
    if name == "memory_forget":
        memory.forget(given["id"], why=given.get("why") or "", origin="agent")
        return {"forgotten": given["id"]}
    if session is None:
        raise InputError("ratings need a session", hint="pass session= to call_tool")
    taken = session.rate(given["ratings"])
    return {"accepted": len(taken.taken), "ignored": [label for label, _ in taken.refused]}


def _hit_json(hit: Recalled) -> dict[str, Any]:
    """Return a hit with its score and, for an earlier value, when the next one began."""
    until = {} if hit.until is None else {"until": hit.until.isoformat()}
    return {**_to_json(hit.memory), "score": round(hit.score, 4), **until}


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
    for name, value in arguments.items():
        if name not in properties:
            raise InputError(f"unknown argument {str(name)[:40]!r}")
        kind = properties[name]["type"]
        is_right = isinstance(value, _TYPES[kind]) and not isinstance(value, bool)
        if value is not None and not is_right:
            raise InputError(f"{name} must be of type {kind}")
    return arguments
