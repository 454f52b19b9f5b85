"""What the full-text index makes of words: its own tokenizer, asked through a probe."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Sequence

STEMS_LIMIT = 8_192


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
