"""Quality: the figures, the merges with what people say of them, and the janitor."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from meritory.api.memory import Memory
from meritory.domain.codec import moment_text
from meritory.domain.errors import NotFound
from meritory.domain.quality import MergeVerdict
from meritory.engine.memories import undo
from meritory.engine.quality import figures as quality_figures
from meritory.engine.quality import janitor as sweeping
from meritory.engine.quality import maintenance, retention
from meritory.engine.quality.figures import Merge
from meritory.engine.quality.janitor import Due
from meritory.server.schemas import memories
from meritory.server.schemas.sessions import UserQuery
from meritory.server.table import Call, Route

PAGE_LIMIT, PAGE_LIMIT_MAX = 50, 500
DUE_LIMIT = 500
_ENTRY_DIGITS_MAX = 18


class MergesQuery(UserQuery, kw_only=True):
    """Which merges; `before` goes on behind the last entry of a page."""

    limit: Annotated[int, Meta(ge=1, le=PAGE_LIMIT_MAX)] = PAGE_LIMIT
    before: Annotated[int, Meta(ge=1, le=1 << 62)] | None = None
    unaudited: bool = False


class UserBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Whose it is; without a user it is the setting `user`."""

    user: str | None = None


class AuditIn(UserBody, kw_only=True):
    """What a person says about a merge."""

    verdict: MergeVerdict


class JanitorIn(UserBody, kw_only=True):
    """What the janitor is to do; without anything it only says what it would do."""

    dry_run: bool = True
    undo: bool = False


class MergeOut(msgspec.Struct):
    """One merge: both texts, what became of them, and what was said about it."""

    entry: int
    memory_id: str
    at: str
    actor: str
    why: str
    before: str | None
    other: str | None
    after: str | None
    is_split: bool
    verdict: MergeVerdict | None

    @classmethod
    def of(cls, one: Merge) -> MergeOut:
        """A merge for the wire."""
        entry = one.entry
        return cls(
            entry.entry,
            entry.memory_id,
            moment_text(entry.at),
            entry.actor,
            entry.why,
            None if entry.before is None else entry.before.content,
            None if entry.other is None else entry.other.content,
            None if entry.after is None else entry.after.content,
            entry.undone,
            one.verdict,
        )


class MergesOut(msgspec.Struct):
    """Merges, newest first; `next` goes on behind the last of a full page."""

    results: list[MergeOut]
    next: int | None = None


class SplitOut(msgspec.Struct):
    """The memories that a merge was taken apart into."""

    results: list[memories.MemoryOut]


class QualityOut(msgspec.Struct):
    """Every figure of quality, and how upkeep stands."""

    user: str
    figures: dict[str, Any]
    upkeep: dict[str, Any]


class DueOut(msgspec.Struct):
    """A memory that a sweep would demote or forget, and why."""

    memory_id: str
    content: str
    fate: str
    provenance: str
    project: str | None
    idle_since: str
    active_months: int
    reason: str

    @classmethod
    def of(cls, one: Due) -> DueOut:
        """One that is due, for the wire."""
        return cls(
            one.memory.id,
            one.memory.content,
            one.fate,
            one.memory.provenance,
            one.memory.project,
            moment_text(one.idle_since),
            one.active_months,
            one.reason,
        )


class JanitorOut(msgspec.Struct):
    """What a sweep would do, or what it did or took back."""

    dry_run: bool
    due: int
    is_cut: bool
    results: list[DueOut]
    demoted: int
    forgotten: int
    restored: int
    erase: dict[str, int]


def figures(call: Call) -> QualityOut:
    """Every figure."""
    memory = _memory(call)
    user = memory.scope.user
    found = quality_figures.figures(memory.services, user)
    return QualityOut(user, asdict(found), asdict(maintenance.status(memory.services, user)))


def merges(call: Call) -> MergesOut:
    """The merges."""
    query: MergesQuery = call.query
    memory = _memory(call)
    services, user = memory.services, memory.scope.user
    if query.unaudited:
        found = quality_figures.unaudited(services, user, query.limit)
        return MergesOut([MergeOut.of(one) for one in found])
    found = quality_figures.merges(services, user, query.limit, before=query.before)
    is_full = len(found) == query.limit
    return MergesOut(
        [MergeOut.of(one) for one in found], found[-1].entry.entry if is_full else None
    )


def mark(call: Call) -> MergeOut:
    """A merge is right or wrong."""
    body: AuditIn = call.body
    memory = _memory(call)
    entry = _entry(call.path["entry"])
    return MergeOut.of(
        quality_figures.mark(memory.services, memory.scope.user, entry, body.verdict)
    )


def split(call: Call) -> SplitOut:
    """A merge taken apart, which also says that it was wrong."""
    memory = _memory(call)
    known = memory.services.store.merge_entry(memory.scope.user, _entry(call.path["entry"]))
    record = memory.get(known.memory_id)
    changed = undo.split(memory.services, record, known.entry)
    return SplitOut([memories.MemoryOut.of(one) for one in changed])


def janitor(call: Call) -> JanitorOut:
    """What a sweep would do, a sweep, or the undoing of one."""
    body: JanitorIn = call.body
    memory = _memory(call)
    services, user = memory.services, memory.scope.user
    if body.undo:
        _, restored = sweeping.undo_sweep(services, user)
        return JanitorOut(False, 0, False, [], 0, 0, restored, {})
    if not body.dry_run:
        done = sweeping.run_now(services, memory.works.runner, user)
        return JanitorOut(False, 0, False, [], done.demoted, done.forgotten, 0, {})
    found = sweeping.plan(services, user)
    erase = {str(what): many for what, many in retention.due(services, user).items()}
    shown = [DueOut.of(one) for one in found.due[:DUE_LIMIT]]
    return JanitorOut(True, len(found.due), found.is_cut, shown, 0, 0, 0, erase)


def _memory(call: Call) -> Memory:
    named = call.query.user if call.body is None else call.body.user
    return call.view(named)


def _entry(text: str) -> int:
    """The number of a history entry; anything else names no merge."""
    if text.isascii() and text.isdigit() and len(text) <= _ENTRY_DIGITS_MAX:
        return int(text)
    raise NotFound(f"there is no merge {text[:40]!r}", hint="GET /api/quality/merges lists them")


ROUTES = (
    Route(
        method="GET",
        path="/api/quality",
        handler=figures,
        access="read",
        reach="user",
        summary="Show the quality figures and how upkeep stands.",
        query=UserQuery,
        reply=QualityOut,
    ),
    Route(
        method="GET",
        path="/api/quality/merges",
        handler=merges,
        access="read",
        reach="user",
        summary="List merges with what was said about them.",
        query=MergesQuery,
        reply=MergesOut,
    ),
    Route(
        method="POST",
        path="/api/quality/merges/{entry}/audit",
        handler=mark,
        access="write",
        reach="user",
        summary="Say whether a merge was right or wrong.",
        body=AuditIn,
        reply=MergeOut,
    ),
    Route(
        method="POST",
        path="/api/quality/merges/{entry}/split",
        handler=split,
        access="write",
        reach="user",
        summary="Take a merge apart; it counts as wrong from then on.",
        body=UserBody,
        reply=SplitOut,
    ),
    Route(
        method="POST",
        path="/api/quality/janitor",
        handler=janitor,
        access="admin",
        reach="user",
        summary="Show what a sweep would do, sweep, or take a sweep back.",
        body=JanitorIn,
        reply=JanitorOut,
    ),
)
