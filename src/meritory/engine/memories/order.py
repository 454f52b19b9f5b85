"""The order of a pool: both searches, the words' meanings, standing instructions, sessions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from meritory.domain.memory import Scope
from meritory.engine.memories.question import SearchQuestion
from meritory.engine.services import Services
from meritory.ports.embedder import ENCODER_PREFIX
from meritory.ports.token_table import Pieces, TokenTable, token_table
from meritory.rank import hybrid, soft
from meritory.rank.hybrid import Flags, Scores
from meritory.store.contract.memories import SearchPool
from meritory.text.requests import asks_over_many, condition_of, is_standing
from meritory.text.terms import query_terms

# The texts of this many of the best are read; what is behind them does not reach the first places.
READ_COUNT = 128
# Longer texts are read up to here, and this many texts are kept as read.
READ_CHARS = 2_000
KEPT_TEXTS = 8_192


@dataclass(frozen=True, slots=True)
class PoolMatch:
    """How the texts of a pool fit a question, as arrays parallel to the pool's."""

    # The score of both searches.
    own: Scores
    # The share of the question's words that a memory has, by meaning; and the other way round.
    asked: Scores
    told: Scores
    # Both in one number, relative to the pool.
    soft: Scores
    # Whether it is an instruction or a preference, and how far the question meets its condition.
    standing: Flags
    condition: Scores
    # Whether the answer is spread over many sessions, so that no session may crowd out others.
    is_over_many: bool = False

    @classmethod
    def unread(cls, own: Scores) -> PoolMatch:
        """Return the match of texts that were not read."""
        asked, told, matched, condition = np.zeros((4, len(own)))
        return cls(own, asked, told, matched, np.zeros(len(own), np.bool_), condition)


@dataclass(frozen=True, slots=True)
class _ReadText:
    """The pieces of a memory's text; of an instruction also those of its condition."""

    pieces: Pieces
    condition: Pieces | None


@lru_cache(maxsize=KEPT_TEXTS)
def _read_text(text: str, kind: str) -> _ReadText:
    table = token_table()
    condition = None
    if is_standing(text, kind):
        condition = table.pieces(" ".join(query_terms(condition_of(text))))
    return _ReadText(table.pieces(text), condition)


def match_pool(
    services: Services, scope: Scope, question: SearchQuestion, pool: SearchPool, weight: Scores
) -> PoolMatch:
    """Read the best memories of a pool and return how their texts fit the question."""
    found = PoolMatch.unread(own_scores(services, pool))
    if services.embedding.is_off or not len(pool.rows):
        return found
    table = token_table()
    asked, idf = _asked(question, pool)
    best = np.argsort(-pool_scores(services, pool, weight, found), kind="stable")[:READ_COUNT]
    rows = pool.rows[best]
    texts = services.store.wordings(scope.user, rows)
    known = [
        (at, texts[row])
        for at, row in zip(best.tolist(), rows.tolist(), strict=True)
        if row in texts
    ]
    if not len(asked) or not known:
        return found
    chosen = [at for at, _ in known]
    read = [_read_text(content[:READ_CHARS], kind) for _, (content, kind) in known]
    rules = [
        (at, one.condition)
        for at, one in zip(chosen, read, strict=True)
        if one.condition is not None
    ]
    texts_of = [*(one.pieces for one in read), *(condition for _, condition in rules)]
    both = _cover(table, asked, idf, texts_of)
    count = len(read)
    coverage = soft.Coverage(both.asked[:count], both.told[:count])
    found.asked[chosen], found.told[chosen] = coverage.asked, coverage.told
    found.soft[chosen] = soft.soft_scores(coverage)
    if rules:
        places = [at for at, _ in rules]
        found.standing[places] = True
        found.condition[places] = both.told[count:]
    return replace(found, is_over_many=asks_over_many(question.text))


@lru_cache(maxsize=KEPT_TEXTS)
def _pieces(words: str) -> tuple[int, ...]:
    return tuple(token_table().pieces(words).tolist())


def _asked(question: SearchQuestion, pool: SearchPool) -> tuple[Pieces, Scores]:
    """Return the pieces of a question's content words, each with the rarity of its word."""
    rarity: dict[int, float] = {}
    for term in question.terms:
        held = pool.term_counts.get(term, 0)
        words = question.read_as.get(term, ()) if not held else ()
        held = held or max((pool.term_counts.get(word, 0) for word in words), default=0)
        idf = float(np.log1p((pool.memory_count - held + 0.5) / (held + 0.5)))
        for piece in _pieces(" ".join(words) or term):
            rarity[piece] = max(rarity.get(piece, 0.0), idf)
    return np.array(list(rarity), np.int64), np.array(list(rarity.values()), np.float64)


def _cover(table: TokenTable, asked: Pieces, idf: Scores, texts: list[Pieces]) -> soft.Coverage:
    bags = soft.Bags.of(texts)
    cosines = table.cosines(asked, bags.distinct)
    return soft.cover(cosines, bags, idf, table.weights(bags.distinct))


def pool_scores(services: Services, pool: SearchPool, weight: Scores, match: PoolMatch) -> Scores:
    """Return the scores of a pool, lowered by source weight and raised by neighbours."""
    weights = _weights(services, pool)
    own = soft.with_soft(match.own, match.soft, pool.mean_length_chars)
    own = soft.with_standing(own, match.standing, match.condition)
    if match.is_over_many:
        weights = replace(weights, session=weights.session_over_many)
    links = hybrid.Links(
        pool.previous,
        pool.following,
        pool.session,
        lends=pool.leads,
        session_words=pool.session_words,
        session_count=pool.session_count,
    )
    return hybrid.with_neighbours(own * weight, links, weights)


def own_scores(services: Services, pool: SearchPool) -> Scores:
    """Return the hybrid scores of a pool: both searches, nothing else."""
    legs = hybrid.Legs(pool.text, pool.cosine, pool.length_chars)
    stats = hybrid.ScopeStats(pool.mean_cosine, pool.mean_length_chars)
    return hybrid.hybrid_scores(legs, stats, _weights(services, pool))


def _weights(services: Services, pool: SearchPool) -> hybrid.HybridWeights:
    policy = services.policy.recall
    is_encoder = pool.embedder is not None and pool.embedder.startswith(ENCODER_PREFIX)
    weight = policy.encoder_vector_weight if is_encoder else policy.vector_weight
    return hybrid.HybridWeights(cosine=weight)


def relevant(pool: SearchPool, floor: float) -> NDArray[np.bool_]:
    """Return which memories share a word or enough meaning with the query, or adjoin one."""
    with np.errstate(invalid="ignore"):
        own = (pool.text > 0.0) | (pool.raw_cosine >= floor)
    before, after = (
        np.where(links >= 0, own[links], False) for links in (pool.previous, pool.following)
    )
    return np.asarray(own | before | after)
