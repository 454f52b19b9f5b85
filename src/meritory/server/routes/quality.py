"""Quality: figures, merges and their audit, the janitor, rejected extractions, saved probe runs."""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from meritory.domain.codec import prepared
from meritory.domain.errors import NotFound
from meritory.domain.memory import HistoryEntry, MemoryRecord
from meritory.domain.quality import CarriedRefusal, MergeVerdict
from meritory.engine.memories import undo
from meritory.engine.quality import extraction, maintenance, saved_runs
from meritory.engine.quality import figures as quality_figures
from meritory.engine.quality import janitor as sweeping
from meritory.server.table import Call, QueryParams, ReplyShape, Results, Route, Scoped, UserQuery

PAGE_LIMIT, PAGE_LIMIT_MAX = 50, 500
DUE_LIMIT = 500
RUNS_MAX = 100
_ENTRY_DIGITS_MAX = 18

# -- requests ---------------------------------------------------------------------------------

# `before` is the last entry of the previous page.
MergesQuery = UserQuery.plus(
    limit=(Annotated[int, Meta(ge=1, le=PAGE_LIMIT_MAX)], PAGE_LIMIT),
    before=(Annotated[int, Meta(ge=1, le=1 << 62)] | None, None),
    unaudited=(bool, False),
)
RefusalsQuery = Scoped.plus(
    limit=(Annotated[int, Meta(ge=1, le=extraction.REFUSALS_LIMIT_MAX)], extraction.REFUSALS_LIMIT),
    offset=(Annotated[int, Meta(ge=0)], 0),
)
ProbeRunsQuery = QueryParams.plus(limit=(Annotated[int, Meta(ge=1, le=RUNS_MAX)], 20))


class UserBody(UserQuery, kw_only=True):
    """The user; by default the setting `user`."""


class AuditIn(UserBody, kw_only=True):
    """A person's verdict on a merge."""

    verdict: MergeVerdict


class JanitorIn(UserBody, kw_only=True):
    """The janitor's task; by default a dry run."""

    dry_run: bool = True
    undo: bool = False


# -- replies ----------------------------------------------------------------------------------


class MergeOut(
    ReplyShape,
    record=HistoryEntry,
    names="entry memory_id at actor why before other after is_split=undone verdict",
):
    """A merge: both texts, the merged text, and the verdict; of the memories only their texts."""

    before: str | None
    other: str | None
    after: str | None
    verdict: MergeVerdict | None

    @classmethod
    def judged(cls, merge: quality_figures.Merge) -> MergeOut:
        """Return a merge with its verdict."""
        entry = merge.entry
        versions = {name: getattr(entry, name) for name in ("before", "other", "after")}
        texts = {name: record and record.content for name, record in versions.items()}
        return cls.of(entry, verdict=merge.verdict, **texts)


class MergesOut(msgspec.Struct):
    """Merges, newest first; `next` is the last entry of a full page."""

    results: list[MergeOut]
    next: int | None = None


class QualityOut(msgspec.Struct):
    """All quality figures, and the state of maintenance."""

    user: str
    figures: dict[str, Any]
    upkeep: dict[str, Any]


class DueOut(ReplyShape):
    """A memory that a sweep would demote or forget, and the reason; of the memory a summary."""

    memory_id: str
    content: str
    fate: str
    provenance: str
    project: str | None
    idle_since: datetime
    active_months: int
    reason: str


class JanitorOut(msgspec.Struct):
    """The plan of a sweep, or the result of a sweep or of its undo."""

    dry_run: bool
    due: int
    is_cut: bool
    results: list[DueOut]
    demoted: int
    forgotten: int
    restored: int
    erase: dict[str, int]


class RefusalOut(ReplyShape, record=CarriedRefusal):
    """A rejected extraction and the reason, with its scope in the same object."""


class FigureOut(msgspec.Struct):
    """A mean with its interval."""

    mean: float
    low: float
    high: float


class ProbeRunOut(msgspec.Struct, kw_only=True):
    """One saved run, without its single probes."""

    name: str
    at: str
    set_hash: str
    probes: int
    scored: int
    drifted: int
    moved: int
    figures: dict[str, FigureOut]
    latency_ms: dict[str, float] = {}
    tags: dict[str, dict[str, float]] = {}
    settings: dict[str, str] = {}
    memories: int = 0
    embedder: str | None = None
    with_session: bool = False


# -- handlers ---------------------------------------------------------------------------------


def figures(call: Call) -> QualityOut:
    """Show the quality figures and the state of maintenance."""
    services, user = call.whole_user()
    return QualityOut(
        user,
        msgspec.to_builtins(quality_figures.figures(services, user)),
        msgspec.to_builtins(maintenance.status(services, user)),
    )


