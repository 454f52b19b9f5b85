"""The contract of feedback: reports as they came in, the lessons they became, and beliefs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

from meritory.rank.belief import Belief, Witness
from meritory.rank.feedback.risk import Tally
from meritory.types import MemoryRecord, Origin, Scope

Status = Literal["promoted", "clarification_required", "rejected"]
TEXTS = (
    *("context", "what_went_wrong", "what_to_change", "what_worked", "reasoning"),
    *("visual_evidence", "skill"),
)


@dataclass(frozen=True, slots=True)
class Issue:
    """Something about a report that was not as it should be, and where."""

    field: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackEvent:
    """One report, as it is kept: secrets are out of it and long texts are cut."""

    id: str
    at: datetime
    # As it was said, and 1 for up, -1 for down, 0 for what is neither.
    signal: str
    polarity: int
    status: Status
    reason: str = ""
    user: str
    project: str | None = None
    agent: str | None = None
    session_key: str | None = None
    origin: Origin = "user"
    context: str = ""
    what_went_wrong: str = ""
    what_to_change: str = ""
    what_worked: str = ""
    reasoning: str = ""
    visual_evidence: str = ""
    skill: str = ""
    tags: tuple[str, ...] = ()
    domain: str = "general"
    last_action: Mapping[str, str] | None = None
    # The scores and guardrails that were given, and the verdict on them.
    rubric: Mapping[str, Any] | None = None
    diagnosis: Mapping[str, Any] | None = None
    quality: float = 0.0
    issues: tuple[Issue, ...] = ()
    memory_ids: tuple[str, ...] = ()
    # The lesson it became or strengthened, and the how-manieth report of it this was.
    memory_id: str | None = None
    occurrence: int = 0
    completed_at: datetime | None = None

    @property
    def texts(self) -> dict[str, str]:
        """Every text that says something, by its field."""
        return {name: text for name in TEXTS if (text := getattr(self, name))}

    @property
    def scope(self) -> Scope:
        """The scope that its lesson belongs to."""
        return Scope(self.user, self.agent, self.project)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFacts:
    """What a report says to whoever learns rules from it."""

    event_id: str
    at: datetime
    session_key: str | None
    polarity: int
    texts: tuple[str, ...]
    tags: tuple[str, ...]
    domain: str
    last_action: Mapping[str, str] | None
    # The lesson it became, and how often that was reported by now.
    memory_id: str | None
    count: int
    origin: Origin = "user"


@dataclass(frozen=True, slots=True)
class FeedbackQuery:
    """Which reports are wanted, latest first; `before` is the last id of the page before."""

    polarity: int | None = None
    status: Status | None = None
    domain: str | None = None
    project: str | None = None
    session_key: str | None = None
    memory_id: str | None = None
    before: str | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True)
class FeedbackCount:
    """How many reports of one kind there are."""

    domain: str
    polarity: int
    status: Status
    count: int
    last_at: datetime


@dataclass(frozen=True, slots=True)
class Testimony:
    """One report's word on one memory's claim, -1 against it to 1 for it."""

    at: datetime
    witness: Witness
    value: float
    session_key: str | None = None


@dataclass(frozen=True, slots=True)
class Lesson:
    """A memory that was made from reports, and how often it was reported."""

    memory_id: str
    polarity: int
    report_count: int
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True, slots=True)
class Contested:
    """A memory with much to be said for its claim and much against it."""

    memory: MemoryRecord
    belief: Belief


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

    def feedback_tallies(self, user: str, since: datetime | None) -> list[Tally]:
        """Positive and negative reports by tag, tool and domain."""

    def testimony(self, user: str, memory_ids: Sequence[str]) -> dict[str, list[Testimony]]:
        """The latest words of reports on memories, by memory."""

    def lessons(self, user: str, memory_ids: Sequence[str]) -> dict[str, Lesson]:
        """By memory how often it was reported; only for those that reports made."""

    def contested(self, user: str, limit: int) -> list[Contested]:
        """Live memories whose claim is contested, the newest first."""
