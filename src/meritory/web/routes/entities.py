"""Entities: what memories are about."""

from __future__ import annotations

from meritory.errors import NotFound
from meritory.memory import Memory
from meritory.text.entities import entity_key
from meritory.types import EntityView
from meritory.web import replies, wire
from meritory.web.table import Call, Route


def listing(call: Call) -> replies.Entities:
    """What memories are about, most often first."""
    query: wire.LimitQuery = call.query
    return replies.Entities([replies.EntityOut.of(e) for e in call.memory().entities(query.limit)])


def described(memory: Memory, key: str) -> EntityView:
    """What is known about an entity, by its id in the list or as a text names it."""
    kind, colon, name = key.partition(":")
    try:
        return memory.describe(key)
    except NotFound:
        if not (colon and name):
            raise
        return memory.services.store.describe(memory.scope, entity_key(kind, name))


def describe(call: Call) -> replies.EntityPage:
    """All that is known about an entity."""
    memory = call.memory()
    view = described(memory, call.path["key"])
    ids = dict.fromkeys(found for members in view.aspects.values() for found in members)
    return replies.EntityPage.of(view, [memory.get(memory_id) for memory_id in ids])


ROUTES = (
    Route(
        method="GET",
        path="/api/entities",
        handler=listing,
        access="read",
        reach="scope",
        summary="List what memories are about.",
        query=wire.LimitQuery,
        reply=replies.Entities,
    ),
    Route(
        method="GET",
        path="/api/entities/{key:path}",
        handler=describe,
        access="read",
        reach="scope",
        summary="Show all that is known about an entity, e.g. path:src/api.py.",
        query=wire.EverywhereQuery,
        reply=replies.EntityPage,
    ),
)
