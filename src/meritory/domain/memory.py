"""The nouns of Meritory: frozen records that every layer shares."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, get_args

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
    "update",
    "confirm",
    "demote",
    "delete",
    "split",
    "undo",
]

KINDS: tuple[str, ...] = get_args(Kind)
PROVENANCES: tuple[str, ...] = get_args(Provenance)
ORIGINS: tuple[str, ...] = get_args(Origin)
OUTCOMES: tuple[str, ...] = get_args(Outcome)
# Found by search and labelled, never injected unasked until a person confirms.
UNTRUSTED_ORIGINS: frozenset[str] = frozenset({"tool", "web"})

CONTENT_LIMIT_CHARS = 8_192
NAME_LIMIT_CHARS = 256
TAG_LIMIT_CHARS = 64
TAG_LIMIT_COUNT = 64
DEFAULT_USER = "default"
DEFAULT_CONFIDENCE = 0.8
DEFAULT_IMPORTANCE = 0.5
DEFAULT_USEFULNESS = 0.5


@dataclass(frozen=True, slots=True)
class Scope:
    """Who a memory belongs to, or who asks; a project or agent of None means everywhere."""

    user: str = DEFAULT_USER
    agent: str | None = None
    project: str | None = None


@dataclass(frozen=True, slots=True)
class EveryScope(Scope):
    """All that a user has, whatever project or agent it is of: for people's tools, no agent's."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a memory was learned: harness, session, turn, the hash of the quoted text, and by whom.

    The extractor is named with its version, and by code alone; others leave it out.
    """

    harness: str | None = None
    session_key: str | None = None
    turn: str | None = None
    quote_hash: str | None = None
    extractor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRecord:
    """One claim worth keeping, with all that is known about it."""

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
    sources: tuple[Source, ...] = ()
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    created_at: datetime
    updated_at: datetime
    superseded_by: str | None = None
    deleted_at: datetime | None = None
    # Counters live beside the row: reading a memory never rewrites it.
    access_count: int = 0
    last_accessed: datetime | None = None
    usefulness: float = DEFAULT_USEFULNESS
    embedder: str | None = None
    dimension: int | None = None

    @property
    def scope(self) -> Scope:
        """The scope the memory belongs to."""
        return Scope(self.user, self.agent, self.project)

    @property
    def source(self) -> Source | None:
        """The first place the memory was learned from."""
        return self.sources[0] if self.sources else None

    @property
    def is_live(self) -> bool:
        """Whether the memory is neither deleted nor superseded."""
        return self.deleted_at is None and self.superseded_by is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A memory as somebody proposes it, before the write path has decided anything."""

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
    source: Source | None = None
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    created_at: datetime | None = None
    about: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()
    supersedes: str | None = None
    on_similar: OnSimilar = "gate"

    @property
    def scope(self) -> Scope:
        """The scope the memory would belong to."""
        return Scope(self.user, self.agent, self.project)


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What became of one draft: the outcome, the memory it lives on in, and why."""

    outcome: Outcome
    memory: MemoryRecord | None
    reason: str = ""
    other_id: str | None = None
    cosine: float | None = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One change of one memory: who, why, what it was before and what it became."""

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


@dataclass(frozen=True, slots=True)
class Parts:
    """Every number behind a score, to six decimals."""

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


@dataclass(frozen=True, slots=True)
class Recalled:
    """A memory that recall found, with its score and, on request, the parts of it."""

    memory: MemoryRecord
    score: float
    parts: Parts | None = None

    @property
    def id(self) -> str:
        """The memory's id."""
        return self.memory.id

    @property
    def content(self) -> str:
        """The memory's text."""
        return self.memory.content


@dataclass(frozen=True, slots=True)
class Entity:
    """Something memories are about: a file, an identifier, a tag, a person, a project."""

    kind: str
    name: str
    memory_count: int = 0


@dataclass(frozen=True, slots=True)
class EntityView:
    """An entity with its aspects, each with the ids of its memories, and what it depends on."""

    entity: Entity
    aspects: dict[str, tuple[str, ...]] = field(default_factory=dict)
    constraints: tuple[str, ...] = ()
    depends_on: tuple[Entity, ...] = ()


# -- sessions -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Listing:
    """Which memories to list, newest first; `after` continues where a page ended."""

    scope: Scope
    everywhere: bool = False
    kind: str | None = None
    tag: str | None = None
    include_gone: bool = False
    after: str | None = None
    limit: int = 100
    provenance: str | None = None
    trust: str | None = None
    # live, superseded or forgotten; and of exactly this project, of none when it is empty.
    state: str | None = None
    of_project: str | None = None


@dataclass(frozen=True, slots=True)
class EmbedderInfo:
    """An embedder the store knows: its name, dimension and how to open it again."""

    name: str
    dimension: int
    spec: str


@dataclass(frozen=True, slots=True)
class EmbeddingState:
    """How far the vectors of one embedder have come, over all memories, whatever their state."""

    embedded_count: int
    memory_count: int

    @property
    def is_complete(self) -> bool:
        """Whether every memory has its vector; one that an undo restores has it at once."""
        return self.embedded_count >= self.memory_count
