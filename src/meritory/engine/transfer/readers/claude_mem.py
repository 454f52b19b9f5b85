"""Read the database of claude-mem: observations, session summaries and directives."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from meritory.domain.errors import InputError
from meritory.domain.memory import CONTENT_LIMIT_CHARS, Kind
from meritory.engine.transfer.entries import (
    FoundFiles,
    ImportEntry,
    Skipped,
    filled,
    name_or_none,
    source,
    tags,
    when,
)
from meritory.engine.transfer.readers.markdown import kind_of, parts
from meritory.store.sqlite.foreign import ForeignTables, open_foreign

_SHARED = ("id", "memory_session_id", "sdk_session_id", "project", "merged_into_project")
_TIMES = ("created_at", "created_at_epoch")
_OBSERVED = (
    *(*_SHARED, "type", "title", "subtitle", "narrative", "facts", "text", "concepts"),
    *_TIMES,
)
_PARTS = ("request", "investigated", "learned", "completed", "next_steps", "notes")
_SUMMED = (*_SHARED, *_PARTS, *_TIMES)
_DIRECTED = ("id", "scope", "project", "content", "status", *_TIMES)
_KINDS: Mapping[str, Kind] = {
    "decision": "decision",
    "discovery": "fact",
    **dict.fromkeys(("bugfix", "feature", "refactor", "change"), "episode"),
}
_HEADS = {
    "request": "Asked",
    "investigated": "Looked at",
    "learned": "Learned",
    "completed": "Done",
    "next_steps": "Next",
    "notes": "Notes",
}
_Made = Callable[[Mapping[str, Any]], "dict[str, Any] | None"]


def read(found: FoundFiles) -> Iterator[ImportEntry]:
    """Yield every row of the three tables that has text."""
    for path in found.files:
        with open_foreign(path) as tables:
            yield from _of_table(tables, "observations", _OBSERVED, _observation)
            yield from _of_table(tables, "session_summaries", _SUMMED, _summary)
            yield from _of_table(tables, "directives", _DIRECTED, _directive)


def _of_table(
    tables: ForeignTables, table: str, columns: tuple[str, ...], made: _Made
) -> Iterator[ImportEntry]:
    for number, row in enumerate(tables.rows(table, columns), 1):
        place = f"{table} {row['id'] if row.get('id') is not None else number}"
        if row.get("status") not in (None, "active"):
            yield ImportEntry(place, Skipped("it is not active"))
            continue
        fields = made(row)
        if fields is None:
            yield ImportEntry(place, InputError("the row has no text"))
            continue
        session = fields.pop("session", None)
        for content in parts(fields["content"], CONTENT_LIMIT_CHARS):
            whole = {
                **fields,
                "content": content,
                "project": name_or_none(row.get("merged_into_project")) or fields["project"],
                "created_at": when(row["created_at"], row["created_at_epoch"]),
                "source": source("claude-mem", place, content, session),
            }
            yield ImportEntry(place, filled(whole), len(content.encode("utf-8", "replace")))


def _observation(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the title with the facts, or else with the longer narrative."""
    facts = _items(row["facts"])
    body = "; ".join(facts) or _text(row["narrative"]) or _text(row["text"])
    title = _text(row["title"]) or _text(row["subtitle"])
    if not (title or body):
        return None
    content = ": ".join(part for part in (title.rstrip(".:"), body) if part)
    kind = _text(row["type"]).lower()
    return {
        "content": content,
        "kind": _KINDS.get(kind) or kind_of(content),
        "provenance": "assistant_derived",
        "confidence": 0.6,
        "tags": tags([kind], _items(row["concepts"])),
        "project": name_or_none(row["project"]),
        "session": row["memory_session_id"] or row["sdk_session_id"],
    }


def _summary(row: Mapping[str, Any]) -> dict[str, Any] | None:
    lines = [f"{_HEADS[name]}: {text}" for name in _PARTS if (text := _text(row[name]))]
    if not lines:
        return None
    return {
        "content": "\n".join(lines),
        "kind": "episode",
        "provenance": "episode_summary",
        "confidence": 0.6,
        "project": name_or_none(row["project"]),
        "session": row["memory_session_id"] or row["sdk_session_id"],
    }


def _directive(row: Mapping[str, Any]) -> dict[str, Any] | None:
    content = _text(row["content"])
    if not content:
        return None
    return {
        "content": content,
        "kind": kind_of(content),
        "provenance": "user_stated",
        "project": name_or_none(row["project"]),
    }


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _items(value: object) -> list[str]:
    """Return the items of a JSON list, or of a text with one item per line."""
    text = _text(value)
    try:
        items = json.loads(text) if text.startswith("[") else text.split("\n")
    except (ValueError, RecursionError):
        items = [text]
    return [item.strip() for item in items if isinstance(item, str) and item.strip()]
