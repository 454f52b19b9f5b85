"""The contract of feedback: reports as they came in, the lessons they became, and beliefs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from meritory.domain.feedback import (
    Belief,
    Contested,
    FeedbackCount,
    FeedbackEvent,
    FeedbackQuery,
    Lesson,
    Testimony,
)
from meritory.domain.memory import Scope
from meritory.rank.risk import RiskTally


class FeedbackVerbs(Protocol):
    """What a transaction can do with feedback."""

    def add_feedback(self, event: FeedbackEvent) -> None:
        """Keeps a new report."""

    def replace_feedback(self, event: FeedbackEvent) -> None:
        """Puts a report in the place of what it was before; its moment stays."""

    def put_wording(self, scope: Scope, fingerprint: str, memory_id: str) -> None:
        """Lets a wording stand for a memory from now on."""

    def count_report(self, user: str, memory_id: str, polarity: int, at: datetime) -> int:
        """Counts one more report of a lesson; returns how many there are."""

    def add_testimony(
        self, user: str, feedback_id: str, said: Mapping[str, Testimony]
    ) -> dict[str, list[Testimony]]:
        """Keeps a report's word on memories; returns the latest of all words on each of them."""

    def put_beliefs(self, user: str, beliefs: Mapping[str, Belief]) -> None:
        """Keeps beliefs in memories in place of the former ones."""


class FeedbackReads(Protocol):
    """What can be asked about feedback."""

    def feedback_event(self, user: str, prefix: str) -> FeedbackEvent:
        """The report whose id starts so; NotFound for none, InputError for several."""

    def lesson_for(self, scope: Scope, fingerprint: str) -> str | None:
        """The memory that a wording stands for in exactly this scope."""

    def feedback_events(self, user: str, query: FeedbackQuery) -> list[FeedbackEvent]:
        """A page of reports, latest first."""

    def feedback_counts(self, user: str) -> list[FeedbackCount]:
        """All reports, counted by domain, polarity and status."""

    def approvals(
        self, user: str, *, since: datetime | None = None, limit: int | None = None
    ) -> tuple[int, int]:
        """How many reports were positive and negative: since a moment, of the latest so many."""

    def feedback_tallies(self, user: str, since: datetime | None) -> list[RiskTally]:
        """Positive and negative reports by tag, tool and domain."""

    def testimony(self, user: str, memory_ids: Sequence[str]) -> dict[str, list[Testimony]]:
        """The latest words of reports on memories, by memory."""

    def lessons(self, user: str, memory_ids: Sequence[str]) -> dict[str, Lesson]:
        """By memory how often it was reported; only for those that reports made."""

    def contested(self, user: str, limit: int) -> list[Contested]:
        """Live memories whose claim is contested, the newest first."""
