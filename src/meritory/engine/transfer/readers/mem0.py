"""Read mem0: the JSON of get_all, its history database, or a local Qdrant collection."""

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
    """Yield every live memory; of several users only those of the named one."""
    _check_users(found)
    for path in found.files:
        for place, row in _rows(path):
            yield _entry(place, row, found.only_user)


def _check_users(found: FoundFiles) -> None:
    """Require a choice if the files have memories of several users."""
    only, name = found.only_user, found.path.name
    rows = (row for path in found.files for _, row in _rows(path))
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


def _user(row: Mapping[str, Any] | MeritoryError) -> str | None:
    return None if isinstance(row, MeritoryError) else name_or_none(row.get("user_id"))


def _entry(place: str, row: Mapping[str, Any] | MeritoryError, only: str | None) -> ImportEntry:
    if isinstance(row, MeritoryError):
        return ImportEntry(place, row)
    if only is not None and _user(row) != only:
        return ImportEntry(place, Skipped("it belongs to another user"))
    content = next((row[name] for name in _TEXTS if isinstance(row.get(name), str)), None)
    if content is None:
        return ImportEntry(place, InputError("no text in memory, data, text or content"))
    metadata = row.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    created, updated = when(row.get("created_at")), when(row.get("updated_at"))
    fields = {
        "content": content,
        "kind": kind_of(content),
        # A role means that it was stored with infer=False, word for word.
        "provenance": "user_stated" if row.get("role") == "user" else "assistant_derived",
        "agent": name_or_none(row.get("agent_id")),
        "tags": tags(row.get("categories"), metadata.get("tags"), metadata.get("category")),
        "created_at": created or updated,
        # A memory that was changed later is valid since then.
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
        is_valid = isinstance(item, Mapping | MeritoryError)
        yield f"memory {number}", item if is_valid else InputError("expected an object")


def _items(path: Path, text: str) -> Iterator[Any]:
    """Yield the memories of one JSON value, or of one per line."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        yield from (_parsed(line) for line in text.split("\n") if line.strip())
        return
    if isinstance(value, Mapping):
        lists = [value.get(name) for name in ("results", "memories", "data")]
        value = next((items for items in lists if isinstance(items, list)), [value])
    if not isinstance(value, list):
        raise InputError(f"{path.name} has no list of memories", hint="save the result of get_all")
    yield from value


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        return InputError(f"not a line of JSON: {str(error)[:80]}")


def _of_history(tables: ForeignTables) -> Iterator[Row]:
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


def _of_points(tables: ForeignTables) -> Iterator[Row]:
    """Yield the points of a local Qdrant collection, which are pickles."""
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
