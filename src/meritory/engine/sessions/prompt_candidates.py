"""What a prompt calls to mind: memories not shown yet, and which it names by rare words."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from meritory.domain.errors import NotFound
from meritory.domain.memory import MemoryRecord
from meritory.domain.session import Candidate, SessionRecord, ShownRow
from meritory.engine.memories.recall import keys_in_play, pool_scores
from meritory.engine.pipeline import Stopwatch
from meritory.engine.services import Services
from meritory.engine.sessions.context import StartRequest, heard, understand
from meritory.engine.sessions.ranking import Ranked, rank
from meritory.rank import composite
from meritory.rank.candidates import REQUIRED
from meritory.store.contract.store import Search, SearchPool
from meritory.text.normalize import canonical
from meritory.text.terms import query_pairs, query_terms

Rows = NDArray[np.int64]

# Hits are looked for among this many of the best by words.
HIT_LIMIT = 20
# So many more than may be shown are read: not all of the best fit beside each other.
_SPARE = 4


@dataclass(frozen=True, slots=True)
class PromptCandidates:
    """What may be shown with a prompt, best first, and what of it is to be recorded."""

    session: SessionRecord
    memories: tuple[MemoryRecord, ...]
    candidates: tuple[Candidate, ...]
    # Ids of memories that must be shown.
    required: frozenset[str] = frozenset()
    hits: tuple[str, ...] = ()
    ranked: Ranked | None = None


def call_to_mind(
    services: Services, session: SessionRecord, text: str, shown: Sequence[ShownRow]
) -> PromptCandidates:
    """What a prompt deserves to be shown and recorded; the prompt is counted in the session."""
    turn = session.prompt_count + 1
    counted = replace(session, prompt_count=turn)
    barred = {one.memory_id for one in shown if one.in_context or one.is_harmful}
    if not text.strip():
        # A picture, or nothing at all: there is nothing to go by.
        return PromptCandidates(counted, (), ())
    # What has been learned from already would be ranked by its own outcome.
    if not session.has_prompt and services.store.session_score(session.user, session.key) is None:
        return _reranked(services, counted, text, barred)
    return _recalled(services, counted, text, barred)


def _reranked(
    services: Services, session: SessionRecord, text: str, barred: set[str]
) -> PromptCandidates:
    """The first prompt of a session that began without one: the candidates are ranked by it."""
    start = StartRequest(session.key, session.scope, text, cwd=session.cwd)
    context = understand(services, start)
    ranked = rank(services, session.key, context, Stopwatch(services.world))
    fresh = replace(
        session,
        context=context.text,
        has_prompt=True,
        embedder=context.vector.embedder,
        context_vector=context.vector.vector,
        alpha=ranked.alpha,
        scorer=ranked.scorer,
        model_version=ranked.model_version,
    )
    wanted = [
        place
        for place in np.flatnonzero(ranked.worth).tolist()
        if ranked.candidates[place].memory_id not in barred
    ]
    must = [place for place in wanted if ranked.required[place]]
    may = [place for place in wanted if not ranked.required[place]]
    rows = ranked.rows[[*must, *may[: _wanted(services)]]]
    found = services.store.fetch(session.scope, rows, context.now)
    return PromptCandidates(
        fresh,
        tuple(found[row] for row in rows.tolist() if row in found),
        ranked.candidates,
        frozenset(ranked.candidates[place].memory_id for place in must),
        ranked=ranked,
    )


def _recalled(
    services: Services, session: SessionRecord, text: str, barred: set[str]
) -> PromptCandidates:
    found = services.embedding.query(text)
    pool = services.store.search(
        Search(
            session.scope,
            query_terms(text),
            found.embedder,
            found.vector,
            phrases=query_pairs(text),
            hit_limit=HIT_LIMIT,
            injectable_at=services.world.now(),
        )
    )
    weight = composite.source_weight(
        pool.provenance, pool.confidence, pool.demotion, services.policy.ranking
    )
    final = pool_scores(services, pool, weight)
    places = _near_enough(services, pool, weight, final)
    must = _required(services, session, text, barred)
    barred = barred | {record.id for record in must}
    fresh = _fresh(services, session, pool.rows[places], barred)
    score = dict(zip(pool.rows[places].tolist(), final[places].tolist(), strict=True))
    return PromptCandidates(
        session,
        (*must, *fresh.values()),
        (
            *(_candidate(record, 1.0, REQUIRED) for record in must),
            *(_candidate(record, score[row], "recall") for row, record in fresh.items()),
        ),
        frozenset(record.id for record in must),
        _hits(services, session, text, pool.rare_hits),
    )


def _fresh(
    services: Services, session: SessionRecord, rows: Rows, barred: set[str]
) -> dict[int, MemoryRecord]:
    """The best that were not shown yet, by row: as many as could fit."""
    now = services.world.now()
    found: dict[int, MemoryRecord] = {}
    # What was shown before may well be among the best: read on behind it.
    wanted = _wanted(services)
    for start in range(0, len(rows), wanted):
        part = rows[start : start + wanted]
        records = services.store.fetch(session.scope, part, now)
        known = ((row, records[row]) for row in part.tolist() if row in records)
        found |= {row: one for row, one in known if one.id not in barred}
        if len(found) >= wanted:
            break
    return found


def _wanted(services: Services) -> int:
    return services.policy.session.prompt_limit + _SPARE


def _near_enough(
    services: Services, pool: SearchPool, weight: composite.FloatArray, final: composite.FloatArray
) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """The best of what is above the relevance floor, or shares two rare words with the prompt."""
    relevance = composite.relevance(pool.raw_cosine, weight)
    has_rare = np.isin(pool.rows, np.array(pool.rare_hits, np.int64))
    has_words = pool.text > 0.0
    near = np.flatnonzero(
        ((relevance >= services.policy.recall.relevance_floor) & has_words) | has_rare
    )
    return near[np.argsort(-final[near], kind="stable")]


def _required(
    services: Services, session: SessionRecord, text: str, barred: set[str]
) -> list[MemoryRecord]:
    """Constraints on what this prompt brings into play, and pins made since the session began."""
    keys = keys_in_play(text, session.scope)
    found = []
    for memory_id in services.store.required(session.scope, keys, services.world.now()):
        # One may be erased at this very moment.
        with contextlib.suppress(NotFound):
            if memory_id not in barred:
                found.append(services.store.get(session.user, memory_id, session.scope))
    return found


def _candidate(record: MemoryRecord, score: float, origin: str) -> Candidate:
    """A memory that came in by a prompt: it has no place in the session's ranking."""
    return Candidate(
        memory_id=record.id, source="effective", origins=(origin,), final_score=score, rank=0
    )


def _hits(
    services: Services, session: SessionRecord, text: str, rows: Sequence[int]
) -> tuple[str, ...]:
    """Hits count only for prompts after the one the ranking was made from."""
    is_ranked_by = session.has_prompt and session.prompt_count == 1
    if not rows or (is_ranked_by and canonical(heard(text)) in (canonical(session.context), "")):
        return ()
    found = services.store.traits(session.scope, np.array(rows, np.int64), services.world.now())
    return tuple(found[row].id for row in rows if row in found)
