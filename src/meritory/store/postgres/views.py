"""What ranking needs of tenants' memories, kept in step by each tenant's own changes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meritory.rank.composite import static_effectives
from meritory.rank.hybrid import PROVENANCE_LADDER
from meritory.store.postgres.vectors import Mean, StoredEmbedder, take_mean
from meritory.store.search.cache import Traits
from meritory.store.search.index import IndexBatch, MemoryIndex, View
from meritory.store.search.search import EPOCH_JULIAN_DAY
from meritory.store.sql.mapper import SqlConnection

# So many of each may be kept: see TRAITS_LIMIT.
TENANTS_KEPT = 64


class TenantTraits(Traits):
    """Knows of changes by the tenant's number of them."""

    def __init__(self, user: str) -> None:
        super().__init__(user)
        self.lock = threading.Lock()

    def _last_change(self, connection: SqlConnection) -> int:
        return change_of(connection, self._user)[0]


class TenantTraitCache:
    """The traits of the tenants that were asked for lately; one thread at a time has a tenant's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, TenantTraits] = OrderedDict()

    @contextmanager
    def of(self, user: str) -> Iterator[TenantTraits]:
        """The traits of one tenant, for the length of the block."""
        with self._lock:
            known = self._known.setdefault(user, TenantTraits(user))
            self._known.move_to_end(user)
            while len(self._known) > TENANTS_KEPT:
                self._known.popitem(last=False)
        with known.lock:
            yield known


# All tenants together, about 130 bytes each.
ROWS_KEPT = 2_000_000
_MICROSECONDS_PER_DAY = 86_400e6
_NUMBERS = "SELECT change, purge FROM tenants WHERE user = ?"
_STEPS = ", ".join(f"'{name}'" for name in PROVENANCE_LADDER)
_LOWEST = len(PROVENANCE_LADDER)
# Every column comes as bytes end to end: rows one by one take ten times as long.
_COLUMNS: dict[str, tuple[str, str]] = {
    "row": ("int8send(m.row)", ">i8"),
    "scope": ("int8send(m.scope)", ">i8"),
    "turn": ("int8send(coalesce(m.turn, -1))", ">i8"),
    "length_chars": ("int4send(length(m.content))", ">i4"),
    "provenance": (
        f"int4send(coalesce(array_position(ARRAY[{_STEPS}], m.provenance), {_LOWEST}) - 1)",
        ">i4",
    ),
    "demotion": ("int8send(m.demotion)", ">i8"),
    "confidence": ("float8send(m.confidence)", ">f8"),
    "importance": ("float8send(m.importance)", ">f8"),
    # Always of the same width: to have it read by the database would take half of all the time.
    "created_at": ("convert_to(m.created_at, 'UTF8')", "S32"),
    "until_day": ("float8send(coalesce(julianday(m.valid_until), 'infinity'))", ">f8"),
    "trusted": ("boolsend(m.trust = 'trusted')", "?"),
    "live": ("boolsend(m.deleted_at IS NULL AND m.superseded_by IS NULL)", "?"),
}
_CHANGED = (
    "SELECT array_agg(m.session_key), "  # noqa: S608 - constants
    + ", ".join(f"string_agg({sent}, ''::bytea)" for sent, _ in _COLUMNS.values())
    + " FROM memories m WHERE m.user = ? AND m.change > ?"
)


def change_of(connection: SqlConnection, user: str) -> tuple[int, int]:
    """The numbers of a tenant's last change and last purge."""
    change, purge = connection.execute(_NUMBERS, (user,)).fetchone() or (0, 0)
    return int(change), int(purge)


class Views:
    """The copies of all tenants that were searched lately."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._indexes: OrderedDict[str, MemoryIndex] = OrderedDict()
        self._means: dict[tuple[str, int], Mean] = {}

    def index(self, connection: SqlConnection, user: str) -> MemoryIndex:
        """The copy of one tenant as it is in this transaction."""
        with self._lock:
            index = self._indexes.get(user)
            if index is None or index.is_wasteful:
                index = self._indexes[user] = MemoryIndex(0)
            self._indexes.move_to_end(user)
        _synchronise(connection, index, user)
        self._let_go()
        return index

    def mean(self, connection: SqlConnection, embedder: StoredEmbedder, view: View) -> Mean:
        """The mean vector of one tenant, not older than a tenth of its growth."""
        key = (embedder.user, embedder.number)
        known = self._means.get(key)
        if known is None or not known.is_fresh(view.count):
            known = self._means[key] = take_mean(connection, embedder, view)
        return known

    def clear(self) -> None:
        """Forgets everything."""
        with self._lock:
            self._indexes.clear()
            self._means.clear()

    def _let_go(self) -> None:
        with self._lock:
            total = sum(map(len, self._indexes.values()))
            while total > ROWS_KEPT and len(self._indexes) > 1:
                user, gone = self._indexes.popitem(last=False)
                total -= len(gone)
                for key in [key for key in self._means if key[0] == user]:
                    del self._means[key]


def _synchronise(connection: SqlConnection, index: MemoryIndex, user: str) -> None:
    change, purge = change_of(connection, user)
    with index.lock:
        # A transaction that began earlier may look at less than the copy has by now.
        if change <= index.change:
            return
        if purge > index.change:
            left = connection.execute("SELECT row FROM memories WHERE user = ?", (user,))
            index.keep_only(np.array([row for (row,) in left], np.int64))
        _take_over(index, connection.execute(_CHANGED, (user, index.change)).fetchone())
        index.change = change


def _take_over(index: MemoryIndex, packed: Any) -> None:
    session_keys, *sent = packed
    if session_keys is None:
        return
    kinds = zip(_COLUMNS.items(), sent, strict=True)
    found: dict[str, NDArray[Any]] = {
        name: np.frombuffer(part, kind) for (name, (_, kind)), part in kinds
    }
    live = found.pop("live")
    index.remove(found["row"][~live].tolist())
    # In the order of rows, whichever way they came.
    order = np.flatnonzero(live)
    order = order[np.argsort(found["row"][order], kind="stable")]
    ordered = {name: column[order] for name, column in found.items()}
    created_day = _julian_days(ordered.pop("created_at"))
    standing = static_effectives(ordered.pop("importance"), created_day)
    keys = [session_keys[at] for at in order.tolist()]
    index.add_columns(IndexBatch(session_key=keys, standing=standing, **ordered))


def _julian_days(moments: NDArray[Any]) -> NDArray[np.float64]:
    """Moments in the words of `moment_text`, which are always of UTC."""
    microseconds = moments.astype("S26").astype("datetime64[us]").astype(np.int64)
    return microseconds / _MICROSECONDS_PER_DAY + EPOCH_JULIAN_DAY
