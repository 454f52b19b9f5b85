"""Memories as JSON values and back, and replies between daemon and library."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from meritory.domain.memory import MemoryRecord, Outcome, ResolutionResult, Scope, Source
from meritory.domain.world import moment_text, parse_moment

_MOMENTS = tuple(field.name for field in fields(MemoryRecord) if "datetime" in str(field.type))
_FIELDS = tuple(field.name for field in fields(MemoryRecord))
_SOURCE_FIELDS = tuple(field.name for field in fields(Source))
_DESCRIBING = threading.Lock()
_DESCRIBED: set[object] = set()
T = TypeVar("T")


def prepared(kind: type[T]) -> type[T]:
    """Return a type of records after msgspec has described it, for `decode` and `convert`.

    msgspec describes a type on first use, without a lock: two threads at once end the process
    with a segmentation fault.
    """
    if kind not in _DESCRIBED:
        import msgspec  # Lazy: the command line starts without it.

        with _DESCRIBING:
            msgspec.json.Decoder(kind)
            _DESCRIBED.add(kind)
    return kind


def source_to_dict(source: Source) -> dict[str, str | None]:
    """Return a source as a dictionary."""
    return {name: getattr(source, name) for name in _SOURCE_FIELDS}


def record_to_dict(record: MemoryRecord) -> dict[str, Any]:
    """Return a memory as JSON values, by field."""
    plain: dict[str, Any] = {name: getattr(record, name) for name in _FIELDS}
    for name in _MOMENTS:
        if plain[name] is not None:
            plain[name] = moment_text(plain[name])
    plain["tags"] = list(record.tags)
    plain["metadata"] = dict(record.metadata)
    plain["sources"] = [source_to_dict(source) for source in record.sources]
    return plain


def record_from_dict(plain: Mapping[str, Any]) -> MemoryRecord:
    """Return the memory that `record_to_dict` encoded."""
    values = {name: plain[name] for name in _FIELDS if name in plain}
    for name in _MOMENTS:
        if values.get(name) is not None:
            values[name] = parse_moment(values[name], name)
    values["tags"] = tuple(values.get("tags", ()))
    values["metadata"] = dict(values.get("metadata") or {})
    values["sources"] = tuple(Source(**source) for source in values.get("sources", ()))
    return MemoryRecord(**values)


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """An error with the fields that are needed to raise it again."""

    code: str
    status: int
    message: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class WrittenReply:
    """The result of one text that a daemon wrote."""

    outcome: Outcome
    memory: MemoryRecord | None
    reason: str
    other_id: str | None
    cosine: float | None
    error: ErrorReply | None = None
    is_quoted: bool | None = None
    resolved: tuple[ResolutionResult, ...] = ()


@dataclass(frozen=True, slots=True)
class Greeting:
    """The requested scope, and the user if none is named."""

    scope: Scope
    default_user: str
