"""What mem0 keeps: the JSON of get_all, its history database, or a local Qdrant collection."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from meritory.domain.errors import InputError, MeritoryError
from meritory.engine.transfer.entries import (
    FoundFiles,
    ImportEntry,
    Skipped,
    filled,
    name_or_none,
    open_regular,
    read_text,
    source,
    tags,
    when,
)
from meritory.engine.transfer.readers.markdown import kind_of
from meritory.store.sqlite.foreign import MAGIC, ForeignTables, open_foreign

JSON_LIMIT_BYTES = 256_000_000
POINT_LIMIT_BYTES = 16_000_000
_HISTORY = ("memory_id", "new_memory", "event", "created_at", "updated_at", "is_deleted", "role")
_TEXTS = ("memory", "data", "text", "content")
_USERS_SHOWN = 5

Row = tuple[str, Mapping[str, Any] | MeritoryError]


def read(found: FoundFiles) -> Iterator[ImportEntry]:
    """Every memory that is live there; of several people's only those of the one that was named."""
    _check_users(found)
    for path in found.files:
        for place, row in _rows(path):
            yield _entry(place, row, found.only_user)


def _check_users(found: FoundFiles) -> None:
    """Memories of several people do not become one person's by accident, in whatever files."""
    only, name = found.only_user, found.path.name
    rows = (row for path in found.files for _, row in _rows(path))
    users = {user for row in rows if (user := _user(row)) is not None}
    if only is not None and only not in users:
        raise InputError(f"{name} has no memories of {only[:40]!r}", hint=_named(users))
    if only is None and len(users) > 1:
        raise InputError(
            f"{name} holds memories of {len(users)} users",
            hint=f"choose one with --only-user: {_named(users)}",
        )


def _named(users: set[str]) -> str:
    shown = ", ".join(sorted(users)[:_USERS_SHOWN])
    return f"{shown}, ..." if len(users) > _USERS_SHOWN else shown or "it names none"


def _user(row: Mapping[str, Any] | MeritoryError) -> str | None:
    return None if isinstance(row, MeritoryError) else name_or_none(row.get("user_id"))


def _entry(place: str, row: Mapping[str, Any] | MeritoryError, only: str | None) -> ImportEntry:
    if isinstance(row, MeritoryError):
        return ImportEntry(place, row)
    if only is not None and _user(row) != only:
        return ImportEntry(place, Skipped("it is another user's"))
    content = next((row[name] for name in _TEXTS if isinstance(row.get(name), str)), None)
    if content is None:
        return ImportEntry(
            place, InputError("there is no text under memory, data, text or content")
        )
    metadata = row.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    created, updated = when(row.get("created_at")), when(row.get("updated_at"))
    fields = {
        "content": content,
        "kind": kind_of(content),
        # Stored with infer=False, it has a role: then these are the words as they were said.
        "provenance": "user_stated" if row.get("role") == "user" else "assistant_derived",
        "agent": name_or_none(row.get("agent_id")),
        "tags": tags(row.get("categories"), metadata.get("tags"), metadata.get("category")),
        "created_at": created or updated,
        # What was reworded later holds since then.
        "valid_from": updated if created and updated and updated > created else None,
        "valid_until": when(row.get("expiration_date")),
        "source": source("mem0", name_or_none(row.get("id")) or place, content, row.get("run_id")),
    }
    return ImportEntry(place, filled(fields), len(content.encode("utf-8", "replace")))


def _rows(path: Path) -> Iterator[Row]:
    with open_regular(path) as file:
        is_database = file.read(len(MAGIC)) == MAGIC
    if not is_database:
        yield from _of_json(path)
        return
    with open_foreign(path) as tables:
        yield from _of_points(tables) if tables.columns("points") else _of_history(tables)


def _of_json(path: Path) -> Iterator[Row]:
    text = read_text(path, JSON_LIMIT_BYTES)
    for number, item in enumerate(_items(path, text), 1):
        known = isinstance(item, Mapping | MeritoryError)
        yield f"memory {number}", item if known else InputError("it is no object")


def _items(path: Path, text: str) -> Iterator[Any]:
    """The memories of one JSON value, or of one a line."""
    try:
        held = json.loads(text)
    except (ValueError, RecursionError):
        yield from (_parsed(line) for line in text.split("\n") if line.strip())
        return
    if isinstance(held, Mapping):
        named = [held.get(name) for name in ("results", "memories", "data")]
        held = next((value for value in named if isinstance(value, list)), [held])
    if not isinstance(held, list):
        raise InputError(f"{path.name} holds no list of memories", hint="save what get_all returns")
    yield from held


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        return InputError(f"not a line of JSON: {str(error)[:80]}")


def _of_history(tables: ForeignTables) -> Iterator[Row]:
    """The latest text of every memory that was not deleted; whose it was is not told there."""
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


def _of_points(tables: ForeignTables) -> Iterator[Row]:
    """The points of a local Qdrant collection, which are kept as pickles."""
    for number, row in enumerate(tables.rows("points", ("id", "point")), 1):
        yield f"point {number}", _payload(row["point"])


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
    held = state.get("__dict__", state) if isinstance(state, Mapping) else None
    payload = held.get("payload") if isinstance(held, Mapping) else None
    if not isinstance(payload, Mapping):
        return InputError("the point has no payload")
    return {"id": held.get("id"), **payload} if isinstance(held, Mapping) else payload


class _Shell:
    """Stands for any object of a pickle: it takes whatever it is given and does nothing."""

    def __init__(self, *given: object, **named: object) -> None:
        self.state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state

    def __call__(self, *given: object, **named: object) -> _Shell:
        return _Shell()


class _Inert(pickle.Unpickler):
    """Reads a pickle without importing or running anything that it names."""

    def find_class(self, module: str, name: str, /) -> Any:
        """A shell for every class and function, whatever it is called."""
        return _Shell

    def persistent_load(self, pid: Any, /) -> Any:
        """Nothing outside of the pickle is part of it."""
        raise pickle.UnpicklingError("it refers to something outside")
