"""The plain alternatives anyone could build: FTS5, cosine, rank fusion and a fixed sum."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]

# Function words only: a word that can name a thing stays in.
STOP_WORDS = frozenset(
    """
    a about after again all also am an and any are as at be because been before being both but by
    can could did do does doing done down during each few for from further get got had has have
    having he her here hers herself him himself his how i if in into is it its itself just let may
    me might more most much must my myself no nor not now of off on once only or other our ours
    ourselves out over own same shall she should so some such than that the their theirs them
    themselves then there these they this those through to too under until up us very was we were
    what when where which while who whom whose why will with would you your yours yourself
    yourselves d ll m re s t ve
    """.split()  # noqa: SIM905
)
_WORD = re.compile(r"\w+")


class Embedder(Protocol):
    """What the bench needs of an embedder."""

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]: ...

    def embed_query(self, text: str) -> NDArray[np.float32]: ...


def typed_words(text: str) -> list[str]:
    """Return the words of a query in order, in lower case."""
    return _WORD.findall(text.lower())


def content_words(text: str) -> list[str]:
    """Return the distinct words of a query that are not stop words, or all when none is left."""
    words = list(dict.fromkeys(typed_words(text)))
    return [word for word in words if word not in STOP_WORDS] or words


class TextIndex:
    """SQLite FTS5 over texts, porter stemming, OR over content words."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.size = len(texts)
        self._db = sqlite3.connect(":memory:")
        self._db.execute(
            "CREATE VIRTUAL TABLE docs USING fts5(text, tokenize='porter unicode61', detail=full)"
        )
        rows = ((row, text) for row, text in enumerate(texts, start=1))
        self._db.executemany("INSERT INTO docs(rowid, text) VALUES (?, ?)", rows)

    def scores(self, query: str, expression: str | None = None) -> Scores:
        """Return the positive BM25 score of every document, 0 where no word matches."""
        out = np.zeros(self.size)
        match = expression or " OR ".join(f'"{word}"' for word in content_words(query))
        if not match:
            return out
        sql = "SELECT rowid - 1, -bm25(docs) FROM docs WHERE docs MATCH ?"
        for row, score in self._db.execute(sql, (match,)):
            out[row] = score
        return out


def unit_rows(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return rows of length 1; a row of zeros stays zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0.0, lengths, 1.0), dtype=np.float32)


def over_best(scores: Scores) -> Scores:
    """Divide by the largest score, so that the best hit has 1."""
    best = scores.max(initial=0.0)
    return scores / best if best > 0.0 else scores


def ranks(scores: Scores) -> Scores:
    """Return places from 1; a score of 0 or less is no hit and has place infinity."""
    order = np.argsort(-scores, kind="stable")
    places = np.empty(scores.size)
    places[order] = np.arange(1, scores.size + 1)
    return np.where(scores > 0.0, places, np.inf)


def rrf(text: Scores, cosine: Scores, k: int) -> Scores:
    """Fuse two rankings by reciprocal rank."""
    return np.asarray(1.0 / (k + ranks(text)) + 1.0 / (k + ranks(cosine)))


def weighted_sum(text: Scores, cosine: Scores) -> Scores:
    """Return 0.7 cosine + 0.3 text divided by the best text score."""
    return np.asarray(0.7 * cosine + 0.3 * over_best(text))


FUSIONS: dict[str, Callable[[Scores, Scores], Scores]] = {
    "fts5": lambda text, cosine: text,
    "cosine": lambda text, cosine: cosine,
    "rrf k=60": lambda text, cosine: rrf(text, cosine, 60),
    "rrf k=12": lambda text, cosine: rrf(text, cosine, 12),
    "sum 0.7/0.3": weighted_sum,
}
