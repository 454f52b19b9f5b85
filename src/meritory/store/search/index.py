"""The in-memory index of a user's memories, and the view of it that one search has."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meritory.rank.hybrid import (
    PROVENANCE_LADDER,
    centred_cosine,
    provenance_codes,
    store_mean,
)
from meritory.store.contract.memories import BoolArray, FloatArray, IntArray
from meritory.store.sql.mapper import vector_bytes, vector_parts

_NONE = -1


class View:
    """The slots of an index that were open to a search when it began; `columns` is by slot."""

    def __init__(
        self, index: MemoryIndex, scopes: Sequence[int], count: int, open_: BoolArray
    ) -> None:
        self._index = index
        self._scopes = scopes
        self.columns = index._columns
        self.count = count
        self.open = open_
        self._is_open = np.append(open_, False)

    @cached_property
    def open_count(self) -> int:
        """The number of open slots."""
        return int(np.count_nonzero(self.open))

    @cached_property
    def _usable(self) -> BoolArray:
        """Whether each slot is open and has a vector."""
        return np.asarray(self.open & self.columns.embedded[: self.count], np.bool_)

    @cached_property
    def _mean_length_chars(self) -> float:
        total = self.columns.length_chars[: self.count].sum(where=self.open)
        return float(total) / self.open_count if self.open_count else 0.0

    @cached_property
    def sessions(self) -> SessionTexts:
        """The open texts by session."""
        return SessionTexts.of(self)

    def cosines(self, query: FloatArray, limit: int = 0) -> tuple[FloatArray, FloatArray]:
        """Return raw and centred cosines of all open slots, NaN where there is no vector."""
        raw, centred = (np.full(self.count, np.nan, np.float32) for _ in range(2))
        if query.size != self._index.dimension or not np.any(query):
            return raw, centred
        dots, mean = self._index.dots(query, self._scopes, self.count), self._index.mean
        # Piece by piece, for the numbers in between are then in the cache.
        for start in range(0, self.count, BLOCK_ROWS):
            some = slice(start, min(start + BLOCK_ROWS, self.count))
            usable = self._usable[some]
            np.copyto(raw[some], dots[some], where=usable)
            rest = centred_cosine(raw[some], self.columns.mean_dot[some], query, mean)
            np.copyto(centred[some], rest, where=usable, casting="same_kind")
        return raw, centred

    def complete(self, raw: FloatArray, centred: FloatArray, slots: IntArray) -> None:
        """Do nothing: `cosines` returns all of them."""

    def vocabulary(self, start: str, read: Callable[[str], list[str]]) -> list[str]:
        """Return the stems that begin with a letter; they are read once per change."""
        change, stems = self._index.vocabulary.get(start, (-1, []))
        if change != self._index.change:
            change, stems = self._index.change, read(start)
            self._index.vocabulary[start] = (change, stems)
        return stems

    def mean_cosine(self, centred: FloatArray) -> float:
        """Return the mean of the centred cosines."""
        known = centred if self._usable.all() else centred[self._usable]
        mean = float(known.mean(dtype=np.float64)) if len(known) else 0.0
        return mean if np.isfinite(mean) else 0.0

    def injectable(self, day: float) -> View:
        """Return this view without memories that are untrusted or invalid on a Julian day."""
        columns, count = self.columns, self.count
        may = columns.trusted[:count] & (columns.until_day[:count] > day)
        return View(self._index, self._scopes, count, self.open & may)

    def only(self, rows: IntArray) -> View:
        """Return this view with these rows only."""
        slots = self.open_slots_of(rows)
        open_ = np.zeros_like(self.open)
        open_[slots[slots >= 0]] = True
        return View(self._index, self._scopes, self.count, open_)

    def best_standing(self, limit: int) -> IntArray:
        """Return the open slots whose importance has faded least."""
        return top(np.where(self.open, self.columns.standing[: self.count], np.nan), limit)

    def vectors(self, slots: IntArray) -> FloatArray:
        """Return the vectors of slots, zero where there is none."""
        return self._index.vectors(slots)

    def rows(self, slots: IntArray) -> IntArray:
        """Return the row numbers of slots."""
        return self.columns.row[slots]

    def mean_length_chars(self) -> float:
        """Return the mean length of the open texts."""
        return self._mean_length_chars

    def open_slots_of(self, rows: IntArray) -> IntArray:
        """Return the slots of rows, -1 for those not open to this search."""
        return self._only_open(self._index.slots_of(rows))

    def turns_after(self, slots: IntArray, step: int) -> IntArray:
        """Return the open slots `step` turns later in the same session, -1 where none is."""
        return self._only_open(self._index.turns_after(slots, step))

    def _only_open(self, slots: IntArray) -> IntArray:
        # The last element, which is also that of -1, stands for all slots outside this view.
        return np.where(self._is_open[np.minimum(slots, self.count)], slots, _NONE)


def top(scores: NDArray[np.floating[Any]], limit: int) -> IntArray:
    """Return the positions of the largest finite scores, largest first, ties by position."""
    least = _least_of_best(scores, limit)
    known = np.flatnonzero(np.isfinite(scores) if least is None else scores >= least)
    keys = -scores[known]
    if len(keys) > limit:
        best = np.argpartition(keys, limit)[:limit]
        known, keys = known[best], keys[best]
    return np.asarray(known[np.lexsort((known, keys))], np.int64)


# Scores in one group, when the best of many are looked for.
_GROUP_SIZE = 64


def _least_of_best(scores: NDArray[np.floating[Any]], limit: int) -> float | None:
    """Return a number that the best `limit` of many scores reach, and few others.

    In as many groups the best score reaches it, so no score below it is among the best.
    """
    count = len(scores) // _GROUP_SIZE
    if count < 4 * limit or not limit:
        return None
    groups = scores[: count * _GROUP_SIZE].reshape(count, _GROUP_SIZE)
    highest = np.fmax.reduce(groups, axis=1)
    least = float(-np.partition(-np.nan_to_num(highest, nan=-np.inf), limit - 1)[limit - 1])
    return least if np.isfinite(least) else None


# Vectors are in blocks, so that growing copies nothing: at a million x 256 a doubling would need
# 512 MB for a moment. A block is of one scope, so that a search reads no vector of another one. The
# first blocks of a scope are small, as most scopes are.
BLOCK_ROWS = 8_192
FIRST_BLOCK_ROWS = 64
# So many rows are made floating-point numbers at a time: a product reads them from the cache.
_CAST_ROWS = 2_048
_VIEWS_KEPT = 8
# The mean vector is computed again when the store has grown by this share.
_MEAN_GROWTH = 0.1
_UNIT_TOLERANCE = 0.005
# The columns that are copied unchanged.
_TAKEN = (
    *("row", "scope", "length_chars", "provenance", "demotion", "confidence"),
    *("standing", "until_day", "trusted"),
)


# The types of the columns that are not int64.
_DTYPES: dict[str, type[np.generic]] = {
    **dict.fromkeys(("confidence", "mean_dot"), np.float32),
    **dict.fromkeys(("standing", "until_day"), np.float64),
    **dict.fromkeys(("alive", "embedded", "trusted"), np.bool_),
}


class IndexEntry(NamedTuple):
    """The columns of one memory; an empty vector means there is none."""

    row: int
    scope: int
    session_key: str | None
    turn: int | None
    length_chars: int
    provenance: str
    confidence: float
    demotion: int
    vector: bytes
    # Importance and age in one number whose order never changes.
    standing: float = 0.0
    trusted: bool = True
    # The Julian day on which its validity ends.
    until_day: float = float("inf")


@dataclass(frozen=True, slots=True)
class IndexBatch:
    """The columns of many memories, without their vectors."""

    row: IntArray
    scope: IntArray
    session_key: Sequence[str | None]
    # -1 for none.
    turn: IntArray
    length_chars: IntArray
    provenance: IntArray
    demotion: IntArray
    confidence: FloatArray
    standing: NDArray[np.float64]
    until_day: NDArray[np.float64]
    trusted: BoolArray

    @classmethod
    def of(cls, entries: Sequence[IndexEntry]) -> IndexBatch:
        """Return the columns of single entries."""
        columns = zip(*entries, strict=True)
        by_name: dict[str, Any] = dict(zip(IndexEntry._fields, columns, strict=True))
        by_name["provenance"] = provenance_codes(by_name["provenance"])
        turns = [_NONE if turn is None else turn for turn in by_name["turn"]]
        return cls(
            session_key=by_name["session_key"],
            turn=np.array(turns, np.int64),
            **{name: np.array(by_name[name], _DTYPES.get(name, np.int64)) for name in _TAKEN},
        )


@dataclass(frozen=True, slots=True)
class Nearest:
    """Rows and cosines, best first."""

    rows: IntArray
    cosines: FloatArray

    @classmethod
    def none(cls) -> Nearest:
        """Return an empty result."""
        return cls(np.empty(0, np.int64), np.empty(0, np.float32))


class _Block:
    """Vectors of one scope as they are stored, with the slot of each, ascending."""

    def __init__(self, room: int, dimension: int, number: int) -> None:
        self.number = number
        self.steps = np.empty((room, dimension), np.int8)
        self.scales = np.empty(room, np.float32)
        self.slots = np.empty(room, np.int64)
        self.count = 0

    def pieces(self, count: int) -> Iterator[tuple[IntArray, FloatArray, FloatArray]]:
        """Yield slots, steps and scales of the first `count` slots of the index.

        The steps are valid until the next piece.
        """
        slots = self.slots[: self.count]
        slots = slots[: np.searchsorted(slots, count)]
        room = np.empty((min(_CAST_ROWS, len(slots)), self.steps.shape[1]), np.float32)
        for start in range(0, len(slots), _CAST_ROWS):
            some = slice(start, min(start + _CAST_ROWS, len(slots)))
            steps = room[: some.stop - start]
            np.copyto(steps, self.steps[some])
            yield slots[some], steps, self.scales[some]


@dataclass(frozen=True, slots=True)
class SessionTexts:
    """The sessions of the open slots, each as one text, made of its strongest source.

    Long replies of an assistant next to texts of the user are left out: they contain words of
    everything.
    """

    # By slot, whether no stronger source spoke in its session; and the length by session.
    leads: BoolArray
    length_chars: NDArray[np.float64]

    @classmethod
    def of(cls, view: View) -> SessionTexts:
        """Return the sessions of a view."""
        leads = np.ones(view.count, np.bool_)
        columns = view.columns
        slots = np.flatnonzero(view.open)
        slots = slots[columns.session[slots] >= 0]
        if not len(slots):
            return cls(leads, np.empty(0, np.float64))
        sessions, step_count = columns.session[slots], len(PROVENANCE_LADDER)
        steps = columns.provenance[slots] + np.maximum(columns.demotion[slots], 0)
        steps = np.minimum(steps, step_count - 1)
        lengths = np.bincount(
            sessions * step_count + steps,
            columns.length_chars[slots],
            (int(sessions.max()) + 1) * step_count,
        ).reshape(-1, step_count)
        strongest = (lengths > 0.0).argmax(axis=1)
        leads[slots] = steps == strongest[sessions]
        return cls(leads, lengths[np.arange(len(lengths)), strongest])


@dataclass(slots=True)
class _Columns:
    """Parallel arrays with one element per slot, grown by half when full."""

    row: IntArray
    scope: IntArray
    turn_key: IntArray
    session: IntArray
    # The block that holds the vector, and its place there.
    block: IntArray
    place: IntArray
    length_chars: IntArray
    provenance: IntArray
    demotion: IntArray
    confidence: FloatArray
    mean_dot: FloatArray
    standing: NDArray[np.float64]
    until_day: NDArray[np.float64]
    alive: BoolArray
    embedded: BoolArray
    trusted: BoolArray

    @classmethod
    def with_room(cls, room: int) -> _Columns:
        return cls(**{name: np.zeros(room, _DTYPES.get(name, np.int64)) for name in cls.__slots__})

    def grown(self, room: int, count: int) -> _Columns:
        """Return a larger copy; readers of the old one are not disturbed."""
        larger = _Columns.with_room(room)
        for name in self.__slots__:
            getattr(larger, name)[:count] = getattr(self, name)[:count]
        return larger


class MemoryIndex:
    """Append-only slots; a changed memory leaves a dead slot and moves to a new one."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self.change = 0
        # By first letter: the change at which the stems were read, and the stems.
        self.vocabulary: dict[str, tuple[int, list[str]]] = {}
        self.lock = threading.RLock()
        self._count = 0
        self._columns = _Columns.with_room(0)
        self._blocks: list[_Block] = []
        self._blocks_of: dict[int, list[_Block]] = {}
        self._slot_of_row = np.empty(0, np.int64)
        self._session_codes: dict[str, int] = {}
        self._sorted_keys = np.empty(0, np.int64)
        self._sorted_slots = np.empty(0, np.int64)
        self._sorted_count = 0
        self.mean = np.zeros(dimension, np.float32)
        self._mean_count = 0
        self._dead_count = 0
        # The last view of each choice of scopes, with the counts at which it holds.
        self._views: dict[tuple[int, ...], tuple[tuple[int, int], View]] = {}

    @property
    def is_wasteful(self) -> bool:
        """Return whether so many slots are dead that the index should be rebuilt."""
        return self._dead_count > max(BLOCK_ROWS, self._count // 2)

    def __len__(self) -> int:
        return self._count

    # -- changes --------------------------------------------------------------------------

    def remove(self, rows: Sequence[int]) -> None:
        """Remove rows; ignore unknown ones."""
        wanted = np.asarray(rows, np.int64)
        known = wanted[wanted < len(self._slot_of_row)]
        slots = self._slot_of_row[known]
        slots = slots[slots != _NONE]
        self._columns.alive[slots] = False
        self._slot_of_row[known] = _NONE
        self._dead_count += len(slots)

    def keep_only(self, rows: IntArray) -> None:
        """Remove all other rows: a purged row leaves no change that could be read."""
        known = np.flatnonzero(self._slot_of_row != _NONE)
        self.remove(np.setdiff1d(known, rows).tolist())

    def add(self, entries: Sequence[IndexEntry]) -> None:
        """Add memories; the old slot of a row that exists dies."""
        if not entries:
            return
        first = self._count
        slots = self._take(IndexBatch.of(entries))
        missing = bytes(vector_bytes(self.dimension))
        blob = b"".join(entry.vector or missing for entry in entries)
        scales, steps = vector_parts(blob, self.dimension)
        # A damaged vector would spoil the mean, and with it every search.
        is_sound = are_unit(steps, scales)
        scales = np.where(is_sound, scales, np.float32(0.0))
        self._columns.embedded[slots] = is_sound & [bool(entry.vector) for entry in entries]
        scopes = self._columns.scope[slots]
        for scope in np.unique(scopes).tolist():
            chosen = np.flatnonzero(scopes == scope)
            self._put_vectors(scope, slots[chosen], scales[chosen], steps[chosen])
        self._count += len(slots)
        if self._count > self._mean_count * (1.0 + _MEAN_GROWTH):
            total = np.zeros(self.dimension, np.float64)
            for block in self._blocks:
                for _, some, scale in block.pieces(self._count):
                    total += scale @ some
            self.mean = store_mean(total, self._count).astype(np.float32)
            self._mean_count = self._count
            first = 0
        # Every row's product with the mean, so that centring needs no second pass.
        if first:
            dots = self.vectors(np.arange(first, self._count)) @ self.mean
        else:
            dots = self.dots(self.mean, self._blocks_of, self._count)
        self._columns.mean_dot[first : self._count] = dots

    def _put_vectors(
        self, scope: int, slots: IntArray, scales: FloatArray, steps: NDArray[np.int8]
    ) -> None:
        """Write vectors of one scope behind its others."""
        blocks = self._blocks_of.setdefault(scope, [])
        done = 0
        while done < len(slots):
            if not blocks or blocks[-1].count == len(blocks[-1].slots):
                held = sum(block.count for block in blocks)
                room = min(BLOCK_ROWS, max(FIRST_BLOCK_ROWS, held))
                blocks.append(_Block(room, self.dimension, len(self._blocks)))
                self._blocks.append(blocks[-1])
            block = blocks[-1]
            at = block.count
            taken = min(len(block.slots) - at, len(slots) - done)
            put = slots[done : done + taken]
            block.steps[at : at + taken] = steps[done : done + taken]
            block.scales[at : at + taken] = scales[done : done + taken]
            block.slots[at : at + taken] = put
            self._columns.block[put] = block.number
            self._columns.place[put] = np.arange(at, at + taken)
            block.count += taken
            done += taken

    def add_columns(self, batch: IndexBatch) -> None:
        """Add memories whose vectors are stored elsewhere."""
        if len(batch.row):
            self._take(batch)
            self._count += len(batch.row)

    def _take(self, batch: IndexBatch) -> IntArray:
        """Write the columns behind the last slot; they count once `_count` includes them."""
        rows = batch.row
        self.remove(rows.tolist())
        needed, largest_row = self._count + len(rows), int(rows.max())
        if needed > len(self._columns.row):
            room = max(needed, len(self._columns.row) + len(self._columns.row) // 2)
            self._columns = self._columns.grown(room, self._count)
        if largest_row >= len(self._slot_of_row):
            longer = np.full(largest_row + 1 + largest_row // 2, _NONE, np.int64)
            longer[: len(self._slot_of_row)] = self._slot_of_row
            self._slot_of_row = longer
        slots = np.arange(self._count, needed)
        columns, codes = self._columns, self._session_codes
        for name in _TAKEN:
            getattr(columns, name)[slots] = getattr(batch, name)
        known = [
            _NONE if key is None else codes.setdefault(key, len(codes)) for key in batch.session_key
        ]
        sessions = columns.session[slots] = np.array(known, np.int64)
        # Session and turn in one number, so that the turn after is this number plus one.
        has_turn = (sessions != _NONE) & (batch.turn != _NONE)
        columns.turn_key[slots] = np.where(has_turn, (sessions << 32) + batch.turn, _NONE)
        columns.alive[slots] = True
        self._slot_of_row[rows] = slots
        return slots

    def dots(self, vector: FloatArray, scopes: Iterable[int], count: int) -> FloatArray:
        """Return the products of the vectors of some scopes with one, by slot; 0 for others."""
        dots = np.zeros(count, np.float32)
        for scope in scopes:
            for block in tuple(self._blocks_of.get(scope, ())):
                for slots, steps, scales in block.pieces(count):
                    dots[slots] = (steps @ vector) * scales
        return dots

    # -- searching ------------------------------------------------------------------------

    def view(self, scopes: Sequence[int]) -> View:
        """Return the view of what is open to a search now."""
        with self.lock:
            stamp, key = (self._count, self._dead_count), tuple(scopes)
            known = self._views.get(key)
            if known is not None and known[0] == stamp:
                return known[1]
            if len(self._views) >= _VIEWS_KEPT:
                self._views.clear()
            view = View(self, key, self._count, self._open(scopes, self._count))
            self._views[key] = (stamp, view)
            return view

    def _open(self, scopes: Iterable[int], count: int) -> BoolArray:
        inside = np.zeros(count, np.bool_)
        for scope in scopes:
            inside |= self._columns.scope[:count] == scope
        inside &= self._columns.alive[:count]
        return inside

    def vectors(self, slots: IntArray) -> FloatArray:
        """Return the vectors of slots, zero where there is none."""
        found = np.zeros((len(slots), self.dimension), np.float32)
        if not self.dimension:
            return found
        blocks, places = self._columns.block[slots], self._columns.place[slots]
        for number in np.unique(blocks).tolist():
            inside = np.flatnonzero(blocks == number)
            block, chosen = self._blocks[number], places[inside]
            found[inside] = block.steps[chosen] * block.scales[chosen, None]
        return found

    def slots_of(self, rows: IntArray) -> IntArray:
        """Return the slots of rows, -1 for unknown ones."""
        slots = np.full(len(rows), _NONE, np.int64)
        known = rows < len(self._slot_of_row)
        slots[known] = self._slot_of_row[rows[known]]
        return slots

    def turns_after(self, slots: IntArray, step: int) -> IntArray:
        """Return the slots `step` turns later in the same session, -1 where there is none."""
        with self.lock:
            if self._sorted_count != self._count:
                # A stable sort of mostly sorted keys is cheap.
                turn_keys = self._columns.turn_key[: self._count]
                known = np.flatnonzero(self._columns.alive[: self._count] & (turn_keys >= 0))
                self._sorted_slots = known[np.argsort(turn_keys[known], kind="stable")]
                self._sorted_keys = turn_keys[self._sorted_slots]
                self._sorted_count = self._count
            if not len(self._sorted_keys):
                return np.full(len(slots), _NONE, np.int64)
            keys = self._columns.turn_key[slots]
            wanted = np.where(keys >= 0, keys + step, _NONE)
            at = np.searchsorted(self._sorted_keys, wanted)
            at = np.minimum(at, len(self._sorted_keys) - 1)
            found = (self._sorted_keys[at] == wanted) & (wanted >= 0)
            return np.where(found, self._sorted_slots[at], _NONE)

    def nearest_many(
        self, vectors: FloatArray, scope: int, limit: int, floor: float
    ) -> list[Nearest]:
        """Return the rows of one scope at or above a cosine, per vector."""
        with self.lock:
            count, columns = self._count, self._columns
            open_ = self._open((scope,), count) & columns.embedded[:count]
        parts = []
        for block in tuple(self._blocks_of.get(scope, ())):
            for slots_held, steps, scales in block.pieces(count):
                cosines = (vectors @ steps.T) * scales
                asked, places = np.nonzero(cosines >= floor)
                inside = open_[slots_held[places]]
                asked, places = asked[inside], places[inside]
                parts.append((asked, slots_held[places], cosines[asked, places]))
        asked, slots, found = (
            (np.concatenate(part) for part in zip(*parts, strict=True))
            if parts
            else (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
        )
        nearest = []
        for number in range(len(vectors)):
            mine = np.flatnonzero(asked == number)
            mine = mine[np.lexsort((slots[mine], -found[mine]))][:limit]
            nearest.append(Nearest(columns.row[slots[mine]], found[mine]))
        return nearest


def are_unit(steps: NDArray[np.int8], scales: FloatArray) -> BoolArray:
    """Return which stored vectors have length one, as all have that are sound."""
    with np.errstate(all="ignore"):
        lengths = np.linalg.norm(steps.astype(np.float32), axis=1) * scales
        return np.asarray(np.abs(lengths - 1.0) < _UNIT_TOLERANCE, np.bool_)
