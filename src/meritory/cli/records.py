"""Memories as rows, fields and differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from meritory.cli.output import Column, Fields, Table
from meritory.domain.codec import record_to_dict
from meritory.domain.memory import MemoryRecord

ID_COLUMN = Column("id", "cyan")
# Fields that change by themselves and say nothing about what somebody changed.
_UNSAID = frozenset(
    {"updated_at", "embedder", "dimension", "access_count", "last_accessed", "usefulness"}
)
_STEPS = ((86_400 * 365, "y"), (86_400, "d"), (3_600, "h"), (60, "m"))


def age(now: datetime, moment: datetime) -> str:
    """How long ago something was, in one unit."""
    seconds = (now - moment).total_seconds()
    for size, unit in _STEPS:
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return "now"


def clock_text(moment: datetime | None) -> str:
    """A moment for people, in UTC."""
    return f"{moment:%Y-%m-%d %H:%M} UTC" if moment is not None else ""


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def marks(record: MemoryRecord) -> str:
    """What a reader must know about a memory at a glance."""
    found = [
        name
        for name, holds in (
            ("pinned", record.pinned),
            ("untrusted", record.trust == "untrusted"),
            ("demoted", record.demotion > 0),
            ("superseded", record.superseded_by is not None),
            ("forgotten", record.deleted_at is not None),
        )
        if holds
    ]
    return ", ".join(found)


def memory_table(
    records: Sequence[MemoryRecord],
    shown_ids: Mapping[str, str],
    now: datetime,
    *,
    scores: Sequence[float] = (),
) -> Table:
    """A table of memories; columns that would be empty are left out."""
    columns: list[tuple[Column, list[str]]] = [(ID_COLUMN, [shown_ids[r.id] for r in records])]
    if scores:
        columns.append((Column("score"), [f"{score:.3f}" for score in scores]))
    columns.append((Column("age", "dim"), [age(now, r.created_at) for r in records]))
    columns.append((Column("kind"), [r.kind for r in records]))
    for name, style, cells in (
        ("project", "magenta", [r.project or "" for r in records]),
        ("state", "yellow", [marks(r) for r in records]),
    ):
        if any(cells):
            columns.append((Column(name, style), cells))
    columns.append((Column("content", wraps=True), [r.content for r in records]))
    rows = list(zip(*(cells for _, cells in columns), strict=True))
    return Table(tuple(column for column, _ in columns), rows)


def memory_fields(record: MemoryRecord) -> Fields:
    """Every field of a memory that has something to say."""
    place = [" ".join(filter(None, (s.harness, s.session_key, s.turn))) for s in record.sources]
    pairs = [
        ("id", record.id),
        ("content", record.content),
        ("kind", record.kind),
        ("user", record.user),
        ("agent", record.agent or ""),
        ("project", record.project or ""),
        ("state", marks(record)),
        ("tags", ", ".join(record.tags)),
        ("importance", f"{record.importance:g}"),
        ("confidence", f"{record.confidence:g}"),
        ("provenance", f"{record.provenance} (origin {record.origin}, {record.trust})"),
        ("sources", "; ".join(filter(None, place))),
        ("valid from", clock_text(record.valid_from)),
        ("valid until", clock_text(record.valid_until)),
        ("created", clock_text(record.created_at)),
        ("updated", clock_text(record.updated_at)),
        ("shown", f"{_times(record.access_count)}, usefulness {record.usefulness:g}"),
        ("superseded by", record.superseded_by or ""),
        ("forgotten", clock_text(record.deleted_at)),
        ("embedder", f"{record.embedder} ({record.dimension})" if record.embedder else "none yet"),
    ]
    return Fields([(name, value) for name, value in pairs if value])


def changed_fields(
    before: MemoryRecord | None, after: MemoryRecord | None
) -> dict[str, dict[str, Any]]:
    """The fields in which two states of a memory differ, as JSON values."""
    if before is None or after is None:
        return {}
    old, new = record_to_dict(before), record_to_dict(after)
    return {
        name: {"before": old[name], "after": new[name]}
        for name in old
        if name not in _UNSAID and old[name] != new[name]
    }


def change_lines(changes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Differences as lines with - and +."""
    lines = []
    for name, change in changes.items():
        lines += [f"  - {name}: {_word(change['before'])}", f"  + {name}: {_word(change['after'])}"]
    return lines


def _word(value: Any) -> str:
    if value is None or value == []:
        return "(none)"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return " ".join(str(value).split())
