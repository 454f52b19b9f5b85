"""The contract of sessions: what was served, what was shown, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from meritory.rank.history import Past
from meritory.types import Candidate, Channel, Scope, SessionMemory, Turn

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


class SessionVerbs(Protocol):
    """What a transaction can do with sessions; NotFound for one that was never started."""

    def open_session(self, session: SessionRecord) -> bool:
        """Stores a new session; False, and nothing changed, when it is there already."""

    def session_of(self, user: str, key: str) -> SessionRecord:
        """The session as this transaction sees it."""

    def update_session(self, session: SessionRecord) -> None:
        """Replaces what may change in a session: context, alpha, state, times and counts."""

    def put_candidates(self, user: str, key: str, candidates: Sequence[Candidate]) -> None:
        """Records a ranking in place of an earlier one.

        Hits, ratings, labels, what was shown and what chance chose always stay.
        """

    def add_candidates(self, user: str, key: str, candidates: Sequence[Candidate]) -> None:
        """Records those candidates that are not recorded yet, and leaves the others alone."""

    def put_injection(self, user: str, key: str, injection: Injection) -> None:
        """Records what was shown, and counts it as usage of the memories."""

    def add_hits(self, user: str, key: str, memory_ids: Sequence[str]) -> None:
        """Counts full-text hits; one outside the candidates is added as `fts_only`."""

    def add_ratings(self, user: str, key: str, ratings: Sequence[Rating]) -> None:
        """Appends ratings and derives mean and count: one per turn, the strongest channel's."""

    def mark_harmful(self, user: str, key: str, memory_ids: Sequence[str]) -> None:
        """Keeps memories out of the further injections of this session."""

    def restore_context(self, user: str, key: str, memory_ids: Sequence[str]) -> None:
        """Notes that the agent has these before its eyes again."""

    def clear_context(self, user: str, key: str) -> None:
        """Notes that the agent forgot what it was shown: it may be shown again."""

    def put_transcript(self, user: str, key: str, turns: Sequence[Turn]) -> None:
        """Stores how a session went."""

    def put_digest(self, user: str, key: str, data: bytes) -> None:
        """Store the encoded digest of a session in place of an earlier one."""

    def put_used(self, user: str, key: str, used: Mapping[str, float]) -> None:
        """Stores what a program knows to have helped."""

    def put_verdict(
        self, user: str, key: str, score: SessionScore, judged: Sequence[Judged]
    ) -> None:
        """Stores what the judge said; a second verdict replaces the first."""

    def put_labels(
        self, user: str, key: str, labels: Sequence[Labelled], uses: Mapping[str, float]
    ) -> None:
        """Stores labels, and by memory id how much each helped, in place of earlier ones.

        How many of the memories shown were of use is noted beside the verdict.
        """

    def set_usefulness(self, user: str, usefulness: Mapping[str, float]) -> None:
        """Sets how useful memories have proved."""

    def log_events(self, user: str, events: Sequence[Event]) -> None:
        """Adds to the timeline; the oldest entries go when there are too many."""

    def add_spending(self, user: str, spending: Spending) -> None:
        """Notes what a language model cost."""


class SessionReads(Protocol):
    """What can be asked about sessions."""

    def session(self, user: str, key: str) -> SessionRecord:
        """One session; NotFound otherwise."""

    def session_of_code(self, user: str, code: str) -> SessionRecord:
        """The session that an injection with this code was made for; NotFound otherwise."""

    def sessions(
        self, user: str, limit: int, *, project: str | None = None, before: str | None = None
    ) -> list[SessionRecord]:
        """Sessions, latest first; `before` continues behind the last key of a page."""

    def previous_session(self, scope: Scope, before: datetime) -> SessionRecord | None:
        """The session of exactly this scope with a summary that began last before a moment."""

    def session_memories(self, user: str, key: str) -> list[SessionMemory]:
        """Every candidate of a session by rank, with what happened to it."""

    def vectors(
        self, user: str, embedder: str, memory_ids: Sequence[str]
    ) -> dict[str, NDArray[np.float32]]:
        """The stored vectors of memories, whatever their state; one without is missing."""

    def shown(self, user: str, key: str) -> list[ShownRow]:
        """What a session was shown, by handle."""

    def injections(self, user: str, key: str) -> list[Injection]:
        """All injections of a session in order, without their memories."""

    def ratings(self, user: str, key: str) -> list[Rating]:
        """Every rating of a session, oldest first."""

    def transcript(self, user: str, key: str) -> tuple[Turn, ...]:
        """How a session went; empty when it was not told."""

    def digest(self, user: str, key: str) -> bytes | None:
        """Return the encoded digest of a session; None if there is none."""

    def used(self, user: str, key: str) -> dict[str, float] | None:
        """What a program said to have helped; None when it said nothing."""

    def sessions_shown(self, user: str, memory_id: str, since: datetime) -> list[str]:
        """Keys of sessions that are over and were first shown a memory since a moment."""

    def session_score(self, user: str, key: str) -> SessionScore | None:
        """What the judge said; None before it did."""

    def past(self, scope: Scope, embedder: str | None) -> tuple[Past, int]:
        """Which memories helped the user in which sessions, and the number of this project."""

    def proofs(self, user: str, memory_ids: Sequence[str]) -> dict[str, list[Proof]]:
        """By memory what the latest labelled sessions that were shown it say, oldest first."""

    def events(
        self, user: str, *, session_key: str | None = None, memory_id: str | None = None
    ) -> list[Event]:
        """The timeline of a session or a memory, oldest first."""

    def request_events(self, user: str, request_id: str) -> list[Event]:
        """The timeline of one request, oldest first."""

    def spending(self, user: str, since: datetime) -> list[Spending]:
        """Calls of language models since a moment, oldest first."""

    def session_totals(self, user: str) -> dict[str, int]:
        """Counts of sessions by state, of judged ones, of excluded ones and of ratings."""

    def harnesses(self, user: str) -> list[tuple[str, int, datetime]]:
        """Every harness that ran sessions: its name, how many, and when the last began."""

    def judged_counts(self, user: str) -> tuple[int, int]:
        """How many sessions were judged and count, and how many were left out; cheap to ask."""

    def secret(self) -> bytes:
        """The store's own secret, from which codes are made."""
