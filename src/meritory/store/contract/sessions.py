"""Sessions and the predictor: rankings, injections, ratings, labels, comparisons and training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from meritory.domain.memory import Scope
from meritory.domain.predictor import (
    Comparison,
    ComparisonQuery,
    EntitySlice,
    Rated,
    Slice,
    TaughtSession,
    TrainingRun,
)
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
from meritory.rank.influence import Margins
from meritory.rank.usage_history import UsedSessions


class SessionLookups(Protocol):
    """The reads that a store and a transaction share."""

    def session(self, user: str, key: str) -> SessionRecord:
        """Return one session; raise NotFound if it was never started."""

    def find_session(self, user: str, key: str) -> SessionRecord | None:
        """Return one session, None if it was never started."""


class SessionReads(SessionLookups, Protocol):
    """Reads of sessions and their records; NotFound for a session that was never started."""

    def session_of_code(self, user: str, code: str) -> SessionRecord:
        """Return the session of the injection with this code; raise NotFound otherwise."""

    def sessions(
        self, user: str, limit: int, *, project: str | None = None, before: str | None = None
    ) -> list[SessionRecord]:
        """Return sessions, latest first; `before` is the last key of the page before."""

    def previous_session(self, scope: Scope, before: datetime) -> SessionRecord | None:
        """Return the last session of exactly this scope with a summary that began before."""

    def session_memories(self, user: str, key: str) -> list[SessionMemory]:
        """Return every candidate of a session by rank."""

    def shown(self, user: str, key: str) -> list[ShownRow]:
        """Return the memories that a session was shown, by handle."""

    def injections(self, user: str, key: str) -> list[Injection]:
        """Return all injections of a session in order, without their memories."""

    def ratings(self, user: str, key: str) -> list[Rating]:
        """Return every rating of a session, oldest first."""

    def transcript(self, user: str, key: str) -> tuple[Turn, ...]:
        """Return the transcript of a session; empty if there is none."""

    def digest(self, user: str, key: str) -> bytes | None:
        """Return the encoded digest of a session; None if there is none."""

    def used(self, user: str, key: str) -> dict[str, float] | None:
        """Return the usefulness that a program reported; None if it reported nothing."""

    def sessions_shown(self, user: str, memory_id: str, since: datetime) -> list[str]:
        """Return keys of ended sessions that were first shown a memory since a moment."""

    def session_score(self, user: str, key: str) -> SessionScore | None:
        """Return the verdict of the judge; None before there is one."""

    def past(self, scope: Scope, embedder: str | None) -> tuple[UsedSessions, int]:
        """Return which memories helped in which sessions, and the number of this project."""

    def proofs(self, user: str, memory_ids: Sequence[str]) -> dict[str, list[Proof]]:
        """Return the evidence of the latest labelled sessions by memory, oldest first."""

    def judged_counts(self, user: str) -> tuple[int, int]:
        """Return how many judged sessions count, and how many do not; cached."""

    def events(
        self,
        user: str,
        *,
        session_key: str | None = None,
        memory_id: str | None = None,
        request_id: str | None = None,
    ) -> list[Event]:
        """Return the timeline of a session, a memory or a request, oldest first."""

    def spending(self, user: str, since: datetime) -> list[Spending]:
        """Return the calls of language models since a moment, oldest first."""

    def session_totals(self, user: str) -> dict[str, int]:
        """Return counts of sessions by state, of judged and excluded ones, and of ratings."""

    def harnesses(self, user: str) -> list[tuple[str, int, datetime]]:
        """Return every harness with its number of sessions and the start of the last one."""


class SessionWrites(SessionLookups, Protocol):
    """Changes of sessions; NotFound for a session that was never started."""

    def open_session(self, session: SessionRecord) -> bool:
        """Store a new session; return False and change nothing if it exists."""

    def update_session(self, session: SessionRecord) -> None:
        """Replace all fields of a session but its user and key."""

    def put_candidates(self, user: str, key: str, candidates: Sequence[Candidate]) -> None:
        """Store a ranking in place of an earlier one.

        Hits, ratings, labels, injections and explorations stay.
        """

    def add_candidates(self, user: str, key: str, candidates: Sequence[Candidate]) -> None:
        """Store the candidates that are not stored yet; leave the others unchanged."""

    def put_injection(self, user: str, key: str, injection: Injection) -> None:
        """Store an injection and count it as usage of its memories."""

    def add_usage(self, user: str, counts: Mapping[str, int], at: datetime) -> None:
        """Count injections of memories; this is not a change of the memory."""

    def add_hits(self, user: str, key: str, memory_ids: Sequence[str]) -> None:
        """Count full-text hits; add a memory outside the candidates as `fts_only`."""

    def add_ratings(self, user: str, key: str, ratings: Sequence[Rating]) -> None:
        """Store ratings and update mean and count: one per turn, the strongest channel's."""

    def mark_harmful(self, user: str, key: str, memory_ids: Sequence[str]) -> None:
        """Keep memories out of the further injections of this session."""

    def restore_context(self, user: str, key: str, memory_ids: Sequence[str]) -> None:
        """Record that these memories are in the agent's context again."""

    def clear_context(self, user: str, key: str) -> None:
        """Record that the agent's context is empty: every memory may be shown again."""

    def put_transcript(self, user: str, key: str, turns: Sequence[Turn]) -> None:
        """Store the transcript of a session."""

    def put_digest(self, user: str, key: str, data: bytes) -> None:
        """Store the encoded digest of a session in place of an earlier one."""

    def put_used(self, user: str, key: str, used: Mapping[str, float]) -> None:
        """Store the usefulness that a program reported."""

    def put_verdict(
        self, user: str, key: str, score: SessionScore, judged: Sequence[Judged]
    ) -> None:
        """Store the verdict of the judge in place of an earlier one."""

    def put_labels(
        self, user: str, key: str, labels: Sequence[Labelled], uses: Mapping[str, float]
    ) -> None:
        """Store labels and the gain of each memory that helped, in place of earlier ones.

        The verdict is updated with the number of injected memories that helped.
        """

    def set_usefulness(self, user: str, usefulness: Mapping[str, float]) -> None:
        """Set the usefulness of memories."""

    def log_events(self, user: str, events: Sequence[Event]) -> None:
        """Add to the timeline; drop the oldest entries above the limit."""

    def add_spending(self, user: str, spending: Spending) -> None:
        """Record the cost of a call of a language model."""


