"""Exact cosine search over the vectors of one user, held in memory beside the database."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int64]

# Rows come in blocks, so that growing never copies the vectors that are there: at 100,000 x 256
# a doubling would hold 200 MB for a moment.
BLOCK_ROWS = 8_192
_NO_SLOT = -1


@dataclass(frozen=True, slots=True)
class Nearest:
    """Rows and cosines, best first."""

    rows: IntArray
    cosines: FloatArray

    @classmethod
    def none(cls) -> Nearest:
        """Nothing is near."""
        return cls(np.empty(0, np.int64), np.empty(0, np.float32))


class VectorIndex:
    """Append-only blocks of unit vectors; a changed row dies in its slot and moves to a new one."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self.change = 0
        self.lock = threading.RLock()
        self._blocks: list[FloatArray] = []
        self._count = 0
        self._rows = np.empty(0, np.int64)
        self._scopes = np.empty(0, np.int32)
        self._alive = np.empty(0, np.bool_)
        self._slots = np.empty(0, np.int64)

    def __len__(self) -> int:
        return self._count

    def replace(self, rows: IntArray, scopes: IntArray, vectors: FloatArray) -> None:
        """Adds rows with their vectors; where a row was there before, the old slot dies."""
        self.remove(rows)
        self._reserve(len(rows), int(rows.max(initial=0)))
        slots = np.arange(self._count, self._count + len(rows))
        self._rows[slots] = rows
        self._scopes[slots] = scopes
        self._alive[slots] = True
        self._slots[rows] = slots
        self._fill(vectors)

    def remove(self, rows: IntArray) -> None:
        """Forgets rows, known or not."""
        known = rows[rows < len(self._slots)]
        slots = self._slots[known]
        self._alive[slots[slots != _NO_SLOT]] = False
        self._slots[known] = _NO_SLOT

    def _reserve(self, more: int, largest_row: int) -> None:
        needed = self._count + more
        if needed > len(self._rows):
            room = max(needed, len(self._rows) + len(self._rows) // 2)
            for name in ("_rows", "_scopes", "_alive"):
                old = getattr(self, name)
                grown = np.zeros(room, old.dtype)
                grown[: self._count] = old[: self._count]
                setattr(self, name, grown)
        if largest_row >= len(self._slots):
            slots = np.full(largest_row + 1 + largest_row // 2, _NO_SLOT, np.int64)
            slots[: len(self._slots)] = self._slots
            self._slots = slots

    def _fill(self, vectors: FloatArray) -> None:
        done = 0
        while done < len(vectors):
            block, at = divmod(self._count, BLOCK_ROWS)
            if block == len(self._blocks):
                self._blocks.append(np.empty((BLOCK_ROWS, self.dimension), np.float32))
            taken = min(BLOCK_ROWS - at, len(vectors) - done)
            self._blocks[block][at : at + taken] = vectors[done : done + taken]
            self._count += taken
            done += taken

    def _cosines(self, vector: FloatArray, count: int) -> FloatArray:
        scores = np.empty(count, np.float32)
        for number, block in enumerate(self._blocks):
            start = number * BLOCK_ROWS
            stop = min(start + BLOCK_ROWS, count)
            if start >= stop:
                break
            np.dot(block[: stop - start], vector, out=scores[start:stop])
        return scores

    def score(self, vector: FloatArray, scopes: Iterable[int]) -> Scored:
        """Cosines of every vector in these scopes."""
        with self.lock:
            count, rows, slots = self._count, self._rows, self._slots
            open_ = self._open(scopes, count)
        scores = self._cosines(vector, count)
        scores[~open_] = -np.inf
        return Scored(scores, rows, slots)

    def _open(self, scopes: Iterable[int], count: int) -> NDArray[np.bool_]:
        inside = np.zeros(count, np.bool_)
        for scope in scopes:
            inside |= self._scopes[:count] == scope
        inside &= self._alive[:count]
        return inside

    def nearest_many(self, vectors: FloatArray, scope: int, limit: int) -> list[Nearest]:
        """The nearest rows of one scope for each vector: one matrix product per block."""
        with self.lock:
            count = self._count
            open_ = self._open((scope,), count)
        best_scores = np.full((len(vectors), 0), -np.inf, np.float32)
        best_slots = np.empty((len(vectors), 0), np.int64)
        for number, block in enumerate(self._blocks):
            start = number * BLOCK_ROWS
            stop = min(start + BLOCK_ROWS, count)
            if start >= stop:
                break
            scores = vectors @ block[: stop - start].T
            scores[:, ~open_[start:stop]] = -np.inf
            keep = top_columns(scores, limit)
            best_scores = np.hstack([best_scores, np.take_along_axis(scores, keep, 1)])
            best_slots = np.hstack([best_slots, keep + start])
        order = top_columns(best_scores, limit)
        cosines = np.take_along_axis(best_scores, order, 1)
        slots = np.take_along_axis(best_slots, order, 1)
        return [
            Nearest(
                self._rows[slots[i]][np.isfinite(cosines[i])], cosines[i][np.isfinite(cosines[i])]
            )
            for i in range(len(vectors))
        ]


@dataclass(frozen=True, slots=True)
class Scored:
    """The cosines of one query against every open row."""

    scores: FloatArray
    _rows: IntArray
    _slots: IntArray

    def top(self, limit: int) -> Nearest:
        """The best rows, ties by row number."""
        scores = self.scores
        if len(scores) > limit:
            slots = np.argpartition(-scores, limit)[:limit]
        else:
            slots = np.arange(len(scores))
        slots = slots[np.isfinite(scores[slots])]
        slots = slots[np.lexsort((self._rows[slots], -scores[slots]))]
        return Nearest(self._rows[slots], scores[slots])

    def of(self, rows: IntArray) -> FloatArray:
        """The cosines of given rows; NaN for those without a vector or outside the scopes."""
        known = rows < len(self._slots)
        slots = np.full(len(rows), _NO_SLOT, np.int64)
        slots[known] = self._slots[rows[known]]
        found = (slots != _NO_SLOT) & (slots < len(self.scores))
        cosines = np.full(len(rows), np.nan, np.float32)
        cosines[found] = self.scores[slots[found]]
        cosines[np.isinf(cosines)] = np.nan
        return cosines


def top_columns(scores: FloatArray, limit: int) -> IntArray:
    """Column numbers of the largest entries of each row, largest first."""
    if scores.shape[1] > limit:
        columns = np.argpartition(-scores, limit - 1, axis=1)[:, :limit]
    else:
        columns = np.tile(np.arange(scores.shape[1]), (scores.shape[0], 1))
    order = np.argsort(-np.take_along_axis(scores, columns, 1), axis=1, kind="stable")
    return np.asarray(np.take_along_axis(columns, order, 1), np.int64)
