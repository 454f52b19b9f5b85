"""The nouns of Meritory: frozen records that every layer shares."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple, Protocol, get_args

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

Role = Literal["user", "assistant", "edit", "tool", "result", "system"]
CandidateSource = Literal["effective", "predictor", "both", "exploration", "fts_only"]
# How a rating came in, the strongest road first: one rating per turn and memory counts.
Channel = Literal["program", "trailer", "tool", "transcript", "field"]

ROLES: tuple[str, ...] = get_args(Role)
CHANNELS: tuple[str, ...] = get_args(Channel)


@dataclass(frozen=True, slots=True)
class Turn:
    """One entry of a transcript: who acted, and what was said or done.

    `user` is what the person typed, `assistant` the agent's replies, `edit` what it wrote into
    files, `tool` the calls it made, `result` what came back to it, `system` everything else.
    """

    role: Role
    text: str
    # Files that a call names in its path arguments.
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Exhibit:
    """One memory as it is put before a judge, without its id, its scores or its source."""

    text: str
    was_shown: bool
    provenance: Provenance = "user_stated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a judge says about a finished session; `relevance` follows the order of the exhibits."""

    # How well memory carried the session on, 0..1; None when the judge cannot say.
    score: float | None
    confidence: float
    # 0..1, below 0 for one that did harm, None for one that was not judged.
    relevance: tuple[float | None, ...]
    # Places of exhibits that the user had to explain again.
    missing: tuple[int, ...] = ()
    missing_topics: tuple[str, ...] = ()
    novel_context_count: int = 0
    reasoning: str = ""
    raw: str = ""
    judge: str = "rules"


class Candidate(NamedTuple):
    """A memory that was considered in a session, with every number as it was served.

    A tuple, because some 150 of them are made at every start.
    """

    memory_id: str
    source: CandidateSource
    final_score: float
    rank: int
    # Which searches found it: effective, cosine, text, history, traversal, required.
    origins: tuple[str, ...] = ()
    effective_score: float | None = None
    composite_score: float | None = None
    predictor_score: float | None = None
    baseline_rank: int | None = None
    predictor_rank: int | None = None
    was_injected: bool = False
    # The probability with which chance put it where it is, for audit.
    propensity: float = 1.0
    features: tuple[float, ...] = ()
    feature_version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionMemory:
    """A candidate with what happened to it after it was served."""

    candidate: Candidate
    handle: str | None = None
    # The injection that showed it first, and whether the agent still has it before its eyes.
    injection: int | None = None
    in_context: bool = False
    is_harmful: bool = False
    relevance_score: float | None = None
    is_missing: bool = False
    fts_hit_count: int = 0
    agent_relevance_score: float | None = None
    agent_feedback_count: int = 0
    label: float | None = None
    label_parts: dict[str, float | str | None] = field(default_factory=dict)

    @property
    def memory_id(self) -> str:
        """The memory's id."""
        return self.candidate.memory_id


class ModelRows(Protocol):
    """Models that lie inside a store, each under its user and version; they are not looked into."""

    def versions(self, user: str) -> list[int]:
        """The versions there are, the latest first."""

    def digest(self, user: str, version: int) -> str | None:
        """The SHA-256 of a model in hexadecimal digits; None without one."""

    def content(self, user: str, version: int) -> bytes | None:
        """A model; None without one."""

    def put(self, user: str, version: int, content: bytes) -> None:
        """Keeps a model under its version, in the place of one that is there."""

    def drop(self, user: str, version: int) -> None:
        """Removes a model, if it is there."""
