"""The contract of sessions: what was served, what was shown, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from meritory.domain.memory import Scope
from meritory.domain.session import (
    Candidate,
    Event,
    Injection,
    Judged,
    Labelled,
    Proof,
    Rating,
    SessionMemory,
    SessionRecord,
    SessionScore,
    ShownRow,
    Spending,
    Turn,
)
from meritory.rank.usage_history import Past

if TYPE_CHECKING:
    from meritory.store.contract.store import Search


class SessionVerbs(Protocol):
    """What a transaction can do with sessions; NotFound for one that was never started."""

    def open_session(self, session: SessionRecord) -> bool:
        """Stores a new session; False, and nothing changed, when it is there already."""

    def session(self, user: str, key: str) -> SessionRecord:
        """One session as this transaction sees it; NotFound otherwise."""

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
        self,
        user: str,
        *,
        session_key: str | None = None,
        memory_id: str | None = None,
        request_id: str | None = None,
    ) -> list[Event]:
        """The timeline of a session, a memory or a request, oldest first."""

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


FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Gathering:
    """A search for a session's candidates: trusted memories only, from more than two sides.

    `rows` and `ids` are wanted besides what the searches find, as far as the scope may see them.
    """

    search: Search
    effective_limit: int
    rows: IntArray
    ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Gathered:
    """What a gathering found as parallel arrays, rows ascending; `by_` lists are best first."""

    rows: IntArray
    text: FloatArray
    # NaN without a vector; `centred` is what is left without what all memories share.
    cosine: FloatArray
    centred: FloatArray
    provenance: IntArray
    confidence: FloatArray
    demotion: IntArray
    # Unit vectors, zero where there is none.
    vectors: FloatArray
    by_effective: IntArray
    by_cosine: IntArray
    by_text: IntArray
    row_of_id: Mapping[str, int]


class Trait(NamedTuple):
    """What ranking needs to know of a memory; moments are days of the epoch."""

    id: str
    kind: str
    project: str | None
    importance: float
    pinned: bool
    # When it began to hold: `valid_from` or, without one, its creation.
    since_days: float
    created_days: float
    # The beginning of its text, which its title is read from.
    opening: str
    access_count: int
    usefulness: float
