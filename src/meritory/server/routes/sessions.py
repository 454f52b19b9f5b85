"""Sessions as records: lists, candidates, timelines and erasure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from meritory.domain.errors import NotFound
from meritory.domain.session import (
    Candidate,
    Event,
    SessionMemory,
    SessionOutcome,
    SessionQuery,
    SessionScore,
    SessionSummary,
)
from meritory.engine.observe.observer import timeline
from meritory.engine.sessions.erasure import erase_session
from meritory.rank.features import FEATURES
from meritory.server.table import (
    Call,
    Limit,
    Moment,
    ReplyShape,
    Results,
    Route,
    UserQuery,
)


class SessionsQuery(UserQuery, kw_only=True):
    """A page of sessions, latest first; `before` is the last key of the previous page."""

    project: str | None = None
    outcome: SessionOutcome | None = None
    since: Moment | None = None
    until: Moment | None = None
    before: str | None = None
    limit: Limit = 50


class ScoreOut(
    ReplyShape,
    record=SessionScore,
    names="judge score confidence memories_recalled memories_used novel_context_count"
    " missing_topics reasoning=continuity_reasoning excluded at",
):
    """The judge's verdict on a session, without the raw reply of a model."""


class SessionOut(ReplyShape, kw_only=True):
    """A session; without the context's vector and other internals of its record."""

    id: str
    state: str
    agent: str | None
    project: str | None
    harness: str | None
    context: str
    started_at: datetime
    ended_at: datetime | None
    prompts: int
    injections: int
    shown: int
    alpha: float
    # The result of the comparison; None until the session is judged.
    outcome: SessionOutcome | None = None
    margin: float | None = None
    score: ScoreOut | None = None

    @classmethod
    def judged(cls, summary: SessionSummary, score: SessionScore | None) -> SessionOut:
        """Return a session with its verdict."""
        session = summary.session
        return cls.of(
            session,
            id=session.key,
            prompts=session.prompt_count,
            injections=session.injection_count,
            shown=session.handle_count,
            outcome=summary.outcome,
            margin=summary.margin,
            score=None if score is None else ScoreOut.of(score),
        )


class SessionsOut(msgspec.Struct):
    """A page of sessions; `before` continues it."""

    results: list[SessionOut]
    before: str | None


class EraseQuery(UserQuery, kw_only=True):
    """The user, and whether memories that were learned only in the session are erased as well."""

    memories: bool = False


class SessionGone(msgspec.Struct):
    """The number of erased rows by table, the erased memories, and how many stay."""

    id: str
    rows: dict[str, int]
    memories: list[str]
    kept_memory_count: int


class CandidateOut(
    ReplyShape,
    record=Candidate,
    names="id source origins rank baseline_rank predictor_rank effective_score composite_score"
    " predictor_score final_score was_injected handle propensity features feature_version"
    " relevance_score fts_hit_count agent_relevance_score agent_feedback_count label label_parts",
    kw_only=True,
):
    """A candidate of a session with every number as served, its features by name."""

    id: str
    source: str
    handle: str | None
    features: dict[str, float]
    relevance_score: float | None
    fts_hit_count: int
    agent_relevance_score: float | None
    agent_feedback_count: int
    label: float | None
    label_parts: dict[str, Any]

    @classmethod
    def flat(cls, row: SessionMemory) -> CandidateOut:
        """Return a candidate and its outcome in one object."""
        served = row.candidate._asdict()
        features = dict(zip(FEATURES, served.pop("features"), strict=False))
        return cls.of(row, id=served.pop("memory_id"), features=features, **served)


class EventOut(ReplyShape, record=Event):
    """An event of a session; its name is published as `event`."""

    name: str = msgspec.field(name="event")
    details: Mapping[str, Any]


class Timeline(msgspec.Struct):
    """Every event of a session, a memory or a request, in order."""

    id: str
    results: list[EventOut]


def list_sessions(call: Call) -> SessionsOut:
    """List sessions, latest first."""
    query: SessionsQuery = call.query
    services, user = call.whole_user()
    page = services.store.session_page(user, query.to(SessionQuery))
    scores = [services.store.session_score(user, each.session.key) for each in page]
    return SessionsOut(
        [SessionOut.judged(*judged) for judged in zip(page, scores, strict=True)],
        page[-1].session.key if len(page) == query.limit else None,
    )


def show_session(call: Call) -> SessionOut:
    """Show a session with its verdict."""
    services, user = call.whole_user()
    store, key = services.store, call.path["key"]
    return SessionOut.judged(store.session_summary(user, key), store.session_score(user, key))


def forget_session(call: Call) -> SessionGone:
    """Erase a session with its transcript and ratings for good; its memories stay."""
    services, user = call.whole_user()
    erased = erase_session(services, user, call.path["key"], with_memories=call.query.memories)
    return SessionGone(erased.key, erased.rows, list(erased.memory_ids), erased.kept_memory_count)


def candidates(call: Call) -> Results[CandidateOut]:
    """Show every candidate of a session with every number as served."""
    services, user = call.whole_user()
    session = services.store.session(user, call.path["key"])
    rows = services.store.session_memories(user, session.key)
    return Results([CandidateOut.flat(row) for row in rows])


def why(call: Call) -> dict[str, Any]:
    """Show every number that put a memory into a session, or kept it out."""
    return call.user_memory().why(call.path["id"], call.path["key"])


def events(call: Call) -> Timeline:
    """Show every event of a session, a memory or a request, in order."""
    name = call.path["id"]
    rows = timeline(*call.whole_user(), name)
    if not rows:
        raise NotFound(f"nothing is known about {name[:80]!r}")
    return Timeline(name, [EventOut.of(event) for event in rows])


_ONE = "/api/sessions/{key:path}"
ROUTES = (
    Route("GET", "/api/sessions", list_sessions, "read", "user", query=SessionsQuery),
    Route("GET", f"{_ONE}/memories/{{id}}/why", why, "read", "user", query=UserQuery),
    Route("GET", f"{_ONE}/memories", candidates, "read", "user", query=UserQuery),
    # Last: the path of a key matches the others too.
    Route("GET", _ONE, show_session, "read", "user", query=UserQuery),
    Route("DELETE", _ONE, forget_session, "admin", "user", query=EraseQuery),
    Route("GET", "/api/timeline/{id:path}", events, "read", "user", query=UserQuery),
)
