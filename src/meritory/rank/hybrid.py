"""Hybrid search: the candidate pool, joined text and vector scores, and scores of neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meritory.domain.policy import CANDIDATE_POOL_SIZE, VECTOR_WEIGHT

Scores = NDArray[np.float64]
Rows = NDArray[np.intp]
Flags = NDArray[np.bool_]

# One match of a word is worth idf * 2.2 / (1.3 + 0.9 * length / mean) in BM25, k1 1.2 and b 0.75.
BM25_FLAT = 1.3
BM25_SLOPE = 0.9
# The number of best text hits on which the vector search must agree.
AGREEMENT_HITS = 5
# A mean over few vectors is unreliable: it is shrunk as if this many more were zero.
MEAN_PRIOR_COUNT = 10.0
# Among few sessions one is always the best: its words count as if this many more had no match.
SESSION_PRIOR_COUNT = 10.0
_TINY = 1e-9
# Cosines are computed in 32 bits: differences below this are rounding, not meaning.
_ROUNDING = 1e-5


@dataclass(frozen=True, slots=True)
class HybridWeights:
    """The constants of hybrid recall, tuned once for all data (ADR 0006)."""

    cosine: float = VECTOR_WEIGHT
    # The vector search has its full weight from this agreement with the text search.
    full_agreement: float = 0.4
    # The least share of that weight.
    least_share: float = 0.25
    # Shorter texts are not rewarded for being short.
    length_floor_chars: float = 200.0
    # The shares of the better neighbour, one and two turns away.
    near: float = 0.1
    far: float = 0.1
    # The share of the session.
    session: float = 0.4
    # The share of the session's words in its score; the rest is its best memory.
    session_words: float = 0.7


@dataclass(frozen=True, slots=True)
class Legs:
    """The scores of both searches, one entry per memory."""

    # BM25 with a positive sign, 0 without a hit.
    text: ArrayLike
    # Centred cosine; not finite where there is no vector.
    cosine: ArrayLike
    length_chars: ArrayLike


@dataclass(frozen=True, slots=True)
class ScopeStats:
    """Means over all memories searched, not only over those in the legs."""

    mean_cosine: float
    mean_length_chars: float


@dataclass(frozen=True, slots=True)
class Links:
    """The indices of each memory's neighbours in the same arrays, -1 for none."""

    previous_row: Rows
    next_row: Rows
    # A small number per session, -1 for a memory without one.
    session: Rows
    # Whether its score counts for its neighbours; None: all do.
    lends: Flags | None = None
    # How well its session's words match together, in 0..1; None: unknown.
    session_words: ArrayLike | None = None
    # How many sessions were searched for those words.
    session_count: int = 0


def store_mean(total: ArrayLike, count: int) -> NDArray[np.float64]:
    """Return the mean of a store's unit vectors from their sum, shrunk for small stores."""
    return np.asarray(total, dtype=np.float64) / (max(count, 0) + MEAN_PRIOR_COUNT)


def centred_cosine(
    cosine: ArrayLike, mean_dots: ArrayLike, query: ArrayLike, mean: ArrayLike
) -> Scores:
    """Return the cosines left after the store's mean is taken out of memories and query.

    It needs no second pass over the vectors: `cosine` holds their products with the unit query,
    `mean_dots` those with the mean. Where either is not finite, so is the result.
    """
    shared = np.asarray(mean, dtype=np.float64)
    asked = np.asarray(query, dtype=np.float64)
    of_mean, of_query = float(shared @ shared), float(shared @ asked)
    dots = np.asarray(mean_dots, dtype=np.float64)
    # |v - m|^2 = 1 - 2 v.m + m.m for a unit vector v.
    lengths = np.maximum(1.0 - 2.0 * dots + of_mean, _TINY)
    query_length = max(float(asked @ asked) - 2.0 * of_query + of_mean, _TINY)
    left = np.asarray(cosine, dtype=np.float64) - dots - of_query + of_mean
    return np.asarray(left / np.sqrt(lengths * query_length))


def hybrid_scores(legs: Legs, stats: ScopeStats, weights: HybridWeights | None = None) -> Scores:
    """Return one score in 0..1 per memory: a weighted sum of both legs, each over its best.

    The vector leg's weight follows its agreement with the text leg, so that an embedder that does
    not understand the user's texts loses influence. A score that is not finite is not a hit.
    """
    used = weights or HybridWeights()
    text = _text_leg(legs, stats.mean_length_chars, used.length_floor_chars)
    cosine = _cosine_leg(legs.cosine, stats.mean_cosine)
    if text.size != cosine.size:
        raise ValueError(f"the legs differ in size: {text.size} and {cosine.size}")
    share = used.cosine
    if text.any():
        trust = _agreement(text, cosine) / max(used.full_agreement, _TINY)
        share *= float(np.clip(trust, used.least_share, 1.0))
    return np.asarray(share * cosine + (1.0 - share) * text)


def match_sessions(hits: Sequence[Rows], length_chars: ArrayLike) -> Scores:
    """Return for each session in 0..1 how well its memories, taken as one text, match: BM25.

    `hits` holds for each term the session of every memory that has it, `length_chars` the length
    of each session; one of length 0 was not searched. The best session has 1.
    """
    length = np.maximum(_finite(length_chars), 0.0)
    searched = length > 0.0
    count = int(searched.sum())
    found = np.zeros(length.size)
    if count == 0:
        return found
    limit = BM25_FLAT - 1.0 + BM25_SLOPE * length * count / length.sum()
    for sessions in hits:
        times = np.bincount(sessions[sessions >= 0], minlength=length.size) * searched
        having = int(np.count_nonzero(times))
        idf = np.log1p((count - having + 0.5) / (having + 0.5))
        found += idf * times / (times + limit)
    return _over_best(found)