def list_merges(call: Call) -> MergesOut:
    """List merges with their verdicts."""
    query = call.query
    services, user = call.whole_user()
    if query.unaudited:
        page = quality_figures.unaudited(services, user, query.limit)
        return MergesOut([MergeOut.judged(merge) for merge in page])
    page = quality_figures.merges(services, user, query.limit, before=query.before)
    following = page[-1].entry.entry if len(page) == query.limit else None
    return MergesOut([MergeOut.judged(merge) for merge in page], following)


def mark(call: Call) -> MergeOut:
    """Mark a merge as right or wrong."""
    body: AuditIn = call.body
    entry = _entry(call.path["entry"])
    return MergeOut.judged(quality_figures.mark(*call.whole_user(), entry, body.verdict))


def split(call: Call) -> Results[MemoryRecord]:
    """Split a merge; it counts as wrong from then on."""
    memory = call.user_memory()
    merge = memory.services.store.merge_entry(memory.scope.user, _entry(call.path["entry"]))
    record = memory.get(merge.memory_id)
    return Results(undo.split(memory.services, record, merge.entry))


def _entry(text: str) -> int:
    """Return the number of a history entry; no other text names a merge."""
    if text.isascii() and text.isdigit() and len(text) <= _ENTRY_DIGITS_MAX:
        return int(text)
    raise NotFound(f"there is no merge {text[:40]!r}", hint="GET /api/quality/merges lists them")


def janitor(call: Call) -> JanitorOut:
    """Show the plan of a sweep, sweep, or undo the last sweep."""
    body: JanitorIn = call.body
    services, user = call.whole_user()
    if body.undo:
        _, restored = sweeping.undo_sweep(services, user)
        return JanitorOut(False, 0, False, [], 0, 0, restored, {})
    if not body.dry_run:
        done = sweeping.run_now(services, call.server.engine.works.runner, user)
        return JanitorOut(False, 0, False, [], done.demoted, done.forgotten, 0, {})
    plan = sweeping.plan(services, user)
    names = ("content", "provenance", "project")
    shown = [
        DueOut.of(due, memory_id=due.memory.id, **{n: getattr(due.memory, n) for n in names})
        for due in plan.due[:DUE_LIMIT]
    ]
    erase = {str(what): count for what, count in maintenance.due(services, user).items()}
    return JanitorOut(True, len(plan.due), plan.is_cut, shown, 0, 0, 0, erase)


def list_refusals(call: Call) -> Results[RefusalOut]:
    """List rejected extractions, latest first."""
    services, user = call.whole_user()
    page = services.store.refusals(user, call.query.limit, call.query.offset)
    return Results([RefusalOut.of(refusal) for refusal in page])


def show_refusal(call: Call) -> RefusalOut:
    """Show one rejected extraction with its quote."""
    services, user = call.whole_user()
    return RefusalOut.of(services.store.refusal(user, call.path["id"]))


def restore_refusal(call: Call) -> MemoryRecord:
    """Store a rejected extraction after all."""
    return extraction.restore_refusal(*call.whole_user(), call.path["id"])


def probe_runs(call: Call) -> Results[ProbeRunOut]:
    """List saved probe runs, latest first, without their questions."""
    runs: list[ProbeRunOut] = []
    for run in saved_runs.latest(call.server.settings.home):
        # Skip a file that was edited by hand.
        with contextlib.suppress(msgspec.ValidationError):
            runs.append(msgspec.convert(run, prepared(ProbeRunOut)))
        if len(runs) == call.query.limit:
            break
    return Results(runs)


_MERGES, _REFUSALS = "/api/quality/merges", "/api/extraction/refusals"
_REFUSAL = f"{_REFUSALS}/{{id}}"
ROUTES = (
    Route("GET", "/api/quality", figures, "read", "user", query=UserQuery),
    Route("GET", _MERGES, list_merges, "read", "user", query=MergesQuery),
    Route("POST", f"{_MERGES}/{{entry}}/audit", mark, "write", "user", body=AuditIn),
    Route("POST", f"{_MERGES}/{{entry}}/split", split, "write", "user", body=UserBody),
    Route("POST", "/api/quality/janitor", janitor, "admin", "user", body=JanitorIn),
    Route("GET", "/api/quality/probes", probe_runs, "read", "daemon", query=ProbeRunsQuery),
    Route("GET", _REFUSALS, list_refusals, "read", "user", query=RefusalsQuery),
    Route("GET", _REFUSAL, show_refusal, "read", "user", query=Scoped),
    Route("POST", f"{_REFUSAL}/restore", restore_refusal, "write", "user", body=Scoped),
)
