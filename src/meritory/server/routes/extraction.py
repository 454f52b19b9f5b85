"""What extraction decided against, and how to get it back."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from meritory.domain.codec import moment_text
from meritory.domain.memory import Kind, Origin, Provenance
from meritory.domain.quality import Refusal
from meritory.engine.quality import refusals
from meritory.server.schemas.memories import MemoryOut
from meritory.server.table import Call, Route, Scoped


class RefusalsQuery(Scoped, kw_only=True):
    """Whose refusals, and which page of them."""

    limit: Annotated[int, Meta(ge=1, le=refusals.REFUSALS_LIMIT_MAX)] = refusals.REFUSALS_LIMIT
    offset: Annotated[int, Meta(ge=0)] = 0


class RefusalOut(msgspec.Struct):
    """A candidate that did not become a memory, and why."""

    id: str
    at: str
    agent: str | None
    project: str | None
    session_key: str | None
    content: str
    kind: Kind
    provenance: Provenance
    origin: Origin
    confidence: float
    turn: str | None
    quote: str
    reason: str
    extractor: str
    memory_id: str | None

    @classmethod
    def of(cls, refusal: Refusal) -> RefusalOut:
        """A refusal, for the wire."""
        return cls(
            id=refusal.id,
            at=moment_text(refusal.at),
            agent=refusal.scope.agent,
            project=refusal.scope.project,
            session_key=refusal.session_key,
            content=refusal.content,
            kind=refusal.kind,
            provenance=refusal.provenance,
            origin=refusal.origin,
            confidence=refusal.confidence,
            turn=refusal.turn,
            quote=refusal.quote,
            reason=refusal.reason,
            extractor=refusal.extractor,
            memory_id=refusal.memory_id,
        )


class RefusalsOut(msgspec.Struct):
    """What was refused and not restored, latest first."""

    results: list[RefusalOut]


def listing(call: Call) -> RefusalsOut:
    """What was refused."""
    query: RefusalsQuery = call.query
    memory = call.memory()
    found = refusals.listing(memory.services, memory.scope.user, query.limit, query.offset)
    return RefusalsOut([RefusalOut.of(one) for one in found])


def show(call: Call) -> RefusalOut:
    """One refusal."""
    memory = call.memory()
    return RefusalOut.of(refusals.show(memory.services, memory.scope.user, call.path["id"]))


def restore(call: Call) -> MemoryOut:
    """A refusal that becomes a memory after all."""
    memory = call.memory()
    return MemoryOut.of(refusals.restore(memory.services, memory.scope.user, call.path["id"]))


ROUTES = (
    Route(
        method="GET",
        path="/api/extraction/refusals",
        handler=listing,
        access="read",
        reach="user",
        summary="List what extraction refused, latest first.",
        query=RefusalsQuery,
        reply=RefusalsOut,
    ),
    Route(
        method="GET",
        path="/api/extraction/refusals/{id}",
        handler=show,
        access="read",
        reach="user",
        summary="Show one refusal with the words it rests on.",
        query=Scoped,
        reply=RefusalOut,
    ),
    Route(
        method="POST",
        path="/api/extraction/refusals/{id}/restore",
        handler=restore,
        access="write",
        reach="user",
        summary="Store what was refused after all.",
        body=Scoped,
        reply=MemoryOut,
    ),
)
