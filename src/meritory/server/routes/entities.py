"""Entities: what memories are about."""

from __future__ import annotations

from meritory.api.memory import Memory
from meritory.domain.errors import NotFound
from meritory.domain.memory import EntityView
from meritory.server.schemas import memories
from meritory.server.table import Call, Route
from meritory.text.entities import entity_key


def listing(call: Call) -> memories.Entities:
    """What memories are about, most often first."""
    query: memories.LimitQuery = call.query
    return memories.Entities(
        [memories.EntityOut.of(e) for e in call.memory().entities(query.limit)]
    )


def described(memory: Memory, key: str) -> EntityView:
    """What is known about an entity, by its id in the list or as a text names it."""
    kind, colon, name = key.partition(":")
    try:
        return memory.describe(key)
    except NotFound:
        if not (colon and name):
            raise
        return memory.services.store.describe(memory.scope, entity_key(kind, name))


def describe(call: Call) -> memories.EntityPage:
    """All that is known about an entity."""
    memory = call.memory()
    view = described(memory, call.path["key"])
    ids = dict.fromkeys(found for members in view.aspects.values() for found in members)
    return memories.EntityPage.of(view, [memory.get(memory_id) for memory_id in ids])


ROUTES = (
    Route(
        method="GET",
        path="/api/entities",
        handler=listing,
        access="read",
        reach="scope",
        summary="List what memories are about.",
        query=memories.LimitQuery,
        reply=memories.Entities,
    ),
    Route(
        method="GET",
        path="/api/entities/{key:path}",
        handler=describe,
        access="read",
        reach="scope",
        summary="Show all that is known about an entity, e.g. path:src/api.py.",
        query=memories.EverywhereQuery,
        reply=memories.EntityPage,
    ),
)
