"""A prompt in a running session: what it is answered, and what is recorded of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from meritory.domain.errors import Busy, Conflict, InputError, NotFound, StorageError
from meritory.domain.memory import MemoryRecord, Scope
from meritory.domain.policy import SessionPolicy
from meritory.domain.session import Event, Injection, SessionRecord, ShownRow, Turn
from meritory.engine.observe.observer import publish
from meritory.engine.pipeline import Stopwatch
from meritory.engine.services import Services
from meritory.engine.sessions import ratings
from meritory.engine.sessions.context import StartRequest, known_session, storable
from meritory.engine.sessions.packing import (
    Served,
    ShownMemory,
    as_shown,
    block,
    name_of,
    numbered,
    pack,
    standing_line,
)
from meritory.engine.sessions.prompt_candidates import PromptCandidates, call_to_mind
from meritory.engine.sessions.start import begin, ranking_details
from meritory.rank import packing as rank_packing
from meritory.rank.candidates import REQUIRED
from meritory.store.contract.store import Transaction
from meritory.text import render
from meritory.text.tokens import token_estimate

# Of all prompts of one session at the same moment one is recorded; the others try again.
_TRIES = 12


@dataclass(frozen=True, slots=True)
class PromptRequest:
    """What the user typed, and what came along with it."""

    key: str
    scope: Scope
    prompt: str
    harness: str | None = None
    cwd: str | None = None
    # By handle or memory id, from harnesses that can hand ratings over.
    feedback: object = None
    # The conversation so far, for ratings that no other road has brought.
    transcript: tuple[Turn, ...] = ()
    request_id: str | None = None
    # Whether the harness shows the agent nothing of what is answered.
    is_silent: bool = False
    is_elsewhere: bool = False


def prompt(services: Services, request: PromptRequest) -> Served:
    """Serves a prompt; a session that was never started begins with it."""
    with services.observer.timed("user_prompt_submit"):
        for _ in range(_TRIES - 1):
            try:
                return _prompt(services, request)
            except _Overtaken:
                continue
        return _prompt(services, request)


class _Overtaken(Conflict):
    """Another prompt of the same session was recorded first: the numbers are taken."""


def _prompt(services: Services, request: PromptRequest) -> Served:
    if not isinstance(request.prompt, str):
        raise InputError(f"a prompt must be text, not {type(request.prompt).__name__}")
    text = storable(request.prompt)
    try:
        session = known_session(services, request.scope, request.key)
    except NotFound:
        return _begin_with(services, request)
    if session.state != "open":
        raise _ended(session)
    watch = Stopwatch(services.world)
    shown = services.store.shown(session.user, session.key)
    with watch.stage("recall"):
        answer = call_to_mind(services, session, text, shown)
    if request.is_silent:
        answer, shown = replace(answer, memories=()), []
    with watch.stage("packing"):
        served, injection = _compose(services, answer, shown)
    with watch.stage("record"):
        is_recorded = _record(services, request, answer, injection)
    services.observer.stages("prompt", watch.took_ms)
    return replace(served, is_recorded=is_recorded)


def _ended(session: SessionRecord) -> Conflict:
    return Conflict(f"the session {session.key[:80]!r} has ended", hint="start it again first")


def _begin_with(services: Services, request: PromptRequest) -> Served:
    """A prompt of an unknown session: the daemon may have been down when it began."""
    start = StartRequest(
        request.key,
        request.scope,
        request.prompt,
        request.harness,
        request.cwd,
        request.request_id,
        request.is_elsewhere,
    )
    served = begin(services, start, prompt_count=1)
    if served is None:
        raise _Overtaken(f"session {request.key[:80]!r} began meanwhile", hint="try again")
    return served


# -- what is shown and kept -------------------------------------------------------------------


def _compose(
    services: Services, answer: PromptCandidates, shown: Sequence[ShownRow]
) -> tuple[Served, Injection | None]:
    session, policy = answer.session, services.policy.session
    number = session.injection_count + 1
    earlier = tuple(one.handle for one in shown if not one.is_harmful)
    line = standing_line(services, session.user)
    empty = replace(
        block(services, session, number),
        earlier=earlier,
        explain=not session.is_explained,
        status_line=line,
    )
    chosen, left = _fitting(answer, empty, policy)
    handled = _handled(chosen, shown, session.handle_count)
    full = replace(
        empty,
        memories=tuple(as_shown(*pair) for pair in handled),
        overflow=_unnamed(services, session, left),
    )
    has_news = bool(handled or full.overflow)
    text = render.render_prompt(full) if has_news or (earlier and empty.ask) else ""
    source: dict[str, tuple[str, int]] = {
        one.memory_id: (one.source, one.rank) for one in answer.candidates
    }
    if answer.ranked is None:
        # One that is shown again stands where it stood.
        source |= {one.memory_id: (one.source, one.rank) for one in shown}
    served = Served(
        key=session.key,
        inject=text,
        injection=full.code if text else None,
        memories=tuple(
            ShownMemory(handle, record, *source[record.id]) for handle, record in handled
        ),
        status_line=line,
        ranking=tuple(one.memory_id for one in answer.candidates) if answer.ranked else (),
    )
    if not text:
        return served, None
    injection = Injection(
        number=number,
        kind="prompt",
        turn=session.prompt_count,
        code=full.code,
        at=services.world.now(),
        token_count=token_estimate(text),
        memories=tuple((handle, record.id) for handle, record in handled),
        is_explained=full.ask and bool(handled or earlier),
    )
    return served, injection


def _fitting(
    answer: PromptCandidates, empty: render.Block, policy: SessionPolicy
) -> tuple[list[MemoryRecord], list[MemoryRecord]]:
    """What is shown, and what should be and does not fit."""
    costs = [render.cost(as_shown("m999", record)) for record in answer.memories]
    packing = pack(
        range(len(costs)),
        rank_packing.Load(
            [cost.tokens for cost in costs],
            [cost.chars for cost in costs],
            [record.id in answer.required for record in answer.memories],
        ),
        rank_packing.Limits(
            tokens=max(0, policy.prompt_tokens - render.overhead_tokens(empty, start=False)),
            chars=render.MEMORIES_LIMIT_CHARS,
            count=policy.prompt_limit,
        ),
    )
    sides = packing.chosen, packing.overflow
    chosen, left = ([answer.memories[place] for place in side] for side in sides)
    return chosen, left


def _unnamed(
    services: Services, session: SessionRecord, left: Sequence[MemoryRecord]
) -> tuple[str, ...]:
    """The names of what does not fit, unless the agent was told before."""
    if not left:
        return ()
    known = {
        one.memory_id
        for one in services.store.session_memories(session.user, session.key)
        if REQUIRED in one.candidate.origins
    }
    return tuple(name_of(record) for record in left if record.id not in known)


def _handled(
    memories: Sequence[MemoryRecord], shown: Sequence[ShownRow], handle_count: int
) -> list[tuple[str, MemoryRecord]]:
    """A memory shown again after a compaction keeps its handle."""
    known = {one.memory_id: one.handle for one in shown}
    fresh = numbered([one for one in memories if one.id not in known], handle_count + 1)
    handles = {**known, **{record.id: handle for handle, record in fresh}}
    return [(handles[record.id], record) for record in memories]


def _record(
    services: Services,
    request: PromptRequest,
    answer: PromptCandidates,
    injection: Injection | None,
) -> bool:
    session = answer.session
    # What comes along with a prompt is about the reply before it.
    before = replace(session, prompt_count=session.prompt_count - 1)
    ballot = ratings.Ballot(services, before) if request.feedback or request.transcript else None

    events = _events(services, request, answer, injection)

    def work(transaction: Transaction) -> None:
        user, key = session.user, session.key
        current = transaction.session(user, key)
        if current.state != "open":
            raise _ended(session)
        if current.prompt_count != session.prompt_count - 1:
            raise _Overtaken(f"two prompts of session {key[:80]!r} at once", hint="try again")
        transaction.update_session(_went_on(current, session))
        if ballot is not None:
            found = ballot.from_mapping(request.feedback, "field")
            # Told with every prompt: what is refused of it was refused before.
            late = replace(ballot.from_transcript(request.transcript), refused=())
            ratings.put(transaction, session, found + late)
        if answer.ranked is not None:
            transaction.put_candidates(user, key, answer.candidates)
        shown = {memory_id for _, memory_id in injection.memories} if injection else set()
        wanted = shown | answer.required
        fresh = [one for one in answer.candidates if one.memory_id in wanted]
        transaction.add_candidates(user, key, fresh)
        transaction.add_hits(user, key, answer.hits)
        if injection is not None:
            transaction.put_injection(user, key, injection)
        transaction.log_events(user, events)

    try:
        services.store.write(work)
    except (StorageError, Busy) as error:
        # The agent is served all the same; what cannot be kept is counted.
        services.observer.failed("prompt_record", error)
        return False
    publish(services, events)
    return True


def _events(
    services: Services,
    request: PromptRequest,
    answer: PromptCandidates,
    injection: Injection | None,
) -> list[Event]:
    """Return the event of a prompt, after those of the ranking that it may have caused."""
    details = {} if answer.ranked is None else ranking_details(answer.ranked)
    details["session.prompt"] = {
        "turn": answer.session.prompt_count,
        "hits": len(answer.hits),
        "shown": len(injection.memories) if injection else 0,
        "reranked": answer.ranked is not None,
    }
    now = services.world.now()
    return [
        Event(
            at=now,
            category=name.partition(".")[0],
            name=name,
            session_key=request.key,
            request_id=request.request_id,
            details=told,
        )
        for name, told in details.items()
    ]


def _went_on(current: SessionRecord, session: SessionRecord) -> SessionRecord:
    """The session as it is stored, with what a prompt changes in it."""
    return replace(
        current,
        prompt_count=session.prompt_count,
        context=session.context,
        has_prompt=session.has_prompt,
        embedder=session.embedder,
        context_vector=session.context_vector,
        alpha=session.alpha,
        scorer=session.scorer,
        model_version=session.model_version,
    )
