"""The indexes that a search uses: full text in a table, and columns of each tenant in memory.

The full-text index holds stems of FTS5's own tokenizer. Every memory has a row for each of its
stems, with a weight (how often it is in the text, and half as much in the words next to it) and its
places. A search reads the rows of its few terms and computes BM25: scores are those of FTS5.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meritory.rank.composite import static_effectives
from meritory.rank.hybrid import PROVENANCE_LADDER
from meritory.store.contract.memories import FloatArray, IntArray
from meritory.store.postgres.dialect import packed_numbers, packed_pieces, packed_texts
from meritory.store.postgres.vectors import (
    MEAN_GROWTH,
    Mean,
    StoredEmbedder,
    rows_text,
    take_mean,
)
from meritory.store.search.index import IndexBatch, MemoryIndex, View, top
from meritory.store.search.search import EPOCH_JULIAN_DAY, WORDS_COLUMN_WEIGHT, rarest
from meritory.store.sql.mapper import SqlConnection, as_json
from meritory.store.sqlite.fulltext import Stemmer
from meritory.text.terms import MAX_TERMS

# Longer stems do not fit into an index; no query has one.
STEM_CHARS_MAX = 200
# Places in the words next to the text start here: no phrase spans both.
_WORDS_PLACE = 32_768
_PLACE_MAX = _WORDS_PLACE - 2
# More than any place, and any step from one, within a row.
_PLACES_PER_ROW = 4 * _WORDS_PLACE
_K1, _B = 1.2, 0.75
_LEAST_IDF = 1e-6
_COUNTS = """SELECT term, count(*) FROM memory_terms
    WHERE user = ? AND term IN (SELECT value FROM json_each(?)) GROUP BY term"""
_VOCABULARY = """SELECT DISTINCT term FROM memory_terms
    WHERE user = ? AND term >= ? AND term < ?"""
# Bytes end to end are fetched much faster than thousands of rows.
_POSTINGS = """SELECT term, string_agg(int8send(row), ''::bytea),
        string_agg(int4send(token_count), ''::bytea), string_agg(float4send(weight), ''::bytea)
    FROM memory_terms WHERE user = ? AND term IN (SELECT value FROM json_each(?)) GROUP BY term"""
_PLACES = """SELECT term, string_agg(int8send(row), ''::bytea),
        string_agg(int4send(length(places)), ''::bytea), string_agg(places, ''::bytea)
    FROM memory_terms WHERE user = ? AND term IN (SELECT value FROM json_each(?))
        AND row = ANY(?::bigint[]) GROUP BY term"""
_ADD = """INSERT INTO memory_terms (user, term, row, token_count, weight, places)
    SELECT :user, t.* FROM unnest(:terms::text[], :rows::bigint[], :token_counts::integer[],
        :weights::real[], :places::bytea[]) t"""
_DROP = """DELETE FROM memory_terms
    WHERE user = ? AND row = ? AND term IN (SELECT value FROM json_each(?))"""
_TOTALS = "SELECT document_count, token_count FROM tenants WHERE user = ?"


class IndexedText(NamedTuple):
    """The texts of a memory that are in the index."""

    content: str
    words: str


def add_texts(
    connection: SqlConnection, stemmer: Stemmer, user: str, texts: Mapping[int, IndexedText]
) -> int:
    """Add texts by their rows to the index; return their number of tokens."""
    stems = stemmer.stems_of([part for text in texts.values() for part in text])
    lengths = np.array([len(part) for part in stems], np.int64)
    token_count = int(lengths.sum())
    if not token_count:
        return 0
    flat = [_short(stem) for part in stems for stem in part]
    # Sorted by their bytes, as the table's key is: neighbours then go to the same page.
    known = sorted(set(flat))
    code_of = {stem: code for code, stem in enumerate(known)}
    codes = np.fromiter(map(code_of.__getitem__, flat), np.int64, token_count)
    part_at = np.repeat(np.arange(len(stems)), lengths)
    memory_at = part_at // 2
    places = np.minimum(
        np.arange(token_count) - np.repeat(np.cumsum(lengths) - lengths, lengths), _PLACE_MAX
    ) + _WORDS_PLACE * (part_at % 2)
    order = np.argsort(codes * len(texts) + memory_at, kind="stable")
    codes, memory_at, places = codes[order], memory_at[order], places[order]
    starts = np.flatnonzero(np.append(True, (np.diff(codes) != 0) | (np.diff(memory_at) != 0)))
    weight = np.where(places >= _WORDS_PLACE, WORDS_COLUMN_WEIGHT, 1.0)
    tokens = np.bincount(part_at // 2, minlength=len(texts))
    rows = np.array(list(texts), np.int64)
    connection.execute(
        _ADD,
        {
            "user": user,
            "terms": packed_texts(known, codes[starts].tolist(), len(starts)),
            "rows": packed_numbers(rows[memory_at[starts]], "i8"),
            "token_counts": packed_numbers(tokens[memory_at[starts]], "i4"),
            "weights": packed_numbers(np.add.reduceat(weight, starts), "f4"),
            "places": packed_pieces(places.astype(np.uint16), starts),
        },
    )
    return token_count


def drop_text(
    connection: SqlConnection, stemmer: Stemmer, user: str, row: int, text: IndexedText
) -> int:
    """Remove a text from the index; return its number of tokens."""
    stems = [_short(stem) for part in stemmer.stems_of(text) for stem in part]
    connection.execute(_DROP, (user, row, as_json(set(stems))))
    return len(stems)


@dataclass(frozen=True, slots=True)
class _Postings:
    """The memories that have a term: their rows in ascending order, lengths and weights."""

    rows: IntArray
    token_counts: IntArray
    weights: NDArray[np.float64]


_NOTHING = _Postings(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float64))


class TermTable:
    """The full-text index of one tenant, for one search."""

    def __init__(self, connection: SqlConnection, user: str, stemmer: Stemmer, view: View) -> None:
        self._connection = connection
        self._user = user
        self._stemmer = stemmer
        self._view = view
        self._known: dict[str, _Postings] = {}

    def frequencies(self, stems: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
        """Return in how many memories each term occurs; a phrase counts as its rarest word."""
        short = {term: tuple(map(_short, tokens)) for term, tokens in stems.items()}
        wanted = {stem for tokens in short.values() for stem in tokens}
        if not wanted:
            return {}
        found = self._connection.execute(_COUNTS, (self._user, as_json(wanted)))
        return rarest(short, dict(found.fetchall()))

    def hits(
        self, terms: Sequence[str], scopes: Sequence[int], limit: int
    ) -> tuple[IntArray, FloatArray]:
        """Return rows and BM25 scores of the best open hits for any of the terms."""
        phrases = [tokens for tokens in self._tokens(terms) if tokens][:MAX_TERMS]
        self._read({stem for tokens in phrases for stem in tokens})
        parts = [self._phrase(tokens) for tokens in phrases]
        rows = np.concatenate([part.rows for part in parts]) if parts else _NOTHING.rows
        if not len(rows):
            return rows, np.empty(0, np.float32)
        document_count, token_count = self._connection.execute(_TOTALS, (self._user,)).fetchone()
        mean_tokens = token_count / max(document_count, 1) or 1.0
        scores = np.concatenate([_bm25(part, document_count, mean_tokens) for part in parts])
        found, place = np.unique(rows, return_inverse=True)
        total = np.asarray(np.bincount(place, scores), np.float64)
        total[self._view.open_slots_of(found) < 0] = np.nan
        best = top(total, limit)
        return found[best], total[best].astype(np.float32)

    def rows(self, term: str) -> IntArray:
        """Return the rows that have a term, ascending."""
        (tokens,) = self._tokens((term,))
        self._read(set(tokens))
        return self._phrase(tokens).rows if tokens else _NOTHING.rows

    def vocabulary(self, start: str) -> list[str]:
        """Return the stems in the index that begin with a letter."""
        found = self._connection.execute(_VOCABULARY, (self._user, start, chr(ord(start) + 1)))
        return [term for (term,) in found]

    def _tokens(self, terms: Sequence[str]) -> list[tuple[str, ...]]:
        stems = self._stemmer.tokens_of(terms)
        return [tuple(map(_short, stems[term])) for term in terms]

    def _read(self, stems: set[str]) -> None:
        wanted = stems - self._known.keys()
        if not wanted:
            return
        self._known.update(dict.fromkeys(wanted, _NOTHING))
        found = self._connection.execute(_POSTINGS, (self._user, as_json(wanted)))
        for term, rows, token_counts, weights in found:
            having = np.frombuffer(rows, ">i8").astype(np.int64)
            # Mostly sorted already; the database would take much longer.
            order = np.argsort(having, kind="stable")
            self._known[term] = _Postings(
                having[order],
                np.frombuffer(token_counts, ">i4")[order].astype(np.int64),
                np.frombuffer(weights, ">f4")[order].astype(np.float64),
            )

    def _phrase(self, tokens: tuple[str, ...]) -> _Postings:
        """Return the memories that have the words next to each other."""
        key = " ".join(tokens)
        if key in self._known:
            return self._known[key]
        self._known[key] = _NOTHING
        first = self._known[tokens[0]]
        common = first.rows
        for token in tokens[1:]:
            common = np.intersect1d(common, self._known[token].rows, assume_unique=True)
        if not len(common):
            return _NOTHING
        places = self._places_of(tokens, common)
        starts = places[tokens[0]]
        for step, token in enumerate(tokens[1:], 1):
            starts = starts[np.isin(starts + step, places[token])]
        at, place = starts // _PLACES_PER_ROW, starts % _PLACES_PER_ROW
        worth = np.where(place >= _WORDS_PLACE, WORDS_COLUMN_WEIGHT, 1.0)
        weights = np.asarray(np.bincount(at, worth, len(common)), np.float64)
        has = weights > 0
        rows = common[has]
        at_first = np.searchsorted(first.rows, rows)
        self._known[key] = _Postings(rows, first.token_counts[at_first], weights[has])
        return self._known[key]

    def _places_of(self, tokens: tuple[str, ...], rows: IntArray) -> dict[str, IntArray]:
        """Return by stem its places in all of the rows, each as one number."""
        values = (self._user, as_json(set(tokens)), rows_text(rows))
        found = dict.fromkeys(tokens, _NOTHING.rows)
        for term, having, sizes, packed in self._connection.execute(_PLACES, values):
            at = np.searchsorted(rows, np.frombuffer(having, ">i8"))
            counts = np.frombuffer(sizes, ">i4") // 2
            places = np.frombuffer(packed, ">u2").astype(np.int64)
            found[term] = np.repeat(at, counts) * _PLACES_PER_ROW + places
        return found


def _short(stem: str) -> str:
    return stem[:STEM_CHARS_MAX]


def _bm25(part: _Postings, document_count: int, mean_tokens: float) -> NDArray[np.float64]:
    """Return the part of a term in the score of each of its memories, as in FTS5."""
    having = len(part.rows)
    idf = np.log(max(document_count - having + 0.5, 0.5) / (having + 0.5))
    length = 1.0 - _B + _B * part.token_counts / mean_tokens
    share = part.weights * (_K1 + 1.0) / (part.weights + _K1 * length)
    return np.asarray(max(float(idf), _LEAST_IDF) * share)


# -- in memory -------------------------------------------------------------------------------------

# The number of cached rows of all tenants, about 130 bytes each.
ROWS_KEPT = 2_000_000
_MICROSECONDS_PER_DAY = 86_400e6
_NUMBERS = "SELECT change, purge FROM tenants WHERE user = ?"
_STEPS = ", ".join(f"'{name}'" for name in PROVENANCE_LADDER)
_LOWEST = len(PROVENANCE_LADDER)
# Every column is fetched as bytes end to end: single rows take ten times as long.
_COLUMNS: dict[str, tuple[str, str]] = {
    "row": ("int8send(m.row)", ">i8"),
    "scope": ("int8send(m.scope)", ">i8"),
    "turn": ("int8send(coalesce(m.turn, -1))", ">i8"),
    "length_chars": ("int4send(length(m.content))", ">i4"),
    "provenance": (
        f"int4send(coalesce(array_position(ARRAY[{_STEPS}], m.provenance), {_LOWEST}) - 1)",
        ">i4",
    ),
    "demotion": ("int8send(m.demotion)", ">i8"),
    "confidence": ("float8send(m.confidence)", ">f8"),
    "importance": ("float8send(m.importance)", ">f8"),
    # Of fixed width: conversion by the database would take half of all the time.
    "created_at": ("convert_to(m.created_at, 'UTF8')", "S32"),
    "until_day": ("float8send(coalesce(julianday(m.valid_until), 'infinity'))", ">f8"),
    "trusted": ("boolsend(m.trust = 'trusted')", "?"),
    "live": ("boolsend(m.deleted_at IS NULL AND m.superseded_by IS NULL)", "?"),
}
_CHANGED = (
    "SELECT array_agg(m.session_key), "  # noqa: S608 - constants
    + ", ".join(f"string_agg({sent}, ''::bytea)" for sent, _ in _COLUMNS.values())
    + " FROM memories m WHERE m.user = ? AND m.change > ?"
)


def change_of(connection: SqlConnection, user: str) -> tuple[int, int]:
    """Return the numbers of a tenant's last change and last purge."""
    change, purge = connection.execute(_NUMBERS, (user,)).fetchone() or (0, 0)
    return int(change), int(purge)


