"""Read the memories of mem0 (JSON of get_all, history, local Qdrant collection) and claude-mem."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from meritory.domain.errors import InputError, MeritoryError
from meritory.domain.memory import CONTENT_LIMIT_CHARS, Kind
from meritory.engine.transfer import entries
from meritory.engine.transfer.entries import ImportEntry
from meritory.engine.transfer.markdown import kind_of, parts
from meritory.store.sqlite.foreign import ForeignTables, open_foreign

JSON_LIMIT_BYTES = 256_000_000
POINT_LIMIT_BYTES = 16_000_000
_HISTORY = ("memory_id", "new_memory", "event", "created_at", "updated_at", "is_deleted", "role")
_TEXTS = ("memory", "data", "text", "content")
_USERS_SHOWN = 5

Row = tuple[str, Mapping[str, Any] | MeritoryError]


def read_mem0(found: entries.FoundFiles) -> Iterator[ImportEntry]:
    """Yield every live memory of mem0; of several users only those of the named one."""
    only, name = found.only_user, found.path.name
    rows = (row for path in found.files for _, row in _mem0_rows(path))
    users = {user for row in rows if (user := _user(row)) is not None}
    listed = ", ".join(sorted(users)[:_USERS_SHOWN]) or "it names no users"
    listed += ", ..." if len(users) > _USERS_SHOWN else ""
    if only is not None and only not in users:
        raise InputError(f"{name} has no memories of {only[:40]!r}", hint=listed)
    if only is None and len(users) > 1:
        raise InputError(
            f"{name} has memories of {len(users)} users",
            hint=f"choose one with --only-user: {listed}",
        )
    for path in found.files:
        for place, row in _mem0_rows(path):
            if isinstance(row, MeritoryError):
                yield ImportEntry(place, row)
            elif only is not None and _user(row) != only:
                yield ImportEntry(place, entries.Skipped("it belongs to another user"))
            else:
                yield _mem0_entry(place, row)


def _user(row: Mapping[str, Any] | MeritoryError) -> str | None:
    return None if isinstance(row, MeritoryError) else entries.name_or_none(row.get("user_id"))


def _mem0_entry(place: str, row: Mapping[str, Any]) -> ImportEntry:
    content = next((row[name] for name in _TEXTS if isinstance(row.get(name), str)), None)
    if content is None:
        return ImportEntry(place, InputError("no text in memory, data, text or content"))
    metadata = row.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    created, updated = entries.when(row.get("created_at")), entries.when(row.get("updated_at"))
    return entries.make_entry(
        place,
        content=content,
        kind=kind_of(content),
        # A role means that it was stored with infer=False, word for word.
        provenance="user_stated" if row.get("role") == "user" else "assistant_derived",
        agent=entries.name_or_none(row.get("agent_id")),
        tags=entries.tags(row.get("categories"), metadata.get("tags"), metadata.get("category")),
        created_at=created or updated,
        # A memory that was changed later is valid since then.
        valid_from=updated if created and updated and updated > created else None,
        valid_until=entries.when(row.get("expiration_date")),
        source=entries.source(
            "mem0", entries.name_or_none(row.get("id")) or place, content, row.get("run_id")
        ),
    )


def _mem0_rows(path: Path) -> Iterator[Row]:
    if not entries.is_database(path):
        for number, item in enumerate(_json_items(path), 1):
            is_valid = isinstance(item, Mapping | MeritoryError)
            yield f"memory {number}", item if is_valid else InputError("expected an object")
        return
    with open_foreign(path) as tables:
        if not tables.columns("points"):
            yield from _history_rows(tables)
            return
        # The points of a local Qdrant collection are pickles.
        for number, row in enumerate(tables.rows("points", ("id", "point")), 1):
            yield f"point {number}", _payload(row["point"])


def _json_items(path: Path) -> Iterator[Any]:
    """Yield the memories of one JSON value, or of one per line."""
    text = entries.read_text(path, JSON_LIMIT_BYTES)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        for line in filter(str.strip, text.split("\n")):
            try:
                yield json.loads(line)
            except (ValueError, RecursionError) as error:
                yield InputError(f"not a line of JSON: {str(error)[:80]}")
        return
    if isinstance(value, Mapping):
        lists = [value.get(name) for name in ("results", "memories", "data")]
        value = next((items for items in lists if isinstance(items, list)), [value])
    if not isinstance(value, list):
        raise InputError(f"{path.name} has no list of memories", hint="save the result of get_all")
    yield from value


def _history_rows(tables: ForeignTables) -> Iterator[Row]:
    """Yield the latest text of every memory that is not deleted; its user is unknown."""
    latest: dict[str, dict[str, Any]] = {}
    for row in tables.rows("history", _HISTORY):
        key = str(row["memory_id"])
        first = latest.get(key, row)
        if row["event"] == "DELETE" or row["is_deleted"] or not row["new_memory"]:
            latest.pop(key, None)
        else:
            latest[key] = {**row, "created_at": first["created_at"] or row["created_at"]}
    for key, row in latest.items():
        yield f"history of {key}", {**row, "id": key, "memory": row["new_memory"]}


def _payload(raw: object) -> Mapping[str, Any] | MeritoryError:
    if not isinstance(raw, bytes) or len(raw) > POINT_LIMIT_BYTES:
        return InputError("the point cannot be read")
    try:
        point = _Inert(io.BytesIO(raw)).load()
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError) as error:
        return InputError(f"the point cannot be read: {str(error)[:80]}")
    except (AttributeError, IndexError, MemoryError, RecursionError, OverflowError):
        return InputError("the point cannot be read: it is damaged")
    state = getattr(point, "state", None)
    fields = state.get("__dict__", state) if isinstance(state, Mapping) else None
    payload = fields.get("payload") if isinstance(fields, Mapping) else None
    if not isinstance(payload, Mapping) or not isinstance(fields, Mapping):
        return InputError("the point has no payload")
    return {"id": fields.get("id"), **payload}


class _Shell:
    """Stands for any object of a pickle: it accepts any state and does nothing."""

    def __init__(self, *given: object, **named: object) -> None:
        self.state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state

    def __call__(self, *given: object, **named: object) -> _Shell:
        return _Shell()


class _Inert(pickle.Unpickler):
    """Reads a pickle without importing or calling the names in it."""

    def find_class(self, module: str, name: str, /) -> Any:
        """Return a shell for every class and function."""
        return _Shell

    def persistent_load(self, pid: Any, /) -> Any:
        """Reject references to objects outside of the pickle."""
        raise pickle.UnpicklingError("it refers to an object outside of the pickle")


# -- claude-mem -----------------------------------------------------------------------------------

_SHARED = ("id", "project", "created_at", "created_at_epoch")
_OF_SESSION = ("memory_session_id", "sdk_session_id", "merged_into_project")
_OBSERVED = ("type", "title", "subtitle", "narrative", "facts", "text", "concepts")
_HEADS = {
    "request": "Asked",
    "investigated": "Looked at",
    "learned": "Learned",
    "completed": "Done",
    "next_steps": "Next",
    "notes": "Notes",
}
_KINDS: Mapping[str, Kind] = {
    "decision": "decision",
    "discovery": "fact",
    **dict.fromkeys(("bugfix", "feature", "refactor", "change"), "episode"),
}


def read_claude_mem(found: entries.FoundFiles) -> Iterator[ImportEntry]:
    """Yield every observation, session summary and directive that has text."""
    columns = {
        "observations": (*_OF_SESSION, *_OBSERVED),
        "session_summaries": (*_OF_SESSION, *_HEADS),
        "directives": ("scope", "content", "status"),
    }
    for path in found.files:
        with open_foreign(path) as tables:
            for table, own in columns.items():
                for number, row in enumerate(tables.rows(table, (*_SHARED, *own)), 1):
                    yield from _claude_mem_entries(table, number, row)


def _claude_mem_entries(table: str, number: int, row: Mapping[str, Any]) -> Iterator[ImportEntry]:
    place = f"{table} {row['id'] if row.get('id') is not None else number}"
    if row.get("status") not in (None, "active"):
        yield ImportEntry(place, entries.Skipped("it is not active"))
        return
    fields: dict[str, Any] = {"confidence": 0.6}
    if table == "observations":
        # The title with the facts, or else with the longer narrative.
        body = "; ".join(_items(row["facts"])) or _text(row["narrative"]) or _text(row["text"])
        title = _text(row["title"]) or _text(row["subtitle"])
        whole = ": ".join(part for part in (title.rstrip(".:"), body) if part)
        kind = _text(row["type"]).lower()
        fields["kind"] = _KINDS.get(kind) or kind_of(whole)
        fields["tags"] = entries.tags([kind], _items(row["concepts"]))
        fields["provenance"] = "assistant_derived"
    elif table == "session_summaries":
        whole = "\n".join(
            f"{_HEADS[name]}: {text}" for name in _HEADS if (text := _text(row[name]))
        )
        fields |= {"kind": "episode", "provenance": "episode_summary"}
    else:
        whole = _text(row["content"])
        fields = {"kind": kind_of(whole), "provenance": "user_stated"}
    if not whole:
        yield ImportEntry(place, InputError("the row has no text"))
    session = row.get("memory_session_id") or row.get("sdk_session_id")
    for content in parts(whole, CONTENT_LIMIT_CHARS):
        yield entries.make_entry(
            place,
            content=content,
            project=entries.name_or_none(row.get("merged_into_project"))
            or entries.name_or_none(row["project"]),
            created_at=entries.when(row["created_at"], row["created_at_epoch"]),
            source=entries.source("claude-mem", place, content, session),
            **fields,
        )


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
