"""Sessions as they can be read: what was served, what came of it, and everything in order."""

from __future__ import annotations

from meritory.domain.codec import parse_moment
from meritory.domain.errors import NotFound
from meritory.domain.session import SessionQuery
from meritory.engine.observe.timeline import timeline
from meritory.rank.features import FEATURES
from meritory.server.schemas import sessions as wire
from meritory.server.table import Call, Route


def listing(call: Call) -> wire.SessionsOut:
    """A page of sessions, latest first."""
    query: wire.SessionsQuery = call.query
    memory = call.view(query.user)
    store, user = memory.services.store, memory.scope.user
    found = store.session_page(
        user,
        SessionQuery(
            project=query.project,
            outcome=query.outcome,
            since=None if query.since is None else parse_moment(query.since, "since"),
            until=None if query.until is None else parse_moment(query.until, "until"),
            before=query.before,
            limit=query.limit,
        ),
    )
    more = found[-1].session.key if len(found) == query.limit else None
    shown = [wire.SessionOut.of(one, store.session_score(user, one.session.key)) for one in found]
    return wire.SessionsOut(shown, more)


def show(call: Call) -> wire.SessionOut:
    """One session with its verdict."""
    memory = call.view(call.query.user)
    store, user, key = memory.services.store, memory.scope.user, call.path["key"]
    return wire.SessionOut.of(store.session_summary(user, key), store.session_score(user, key))


def candidates(call: Call) -> wire.CandidatesOut:
    """Every candidate of a session with every number."""
    memory = call.view(call.query.user)
    store, user, key = memory.services.store, memory.scope.user, call.path["key"]
    store.session(user, key)
    return wire.CandidatesOut(
        [wire.candidate_out(one, FEATURES) for one in store.session_memories(user, key)]
    )


def events(call: Call) -> wire.Timeline:
    """All that happened to a session, a memory or in a request, in order."""
    memory = call.view(call.query.user)
    found = timeline(memory.services, memory.scope.user, call.path["id"])
    if not found:
        raise NotFound(f"nothing is known about {call.path['id'][:80]!r}")
    return wire.Timeline(call.path["id"], [wire.EventOut.of(event) for event in found])


ROUTES = (
    Route(
        method="GET",
        path="/api/sessions",
        handler=listing,
        access="read",
        reach="user",
        summary="List sessions, latest first.",
        query=wire.SessionsQuery,
        reply=wire.SessionsOut,
    ),
    Route(
        method="GET",
        path="/api/sessions/{key:path}/memories",
        handler=candidates,
        access="read",
        reach="user",
        summary="Show every candidate of a session with every number as served.",
        query=wire.UserQuery,
        reply=wire.CandidatesOut,
    ),
    Route(
        method="GET",
        path="/api/sessions/{key:path}",
        handler=show,
        access="read",
        reach="user",
        summary="Show a session with its verdict.",
        query=wire.UserQuery,
        reply=wire.SessionOut,
    ),
    Route(
        method="GET",
        path="/api/timeline/{id:path}",
        handler=events,
        access="read",
        reach="user",
        summary="Show all that happened to a session, a memory or in a request, in order.",
        query=wire.UserQuery,
        reply=wire.Timeline,
    ),
)
