"""Finding memories: both legs, one hybrid score, lowered where the source is weaker."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from meritory.domain.errors import InputError
from meritory.domain.memory import CONTENT_LIMIT_CHARS, MemoryRecord, Parts, Recalled, Scope
from meritory.engine.services import Services
from meritory.rank import composite
from meritory.rank.hybrid import Legs, Links, ScopeStats, hybrid_scores, with_neighbours
from meritory.store.contract.store import Search, SearchPool
from meritory.text.terms import query_pairs, query_terms

LIMIT_MAX = 1_000
_READ_AHEAD = 2

Floats = NDArray[np.float64]


def recall(
    services: Services, scope: Scope, query: str, limit: int, *, explain: bool = False
) -> list[Recalled]:
    """The memories that answer a query best, best first."""
    text = checked_query(query)
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= LIMIT_MAX:
        raise InputError(f"limit must be a whole number from 1 to {LIMIT_MAX}, not {limit!r}")
    found = services.embedding.query(text)
    pool = services.store.search(
        Search(scope, query_terms(text), found.embedder, found.vector, phrases=query_pairs(text))
    )
    weight = composite.source_weight(
        pool.provenance, pool.confidence, pool.demotion, services.policy.sources
    )
    final = pool_scores(services, pool, weight)
    best = _best(services, scope, pool, final, limit)
    if not explain:
        return [Recalled(memory, _rounded(final[at])) for at, memory in best]
    parts = _explained(services, pool, best, weight)
    return [
        Recalled(memory, _rounded(final[at]), part)
        for (at, memory), part in zip(best, parts, strict=True)
    ]


def checked_query(query: object) -> str:
    """Anything typed, as far as a search can use it."""
    if not isinstance(query, str):
        raise InputError(f"a query must be text, not {type(query).__name__}")
    # Half characters cannot be stored, so no memory has any.
    text = query[:CONTENT_LIMIT_CHARS].encode("utf-8", "ignore").decode()
    if not text.strip():
        raise InputError("the query is empty", hint="say what to look for")
    return text


def pool_scores(services: Services, pool: SearchPool, weight: Floats) -> Floats:
    """The hybrid score of everything in the pool: weaker sources lowered, neighbours counted in."""
    weights = services.policy.hybrid
    links = Links(
        pool.previous,
        pool.following,
        pool.session,
        lends=pool.leads,
        session_words=pool.session_words,
        session_count=pool.session_count,
    )
    return with_neighbours(_own_scores(services, pool) * weight, links, weights)


def _own_scores(services: Services, pool: SearchPool) -> Floats:
    legs = Legs(pool.text, pool.cosine, pool.length_chars)
    stats = ScopeStats(pool.mean_cosine, pool.mean_length_chars)
    return hybrid_scores(legs, stats, services.policy.hybrid)


def _best(
    services: Services, scope: Scope, pool: SearchPool, final: Floats, limit: int
) -> list[tuple[int, MemoryRecord]]:
    """The best memories that are really there, with their places in the pool."""
    about = _is_about_it(pool, services.policy.relevance_floor) & (final > 0.0)
    candidates = np.flatnonzero(about)
    order = candidates[np.argsort(-final[candidates], kind="stable")]
    now = services.world.now()
    found: list[tuple[int, MemoryRecord]] = []
    # Some of the best may have expired or changed since: read on until there are enough.
    for start in range(0, len(order), limit + _READ_AHEAD):
        places = order[start : start + limit + _READ_AHEAD]
        records = services.store.fetch(scope, pool.rows[places], now)
        rows = pool.rows[places].tolist()
        found += [
            (at, records[row])
            for at, row in zip(places.tolist(), rows, strict=True)
            if row in records
        ]
        if len(found) >= limit:
            break
    # Equal scores go by id: the same question gives the same answer on every machine.
    found.sort(key=lambda pair: (-final[pair[0]], pair[1].id))
    return found[:limit]


def _is_about_it(pool: SearchPool, floor: float) -> NDArray[np.bool_]:
    """What has a word or enough meaning in common with the query, and the turns beside it."""
    with np.errstate(invalid="ignore"):
        own = (pool.text > 0.0) | (pool.raw_cosine >= floor)
    beside = [np.where(links >= 0, own[links], False) for links in (pool.previous, pool.following)]
    return np.asarray(own | beside[0] | beside[1])


def _explained(
    services: Services, pool: SearchPool, best: list[tuple[int, MemoryRecord]], weight: Floats
) -> list[Parts]:
    """Every number behind each score; the composite is fed with the raw cosine (seed 004)."""
    places = np.array([at for at, _ in best], np.int64)
    memories = [memory for _, memory in best]
    cosine = np.nan_to_num(pool.raw_cosine[places].astype(np.float64))
    ages = composite.age_days(
        services.world.now(), [memory.valid_from or memory.created_at for memory in memories]
    )
    whole = composite.explain(
        composite.relevance(cosine, weight[places]),
        composite.recency(ages),
        [memory.usefulness for memory in memories],
        [memory.confidence for memory in memories],
        composite.frequency([memory.access_count for memory in memories]),
    )
    columns = (
        whole.composite,
        whole.relevance,
        whole.recency,
        whole.usefulness,
        whole.confidence,
        whole.frequency,
        cosine,
        pool.text[places],
        _own_scores(services, pool)[places],
        weight[places],
    )
    return [Parts(*(_rounded(column[at]) for column in columns)) for at in range(len(best))]


def _rounded(value: float) -> float:
    return round(float(value), composite.SCORE_DECIMALS)
