"""Feedback: reports on the work, ratings of shown memories, and their statistics."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from meritory.domain.errors import InputError
from meritory.domain.feedback import FeedbackEvent
from meritory.domain.memory import MemoryRecord
from meritory.engine.feedback import capture
from meritory.engine.feedback.reading import FeedbackReport
from meritory.engine.feedback.summary import Summary
from meritory.engine.memories.validate import checked_name
from meritory.engine.sessions import ratings
from meritory.engine.sessions.context import find_known_session
from meritory.rank.feedback import Pair, Risk
from meritory.server.routes.hooks import RatingScores, RatingsOut
from meritory.server.table import Call, Limit, ReplyShape, Results, Route, Scoped, UserQuery

# A report is stored even if these fields are invalid: `issues` names the errors.
Loose = Annotated[Any, Meta(description="`issues` names an invalid value")]
Text = str | None

# -- requests ---------------------------------------------------------------------------------


class FeedbackBody(Scoped, kw_only=True):
    """The fields of a report."""

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
        """Return the fields that a report fills in."""
        names = (
            name for name in FeedbackBody.__struct_fields__ if name not in Scoped.__struct_fields__
        )
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class Feedback(FeedbackBody, kw_only=True):
    """A thumbs up or down with `signal`, or ratings of the memories that a session showed."""

    signal: Text = None
    session_key: Text = None
    ratings: RatingScores | None = None
    # The code of the block of notes that is rated.
    injection: Text = None

    def __post_init__(self) -> None:
        if (self.signal is None) == (self.ratings is None):
            raise InputError(
                "feedback is either a `signal` or `ratings`",
                hint='such as {"signal": "down", "context": "..."}',
            )
        if self.ratings is not None and (self.session_key is None or self.fields()):
            raise InputError("ratings need a `session_key` and no fields of a report")


class Completion(FeedbackBody, kw_only=True):
    """The fields that a report lacked."""

    signal: Text = None
    session_key: Text = None


class EventsQuery(UserQuery, kw_only=True):
    """A page of reports, latest first; `before` is the last id of the previous page."""

    project: str | None = None
    signal: str | None = None
    status: Literal["promoted", "clarification_required", "rejected"] | None = None
    domain: str | None = None
    session_key: str | None = None
    memory_id: str | None = None
    before: str | None = None
    limit: Limit = 50


# The number of days to look back; without it, all time.
RiskQuery = UserQuery.plus(days=(Annotated[int, Meta(ge=1, le=36_500)] | None, None))


# -- replies ----------------------------------------------------------------------------------


class FeedbackOut(ReplyShape, record=FeedbackEvent, without="user", kw_only=True):
    """A stored report, without its user: the caller knows the user."""

    status: str
    origin: str


class CapturedOut(ReplyShape, record=capture.Captured, names="* missing", kw_only=True):
    """The result of a report, with the names of its missing fields."""

    status: str
    event: FeedbackOut | None
    missing: tuple[str, ...]


class Events(msgspec.Struct):
    """A page of reports; `before` continues it."""

    results: list[FeedbackOut]
    before: str | None


class RiskOut(ReplyShape, record=Risk, names="id *"):
    """The failure rate of one tag, tool or domain, with the `id` FACET:NAME."""

    id: str
    facet: str
    level: str


class PairOut(ReplyShape, record=Pair, names="id=negative_id *"):
    """A prompt with a preferred and a rejected reply, under the `id` of the negative report."""


class ContestedOut(msgspec.Struct):
    """A memory with much evidence for and against it; the belief is rounded."""

    id: str
    memory: MemoryRecord
    support: float
    doubt: float
    usefulness: float


# -- handlers ---------------------------------------------------------------------------------


def report(call: Call) -> CapturedOut | RatingsOut:
    """Give a thumbs up or down on the work, or rate the memories that a session showed."""
    body: Feedback = call.body
    memory = call.memory()
    if body.ratings is None:
        request = _report(call, body)
        call.grant.require_report(memory, request.fields)
        return _captured(capture.capture(memory.services, memory.scope, request))
    key = str(checked_name("session_key", body.session_key))
    call.grant.require_session(memory.services, key)
    find_known_session(memory.services.store, memory.scope, key)
    services, user = memory.services, memory.scope.user
    return RatingsOut.of(ratings.rate(services, user, key, body.ratings, "tool", body.injection))


def complete(call: Call) -> CapturedOut:
    """Add missing fields to a report."""
    body: Completion = call.body
    memory = call.memory()
    request = _report(call, body)
    return _captured(capture.complete(memory.services, memory.scope, call.path["id"], request))


def _report(call: Call, body: Feedback | Completion) -> FeedbackReport:
    named = {} if body.session_key is None else {"session_key": body.session_key}
    return FeedbackReport(body.signal, {**body.fields(), **named}, call.request_id)


def _captured(result: capture.Captured) -> CapturedOut:
    event = None if result.event is None else FeedbackOut.of(result.event)
    return CapturedOut.of(result, event=event)


def list_reports(call: Call) -> Events:
    """List reports, latest first."""
    query: EventsQuery = call.query
    filters = {
        name: value for name, value in msgspec.structs.asdict(query).items() if name != "user"
    }
    page: list[FeedbackEvent] = call.user_memory().feedback_events(**filters)
    before = page[-1].id if len(page) == query.limit else None
    return Events([FeedbackOut.of(event) for event in page], before)


def show_report(call: Call) -> FeedbackOut:
    """Show one report."""
    return FeedbackOut.of(call.user_memory().feedback_event(call.path["id"]))


def summary(call: Call) -> Summary:
    """Show totals of all reports, with approval and its trend."""
    return call.user_memory().feedback_summary()


def risk(call: Call) -> Results[RiskOut]:
    """Show which tags, tools and domains fail more often than the rest."""
    risks = call.user_memory().feedback_risk(call.query.days)
    return Results([RiskOut.of(each, id=f"{each.facet}:{each.name}") for each in risks])


def pairs(call: Call) -> Results[PairOut]:
    """Show pairs of good and bad replies, for preference training."""
    return Results([PairOut.of(pair) for pair in call.user_memory().feedback_pairs()])


def contested(call: Call) -> Results[ContestedOut]:
    """Show memories with much evidence for and against them."""
    return Results(
        [
            ContestedOut(
                each.memory.id,
                each.memory,
                round(each.belief.support, 3),
                round(each.belief.doubt, 3),
                round(each.belief.usefulness, 6),
            )
            for each in call.user_memory().contested()
        ]
    )


_ONE = "/api/feedback/{id}"
ROUTES = (
    Route("POST", "/api/feedback", report, "hooks", "scope", body=Feedback),
    Route("GET", "/api/feedback", list_reports, "read", "user", query=EventsQuery),
    Route("GET", "/api/feedback/summary", summary, "read", "user", query=UserQuery),
    Route("GET", "/api/feedback/risk", risk, "read", "user", query=RiskQuery),
    Route("GET", "/api/feedback/pairs", pairs, "read", "user", query=UserQuery),
    Route("GET", "/api/feedback/contested", contested, "read", "user", query=UserQuery),
    Route("GET", _ONE, show_report, "read", "user", query=UserQuery),
    Route("POST", f"{_ONE}/complete", complete, "hooks", "user", body=Completion),
)
