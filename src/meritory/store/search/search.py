"""Both legs of a search in SQLite: full text through FTS5, vectors through the index in memory."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np

from meritory.domain.errors import Corrupt
from meritory.rank.composite import PROVENANCE_LADDER, static_effective
from meritory.rank.hybrid import match_sessions
from meritory.store.contract.memories import BoolArray, FloatArray, IntArray, Search, SearchPool
from meritory.store.search.index import IndexEntry, MemoryIndex, View, top
from meritory.store.sql.connection import SqlConnection
from meritory.store.sqlite.fts_tokenizer import Stemmer
from meritory.text.terms import choose_terms

# What stands in identifiers' parts and tags counts half of what stands in the text itself.
WORDS_COLUMN_WEIGHT = 0.5
# A word is rare when at most this share of the memories in scope, or these few, have it; two of
# them in common are no accident (any match could be had by stuffing a text with common words).
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
        """In how many memories each term occurs; one of several words as often as its rarest."""

    def hits(
        self, terms: Sequence[str], scopes: Sequence[int], limit: int
    ) -> tuple[IntArray, FloatArray]:
        """Rows of the best hits for any of the terms in these scopes with their BM25 scores."""

    def rows(self, term: str) -> IntArray:
        """The rows that have a term, ascending; asked for once in a search."""


class Vectors(Protocol):
    """The vectors of what is open to a search."""

    def cosines(self, query: FloatArray, limit: int) -> tuple[FloatArray, FloatArray]:
        """By slot raw and centred cosines, of at least the best `limit`; NaN where unknown."""

    def complete(self, raw: FloatArray, centred: FloatArray, slots: IntArray) -> None:
        """Fills in what is missing of these slots."""

    def mean_cosine(self, centred: FloatArray) -> float:
        """The mean centred cosine of all that is open."""

    def vectors(self, slots: IntArray) -> FloatArray:
        """The vectors of slots, zero where there is none."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What is searched: the look at the index, and the two ways to find something in it."""

    connection: SqlConnection
    stemmer: Stemmer
    view: View
    scopes: list[int]
    words: Words
    vectors: Vectors


def rarest(stems: Mapping[str, tuple[str, ...]], found: Mapping[str, int]) -> dict[str, int]:
    """By term the count of the rarest of its stems."""
    return {
        term: min(found.get(stem, 0) for stem in tokens) for term, tokens in stems.items() if tokens
    }


def open_hits(ground: Ground, search: Search, terms: Sequence[str]) -> tuple[IntArray, FloatArray]:
    """The slots and scores of the best open hits; what is not open takes nobody's place."""
    limit = search.text_limit
    while True:
        rows, found = ground.words.hits(terms, ground.scopes, limit)
        slots = ground.view.open_slots_of(rows)
        is_open = slots >= 0
        if len(rows) < limit or np.count_nonzero(is_open) >= search.text_limit:
            return slots[is_open][: search.text_limit], found[is_open][: search.text_limit]
        limit *= _WIDENING


def open_view(index: MemoryIndex, search: Search, scopes: Sequence[int]) -> View:
    """What a search may find."""
    view = index.view(scopes)
    if search.injectable_at is None:
        return view
    return view.injectable(search.injectable_at.timestamp() / _SECONDS_PER_DAY + EPOCH_JULIAN_DAY)


@dataclass(frozen=True, slots=True)
class SessionScores:
    """What the sessions open to a search say as a whole."""

    # By session.
    words: FloatArray
    # By slot: whether no stronger source spoke in the same session.
    leads: BoolArray
    count: int

    def words_of(self, sessions: IntArray) -> FloatArray:
        """How well the words of these sessions match together, 0 for no session."""
        found = np.zeros(len(sessions), np.float32)
        found[sessions >= 0] = self.words[sessions[sessions >= 0]]
        return found


def session_leg(words: Words, view: View, terms: Sequence[str]) -> SessionScores:
    """How well every session matches as one text, made of what its strongest source said.

    Words spread over a session add up here, without a second index. What an assistant says at
    length beside the user is left out: it has words of everything.
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
    """Each memory's step on the provenance ladder, demotions included."""
    steps = view.provenances(slots) + np.maximum(view.demotions(slots), 0)
    return np.minimum(steps, len(PROVENANCE_LADDER) - 1)


