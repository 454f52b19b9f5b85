"""Search: the full-text leg and the vector leg, joined, for every store.

A store provides its full-text index as `Words` and its vectors as `Vectors`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from meritory.domain.errors import Corrupt
from meritory.rank.composite import PROVENANCE_LADDER, static_effective
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
from meritory.store.sql.mapper import SqlConnection, as_json
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
_LOAD_ROWS = 4_096
_WIDENING = 4
_SECONDS_PER_DAY = 86_400.0
EPOCH_JULIAN_DAY = 2_440_587.5
_ENTRY_COLUMNS = tuple(item.name for item in fields(IndexEntry))[:9]


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


def open_hits(ground: Ground, search: Search, terms: Sequence[str]) -> tuple[IntArray, FloatArray]:
    """Return slots and scores of the best open hits; a hit that is not open takes no place."""
    limit = search.text_limit
    while True:
        rows, found = ground.words.hits(terms, ground.scopes, limit)
        slots = ground.view.open_slots_of(rows)
        is_open = slots >= 0
        if len(rows) < limit or np.count_nonzero(is_open) >= search.text_limit:
            return slots[is_open][: search.text_limit], found[is_open][: search.text_limit]
        limit *= _WIDENING


def open_view(index: MemoryIndex, search: Search, scopes: Sequence[int]) -> View:
    """Return the view of all memories that a search may find."""
    view = index.view(scopes)
    if search.injectable_at is None:
        return view
    return view.injectable(search.injectable_at.timestamp() / _SECONDS_PER_DAY + EPOCH_JULIAN_DAY)


@dataclass(frozen=True, slots=True)
class SessionScores:
    """How well whole sessions match a search."""

    # By session.
    words: FloatArray
    # By slot: whether no stronger source spoke in the same session.
    leads: BoolArray
    count: int

    def words_of(self, sessions: IntArray) -> FloatArray:
        """Return how well the words of these sessions match as one text, 0 without a session."""
        found = np.zeros(len(sessions), np.float32)
        found[sessions >= 0] = self.words[sessions[sessions >= 0]]
        return found


def session_leg(words: Words, view: View, terms: Sequence[str]) -> SessionScores:
    """Return how well every session matches as one text, made of its strongest source.

    Words spread over a session add up here, without a second index. Long replies of an assistant
    next to texts of the user are left out: they contain words of everything.
    """
    slots = np.flatnonzero(view.open)
    slots = slots[view.sessions(slots) >= 0]
    leads = np.ones(len(view.open), np.bool_)
    if not len(slots):
        return SessionScores(np.empty(0, np.float32), leads, 0)
    sessions, steps = view.sessions(slots), _ladder_steps(view, slots)
    step_count = len(PROVENANCE_LADDER)
    lengths = np.bincount(
        sessions * step_count + steps,
        view.lengths_chars(slots),
        (int(sessions.max()) + 1) * step_count,
    ).reshape(-1, step_count)
    strongest = (lengths > 0.0).argmax(axis=1)
    leads[slots] = steps == strongest[sessions]
    length = lengths[np.arange(len(lengths)), strongest]
    hits = []
    for term in terms:
        found = view.open_slots_of(words.rows(term))
        hits.append(view.sessions(found[(found >= 0) & leads[found]]))
    found_words = match_sessions(hits, length).astype(np.float32)
    return SessionScores(found_words, leads, int(np.count_nonzero(length)))


def _ladder_steps(view: View, slots: IntArray) -> IntArray:
    """Return each memory's step on the provenance ladder, with demotions."""
    steps = view.provenances(slots) + np.maximum(view.demotions(slots), 0)
    return np.minimum(steps, len(PROVENANCE_LADDER) - 1)


@dataclass(frozen=True, slots=True)
class SearchLegs:
    """The hits of both legs before they are joined; `hits` are slots, best first."""

    terms: tuple[str, ...]
    hits: IntArray
    text_scores: FloatArray
    raw: FloatArray
    cosines: FloatArray
    rare_hits: tuple[int, ...]


