"""Search: the full-text leg and the vector leg, joined, for every store.

A store provides its full-text index as `Words` and its vectors as `Vectors`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from meritory.domain.errors import Corrupt
from meritory.rank.composite import static_effective
from meritory.rank.hybrid import match_sessions
from meritory.store.contract.memories import (
    BoolArray,
    FloatArray,
    Gathered,
    Gathering,
    IntArray,
    Search,
    SearchPool,
)
from meritory.store.search.index import IndexEntry, MemoryIndex, View, top
from meritory.store.sql.mapper import SqlConnection, as_json, vector_bytes
from meritory.store.sql.visibility import allowed_rows
from meritory.text.terms import choose_terms

if TYPE_CHECKING:
    from meritory.store.sqlite.fulltext import Stemmer

# A hit in the parts of identifiers or in tags counts half of one in the text.
WORDS_COLUMN_WEIGHT = 0.5
# A word is rare if at most this share of the memories in scope, or this many, have it. Two shared
# rare words are not an accident, while a text stuffed with common words matches anything.
RARE_SHARE = 0.02
RARE_ROWS = 3
RARE_WORDS_MIN = 2
# A corrected word, or another spelling of one, counts less than the word itself.
NEAR_TERM_WEIGHT = 0.8
_LOAD_ROWS = 4_096
_WIDENING = 4
_SECONDS_PER_DAY = 86_400.0
EPOCH_JULIAN_DAY = 2_440_587.5
_NONSENSE = (TypeError, ValueError, OverflowError)


class Words(Protocol):
    """The full-text index of a store."""

    def frequencies(self, stems: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
        """Return how many memories have each term; a phrase counts as its rarest word."""

    def hits(
        self, terms: Sequence[str], scopes: Sequence[int], limit: int
    ) -> tuple[IntArray, FloatArray]:
        """Return the best rows for any of the terms in these scopes, with their BM25 scores."""

    def rows(self, term: str) -> IntArray:
        """Return the rows that have a term, ascending; called once in a search."""

    def vocabulary(self, start: str) -> list[str]:
        """Return the stems in the index that begin with a letter."""


class Vectors(Protocol):
    """The vectors of the memories that are open to a search."""

    def cosines(self, query: FloatArray, limit: int) -> tuple[FloatArray, FloatArray]:
        """Return raw and centred cosines by slot, at least the best `limit`; NaN if unknown."""

    def complete(self, raw: FloatArray, centred: FloatArray, slots: IntArray) -> None:
        """Fill in the missing cosines of these slots."""

    def mean_cosine(self, centred: FloatArray) -> float:
        """Return the mean centred cosine of all open slots."""

    def vectors(self, slots: IntArray) -> FloatArray:
        """Return the vectors of slots, zero where there is none."""


@dataclass(frozen=True, slots=True)
class Ground:
    """The inputs of a search: the view of the index, and the data of both legs."""

    connection: SqlConnection
    stemmer: Stemmer
    view: View
    scopes: list[int]
    words: Words
    vectors: Vectors


def rarest(stems: Mapping[str, tuple[str, ...]], found: Mapping[str, int]) -> dict[str, int]:
    """Return the count of the rarest stem of each term."""
    return {
        term: min(found.get(stem, 0) for stem in tokens) for term, tokens in stems.items() if tokens
    }


def open_view(
    connection: SqlConnection, index: MemoryIndex, search: Search, scopes: Sequence[int]
) -> View:
    """Return the view of all memories that a search may find."""
    view = index.view(scopes)
    if not search.filter.is_empty:
        view = view.only(allowed_rows(connection, search.scope.user, search.filter))
    if search.injectable_at is None:
        return view
    return view.injectable(search.injectable_at.timestamp() / _SECONDS_PER_DAY + EPOCH_JULIAN_DAY)


def session_leg(
    words: Words, view: View, terms: Sequence[str]
) -> tuple[FloatArray, BoolArray, int]:
    """Return how well every session matches as one text.

    Words spread over a session add up here, without a second index. The scores are by session,
    with a last 0 for -1. Then come, by slot, whether no stronger source spoke in its session, and
    the number of sessions.
    """
    texts = view.sessions
    if not len(texts.length_chars):
        return np.zeros(1, np.float32), texts.leads, 0
    hits = []
    for term in terms:
        found = view.open_slots_of(words.rows(term))
        hits.append(view.columns.session[found[(found >= 0) & texts.leads[found]]])
    scores = match_sessions(hits, texts.length_chars).astype(np.float32)
    count = int(np.count_nonzero(texts.length_chars))
    return np.append(scores, np.float32(0.0)), texts.leads, count


@dataclass(frozen=True, slots=True)
class SearchLegs:
    """The hits of both legs before they are joined; `hits` are slots, best first."""

    terms: tuple[str, ...]
    hits: IntArray
    text_scores: FloatArray
    raw: FloatArray
    cosines: FloatArray
    rare_hits: tuple[int, ...]
    frequencies: Mapping[str, int]


def both_legs(ground: Ground, search: Search) -> SearchLegs:
    """Run both legs over the open slots."""
    view, words = ground.view, ground.words
    # Words and phrases together: a call of the tokenizer costs as much as its work.
    stems = ground.stemmer.tokens_of((*search.terms, *search.near_terms, *search.phrases))
    single_terms = (*search.terms, *search.near_terms)
    frequencies = words.frequencies({term: stems[term] for term in single_terms})
    terms = choose_terms(frequencies, view.count, search.posting_budget)
    exact = [term for term in terms if term in search.terms]
    near = [term for term in terms if term not in search.terms]
    kept = {token for term in terms for token in stems[term]}
    phrases = [text for text in search.phrases if kept.issuperset(stems[text])]
    limit = search.text_limit
    while True:
        rows, scores = words.hits((*exact, *phrases), ground.scopes, limit)
        if near:
            rows, scores = joined_hits(
                (rows, scores), words.hits(near, ground.scopes, limit), NEAR_TERM_WEIGHT
            )
        slots = view.open_slots_of(rows)
        is_open = slots >= 0
        # A hit that is not open takes no place.
        if len(rows) < limit or np.count_nonzero(is_open) >= search.text_limit:
            break
        limit *= _WIDENING
    hits = slots[is_open][: search.text_limit]
    text_scores = scores[is_open][: search.text_limit]
    best, rare = view.rows(hits[: search.hit_limit]), []
    if len(best):
        single = {term: rows for term, rows in frequencies.items() if len(stems[term]) == 1}
        # Words of one stem are one word.
        found = rare_terms(words, view, single, terms)
        rare = list({stems[term]: term for term in found}.values())
    vector = search.vector if search.vector is not None else np.empty(0, np.float32)
    raw, cosines = ground.vectors.cosines(vector, search.vector_limit)
    shared = rare_hits(words, best, rare)
    return SearchLegs(terms, hits, text_scores, raw, cosines, shared, frequencies)


def joined_hits(
    exact: tuple[IntArray, FloatArray], near: tuple[IntArray, FloatArray], weight: float
) -> tuple[IntArray, FloatArray]:
    """Return the rows of two searches, best first; the scores of the second count `weight`."""
    rows, place = np.unique(np.concatenate([exact[0], near[0]]), return_inverse=True)
    scores = np.concatenate([exact[1], near[1] * np.float32(weight)])
    total = np.bincount(place, scores, len(rows)).astype(np.float32)
    order = np.lexsort((rows, -total))
    return rows[order], total[order]


def rare_terms(
    words: Words, view: View, frequencies: dict[str, int], terms: Sequence[str]
) -> list[str]:
    """Return the words that few of the open memories have.

    A word that is common in the store may be rare here; only terms of the search are looked up.
    """
    limit = max(RARE_ROWS, RARE_SHARE * view.open_count)

    def open_count(term: str) -> int:
        return int(np.count_nonzero(view.open_slots_of(words.rows(term)) >= 0))

    return [
        term
        for term, rows in frequencies.items()
        if 0 < rows <= limit or (term in terms and open_count(term) <= limit)
    ]


def rare_hits(words: Words, rows: IntArray, terms: Sequence[str]) -> tuple[int, ...]:
    """Return the rows that have at least two of the terms."""
    if len(terms) < RARE_WORDS_MIN or not len(rows):
        return ()
    found = np.zeros(len(rows), np.int64)
    for term in terms:
        having = words.rows(term)
        if not len(having):
            continue
        at = np.minimum(np.searchsorted(having, rows), len(having) - 1)
        found += having[at] == rows
    return tuple(rows[found >= RARE_WORDS_MIN].tolist())


def run(ground: Ground, search: Search) -> SearchPool:
    """Return the hits of both legs, and the turns up to two steps away from each."""
    view, columns = ground.view, ground.view.columns
    legs = both_legs(ground, search)
    found = united(view, legs.hits, top(legs.cosines, search.vector_limit))
    slots = united(view, found, *(view.turns_after(found, step) for step in (-2, -1, 1, 2)))
    text = np.zeros(len(slots), np.float32)
    text[np.searchsorted(slots, legs.hits)] = legs.text_scores
    ground.vectors.complete(legs.raw, legs.cosines, slots)
    session_words, leads, session_count = session_leg(ground.words, view, legs.terms)
    return SearchPool(
        rows=view.rows(slots),
        text=text,
        cosine=legs.cosines[slots],
        raw_cosine=legs.raw[slots],
        length_chars=columns.length_chars[slots],
        provenance=columns.provenance[slots],
        confidence=columns.confidence[slots],
        demotion=columns.demotion[slots],
        session=columns.session[slots],
        previous=_positions(slots, view.turns_after(slots, -1)),
        following=_positions(slots, view.turns_after(slots, +1)),
        leads=leads[slots],
        session_words=session_words[columns.session[slots]],
        session_count=session_count,
        mean_cosine=ground.vectors.mean_cosine(legs.cosines),
        mean_length_chars=view.mean_length_chars(),
        term_counts=legs.frequencies,
        memory_count=int(np.count_nonzero(view.open)),
        embedder=None if search.vector is None else search.embedder,
        rare_hits=legs.rare_hits,
    )


def united(view: View, *parts: IntArray) -> IntArray:
    """Return all slots in `parts`, ascending and each once; -1 stands for none."""
    # Marking is several times faster than sorting. The last mark is for -1.
    is_named = np.zeros(view.count + 1, np.bool_)
    for part in parts:
        is_named[part] = True
    return np.flatnonzero(is_named[:-1])


def _positions(slots: IntArray, wanted: IntArray) -> IntArray:
    """Return the positions of `wanted` in the sorted slots, -1 for missing ones."""
    if not len(slots):
        return wanted
    at = np.minimum(np.searchsorted(slots, wanted), len(slots) - 1)
    return np.where((wanted >= 0) & (slots[at] == wanted), at, -1)


def gather(ground: Ground, gathering: Gathering) -> Gathered:
    """Return the best memories of every search, each with the scores of both legs."""
    search, view = gathering.search, ground.view
    legs = both_legs(ground, search)
    row_of_id: dict[str, int] = {}
    if gathering.ids:
        known = ground.connection.execute(
            """SELECT id, row FROM memories
                WHERE user = ? AND id IN (SELECT value FROM json_each(?))""",
            (search.scope.user, as_json(gathering.ids)),
        ).fetchall()
        # An id comes from outside: only rows that the scope may see count.
        open_slots = view.open_slots_of(np.array([row for _, row in known], np.int64))
        row_of_id = {
            memory_id: row
            for (memory_id, row), slot in zip(known, open_slots.tolist(), strict=True)
            if slot >= 0
        }
    wanted = np.concatenate([gathering.rows, np.array(list(row_of_id.values()), np.int64)])
    extra = view.open_slots_of(wanted)
    # Not centred: the contexts contain the mean of all memories as well (ADR 0010).
    near = top(legs.raw, search.vector_limit)
    effective = view.best_standing(gathering.effective_limit)
    slots = united(view, legs.hits, near, effective, extra)
    # By row, so that the same store gives the same order in every process.
    slots = slots[np.argsort(view.rows(slots))]
    ground.vectors.complete(legs.raw, legs.cosines, slots)
    text = np.zeros(view.count, np.float32)
    text[legs.hits] = legs.text_scores
    return Gathered(
        rows=view.rows(slots),
        text=text[slots],
        cosine=legs.raw[slots],
        centred=legs.cosines[slots],
        provenance=view.columns.provenance[slots],
        confidence=view.columns.confidence[slots],
        demotion=view.columns.demotion[slots],
        vectors=ground.vectors.vectors(slots),
        by_effective=view.rows(effective),
        by_cosine=view.rows(near),
        by_text=view.rows(legs.hits),
        row_of_id=row_of_id,
        corpus_count=view.open_count,
    )


def numbers(connection: SqlConnection) -> dict[str, int]:
    """Return the numbers by which caches detect that the store has changed."""
    noted = dict(
        connection.execute("SELECT key, CAST(value AS INTEGER) FROM meta WHERE key <> 'serving'")
    )
    if "change" not in noted:
        raise Corrupt("the store has lost its count of changes", hint="restore a backup")
    return noted


def synchronise(
    connection: SqlConnection, index: MemoryIndex, user: str, embedder: int | None
) -> None:
    """Add to the index the changes that any process has committed since the last call."""
    noted = numbers(connection)
    if noted["change"] == index.change:
        return
    with index.lock:
        if noted.get("purge", 0) > index.change:
            left = connection.execute("SELECT row FROM memories WHERE user = ?", (user,))
            index.keep_only(np.array([row for (row,) in left], np.int64))
        cursor = connection.execute(
            """SELECT m.row, m.scope, m.session_key, m.turn, length(m.content),
                    m.provenance, m.confidence, m.demotion, coalesce(v.vector, x''),
                    m.importance, julianday(m.created_at), m.trust = 'trusted',
                    julianday(m.valid_until),
                    m.deleted_at IS NULL AND m.superseded_by IS NULL
                FROM memories m
                LEFT JOIN memory_vectors v ON v.row = m.row AND v.embedder = ?
                    AND length(v.vector) = ?
                WHERE m.user = ? AND m.change > ? AND m.row <=
                    (SELECT seq FROM sqlite_sequence WHERE name = 'memories')""",
            (embedder, vector_bytes(index.dimension), user, index.change),
        )
        while batch := cursor.fetchmany(_LOAD_ROWS):
            index.remove([row[0] for row in batch if not row[-1]])
            entries = [
                # Row, scope and so on, and then the numbers made of importance, age and validity.
                IndexEntry._make(
                    (
                        *row[:9],
                        static_effective(row[9], row[10]),
                        bool(row[11]),
                        math.inf if row[12] is None else row[12],
                    )
                )
                for row in batch
                if row[-1]
            ]
            try:
                index.add(entries)
            except _NONSENSE:
                # A damaged row must not hide the others from a search.
                for entry in entries:
                    with contextlib.suppress(*_NONSENSE):
                        index.add([entry])
        index.change = noted["change"]
