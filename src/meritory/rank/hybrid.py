"""Hybrid search: candidate pool, joined text and vector scores, neighbours, source weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice, zip_longest

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meritory.domain.memory import DEFAULT_CONFIDENCE
from meritory.domain.policy import CANDIDATE_POOL_SIZE, VECTOR_WEIGHT, SourceWeights

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

# Strongest first; a demotion moves a memory one step to the right.
PROVENANCE_LADDER = ("user_stated", "episode_summary", "assistant_derived")
_STEPS = {name: step for step, name in enumerate(PROVENANCE_LADDER)}
_LAST_STEP = len(PROVENANCE_LADDER) - 1


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
    # That share for a question over many sessions: its answer is not in one of them.
    session_over_many: float = 0.0
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


def finite(values: ArrayLike, neutral: float = 0.0) -> Scores:
    """Return the values, with `neutral` for those that are not finite."""
    array = np.asarray(values, dtype=np.float64)
    return np.where(np.isfinite(array), array, neutral)


def unit(values: ArrayLike, neutral: float = 0.0) -> Scores:
    """Return the values clipped to 0..1, with `neutral` for those that are not finite."""
    return np.clip(finite(values, neutral), 0.0, 1.0)


def relative(values: ArrayLike) -> Scores:
    """Return values divided by the largest; all 0 without a positive one."""
    array = np.maximum(finite(values), 0.0)
    best = array.max(initial=0.0)
    return array / best if best > _TINY else np.zeros_like(array)


def provenance_codes(provenances: Sequence[str]) -> Rows:
    """Return the step of each provenance on the ladder; an unknown one is on the lowest."""
    return np.array([_STEPS.get(name, _LAST_STEP) for name in provenances], dtype=np.intp)


def source_weight(
    codes: ArrayLike, confidence: ArrayLike, demotion: ArrayLike, weights: SourceWeights
) -> Scores:
    """Return the factor in 0..1 by which provenance, demotions and doubt lower a cosine."""
    reached = _reached(tuple(getattr(weights, name) for name in PROVENANCE_LADDER))
    steps, levels = (
        np.clip(finite(given, neutral), 0, _LAST_STEP).astype(np.intp)
        for given, neutral in ((codes, _LAST_STEP), (demotion, 0))
    )
    doubt = 1.0 - unit(confidence, DEFAULT_CONFIDENCE)
    return np.asarray(reached[steps, levels] * (1.0 - weights.confidence_slope * doubt))


@lru_cache(maxsize=64)
def _reached(ladder: tuple[float, ...]) -> Scores:
    """Return the weight by step on the ladder and number of demotions."""
    # The minimum over all steps passed: a demotion never raises a score.
    return np.array(
        [
            [min(ladder[step : step + count + 1]) for count in range(len(ladder))]
            for step in range(len(ladder))
        ]
    )


def relevance(cosine: ArrayLike, weight: ArrayLike) -> Scores:
    """Return the cosine, at least 0, times the source weight; 0 if it is not finite."""
    return np.asarray(unit(cosine) * unit(weight))


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
    text, length = finite(legs.text), finite(legs.length_chars)
    if stats.mean_length_chars > 0.0:
        slope = BM25_SLOPE / stats.mean_length_chars
        short = BM25_FLAT + slope * length
        text = text * short / (BM25_FLAT + slope * np.maximum(length, used.length_floor_chars))
    text = relative(text)
    level = stats.mean_cosine if np.isfinite(stats.mean_cosine) else 0.0
    above = finite(np.asarray(legs.cosine, dtype=np.float64) - level)
    # All are equal, as in a store of one memory: use the plain cosine.
    is_flat = above.max(initial=0.0) <= _ROUNDING
    cosine = unit(legs.cosine) if is_flat else relative(above)
    if text.size != cosine.size:
        raise ValueError(f"the legs differ in size: {text.size} and {cosine.size}")
    share = used.cosine
    if text.any():
        # How close the vector scores of the best text hits are to the best vector scores.
        count = min(AGREEMENT_HITS, text.size)
        best_text = np.argpartition(-text, count - 1)[:count]
        ideal = -np.partition(-cosine, count - 1)[:count].sum()
        # Without vectors there is nothing to compare.
        agreement = float(cosine[best_text].sum() / ideal) if ideal > _TINY else 1.0
        trust = agreement / max(used.full_agreement, _TINY)
        share *= float(np.clip(trust, used.least_share, 1.0))
    return np.asarray(share * cosine + (1.0 - share) * text)


def match_sessions(hits: Sequence[Rows], length_chars: ArrayLike) -> Scores:
    """Return for each session in 0..1 how well its memories, taken as one text, match: BM25.

    `hits` holds for each term the session of every memory that has it, `length_chars` the length
    of each session; one of length 0 was not searched. The best session has 1.
    """
    length = np.maximum(finite(length_chars), 0.0)
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
    return relative(found)


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
    total = own + used.session * _session_scores(own, links, used.session_words)
    lent = own if links.lends is None else np.where(links.lends, own, 0.0)

    def better(left: Rows, right: Rows) -> Scores:
        scores = (np.where(rows >= 0, lent[rows], 0.0) for rows in (left, right))
        return np.maximum(*scores)

    # The neighbours one step away, then two.
    left, right = links.previous_row, links.next_row
    total += used.near * better(left, right)
    left, right = (np.where(rows >= 0, rows[rows], -1) for rows in (left, right))
    total += used.far * better(left, right)
    total /= 1.0 + used.session + used.near + used.far
    return np.where(valid, total, 0.0)


def _session_scores(own: Scores, links: Links, words_share: float) -> Scores:
    """Return the score of each memory's session: its best memory, and all its words together."""
    count = int(links.session.max(initial=-1)) + 1
    if count == 0:
        return own
    has_session = links.session >= 0
    best = np.where(has_session, fold_sessions(own, links.session, count)[links.session], own)
    words = unit(0.0 if links.session_words is None else links.session_words)
    if not words.any():
        return best
    share = words_share * links.session_count / (links.session_count + SESSION_PRIOR_COUNT)
    return np.where(has_session, (1.0 - share) * best + share * words, best)


def fold_sessions(scores: ArrayLike, session: Rows, count: int) -> Scores:
    """Return the score of each of count sessions: that of its best memory, -inf without one."""
    out = np.full(count, -np.inf)
    values = np.nan_to_num(np.asarray(scores, dtype=np.float64), nan=-np.inf)
    known = session >= 0
    np.maximum.at(out, session[known], values[known])
    return out


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
