"""What comes over the wire: the types of bodies and query strings."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from meritory.domain.codec import moment_text, record_to_dict
from meritory.domain.errors import MeritoryError
from meritory.domain.memory import (
    CONTENT_LIMIT_CHARS,
    Entity,
    EntityView,
    HistoryEntry,
    Kind,
    MemoryRecord,
    OnSimilar,
    Origin,
    Outcome,
    Parts,
    Provenance,
    Recalled,
    Trust,
    WriteResult,
)
from meritory.server.table import QueryParams, Scoped

Share = Annotated[float, Meta(ge=0, le=1)]
# Told, not enforced, here: the write path says more about a text that it refuses.
Content = Annotated[
    str,
    Meta(extra_json_schema={"minLength": 1, "maxLength": CONTENT_LIMIT_CHARS}),
]
Limit = Annotated[int, Meta(ge=1, le=1_000)]
Moment = Annotated[str, Meta(description="ISO 8601; without an offset it is UTC")]
PAGE_LIMIT = 100
MANY_LIMIT_COUNT = 200


class SourceIn(msgspec.Struct, forbid_unknown_fields=True):
    """Where something was learned."""

    harness: str | None = None
    session_key: str | None = None
    turn: str | None = None
    quote_hash: str | None = None


class NewMemory(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A memory to be stored; what is left out is filled in."""

    content: Content | UnsetType = UNSET
    kind: Kind | UnsetType = UNSET
    provenance: Provenance | UnsetType = UNSET
    origin: Origin | UnsetType = UNSET
    confidence: Share | UnsetType = UNSET
    importance: Share | UnsetType = UNSET
    pinned: bool | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    source: SourceIn | UnsetType | None = UNSET
    valid_from: Moment | UnsetType | None = UNSET
    valid_until: Moment | UnsetType | None = UNSET
    created_at: Moment | UnsetType | None = UNSET
    about: list[str] | UnsetType = UNSET
    depends_on: list[str] | UnsetType = UNSET
    supersedes: str | UnsetType | None = UNSET
    on_similar: OnSimilar | UnsetType = UNSET


class Remember(NewMemory, kw_only=True):
    """One memory, or many under `memories`."""

    user: str | None = None
    agent: str | None = None
    project: str | None = None
    memories: list[NewMemory] | UnsetType = UNSET


class Patch(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Fields to change; null empties one that may be empty."""

    content: Content | UnsetType = UNSET
    kind: Kind | UnsetType = UNSET
    confidence: Share | UnsetType = UNSET
    importance: Share | UnsetType = UNSET
    pinned: bool | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    agent: str | UnsetType | None = UNSET
    project: str | UnsetType | None = UNSET
    valid_from: Moment | UnsetType | None = UNSET
    valid_until: Moment | UnsetType | None = UNSET


class SearchBody(Scoped, kw_only=True):
    """What to look for; `everywhere` in all projects and agents, for people."""

    query: str
    limit: Limit | None = None
    explain: bool = False
    everywhere: bool = False


class Purge(Scoped, kw_only=True):
    """What cannot be undone is asked for twice: `confirm` repeats the memory's whole id."""

    confirm: str


class ListQuery(Scoped, kw_only=True):
    """A page of memories."""

    limit: Limit = PAGE_LIMIT
    after: str | None = None
    kind: Kind | None = None
    tag: str | None = None
    everywhere: bool = False
    gone: bool = False
    provenance: Provenance | None = None
    trust: Trust | None = None
    state: Literal["live", "superseded", "forgotten"] | None = None
    of_project: Annotated[
        str | None, Meta(description="Only of this project; empty: only of none")
    ] = None


class SearchQuery(Scoped, kw_only=True):
    """What to look for, as query parameters."""

    query: str
    limit: Limit | None = None
    explain: bool = False
    everywhere: bool = False


class DeleteQuery(Scoped, kw_only=True):
    """Why a memory is forgotten."""

    why: str = ""


class EverywhereQuery(Scoped, kw_only=True):
    """Whether all projects and agents are meant."""

    everywhere: bool = False


class LimitQuery(EverywhereQuery, kw_only=True):
    """How many are wanted."""

    limit: Limit = PAGE_LIMIT


class StageQuery(QueryParams, kw_only=True):
    """Which errors are wanted; a stage such as `job_extract`, or a group such as `job`."""

    stage: str | None = None
    limit: Limit = PAGE_LIMIT


def given(body: msgspec.Struct, *apart: str) -> dict[str, Any]:
    """The fields that a request really named."""
    found: dict[str, Any] = {}
    for name in body.__struct_fields__:
        value = getattr(body, name)
        if value is not UNSET and name not in apart:
            found[name] = msgspec.to_builtins(value) if name == "source" else value
    return found


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


class HitOut(MemoryOut, kw_only=True, omit_defaults=True):
    """A memory that was found, its score and, on request, the numbers behind it."""

    score: float
    parts: Parts | None = None

    @classmethod
    def found(cls, hit: Recalled) -> HitOut:
        """What recall found, for the wire."""
        return cls(**record_to_dict(hit.memory), score=hit.score, parts=hit.parts)


class Memories(msgspec.Struct):
    """Memories; `next` goes on after the last of a full page."""

    results: list[MemoryOut]
    next: str | None = None


class Hits(msgspec.Struct):
    """What was found, best first."""

    results: list[HitOut]


class ErrorOut(msgspec.Struct):
    """Why one of many was refused."""

    code: str
    message: str
    hint: str | None = None


class WriteOut(msgspec.Struct):
    """What became of a memory to be stored: `id` and `memory` are those it lives on in."""

    id: str | None
    outcome: Outcome
    reason: str
    other_id: str | None
    cosine: float | None
    memory: MemoryOut | None
    error: ErrorOut | None = None

    @classmethod
    def of(cls, result: WriteResult) -> WriteOut:
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

    results: list[WriteOut]


class HistoryEntryOut(msgspec.Struct):
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
    def of(cls, entry: HistoryEntry) -> HistoryEntryOut:
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

    results: list[HistoryEntryOut]


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