class Views:
    """The in-memory indexes and mean vectors of recent tenants."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._indexes: OrderedDict[str, MemoryIndex] = OrderedDict()
        self._means: dict[tuple[str, int], Mean] = {}

    def index(self, connection: SqlConnection, user: str) -> MemoryIndex:
        """Return the index of one tenant, at least as new as this transaction."""
        with self._lock:
            index = self._indexes.get(user)
            if index is None or index.is_wasteful:
                index = self._indexes[user] = MemoryIndex(0)
            self._indexes.move_to_end(user)
        change, purge = change_of(connection, user)
        with index.lock:
            # A transaction that began earlier may see less than the index has by now.
            if change > index.change:
                if purge > index.change:
                    left = connection.execute("SELECT row FROM memories WHERE user = ?", (user,))
                    index.keep_only(np.array([row for (row,) in left], np.int64))
                _update(index, connection.execute(_CHANGED, (user, index.change)).fetchone())
                index.change = change
        with self._lock:
            total = sum(map(len, self._indexes.values()))
            while total > ROWS_KEPT and len(self._indexes) > 1:
                oldest, evicted = self._indexes.popitem(last=False)
                total -= len(evicted)
                for key in [key for key in self._means if key[0] == oldest]:
                    del self._means[key]
        return index

    def mean(self, connection: SqlConnection, embedder: StoredEmbedder, view: View) -> Mean:
        """Return the mean vector of one tenant, computed again when it has grown by a tenth."""
        key = (embedder.user, embedder.number)
        mean = self._means.get(key)
        if mean is None or view.count > mean.row_count * (1.0 + MEAN_GROWTH):
            mean = self._means[key] = take_mean(connection, embedder, view)
        return mean

    def clear(self) -> None:
        """Drop indexes and means."""
        with self._lock:
            self._indexes.clear()
            self._means.clear()


def _update(index: MemoryIndex, packed: Any) -> None:
    """Add the changed rows of a tenant to its index."""
    session_keys, *sent = packed
    if session_keys is None:
        return
    kinds = zip(_COLUMNS.items(), sent, strict=True)
    found: dict[str, NDArray[Any]] = {
        name: np.frombuffer(part, kind) for (name, (_, kind)), part in kinds
    }
    live = found.pop("live")
    index.remove(found["row"][~live].tolist())
    # The database does not sort them.
    order = np.flatnonzero(live)
    order = order[np.argsort(found["row"][order], kind="stable")]
    ordered = {name: column[order] for name, column in found.items()}
    # The texts of `moment_text` are always in UTC.
    created_at = ordered.pop("created_at").astype("S26").astype("datetime64[us]")
    created_day = created_at.astype(np.int64) / _MICROSECONDS_PER_DAY + EPOCH_JULIAN_DAY
    standing = static_effectives(ordered.pop("importance"), created_day)
    keys = [session_keys[at] for at in order.tolist()]
    index.add_columns(IndexBatch(session_key=keys, standing=standing, **ordered))
