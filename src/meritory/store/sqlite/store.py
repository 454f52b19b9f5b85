"""The SQLite store: one file, no server, nothing acknowledged is ever lost."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from meritory.domain.memory import MemoryRecord, Scope
from meritory.domain.place import Place
from meritory.domain.world import Subscription
from meritory.store.contract.memories import (
    Gathered,
    Gathering,
    IntArray,
    NeighbourProbe,
    Search,
    SearchPool,
    Trait,
)
from meritory.store.contract.store import Store, Transaction
from meritory.store.search import search
from meritory.store.search.cache import Traits
from meritory.store.search.index import MemoryIndex, Nearest
from meritory.store.search.search import Ground
from meritory.store.sql.mapper import SqlConnection
from meritory.store.sql.memories import MemoryRows, visible_scopes
from meritory.store.sql.store import set_serving
from meritory.store.sqlite import backup, fulltext
from meritory.store.sqlite.engine import SqliteEngine, side_files, sqlite_features
from meritory.store.sqlite.fulltext import Stemmer

T = TypeVar("T")
# From the row after a given memory's on, or from the first. Counters stand for their memories:
# their table is narrow, so walking it does not read every text.
_LACKING = """SELECT t.row FROM memory_stats t
    WHERE t.row > coalesce((SELECT row FROM memories WHERE user = :user AND id = :id), 0)
        AND NOT EXISTS (SELECT 1 FROM memory_vectors v WHERE v.row = t.row AND v.embedder =
            (SELECT embedder FROM embedders WHERE name = :embedder))"""


class SqliteStore(Store):
    """The storage contract on one SQLite file."""

    _engine: SqliteEngine

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
        self._traits: dict[str, Traits] = {}
        self._traits_lock = threading.Lock()

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

    def search(self, search_: Search) -> SearchPool:
        with self._engine.read() as connection:
            index = self._index(connection, search_.scope.user, search_.embedder)
            return search.run(self._ground(connection, index, search_), search_)

    def gather(self, gathering: Gathering) -> Gathered:
        with self._engine.read() as connection:
            asked = gathering.search
            index = self._index(connection, asked.scope.user, asked.embedder)
            return search.gather(self._ground(connection, index, asked), gathering)

    def _ground(self, connection: SqlConnection, index: MemoryIndex, asked: Search) -> Ground:
        scopes = visible_scopes(connection, asked.scope)
        view = search.open_view(index, asked, scopes)
        words = fulltext.FullText(connection)
        return Ground(connection, self._stemmer, view, scopes, words, vectors=view)

    def traits(self, scope: Scope, rows: IntArray, now: datetime) -> dict[int, Trait]:
        with self._engine.read() as connection, self._traits_lock:
            known = self._traits.setdefault(scope.user, Traits(scope.user))
            scopes = visible_scopes(connection, scope)
            return known.of(connection, rows, scopes, now)

    # -- embedders ------------------------------------------------------------------------

    def without_vector(
        self, embedder: str, limit: int, after: MemoryRecord | None = None
    ) -> list[MemoryRecord]:
        last = {"user": after.user, "id": after.id} if after else {"user": None, "id": None}
        with self._engine.read() as connection:
            return MemoryRows(connection, self.damaged).page(
                f"m.row IN ({_LACKING} ORDER BY t.row LIMIT :limit OFFSET :offset) ORDER BY m.row",
                {"embedder": embedder, **last},
                limit,
            )

    def serve_embedder(self, embedder: str) -> bool:
        serves = self._engine.write(lambda connection: _serve(connection, embedder))
        if serves:
            with self._index_lock:
                for key in [key for key in self._indexes if key[1] != embedder]:
                    del self._indexes[key]
        return serves

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
            search.synchronise(connection, index, user, number)
        return index

    # -- care -----------------------------------------------------------------------------

    def tidy(self, should_stop: Callable[[], bool]) -> None:
        # The first step, with a minus, asks for all pieces to become one; the others go on.
        pages = -fulltext.MERGE_PAGES
        while not should_stop() and self._engine.write(partial(fulltext.merge, pages)):
            pages = fulltext.MERGE_PAGES

    def check(self, *, deep: bool) -> list[str]:
        with self._engine.read() as connection:
            return backup.check(connection, deep=deep)

    def backup(self, target: Path) -> None:
        with self._engine.read() as connection:
            backup.write_backup(connection, target)

    def erase_traces(self) -> None:
        self._engine.erase_traces()

    def size_bytes(self) -> int:
        files = (self.path, *side_files(self.path))
        return sum(file.stat().st_size for file in files if file.exists())

    def engine_name(self) -> str:
        found = sqlite_features()
        return f"SQLite {found.version}" + (" with FTS5" if found.has_full_text else "")

    def advice(self) -> list[str]:
        return []

    def follow(self, told: Callable[[], None]) -> Subscription | None:
        return None

    def turn(self, what: str) -> AbstractContextManager[bool]:
        return nullcontext(True)

    def close(self) -> None:
        self._engine.close()
        self._stemmer.close()
        self._indexes.clear()
        self._lock.close()


def _serve(connection: SqlConnection, embedder: str) -> bool:
    ready = connection.execute(
        f"SELECT 1 FROM embedders WHERE name = :embedder AND NOT EXISTS ({_LACKING})",  # noqa: S608
        {"embedder": embedder, "user": None, "id": None},
    ).fetchone()
    if ready is None:
        return False
    set_serving(connection, embedder)
    connection.execute("DELETE FROM embedders WHERE name <> ?", (embedder,))
    return True