class PredictorReads(Protocol):
    """Reads of the predictor's records, also within a transaction."""

    def predictor_state(self, user: str) -> str | None:
        """Return the encoded state; None before it was set."""

    def comparisons(self, user: str, query: ComparisonQuery) -> list[Comparison]:
        """Return the comparisons that match, latest first."""

    def comparison(self, user: str, key: str) -> Comparison | None:
        """Return the comparison of one session; None before there is one."""

    def record(self, user: str, scorer: str, limit: int) -> Margins:
        """Return the gain of every alpha in the latest sessions that count, oldest first.

        Only sessions that this scorer served: another one proves nothing for it.
        """

    def slices(self, user: str, limit: int) -> list[Slice]:
        """Return the success rate of each project, those with the most sessions first."""

    def entity_slices(self, user: str, limit: int) -> list[EntitySlice]:
        """Return the success rate of each entity, those with the most sessions first."""

    def training_runs(self, user: str, limit: int) -> list[TrainingRun]:
        """Return the training runs, latest first."""

    def canary_count(self, user: str) -> int:
        """Return how many sessions are kept out of training."""

    def taught_sessions(self, user: str, feature_version: int, limit: int) -> list[TaughtSession]:
        """Return the latest judged sessions that count, oldest first."""

    def calibration(self, user: str, limit: int) -> list[Rated]:
        """Return the calibration sample with the ratings of people, latest first."""


class PredictorWrites(PredictorReads, Protocol):
    """Changes of the predictor's records."""

    def set_predictor_state(self, user: str, state: str) -> None:
        """Store the state in place of the former one."""

    def put_comparison(self, user: str, comparison: Comparison) -> None:
        """Store a comparison in place of an earlier one of its session."""

    def add_training_run(self, user: str, run: TrainingRun) -> None:
        """Add to the log of training runs."""

    def choose_canary(self, user: str, key: str, at: datetime, limit: int) -> None:
        """Keep a session out of training; above the limit retire the oldest one."""

    def drop_canary(self, user: str, key: str) -> None:
        """Remove a session that no longer counts from the canaries."""

    def offer_calibration(self, user: str, items: Sequence[Rated]) -> None:
        """Add memories to the calibration sample, once each."""

    def rate_calibration(self, user: str, rated: Rated) -> None:
        """Store the rating of a person; raise NotFound for a memory outside the sample."""
