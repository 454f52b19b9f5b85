"""Memories: records, drafts, history, scopes, entities and embedders."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, get_args

Kind = Literal["fact", "preference", "decision", "procedure", "episode", "lesson", "constraint"]
Provenance = Literal["user_stated", "assistant_derived", "episode_summary"]
Origin = Literal["user", "agent", "tool", "web", "import"]
Trust = Literal["trusted", "untrusted"]
Outcome = Literal["stored", "duplicate", "merged", "superseded", "kept_both", "floored", "refused"]
OnSimilar = Literal["gate", "keep"]
Action = Literal[
    "create",
    "refresh",
    "merge",
    "supersede",
    "separate",
    "update",
    "confirm",
    "demote",
    "delete",
    "split",
    "undo",
]

# How a new text relates to a stored memory, as the writer says.
ResolvesAs = Literal["same", "update", "different"]
# What became of that: `open` leaves the pair for review, `unchanged` finds nothing to do.
ResolutionOutcome = Literal["merged", "superseded", "separate", "open", "unchanged"]

KINDS: tuple[str, ...] = get_args(Kind)
RESOLVES_AS: tuple[str, ...] = get_args(ResolvesAs)
PROVENANCES: tuple[str, ...] = get_args(Provenance)
ORIGINS: tuple[str, ...] = get_args(Origin)
OUTCOMES: tuple[str, ...] = get_args(Outcome)
# Found by search and labelled, never injected unasked until a person confirms.
UNTRUSTED_ORIGINS: frozenset[str] = frozenset({"tool", "web"})

CONTENT_LIMIT_CHARS = 8_192
NAME_LIMIT_CHARS = 256
TAG_LIMIT_CHARS = 64
TAG_LIMIT_COUNT = 64
METADATA_LIMIT_COUNT = 64
METADATA_LIMIT_CHARS = 4_096
DEFAULT_USER = "default"
# What every surface says when a search finds nothing.
NOTHING_KNOWN = "nothing is known about this"
DEFAULT_CONFIDENCE = 0.8
DEFAULT_IMPORTANCE = 0.5
DEFAULT_USEFULNESS = 0.5


@dataclass(frozen=True, slots=True)
class Scope:
    """The owner of a memory, or of a query; a project or agent of None means everywhere."""

    user: str = DEFAULT_USER
    agent: str | None = None
    project: str | None = None

    def covers(self, agent: str | None, project: str | None) -> bool:
        """Return whether a query of this scope sees memories of an agent and a project."""
        return agent in (None, self.agent) and project in (None, self.project)


@dataclass(frozen=True, slots=True)
class EveryScope(Scope):
    """All scopes of a user: for tools that people use, not for agents."""

    def covers(self, agent: str | None, project: str | None) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class ProjectsScope(Scope):
    """The memories of exactly these projects; an empty name stands for those without one."""

    projects: tuple[str, ...] = ()

    def covers(self, agent: str | None, project: str | None) -> bool:
        return agent in (None, self.agent) and (project or "") in self.projects


@dataclass(frozen=True, slots=True)
class Source:
    """Where a memory was learned: harness, session, turn and the hash of the quoted text.

    `extractor` names the extractor and its version; it is None for a memory that was written
    directly.
    """

    harness: str | None = None
    session_key: str | None = None
    turn: str | None = None
    quote_hash: str | None = None
    extractor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRecord:
    """One claim worth remembering, with its metadata and counters."""

    id: str
    content: str
    kind: Kind = "fact"
    user: str = DEFAULT_USER
    agent: str | None = None
    project: str | None = None
    provenance: Provenance = "user_stated"
    origin: Origin = "user"
    trust: Trust = "trusted"
    confidence: float = DEFAULT_CONFIDENCE
    importance: float = DEFAULT_IMPORTANCE
    pinned: bool = False
    demotion: int = 0
    tags: tuple[str, ...] = ()
    # What a program keeps with it: named JSON values, which nothing but filters reads.
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    sources: tuple[Source, ...] = ()
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    created_at: datetime
    updated_at: datetime
    superseded_by: str | None = None
    deleted_at: datetime | None = None
    # Counters are in a table of their own: reading a memory never rewrites its row.
    access_count: int = 0
    last_accessed: datetime | None = None
    usefulness: float = DEFAULT_USEFULNESS
    embedder: str | None = None
    dimension: int | None = None

    @property
    def scope(self) -> Scope:
        """Return the scope that the memory belongs to."""
        return Scope(self.user, self.agent, self.project)

    @property
    def source(self) -> Source | None:
        """Return the first source of the memory."""
        return self.sources[0] if self.sources else None

    @property
    def is_binding(self) -> bool:
        """Return whether it is a pin or a constraint, which only a person sets and lifts."""
        return self.pinned or self.kind == "constraint"

    @property
    def is_live(self) -> bool:
        """Return whether the memory is neither deleted nor superseded."""
        return self.deleted_at is None and self.superseded_by is None


@dataclass(frozen=True, slots=True)
class Resolution:
    """What a writer says about a stored memory: how the new text relates to it."""

    memory_id: str
    relation: ResolvesAs


@dataclass(frozen=True, slots=True)
class ResolutionResult:
    """What became of a resolution."""

    id: str
    result: ResolutionOutcome
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A proposed memory, before the write path has decided its outcome."""

    content: str
    user: str = DEFAULT_USER
    agent: str | None = None
    project: str | None = None
    kind: Kind = "fact"
    provenance: Provenance = "user_stated"
    origin: Origin = "user"
    confidence: float = DEFAULT_CONFIDENCE
    importance: float = DEFAULT_IMPORTANCE
    pinned: bool = False
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    source: Source | None = None
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    created_at: datetime | None = None
    about: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()
    supersedes: str | None = None
    on_similar: OnSimilar = "gate"
    # The user's words that support an agent's text, and what the writer says of other memories.
    quote: str | None = None
    resolves: tuple[Resolution, ...] = ()

    @property
    def scope(self) -> Scope:
        """Return the scope that the memory would belong to."""
        return Scope(self.user, self.agent, self.project)


