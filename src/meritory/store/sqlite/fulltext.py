"""What the full-text index makes of words: its own tokenizer, asked through a probe."""

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
# What one step of merging may write; others may write between two of them.
MERGE_PAGES = 64


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
        self._known: dict[str, tuple[str, ...]] = {}

    def tokens_of(self, terms: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """The tokens of each term; words not met before are asked for all at once."""
        # A space ends every token, so a phrase is its words: these come again, phrases seldom do.
        words_of = {term: term.split(" ") for term in terms}
        found = {word: self._known.get(word) for words in words_of.values() for word in words}
        asked = [word for word, tokens in found.items() if tokens is None]
        if asked:
            if len(self._known) > STEMS_LIMIT:
                self._known.clear()
            fresh = self._asked(asked)
            self._known.update(fresh)
            found.update(fresh)
        return {
            term: tuple(token for word in words for token in found[word] or ())
            for term, words in words_of.items()
        }

    def stems_of(self, texts: Sequence[str]) -> list[tuple[str, ...]]:
        """The tokens of whole texts, in their order; such are not remembered."""
        found = self._asked(tuple(dict.fromkeys(texts)))
        return [found[text] for text in texts]

    def _asked(self, terms: Sequence[str]) -> dict[str, tuple[str, ...]]:
        with self._lock, self._connection as connection:
            connection.executemany(
                "INSERT INTO probe (rowid, term) VALUES (?, ?)", enumerate(terms)
            )
            rows = connection.execute("SELECT doc, term FROM token ORDER BY doc, offset").fetchall()
            connection.execute("DELETE FROM probe")
        found: list[list[str]] = [[] for _ in terms]
        for place, token in rows:
            found[place].append(token)
        return {term: tuple(tokens) for term, tokens in zip(terms, found, strict=True)}

    def close(self) -> None:
        """Lets the probe go."""
        self._connection.close()


class FullText:
    """FTS5, which SQLite brings along."""

    def __init__(self, connection: SqlConnection) -> None:
        self._connection = connection
        self._known: dict[str, IntArray] = {}

    def frequencies(self, stems: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
        """In how many memories each term occurs; one of several words as often as its rarest."""
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
        """Rows of the best hits for any of the terms in these scopes with their BM25 scores."""
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
        """The rows that have a term, ascending."""
        if term not in self._known:
            # One long text comes over three times as fast as thousands of small rows.
            (found,) = self._connection.execute(
                "SELECT group_concat(rowid) FROM memories_fts WHERE memories_fts MATCH ?",
                (fts_query((term,)),),
            ).fetchone()
            self._known[term] = np.fromstring(found or "", np.int64, sep=",")
        return self._known[term]


def merge(pages: int, connection: sqlite3.Connection) -> bool:
    """Merges some pieces of the full-text index, for many make searches slow; False when done."""
    before = connection.total_changes
    connection.execute(
        "INSERT INTO memories_fts (memories_fts, rank) VALUES ('merge', ?)", (pages,)
    )
    # One change is the command itself.
    return connection.total_changes - before > 1
