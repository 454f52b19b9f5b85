"""The nouns of Meritory: frozen records that every layer shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from meritory.domain.memory import Entity, Provenance, Scope

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
class JudgedMemory:
    """One memory as it is put before a judge, without its id, its scores or its source."""

    text: str
    was_shown: bool
    provenance: Provenance = "user_stated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a judge says about a finished session; `relevance` follows the order of the memories."""

    # How well memory carried the session on, 0..1; None when the judge cannot say.
    score: float | None
    confidence: float
    # 0..1, below 0 for one that did harm, None for one that was not judged.
    relevance: tuple[float | None, ...]
    # Indices of memories that the user had to explain again.
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


FloatArray = NDArray[np.float32]
SessionState = Literal["open", "ended", "finished"]
InjectionKind = Literal["start", "prompt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """One run of an agent, as the store keeps it."""

    user: str
    key: str
    started_at: datetime
    agent: str | None = None
    project: str | None = None
    harness: str | None = None
    cwd: str | None = None
    state: SessionState = "open"
    # The text the ranking was made from, and whether somebody gave it or it was only inferred.
    context: str = ""
    has_prompt: bool = False
    embedder: str | None = None
    context_vector: FloatArray | None = None
    # Since the session before it ended or, where it never did, began.
    gap_hours: float | None = None
    alpha: float = 1.0
    # The model that scored it, None when there was none or it was silent.
    scorer: str | None = None
    model_version: int | None = None
    ended_at: datetime | None = None
    prompt_count: int = 0
    injection_count: int = 0
    handle_count: int = 0
    # Whether the rule for ratings was explained to the agent already.
    is_explained: bool = False
    summary: str = ""

    @property
    def scope(self) -> Scope:
        """Whose memories the session may see."""
        return Scope(self.user, self.agent, self.project)


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """One text that was put before the agent; `memories` pairs handles with memory ids."""

    number: int
    kind: InjectionKind
    turn: int
    code: str
    at: datetime
    token_count: int
    memories: tuple[tuple[str, str], ...] = ()
    is_explained: bool = False


class ShownRow(NamedTuple):
    """What a session was shown, as every prompt asks for it; nothing of how it was ranked."""

    memory_id: str
    handle: str
    # The injection that showed it first, and whether the agent still has it before its eyes.
    injection: int
    in_context: bool
    is_harmful: bool
    source: str
    rank: int


@dataclass(frozen=True, slots=True)
class Rating:
    """How useful the agent, or a program, found one memory in one turn, -1..1."""

    memory_id: str
    turn: int
    channel: Channel
    score: float
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionScore:
    """What the judge said about a session as a whole; `excluded` says why it does not count."""

    judge: str
    score: float | None
    confidence: float
    memories_recalled: int
    memories_used: int
    at: datetime
    novel_context_count: int = 0
    missing_topics: tuple[str, ...] = ()
    continuity_reasoning: str = ""
    raw: str = ""
    excluded: str | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """The judge's word on one candidate."""

    memory_id: str
    relevance_score: float | None
    is_missing: bool = False


@dataclass(frozen=True, slots=True)
class Labelled:
    """The label of one candidate with its parts."""

    memory_id: str
    label: float | None
    parts: Mapping[str, float | str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something worth seeing on a timeline."""

    at: datetime
    category: str
    name: str
    session_key: str | None = None
    memory_id: str | None = None
    request_id: str | None = None
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Spending:
    """One call of a language model and what it cost."""

    at: datetime
    purpose: str
    model: str
    input_tokens: int
    output_tokens: int
    cost: float


@dataclass(frozen=True, slots=True)
class Proof:
    """What one session says about one memory's worth: the rating as it counts, and the label."""

    session_key: str
    at: datetime
    agent_score: float | None
    label: float
    # Whether a program that knows what helped made the label.
    is_known: bool = False


# How the predictor did in a session; one that was not judged yet has no outcome.
SessionOutcome = Literal["win", "loss", "tie", "excluded"]
OUTCOMES: tuple[SessionOutcome, ...] = get_args(SessionOutcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionQuery:
    """Which sessions are wanted, latest first; `before` is the last key of the page before."""

    project: str | None = None
    outcome: SessionOutcome | None = None
    since: datetime | None = None
    until: datetime | None = None
    before: str | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """A session and how the predictor did in it."""

    session: SessionRecord
    outcome: SessionOutcome | None
    margin: float | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class MemoryShowing:
    """A session that a memory was put before, and what came of it there."""

    session_key: str
    project: str | None
    started_at: datetime
    handle: str | None
    source: str
    rank: int
    label: float | None
    outcome: SessionOutcome | None


@dataclass(frozen=True, slots=True)
class EntityGraph:
    """The entities with the most memories, and what ties them.

    An edge is a pair of positions in `nodes` with how many memories are about both; `needs` are
    pairs of which the first depends on the second.
    """

    nodes: tuple[Entity, ...]
    edges: tuple[tuple[int, int, int], ...]
    needs: tuple[tuple[int, int], ...]
