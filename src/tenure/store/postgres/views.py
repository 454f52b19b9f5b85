"""What searching needs of every memory of a tenant, held in memory: everything but the vectors.

A copy catches up before every search by the tenant's own number of changes, so that any daemon
may serve any tenant. Those that were not asked for longest are let go.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

import numpy as np

from tenure.store.index import MemoryIndex
from tenure.store.postgres.vectors import Embedder, Mean, take_mean
from tenure.store.search import entry_of, take_in
from tenure.store.sql import Connection

# All tenants together, about 120 bytes each.
ROWS_KEPT = 3_000_000
_LOAD_ROWS = 4_096
_NUMBERS = "SELECT change, purge FROM tenants WHERE user = ?"
_CHANGED = """SELECT m.row, m.scope, m.session_key, m.turn, length(m.content),
        m.provenance, m.confidence, m.demotion, x'',
        m.importance, julianday(m.created_at), m.trust = 'trusted',
        julianday(m.valid_until), m.deleted_at IS NULL AND m.superseded_by IS NULL
    FROM memories m WHERE m.user = ? AND m.change > ?"""


def change_of(connection: Connection, user: str) -> tuple[int, int]:
    """The numbers of a tenant's last change and last purge."""
    change, purge = connection.execute(_NUMBERS, (user,)).fetchone() or (0, 0)
    return int(change), int(purge)


class Views:
    """The copies of all tenants that were searched lately."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._indexes: OrderedDict[str, MemoryIndex] = OrderedDict()
        self._means: dict[tuple[str, int], Mean] = {}

    def index(self, connection: Connection, user: str) -> MemoryIndex:
        """The copy of one tenant as it is in this transaction."""
        with self._lock:
            index = self._indexes.get(user)
            if index is None or index.is_wasteful:
                index = self._indexes[user] = MemoryIndex(0)
            self._indexes.move_to_end(user)
        _synchronise(connection, index, user)
        self._let_go()
        return index

    def mean(self, connection: Connection, embedder: Embedder, row_count: int) -> Mean:
        """The mean vector of one tenant, not older than a tenth of its growth."""
        key = (embedder.user, embedder.number)
        known = self._means.get(key)
        if known is None or not known.is_fresh(row_count):
            known = self._means[key] = take_mean(connection, embedder, row_count)
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


def _synchronise(connection: Connection, index: MemoryIndex, user: str) -> None:
    change, purge = change_of(connection, user)
    with index.lock:
        # A transaction that began earlier may look at less than the copy has by now.
        if change <= index.change:
            return
        if purge > index.change:
            left = connection.execute("SELECT row FROM memories WHERE user = ?", (user,))
            index.keep_only(np.array([row for (row,) in left], np.int64))
        cursor = connection.execute(_CHANGED, (user, index.change))
        while batch := cursor.fetchmany(_LOAD_ROWS):
            index.remove([row[0] for row in batch if not row[-1]])
            take_in(index, [entry_of(row) for row in batch if row[-1]])
        index.change = change
