"""Memories and the entities they are about."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from meritory.domain.errors import InputError, MeritoryError, NotFound, TooLarge
from meritory.domain.memory import (
    CONTENT_LIMIT_CHARS,
    NOTHING_KNOWN,
    Entity,
    EntityView,
    EveryScope,
    HistoryEntry,
    Kind,
    Listing,
    MemoryRecord,
    OnSimilar,
    Origin,
    Parts,
    Provenance,
    ResolvesAs,
    Scope,
    Trust,
    WriteResult,
)
from meritory.domain.quality import LinkKind
from meritory.domain.session import MemoryDelivery
from meritory.engine.memories.recall import best_score
from meritory.engine.memories.resolution import similar_to
from meritory.engine.memories.validate import checked_tags
from meritory.server.auth import AnyMemory
from meritory.server.table import (
    PAGE_LIMIT,
    Call,
    Limit,
    Moment,
    ReplyShape,
    Results,
    Route,
    Scoped,
    SessionKey,
    UserQuery,
)
from meritory.text.entities import entity_key
from meritory.text.normalize import check_text

WHY_LIMIT_CHARS = 500
MANY_LIMIT_COUNT = 200
TEXTS_LIMIT_COUNT = 300
NODE_LIMIT, EDGE_LIMIT = 60, 400
_LISTS = ("kind", "tags", "projects")
_FILTERS = (*_LISTS, "since", "until", "metadata")
Share = Annotated[float, Meta(ge=0, le=1)]
# Documented here, but enforced on the write path: its error says more about a rejected text.
Content = Annotated[
    str,
    Meta(extra_json_schema={"minLength": 1, "maxLength": CONTENT_LIMIT_CHARS}),
]

Metadata = Annotated[
    dict[str, Any], Meta(description="Named JSON values that filters of a search read")
]
# -- requests ---------------------------------------------------------------------------------


class SourceIn(msgspec.Struct, forbid_unknown_fields=True):
    """The session and turn that a memory comes from."""

    harness: str | None = None
    session_key: str | None = None
    turn: str | None = None
    quote_hash: str | None = None


class ResolveIn(msgspec.Struct, forbid_unknown_fields=True):
    """How the new text relates to a stored memory, by its whole id."""

    id: str
    relation: ResolvesAs = msgspec.field(name="as")


class NewMemory(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A memory to store; fields that are left out get their defaults."""

    content: Content | UnsetType = UNSET
    kind: Kind | UnsetType = UNSET
    provenance: Provenance | UnsetType = UNSET
    origin: Origin | UnsetType = UNSET
    confidence: Share | UnsetType = UNSET
    importance: Share | UnsetType = UNSET
    pinned: bool | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    metadata: Metadata | UnsetType = UNSET
    source: SourceIn | UnsetType | None = UNSET
    valid_from: Moment | UnsetType | None = UNSET
    valid_until: Moment | UnsetType | None = UNSET
    created_at: Moment | UnsetType | None = UNSET
    about: list[str] | UnsetType = UNSET
    depends_on: list[str] | UnsetType = UNSET
    supersedes: str | UnsetType | None = UNSET
    on_similar: OnSimilar | UnsetType = UNSET
    quote: Annotated[
        str | UnsetType | None,
        Meta(description="The user's words for an agent's text; checked in source.session_key"),
    ] = UNSET
    resolves: list[ResolveIn] | UnsetType = UNSET


class Remember(NewMemory, kw_only=True):
    """One memory, or many under `memories`."""

    user: str | None = None
    agent: str | None = None
    project: str | None = None
    memories: list[NewMemory] | UnsetType = UNSET


