"""The start of a session: packing and recording what it is shown, and resuming it later."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np

from meritory.domain.errors import Busy, NotFound, StorageError
from meritory.domain.memory import MemoryRecord
from meritory.domain.session import Injection, SessionRecord
from meritory.engine.memories.chains import dates_of
from meritory.engine.observe.observer import make_events, publish
from meritory.engine.predictor.state import state_of, status_line
from meritory.engine.services import Services
from meritory.engine.sessions import packing
from meritory.engine.sessions.context import storable
from meritory.engine.sessions.packing import Served, ShownMemory
from meritory.engine.sessions.ranking import Ranking
from meritory.rank.hybrid import REQUIRED
from meritory.store.contract.store import Transaction
from meritory.text import render
from meritory.text.tokens import token_estimate

FIRST_INJECTION = 1


@dataclass(slots=True)
class SessionRun(Ranking):
    """A session start under way: its ranking, and what becomes of that."""

    prompt_count: int = 0
    # Stage packing.
    session: SessionRecord = field(init=False)
    packed: packing.PackedMemories = field(init=False)
    injection: Injection | None = field(default=None, init=False)
    served: Served = field(init=False)
    # Stage record. Not new: another process began the session in the meantime.
    is_new: bool = field(default=True, init=False)
    is_recorded: bool = field(default=False, init=False)


def pack_opening(run: SessionRun) -> None:
    """Choose the memories that open the session and write the text around them."""
    services, request, context = run.services, run.request, run.context
    policy = services.policy.session
    if request.barred:
        is_open = np.array([one.memory_id not in request.barred for one in run.candidates], bool)
        run.is_worth, run.required = run.is_worth & is_open, run.required & is_open
    run.session = session = SessionRecord(
        user=request.scope.user,
        key=request.key,
        agent=request.scope.agent,
        project=request.scope.project,
        harness=storable(request.harness) or None,
        cwd=storable(request.cwd) or None,
        started_at=context.now,
        gap_hours=context.gap_hours,
        prompt_count=run.prompt_count,
        **run.session_fields(),
    )
    empty = replace(
        packing.empty_block(services.store, services.policy.predictor, session, FIRST_INJECTION),
        status_line=status_line(services, session.user, run.state, session.project),
        explain=True,
        invite=services.invites(session.harness),
    )
    run.packed = packed = packing.pack_start(run, empty)
    handled = packing.numbered(packed.memories, first=1)
    text = _render_opening(empty, policy.start_tokens)[0] if empty.invite else ""
    if handled or packed.overflow:
        memories = packing.as_shown(handled, packed.dates)
        full = replace(empty, memories=memories, overflow=packed.overflow)
        text, token_count = _render_opening(full, policy.start_tokens)
        run.injection = Injection(
            number=FIRST_INJECTION,
            kind="start",
            turn=session.prompt_count,
            code=full.code,
            at=context.now,
            token_count=token_count,
            memories=tuple((handle, record.id) for handle, record in handled),
            is_explained=full.ask and bool(handled),
            is_delivered=not request.awaits_receipt,
        )
    candidates = {candidate.memory_id: candidate for candidate in packed.candidates}
    run.served = Served(
        key=session.key,
        inject=text,
        injection=run.injection.code if run.injection else None,
        memories=tuple(
            ShownMemory(handle, record, candidates[record.id].source, candidates[record.id].rank)
            for handle, record in handled
        ),
        status_line=empty.status_line,
        ranking=tuple(candidate.memory_id for candidate in run.candidates),
    )


def _render_opening(full: render.Block, limit_tokens: int) -> tuple[str, int]:
    """Return the text of a block and its tokens, without the invitation if that is too long."""
    text = render.render_start(full)
    token_count = token_estimate(text)
    if token_count > limit_tokens:
        text = render.render_start(replace(full, invite=False))
        token_count = token_estimate(text)
    return text, token_count


def record_start(run: SessionRun) -> None:
    """Store the session with every candidate and number as served, in one transaction."""
    services, session, injection = run.services, run.session, run.injection
    details: dict[str, dict[str, object]] = {
        **ranking_details(run),
        "session.start": {
            "injected": len(run.packed.memories),
            "overflow": len(run.packed.overflow),
            "has_context": run.context.is_given,
            "alpha": run.alpha,
            "explored": run.packed.explored,
        },
    }
    events = make_events(details, run.context.now, session.key, run.request.request_id)

    def work(transaction: Transaction) -> bool:
        if not transaction.open_session(session):
            return False
        transaction.put_candidates(session.user, session.key, run.packed.candidates)
        if injection is not None:
            transaction.put_injection(session.user, session.key, injection)
        transaction.log_events(session.user, events)
        return True

    run.is_new = services.store.write(session.user, work)
    run.is_recorded = True
    if run.is_new:
        publish(services, events)


def ranking_details(run: Ranking) -> dict[str, dict[str, object]]:
    """Return the numbers of a ranking by the name of the event that logs them."""
    sources = Counter(name for candidate in run.candidates for name in candidate.origins)
    details: dict[str, dict[str, object]] = {
        "predictor.prefilter": {
            "corpus": run.pool.gathered.corpus_count,
            "candidates": len(run.candidates),
            **sources,
        },
        "predictor.diversity": {"lowered": int((run.overlaps > 0).sum())},
    }
    if run.scorer is not None:
        top = (one.memory_id for one in run.candidates if one.predictor_rank == 1)
        details["predictor.score"] = {
            "model": run.scorer,
            "model_version": run.model_version,
            "count": len(run.candidates),
            "top_pick": next(top, None),
            "latency_ms": round(run.took_ms["predictor"], 3),
            "alpha": run.alpha,
        }
    return details


# -- a session that exists already ----------------------------------------------------------


def resume(services: Services, session: SessionRecord, awaits_receipt: bool = False) -> Served:
    """Return the block a session began with: the same handles, code and bytes."""
    store, policy = services.store, services.policy.session
    records = {one.memory_id: one for one in store.session_memories(session.user, session.key)}
    opening = next((o for o in store.injections(session.user, session.key) if _is_first(o)), None)
    # By id: what the block showed, and what it offers still.
    handles = {
        one.memory_id: str(one.handle)
        for one in records.values()
        if one.injection == FIRST_INJECTION
    }
    for handle, memory_id in opening.memories if opening else ():
        if memory_id in records and records[memory_id].handle is None:
            handles[memory_id] = handle
    first = [one for one in handles if not records[one].is_harmful]
    first.sort(key=lambda memory_id: int(handles[memory_id][1:]))
    left = [
        one.memory_id
        for one in records.values()
        if REQUIRED in one.candidate.origins and not one.handle and one.memory_id not in handles
    ]
    live = live_memories(services, session, [*first, *left])
    shown = [(handles[one], live[one], records[one]) for one in first if one in live]
    records_shown = [record for _, record, _ in shown]
    dates = dates_of(store, session.scope, records_shown, session.context, services.world.now())
    block = packing.empty_block(store, services.policy.predictor, session, FIRST_INJECTION)
    full = replace(
        block,
        # As recorded: a store that was moved may have another secret now.
        code=opening.code if opening else block.code,
        status_line=status_line(
            services, session.user, state_of(services, session.user), session.project
        ),
        explain=True,
        invite=services.invites(session.harness),
        memories=packing.as_shown(((handle, record) for handle, record, _ in shown), dates),
        overflow=tuple(packing.short_name(live[one]) for one in left if one in live),
    )
    text = ""
    has_notes = bool(full.memories or full.overflow)
    if has_notes or full.invite:
        text, _ = _render_opening(full, policy.start_tokens)
    is_recorded = True
    if session.state != "open" or not all(one.in_context for _, _, one in shown):
        offer = [(handle, record.id) for handle, record, _ in shown]
        is_recorded = _reopen(services, session, full.code, offer, awaits_receipt)
    return Served(
        key=session.key,
        inject=text,
        injection=full.code if has_notes else None,
        memories=tuple(
            ShownMemory(handle, record, one.candidate.source, one.candidate.rank)
            for handle, record, one in shown
        ),
        status_line=full.status_line,
        ranking=tuple(
            one.memory_id for one in records.values() if one.candidate.source != "fts_only"
        ),
        is_recorded=is_recorded,
        scope=session.scope,
    )


def _is_first(injection: Injection) -> bool:
    return injection.number == FIRST_INJECTION


def live_memories(
    services: Services, session: SessionRecord, memory_ids: list[str]
) -> dict[str, MemoryRecord]:
    """Return the memories that the session may still see, by id."""
    now = services.world.now()
    live: dict[str, MemoryRecord] = {}
    for memory_id in memory_ids:
        with contextlib.suppress(NotFound):
            record = services.store.get(session.user, memory_id, session.scope)
            if record.is_live and (record.valid_until is None or record.valid_until > now):
                live[memory_id] = record
    return live


def _reopen(
    services: Services,
    session: SessionRecord,
    code: str,
    offer: list[tuple[str, str]],
    awaits_receipt: bool,
) -> bool:
    """Open a session again and offer its first block; return whether that was recorded."""

    def work(transaction: Transaction) -> None:
        current = transaction.session(session.user, session.key)
        if current.state != "open":
            transaction.update_session(replace(current, state="open", ended_at=None))
        transaction.offer_again(session.user, session.key, FIRST_INJECTION, offer)
        if not awaits_receipt:
            transaction.deliver(session.user, session.key, code)

    try:
        services.store.write(session.user, work)
    except (StorageError, Busy) as error:
        services.observer.failed("session_record", error)
        return False
    return True
