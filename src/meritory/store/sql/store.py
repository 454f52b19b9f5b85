"""What both stores do alike: reads in the SQL that SQLite and PostgreSQL share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from meritory.domain.codec import moment_text
from meritory.domain.errors import InputError, NotFound
from meritory.domain.memory import (
    EmbedderInfo,
    EmbeddingState,
    Entity,
    EntityView,
    EveryScope,
    HistoryEntry,
    Listing,
    MemoryRecord,
    Scope,
)
from meritory.domain.world import ID_LENGTH
from meritory.store.contract.store import Attribute, IntArray
from meritory.store.sql import entities
from meritory.store.sql.access import SqlAccessReads
from meritory.store.sql.dashboard import SqlDashboardReads
from meritory.store.sql.feedback import SqlFeedbackReads
from meritory.store.sql.jobs import SqlJobReads
from meritory.store.sql.memory_reads import SqlReads, as_json
from meritory.store.sql.predictor import SqlPredictorReads
from meritory.store.sql.quality import SqlQualityReads
from meritory.store.sql.rows import SqlConnection, SqlReader
from meritory.store.sql.rules import SqlRuleReads
from meritory.store.sql.session_reads import SqlSessionReads

T = TypeVar("T")
PREFIX_LENGTH_MIN = 4
_WALK_ROWS = 500
_LIVE = "m.deleted_at IS NULL AND m.superseded_by IS NULL"
# Tags that are damaged must not end the search among the others.
_HAS_TAG = """CASE WHEN json_valid(m.tags)
    THEN EXISTS (SELECT 1 FROM json_each(m.tags) WHERE value = :tag) END"""
# What a list can be asked to hold alone, by the name of the wish.
_ASKED = {
    "kind": "m.kind = :kind",
    "provenance": "m.provenance = :provenance",
    "trust": "m.trust = :trust",
    "tag": _HAS_TAG,
    "after": "m.id < :after",
    "of_project": """m.scope IN (SELECT scope FROM scopes
        WHERE user = :user AND coalesce(project, '') = :of_project)""",
}
_STATES = {
    "live": _LIVE,
    "superseded": "m.deleted_at IS NULL AND m.superseded_by IS NOT NULL",
    "forgotten": "m.deleted_at IS NOT NULL",
}


class SqlEngine(SqlReader, Protocol):
    """Where a store gets its connections."""

    def write_across(self, work: Callable[[SqlConnection], T]) -> T:
        """Runs `work`, which is about all users together, in one transaction."""


class _Reads(SqlSessionReads, SqlJobReads, SqlPredictorReads, SqlDashboardReads): ...


class SqlStore(_Reads, SqlFeedbackReads, SqlRuleReads, SqlQualityReads, SqlAccessReads):
    """Everything of the storage contract that needs nothing but SQL."""

    _engine: SqlEngine

    def __init__(self) -> None:
        super().__init__()
        self.damaged: set[int] = set()

    # -- finding --------------------------------------------------------------------------

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
            seen = "" if within is None else "AND m.scope IN (SELECT value FROM json_each(:seen))"
            scopes = [] if within is None else reads.visible_scopes(within)
            found = reads.records(
                f"m.user = :user AND m.id >= :low AND m.id < :high {seen} ORDER BY m.id LIMIT 2",
                {"user": user, "low": wanted, "high": wanted + "~", "seen": as_json(scopes)},
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
        if listing.state is not None:
            conditions.append(_STATES[listing.state])
        elif not listing.include_gone:
            conditions.append(_LIVE)
        asked = {name: getattr(listing, name) for name in _ASKED}
        conditions += [_ASKED[name] for name, value in asked.items() if value is not None]
        with self._reads() as reads:
            values = {
                "user": listing.scope.user,
                "scopes": as_json(reads.visible_scopes(listing.scope)),
                **asked,
            }
            where = f"{' AND '.join(conditions)} ORDER BY m.id DESC LIMIT :limit OFFSET :offset"
            return page_of(reads, where, values, listing.limit)

    def walk(self, user: str) -> Iterator[MemoryRecord]:
        last = 0
        # What was written meanwhile is gone over too.
        while rows := self._rows_after(user, last):
            for start in range(0, len(rows), _WALK_ROWS):
                with self._reads() as reads:
                    page = reads.sound_records(
                        "m.row IN (SELECT value FROM json_each(:rows)) AND +m.user = :user"
                        " ORDER BY m.row",
                        {"user": user, "rows": as_json(rows[start : start + _WALK_ROWS])},
                    )
                yield from (record for record in page.values() if record is not None)
            last = rows[-1]

    def _rows_after(self, user: str, last: int) -> list[int]:
        """All row numbers at once: no index is by user and in order.

        Sorting a user's memories anew for every page would take a hundred times as long.
        """
        with self._reads() as reads:
            found = reads.connection.execute(
                "SELECT row FROM memories WHERE user = ? AND row > ? ORDER BY row", (user, last)
            )
            return [row for (row,) in found]

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
        facets = self.facets(EveryScope(user))
        with self._engine.read() as connection:
            return entities.totals(connection, user, facets)

    def users(self) -> list[str]:
        with self._engine.read_across() as connection:
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
        def counted() -> tuple[Entity, ...]:
            with self._reads() as reads:
                return tuple(entities.entities(reads, scope, limit))

        return list(self._while_unchanged(("entities", scope, limit), counted))

    def describe(self, scope: Scope, key: str) -> EntityView:
        with self._reads() as reads:
            return entities.describe(reads, scope, key)

    def stated_attributes(self, user: str) -> dict[str, tuple[Attribute, ...]]:
        with self._engine.read() as connection:
            return entities.stated_attributes(connection, user)

    def dependencies(self, user: str) -> list[tuple[Attribute, Attribute]]:
        with self._engine.read() as connection:
            return entities.dependencies(connection, user)

    def memories_about(
        self, scope: Scope, keys: Sequence[str], now: datetime, limit: int
    ) -> list[str]:
        with self._reads() as reads:
            return entities.memories_about(reads, entities.InPlay(scope, keys, now), limit)

    def required(self, scope: Scope, keys: Sequence[str], now: datetime) -> list[str]:
        with self._reads() as reads:
            return entities.required(reads, entities.InPlay(scope, keys, now))

    # -- embedders ------------------------------------------------------------------------

    def register_embedder(self, embedder: EmbedderInfo) -> None:
        if self.serving_embedder() != embedder:
            self._engine.write_across(lambda connection: _register(connection, embedder))

    def serving_embedder(self) -> EmbedderInfo | None:
        with self._engine.read_across() as connection:
            return _serving(connection)

    def embedding_state(self, embedder: str) -> EmbeddingState:
        with self._engine.read_across() as connection:
            (embedded,) = connection.execute(
                "SELECT count(*) FROM memory_vectors WHERE embedder ="
                " (SELECT embedder FROM embedders WHERE name = ?)",
                (embedder,),
            ).fetchone()
            (stored,) = connection.execute("SELECT count(*) FROM memories").fetchone()
        return EmbeddingState(embedded, stored)

    def damaged_count(self) -> int:
        return len(self.damaged)

    @contextlib.contextmanager
    def _reads(self) -> Iterator[SqlReads]:
        with self._engine.read() as connection:
            yield SqlReads(connection, self.damaged)


def page_of(reads: SqlReads, where: str, values: dict[str, Any], limit: int) -> list[MemoryRecord]:
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


def _serving(connection: SqlConnection) -> EmbedderInfo | None:
    found = connection.execute(
        """SELECT name, dimension, spec FROM embedders
            WHERE embedder = (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'serving')"""
    ).fetchone()
    return EmbedderInfo(*found) if found else None


def _register(connection: SqlConnection, embedder: EmbedderInfo) -> None:
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
        set_serving(connection, embedder.name)


def set_serving(connection: SqlConnection, name: str) -> None:
    """Lets an embedder that the store knows answer searches."""
    connection.execute(
        """INSERT INTO meta SELECT 'serving', CAST(embedder AS TEXT) FROM embedders WHERE name = ?
            ON CONFLICT (key) DO UPDATE SET value = excluded.value""",
        (name,),
    )