def with_neighbours(
    scores: ArrayLike, links: Links, weights: HybridWeights | None = None
) -> Scores:
    """Return scores in 0..1 with a share of the neighbours' and the session's scores.

    A memory without a session is a session of its own. A negative score, or one that is not
    finite, becomes 0 and does not count for others.
    """
    used = weights or HybridWeights()
    given = np.asarray(scores, dtype=np.float64)
    valid = np.isfinite(given) & (given >= 0.0)
    own = np.where(valid, given, 0.0)
    before, after = _neighbours(links.previous_row), _neighbours(links.next_row)
    total = own + used.session * _session_share(own, links, used.session_words)
    lent = own if links.lends is None else np.where(links.lends, own, 0.0)
    for share, left, right in zip((used.near, used.far), before, after, strict=True):
        total += share * np.maximum(_lookup(lent, left), _lookup(lent, right))
    total /= 1.0 + used.session + used.near + used.far
    return np.where(valid, total, 0.0)


def fold_sessions(scores: ArrayLike, session: Rows, count: int) -> Scores:
    """Return the score of each of count sessions: that of its best memory, -inf without one."""
    out = np.full(count, -np.inf)
    values = np.nan_to_num(np.asarray(scores, dtype=np.float64), nan=-np.inf)
    known = session >= 0
    np.maximum.at(out, session[known], values[known])
    return out


def _text_leg(legs: Legs, mean_length_chars: float, floor_chars: float) -> Scores:
    text = _finite(legs.text)
    length = _finite(legs.length_chars)
    if mean_length_chars > 0.0:
        slope = BM25_SLOPE / mean_length_chars
        short = BM25_FLAT + slope * length
        text = text * short / (BM25_FLAT + slope * np.maximum(length, floor_chars))
    return _over_best(np.maximum(text, 0.0))


def _cosine_leg(cosine: ArrayLike, mean: float) -> Scores:
    values = np.asarray(cosine, dtype=np.float64)
    finite = np.isfinite(values)
    level = mean if np.isfinite(mean) else 0.0
    above = np.where(finite, values - level, 0.0)
    if above.max(initial=0.0) <= _ROUNDING:
        # All are equal, as in a store of one memory: use the plain cosine.
        return np.clip(np.where(finite, values, 0.0), 0.0, 1.0)
    return _over_best(np.maximum(above, 0.0))


def _agreement(text: Scores, cosine: Scores) -> float:
    """Return how close the vector scores of the best text hits are to the best vector scores."""
    count = min(AGREEMENT_HITS, text.size)
    best_text = np.argpartition(-text, count - 1)[:count]
    ideal = -np.partition(-cosine, count - 1)[:count].sum()
    # Without vectors there is nothing to compare.
    return float(cosine[best_text].sum() / ideal) if ideal > _TINY else 1.0


def _neighbours(rows: Rows) -> tuple[Rows, Rows]:
    """Return the rows one and two steps away."""
    return rows, np.where(rows >= 0, rows[rows], -1)


def _lookup(values: Scores, rows: Rows) -> Scores:
    return np.where(rows >= 0, values[rows], 0.0)


def _session_share(own: Scores, links: Links, words_share: float) -> Scores:
    """Return the score of each session: its best memory, and all its words together."""
    best = _session_best(own, links.session)
    if links.session_words is None:
        return best
    words = np.clip(_finite(links.session_words), 0.0, 1.0)
    if not words.any():
        return best
    share = words_share * links.session_count / (links.session_count + SESSION_PRIOR_COUNT)
    return np.where(links.session >= 0, (1.0 - share) * best + share * words, best)


def _session_best(scores: Scores, session: Rows) -> Scores:
    count = int(session.max(initial=-1)) + 1
    best = fold_sessions(scores, session, count)
    alone = session < 0
    return scores if count == 0 else np.where(alone, scores, best[session])


def _finite(values: ArrayLike) -> Scores:
    array = np.asarray(values, dtype=np.float64)
    return np.where(np.isfinite(array), array, 0.0)


def _over_best(values: Scores) -> Scores:
    best = values.max(initial=0.0)
    return values / best if best > _TINY else np.zeros_like(values)


REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class PooledCandidates:
    """The rows of the candidates, ascending, and the searches that found each."""

    rows: tuple[int, ...]
    origins: tuple[frozenset[str], ...]


def pool(
    sources: Mapping[str, Sequence[int]],
    required: Iterable[int] = (),
    size: int = CANDIDATE_POOL_SIZE,
) -> PooledCandidates:
    """Unite the sources, each best first, into at most `size` rows plus the required ones.

    Larger sources are cut at the same depth, so that none crowds out another. In the last round
    the sources named first go first.
    """
    if size < 0:
        raise ValueError(f"the size of a pool must be at least 0, not {size}")
    if REQUIRED in sources:
        raise ValueError(f"the source name {REQUIRED!r} is reserved")
    always = {int(row) for row in required}
    turns = chain.from_iterable(zip_longest(*map(dict.fromkeys, sources.values())))
    # An exhausted source gives None.
    found = (row for row in dict.fromkeys(turns) if row is not None and row not in always)
    kept = sorted(map(int, always.union(islice(found, size))))
    names_of: dict[int, tuple[str, ...]] = dict.fromkeys(kept, ())
    for name, rows in (*sources.items(), (REQUIRED, always)):
        for row in names_of.keys() & rows:
            names_of[row] += (name,)
    # Few combinations of sources occur, so each set is built once.
    sets = {names: frozenset(names) for names in set(names_of.values())}
    return PooledCandidates(tuple(kept), tuple(sets[names] for names in names_of.values()))
