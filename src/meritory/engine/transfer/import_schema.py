"""The lines of an export, checked field by field before anything of them comes in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, get_args

from meritory.domain.codec import parse_moment
from meritory.domain.errors import InputError
from meritory.domain.memory import Action, HistoryEntry, MemoryRecord
from meritory.domain.quality import CarriedAudit, MergeVerdict, Retrieval
from meritory.engine.memories.validate import (
    checked_choice,
    checked_field,
    checked_name,
    checked_share,
    checked_source,
)
from meritory.engine.transfer.extra_tables import NAMES, Keepsake, checked_keepsake
from meritory.store.contract.memories import Attribute
from meritory.text.entities import entity_key
from meritory.text.normalize import checked_content

_ID = re.compile(r"[0-9a-z]{26}")
_RECORD_FIELDS = {item.name for item in fields(MemoryRecord)}
_OPTIONAL_MOMENTS = ("valid_from", "valid_until", "last_accessed", "deleted_at")
_PLAIN = ("kind", "provenance", "origin", "confidence", "importance", "pinned", "tags")
_COUNTS = ("demotion", "access_count")
_COUNT_MAX = 1 << 62
_LINK_FIELDS = {item.name for item in fields(Attribute)}


@dataclass(frozen=True, slots=True)
class ExportedMemory:
    """One memory out of an export, with the links that were stated and its history."""

    record: MemoryRecord
    about: tuple[Attribute, ...]
    history: tuple[HistoryEntry, ...]
    # What people said about merges, by the place of the entry in the history.
    audits: tuple[tuple[int, CarriedAudit], ...] = ()
    retrieved: Retrieval | None = None


@dataclass(frozen=True, slots=True)
class ExportedLine:
    """What one line of an export holds: a memory, or a dependency of entities, or counters."""

    memory: ExportedMemory | None = None
    dependency: tuple[Attribute, Attribute] | None = None
    counters: dict[str, int] = field(default_factory=dict)
    keepsake: Keepsake | None = None


def checked_line(plain: Any, user: str) -> ExportedLine:
    """A line of an export, given to the user who imports it; what is left cannot fail later."""
    if isinstance(plain, dict) and "memory" in plain:
        return ExportedLine(memory=_checked_memory(plain, user))
    if isinstance(plain, dict) and plain.keys() & set(NAMES):
        return ExportedLine(keepsake=checked_keepsake(plain, user))
    if not isinstance(plain, dict) or not plain or plain.keys() - {"dependency", "counters"}:
        raise InputError("neither a memory, a dependency nor counters")
    pair = plain.get("dependency")
    return ExportedLine(
        dependency=None if pair is None else _checked_dependency(pair),
        counters=_checked_counters(plain.get("counters", {})),
    )


def _checked_memory(plain: dict[str, Any], user: str) -> ExportedMemory:
    record = checked_record(plain["memory"], user)
    about, entries = plain.get("about", []), plain.get("history", [])
    if not isinstance(about, list) or not isinstance(entries, list):
        raise InputError("about and history must be lists")
    return ExportedMemory(
        record,
        tuple(_checked_link(link) for link in about),
        tuple(checked_entry(entry, record.id, user) for entry in entries),
        tuple(_checked_audits(entries)),
        _checked_retrieval(plain.get("retrieved")),
    )


def _checked_audits(entries: list[Any]) -> Iterator[tuple[int, CarriedAudit]]:
    for place, entry in enumerate(entries):
        said = entry.get("audit")
        if said is None:
            continue
        if not isinstance(said, dict) or said.keys() != {"at", "verdict"}:
            raise InputError("an audit must have a time and a verdict")
        verdict = checked_choice("verdict", said["verdict"], get_args(MergeVerdict))
        at = parse_moment(said["at"], "at")
        yield place, CarriedAudit(entry=0, at=at, verdict=verdict)  # type: ignore[arg-type]


def _checked_retrieval(plain: Any) -> Retrieval | None:
    if plain is None:
        return None
    if not isinstance(plain, dict) or plain.keys() != {"count", "last_at"}:
        raise InputError("retrieved must have a count and a time")
    return Retrieval(
        _checked_count("count", plain["count"]), parse_moment(plain["last_at"], "last_at")
    )


def _checked_dependency(pair: Any) -> tuple[Attribute, Attribute]:
    if not isinstance(pair, list) or len(pair) != 2:
        raise InputError("a dependency must be a list of two entities")
    return _checked_link(pair[0], needs_aspect=False), _checked_link(pair[1], needs_aspect=False)


def _checked_counters(plain: Any) -> dict[str, int]:
    if not isinstance(plain, dict):
        raise InputError("counters must be an object of names with their counts")
    return {
        str(checked_name("a counter", name)): _checked_count("a counter", amount)
        for name, amount in plain.items()
    }


def _checked_link(plain: Any, *, needs_aspect: bool = True) -> Attribute:
    """An entity that a memory is about, or of a dependency, which has no aspect."""
    if not isinstance(plain, dict) or plain.keys() | {"is_stated"} != _LINK_FIELDS:
        raise InputError("an entity link has unknown or missing fields")
    kind = str(checked_name("the kind of an entity", plain["kind"]))
    name = str(checked_name("the name of an entity", plain["name"]))
    aspect = plain["aspect"]
    if needs_aspect or aspect != "":
        aspect = str(checked_name("the aspect of an entity", aspect))
    if plain["key"] != entity_key(kind, name):
        raise InputError("the key of an entity does not fit its kind and name")
    return Attribute(plain["key"], kind, name, aspect, is_stated=True)


def checked_record(plain: Any, user: str) -> MemoryRecord:
    """The memory an export line holds, given to the user who imports it."""
    if not isinstance(plain, dict) or plain.keys() != _RECORD_FIELDS:
        raise InputError("the memory has unknown or missing fields")
    content = checked_content(plain["content"])
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
        content=content,
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
        before, other = (
            None if plain[name] is None else checked_record(plain[name], user)
            for name in ("before", "other")
        )
        other_id = None if plain["other_id"] is None else checked_id(plain["other_id"])
        # An undo writes `before` back by its id: it must not reach another memory.
        if before is not None and before.id != memory_id:
            raise InputError("a history entry tells of another memory")
        if other is not None and other.id != other_id:
            raise InputError("a history entry names another id than its other memory has")
        return HistoryEntry(
            entry=_checked_count("entry", plain["entry"]),
            memory_id=memory_id,
            operation=str(checked_name("operation", plain["operation"])),
            at=parse_moment(plain["at"], "at"),
            actor=str(checked_name("actor", plain["actor"])),
            action=checked_choice("action", plain["action"], get_args(Action)),  # type: ignore[arg-type]
            why=_checked_why(plain["why"]),
            before=before,
            after=None,
            other=other,
            other_id=other_id,
            undone=_checked_flag("undone", plain["undone"]),
        )
    except KeyError as error:
        raise InputError(f"a history entry lacks {error}") from error


def checked_id(value: Any) -> str:
    """An id as we make them."""
    if isinstance(value, str) and _ID.fullmatch(value):
        return value
    raise InputError(f"{str(value)[:40]!r} is not an id")


def _checked_why(value: Any) -> str:
    """A reason may be long, empty or hold any character, as long as it can be stored."""
    if not isinstance(value, str):
        raise InputError("why must be text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError("why must be valid Unicode; it holds a lone surrogate") from error
    return value


def _checked_flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{name} must be true or false")
    return value


def _checked_count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _COUNT_MAX:
        raise InputError(f"{name} must be a whole number, not {str(value)[:40]!r}")
    return value
