"""One search's look at the index in memory: which slots are open to it, and what they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from meritory.rank.hybrid import centred_cosine

if TYPE_CHECKING:
    from meritory.store.index import MemoryIndex

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
_NONE = -1


class View:
    """One search's look at the index: the slots that were open when it began."""

    def __init__(self, index: MemoryIndex, count: int, open_: BoolArray) -> None:
        self._index = index
        self._columns = index._columns
        self.count = count
        self.open = open_
        self._is_open = np.append(open_, False)

    def cosines(self, query: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Raw cosines, and those left without what all memories share; NaN where there is none."""
        raw = np.full(self.count, np.nan, np.float32)
        if query.size != self._index.dimension:
            return raw, raw
        if np.any(query):
            usable = self.open & self._columns.embedded[: self.count]
            raw[usable] = self._index._dots(query, self.count)[usable]
        mean_dots = self._columns.mean_dot[: self.count]
        centred = centred_cosine(raw, mean_dots, query, self._index._mean) if query.size else raw
        return raw, centred.astype(np.float32)

    def injectable(self, day: float) -> View:
        """The same look without what is untrusted or no longer holds on a Julian day."""
        columns, count = self._columns, self.count
        may = columns.trusted[:count] & (columns.until_day[:count] > day)
        return View(self._index, count, self.open & may)

    def best_standing(self, limit: int) -> IntArray:
        """The open slots whose importance has faded least."""
        return top(np.where(self.open, self._columns.standing[: self.count], np.nan), limit)

    def vectors(self, slots: IntArray) -> FloatArray:
        """The vectors of slots, zero where there is none."""
        return self._index.vectors(slots)

    def rows(self, slots: IntArray) -> IntArray:
        """The row numbers of slots."""
        return self._columns.row[slots]

    def sessions(self, slots: IntArray) -> IntArray:
        """A small number per session, -1 for a memory without one."""
        return self._columns.session[slots]

    def lengths_chars(self, slots: IntArray) -> IntArray:
        """How long each text is."""
        return self._columns.length_chars[slots]

    def provenances(self, slots: IntArray) -> IntArray:
        """Each memory's step on the provenance ladder."""
        return self._columns.provenance[slots]

    def confidences(self, slots: IntArray) -> FloatArray:
        """How clearly each source asserted its memory."""
        return self._columns.confidence[slots]

    def demotions(self, slots: IntArray) -> IntArray:
        """How often each memory was demoted."""
        return self._columns.demotion[slots]

    def mean_length_chars(self) -> float:
        """The mean length of the open texts."""
        count = int(self.open.sum())
        return float(self._columns.length_chars[: self.count] @ self.open) / count if count else 0.0

    def open_slots_of(self, rows: IntArray) -> IntArray:
        """Where rows live, -1 for those not open to this search."""
        return self._only_open(self._index.slots_of(rows))

    def beside(self, slots: IntArray, step: int) -> IntArray:
        """The open slots `step` turns on in the same session, -1 where there is none."""
        return self._only_open(self._index.beside(slots, step))

    def _only_open(self, slots: IntArray) -> IntArray:
        # The last place, which -1 names as well, stands for all that are not in this look.
        return np.where(self._is_open[np.minimum(slots, self.count)], slots, _NONE)


def top(scores: NDArray[np.floating[Any]], limit: int) -> IntArray:
    """Positions of the largest finite scores, largest first, ties by position."""
    keys = np.where(np.isfinite(scores), -scores, np.inf)
    best = np.argpartition(keys, limit)[:limit] if len(keys) > limit else np.arange(len(keys))
    best = best[np.isfinite(keys[best])]
    return np.asarray(best[np.lexsort((best, keys[best]))], np.int64)
