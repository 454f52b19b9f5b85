"""What goes over the wire: the types of replies, and records turned into them."""

from __future__ import annotations

import msgspec

from meritory.codec import moment_text, record_to_dict
from meritory.errors import MeritoryError
from meritory.types import (
    Entity,
    EntityView,
    HistoryEntry,
    Kind,
    MemoryRecord,
    Origin,
    Outcome,
    Parts,
    Provenance,
    Recalled,
    Trust,
    WriteResult,
)


class Health(msgspec.Struct):
    """Alive, and which version."""

    status: str
    version: str


class MemoryOut(msgspec.Struct, kw_only=True):
    """A memory, every field by its own name; times are UTC."""

    id: str
    content: str
    kind: Kind
    user: str
    agent: str | None
    project: str | None
    provenance: Provenance
    origin: Origin
    trust: Trust
    confidence: float
    importance: float
    pinned: bool
    demotion: int
    tags: list[str]
    sources: list[dict[str, str | None]]
    valid_from: str | None
    valid_until: str | None
    created_at: str
    updated_at: str
    superseded_by: str | None
    deleted_at: str | None
    access_count: int
    last_accessed: str | None
    usefulness: float
    embedder: str | None
    dimension: int | None

    @classmethod
    def of(cls, record: MemoryRecord) -> MemoryOut:
        """A record for the wire."""
        return cls(**record_to_dict(record))


class Hit(MemoryOut, kw_only=True, omit_defaults=True):
    """A memory that was found, its score and, on request, the numbers behind it."""

    score: float
    parts: Parts | None = None

    @classmethod
    def found(cls, hit: Recalled) -> Hit:
        """What recall found, for the wire."""
        return cls(**record_to_dict(hit.memory), score=hit.score, parts=hit.parts)


class Memories(msgspec.Struct):
    """Memories; `next` goes on after the last of a full page."""

    results: list[MemoryOut]
    next: str | None = None


class Hits(msgspec.Struct):
    """What was found, best first."""

    results: list[Hit]


class ErrorOut(msgspec.Struct):
    """Why one of many was refused."""

    code: str
    message: str
    hint: str | None = None


class Written(msgspec.Struct):
    """What became of a memory to be stored: `id` and `memory` are those it lives on in."""

    id: str | None
    outcome: Outcome
    reason: str
    other_id: str | None
    cosine: float | None
    memory: MemoryOut | None
    error: ErrorOut | None = None

    @classmethod
    def of(cls, result: WriteResult) -> Written:
        """A result for the wire."""
        record, error = result.memory, None
        if isinstance(result.error, MeritoryError):
            error = ErrorOut(result.error.code, result.error.message, result.error.hint)
        return cls(
            None if record is None else record.id,
            result.outcome,
            result.reason,
            result.other_id,
            result.cosine,
            None if record is None else MemoryOut.of(record),
            error,
        )


class WrittenMany(msgspec.Struct):
    """What became of each, in the order given."""

    results: list[Written]


class Entry(msgspec.Struct):
    """One change of a memory."""

    id: str
    entry: int
    at: str
    actor: str
    action: str
    why: str
    undone: bool
    other_id: str | None
    before: MemoryOut | None
    after: MemoryOut | None
    other: MemoryOut | None

    @classmethod
    def of(cls, entry: HistoryEntry) -> Entry:
        """A change for the wire."""
        states = [
            None if record is None else MemoryOut.of(record)
            for record in (entry.before, entry.after, entry.other)
        ]
        return cls(
            entry.memory_id,
            entry.entry,
            moment_text(entry.at),
            entry.actor,
            entry.action,
            entry.why,
            entry.undone,
            entry.other_id,
            *states,
        )


class History(msgspec.Struct):
    """Every change, oldest first."""

    results: list[Entry]


class Gone(msgspec.Struct):
    """A memory that was forgotten or erased."""

    id: str
    purged: bool


class EntityOut(msgspec.Struct):
    """Something memories are about."""

    id: str
    kind: str
    name: str
    memory_count: int

    @classmethod
    def of(cls, entity: Entity) -> EntityOut:
        """An entity for the wire."""
        return cls(f"{entity.kind}:{entity.name}", entity.kind, entity.name, entity.memory_count)


class Entities(msgspec.Struct):
    """What memories are about, most often first."""

    results: list[EntityOut]


class EntityPage(msgspec.Struct):
    """All that is known about an entity: ids of memories by aspect, and what it depends on."""

    entity: EntityOut
    aspects: dict[str, list[str]]
    constraints: list[str]
    depends_on: list[EntityOut]
    results: list[MemoryOut]

    @classmethod
    def of(cls, view: EntityView, records: list[MemoryRecord]) -> EntityPage:
        """A view for the wire."""
        return cls(
            EntityOut.of(view.entity),
            {name: list(ids) for name, ids in view.aspects.items()},
            list(view.constraints),
            [EntityOut.of(other) for other in view.depends_on],
            [MemoryOut.of(record) for record in records],
        )


class Stats(msgspec.Struct):
    """Counts of memories, of every write outcome and of every fallback."""

    user: str
    figures: dict[str, int]


class LatencyOut(msgspec.Struct):
    """How long an operation took lately."""

    id: str
    count: int
    last_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    recent_ms: list[float]


class Latencies(msgspec.Struct):
    """How long every operation took, over its last thousand times."""

    results: list[LatencyOut]


class FailureOut(msgspec.Struct):
    """Something that went wrong."""

    stage: str
    code: str
    message: str
    at: str
    request_id: str | None


class Failures(msgspec.Struct):
    """The last errors, newest first."""

    results: list[FailureOut]
