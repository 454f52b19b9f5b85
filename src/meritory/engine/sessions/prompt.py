"""A prompt in a running session: selecting, packing and recording what it is shown."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from meritory.domain.errors import Conflict, InputError, NotFound
from meritory.domain.feedback import MISLED_USEFULNESS
from meritory.domain.memory import MemoryRecord, Scope
from meritory.domain.policy import SessionPolicy
from meritory.domain.predictor import RankedSearch
from meritory.domain.session import Candidate, Injection, SessionRecord, ShownRow, Turn
from meritory.engine.memories.chains import (
    dates_of,
    earlier_values,
    newer_first,
    present_values,
    unsure_values,
)
from meritory.engine.memories.learned import FormulaOrder, learned_order, with_shown
from meritory.engine.memories.order import match_pool, pool_scores
from meritory.engine.memories.question import read_question
from meritory.engine.memories.recall import order_in_time
from meritory.engine.observe.observer import make_events, publish
from meritory.engine.predictor.state import known_state, status_line
from meritory.engine.services import Services
from meritory.engine.sessions import packing, ratings
from meritory.engine.sessions.context import (
    StartRequest,
    clean,
    find_known_session,
    is_stored_by,
    storable,
)
from meritory.engine.sessions.delivery import is_offered_again
from meritory.engine.sessions.packing import Served, ShownMemory
from meritory.engine.sessions.ranking import Ranking
from meritory.engine.sessions.start import live_memories, ranking_details
from meritory.rank import hybrid
from meritory.rank import packing as rank_packing
from meritory.rank.hybrid import REQUIRED
from meritory.store.contract.memories import SearchPool
from meritory.store.contract.store import Transaction
from meritory.text import render
from meritory.text.entities import keys_in_play
from meritory.text.extract.attribution import TYPED_LIMIT_CHARS
from meritory.text.normalize import canonical
from meritory.text.time import asks_about_now, asks_about_past
from meritory.text.tokens import token_estimate

# A note is named in this many rating requests at most, from the one that shows it.
ASKED_LIMIT_COUNT = 3
# Hits are searched among this many of the best matches by words.
HIT_LIMIT = 20
# This many more memories are read than may be shown, because not all of the best fit together.
_SPARE = 4


@dataclass(frozen=True, slots=True)
class PromptRequest:
    """A prompt of the user, as the harness reports it."""

    key: str
    scope: Scope
    prompt: str
    harness: str | None = None
    cwd: str | None = None
    # Ratings by handle or memory id, from harnesses that can pass them on.
    feedback: object = None
    # The conversation so far, for ratings that arrived on no other channel.
    transcript: tuple[Turn, ...] = ()
    request_id: str | None = None
    # Whether the harness shows the agent nothing of the reply.
    is_silent: bool = False
    # Whether the caller reports later that the text has reached the agent.
    awaits_receipt: bool = False
    # Memories that the agent gets in the same reply, or has got though that was not recorded.
    barred: frozenset[str] = frozenset()
    # The user's own words in the prompt, from a hook of a harness.
    typed: str | None = None

    def as_start(self) -> StartRequest:
        """Return the start of a session that begins with this prompt."""
        return StartRequest(
            self.key,
            self.scope,
            self.prompt,
            self.harness,
            self.cwd,
            self.request_id,
            self.awaits_receipt,
            self.barred,
        )


@dataclass(slots=True)
class PromptRun:
    """A prompt under way: what is known about it, and what each stage has added so far."""

    services: Services
    request: PromptRequest
    # The session with this prompt counted.
    session: SessionRecord
    # The prompt as it may be stored.
    text: str
    shown: Sequence[ShownRow]
    took_ms: dict[str, float] = field(default_factory=dict, init=False)
    # Stage recall: memories that may be shown, best first. The first prompt of a session that
    # began without a context makes a new ranking.
    ranking: Ranking | None = field(default=None, init=False)
    memories: tuple[MemoryRecord, ...] = field(default=(), init=False)
    candidates: tuple[Candidate, ...] = field(default=(), init=False)
    required: frozenset[str] = field(default=frozenset(), init=False)
    hits: tuple[str, ...] = field(default=(), init=False)
    # All that matches a prompt about the past, best first, with what is in context already.
    matches: tuple[MemoryRecord, ...] = field(default=(), init=False)
    # How the matches were ranked, to be recorded.
    search: RankedSearch | None = field(default=None, init=False)
    # Stage packing.
    # When the earlier values that a prompt about the past gets gave way to the next ones.
    ended: dict[str, datetime] = field(default_factory=dict, init=False)
    served: Served = field(init=False)
    injection: Injection | None = field(default=None, init=False)
    # Stage record.
    is_recorded: bool = field(default=False, init=False)

    @property
    def barred(self) -> set[str]:
        """Return the ids of memories that are in context already, or did harm."""
        shown = {row.memory_id for row in self.shown if row.in_context or row.is_harmful}
        return shown | self.request.barred

    @property
    def read_count(self) -> int:
        """Return how many memories to read for the prompt."""
        return self.services.policy.session.prompt_limit + _SPARE


class PromptOvertaken(Conflict):
    """Another prompt of the same session was recorded first, so the numbers are taken."""


def session_ended(session: SessionRecord) -> Conflict:
    """Return the error for a prompt of a session that has ended."""
    return Conflict(f"session {session.key[:80]!r} has ended", hint="start it again first")


def open_prompt(services: Services, request: PromptRequest) -> PromptRun | None:
    """Return the run of a prompt; None if its session is unknown."""
    if not isinstance(request.prompt, str):
        raise InputError(f"a prompt must be text, not {type(request.prompt).__name__}")
    session = find_known_session(services.store, request.scope, request.key)
    if session is None:
        return None
    if session.state != "open":
        raise session_ended(session)
    counted = replace(session, prompt_count=session.prompt_count + 1)
    shown = services.store.shown(session.user, session.key)
    return PromptRun(services, request, counted, storable(request.prompt), shown)


# -- recall: the memories that may be shown ---------------------------------------------------


def new_ranking(run: PromptRun) -> Ranking | None:
    """Return the ranking to make for the first prompt of a session that began without one.

    A session that was judged already is not ranked again, as its own outcome would rank it.
    """
    session = run.session
    if session.has_prompt or not run.text.strip():
        return None
    if run.services.store.session_score(session.user, session.key) is not None:
        return None
    request = StartRequest(session.key, session.scope, run.text, cwd=session.cwd)
    return Ranking(run.services, request)


def select_ranked(run: PromptRun, ranking: Ranking) -> None:
    """Select the best of a new ranking that are not in context yet."""
    context, barred = ranking.context, run.barred
    run.ranking = ranking
    run.session = replace(run.session, **ranking.session_fields())
    worth = [
        index
        for index in np.flatnonzero(ranking.is_worth).tolist()
        if ranking.candidates[index].memory_id not in barred
    ]
    required = [index for index in worth if ranking.required[index]]
    optional = [index for index in worth if not ranking.required[index]]
    rows = ranking.rows[[*required, *optional[: run.read_count]]]
    records = run.services.store.fetch(run.session.scope, rows, context.now)
    found = (records[row] for row in rows.tolist() if row in records)
    run.memories = tuple(one for one in found if not is_stored_by(run.session, one))
    if asks_about_past(run.text):
        matching = ranking.rows[ranking.is_worth][: run.read_count]
        records = run.services.store.fetch(run.session.scope, matching, context.now)
        run.matches = tuple(records[row] for row in matching.tolist() if row in records)
    run.candidates = ranking.candidates
    run.required = frozenset(ranking.candidates[index].memory_id for index in required)


def select_recalled(run: PromptRun) -> None:
    """Select memories by the words and the meaning of the prompt; note which ones it names."""
    services, session, text = run.services, run.session, run.text
    if not text.strip():
        # A picture, or nothing: there is nothing to search by.
        return
    now = services.world.now()
    question = read_question(services, session.scope, text)
    pool = services.store.search(
        question.search(session.scope, hit_limit=HIT_LIMIT, injectable_at=now)
    )
    weight = hybrid.source_weight(
        pool.provenance, pool.confidence, pool.demotion, services.policy.ranking
    )
    match = match_pool(services, session.scope, question, pool, weight)
    final = pool_scores(services, pool, weight, match)
    near = near_prompt(pool, weight, final, services.policy.recall.relevance_floor)
    formula = FormulaOrder("prompt", pool, match, weight, final, near)
    learned = learned_order(services, session.scope, formula, is_recorded=True)
    run.search, final = learned.record, learned.scores
    near = near[np.argsort(-final[near], kind="stable")]
    rows = pool.rows[near]
    score_of = dict(zip(rows.tolist(), final[near].tolist(), strict=True))
    required = _required(run)
    barred = run.barred | {record.id for record in required}
    matches: dict[int, MemoryRecord] = {}
    fresh: dict[int, MemoryRecord] = {}
    # Memories in context may be among the best: read on behind them.
    for first in range(0, len(rows), run.read_count):
        part = rows[first : first + run.read_count]
        records = services.store.fetch(session.scope, part, now)
        matches |= {row: records[row] for row in part.tolist() if row in records}
        fresh = {
            row: one
            for row, one in matches.items()
            if one.id not in barred and not is_stored_by(session, one) and not has_misled(one)
        }
        if len(fresh) >= run.read_count:
            break
    if asks_about_now(text):
        ranked = [(record, score_of[row]) for row, record in fresh.items()]
        order = order_in_time(services, session.scope, question.vector.embedder, ranked)
        by_rank = list(fresh.items())
        fresh = dict(by_rank[index] for index in order)
    if asks_about_past(text):
        run.matches = tuple(matches.values())
    run.memories = (*required, *fresh.values())
    run.candidates = (
        *(_unranked(record, 1.0, REQUIRED) for record in required),
        *(_unranked(record, score_of[row], "recall") for row, record in fresh.items()),
    )
    run.required = frozenset(record.id for record in required)
    # Hits count only for prompts after the one that the ranking was made by.
    is_ranked_by = session.has_prompt and session.prompt_count == 1
    is_same = is_ranked_by and canonical(clean(text)) in (canonical(session.context), "")
    if pool.rare_hits and not is_same:
        traits = services.store.traits(session.scope, np.array(pool.rare_hits, np.int64), now)
        run.hits = tuple(traits[row].id for row in pool.rare_hits if row in traits)


def select_undelivered(run: PromptRun) -> None:
    """Put what earlier prompts offered, and the agent never got, in front of the selection."""
    session, barred = run.session, run.barred
    if not is_offered_again(session.prompt_count, has_shown=bool(run.shown)):
        return
    offered = run.services.store.undelivered(session.user, session.key)
    ids = {
        memory_id: None
        for one in offered
        for _, memory_id in one.memories
        if one.kind == "prompt" and memory_id not in barred
    }
    again = live_memories(run.services, session, list(ids))
    known = {one.memory_id for one in run.candidates}
    fresh = (again[memory_id] for memory_id in again if memory_id not in known)
    run.memories = (*again.values(), *(one for one in run.memories if one.id not in again))
    run.candidates = (*run.candidates, *(_unranked(record, 1.0, "recall") for record in fresh))


def has_misled(record: MemoryRecord) -> bool:
    """Return whether a memory misled more than it helped, and is not required."""
    return record.usefulness < MISLED_USEFULNESS and not record.is_binding


def near_prompt(
    pool: SearchPool, weight: hybrid.Scores, final: hybrid.Scores, floor: float
) -> NDArray[np.intp]:
    """Return, best first, what is above the relevance floor or shares two rare words."""
    relevance = hybrid.relevance(pool.raw_cosine, weight)
    has_rare = np.isin(pool.rows, np.array(pool.rare_hits, np.int64))
    near = np.flatnonzero(((relevance >= floor) & (pool.text > 0.0)) | has_rare)
    return near[np.argsort(-final[near], kind="stable")]


def _required(run: PromptRun) -> list[MemoryRecord]:
    """Return constraints on what the prompt names, and pins made since the session began."""
    store, session, barred = run.services.store, run.session, run.barred
    keys = keys_in_play(run.text, session.project)
    required = []
    for memory_id in store.required(session.scope, keys, run.services.world.now()):
        # It may be erased at this very moment.
        with contextlib.suppress(NotFound):
            if memory_id not in barred:
                required.append(store.get(session.user, memory_id, session.scope))
    return required


def _unranked(record: MemoryRecord, score: float, origin: str) -> Candidate:
    """Return the candidate for a memory that a prompt added: it has no rank in the session."""
    return Candidate(
        memory_id=record.id, source="effective", origins=(origin,), final_score=score, rank=0
    )


# -- packing ----------------------------------------------------------------------------------


def pack_prompt(run: PromptRun) -> None:
    """Choose what fits and write the text around it."""
    if run.request.is_silent:
        run.memories, run.shown = (), ()
    _replace_old_values(run)
    _put_newer_first(run)
    services, session, policy = run.services, run.session, run.services.policy.session
    number = session.injection_count + 1
    rated = {one.memory_id for one in services.store.ratings(session.user, session.key)}
    earlier = tuple(
        row.handle
        for row in run.shown
        if not row.is_harmful
        and row.memory_id not in rated
        and number - row.injection < ASKED_LIMIT_COUNT
    )
    empty = replace(
        packing.empty_block(services.store, services.policy.predictor, session, number),
        earlier=earlier,
        explain=not session.is_explained,
        status_line=status_line(services, session.user, known_state(services, session.user)),
    )
    now = services.world.now()
    dates = dates_of(services.store, session.scope, run.memories, run.text, now, run.ended)
    chosen, overflow = _fit(run, empty, policy, dates)
    if len(chosen) < len(run.memories):
        dates = dates_of(services.store, session.scope, chosen, run.text, now, run.ended)
    # A memory that is shown again after a compaction keeps its handle.
    handles = {row.memory_id: row.handle for row in run.shown}
    fresh = [record for record in chosen if record.id not in handles]
    numbered = packing.numbered(fresh, session.handle_count + 1)
    handles |= {record.id: handle for handle, record in numbered}
    handled = [(handles[record.id], record) for record in chosen]
    full = replace(empty, memories=packing.as_shown(handled, dates), overflow=overflow)
    has_news = bool(handled or full.overflow)
    text = render.render_prompt(full) if has_news or (earlier and empty.ask) else ""
    source: dict[str, tuple[str, int]] = {
        candidate.memory_id: (candidate.source, candidate.rank) for candidate in run.candidates
    }
    if run.ranking is None:
        # A memory that is shown again keeps its rank.
        source |= {row.memory_id: (row.source, row.rank) for row in run.shown}
    run.served = Served(
        key=session.key,
        inject=text,
        injection=full.code if text else None,
        memories=tuple(
            ShownMemory(handle, record, *source[record.id]) for handle, record in handled
        ),
        status_line=empty.status_line,
        ranking=tuple(one.memory_id for one in run.candidates) if run.ranking else (),
    )
    if text:
        run.injection = Injection(
            number=number,
            kind="prompt",
            turn=session.prompt_count,
            code=full.code,
            at=now,
            token_count=token_estimate(text),
            memories=tuple((handle, record.id) for handle, record in handled),
            is_explained=full.ask and bool(handled or earlier),
            is_delivered=not run.request.awaits_receipt,
        )


def _replace_old_values(run: PromptRun) -> None:
    """Put the present values of claims in the place of earlier ones, unless the agent has them.

    A prompt about the past gets the earlier ones behind them, superseded ones too.
    """
    session, store, now = run.session, run.services.store, run.services.world.now()
    scope, barred = session.scope, run.barred
    found = {one.id: one for one in (*run.memories, *run.matches)}
    present = present_values(store, scope, found, now, trusted=True) if found else {}
    if run.matches:
        # Required and undelivered memories keep their places before those that match.
        first = {one.id for one in run.memories} - {one.id for one in run.matches}
        ordered = [one for one in run.memories if one.id in first] + list(run.matches)
    elif present:
        ordered = list(run.memories)
    else:
        return
    earlier = earlier_values(store, scope, list(run.matches))
    known = {one.memory_id: one for one in run.candidates}
    memories: dict[str, MemoryRecord] = {}

    def add(record: MemoryRecord, beside: str) -> None:
        if record.id in barred or is_stored_by(session, record) or has_misled(record):
            return
        memories.setdefault(record.id, record)
        score = known[beside].final_score if beside in known else 1.0
        known.setdefault(record.id, _unranked(record, score, "recall"))

    for record in ordered:
        if record.id in present:
            add(present[record.id].memory, record.id)
        if record.id not in present or run.matches:
            add(record, record.id)
        waiting = [record.id]
        while waiting:
            for value in earlier.get(waiting.pop(), ()):
                is_new = value.memory.id not in run.ended and value.memory.trust == "trusted"
                if is_new and value.memory.id not in present:
                    run.ended[value.memory.id] = value.until
                    add(value.memory, record.id)
                    waiting.append(value.memory.id)
    run.memories, run.candidates = tuple(memories.values()), tuple(known.values())


def _put_newer_first(run: PromptRun) -> None:
    """Put what probably gives a claim a newer value before the older one; both stay."""
    if not run.memories or not asks_about_now(run.text):
        return
    services, session = run.services, run.session
    free = [one.id for one in run.memories if one.id not in run.required]
    now = services.world.now()
    found = unsure_values(services.store, session.scope, free, now, trusted=True)
    newer = {
        old_id: one
        for old_id, one in found.items()
        if one.id not in run.barred and not is_stored_by(session, one) and not has_misled(one)
    }
    if not newer:
        return
    known = {one.id: one for one in (*newer.values(), *run.memories)}
    scores = {one.memory_id: one.final_score for one in run.candidates}
    ids = {old_id: one.id for old_id, one in newer.items()}
    # A prompt shows few memories, and an agent believes an older value that stands alone.
    order = newer_first([one.id for one in run.memories], ids, len(run.memories))
    run.memories = tuple(known[memory_id] for memory_id in order)
    ranked = {one.id: _unranked(one, scores.get(old, 1.0), "recall") for old, one in newer.items()}
    added = (ranked[memory_id] for memory_id in order if memory_id in ranked.keys() - scores.keys())
    run.candidates = (*run.candidates, *added)


def _fit(
    run: PromptRun, empty: render.Block, policy: SessionPolicy, dates: Mapping[str, str]
) -> tuple[list[MemoryRecord], tuple[str, ...]]:
    """Return the memories that fit, and the names of required ones that do not.

    A required memory that the session knows about already is not named again.
    """
    costs = packing.costs_of(run.memories, dates)
    packed = packing.pack(
        range(len(costs)),
        rank_packing.Load(
            [cost.tokens for cost in costs],
            [cost.chars for cost in costs],
            [record.id in run.required for record in run.memories],
        ),
        rank_packing.Limits(
            tokens=max(0, policy.prompt_tokens - render.overhead_tokens(empty, start=False)),
            chars=render.MEMORIES_LIMIT_CHARS,
            count=policy.prompt_limit,
        ),
    )
    chosen = [run.memories[index] for index in packed.chosen]
    left = [run.memories[index] for index in packed.overflow]
    if not left:
        return chosen, ()
    records = run.services.store.session_memories(run.session.user, run.session.key)
    named = {one.memory_id for one in records if REQUIRED in one.candidate.origins}
    return chosen, tuple(packing.short_name(record) for record in left if record.id not in named)


# -- the record -------------------------------------------------------------------------------


def record_prompt(run: PromptRun) -> None:
    """Store the prompt, its hits, its ratings and its injection, in one transaction."""
    services, request, session, injection = run.services, run.request, run.session, run.injection
    user, key = session.user, session.key
    # Ratings that come with a prompt are about the reply before it.
    before = replace(session, prompt_count=session.prompt_count - 1)
    ballot = ratings.Ballot(services, before) if request.feedback or request.transcript else None
    details = {} if run.ranking is None else ranking_details(run.ranking)
    details["session.prompt"] = {
        "turn": session.prompt_count,
        "hits": len(run.hits),
        "shown": len(injection.memories) if injection else 0,
        "reranked": run.ranking is not None,
    }
    events = make_events(details, services.world.now(), key, request.request_id)

    def work(transaction: Transaction) -> None:
        current = transaction.session(user, key)
        if current.state != "open":
            raise session_ended(session)
        if current.prompt_count != before.prompt_count:
            raise PromptOvertaken(f"two prompts of session {key[:80]!r} at once", hint="try again")
        ranked = {} if run.ranking is None else run.ranking.session_fields()
        transaction.update_session(replace(current, prompt_count=session.prompt_count, **ranked))
        if ballot is not None:
            reported = ballot.from_mapping(request.feedback, "field")
            # The transcript comes with every prompt: its refusals were counted before.
            late = replace(ballot.from_transcript(request.transcript), refused=())
            ratings.put(transaction, session, reported + late)
        if run.ranking is not None:
            transaction.put_candidates(user, key, run.candidates)
        shown = {memory_id for _, memory_id in injection.memories} if injection else set()
        added = [one for one in run.candidates if one.memory_id in shown | run.required]
        transaction.add_candidates(user, key, added)
        transaction.add_hits(user, key, run.hits)
        if request.typed is not None:
            transaction.add_typed(user, key, request.typed, TYPED_LIMIT_CHARS)
        if injection is not None:
            transaction.put_injection(user, key, injection)
        if run.search is not None and shown:
            transaction.add_search(user, key, with_shown(run.search, shown))
        transaction.log_events(user, events)

    services.store.write(session.user, work)
    run.is_recorded = True
    publish(services, events)


def put_typed(services: Services, session: SessionRecord, typed: str) -> None:
    """Add words that the user typed to a session, apart from a prompt that is served."""
    user, key = session.user, session.key
    services.store.write(user, lambda t: t.add_typed(user, key, typed, TYPED_LIMIT_CHARS))
