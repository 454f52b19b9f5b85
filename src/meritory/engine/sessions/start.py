"""A session begins: what it is about, what is ranked for it, what it is shown."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from meritory.domain.errors import Busy, NotFound, StorageError
from meritory.domain.memory import MemoryRecord
from meritory.domain.session import Candidate, Event, Injection, SessionMemory, SessionRecord
from meritory.engine.observe.consent import with_question
from meritory.engine.observe.observer import publish
from meritory.engine.pipeline import Stopwatch
from meritory.engine.services import Services
from meritory.engine.sessions.context import StartRequest, known_session, storable, understand
from meritory.engine.sessions.packing import (
    PackedMemories,
    Served,
    ShownMemory,
    as_shown,
    block,
    name_of,
    numbered,
    pack_start,
    standing_line,
)
from meritory.engine.sessions.ranking import Ranked, rank
from meritory.rank.candidates import REQUIRED
from meritory.store.contract.store import Transaction
from meritory.text import render
from meritory.text.tokens import token_estimate

FIRST_INJECTION = 1


def start(services: Services, request: StartRequest) -> Served:
    """Serves a session that begins; one that is known already is told the same again."""
    with services.observer.timed("session_start"):
        try:
            known = known_session(services, request.scope, request.key)
        except NotFound:
            served = begin(services, request)
            if served is not None:
                return served
            known = known_session(services, request.scope, request.key)
        return again(services, known)


def begin(services: Services, request: StartRequest, prompt_count: int = 0) -> Served | None:
    """Serves a session nobody has heard of yet; None when somebody else just began it."""
    watch = Stopwatch(services.world)
    with watch.stage("context"):
        context = understand(services, request)
    ranked = rank(services, request.key, context, watch)
    session = replace(_record(request, ranked), prompt_count=prompt_count)
    with watch.stage("packing"):
        line = standing_line(services, session.user, ranked.state)
        packed, text, shown, injection = compose(services, session, ranked, line)
        if not request.is_elsewhere:
            # The answer is a command, and the file it is about is of this machine.
            text = with_question(services, session, text)
    served = Served(
        key=session.key,
        inject=text,
        injection=injection.code if injection else None,
        memories=shown,
        status_line=line,
        ranking=tuple(candidate.memory_id for candidate in ranked.candidates),
    )
    with watch.stage("record"):
        events = _events(request, ranked, packed)
        work = partial(_put, session, packed.candidates, injection, events)
        is_new, is_recorded = _recorded(services, work)
    services.observer.stages("start", watch.took_ms)
    if is_new and is_recorded:
        publish(services, events)
    return replace(served, is_recorded=is_recorded) if is_new else None


def _record(request: StartRequest, ranked: Ranked) -> SessionRecord:
    context = ranked.context
    return SessionRecord(
        user=request.scope.user,
        key=request.key,
        agent=request.scope.agent,
        project=request.scope.project,
        harness=storable(request.harness) or None,
        cwd=storable(request.cwd) or None,
        started_at=context.now,
        context=context.text,
        has_prompt=context.is_given,
        embedder=context.vector.embedder,
        context_vector=context.vector.vector,
        gap_hours=context.gap_hours,
        alpha=ranked.alpha,
        scorer=ranked.scorer,
        model_version=ranked.model_version,
    )


def compose(
    services: Services, session: SessionRecord, ranked: Ranked, status_line: str
) -> tuple[PackedMemories, str, tuple[ShownMemory, ...], Injection | None]:
    """Chooses the memories that open a session and writes the text around them."""
    empty = replace(
        block(services, session, FIRST_INJECTION),
        status_line=status_line,
        explain=True,
        invite=services.policy.session.invite,
    )
    packed = pack_start(services, ranked, empty)
    handled = numbered(packed.memories, first=session.handle_count + 1)
    full = replace(
        empty,
        memories=tuple(as_shown(handle, record) for handle, record in handled),
        overflow=packed.overflow,
    )
    if not handled and not packed.overflow:
        # Nothing worth saying: nothing is said.
        return packed, "", (), None
    text, token_count = _opening(services, full)
    injection = Injection(
        number=FIRST_INJECTION,
        kind="start",
        turn=session.prompt_count,
        code=full.code,
        at=ranked.context.now,
        token_count=token_count,
        memories=tuple((handle, record.id) for handle, record in handled),
        is_explained=full.ask and bool(handled),
    )
    return packed, text, _shown(handled, packed.candidates), injection


def _opening(services: Services, full: render.Block) -> tuple[str, int]:
    """The text of a block and its tokens; where only names fit, the invitation makes room."""
    text = render.render_start(full)
    token_count = token_estimate(text)
    if token_count > services.policy.session.start_tokens:
        text = render.render_start(replace(full, invite=False))
        token_count = token_estimate(text)
    return text, token_count


def _shown(
    handled: Sequence[tuple[str, MemoryRecord]], candidates: Sequence[Candidate]
) -> tuple[ShownMemory, ...]:
    served = {candidate.memory_id: candidate for candidate in candidates}
    return tuple(
        ShownMemory(handle, record, served[record.id].source, served[record.id].rank)
        for handle, record in handled
    )


def _put(
    session: SessionRecord,
    candidates: Sequence[Candidate],
    injection: Injection | None,
    events: Sequence[Event],
    transaction: Transaction,
) -> bool:
    if not transaction.open_session(session):
        return False
    transaction.put_candidates(session.user, session.key, candidates)
    if injection is not None:
        transaction.put_injection(session.user, session.key, injection)
    transaction.log_events(session.user, events)
    return True


def _recorded(services: Services, work: Callable[[Transaction], bool]) -> tuple[bool, bool]:
    """Whether the session was new, and whether it could be noted down at all."""
    try:
        return services.store.write(work), True
    except (StorageError, Busy) as error:
        # The agent is served all the same; what cannot be kept is counted.
        services.observer.failed("session_record", error)
        return True, False


def _events(request: StartRequest, ranked: Ranked, packed: PackedMemories) -> list[Event]:
    """What the tables do not say: where candidates came from, and what was moved on the way."""
    at, key = ranked.context.now, request.key
    started: dict[str, object] = {
        "injected": len(packed.memories),
        "overflow": len(packed.overflow),
        "has_context": ranked.context.is_given,
        "alpha": ranked.alpha,
        "explored": packed.explored,
    }
    details = {**ranking_details(ranked), "session.start": started}
    return [
        Event(
            at=at,
            category=name.partition(".")[0],
            name=name,
            session_key=key,
            request_id=request.request_id,
            details=told,
        )
        for name, told in details.items()
    ]


def ranking_details(ranked: Ranked) -> dict[str, dict[str, object]]:
    """Return the numbers of a ranking by the name of the event that logs them."""
    sides = Counter(side for one in ranked.candidates for side in one.origins)
    details: dict[str, dict[str, object]] = {
        "predictor.prefilter": {"candidates": len(ranked.candidates), **sides},
        "predictor.diversity": {"lowered": int((ranked.overlaps > 0).sum())},
    }
    if ranked.scorer is not None:
        top = (one.memory_id for one in ranked.candidates if one.predictor_rank == 1)
        details["predictor.score"] = {
            "model": ranked.scorer,
            "model_version": ranked.model_version,
            "count": len(ranked.candidates),
            "top_pick": next(top, None),
            "latency_ms": round(ranked.score_ms, 3),
            "alpha": ranked.alpha,
        }
    return details


def again(services: Services, session: SessionRecord) -> Served:
    """What a session that began already was told; handles, codes and bytes are the same."""
    records = services.store.session_memories(session.user, session.key)
    first = sorted(
        (one for one in records if one.injection == FIRST_INJECTION and not one.is_harmful),
        key=_handle_number,
    )
    left = [one for one in records if REQUIRED in one.candidate.origins and not one.handle]
    live = _live(services, session, [one.memory_id for one in (*first, *left)])
    shown = [(one, live[one.memory_id]) for one in first if one.memory_id in live]
    handled = [(str(one.handle), record) for one, record in shown]
    told = services.store.injections(session.user, session.key)
    begun = block(services, session, FIRST_INJECTION)
    full = replace(
        begun,
        # As it was written down: a store that was moved may have another secret by now.
        code=next((one.code for one in told if one.number == FIRST_INJECTION), begun.code),
        status_line=standing_line(services, session.user),
        explain=True,
        invite=services.policy.session.invite,
        memories=tuple(as_shown(*pair) for pair in handled),
        overflow=tuple(name_of(live[one.memory_id]) for one in left if one.memory_id in live),
    )
    text = _opening(services, full)[0] if full.memories or full.overflow else ""
    return Served(
        key=session.key,
        inject=text,
        injection=full.code if text else None,
        memories=tuple(
            ShownMemory(str(one.handle), record, one.candidate.source, one.candidate.rank)
            for one, record in shown
        ),
        status_line=full.status_line,
        ranking=tuple(one.memory_id for one in records if one.candidate.source != "fts_only"),
        is_recorded=_reopened(services, session, [one for one, _ in shown]),
        scope=session.scope,
    )


def _handle_number(one: SessionMemory) -> int:
    return int((one.handle or "m0")[1:])


def _live(
    services: Services, session: SessionRecord, memory_ids: Sequence[str]
) -> dict[str, MemoryRecord]:
    """Those of the memories that are still there for this session."""
    now = services.world.now()
    found: dict[str, MemoryRecord] = {}
    for memory_id in memory_ids:
        with contextlib.suppress(NotFound):
            record = services.store.get(session.user, memory_id, session.scope)
            if record.is_live and (record.valid_until is None or record.valid_until > now):
                found[memory_id] = record
    return found


def _reopened(services: Services, session: SessionRecord, shown: Sequence[SessionMemory]) -> bool:
    """A session that goes on is open again, and has the same memories before its eyes."""
    if session.state == "open" and all(one.in_context for one in shown):
        return True

    def work(transaction: Transaction) -> bool:
        current = transaction.session(session.user, session.key)
        if current.state != "open":
            transaction.update_session(replace(current, state="open", ended_at=None))
        transaction.restore_context(session.user, session.key, [one.memory_id for one in shown])
        return True

    return _recorded(services, work)[1]
