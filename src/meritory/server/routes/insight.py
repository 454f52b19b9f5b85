"""What pages show beside single records: counts, ties, reasons and what happened lately."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from meritory.domain.codec import moment_text, parse_moment
from meritory.domain.errors import InputError
from meritory.domain.memory import EveryScope, Scope
from meritory.domain.session import MemoryShowing, SessionOutcome
from meritory.engine.memories import change
from meritory.server.schemas import memories as schemas_memories
from meritory.server.schemas.memories import Limit, Moment
from meritory.server.schemas.sessions import UserQuery
from meritory.server.table import Call, Route, Scoped

TEXTS_LIMIT_COUNT = 300
NODE_LIMIT, EDGE_LIMIT = 60, 400


class Facets(msgspec.Struct):
    """Counts of memories by state, and of the live ones by what else they are.

    The project of those without one is empty.
    """

    state: dict[str, int]
    kind: dict[str, int]
    provenance: dict[str, int]
    trust: dict[str, int]
    project: dict[str, int]
    pinned: dict[str, int]


class TextsQuery(UserQuery, kw_only=True):
    """Ids of memories, with commas between them."""

    ids: str


class TextOut(msgspec.Struct):
    """What a memory says."""

    id: str
    content: str
    kind: str
    is_live: bool


class Texts(msgspec.Struct):
    """What memories say, whatever their state; one that was erased is not among them."""

    results: list[TextOut]


class ShownQuery(Scoped, kw_only=True):
    """How many sessions are wanted."""

    limit: Limit = 50


class SessionShown(msgspec.Struct):
    """A session that a memory was put before, and what came of it there."""

    id: str
    session_key: str
    project: str | None
    at: str
    handle: str | None
    source: str
    rank: int
    label: float | None
    outcome: SessionOutcome | None

    @classmethod
    def of(cls, found: MemoryShowing) -> SessionShown:
        """A session for the wire."""
        return cls(
            found.session_key,
            found.session_key,
            found.project,
            moment_text(found.started_at),
            found.handle,
            found.source,
            found.rank,
            found.label,
            found.outcome,
        )


class ShownIn(msgspec.Struct):
    """The sessions that a memory was put before, latest first."""

    results: list[SessionShown]


class GraphQuery(Scoped, kw_only=True):
    """How many entities and ties are wanted; without a project or agent, of all."""

    limit: Annotated[int, Meta(ge=1, le=200)] = NODE_LIMIT
    edges: Annotated[int, Meta(ge=0, le=2_000)] = EDGE_LIMIT


class EdgeOut(msgspec.Struct):
    """Two entities that memories are about together, or of which one needs the other."""

    source: str
    target: str
    weight: int
    needs: bool = False


class Graph(msgspec.Struct):
    """The entities with the most memories, and what ties them."""

    nodes: list[schemas_memories.EntityOut]
    edges: list[EdgeOut]


class ActivityQuery(UserQuery, kw_only=True):
    """Since when; without it, the last 24 hours."""

    since: Moment | None = None


class ActivityOut(msgspec.Struct):
    """How much happened since a moment; the outcomes are of the sessions that began since then."""

    since: str
    memories: int
    sessions: int
    injected: int
    reports: int
    win: int
    loss: int
    tie: int
    excluded: int


def seen(scope: Scope) -> Scope:
    """What is counted and drawn: all of the user's, unless less was named."""
    return EveryScope(scope.user) if scope.agent is None and scope.project is None else scope


def facets(call: Call) -> Facets:
    """Counts for the filters of a list."""
    memory = call.memory()
    return Facets(**memory.services.store.facets(seen(memory.scope)))


def texts(call: Call) -> Texts:
    """What many memories say, in one request."""
    memory = call.view(call.query.user)
    ids = [name for name in call.query.ids.split(",") if name]
    if len(ids) > TEXTS_LIMIT_COUNT:
        raise InputError(f"at most {TEXTS_LIMIT_COUNT} ids in one request")
    found = memory.services.store.memories(memory.scope.user, ids)
    return Texts(
        [
            TextOut(one.id, one.content, one.kind, not (one.deleted_at or one.superseded_by))
            for one in (found[name] for name in dict.fromkeys(ids) if name in found)
        ]
    )


def shown_in(call: Call) -> ShownIn:
    """The sessions that a memory was put before."""
    memory = call.memory()
    record = memory.get(call.path["id"])
    found = memory.services.store.shown_in(memory.scope.user, record.id, call.query.limit)
    return ShownIn([SessionShown.of(one) for one in found])


def confirm(call: Call) -> schemas_memories.MemoryOut:
    """A person vouches for a memory."""
    memory = call.memory()
    return schemas_memories.MemoryOut.of(
        change.confirm(memory.services, memory.get(call.path["id"]))
    )


def why(call: Call) -> dict[str, Any]:
    """Every number that put a memory into a session, or kept it out of it."""
    memory = call.view(call.query.user)
    return memory.why(call.path["id"], call.path["key"])


def graph(call: Call) -> Graph:
    """The entities with the most memories, and what ties them."""
    memory = call.memory()
    asked: GraphQuery = call.query
    found = memory.services.store.entity_graph(seen(memory.scope), asked.limit, asked.edges)
    nodes = [schemas_memories.EntityOut.of(one) for one in found.nodes]
    ties = [EdgeOut(nodes[a].id, nodes[b].id, weight) for a, b, weight in found.edges]
    needs = [EdgeOut(nodes[a].id, nodes[b].id, 1, needs=True) for a, b in found.needs]
    return Graph(nodes, [*ties, *needs])


def activity(call: Call) -> ActivityOut:
    """How much happened since a moment."""
    memory = call.view(call.query.user)
    if call.query.since is None:
        since = memory.services.world.now() - timedelta(days=1)
    else:
        since = parse_moment(call.query.since, "since")
    found = memory.services.store.activity(memory.scope.user, since)
    return ActivityOut(since=moment_text(since), **found)


ROUTES = (
    Route(
        method="GET",
        path="/api/memories/facets",
        handler=facets,
        access="read",
        reach="scope",
        summary="Count memories by kind, provenance, trust, project and state.",
        query=Scoped,
        reply=Facets,
    ),
    Route(
        method="GET",
        path="/api/memories/texts",
        handler=texts,
        access="read",
        reach="user",
        summary="Show what many memories say.",
        query=TextsQuery,
        reply=Texts,
    ),
    Route(
        method="GET",
        path="/api/memories/{id}/sessions",
        handler=shown_in,
        access="read",
        reach="user",
        summary="List the sessions that a memory was put before.",
        query=ShownQuery,
        reply=ShownIn,
    ),
    Route(
        method="POST",
        path="/api/memories/{id}/confirm",
        handler=confirm,
        access="admin",
        reach="scope",
        summary="Vouch for a memory that was only proposed.",
        query=Scoped,
        reply=schemas_memories.MemoryOut,
    ),
    Route(
        method="GET",
        path="/api/sessions/{key:path}/memories/{id}/why",
        handler=why,
        access="read",
        reach="user",
        summary="Show every number that put a memory into a session, or kept it out.",
        query=UserQuery,
        reply=dict[str, Any],
    ),
    Route(
        method="GET",
        path="/api/entities/graph",
        handler=graph,
        access="read",
        reach="scope",
        summary="Show the entities with the most memories, and what ties them.",
        query=GraphQuery,
        reply=Graph,
    ),
    Route(
        method="GET",
        path="/api/analytics/activity",
        handler=activity,
        access="read",
        reach="user",
        summary="Count what happened since a moment.",
        query=ActivityQuery,
        reply=ActivityOut,
    ),
)
