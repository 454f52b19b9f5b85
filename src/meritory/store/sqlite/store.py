"""The SQLite store: one file, no server, nothing acknowledged is ever lost."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TypeVar

from meritory.domain.memory import MemoryRecord
from meritory.domain.place import Place
from meritory.store.contract.memories import NeighbourProbe, Search
from meritory.store.contract.store import DamagedRow, Store, Transaction
from meritory.store.search.index import MemoryIndex, Nearest
from meritory.store.search.search import Ground, open_view, synchronise
from meritory.store.sql.mapper import SqlConnection
from meritory.store.sql.memories import MemoryRows
from meritory.store.sql.visibility import visible_scopes
from meritory.store.sqlite import backup, fulltext, integrity
from meritory.store.sqlite.engine import SqliteEngine, side_files, sqlite_features
from meritory.store.sqlite.fulltext import Stemmer

T = TypeVar("T")


class SqliteStore(Store):
    """The storage contract on one SQLite file."""

    _engine: SqliteEngine
    # Counters stand for their memories: their table is narrow, so this does not read every text.
    _LACKING = """SELECT t.row FROM memory_stats t WHERE t.row > :last
        AND NOT EXISTS (SELECT 1 FROM memory_vectors v WHERE v.row = t.row AND v.embedder =
            (SELECT embedder FROM embedders WHERE name = :embedder))"""

    def __init__(self, path: Path) -> None:
        super().__init__()
        # Two names of one file must share one lock.
        self.path = path = Path(os.path.realpath(path))
        self.place = Place(file=path)
        self._lock = backup.hold(path)
        try:
            self._engine = SqliteEngine(path)
        except BaseException:
            self._lock.close()
            raise
        self._stemmer = Stemmer()
        self._indexes: dict[tuple[str, str | None], MemoryIndex] = {}
        self._index_lock = threading.Lock()

    # -- writing --------------------------------------------------------------------------

    def write(self, user: str | None, work: Callable[[Transaction], T]) -> T:
        return self._engine.write(
            lambda connection: work(Transaction(connection, self._find_nearest, self.damaged))
        )

    def _find_nearest(self, probe: NeighbourProbe, scope: int) -> list[Nearest]:
        with self._engine.read() as connection:
            index = self._index(connection, probe.scope.user, probe.embedder)
        if index.dimension != probe.vectors.shape[1]:
            # The embedder was retired between embedding and writing.
            return [Nearest.none() for _ in probe.vectors]
        return index.nearest_many(probe.vectors, scope, probe.limit, probe.floor)

    # -- finding --------------------------------------------------------------------------

    def _ground(self, connection: SqlConnection, search: Search, *, by_rest: bool) -> Ground:
        index = self._index(connection, search.scope.user, search.embedder)
        scopes = visible_scopes(connection, search.scope)
        view = open_view(connection, index, search, scopes)
        words = fulltext.FullText(connection)
        return Ground(connection, self._stemmer, view, scopes, words, vectors=view)

    # -- embedders ------------------------------------------------------------------------

    def without_vector(
        self, embedder: str, limit: int, after: MemoryRecord | None = None
    ) -> list[MemoryRecord]:
        _, last = self._position(after)
        page = f"{self._LACKING} ORDER BY t.row LIMIT :limit OFFSET :offset"
        with self._engine.read() as connection:
            return MemoryRows(connection, self.damaged).page(
                f"m.row IN ({page}) ORDER BY m.row", {"embedder": embedder, "last": last}, limit
            )

    def _drop_indexes(self, embedder: str) -> None:
        with self._index_lock:
            for key in [key for key in self._indexes if key[1] != embedder]:
                del self._indexes[key]

    def _index(self, connection: SqlConnection, user: str, embedder: str | None) -> MemoryIndex:
        found = connection.execute(
            # A damaged row has no number here: then words alone must do.
            "SELECT embedder, dimension FROM embedders WHERE name = ? AND dimension > 0",
            (embedder,),
        ).fetchone()
        number, dimension = found or (None, 0)
        with self._index_lock:
            key = (user, embedder if found else None)
            index = self._indexes.get(key)
            if index is None or index.is_wasteful:
                index = self._indexes[key] = MemoryIndex(dimension)
            synchronise(connection, index, user, number)
        return index

    # -- care -----------------------------------------------------------------------------

    def tidy(self, should_stop: Callable[[], bool]) -> None:
        # The first step, with a minus, asks for all pieces to become one; the others go on.
        pages = -fulltext.MERGE_PAGES
        while not should_stop() and self._engine.write(partial(fulltext.merge, pages)):
            pages = fulltext.MERGE_PAGES

    def check(self, *, deep: bool) -> list[str]:
        with self._engine.read() as connection:
            return integrity.check(connection, deep=deep)

    def damaged_rows(self) -> list[DamagedRow]:
        with self._engine.read() as connection:
            return integrity.damaged_rows(connection)

    def repair(self) -> list[str]:
        return self._engine.write(integrity.repair)

    def backup(self, target: Path) -> None:
        with self._engine.read() as connection:
            backup.write_backup(connection, target)

    def erase_traces(self) -> None:
        self._engine.erase_traces()

    def size_bytes(self) -> int:
        self._engine.require_files()
        files = (self.path, *side_files(self.path))
        return sum(file.stat().st_size for file in files if file.exists())

    def engine_name(self) -> str:
        found = sqlite_features()
        return f"SQLite {found.version}" + (" with FTS5" if found.has_full_text else "")

    def try_lock(self, name: str) -> AbstractContextManager[bool]:
        return nullcontext(True)

    def close(self) -> None:
        self._engine.close()
        self._stemmer.close()
        self._indexes.clear()
        self._lock.close()
