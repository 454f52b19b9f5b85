"""Records and history entries of an export, checked field by field before they come in."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any, get_args

from tenure.codec import parse_moment
from tenure.errors import InputError
from tenure.flow.drafts import (
    checked_choice,
    checked_field,
    checked_name,
    checked_share,
    checked_source,
)
from tenure.text.normal import check_text
from tenure.types import Action, HistoryEntry, MemoryRecord

_ID = re.compile(r"[0-9a-z]{26}")
_RECORD_FIELDS = {item.name for item in fields(MemoryRecord)}
_OPTIONAL_MOMENTS = ("valid_from", "valid_until", "last_accessed", "deleted_at")
_PLAIN = ("kind", "provenance", "origin", "confidence", "importance", "pinned", "tags")
_COUNTS = ("demotion", "access_count")
_COUNT_MAX = 1 << 62


def checked_record(plain: Any, user: str) -> MemoryRecord:
    """The memory an export line holds, given to the user who imports it."""
    if not isinstance(plain, dict) or plain.keys() != _RECORD_FIELDS:
        raise InputError("the memory has unknown or missing fields")
    check_text(plain["content"])
    values: dict[str, Any] = {name: checked_field(name, plain[name]) for name in _PLAIN}
    values |= {name: checked_name(name, plain[name]) for name in ("agent", "project")}
    values |= {
        name: None if plain[name] is None else parse_moment(plain[name], name)
        for name in _OPTIONAL_MOMENTS
    }
    values |= {name: _checked_count(name, plain[name]) for name in _COUNTS}
    sources = plain["sources"]
    if not isinstance(sources, list):
        raise InputError("sources must be a list")
    return MemoryRecord(
        id=checked_id(plain["id"]),
        content=plain["content"],
        user=user,
        trust=checked_choice("trust", plain["trust"], ("trusted", "untrusted")),  # type: ignore[arg-type]
        usefulness=checked_share("usefulness", plain["usefulness"]),
        sources=tuple(source for item in sources if (source := checked_source(item))),
        created_at=parse_moment(plain["created_at"], "created_at"),
        updated_at=parse_moment(plain["updated_at"], "updated_at"),
        embedder=None if plain["embedder"] is None else checked_name("embedder", plain["embedder"]),
        dimension=None
        if plain["dimension"] is None
        else _checked_count("dimension", plain["dimension"]),
        superseded_by=None
        if plain["superseded_by"] is None
        else checked_id(plain["superseded_by"]),
        **values,
    )


def checked_entry(plain: Any, memory_id: str, user: str) -> HistoryEntry:
    """One history entry of an export line."""
    if not isinstance(plain, dict):
        raise InputError("a history entry must be an object")
    try:
        before, other = plain["before"], plain["other"]
        return HistoryEntry(
            entry=_checked_count("entry", plain["entry"]),
            memory_id=memory_id,
            operation=str(checked_name("operation", plain["operation"])),
            at=parse_moment(plain["at"], "at"),
            actor=str(checked_name("actor", plain["actor"])),
            action=checked_choice("action", plain["action"], get_args(Action)),  # type: ignore[arg-type]
            why=str(plain["why"]),
            before=None if before is None else checked_record(before, user),
            after=None,
            other=None if other is None else checked_record(other, user),
            other_id=None if plain["other_id"] is None else checked_id(plain["other_id"]),
            undone=bool(plain["undone"]),
        )
    except KeyError as error:
        raise InputError(f"a history entry lacks {error}") from error


def checked_id(value: Any) -> str:
    """An id as we make them."""
    if isinstance(value, str) and _ID.fullmatch(value):
        return value
    raise InputError(f"{str(value)[:40]!r} is not an id")


def _checked_count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _COUNT_MAX:
        raise InputError(f"{name} must be a whole number, not {str(value)[:40]!r}")
    return value
