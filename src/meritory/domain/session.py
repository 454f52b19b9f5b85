"""Sessions: turns, candidates, injections, ratings, verdicts and labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, get_args

from meritory.domain.memory import Entity, Provenance, Scope

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float32]

Role = Literal["user", "assistant", "edit", "tool", "result", "system"]
CandidateSource = Literal["effective", "predictor", "both", "exploration", "fts_only"]
# How a rating arrived, the strongest channel first: one rating per turn and memory counts.
Channel = Literal["program", "trailer", "tool", "transcript", "field"]

ROLES: tuple[str, ...] = get_args(Role)
CHANNELS: tuple[str, ...] = get_args(Channel)


@dataclass(frozen=True, slots=True)
class Turn:
    """One entry of a transcript.

    `user` is text that the person typed, `assistant` a reply of the agent, `edit` text that it
    wrote into files, `tool` a call that it made, `result` the result of a call, `system` the rest.
    """

    role: Role
    text: str
    # The files in the path arguments of a call.
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JudgedMemory:
    """A memory as a judge sees it: without its id, scores and source."""

    text: str
    was_shown: bool
    provenance: Provenance = "user_stated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a judge says about a finished session; `relevance` follows the order of the memories."""

    # How well memory supported the session, 0..1; None if the judge cannot say.
    score: float | None
    confidence: float
    # 0..1, below 0 for a harmful memory, None for one that was not judged.
    relevance: tuple[float | None, ...]
    # Indices of memories that the user had to explain again.
    missing: tuple[int, ...] = ()
    missing_topics: tuple[str, ...] = ()
    novel_context_count: int = 0
    reasoning: str = ""
    raw: str = ""
    judge: str = "rules"


class Candidate(NamedTuple):
    """A memory that was ranked in a session, with every number of the ranking.

    A tuple, because every start makes about 150 of them.
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
    # The probability of its position in the randomised order, for audits.
    propensity: float = 1.0
    features: tuple[float, ...] = ()
    feature_version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionMemory:
    """A candidate with its use, ratings and label in the session."""

    memory_id: str
    candidate: Candidate
    handle: str | None = None
    # The first injection that showed it, and whether it is still in the agent's context.
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


class ModelRows(Protocol):
    """Encoded models inside a store, by user and version."""

    def versions(self, user: str) -> list[int]:
        """Return the versions, latest first."""

    def digest(self, user: str, version: int) -> str | None:
        """Return the SHA-256 of a model in hexadecimal digits; None without one."""

    def content(self, user: str, version: int) -> bytes | None:
        """Return a model; None without one."""

    def put(self, user: str, version: int, content: bytes) -> None:
        """Store a model in place of the one with its version."""

    def drop(self, user: str, version: int) -> None:
        """Remove a model if it exists."""


SessionState = Literal["open", "ended", "finished"]
InjectionKind = Literal["start", "prompt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """One run of an agent."""

    user: str
    key: str
    started_at: datetime
    agent: str | None = None
    project: str | None = None
    harness: str | None = None
    cwd: str | None = None
    state: SessionState = "open"
    # The text that the ranking is based on, and whether it was given or only inferred.
    context: str = ""
    has_prompt: bool = False
    embedder: str | None = None
    context_vector: FloatArray | None = None
    # Since the previous session ended or, if it never ended, began.
    gap_hours: float | None = None
    alpha: float = 1.0
    # The model that scored it, None if there was none or it did not answer.
    scorer: str | None = None
    model_version: int | None = None
    ended_at: datetime | None = None
    prompt_count: int = 0
    injection_count: int = 0
    handle_count: int = 0
    # Whether the agent was shown how to rate memories.
    is_explained: bool = False
    summary: str = ""

    @property
    def scope(self) -> Scope:
        """Return the scope whose memories the session may see."""
        return Scope(self.user, self.agent, self.project)


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """One block of memories for the agent; `memories` pairs handles with ids.

    One that was delivered is read without its memories, which have rows of their own.
    """

    number: int
    kind: InjectionKind
    turn: int
    code: str
    at: datetime
    token_count: int
    memories: tuple[tuple[str, str], ...] = ()
    is_explained: bool = False
    # Whether the agent has got it: without that none of its memories counts as shown.
    is_delivered: bool = True


# A label within this distance of 0 means no effect: neither helped nor did harm.
NO_EFFECT_LABEL = 0.15


class ShownRow(NamedTuple):
    """A memory that a session was shown, without the numbers of its ranking."""

    memory_id: str
    handle: str
    # The first injection that showed it, and whether it is still in the agent's context.
    injection: int
    in_context: bool
    is_harmful: bool
    source: str
    rank: int


@dataclass(frozen=True, slots=True)
class Rating:
    """The usefulness of one memory in one turn, rated by the agent or a program, -1..1."""

    memory_id: str
    turn: int
    channel: Channel
    score: float
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionScore:
    """The verdict on a whole session; `excluded` says why it does not count."""

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
    """The verdict on one candidate."""

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
    """An entry of a timeline."""

    at: datetime
    category: str
    name: str
    session_key: str | None = None
    memory_id: str | None = None
    request_id: str | None = None
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Spending:
    """One call of a language model and its cost."""

    at: datetime
    purpose: str
    model: str
    input_tokens: int
    output_tokens: int
    cost: float


@dataclass(frozen=True, slots=True)
class Proof:
    """The evidence of one session for a memory: the rating that counts, and the label."""

    session_key: str
    at: datetime
    agent_score: float | None
    label: float
    # Whether a program reported the usefulness.
    is_known: bool = False


# The result of the predictor in a session; a session that is not judged has none.
SessionOutcome = Literal["win", "loss", "tie", "excluded"]
OUTCOMES: tuple[SessionOutcome, ...] = get_args(SessionOutcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionQuery:
    """A page of sessions, latest first; `before` is the last key of the page before."""

    project: str | None = None
    outcome: SessionOutcome | None = None
    since: datetime | None = None
    until: datetime | None = None
    before: str | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """A session and the result of the predictor in it."""

    session: SessionRecord
    outcome: SessionOutcome | None
    margin: float | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class MemoryDelivery:
    """A session that a memory was shown in, and its label there."""

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
    """The entities with the most memories, and their connections.

    An edge is two positions in `nodes` and the number of memories about both. In each pair of
    `needs` the first depends on the second.
    """

    nodes: tuple[Entity, ...]
    edges: tuple[tuple[int, int, int], ...]
    needs: tuple[tuple[int, int], ...]