class Patch(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Fields to change; null clears an optional field."""

    content: Content | UnsetType = UNSET
    kind: Kind | UnsetType = UNSET
    confidence: Share | UnsetType = UNSET
    importance: Share | UnsetType = UNSET
    pinned: bool | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    metadata: Metadata | UnsetType = UNSET
    agent: str | UnsetType | None = UNSET
    project: str | UnsetType | None = UNSET
    valid_from: Moment | UnsetType | None = UNSET
    valid_until: Moment | UnsetType | None = UNSET


MinScore = Annotated[
    Share,
    Meta(
        description="The lowest score of a result; 0 gives the best in any case. Without it there"
        " are no results if nothing is known about the query"
    ),
]


class SearchFields(Scoped, kw_only=True):
    """The fields of every search."""

    query: str
    limit: Limit | None = None
    explain: bool = False
    session_key: SessionKey | None = None
    everywhere: bool = False
    min_score: MinScore | None = None
    since: Moment | None = None
    until: Moment | None = None


class SearchQuery(SearchFields, kw_only=True):
    """A search; `everywhere` covers all projects and agents, for people.

    Commas separate kinds, tags or projects. A search in a running session is learned from.
    """

    kind: str | None = None
    tags: str | None = None
    projects: str | None = None


class SearchBody(SearchFields, kw_only=True):
    """The same search; a memory needs all tags and all metadata. An empty project means none."""

    kind: list[Kind] | None = None
    tags: list[str] | None = None
    projects: list[str] | None = None
    metadata: Metadata | None = None


class Purge(Scoped, kw_only=True):
    """A confirmation of an action that cannot be undone: `confirm` repeats the memory's id."""

    confirm: str


class ListQuery(Scoped, kw_only=True):
    """A page of memories."""

    limit: Limit = PAGE_LIMIT
    after: str | None = None
    kind: Kind | None = None
    tag: str | None = None
    everywhere: bool = False
    gone: bool = False
    provenance: Provenance | None = None
    trust: Trust | None = None
    state: Literal["live", "superseded", "forgotten"] | None = None
    of_project: Annotated[
        str | None,
        Meta(description="Only memories of this project; empty: only those without one"),
    ] = None


DeleteQuery = Scoped.plus(why=(str, ""))
# Ids of memories, separated by commas.
TextsQuery = UserQuery.plus(ids=str)
ShownQuery = Scoped.plus(limit=(Limit, 50))
EverywhereQuery = Scoped.plus(everywhere=(bool, False))
EntitiesQuery = EverywhereQuery.plus(limit=(Limit, PAGE_LIMIT))
GraphQuery = Scoped.plus(
    limit=(Annotated[int, Meta(ge=1, le=200)], NODE_LIMIT),
    edges=(Annotated[int, Meta(ge=0, le=2_000)], EDGE_LIMIT),
)


# -- replies ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit(MemoryRecord):
    """A memory that a search found, with its score and, on request, the numbers behind it.

    `until` is when the next value of its claim began, for an earlier one.
    """

    score: float
    until: datetime | None = None
    parts: Parts | UnsetType = UNSET


class Hits(msgspec.Struct, omit_defaults=True):
    """What a search found. Without a result, `note` says so, and `best_score` what came nearest."""

    results: list[Hit]
    note: str | None = None
    best_score: float | None = None


class Memories(msgspec.Struct):
    """Memories; `next` is the last id of a full page."""

    results: list[MemoryRecord]
    next: str | None = None


class WriteError(ReplyShape):
    """The error of one memory among many; without the status, which only the whole reply has."""

    code: str
    message: str
    hint: str | None = None


class SimilarOut(msgspec.Struct):
    """A stored memory that is similar to the new one: perhaps the same, perhaps another value."""

    id: str
    content: str
    cosine: float
    link: LinkKind


class WriteOut(
    ReplyShape,
    record=WriteResult,
    names="id outcome reason other_id cosine memory error is_quoted resolved similar",
    kw_only=True,
):
    """The outcome for one memory to store; `id` is that of `memory`, which may be an older one.

    `similar` is given for a single memory; `resolves` can say of each how it relates to the text.
    """

    id: str | None
    error: WriteError | None = None
    similar: list[SimilarOut] = msgspec.field(default_factory=list)


class HistoryEntryOut(
    ReplyShape,
    record=HistoryEntry,
    names="id=memory_id entry at actor action why undone other_id before after other",
):
    """One change of a memory, under the memory's `id`."""

    action: str


class Gone(msgspec.Struct):
    """A memory that was forgotten or erased."""

    id: str
    purged: bool


class Facets(msgspec.Struct):
    """Counts of memories by state, and of the live ones by other fields.

    Memories without a project count under the empty project.
    """

    state: dict[str, int]
    kind: dict[str, int]
    provenance: dict[str, int]
    trust: dict[str, int]
    project: dict[str, int]
    pinned: dict[str, int]


class MemoryText(ReplyShape):
    """The text of a memory and whether it is live, for lists of many."""

    id: str
    content: str
    kind: str
    is_live: bool


class SessionShown(
    ReplyShape,
    record=MemoryDelivery,
    names="id=session_key session_key project at=started_at handle source rank label outcome",
):
    """A session that a memory was shown in; `id` is its key, as in every list."""


class EntityOut(ReplyShape, record=Entity, names="id *"):
    """An entity with its `id`, KIND:NAME."""

    id: str

    @classmethod
    def named(cls, entity: Entity) -> EntityOut:
        """Return an entity with its id."""
        return cls.of(entity, id=f"{entity.kind}:{entity.name}")


class EntityPage(msgspec.Struct):
    """An entity: ids of its memories by aspect, its dependencies, and the memories."""

    entity: EntityOut
    aspects: dict[str, tuple[str, ...]]
    constraints: tuple[str, ...]
    depends_on: list[EntityOut]
    results: list[MemoryRecord]


class EdgeOut(msgspec.Struct):
    """Two entities that share memories, or of which one needs the other."""

    source: str
    target: str
    weight: int
    needs: bool = False


class Graph(msgspec.Struct):
    """The entities with the most memories, and the edges between them."""

    nodes: list[EntityOut]
    edges: list[EdgeOut]


# -- handlers ---------------------------------------------------------------------------------


def remember(call: Call) -> WriteOut | Results[WriteOut]:
    """Store a memory, or many under `memories`."""
    body: Remember = call.body
    memory = call.memory()
    # Fields that the request does not name are left out.
    named: dict[str, Any] = msgspec.to_builtins(body)
    for name in Scoped.__struct_fields__:
        del named[name]
    if isinstance(body.memories, list):
        if len(named) > 1:
            raise InputError("give one memory or `memories`, not both")
        if len(body.memories) > MANY_LIMIT_COUNT:
            raise TooLarge(f"at most {MANY_LIMIT_COUNT} memories in one request")
        results = memory.remember_many(named["memories"])
        return Results([_written(result) for result in results])
    result = memory.remember_many([named])[0]
    if result.memory is None:
        raise result.error or InputError(result.reason)
    settled = [one.id for one in result.resolved]
    found = similar_to(memory.services, result.memory, settled)
    near = [SimilarOut(one.id, one.memory.content, one.cosine, one.link) for one in found]
    return _written(result, near)


def _written(result: WriteResult, similar: list[SimilarOut] | None = None) -> WriteOut:
    record, error = result.memory, result.error
    return WriteOut.of(
        result,
        id=None if record is None else record.id,
        error=WriteError.of(error) if isinstance(error, MeritoryError) else None,
        similar=similar or [],
    )


def list_memories(call: Call) -> Memories:
    """List memories, newest first."""
    query: ListQuery = call.query
    tag = next(iter(checked_tags([query.tag])), None) if query.tag is not None else None
    memory = call.memory()
    listing = query.to(Listing, scope=memory.scope, tag=tag, include_gone=query.gone)
    records = memory.services.store.listing(listing)
    return Memories(records, records[-1].id if len(records) == query.limit else None)


def search(call: Call) -> Hits:
    """Find the memories that answer a query best."""
    wanted: SearchQuery | SearchBody = call.query if call.body is None else call.body
    memory = call.memory()
    filters = {name: getattr(wanted, name, None) for name in _FILTERS}
    for name, value in filters.items():
        if isinstance(value, str) and name in _LISTS:
            filters[name] = value.split(",")
    found = memory.recall(
        wanted.query,
        wanted.limit,
        wanted.explain,
        # A token that may only read leaves no record in a session.
        wanted.session_key if call.grant.can_write else None,
        min_score=wanted.min_score,
        **filters,
    )
    if not found:
        best = best_score(memory.services, memory.scope, wanted.query, filters)
        return Hits([], NOTHING_KNOWN, best)
    return Hits(
        [
            Hit(
                **{one.name: getattr(hit.memory, one.name) for one in fields(MemoryRecord)},
                score=hit.score,
                until=hit.until,
                parts=UNSET if hit.parts is None else hit.parts,
            )
            for hit in found
        ]
    )


def show_memory(call: Call) -> MemoryRecord:
    """Show one memory."""
    return call.memory().get(call.path["id"])


def update(call: Call) -> MemoryRecord:
    """Change fields of a memory; its history keeps the old values."""
    named = msgspec.to_builtins(call.body)
    if not named:
        raise InputError("nothing to change was given", hint="name the fields to change")
    return call.memory().update(call.path["id"], **named)


def forget(call: Call) -> Gone:
    """Forget a memory; restore brings it back."""
    why: str = call.query.why
    if why:
        check_text(why, what="the reason", max_chars=WHY_LIMIT_CHARS)
    memory = call.memory()
    record = memory.get(call.path["id"])
    memory.forget(record.id, why=why)
    return Gone(record.id, purged=False)


def purge(call: Call) -> Gone:
    """Erase a memory and its history for good; `confirm` repeats its id."""
    body: Purge = call.body
    memory = call.memory()
    record = memory.get(call.path["id"])
    if body.confirm != record.id:
        raise InputError("`confirm` must repeat the memory's whole id", hint="nothing was erased")
    memory.forget(record.id, purge=True)
    return Gone(record.id, purged=True)


def history(call: Call) -> Results[HistoryEntryOut]:
    """Show every change of a memory, oldest first."""
    entries = call.memory().history(call.path["id"])
    return Results([HistoryEntryOut.of(entry) for entry in entries])


def restore(call: Call) -> Memories:
    """Undo the last change of a memory, and return every memory that changed by it."""
    return Memories(call.memory().undo(call.path["id"]))


def confirm(call: Call) -> MemoryRecord:
    """Confirm a memory that was only proposed."""
    return call.memory().confirm(call.path["id"])


def reject(call: Call) -> MemoryRecord:
    """Reject the proposed pin or constraint of a memory."""
    return call.memory().reject(call.path["id"])


def list_proposals(call: Call) -> Results[MemoryRecord]:
    """List memories with a proposed pin or constraint, latest first."""
    query = call.query
    return Results(call.memory().proposals(query.limit, everywhere=query.everywhere))


def facets(call: Call) -> Facets:
    """Count memories by kind, provenance, trust, project and state."""
    memory = call.memory()
    return Facets(**memory.services.store.facets(_counted_scope(memory.scope)))


def _counted_scope(scope: Scope) -> Scope:
    """Return the scope of counts and graphs: the whole user unless the request names less."""
    return EveryScope(scope.user) if scope.agent is None and scope.project is None else scope


def texts(call: Call) -> Results[MemoryText]:
    """Show the texts of many memories."""
    services, user = call.whole_user()
    ids = [name for name in call.query.ids.split(",") if name]
    if len(ids) > TEXTS_LIMIT_COUNT:
        raise InputError(f"at most {TEXTS_LIMIT_COUNT} ids in one request")
    by_id = services.store.memories(user, ids)
    return Results([MemoryText.of(by_id[name]) for name in dict.fromkeys(ids) if name in by_id])


def shown_in(call: Call) -> Results[SessionShown]:
    """List the sessions that a memory was shown in, latest first."""
    memory = call.memory()
    record = memory.get(call.path["id"])
    showings = memory.services.store.shown_in(memory.scope.user, record.id, call.query.limit)
    return Results([SessionShown.of(shown) for shown in showings])


def list_entities(call: Call) -> Results[EntityOut]:
    """List entities, those with most memories first."""
    return Results([EntityOut.named(e) for e in call.memory().entities(call.query.limit)])


def find_entity(memory: AnyMemory, key: str) -> EntityView:
    """Return an entity by its id in the list, or as a text names it."""
    kind, colon, name = key.partition(":")
    try:
        return memory.describe(key)
    except NotFound:
        if not (colon and name):
            raise
        return memory.services.store.describe(memory.scope, entity_key(kind, name))


def show_entity(call: Call) -> EntityPage:
    """Show an entity with its memories, e.g. path:src/api.py."""
    memory = call.memory()
    view = find_entity(memory, call.path["key"])
    ids = dict.fromkeys(memory_id for members in view.aspects.values() for memory_id in members)
    return EntityPage(
        EntityOut.named(view.entity),
        view.aspects,
        view.constraints,
        [EntityOut.named(other) for other in view.depends_on],
        [memory.get(memory_id) for memory_id in ids],
    )


def graph(call: Call) -> Graph:
    """Show the entities with the most memories, and the edges between them."""
    memory = call.memory()
    scope = _counted_scope(memory.scope)
    drawn = memory.services.store.entity_graph(scope, call.query.limit, call.query.edges)
    nodes = [EntityOut.named(entity) for entity in drawn.nodes]
    shared = [EdgeOut(nodes[a].id, nodes[b].id, weight) for a, b, weight in drawn.edges]
    needs = [EdgeOut(nodes[a].id, nodes[b].id, 1, needs=True) for a, b in drawn.needs]
    return Graph(nodes, [*shared, *needs])


_ALL, _ONE, _SEARCH = "/api/memories", "/api/memories/{id}", "/api/memories/search"
# Fixed names come before `{id}`, which would match them.
ROUTES = (
    Route("POST", _ALL, remember, "write", "scope", body=Remember),
    Route("GET", _ALL, list_memories, "read", "scope", query=ListQuery),
    Route("POST", _SEARCH, search, "read", "scope", body=SearchBody),
    Route("GET", _SEARCH, search, "read", "scope", query=SearchQuery),
    Route("GET", "/api/memories/facets", facets, "read", "scope", query=Scoped),
    Route("GET", "/api/memories/texts", texts, "read", "user", query=TextsQuery),
    Route("GET", _ONE, show_memory, "read", "scope", query=Scoped),
    Route("PATCH", _ONE, update, "write", "scope", query=Scoped, body=Patch),
    Route("DELETE", _ONE, forget, "write", "scope", query=DeleteQuery),
    Route("GET", f"{_ONE}/history", history, "read", "scope", query=Scoped),
    Route("POST", f"{_ONE}/restore", restore, "write", "scope", query=Scoped),
    Route("POST", f"{_ONE}/confirm", confirm, "admin", "scope", query=Scoped),
    Route("POST", f"{_ONE}/reject", reject, "admin", "scope", query=Scoped),
    Route("GET", "/api/proposals", list_proposals, "read", "scope", query=EntitiesQuery),
    Route("POST", f"{_ONE}/purge", purge, "admin", "scope", body=Purge),
    Route("GET", f"{_ONE}/sessions", shown_in, "read", "user", query=ShownQuery),
    Route("GET", "/api/entities", list_entities, "read", "scope", query=EntitiesQuery),
    Route("GET", "/api/entities/graph", graph, "read", "scope", query=GraphQuery),
    Route("GET", "/api/entities/{key:path}", show_entity, "read", "scope", query=EverywhereQuery),
)
