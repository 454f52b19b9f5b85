"""The full-text index of a SQLite store, and its tokenizer."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from meritory.store.contract.memories import FloatArray, IntArray
from meritory.store.search.search import WORDS_COLUMN_WEIGHT, rarest
from meritory.store.sql.mapper import SqlConnection
from meritory.text.terms import fts_query

STEMS_LIMIT = 8_192
# The limit of one merge step; other writes may run between two of them.
MERGE_PAGES = 64


class Stemmer:
    """The tokenizer of FTS5, called through a table of its own; it serves both engines."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(":memory:", check_same_thread=False)
        self._connection.executescript("""
            CREATE VIRTUAL TABLE probe USING fts5 (
                term, tokenize = 'porter unicode61 remove_diacritics 2');
            CREATE VIRTUAL TABLE token USING fts5vocab ('probe', 'instance');
        """)
        self._known: dict[str, tuple[str, ...]] = {}

    def tokens_of(self, terms: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Return the tokens of each term; new words are tokenized in one call."""
        # A space ends every token. Words repeat, phrases seldom do: cache words.
        words_of = {term: term.split(" ") for term in terms}
        stems = {word: self._known.get(word) for words in words_of.values() for word in words}
        unknown = [word for word, tokens in stems.items() if tokens is None]
        if unknown:
            if len(self._known) > STEMS_LIMIT:
                self._known.clear()
            fresh = self._tokenize(unknown)
            self._known.update(fresh)
            stems.update(fresh)
        return {
            term: tuple(token for word in words for token in stems[word] or ())
            for term, words in words_of.items()
        }

    def stems_of(self, texts: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the tokens of whole texts, in their order; they are not cached."""
        stems = self._tokenize(tuple(dict.fromkeys(texts)))
        return [stems[text] for text in texts]

    def _tokenize(self, terms: Sequence[str]) -> dict[str, tuple[str, ...]]:
        with self._lock:
            self._connection.executemany(
                "INSERT INTO probe (rowid, term) VALUES (?, ?)", enumerate(terms)
            )
            rows = self._connection.execute(
                "SELECT doc, term FROM token ORDER BY doc, offset"
            ).fetchall()
            # Rolling back is cheaper than deleting, which tokenizes again.
            self._connection.rollback()
        tokens: list[list[str]] = [[] for _ in terms]
        for index, token in rows:
            tokens[index].append(token)
        return dict(zip(terms, map(tuple, tokens), strict=True))

    def close(self) -> None:
        """Close the table."""
        self._connection.close()


class FullText:
    """The FTS5 index."""

    def __init__(self, connection: SqlConnection) -> None:
        self._connection = connection
        self._known: dict[str, IntArray] = {}

    def frequencies(self, stems: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
        """Return how many memories have each term; a phrase counts as its rarest word."""
        wanted = sorted({stem for tokens in stems.values() for stem in tokens})
        found = dict(
            self._connection.execute(
                "SELECT term, doc FROM memories_vocabulary"
                " WHERE term IN (SELECT value FROM json_each(?))",
                (json.dumps(wanted),),
            ).fetchall()
        )
        return rarest(stems, found)

    def hits(
        self, terms: Sequence[str], scopes: Sequence[int], limit: int
    ) -> tuple[IntArray, FloatArray]:
        """Return the best rows for any of the terms in these scopes, with their BM25 scores."""
        if not terms or not scopes:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        found = self._connection.execute(
            f"""SELECT f.rowid, -bm25(memories_fts, 1.0, {WORDS_COLUMN_WEIGHT}) AS score
                FROM memories_fts f CROSS JOIN memory_stats t ON t.row = f.rowid
                WHERE memories_fts MATCH ? AND t.scope IN (SELECT value FROM json_each(?))
                ORDER BY score DESC, f.rowid LIMIT ?""",  # noqa: S608 - our constant
            (fts_query(terms), json.dumps(list(scopes)), limit),
        ).fetchall()
        rows, scores = zip(*found, strict=True) if found else ((), ())
        return np.array(rows, np.int64), np.maximum(np.array(scores, np.float32), np.float32(0.0))

    def rows(self, term: str) -> IntArray:
        """Return the rows that have a term, ascending."""
        if term not in self._known:
            # One long text comes over three times as fast as thousands of small rows.
            (found,) = self._connection.execute(
                "SELECT group_concat(rowid) FROM memories_fts WHERE memories_fts MATCH ?",
                (fts_query((term,)),),
            ).fetchone()
            self._known[term] = np.fromstring(found or "", np.int64, sep=",")
        return self._known[term]

    def vocabulary(self, start: str) -> list[str]:
        """Return the stems in the index that begin with a letter."""
        found = self._connection.execute(
            "SELECT term FROM memories_vocabulary WHERE term >= ? AND term < ?",
            (start, chr(ord(start) + 1)),
        )
        return [term for (term,) in found]


def merge(pages: int, connection: sqlite3.Connection) -> bool:
    """Merge some segments of the index, for many make searches slow; return False when done."""
    before = connection.total_changes
    connection.execute(
        "INSERT INTO memories_fts (memories_fts, rank) VALUES ('merge', ?)", (pages,)
    )
    # One change is the command itself.
    return connection.total_changes - before > 1