def metadata_text(value: object) -> str:
    """Return a value of metadata as JSON, the same for equal values."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class RecallFilter:
    """The memories that a search may return; an empty field allows all."""

    kinds: tuple[str, ...] = ()
    # A memory needs all of these tags, and all of this metadata.
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    # A memory holds since its `valid_from`, else its creation: not before `since`, before `until`.
    since: datetime | None = None
    until: datetime | None = None
    # The lowest score of a result; without one, the search decides whether anything is known.
    min_score: float | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether every memory passes, whatever its score."""
        return replace(self, min_score=None) == RecallFilter()

    def allows(self, record: MemoryRecord) -> bool:
        """Return whether a memory passes."""
        held_since = record.valid_from or record.created_at
        return (
            (not self.kinds or record.kind in self.kinds)
            and set(self.tags) <= set(record.tags)
            and all(
                name in record.metadata
                and metadata_text(record.metadata[name]) == metadata_text(value)
                for name, value in self.metadata.items()
            )
            and (self.since is None or held_since >= self.since)
            and (self.until is None or held_since < self.until)
        )


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of one draft: the outcome, the memory that holds it now, and the reason."""

    outcome: Outcome
    memory: MemoryRecord | None
    reason: str = ""
    other_id: str | None = None
    cosine: float | None = None
    error: Exception | None = None
    # Whether the quote was found in what the user typed; None without one.
    is_quoted: bool | None = None
    resolved: tuple[ResolutionResult, ...] = ()


# How the reason of a merge begins that a caller asked for, and not the gate.
MERGED_BY = "merged by "


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One change of a memory: actor, reason, and the memory before and after."""

    entry: int
    memory_id: str
    operation: str
    at: datetime
    actor: str
    action: Action
    why: str
    before: MemoryRecord | None
    after: MemoryRecord | None
    other: MemoryRecord | None = None
    other_id: str | None = None
    undone: bool = False

    @property
    def is_asked_merge(self) -> bool:
        """Return whether a caller merged two stored memories, and not the gate."""
        return self.action == "merge" and self.why.startswith(MERGED_BY)


@dataclass(frozen=True, slots=True)
class Parts:
    """The numbers that a score is made of, to six decimals."""

    composite: float
    relevance: float
    recency: float
    usefulness: float
    confidence: float
    frequency: float
    cosine: float
    text: float
    hybrid: float
    weight: float
    # How far the question and the text cover each other's words, and both relative to the pool.
    asked: float = 0.0
    told: float = 0.0
    soft: float = 0.0
    # Whether it is an instruction or a preference, and how far the question meets its condition.
    condition: float = 0.0
    # The share of the question's words in the memory, and the number that results are ordered by.
    share: float = 0.0
    order: float = 0.0
    is_standing: bool = field(default=False, kw_only=True)
    # Words of the question that were read as others: "db = database".
    read_as: str = field(default="", kw_only=True)


@dataclass(frozen=True, slots=True)
class Recalled:
    """A memory that recall found, with its score and, on request, its parts.

    `until` is the moment when the next value of its claim began, if it has one.
    """

    memory: MemoryRecord
    score: float
    parts: Parts | None = None
    until: datetime | None = None

    @property
    def id(self) -> str:
        """Return the id of the memory."""
        return self.memory.id

    @property
    def content(self) -> str:
        """Return the text of the memory."""
        return self.memory.content


@dataclass(frozen=True, slots=True)
class Entity:
    """A subject of memories: a file, an identifier, a tag, a person, a project."""

    kind: str
    name: str
    memory_count: int = 0


@dataclass(frozen=True, slots=True)
class EntityView:
    """An entity with the memory ids of each aspect, its constraints and its dependencies."""

    entity: Entity
    aspects: dict[str, tuple[str, ...]] = field(default_factory=dict)
    constraints: tuple[str, ...] = ()
    depends_on: tuple[Entity, ...] = ()


@dataclass(frozen=True, slots=True)
class Listing:
    """A page of memories, newest first; `after` is the last id of the page before."""

    scope: Scope
    everywhere: bool = False
    kind: str | None = None
    tag: str | None = None
    include_gone: bool = False
    after: str | None = None
    limit: int = 100
    provenance: str | None = None
    trust: str | None = None
    # live, superseded or forgotten; and of exactly this project, "" for none.
    state: str | None = None
    of_project: str | None = None


@dataclass(frozen=True, slots=True)
class EmbedderInfo:
    """A registered embedder: its name, dimension and the specification to open it again."""

    name: str
    dimension: int
    spec: str


@dataclass(frozen=True, slots=True)
class EmbeddingState:
    """How many memories, in any state, have a vector of one embedder."""

    embedded_count: int
    memory_count: int

    @property
    def is_complete(self) -> bool:
        """Return whether every memory has its vector."""
        return self.embedded_count >= self.memory_count
