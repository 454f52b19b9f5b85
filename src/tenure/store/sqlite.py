"""The SQLite store: one file, no server, nothing acknowledged is ever lost."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tenure.codec import moment_text
from tenure.errors import InputError, NotFound
from tenure.store import backup, gather, graph, search
from tenure.store.base import (
    Attribute,
    EmbedderInfo,
    EmbeddingState,
    IntArray,
    Listing,
    Pool,
    Probe,
    Search,
    Transaction,
)
from tenure.store.candidates import Gathered, Gathering, Trait
from tenure.store.engine import Engine
from tenure.store.index import MemoryIndex, Nearest
from tenure.store.reads import SqliteReads, as_json
from tenure.store.session_reads import SqliteSessionReads
from tenure.store.sqlite_feedback import SqliteFeedbackReads
from tenure.store.sqlite_jobs import SqliteJobReads
from tenure.store.sqlite_predictor import SqlitePredictorReads
from tenure.store.sqlite_rules import SqliteRuleReads
from tenure.store.sqlite_write import SqliteTransaction
from tenure.store.stems import Stemmer
from tenure.types import Entity, EntityView, HistoryEntry, MemoryRecord, Scope
from tenure.world import ID_LENGTH

T = TypeVar("T")
PREFIX_LENGTH_MIN = 4
_WALK_ROWS = 500
_LIVE = "m.deleted_at IS NULL AND m.superseded_by IS NULL"
# Tags that are damaged must not end the search among the others.
_HAS_TAG = """CASE WHEN json_valid(m.tags)
    THEN EXISTS (SELECT 1 FROM json_each(m.tags) WHERE value = :tag) END"""
# From the row after a given memory's on, or from the first. Counters stand for their memories:
# their table is narrow, so walking it does not read every text.
_LACKING = """SELECT t.row FROM memory_stats t
    WHERE t.row > coalesce((SELECT row FROM memories WHERE user = :user AND id = :id), 0)
        AND NOT EXISTS (SELECT 1 FROM memory_vectors v WHERE v.row = t.row AND v.embedder =
            (SELECT embedder FROM embedders WHERE name = :embedder))"""


class SqliteStore(
    SqliteSessionReads, SqliteJobReads, SqlitePredictorReads, SqliteFeedbackReads, SqliteRuleReads
):
    """The storage contract on one SQLite file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        # Two names of one file must share one lock.
        self.path = path = Path(os.path.realpath(path))
        self.damaged: set[int] = set()
        self._lock = backup.hold(path)
        try:
            self._engine = Engine(path)
        except BaseException:
            self._lock.close()
            raise
        self._stemmer = Stemmer()
        self._indexes: dict[tuple[str, str | None], MemoryIndex] = {}
        self._index_lock = threading.Lock()
        self._traits: dict[str, gather.Traits] = {}
        self._traits_lock = threading.Lock()

    # -- writing --------------------------------------------------------------------------

    def write(self, work: Callable[[Transaction], T]) -> T:
        return self._engine.write(
            lambda connection: work(SqliteTransaction(connection, self._nearest, self.damaged))
        )

    def _nearest(self, probe: Probe, scope: int) -> list[Nearest]:
        with self._engine.read() as connection:
            index = self._index(connection, probe.scope.user, probe.embedder)
        if index.dimension != probe.vectors.shape[1]:
            # The embedder was retired between embedding and writing.
            return [Nearest.none() for _ in probe.vectors]
        return index.nearest_many(probe.vectors, scope, probe.limit, probe.floor)

    # -- finding --------------------------------------------------------------------------

    def search(self, search_: Search) -> Pool:
        with self._engine.read() as connection:
            index = self._index(connection, search_.scope.user, search_.embedder)
            scopes = SqliteReads(connection).visible_scopes(search_.scope)
            return search.run(connection, self._stemmer, index, search_, scopes)

    def gather(self, gathering: Gathering) -> Gathered:
        with self._engine.read() as connection:
            asked = gathering.search
            index = self._index(connection, asked.scope.user, asked.embedder)
            scopes = SqliteReads(connection).visible_scopes(asked.scope)
            return gather.gather(connection, self._stemmer, index, gathering, scopes)

    def traits(self, scope: Scope, rows: IntArray, now: datetime) -> dict[int, Trait]:
        with self._engine.read() as connection, self._traits_lock:
            known = self._traits.setdefault(scope.user, gather.Traits(scope.user))
            scopes = SqliteReads(connection).visible_scopes(scope)
            return known.of(connection, rows, scopes, now)

    def fetch(self, scope: Scope, rows: IntArray, now: datetime) -> dict[int, MemoryRecord]:
        with self._reads() as reads:
            found = reads.sound_records(
                f"""m.row IN (SELECT value FROM json_each(:rows))
                    AND m.scope IN (SELECT value FROM json_each(:scopes)) AND {_LIVE}
                    AND (m.valid_until IS NULL OR m.valid_until > :now)""",  # noqa: S608 - a constant
                {
                    "rows": as_json(rows.tolist()),
                    "scopes": as_json(reads.visible_scopes(scope)),
                    "now": moment_text(now),
                },
            )
        return {row: record for row, record in found.items() if record is not None}

    def memories(self, user: str, memory_ids: Sequence[str]) -> dict[str, MemoryRecord]:
        with self._reads() as reads:
            found = reads.sound_records(
                "m.user = :user AND m.id IN (SELECT value FROM json_each(:ids))",
                {"user": user, "ids": as_json(memory_ids)},
            )
        return {record.id: record for record in found.values() if record is not None}

    def get(self, user: str, prefix: str, within: Scope | None = None) -> MemoryRecord:
        wanted = prefix.strip().lower()
        if not (PREFIX_LENGTH_MIN <= len(wanted) <= ID_LENGTH and wanted.isascii()):
            raise NotFound(f"no memory {prefix[:40]!r}")
        with self._reads() as reads:
            seen = None if within is None else as_json(reads.visible_scopes(within))
            found = reads.records(
                "m.user = :user AND m.id >= :low AND m.id < :high AND (:seen IS NULL"
                " OR m.scope IN (SELECT value FROM json_each(:seen))) ORDER BY m.id LIMIT 2",
                {"user": user, "low": wanted, "high": wanted + "~", "seen": seen},
            )
        if not found:
            raise NotFound(f"no memory {prefix[:40]!r}")
        if len(found) > 1:
            raise InputError(
                f"{prefix!r} is the start of several ids", hint="give more of its characters"
            )
        return found[0]

    def listing(self, listing: Listing) -> list[MemoryRecord]:
        conditions = ["m.user = :user"]
        if not listing.everywhere:
            conditions.append("m.scope IN (SELECT value FROM json_each(:scopes))")
        if not listing.include_gone:
            conditions.append(_LIVE)
        if listing.kind is not None:
            conditions.append("m.kind = :kind")
        if listing.tag is not None:
            conditions.append(_HAS_TAG)
        if listing.after is not None:
            conditions.append("m.id < :after")
        with self._reads() as reads:
            values = {
                "user": listing.scope.user,
                "scopes": as_json(reads.visible_scopes(listing.scope)),
                "kind": listing.kind,
                "tag": listing.tag,
                "after": listing.after,
            }
            where = f"{' AND '.join(conditions)} ORDER BY m.id DESC LIMIT :limit OFFSET :offset"
            return _page(reads, where, values, listing.limit)

    def walk(self, user: str) -> Iterator[MemoryRecord]:
        last = 0
        while True:
            with self._reads() as reads:
                page = reads.sound_records(
                    "m.user = :user AND m.row > :last ORDER BY m.row LIMIT :limit",
                    {"user": user, "last": last, "limit": _WALK_ROWS},
                )
            if not page:
                return
            yield from (record for record in page.values() if record is not None)
            last = max(page)

    # -- history and figures --------------------------------------------------------------

    def history(self, user: str, memory_id: str) -> list[HistoryEntry]:
        with self._reads() as reads:
            return reads.history(user, memory_id)

    def merges(self, scope: Scope, limit: int) -> list[HistoryEntry]:
        with self._reads() as reads:
            return reads.merges(scope, limit)

    def counters(self, user: str) -> dict[str, int]:
        with self._engine.read() as connection:
            return dict(
                connection.execute("SELECT name, value FROM counters WHERE user = ?", (user,))
            )

    def totals(self, user: str) -> dict[str, int]:
        with self._engine.read() as connection:
            return graph.totals(connection, user)

    def users(self) -> list[str]:
        with self._engine.read() as connection:
            found = connection.execute("SELECT DISTINCT user FROM memories ORDER BY user")
            return [user for (user,) in found]

    def import_progress(self, user: str, digest: str) -> int:
        with self._engine.read() as connection:
            found = connection.execute(
                "SELECT line_count FROM imports WHERE user = ? AND digest = ?", (user, digest)
            ).fetchone()
            return int(found[0]) if found else 0

    # -- entities -------------------------------------------------------------------------

    def entities(self, scope: Scope, limit: int) -> list[Entity]:
        with self._reads() as reads:
            return graph.entities(reads, scope, limit)

    def describe(self, scope: Scope, key: str) -> EntityView:
        with self._reads() as reads:
            return graph.describe(reads, scope, key)

    def stated_attributes(self, user: str) -> dict[str, tuple[Attribute, ...]]:
        with self._engine.read() as connection:
            return graph.stated_attributes(connection, user)

    def dependencies(self, user: str) -> list[tuple[Attribute, Attribute]]:
        with self._engine.read() as connection:
            return graph.dependencies(connection, user)

    def memories_about(
        self, scope: Scope, keys: Sequence[str], now: datetime, limit: int
    ) -> list[str]:
        with self._reads() as reads:
            return graph.memories_about(reads, graph.InPlay(scope, keys, now), limit)

    def required(self, scope: Scope, keys: Sequence[str], now: datetime) -> list[str]:
        with self._reads() as reads:
            return graph.required(reads, graph.InPlay(scope, keys, now))

    # -- embedders ------------------------------------------------------------------------

    def register_embedder(self, embedder: EmbedderInfo) -> None:
        if self.serving_embedder() != embedder:
            self._engine.write(lambda connection: _register(connection, embedder))

    def serving_embedder(self) -> EmbedderInfo | None:
        with self._engine.read() as connection:
            return _serving(connection)

    def embedding_state(self, embedder: str) -> EmbeddingState:
        with self._engine.read() as connection:
            (embedded,) = connection.execute(
                "SELECT count(*) FROM memory_vectors WHERE embedder ="
                " (SELECT embedder FROM embedders WHERE name = ?)",
                (embedder,),
            ).fetchone()
            (stored,) = connection.execute("SELECT count(*) FROM memories").fetchone()
        return EmbeddingState(embedded, stored)

    def without_vector(
        self, embedder: str, limit: int, after: MemoryRecord | None = None
    ) -> list[MemoryRecord]:
        last = {"user": after.user, "id": after.id} if after else {"user": None, "id": None}
        with self._reads() as reads:
            return _page(
                reads,
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

    def _index(
        self, connection: sqlite3.Connection, user: str, embedder: str | None
    ) -> MemoryIndex:
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
        pages = -search.MERGE_PAGES
        while not should_stop() and self._engine.write(partial(search.merge, pages)):
            pages = search.MERGE_PAGES

    def damaged_count(self) -> int:
        return len(self.damaged)

    def check(self, *, deep: bool) -> list[str]:
        with self._engine.read() as connection:
            return backup.check(connection, deep=deep)

    def backup(self, target: Path) -> None:
        with self._engine.read() as connection:
            backup.write_backup(connection, target)

    def erase_traces(self) -> None:
        self._engine.erase_traces()

    @contextlib.contextmanager
    def _reads(self) -> Iterator[SqliteReads]:
        with self._engine.read() as connection:
            yield SqliteReads(connection, self.damaged)

    def close(self) -> None:
        self._engine.close()
        self._stemmer.close()
        self._indexes.clear()
        self._lock.close()


def _page(reads: SqliteReads, where: str, values: dict[str, Any], limit: int) -> list[MemoryRecord]:
    """As many records as are wanted, if there are so many: a damaged one gives its place away."""
    page: list[MemoryRecord] = []
    offset = 0
    while len(page) < limit:
        wanted = limit - len(page)
        found = reads.sound_records(where, {**values, "limit": wanted, "offset": offset})
        page += [record for record in found.values() if record is not None]
        offset += wanted
        if len(found) < wanted:
            break
    return page


def _serving(connection: sqlite3.Connection) -> EmbedderInfo | None:
    found = connection.execute(
        """SELECT name, dimension, spec FROM embedders
            WHERE embedder = (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'serving')"""
    ).fetchone()
    return EmbedderInfo(*found) if found else None


def _register(connection: sqlite3.Connection, embedder: EmbedderInfo) -> None:
    (dimension,) = connection.execute(
        """INSERT INTO embedders (name, dimension, spec) VALUES (?, ?, ?)
            ON CONFLICT (name) DO UPDATE SET spec = excluded.spec RETURNING dimension""",
        (embedder.name, embedder.dimension, embedder.spec),
    ).fetchone()
    if dimension != embedder.dimension:
        raise InputError(
            f"{embedder.name} has vectors of {dimension} numbers here, not {embedder.dimension}",
            hint="name the other model differently",
        )
    (memory_count,) = connection.execute("SELECT count(*) FROM memories").fetchone()
    if memory_count == 0 or _serving(connection) is None:
        _set_serving(connection, embedder.name)


def _serve(connection: sqlite3.Connection, embedder: str) -> bool:
    ready = connection.execute(
        f"SELECT 1 FROM embedders WHERE name = :embedder AND NOT EXISTS ({_LACKING})",  # noqa: S608
        {"embedder": embedder, "user": None, "id": None},
    ).fetchone()
    if ready is None:
        return False
    _set_serving(connection, embedder)
    connection.execute("DELETE FROM embedders WHERE name <> ?", (embedder,))
    return True


def _set_serving(connection: sqlite3.Connection, name: str) -> None:
    connection.execute(
        """INSERT INTO meta SELECT 'serving', CAST(embedder AS TEXT) FROM embedders WHERE name = ?
            ON CONFLICT (key) DO UPDATE SET value = excluded.value""",
        (name,),
    )
