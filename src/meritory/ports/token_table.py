"""The table of word-piece vectors inside the package, for matching single words by meaning."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from meritory.ports.embedder import load_table

Pieces = NDArray[np.int64]

# OpenBLAS computes a product of so many multiplications in one thread. More threads would wait for
# each other longer than they compute, most of all on a busy machine.
_ONE_THREAD = 262_144
_LEAST_COLUMNS = 16


class TokenTable:
    """Looks up pieces of texts, their cosines and how much they mean."""

    def __init__(self) -> None:
        self._table = load_table(None)
        # A plain array: each selection of rows from a memory map makes another map.
        self._rows = np.asarray(self._table.rows).view(np.ndarray)
        self._lengths = np.full(len(self._rows), np.nan, np.float32)
        # Punctuation marks and the tokenizer's own marks mean nothing.
        vocabulary = self._table.pieces.vocabulary
        self._is_word = np.array([piece.removeprefix("##").isalnum() for piece in vocabulary])
        self._words = frozenset(vocabulary)

    def is_word(self, text: str) -> bool:
        """Return whether a word in lower case is one piece, as all common words are."""
        return text in self._words

    def pieces(self, text: str) -> Pieces:
        """Return the distinct word pieces of a text, ascending."""
        found = np.array(sorted(set(self._table.pieces.encode(text))), np.int64)
        found = found[self._is_word[found]]
        return np.asarray(found[self._row_lengths(found) > 0.0], np.int64)

    def cosines(self, left: Pieces, right: Pieces) -> NDArray[np.float32]:
        """Return the cosine of every piece on the left with every piece on the right."""
        one = self._rows[left].astype(np.float32)
        one /= self._row_lengths(left)[:, None]
        products = np.empty((len(left), len(right)), np.float32)
        step = max(_LEAST_COLUMNS, _ONE_THREAD // max(1, one.size))
        for start in range(0, len(right), step):
            some = slice(start, start + step)
            np.matmul(one, self._rows[right[some]].astype(np.float32).T, out=products[:, some])
        products /= self._row_lengths(right)
        return products

    def weights(self, pieces: Pieces) -> NDArray[np.float64]:
        """Return how much each piece adds to the vector of a text: function words add little."""
        return np.asarray(self._row_lengths(pieces) * self._table.scales[pieces], np.float64)

    def _row_lengths(self, pieces: Pieces) -> NDArray[np.float32]:
        """Return the lengths of rows before scaling; each is computed once."""
        fresh = pieces[np.isnan(self._lengths[pieces])]
        if len(fresh):
            rows = self._rows[fresh].astype(np.float32)
            self._lengths[fresh] = np.linalg.norm(rows, axis=1)
        return self._lengths[pieces]


@cache
def token_table() -> TokenTable:
    """Return the table, which is read once."""
    return TokenTable()
