"""Recall memories: search by words and by vectors, and rank by one hybrid score."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from meritory.domain.errors import InputError
from meritory.domain.memory import CONTENT_LIMIT_CHARS, MemoryRecord, Parts, Recalled, Scope
from meritory.engine.services import Services
from meritory.rank import composite, hybrid
from meritory.rank.hybrid import (
    HybridWeights,
    Legs,
    Links,
    ScopeStats,
    hybrid_scores,
    with_neighbours,
)
from meritory.store.contract.memories import Search, SearchPool
from meritory.text.entities import entity_key, mentions
from meritory.text.terms import query_pairs, query_terms

LIMIT_MAX = 1_000
TRAVERSAL_LIMIT = 50
_READ_AHEAD = 2

Floats = NDArray[np.float64]


def recall(
    services: Services, scope: Scope, query: str, limit: int, *, explain: bool = False
) -> list[Recalled]:
    """Return the memories that answer a query best, best first."""
    text = checked_query(query)
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= LIMIT_MAX:
        raise InputError(f"limit must be a whole number from 1 to {LIMIT_MAX}, not {limit!r}")
    question = services.embedding.query(text)
    pool = services.store.search(
        Search(
            scope,
            query_terms(text),
            question.embedder,
            question.vector,
            phrases=query_pairs(text),
        )
    )
    weight = hybrid.source_weight(
        pool.provenance, pool.confidence, pool.demotion, services.policy.ranking
    )
    final = pool_scores(services, pool, weight)
    best = _best(services, scope, pool, final, limit)
    parts = _explain(services, pool, best, weight) if explain else [None] * len(best)
    return [
        Recalled(memory, _rounded(final[index]), part)
        for (index, memory), part in zip(best, parts, strict=True)
    ]


def checked_query(query: object) -> str:
    """Return the query without the parts that a search cannot use."""
    if not isinstance(query, str):
        raise InputError(f"a query must be text, not {type(query).__name__}")
    # Lone surrogates cannot be stored, so no memory contains one.
    text = query[:CONTENT_LIMIT_CHARS].encode("utf-8", "ignore").decode()
    if not text.strip():
        raise InputError("the query is empty", hint="say what to look for")
    return text


def pool_scores(services: Services, pool: SearchPool, weight: Floats) -> Floats:
    """Return the hybrid scores of a pool, lowered by source weight and raised by neighbours."""
    weights = HybridWeights(cosine=services.policy.recall.vector_weight)
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
    return hybrid_scores(legs, stats, HybridWeights(cosine=services.policy.recall.vector_weight))


def _best(
    services: Services, scope: Scope, pool: SearchPool, final: Floats, limit: int
) -> list[tuple[int, MemoryRecord]]:
    """Return the best memories that still exist, with their indices in the pool."""
    is_relevant = relevant(pool, services.policy.recall.relevance_floor) & (final > 0.0)
    candidates = np.flatnonzero(is_relevant)
    order = candidates[np.argsort(-final[candidates], kind="stable")]
    now = services.world.now()
    best: list[tuple[int, MemoryRecord]] = []
    # Some of the best may have expired or changed since: read until there are enough.
    for start in range(0, len(order), limit + _READ_AHEAD):
        indices = order[start : start + limit + _READ_AHEAD]
        rows = pool.rows[indices]
        records = services.store.fetch(scope, rows, now)
        best += [
            (index, records[row])
            for index, row in zip(indices.tolist(), rows.tolist(), strict=True)
            if row in records
        ]
        if len(best) >= limit:
            break
    # Equal scores are ordered by id, so that every machine gives the same answer.
    best.sort(key=lambda pair: (-final[pair[0]], pair[1].id))
    return best[:limit]


def relevant(pool: SearchPool, floor: float) -> NDArray[np.bool_]:
    """Return which memories share a word or enough meaning with the query, or adjoin one."""
    with np.errstate(invalid="ignore"):
        own = (pool.text > 0.0) | (pool.raw_cosine >= floor)
    before, after = (
        np.where(links >= 0, own[links], False) for links in (pool.previous, pool.following)
    )
    return np.asarray(own | before | after)


def _explain(
    services: Services, pool: SearchPool, best: list[tuple[int, MemoryRecord]], weight: Floats
) -> list[Parts]:
    """Return the parts of each score. The composite uses the raw cosine (seed 004)."""
    indices = np.array([index for index, _ in best], np.int64)
    memories = [memory for _, memory in best]
    cosine = np.nan_to_num(pool.raw_cosine[indices].astype(np.float64))
    ages = composite.age_days(
        services.world.now(), [memory.valid_from or memory.created_at for memory in memories]
    )
    whole = composite.explain(
        hybrid.relevance(cosine, weight[indices]),
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
        pool.text[indices],
        _own_scores(services, pool)[indices],
        weight[indices],
    )
    return [Parts(*(_rounded(column[i]) for column in columns)) for i in range(len(best))]


def _rounded(value: float) -> float:
    return round(float(value), composite.SCORE_DECIMALS)


def keys_in_play(text: str, scope: Scope) -> list[str]:
    """Return the keys of the entities that a context names, and of its project."""
    keys = [entity_key(mention.kind, mention.name) for mention in mentions(text)]
    # A topic given with `--about` is in play when the context contains its words.
    keys += [entity_key("topic", words) for words in (*query_terms(text), *query_pairs(text))]
    if scope.project is not None:
        keys.append(entity_key("project", scope.project))
    return list(dict.fromkeys(keys))


def traversal(services: Services, scope: Scope, context: str) -> list[str]:
    """Return the ids of memories about the context's entities and their dependencies."""
    keys, now = keys_in_play(context, scope), services.world.now()
    return services.store.memories_about(scope, keys, now, TRAVERSAL_LIMIT)


def required(services: Services, scope: Scope, context: str) -> list[str]:
    """Return the ids of pins and of the constraints on entities that the context names."""
    return services.store.required(scope, keys_in_play(context, scope), services.world.now())
