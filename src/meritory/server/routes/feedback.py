"""Feedback: thumbs with what was good or bad, ratings of what was shown, and their sums."""

from __future__ import annotations

import contextlib

from meritory.api.memory import Memory
from meritory.domain.errors import NotFound
from meritory.engine.feedback import capture as capturing
from meritory.engine.feedback.reading import FeedbackReport
from meritory.engine.memories.validate import checked_name
from meritory.engine.sessions import ratings
from meritory.engine.sessions.context import known_session
from meritory.server.schemas import feedback as wire
from meritory.server.schemas.sessions import RatingsOut, UserQuery
from meritory.server.scoped_memory import demand_report, demand_session
from meritory.server.table import Call, Route


def report(call: Call) -> wire.CapturedOut | RatingsOut:
    """Keeps a report, or takes ratings."""
    body: wire.Feedback = call.body
    if body.ratings is not None:
        return _rated(call, body)
    memory = call.memory()
    told = FeedbackReport(body.signal, _fields(body, body.session_key), call.request_id)
    demand_report(memory, told.fields)
    return wire.CapturedOut.of(capturing.capture(memory.services, memory.scope, told))


def _rated(call: Call, body: wire.Feedback) -> RatingsOut:
    """Ratings of what a session was shown, from the agent's tool."""
    memory, key = call.memory(), str(checked_name("session_key", body.session_key))
    demand_session(memory, key)
    with contextlib.suppress(NotFound):
        known_session(memory.services, memory.scope, key)
    request = ratings.RatingCall(memory.scope.user, key, body.ratings, "tool", body.injection)
    return RatingsOut.of(ratings.rate(memory.services, request))


def complete(call: Call) -> wire.CapturedOut:
    """Adds to a report what it lacked."""
    body: wire.Completion = call.body
    memory = call.memory()
    told = FeedbackReport(body.signal, _fields(body, body.session_key), call.request_id)
    found = capturing.complete(memory.services, memory.scope, call.path["id"], told)
    return wire.CapturedOut.of(found)


def _fields(body: wire.FeedbackBody, session_key: str | None) -> dict[str, object]:
    found = body.fields()
    return found if session_key is None else {**found, "session_key": session_key}


def listing(call: Call) -> wire.Events:
    """A page of reports, latest first."""
    asked: wire.EventsQuery = call.query
    found = _memory(call).feedback_events(
        asked.limit,
        signal=asked.signal,
        status=asked.status,
        before=asked.before,
        domain=asked.domain,
        project=asked.project,
        session_key=asked.session_key,
        memory_id=asked.memory_id,
    )
    more = found[-1].id if len(found) == asked.limit else None
    return wire.Events([wire.FeedbackOut.of(one) for one in found], more)


def show(call: Call) -> wire.FeedbackOut:
    """One report."""
    return wire.FeedbackOut.of(_memory(call).feedback_event(call.path["id"]))


def summary(call: Call) -> wire.SummaryOut:
    """All reports in numbers."""
    return wire.SummaryOut.of(_memory(call).feedback_summary())


def risk(call: Call) -> wire.Risks:
    """What fails more often than the rest."""
    return wire.Risks(
        [wire.RiskOut.of(one) for one in _memory(call).feedback_risk(call.query.days)]
    )


def pairs(call: Call) -> wire.Pairs:
    """Pairs for preference training."""
    return wire.Pairs([wire.PairOut.of(one) for one in _memory(call).feedback_pairs()])


def contested(call: Call) -> wire.ContestedList:
    """Memories for a person to review."""
    return wire.ContestedList([wire.ContestedOut.of(one) for one in _memory(call).contested()])


def _memory(call: Call) -> Memory:
    return call.view(call.query.user)


ROUTES = (
    Route(
        method="POST",
        path="/api/feedback",
        handler=report,
        access="hooks",
        reach="scope",
        summary="Give a thumbs up or down on the work, or rate what a session was shown.",
        body=wire.Feedback,
        reply=(wire.CapturedOut, RatingsOut),
    ),
    Route(
        method="GET",
        path="/api/feedback",
        handler=listing,
        access="read",
        reach="user",
        summary="List reports, latest first.",
        query=wire.EventsQuery,
        reply=wire.Events,
    ),
    Route(
        method="GET",
        path="/api/feedback/summary",
        handler=summary,
        access="read",
        reach="user",
        summary="Show all reports in numbers, with approval and its trend.",
        query=UserQuery,
        reply=wire.SummaryOut,
    ),
    Route(
        method="GET",
        path="/api/feedback/risk",
        handler=risk,
        access="read",
        reach="user",
        summary="Show which tags, tools and domains fail more often than the rest.",
        query=wire.RiskQuery,
        reply=wire.Risks,
    ),
    Route(
        method="GET",
        path="/api/feedback/pairs",
        handler=pairs,
        access="read",
        reach="user",
        summary="Show pairs of what to do and what not to do, for preference training.",
        query=UserQuery,
        reply=wire.Pairs,
    ),
    Route(
        method="GET",
        path="/api/feedback/contested",
        handler=contested,
        access="read",
        reach="user",
        summary="Show memories with much for and much against them.",
        query=UserQuery,
        reply=wire.ContestedList,
    ),
    Route(
        method="GET",
        path="/api/feedback/{id}",
        handler=show,
        access="read",
        reach="user",
        summary="Show one report.",
        query=UserQuery,
        reply=wire.FeedbackOut,
    ),
    Route(
        method="POST",
        path="/api/feedback/{id}/complete",
        handler=complete,
        access="hooks",
        reach="user",
        summary="Add to a report what it lacked.",
        body=wire.Completion,
        reply=wire.CapturedOut,
    ),
)