@dataclass(frozen=True, slots=True)
class SearchLegs:
    """What both searches found, before it is joined; slots of hits stand best first."""

    terms: tuple[str, ...]
    hits: IntArray
    text_scores: FloatArray
    raw: FloatArray
    cosines: FloatArray
    rare_hits: tuple[int, ...]


def both_legs(ground: Ground, search: Search) -> SearchLegs:
    """Runs both searches over what is open."""
    view, words = ground.view, ground.words
    # Words and phrases together: each question to the tokenizer costs as much as its answer.
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
    """The words that are in so few of the open memories that sharing them says something.

    What is common in the store may be rare here; that is looked up for terms of the search only.
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
    """Those of the rows that have at least two of the terms."""
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
    """Both legs, joined, with the turns up to two steps beside every hit."""
    view = ground.view
    legs = both_legs(ground, search)
    found = united(view, legs.hits, top(legs.cosines, search.vector_limit))
    return joined(ground, legs, with_neighbours(view, found))


def joined(ground: Ground, legs: SearchLegs, slots: IntArray) -> SearchPool:
    """What is known about slots, which are sorted and hold all text hits."""
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
        previous=_positions(slots, view.beside(slots, -1)),
        following=_positions(slots, view.beside(slots, +1)),
        leads=sessions.leads[slots],
        session_words=sessions.words_of(view.sessions(slots)),
        session_count=sessions.count,
        mean_cosine=ground.vectors.mean_cosine(cosines),
        mean_length_chars=view.mean_length_chars(),
        rare_hits=legs.rare_hits,
    )


def united(view: View, *parts: IntArray) -> IntArray:
    """All the slots named, ascending and each once; -1 names none."""
    # Marking them is several times faster than sorting them. The last mark is that of -1.
    is_named = np.zeros(view.count + 1, np.bool_)
    for part in parts:
        is_named[part] = True
    return np.flatnonzero(is_named[:-1])


def with_neighbours(view: View, slots: IntArray) -> IntArray:
    """The slots and the turns up to two steps beside them, sorted."""
    return united(view, slots, *(view.beside(slots, step) for step in (-2, -1, 1, 2)))


def _positions(slots: IntArray, wanted: IntArray) -> IntArray:
    """Where wanted slots stand in the sorted slots, -1 for those that do not."""
    if not len(slots):
        return wanted
    at = np.minimum(np.searchsorted(slots, wanted), len(slots) - 1)
    return np.where((wanted >= 0) & (slots[at] == wanted), at, -1)


def numbers(connection: SqlConnection) -> dict[str, int]:
    """The numbers by which copies in memory know that the store has changed."""
    noted = dict(
        connection.execute("SELECT key, CAST(value AS INTEGER) FROM meta WHERE key <> 'serving'")
    )
    if "change" not in noted:
        raise Corrupt("the store has lost its count of changes", hint="restore a backup")
    return noted


def synchronise(
    connection: SqlConnection, index: MemoryIndex, user: str, embedder: int | None
) -> None:
    """Takes over what was committed since the index last looked, by us or another process."""
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
    """One memory out of the columns that `synchronise` reads."""
    importance, created_day, is_trusted, until_day = row[9:13]
    known = dict(zip(_ENTRY_COLUMNS, row[:9], strict=True))
    return IndexEntry(
        **known,
        standing=static_effective(importance, created_day),
        is_trusted=bool(is_trusted),
        until_day=math.inf if until_day is None else until_day,
    )


def take_in(index: MemoryIndex, entries: Sequence[IndexEntry]) -> None:
    """Adds entries; a damaged row that holds nonsense must not take the others from a search."""
    nonsense = (TypeError, ValueError, OverflowError)
    try:
        index.add(entries)
    except nonsense:
        for entry in entries:
            with contextlib.suppress(*nonsense):
                index.add([entry])