def both_legs(ground: Ground, search: Search) -> SearchLegs:
    """Run both legs over the open slots."""
    view, words = ground.view, ground.words
    # Words and phrases together: a call of the tokenizer costs as much as its work.
    stems = ground.stemmer.tokens_of((*search.terms, *search.phrases))
    frequencies = words.frequencies({term: stems[term] for term in search.terms})
    terms = choose_terms(frequencies, view.count, search.posting_budget)
    kept = {token for term in terms for token in stems[term]}
    phrases = [text for text in search.phrases if kept.issuperset(stems[text])]
    hits, text_scores = open_hits(ground, search, (*terms, *phrases))
    best, rare = view.rows(hits[: search.hit_limit]), []
    if len(best):
        single = {term: rows for term, rows in frequencies.items() if len(stems[term]) == 1}
        # Words of one stem are one word.
        found = rare_terms(words, view, single, terms)
        rare = list({stems[term]: term for term in found}.values())
    vector = search.vector if search.vector is not None else np.empty(0, np.float32)
    raw, cosines = ground.vectors.cosines(vector, search.vector_limit)
    shared = rare_hits(words, best, rare)
    return SearchLegs(terms, hits, text_scores, raw, cosines, shared)


def rare_terms(
    words: Words, view: View, frequencies: dict[str, int], terms: Sequence[str]
) -> list[str]:
    """Return the words that few of the open memories have.

    A word that is common in the store may be rare here; only terms of the search are looked up.
    """
    limit = max(RARE_ROWS, RARE_SHARE * int(np.count_nonzero(view.open)))

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
    view = ground.view
    legs = both_legs(ground, search)
    found = united(view, legs.hits, top(legs.cosines, search.vector_limit))
    return joined(ground, legs, with_neighbours(view, found))


def joined(ground: Ground, legs: SearchLegs, slots: IntArray) -> SearchPool:
    """Return the pool of slots, which are sorted and contain all text hits."""
    view, cosines = ground.view, legs.cosines
    text = np.zeros(len(slots), np.float32)
    text[np.searchsorted(slots, legs.hits)] = legs.text_scores
    ground.vectors.complete(legs.raw, cosines, slots)
    sessions = session_leg(ground.words, view, legs.terms)
    return SearchPool(
        rows=view.rows(slots),
        text=text,
        cosine=cosines[slots],
        raw_cosine=legs.raw[slots],
        length_chars=view.lengths_chars(slots),
        provenance=view.provenances(slots),
        confidence=view.confidences(slots),
        demotion=view.demotions(slots),
        session=view.sessions(slots),
        previous=_positions(slots, view.turns_after(slots, -1)),
        following=_positions(slots, view.turns_after(slots, +1)),
        leads=sessions.leads[slots],
        session_words=sessions.words_of(view.sessions(slots)),
        session_count=sessions.count,
        mean_cosine=ground.vectors.mean_cosine(cosines),
        mean_length_chars=view.mean_length_chars(),
        rare_hits=legs.rare_hits,
    )


def united(view: View, *parts: IntArray) -> IntArray:
    """Return all slots in `parts`, ascending and each once; -1 stands for none."""
    # Marking is several times faster than sorting. The last mark is for -1.
    is_named = np.zeros(view.count + 1, np.bool_)
    for part in parts:
        is_named[part] = True
    return np.flatnonzero(is_named[:-1])


def with_neighbours(view: View, slots: IntArray) -> IntArray:
    """Return the slots and the turns up to two steps away, sorted."""
    return united(view, slots, *(view.turns_after(slots, step) for step in (-2, -1, 1, 2)))


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
        provenance=view.provenances(slots),
        confidence=view.confidences(slots),
        demotion=view.demotions(slots),
        vectors=ground.vectors.vectors(slots),
        by_effective=view.rows(effective),
        by_cosine=view.rows(near),
        by_text=view.rows(legs.hits),
        row_of_id=row_of_id,
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
            (embedder, 4 * index.dimension, user, index.change),
        )
        while batch := cursor.fetchmany(_LOAD_ROWS):
            index.remove([row[0] for row in batch if not row[-1]])
            take_in(index, [entry_of(row) for row in batch if row[-1]])
        index.change = noted["change"]


def entry_of(row: Sequence[Any]) -> IndexEntry:
    """Return the index entry of a row that `synchronise` reads."""
    importance, created_day, is_trusted, until_day = row[9:13]
    known = dict(zip(_ENTRY_COLUMNS, row[:9], strict=True))
    return IndexEntry(
        **known,
        standing=static_effective(importance, created_day),
        is_trusted=bool(is_trusted),
        until_day=math.inf if until_day is None else until_day,
    )


def take_in(index: MemoryIndex, entries: Sequence[IndexEntry]) -> None:
    """Add entries; a damaged row must not hide the others from a search."""
    nonsense = (TypeError, ValueError, OverflowError)
    try:
        index.add(entries)
    except nonsense:
        for entry in entries:
            with contextlib.suppress(*nonsense):
                index.add([entry])
