"""Both legs of a search in SQLite: full text through FTS5, vectors through the index in memory."""

from __future__ import annotations

import functools
import json
import sqlite3
import threading
from collections.abc import Sequence

import numpy as np

from tenure.store.base import FloatArray, IntArray, Pool, Search
from tenure.store.vectors import VectorIndex
from tenure.text.terms import choose_terms, fts_query

# What stands in identifiers' parts and tags counts half of what stands in the text itself.
WORDS_COLUMN_WEIGHT = 0.5
_LOAD_ROWS = 4_096


class Stemmer:
    """The full-text tokenizer itself, asked what it makes of a typed term."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(":memory:", check_same_thread=False)
        self._connection.executescript("""
            CREATE VIRTUAL TABLE probe USING fts5 (
                term, tokenize = 'porter unicode61 remove_diacritics 2');
            CREATE VIRTUAL TABLE token USING fts5vocab ('probe', 'instance');
        """)
        self.tokens = functools.lru_cache(maxsize=8_192)(self._tokens)

    def _tokens(self, term: str) -> tuple[str, ...]:
        with self._lock, self._connection as connection:
            connection.execute("INSERT INTO probe VALUES (?)", (term,))
            found = connection.execute("SELECT term FROM token ORDER BY offset").fetchall()
            connection.execute("DELETE FROM probe")
        return tuple(token for (token,) in found)

    def close(self) -> None:
        """Lets the probe go."""
        self._connection.close()


def document_frequencies(
    connection: sqlite3.Connection, stemmer: Stemmer, terms: Sequence[str]
) -> dict[str, int]:
    """In how many memories each term occurs; a term of several words as often as its rarest."""
    stems = {term: stemmer.tokens(term) for term in terms}
    wanted = sorted({stem for tokens in stems.values() for stem in tokens})
    found = dict(
        connection.execute(
            "SELECT term, doc FROM memories_vocabulary"
            " WHERE term IN (SELECT value FROM json_each(?))",
            (json.dumps(wanted),),
        ).fetchall()
    )
    return {
        term: min(found.get(stem, 0) for stem in tokens) for term, tokens in stems.items() if tokens
    }


def text_leg(
    connection: sqlite3.Connection, search: Search, scopes: Sequence[int], terms: Sequence[str]
) -> tuple[IntArray, FloatArray]:
    """The best full-text hits in these scopes with their BM25 scores, best first."""
    if not terms or not scopes:
        return np.empty(0, np.int64), np.empty(0, np.float32)
    found = connection.execute(
        f"""SELECT f.rowid, -bm25(memories_fts, 1.0, {WORDS_COLUMN_WEIGHT}) AS score
            FROM memories_fts f CROSS JOIN memory_stats t ON t.row = f.rowid
            WHERE memories_fts MATCH ? AND t.scope IN (SELECT value FROM json_each(?))
            ORDER BY score DESC, f.rowid LIMIT ?""",  # noqa: S608 - a constant of ours
        (fts_query(terms), json.dumps(list(scopes)), search.text_limit),
    ).fetchall()
    rows = np.array([row for row, _ in found], np.int64)
    return rows, np.array([max(score, 0.0) for _, score in found], np.float32)


def neighbour_rows(
    connection: sqlite3.Connection, rows: IntArray, scopes: Sequence[int]
) -> list[tuple[int, int, int]]:
    """Triples (row, neighbour, +1 or -1): the turns right before and after, from one session."""
    return connection.execute(
        """SELECT a.row, min(b.row), b.turn - a.turn
            FROM json_each(?) wanted
            CROSS JOIN memories a ON a.row = wanted.value
            CROSS JOIN memories b ON b.user = a.user AND b.session_key = a.session_key
                AND b.turn IN (a.turn - 1, a.turn + 1)
            WHERE a.session_key IS NOT NULL AND b.session_key IS NOT NULL
                AND b.deleted_at IS NULL AND b.superseded_by IS NULL
                AND b.scope IN (SELECT value FROM json_each(?))
            GROUP BY a.row, b.turn""",
        (json.dumps(rows.tolist()), json.dumps(list(scopes))),
    ).fetchall()


def assemble(
    hits: tuple[IntArray, FloatArray],
    vector_rows: IntArray,
    neighbours: list[tuple[int, int, int]],
) -> tuple[IntArray, FloatArray, IntArray, IntArray]:
    """Rows of both legs and their neighbours, text scores, and positions of turns beside them."""
    text_rows, text_scores = hits
    beside = np.array([triple[1] for triple in neighbours], np.int64)
    rows = np.unique(np.concatenate([text_rows, vector_rows, beside]))
    text = np.zeros(len(rows), np.float32)
    text[np.searchsorted(rows, text_rows)] = text_scores
    previous = np.full(len(rows), -1, np.int64)
    following = np.full(len(rows), -1, np.int64)
    if neighbours:
        triples = np.array(neighbours, np.int64)
        here, there = np.searchsorted(rows, triples[:, 0]), np.searchsorted(rows, triples[:, 1])
        before, after = triples[:, 2] < 0, triples[:, 2] > 0
        # Links hold both ways: a neighbour that was no hit itself still knows the hit beside it.
        previous[here[before]], following[there[before]] = there[before], here[before]
        following[here[after]], previous[there[after]] = there[after], here[after]
    return rows, text, previous, following


def run(
    connection: sqlite3.Connection,
    stemmer: Stemmer,
    index: VectorIndex | None,
    search: Search,
    scopes: Sequence[int],
) -> Pool:
    """Both legs, joined, with the neighbours of every hit."""
    row_count = int(
        connection.execute("SELECT coalesce(max(row), 0) FROM memory_stats").fetchone()[0]
    )
    frequencies = document_frequencies(connection, stemmer, search.terms)
    terms = choose_terms(frequencies, row_count, search.posting_budget)
    hits = text_leg(connection, search, scopes, terms)
    scored = None
    vector_rows = np.empty(0, np.int64)
    if index is not None and search.vector is not None and np.any(search.vector):
        scored = index.score(search.vector, scopes)
        vector_rows = scored.top(search.vector_limit).rows
    found = np.union1d(hits[0], vector_rows)
    neighbours = neighbour_rows(connection, found, scopes)
    rows, text, previous, following = assemble(hits, vector_rows, neighbours)
    cosine = np.full(len(rows), np.nan, np.float32) if scored is None else scored.of(rows)
    return Pool(rows, text, cosine, previous, following, row_count, frequencies)


def synchronise(
    connection: sqlite3.Connection, index: VectorIndex, user: str, embedder: int
) -> None:
    """Takes over what was committed since the index last looked, by us or another process."""
    change = int(connection.execute("SELECT value FROM meta WHERE key = 'change'").fetchone()[0])
    if change == index.change:
        return
    with index.lock:
        cursor = connection.execute(
            """SELECT m.row, m.scope, m.deleted_at IS NULL AND m.superseded_by IS NULL, v.vector
                FROM memories m
                LEFT JOIN memory_vectors v ON v.row = m.row AND v.embedder = ?
                WHERE m.user = ? AND m.change > ?""",
            (embedder, user, index.change),
        )
        while batch := cursor.fetchmany(_LOAD_ROWS):
            gone = [row for row, _, live, vector in batch if not (live and vector)]
            index.remove(np.array(gone, np.int64))
            held = [(row, scope, vector) for row, scope, live, vector in batch if live and vector]
            if held:
                index.replace(
                    np.array([row for row, _, _ in held], np.int64),
                    np.array([scope for _, scope, _ in held], np.int64),
                    np.frombuffer(b"".join(v for _, _, v in held), np.float32).reshape(
                        len(held), index.dimension
                    ),
                )
        index.change = change
