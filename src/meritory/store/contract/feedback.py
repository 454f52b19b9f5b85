"""Feedback: reports, the lessons made from them, testimony and beliefs."""

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
from meritory.rank.feedback import RiskTally


class FeedbackReads(Protocol):
    """Reads of reports, lessons and beliefs."""

    def feedback_event(self, user: str, prefix: str) -> FeedbackEvent:
        """Return the report whose id starts with `prefix`.

        Raise NotFound for none, InputError for several.
        """

    def feedback_events(self, user: str, query: FeedbackQuery) -> list[FeedbackEvent]:
        """Return a page of reports, latest first."""

    def feedback_counts(self, user: str) -> list[FeedbackCount]:
        """Return the number of reports by domain, polarity and status."""

    def approvals(
        self, user: str, *, since: datetime | None = None, limit: int | None = None
    ) -> tuple[int, int]:
        """Return how many reports are positive and negative, among the latest `limit`."""

    def feedback_tallies(self, user: str, since: datetime | None) -> list[RiskTally]:
        """Return positive and negative reports by tag, tool and domain."""

    def lesson_for(self, scope: Scope, fingerprint: str) -> str | None:
        """Return the memory of a wording in exactly this scope."""

    def lessons(self, user: str, memory_ids: Sequence[str]) -> dict[str, Lesson]:
        """Return the lessons among these memories, by memory id."""

    def testimony(self, user: str, memory_ids: Sequence[str]) -> dict[str, list[Testimony]]:
        """Return the latest testimony of reports on memories, by memory id."""

    def contested(self, user: str, limit: int) -> list[Contested]:
        """Return live memories with a contested claim, newest first."""


class FeedbackWrites(Protocol):
    """Changes of reports, lessons and beliefs."""

    def add_feedback(self, event: FeedbackEvent) -> None:
        """Store a new report."""

    def replace_feedback(self, event: FeedbackEvent) -> None:
        """Replace the report with this id."""

    def put_wording(self, scope: Scope, fingerprint: str, memory_id: str) -> None:
        """Map a wording to a memory."""

    def count_report(self, user: str, memory_id: str, polarity: int, at: datetime) -> int:
        """Count one more report of a lesson and return the number of its reports."""

    def add_testimony(
        self, user: str, feedback_id: str, said: Mapping[str, Testimony]
    ) -> dict[str, list[Testimony]]:
        """Store the testimony of a report and return the latest testimony on each memory."""

    def put_beliefs(self, user: str, beliefs: Mapping[str, Belief]) -> None:
        """Store the beliefs in memories in place of the former ones."""
