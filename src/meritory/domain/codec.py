"""Memories as JSON values and back without loss, and replies between daemon and library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

from meritory.domain.errors import InputError
from meritory.domain.memory import MemoryRecord, Outcome, Scope, Source

_MOMENTS = (
    "valid_from",
    "valid_until",
    "created_at",
    "updated_at",
    "last_accessed",
    "deleted_at",
)
_FIELDS = tuple(field.name for field in fields(MemoryRecord))
_SOURCE_FIELDS = tuple(field.name for field in fields(Source))


def moment_text(moment: datetime) -> str:
    """Return ISO 8601 in UTC with offset and fixed width, so that text order is time order."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def parse_moment(value: object, name: str = "time") -> datetime:
    """Return a moment in UTC from a datetime or ISO 8601 text; without an offset it is UTC."""
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value.strip())
        if isinstance(value, datetime):
            aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
            return aware.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InputError(
            f"{name}: {str(value)[:40]!r} is not a time between the years 1 and 9999",
            hint="use ISO 8601, e.g. 2026-11-15T08:30:00+01:00",
        ) from error
    raise InputError(
        f"{name}: expected a time, got {type(value).__name__}",
        hint="use ISO 8601, e.g. 2026-11-15T08:30:00+01:00",
    )


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
    plain["sources"] = [source_to_dict(source) for source in record.sources]
    return plain


def record_from_dict(plain: Mapping[str, Any]) -> MemoryRecord:
    """Return the memory that `record_to_dict` encoded."""
    values = {name: plain[name] for name in _FIELDS if name in plain}
    for name in _MOMENTS:
        if values.get(name) is not None:
            values[name] = parse_moment(values[name], name)
    values["tags"] = tuple(values.get("tags", ()))
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


@dataclass(frozen=True, slots=True)
class Greeting:
    """The requested scope, and the user if none is named."""

    scope: Scope
    default_user: str
