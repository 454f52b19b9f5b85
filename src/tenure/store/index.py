"""What searching needs of every memory of one user, held in memory beside the database.

Vectors, scopes, sessions, turns and lengths as arrays: exact cosine search is one product of
matrix and vector, and the turns beside a hit are found without a query. The database stays the
truth; this is a copy that catches up before every search.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

# Vectors come in blocks, so that growing never copies those that are there: at 100,000 x 256 a
# doubling would hold 200 MB for a moment.
BLOCK_ROWS = 8_192
# A mean over few vectors says little about the store: it is shrunk as if this many were zero.
CENTRE_PRIOR_COUNT = 50.0
# The centre is taken anew when the store has grown by this share since.
_CENTRE_GROWTH = 0.1
_NONE = -1
_TINY = 1e-9


@dataclass(frozen=True, slots=True)
class Entry:
    """One memory as the index needs it; an empty vector means there is none."""

    row: int
    scope: int
    session_key: str | None
    turn: int | None
    length_chars: int
    vector: bytes


@dataclass(frozen=True, slots=True)
class Nearest:
    """Rows and cosines, best first."""

    rows: IntArray
    cosines: FloatArray

    @classmethod
    def none(cls) -> Nearest:
        """Nothing is near."""
        return cls(np.empty(0, np.int64), np.empty(0, np.float32))


@dataclass(slots=True)
class _Columns:
    """Parallel arrays with one place per slot, grown by half when full."""

    row: IntArray
    scope: IntArray
    turn_key: IntArray
    session: IntArray
    length_chars: IntArray
    alive: BoolArray
    embedded: BoolArray
    inverse: FloatArray

    @classmethod
    def with_room(cls, room: int) -> _Columns:
        return cls(
            row=np.zeros(room, np.int64),
            scope=np.zeros(room, np.int64),
            turn_key=np.zeros(room, np.int64),
            session=np.zeros(room, np.int64),
            length_chars=np.zeros(room, np.int64),
            alive=np.zeros(room, np.bool_),
            embedded=np.zeros(room, np.bool_),
            inverse=np.zeros(room, np.float32),
        )

    def grown(self, room: int, count: int) -> _Columns:
        """A larger copy; readers of the old one are not disturbed."""
        larger = _Columns.with_room(room)
        for name in self.__slots__:
            getattr(larger, name)[:count] = getattr(self, name)[:count]
        return larger


class MemoryIndex:
    """Append-only slots; a changed memory dies in its slot and moves to a new one."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self.change = 0
        self.lock = threading.RLock()
        self._count = 0
        self._columns = _Columns.with_room(0)
        self._blocks: list[FloatArray] = []
        self._slot_of_row = np.empty(0, np.int64)
        self._session_codes: dict[str, int] = {}
        self._sorted_keys = np.empty(0, np.int64)
        self._sorted_slots = np.empty(0, np.int64)
        self._sorted_count = 0
        self._mean = np.zeros(dimension, np.float32)
        self._centred_count = 0

    def __len__(self) -> int:
        return self._count

    # -- catching up ----------------------------------------------------------------------

    def remove(self, rows: Sequence[int]) -> None:
        """Forgets rows, known or not."""
        wanted = np.asarray(rows, np.int64)
        known = wanted[wanted < len(self._slot_of_row)]
        slots = self._slot_of_row[known]
        self._columns.alive[slots[slots != _NONE]] = False
        self._slot_of_row[known] = _NONE

    def add(self, entries: Sequence[Entry]) -> None:
        """Takes memories in; where a row was there before, its old slot dies."""
        if not entries:
            return
        rows = np.array([entry.row for entry in entries], np.int64)
        self.remove(rows.tolist())
        self._reserve(len(entries), int(rows.max()))
        slots = np.arange(self._count, self._count + len(entries))
        columns = self._columns
        columns.row[slots] = rows
        columns.scope[slots] = [entry.scope for entry in entries]
        columns.session[slots] = [self._session(entry.session_key) for entry in entries]
        columns.turn_key[slots] = [self._turn_key(entry) for entry in entries]
        columns.length_chars[slots] = [entry.length_chars for entry in entries]
        columns.embedded[slots] = [bool(entry.vector) for entry in entries]
        columns.alive[slots] = True
        self._slot_of_row[rows] = slots
        self._fill(entries)
        self._centre(slots)

    def _session(self, key: str | None) -> int:
        return (
            _NONE if key is None else self._session_codes.setdefault(key, len(self._session_codes))
        )

    def _turn_key(self, entry: Entry) -> int:
        """Session and turn in one number, so that the turn after is this number plus one."""
        if entry.session_key is None or entry.turn is None:
            return _NONE
        return (self._session(entry.session_key) << 32) + entry.turn

    def _reserve(self, more: int, largest_row: int) -> None:
        needed = self._count + more
        if needed > len(self._columns.row):
            room = max(needed, len(self._columns.row) + len(self._columns.row) // 2)
            self._columns = self._columns.grown(room, self._count)
        if largest_row >= len(self._slot_of_row):
            slots = np.full(largest_row + 1 + largest_row // 2, _NONE, np.int64)
            slots[: len(self._slot_of_row)] = self._slot_of_row
            self._slot_of_row = slots

    def _fill(self, entries: Sequence[Entry]) -> None:
        missing = bytes(4 * self.dimension)
        blob = b"".join(entry.vector or missing for entry in entries)
        vectors = np.frombuffer(blob, np.float32).reshape(len(entries), self.dimension)
        done = 0
        while done < len(vectors):
            block, at = divmod(self._count, BLOCK_ROWS)
            if block == len(self._blocks):
                self._blocks.append(np.empty((BLOCK_ROWS, self.dimension), np.float32))
            taken = min(BLOCK_ROWS - at, len(vectors) - done)
            self._blocks[block][at : at + taken] = vectors[done : done + taken]
            self._count += taken
            done += taken

    def _centre(self, new_slots: IntArray) -> None:
        """Keeps 1 / |v - mean| of every row, so that a centred cosine costs one product."""
        if self.dimension == 0:
            return
        if self._count > self._centred_count * (1.0 + _CENTRE_GROWTH):
            total = np.zeros(self.dimension, np.float64)
            for block, stop in self._filled(self._count):
                total += block[:stop].sum(axis=0, dtype=np.float64)
            self._mean = (total / (self._count + CENTRE_PRIOR_COUNT)).astype(np.float32)
            self._centred_count = self._count
            new_slots = np.arange(self._count)
        first = int(new_slots[0])
        dots = self._dots(self._mean, self._count, first)
        # |v - m|^2 = 1 - 2 v.m + |m|^2 for unit vectors.
        squared = 1.0 - 2.0 * dots + float(self._mean @ self._mean)
        usable = self._columns.embedded[first : self._count] & (squared > _TINY)
        self._columns.inverse[first : self._count] = np.where(
            usable, 1.0 / np.sqrt(np.where(usable, squared, 1.0)), 0.0
        )

    def _filled(self, count: int) -> Iterable[tuple[FloatArray, int]]:
        for number, block in enumerate(self._blocks):
            stop = min(BLOCK_ROWS, count - number * BLOCK_ROWS)
            if stop > 0:
                yield block, stop

    def _dots(self, vector: FloatArray, count: int, first: int = 0) -> FloatArray:
        start = first // BLOCK_ROWS * BLOCK_ROWS
        parts = [
            block[:stop] @ vector
            for number, (block, stop) in enumerate(self._filled(count))
            if number * BLOCK_ROWS >= start
        ]
        dots = np.concatenate(parts) if parts else np.empty(0, np.float32)
        return np.asarray(dots[first - start :], np.float32)

    # -- searching ------------------------------------------------------------------------

    def view(self, scopes: Iterable[int]) -> View:
        """What is open to a search right now."""
        with self.lock:
            return View(self, self._count, self._open(scopes, self._count))

    def _open(self, scopes: Iterable[int], count: int) -> BoolArray:
        inside = np.zeros(count, np.bool_)
        for scope in scopes:
            inside |= self._columns.scope[:count] == scope
        inside &= self._columns.alive[:count]
        return inside

    def slots_of(self, rows: IntArray) -> IntArray:
        """Where rows live, -1 for those unknown here."""
        slots = np.full(len(rows), _NONE, np.int64)
        known = rows < len(self._slot_of_row)
        slots[known] = self._slot_of_row[rows[known]]
        return slots

    def beside(self, slots: IntArray, step: int) -> IntArray:
        """The slots `step` turns on in the same session, -1 where there is none."""
        with self.lock:
            self._sort_turns()
            keys = self._columns.turn_key[slots]
            wanted = np.where(keys >= 0, keys + step, _NONE)
            at = np.searchsorted(self._sorted_keys, wanted)
            at = np.minimum(at, max(len(self._sorted_keys) - 1, 0))
            if not len(self._sorted_keys):
                return np.full(len(slots), _NONE, np.int64)
            found = (self._sorted_keys[at] == wanted) & (wanted >= 0)
            return np.where(found, self._sorted_slots[at], _NONE)

    def _sort_turns(self) -> None:
        """Keeps (session, turn) sorted; a stable sort of mostly sorted keys is cheap."""
        if self._sorted_count == self._count and len(self._sorted_keys):
            return
        slots = np.flatnonzero(
            self._columns.alive[: self._count] & (self._columns.turn_key[: self._count] >= 0)
        )
        order = np.argsort(self._columns.turn_key[slots], kind="stable")
        self._sorted_slots = slots[order]
        self._sorted_keys = self._columns.turn_key[self._sorted_slots]
        self._sorted_count = self._count

    def nearest_many(self, vectors: FloatArray, scope: int, limit: int) -> list[Nearest]:
        """The nearest rows of one scope for each vector: one matrix product per block."""
        with self.lock:
            count, columns = self._count, self._columns
            open_ = self._open((scope,), count) & columns.embedded[:count]
        scores = np.empty((len(vectors), 0), np.float32)
        slots = np.empty((len(vectors), 0), np.int64)
        for number, (block, stop) in enumerate(self._filled(count)):
            start = number * BLOCK_ROWS
            cosines = vectors @ block[:stop].T
            cosines[:, ~open_[start : start + stop]] = -np.inf
            keep = top_columns(cosines, limit)
            scores = np.hstack([scores, np.take_along_axis(cosines, keep, 1)])
            slots = np.hstack([slots, keep + start])
        order = top_columns(scores, limit)
        scores, slots = np.take_along_axis(scores, order, 1), np.take_along_axis(slots, order, 1)
        finite = np.isfinite(scores)
        return [
            Nearest(columns.row[slots[i][finite[i]]], scores[i][finite[i]])
            for i in range(len(vectors))
        ]


class View:
    """One search's look at the index: the slots that were open when it began."""

    def __init__(self, index: MemoryIndex, count: int, open_: BoolArray) -> None:
        self._index = index
        self._columns = index._columns
        self._count = count
        self.open = open_

    def centred_cosines(self, query: FloatArray) -> NDArray[np.float32]:
        """Cosines after what all memories share is taken out; NaN without a vector or closed."""
        index = self._index
        direction = query - index._mean
        length = float(np.linalg.norm(direction))
        cosines = np.full(self._count, np.nan, np.float32)
        if length > _TINY and np.any(query):
            direction = (direction / length).astype(np.float32)
            dots = index._dots(direction, self._count) - np.float32(index._mean @ direction)
            usable = self.open & self._columns.embedded[: self._count]
            cosines[usable] = (dots * self._columns.inverse[: self._count])[usable]
        return cosines

    def plain_cosines(self, query: FloatArray, slots: IntArray) -> FloatArray:
        """The raw cosines of some slots; NaN without a vector."""
        cosines = np.full(len(slots), np.nan, np.float32)
        block_of, place_of = np.divmod(slots, BLOCK_ROWS)
        embedded = self._columns.embedded[slots]
        for number in np.unique(block_of[embedded]).tolist():
            here = embedded & (block_of == number)
            cosines[here] = self._index._blocks[number][place_of[here]] @ query
        return cosines

    def rows(self, slots: IntArray) -> IntArray:
        """The row numbers of slots."""
        return self._columns.row[slots]

    def sessions(self, slots: IntArray) -> IntArray:
        """A small number per session, -1 for a memory without one."""
        return self._columns.session[slots]

    def lengths_chars(self, slots: IntArray) -> IntArray:
        """How long each text is."""
        return self._columns.length_chars[slots]

    def mean_length_chars(self) -> float:
        """The mean length of the open texts."""
        count = int(self.open.sum())
        return (
            float(self._columns.length_chars[: self._count] @ self.open) / count if count else 0.0
        )

    def open_slots_of(self, rows: IntArray) -> IntArray:
        """Where rows live, -1 for those not open to this search."""
        return self._only_open(self._index.slots_of(rows))

    def beside(self, slots: IntArray, step: int) -> IntArray:
        """The open slots `step` turns on in the same session, -1 where there is none."""
        return self._only_open(self._index.beside(slots, step))

    def _only_open(self, slots: IntArray) -> IntArray:
        inside = (slots >= 0) & (slots < self._count)
        return np.where(
            inside & self.open[np.where(inside, slots, 0)] if self._count else inside, slots, _NONE
        )


def top(scores: NDArray[np.float32], limit: int) -> IntArray:
    """Positions of the largest finite scores, largest first, ties by position."""
    keys = np.where(np.isfinite(scores), -scores, np.inf)
    best = np.argpartition(keys, limit)[:limit] if len(keys) > limit else np.arange(len(keys))
    best = best[np.isfinite(keys[best])]
    return np.asarray(best[np.lexsort((best, keys[best]))], np.int64)


def top_columns(scores: FloatArray, limit: int) -> IntArray:
    """Column numbers of the largest entries of each row, largest first."""
    if scores.shape[1] > limit:
        columns = np.argpartition(-scores, limit - 1, axis=1)[:, :limit]
    else:
        columns = np.tile(np.arange(scores.shape[1]), (scores.shape[0], 1))
    order = np.argsort(-np.take_along_axis(scores, columns, 1), axis=1, kind="stable")
    return np.asarray(np.take_along_axis(columns, order, 1), np.int64)
