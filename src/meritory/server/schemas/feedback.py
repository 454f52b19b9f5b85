"""Feedback over the wire: what is reported, what became of it, and what it says together."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from meritory.domain.codec import moment_text
from meritory.domain.errors import InputError
from meritory.domain.feedback import Contested, FeedbackEvent
from meritory.engine.feedback.capture import Captured
from meritory.engine.feedback.summary import Summary
from meritory.rank.feedback import Pair
from meritory.rank.risk import Risk
from meritory.server.schemas.memories import MemoryOut
from meritory.server.schemas.sessions import Rated
from meritory.server.table import QueryParams, Scoped

# Whatever is wrong with these is told as an issue, and the report is kept all the same.
Loose = Annotated[Any, Meta(description="What cannot be read is named in `issues`")]
Text = str | None


class FeedbackBody(Scoped, kw_only=True):
    """What a report may say."""

    context: Text = None
    what_went_wrong: Text = None
    what_to_change: Text = None
    what_worked: Text = None
    reasoning: Text = None
    visual_evidence: Text = None
    skill: Text = None
    tags: Loose | None = None
    rubric_scores: Loose | None = None
    guardrails: Loose | None = None
    last_action: Loose | None = None
    memory_ids: Loose | None = None
    origin: Literal["user", "agent"] | None = None

    def fields(self) -> dict[str, Any]:
        """What was really said."""
        names = (
            name for name in FeedbackBody.__struct_fields__ if name not in Scoped.__struct_fields__
        )
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class Feedback(FeedbackBody, kw_only=True):
    """A thumbs up or down with `signal`, or ratings of what a session was shown."""

    signal: Text = None
    session_key: Text = None
    ratings: Rated | None = None
    # The code beside the notes that are rated.
    injection: Text = None

    def __post_init__(self) -> None:
        if (self.signal is None) == (self.ratings is None):
            raise InputError(
                "feedback is either a `signal` or `ratings`",
                hint='such as {"signal": "down", "context": "..."}',
            )
        if self.ratings is not None and (self.session_key is None or self.fields()):
            raise InputError("ratings need a `session_key` and nothing that a report says")


class Completion(FeedbackBody, kw_only=True):
    """What a report lacked."""

    signal: Text = None
    session_key: Text = None


class IssueOut(msgspec.Struct):
    """Something that was not as it should be, and where."""

    field: str
    message: str


class FeedbackQuestionOut(msgspec.Struct):
    """Something to ask the user, and the field that the answer goes into."""

    field: str
    question: str
    example: str


class FeedbackOut(msgspec.Struct, kw_only=True):
    """A report as it is kept."""

    id: str
    at: str
    signal: str
    polarity: int
    status: str
    reason: str
    project: str | None
    agent: str | None
    session_key: str | None
    origin: str
    context: str
    what_went_wrong: str
    what_to_change: str
    what_worked: str
    reasoning: str
    visual_evidence: str
    skill: str
    tags: list[str]
    domain: str
    last_action: dict[str, str] | None
    rubric: dict[str, Any] | None
    diagnosis: dict[str, Any] | None
    quality: float
    issues: list[IssueOut]
    memory_ids: list[str]
    memory_id: str | None
    occurrence: int
    completed_at: str | None

    @classmethod
    def of(cls, event: FeedbackEvent) -> FeedbackOut:
        """A report for the wire."""
        return msgspec.convert(event_plain(event), cls)


def event_plain(event: FeedbackEvent) -> dict[str, Any]:
    """A report as JSON has it."""
    completed = event.completed_at
    told = asdict(event) | {
        "at": moment_text(event.at),
        "completed_at": None if completed is None else moment_text(completed),
    }
    del told["user"]
    return told


class CapturedOut(msgspec.Struct, kw_only=True):
    """What became of a report."""

    accepted: bool
    status: str
    reason: str
    message: str
    event: FeedbackOut | None
    memory: MemoryOut | None
    issues: list[IssueOut]
    # What to ask, and the fields that are missing.
    questions: list[FeedbackQuestionOut]
    missing: list[str]

    @classmethod
    def of(cls, found: Captured) -> CapturedOut:
        """What became of a report, for the wire."""
        return cls(
            accepted=found.accepted,
            status=found.status,
            reason=found.reason,
            message=found.message,
            event=None if found.event is None else FeedbackOut.of(found.event),
            memory=None if found.memory is None else MemoryOut.of(found.memory),
            issues=[IssueOut(one.field, one.message) for one in found.issues],
            questions=[
                FeedbackQuestionOut(one.field, one.question, one.example) for one in found.questions
            ],
            missing=list(found.missing),
        )


class EventsQuery(QueryParams, kw_only=True):
    """Which reports to list, latest first; `before` is the last id of the page before."""

    user: str | None = None
    project: str | None = None
    signal: str | None = None
    status: Literal["promoted", "clarification_required", "rejected"] | None = None
    domain: str | None = None
    session_key: str | None = None
    memory_id: str | None = None
    before: str | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 50


class RiskQuery(QueryParams, kw_only=True):
    """Of how many days; of all time when left out."""

    user: str | None = None
    days: Annotated[int, Meta(ge=1, le=36_500)] | None = None


class Events(msgspec.Struct):
    """A page of reports; `before` continues it."""

    results: list[FeedbackOut]
    before: str | None


class ApprovalOut(msgspec.Struct):
    """The share of approval with its 95% interval."""

    positive: int
    negative: int
    rate: float | None
    low: float
    high: float


class ApprovalsOut(msgspec.Struct):
    """Approval of all reports, of the latest 20, of 7 and of 30 days, and where it is heading."""

    overall: ApprovalOut
    latest: ApprovalOut
    week: ApprovalOut
    month: ApprovalOut
    trend: str


class FeedbackDomainOut(msgspec.Struct):
    """The reports of one domain."""

    total: int
    positive: int
    negative: int


class SummaryOut(msgspec.Struct, kw_only=True):
    """All reports in numbers."""

    total: int
    positive: int
    negative: int
    accepted: int
    rejected: int
    clarification_required: int
    domains: dict[str, FeedbackDomainOut]
    approval: ApprovalsOut
    contested: int
    last_updated: str | None

    @classmethod
    def of(cls, found: Summary) -> SummaryOut:
        """A summary for the wire."""
        at = found.last_updated
        told = asdict(found) | {"last_updated": None if at is None else moment_text(at)}
        return msgspec.convert(told, cls)


class RiskOut(msgspec.Struct):
    """How often something fails, against the rate of all."""

    id: str
    facet: str
    name: str
    total: int
    negative: int
    rate: float
    low: float
    high: float
    base_rate: float
    level: str

    @classmethod
    def of(cls, found: Risk) -> RiskOut:
        """A risk for the wire."""
        return msgspec.convert(asdict(found) | {"id": f"{found.facet}:{found.name}"}, cls)


class Risks(msgspec.Struct):
    """What surely fails more often first."""

    results: list[RiskOut]


class PairOut(msgspec.Struct):
    """A prompt, the answer to prefer and the one to avoid."""

    id: str
    prompt: str
    chosen: str
    rejected: str
    negative_id: str
    positive_id: str | None
    overlap: float

    @classmethod
    def of(cls, found: Pair) -> PairOut:
        """A pair for the wire."""
        return msgspec.convert(asdict(found) | {"id": found.negative_id}, cls)


class Pairs(msgspec.Struct):
    """Pairs for preference training."""

    results: list[PairOut]


class ContestedOut(msgspec.Struct):
    """A memory with much for and much against it, in masses of evidence."""

    id: str
    memory: MemoryOut
    support: float
    doubt: float
    usefulness: float

    @classmethod
    def of(cls, found: Contested) -> ContestedOut:
        """A contested memory for the wire."""
        return cls(
            found.memory.id,
            MemoryOut.of(found.memory),
            round(found.belief.support, 3),
            round(found.belief.doubt, 3),
            round(found.belief.usefulness, 6),
        )


class ContestedList(msgspec.Struct):
    """Memories for a person to review."""

    results: list[ContestedOut]
