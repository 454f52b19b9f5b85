"""Memories: stored, read, found, changed, forgotten and brought back."""

from __future__ import annotations

from meritory.domain.errors import InputError, TooLarge
from meritory.domain.memory import Listing
from meritory.engine.memories.validate import checked_tags
from meritory.server.schemas import memories
from meritory.server.table import Call, Route, Scoped
from meritory.text.normalize import check_text

WHY_LIMIT_CHARS = 500


def remember(call: Call) -> memories.WriteOut | memories.WrittenMany:
    """Stores one memory, or many of which one bad item never keeps the others out."""
    body: memories.Remember = call.body
    memory = call.memory()
    if isinstance(body.memories, list):
        if memories.given(body, "memories", "user", "agent", "project"):
            raise InputError("give one memory or `memories`, not both")
        if len(body.memories) > memories.MANY_LIMIT_COUNT:
            raise TooLarge(f"at most {memories.MANY_LIMIT_COUNT} memories in one request")
        results = memory.remember_many([memories.given(item) for item in body.memories])
        return memories.WrittenMany([memories.WriteOut.of(result) for result in results])
    fields = memories.given(body, "memories", "user", "agent", "project")
    result = memory.remember_many([fields])[0]
    if result.memory is None:
        raise result.error or InputError(result.reason)
    return memories.WriteOut.of(result)


def listing(call: Call) -> memories.Memories:
    """A page of memories, newest first."""
    query: memories.ListQuery = call.query
    tag = next(iter(checked_tags([query.tag])), None) if query.tag is not None else None
    memory = call.memory()
    records = memory.services.store.listing(
        Listing(
            memory.scope,
            query.everywhere,
            query.kind,
            tag,
            query.gone,
            query.after,
            query.limit,
            query.provenance,
            query.trust,
            query.state,
            query.of_project,
        )
    )
    more = records[-1].id if len(records) == query.limit else None
    return memories.Memories([memories.MemoryOut.of(record) for record in records], more)


def search(call: Call) -> memories.Hits:
    """The memories that answer a query best."""
    asked: memories.SearchBody | memories.SearchQuery = (
        call.query if call.body is None else call.body
    )
    found = call.memory().recall(asked.query, asked.limit, asked.explain)
    return memories.Hits([memories.HitOut.found(hit) for hit in found])


def show(call: Call) -> memories.MemoryOut:
    """One memory with all its fields."""
    return memories.MemoryOut.of(call.memory().get(call.path["id"]))


def change(call: Call) -> memories.MemoryOut:
    """Changes fields of a memory; what it was stays in its history."""
    fields = memories.given(call.body)
    if not fields:
        raise InputError("nothing to change was given", hint="name the fields to change")
    return memories.MemoryOut.of(call.memory().update(call.path["id"], **fields))


def forget(call: Call) -> memories.Gone:
    """Hides a memory; restore brings it back."""
    query: memories.DeleteQuery = call.query
    if query.why:
        check_text(query.why, what="the reason", max_chars=WHY_LIMIT_CHARS)
    memory = call.memory()
    record = memory.get(call.path["id"])
    memory.forget(record.id, why=query.why)
    return memories.Gone(record.id, purged=False)


def purge(call: Call) -> memories.Gone:
    """Erases a memory for good, history and all."""
    body: memories.Purge = call.body
    memory = call.memory()
    record = memory.get(call.path["id"])
    if body.confirm != record.id:
        raise InputError("`confirm` must repeat the memory's whole id", hint="nothing was erased")
    memory.forget(record.id, purge=True)
    return memories.Gone(record.id, purged=True)


def history(call: Call) -> memories.History:
    """Every change of a memory, oldest first."""
    entries = call.memory().history(call.path["id"])
    return memories.History([memories.HistoryEntryOut.of(entry) for entry in entries])


def restore(call: Call) -> memories.Memories:
    """Takes back the last change of a memory and answers all that changed by it."""
    changed = call.memory().undo(call.path["id"])
    return memories.Memories([memories.MemoryOut.of(record) for record in changed])


ROUTES = (
    Route(
        method="POST",
        path="/api/memories",
        handler=remember,
        access="write",
        reach="scope",
        summary="Store a memory, or many under `memories`.",
        body=memories.Remember,
        reply=(memories.WriteOut, memories.WrittenMany),
        operation="remember",
    ),
    Route(
        method="GET",
        path="/api/memories",
        handler=listing,
        access="read",
        reach="scope",
        summary="List memories, newest first.",
        query=memories.ListQuery,
        reply=memories.Memories,
    ),
    Route(
        method="POST",
        path="/api/memories/search",
        handler=search,
        access="read",
        reach="scope",
        summary="Find the memories that answer a query best.",
        body=memories.SearchBody,
        reply=memories.Hits,
        operation="recall",
    ),
    Route(
        method="GET",
        path="/api/memories/search",
        handler=search,
        access="read",
        reach="scope",
        summary="Find the memories that answer a query best.",
        query=memories.SearchQuery,
        reply=memories.Hits,
        operation="recall",
    ),
    Route(
        method="GET",
        path="/api/memories/{id}",
        handler=show,
        access="read",
        reach="scope",
        summary="Show one memory.",
        query=Scoped,
        reply=memories.MemoryOut,
    ),
    Route(
        method="PATCH",
        path="/api/memories/{id}",
        handler=change,
        access="write",
        reach="scope",
        summary="Change fields of a memory.",
        query=Scoped,
        body=memories.Patch,
        reply=memories.MemoryOut,
    ),
    Route(
        method="DELETE",
        path="/api/memories/{id}",
        handler=forget,
        access="write",
        reach="scope",
        summary="Forget a memory; restore brings it back.",
        query=memories.DeleteQuery,
        reply=memories.Gone,
    ),
    Route(
        method="GET",
        path="/api/memories/{id}/history",
        handler=history,
        access="read",
        reach="scope",
        summary="Show every change of a memory.",
        query=Scoped,
        reply=memories.History,
    ),
    Route(
        method="POST",
        path="/api/memories/{id}/restore",
        handler=restore,
        access="write",
        reach="scope",
        summary="Take back the last change of a memory.",
        query=Scoped,
        reply=memories.Memories,
    ),
    Route(
        method="POST",
        path="/api/memories/{id}/purge",
        handler=purge,
        access="admin",
        reach="scope",
        summary="Erase a memory for good; `confirm` repeats its id.",
        body=memories.Purge,
        reply=memories.Gone,
    ),
)
