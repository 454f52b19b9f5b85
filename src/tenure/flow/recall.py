"""Finding memories: both legs, one hybrid score, lowered where the source is weaker."""

from __future__ import annotations

from datetime import datetime

import numpy as np

from tenure.errors import InputError
from tenure.flow.services import Services
from tenure.rank import scores
from tenure.rank.hybrid import Legs, Links, ScopeStats, hybrid_scores, with_neighbours
from tenure.store.base import Pool, Search
from tenure.text.terms import query_terms
from tenure.types import CONTENT_LIMIT_CHARS, MemoryRecord, Parts, Recalled, Scope

LIMIT_MAX = 1_000
# So many rows are read for each one wanted: source weights may reorder, some may have expired.
_READ_AHEAD = 3
_READ_AHEAD_MIN = 30


def recall(
    services: Services, scope: Scope, query: str, limit: int, *, explain: bool = False
) -> list[Recalled]:
    """The memories that answer a query best, best first."""
    text = checked_query(query)
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= LIMIT_MAX:
        raise InputError(f"limit must be a whole number from 1 to {LIMIT_MAX}, not {limit!r}")
    found = services.embedding.query(text)
    pool = services.store.search(Search(scope, query_terms(text), found.embedder, found.vector))
    hybrid = pool_scores(services, pool)
    return _ranked(services, scope, pool, hybrid, limit, explain=explain)


def checked_query(query: object) -> str:
    """Anything typed, as far as a search can use it."""
    if not isinstance(query, str):
        raise InputError(f"a query must be text, not {type(query).__name__}")
    # Half characters cannot be stored, so no memory has any.
    text = query[:CONTENT_LIMIT_CHARS].encode("utf-8", "ignore").decode()
    if not text.strip():
        raise InputError("the query is empty", hint="say what to look for")
    return text


def pool_scores(services: Services, pool: Pool) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The hybrid score of everything in the pool, neighbours counted in."""
    weights = services.policy.hybrid
    legs = Legs(pool.text, pool.cosine, pool.length_chars)
    stats = ScopeStats(pool.mean_cosine, pool.mean_length_chars)
    links = Links(pool.previous, pool.following, pool.session)
    return np.asarray(with_neighbours(hybrid_scores(legs, stats, weights), links, weights))


def _ranked(
    services: Services,
    scope: Scope,
    pool: Pool,
    hybrid: np.ndarray[tuple[int], np.dtype[np.float64]],
    limit: int,
    *,
    explain: bool,
) -> list[Recalled]:
    now = services.world.now()
    candidates = np.flatnonzero(
        _is_about_it(pool, services.policy.relevance_floor) & (hybrid > 0.0)
    )
    order = candidates[np.argsort(-hybrid[candidates], kind="stable")]
    order = order[: max(limit * _READ_AHEAD, _READ_AHEAD_MIN)]
    records = services.store.fetch(scope, pool.rows[order], now)
    kept = np.array([at for at in order.tolist() if int(pool.rows[at]) in records], np.int64)
    memories = [records[int(pool.rows[at])] for at in kept]
    weight = scores.source_weight(
        scores.provenance_codes([m.provenance for m in memories]),
        [m.confidence for m in memories],
        [m.demotion for m in memories],
        services.policy.sources,
    )
    final = hybrid[kept] * weight
    best = scores.descending(final, [m.id for m in memories])[:limit].tolist()
    parts = _explained(memories, pool, kept, hybrid[kept], weight, now) if explain else None
    return [
        Recalled(memories[at], round(float(final[at]), 6), parts[at] if parts else None)
        for at in best
    ]


def _is_about_it(pool: Pool, floor: float) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """What has a word or enough meaning in common with the query, and the turns beside it."""
    with np.errstate(invalid="ignore"):
        own = (pool.text > 0.0) | (pool.raw_cosine >= floor)
    beside = [np.where(links >= 0, own[links], False) for links in (pool.previous, pool.following)]
    return np.asarray(own | beside[0] | beside[1])


def _explained(
    memories: list[MemoryRecord],
    pool: Pool,
    kept: np.ndarray[tuple[int], np.dtype[np.int64]],
    hybrid: np.ndarray[tuple[int], np.dtype[np.float64]],
    weight: np.ndarray[tuple[int], np.dtype[np.float64]],
    now: datetime,
) -> list[Parts]:
    """Every number behind each score; the composite is fed with the raw cosine (seed 004)."""
    cosine = np.nan_to_num(pool.raw_cosine[kept].astype(np.float64))
    ages = scores.age_days(now, [m.valid_from or m.created_at for m in memories])
    whole = scores.explain(
        scores.relevance(cosine, weight),
        scores.recency(ages),
        [m.usefulness for m in memories],
        [m.confidence for m in memories],
        scores.frequency([m.access_count for m in memories]),
    )
    columns = (
        whole.composite,
        whole.relevance,
        whole.recency,
        whole.usefulness,
        whole.confidence,
        whole.frequency,
        cosine,
        pool.text[kept].astype(np.float64),
        hybrid,
        weight,
    )
    return [Parts(*(round(float(c[at]), 6) for c in columns)) for at in range(len(memories))]
