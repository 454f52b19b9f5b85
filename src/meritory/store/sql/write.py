"""The write verbs of a store; each runs inside the writer's transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from meritory.domain.codec import moment_text, record_to_dict
from meritory.domain.errors import Corrupt, InputError, NotFound
from meritory.domain.memory import HistoryEntry, MemoryRecord, Scope
from meritory.store.contract.store import (
    Attribute,
    FloatArray,
    Indexed,
    MemoryChange,
    Near,
    NeighbourProbe,
)
from meritory.store.search.index import Nearest
from meritory.store.sql import rows as codec
from meritory.store.sql.access import SqlAccess
from meritory.store.sql.feedback import SqlFeedback
from meritory.store.sql.jobs import SqlJobs
from meritory.store.sql.memory_reads import SqlReads
from meritory.store.sql.predictor import SqlPredictor
from meritory.store.sql.quality import SqlQuality
from meritory.store.sql.rows import SqlConnection
from meritory.store.sql.rules import SqlRules
from meritory.store.sql.sessions import SqlSessions
from meritory.store.sqlite import purge

FindNearest = Callable[[NeighbourProbe, int], list[Nearest]]
_INSERT = (
    f"INSERT INTO memories ({', '.join(codec.MEMORY_COLUMNS)}) "  # noqa: S608 - names of ours
    f"VALUES ({', '.join(':' + name for name in codec.MEMORY_COLUMNS)}) RETURNING row"
)
_UPDATE = (
    f"UPDATE memories SET {', '.join(f'{name} = :{name}' for name in codec.MEMORY_COLUMNS)} "  # noqa: S608
    "WHERE user = :user AND id = :id"
)


class SqlTransaction(
    SqlJobs,
    SqlReads,
    SqlSessions,
    SqlPredictor,
    SqlFeedback,
    SqlRules,
    SqlQuality,
    SqlAccess,
):
    """The verbs of one transaction; reads see what was written before them."""

    def __init__(
        self,
        connection: SqlConnection,
        find_nearest: FindNearest,
        damaged: set[int] | None = None,
    ) -> None:
        super().__init__(connection, damaged)
        self._find_nearest = find_nearest
        self._change: int | None = None
        self._scopes: dict[Scope, int] = {}
        self._embedders: dict[str, tuple[int, int] | None] = {}

    # -- what the write path asks ---------------------------------------------------------

    def get(self, user: str, memory_id: str) -> MemoryRecord:
        wanted = {"user": user, "id": memory_id}
        found = self.records("m.user = :user AND m.id = :id", wanted) if memory_id.isascii() else []
        if not found:
            raise NotFound(f"no memory {memory_id[:40]!r}")
        return found[0]

    def live_by_hash(self, scope: Scope, hashes: Sequence[str]) -> dict[str, MemoryRecord]:
        found = self.connection.execute(
            """SELECT content_hash, row FROM memories
                WHERE user = ? AND scope = ? AND deleted_at IS NULL AND superseded_by IS NULL
                    AND content_hash IN (SELECT value FROM json_each(?))
                ORDER BY row DESC""",
            (scope.user, self._scope(scope), json.dumps(list(hashes))),
        ).fetchall()
        records = self._sound(scope.user, {row for _, row in found})
        return {digest: records[row] for digest, row in found if row in records}

    def nearest(self, probe: NeighbourProbe) -> list[list[Near]]:
        scope = self._scope(probe.scope)
        found = self._find_nearest(probe, scope)
        near = [list(zip(n.rows.tolist(), n.cosines.tolist(), strict=True)) for n in found]
        rows = {row for pairs in near for row, _ in pairs}
        records = self._live_records(probe.scope.user, rows, scope)
        return [
            [Near(records[row], cosine) for row, cosine in pairs if row in records]
            for pairs in near
        ]

    def _live_records(self, user: str, rows: set[int], scope: int) -> dict[int, MemoryRecord]:
        """Asked again, for this transaction may have moved or retired what the index knows."""
        return self._sound(
            user,
            rows,
            "AND m.scope = :scope AND m.deleted_at IS NULL AND m.superseded_by IS NULL",
            scope=scope,
        )

    def _sound(
        self, user: str, rows: set[int], where: str = "", **values: Any
    ) -> dict[int, MemoryRecord]:
        if not rows:
            return {}
        found = self.sound_records(
            # The plus keeps SQLite from walking through all of a user's memories.
            f"m.row IN (SELECT value FROM json_each(:rows)) AND +m.user = :user {where}",  # noqa: S608
            {"user": user, "rows": json.dumps(sorted(rows)), **values},
        )
        return {row: record for row, record in found.items() if record is not None}

    def superseded_by(self, user: str, memory_id: str) -> list[MemoryRecord]:
        return self.records(
            "m.user = :user AND m.superseded_by = :id ORDER BY m.row",
            {"user": user, "id": memory_id},
        )

    # -- memories -------------------------------------------------------------------------

    def has(self, user: str, memory_id: str) -> bool:
        found = self.connection.execute(
            "SELECT 1 FROM memories WHERE user = ? AND id = ?", (user, memory_id)
        ).fetchone()
        return found is not None

    def insert(self, memory: Indexed, change: MemoryChange | None) -> None:
        record = memory.record
        row = self._new_row(self._values(memory))
        self.connection.execute(
            "INSERT INTO memory_stats VALUES (?, ?, ?, ?, ?)",
            (row, *self._stats(record)),
        )
        self._set_vectors(row, memory.vectors)
        self._index_words(row, memory)
        self._link(row, memory)
        if change is not None:
            self._log(record, change)

    def _new_row(self, values: dict[str, Any]) -> int:
        """Stores the values of a new memory; returns its number."""
        (row,) = self.connection.execute(_INSERT, values).fetchone()
        return int(row)

    def update(self, memory: Indexed, change: MemoryChange | None) -> None:
        record = memory.record
        found = self.connection.execute(
            "SELECT row, content = ? FROM memories WHERE user = ? AND id = ?",
            (record.content, record.user, record.id),
        ).fetchone()
        if found is None:
            raise NotFound(f"no memory {record.id[:40]!r}")
        row, has_same_text = found
        self._reindex_words(row, memory)
        self.connection.execute(_UPDATE, self._values(memory))
        self.connection.execute(
            """UPDATE memory_stats SET scope = ?, access_count = ?, last_accessed = ?,
                usefulness = ? WHERE row = ?""",
            (*self._stats(record), row),
        )
        if memory.vectors or not has_same_text:
            self.connection.execute("DELETE FROM memory_vectors WHERE row = ?", (row,))
            self._set_vectors(row, memory.vectors)
        self.connection.execute("DELETE FROM attributes WHERE row = ? AND is_stated = 0", (row,))
        self._link(row, memory)
        if change is not None:
            self._log(record, change)

    def _values(self, memory: Indexed) -> dict[str, Any]:
        record = memory.record
        values = codec.durable(record)
        source = record.source
        values["row_hash"] = codec.row_hash([values[name] for name in codec.DURABLE])
        values["scope"] = self._scope(record.scope)
        values["words"] = memory.words
        values["content_hash"] = memory.content_hash
        values["session_key"] = source.session_key if source else None
        values["turn"] = codec.turn_number(source.turn) if source else None
        values["change"] = self._next_change(record.user)
        return values

    def _stats(self, record: MemoryRecord) -> tuple[Any, ...]:
        used = _moment(record.last_accessed)
        return self._scope(record.scope), record.access_count, used, record.usefulness

    def _set_vectors(self, row: int, vectors: Mapping[str, FloatArray]) -> None:
        for name, vector in vectors.items():
            found = self._embedder(name)
            if found is None:
                # Retired between embedding and writing: its vectors are of no use any more.
                continue
            self.connection.execute(
                "INSERT INTO memory_vectors (embedder, row, vector) VALUES (?, ?, ?)",
                (found[0], row, self._vector_value(vector, found[1])),
            )

    def _vector_value(self, vector: FloatArray, dimension: int) -> Any:
        """A vector as this database takes it."""
        return codec.vector_blob(vector, dimension)

    def _index_words(self, row: int, memory: Indexed) -> None:
        """Puts a new memory into the full-text index, where the database does not by itself."""

    def _reindex_words(self, row: int, memory: Indexed) -> None:
        """The same for a memory that is about to be replaced."""

    def put_vectors(
        self, embedder: str, vectors: Sequence[tuple[MemoryRecord, FloatArray]]
    ) -> None:
        found_embedder = self._embedder(embedder)
        if found_embedder is None:
            raise NotFound(f"no embedder {embedder!r} in this store")
        number, dimension = found_embedder
        for record, vector in vectors:
            change = self._next_change(record.user)
            value = self._vector_value(vector, dimension)
            found = self.connection.execute(
                "UPDATE memories SET change = ? WHERE user = ? AND id = ? AND content = ?"
                " RETURNING row",
                (change, record.user, record.id, record.content),
            ).fetchone()
            if found is not None:
                self.connection.execute(
                    "INSERT INTO memory_vectors (embedder, row, vector) VALUES (?, ?, ?)"
                    " ON CONFLICT (embedder, row) DO UPDATE SET vector = excluded.vector",
                    (number, found[0], value),
                )

    def purge(self, user: str, memory_id: str) -> None:
        if not self.has(user, memory_id):
            raise NotFound(f"no memory {memory_id[:40]!r}")
        purge.erase(self.connection, user, memory_id)
        self._note_purge(user)

    def _note_purge(self, user: str) -> None:
        """Tells indexes in memory, and the engine, that something was erased."""
        purge.note(self.connection, self._next_change(user))

    # -- entities -------------------------------------------------------------------------

    def _link(self, row: int, memory: Indexed) -> None:
        for attribute in memory.attributes:
            aspect = self._aspect(self._entity(memory.record.user, attribute), attribute.aspect)
            self.connection.execute(
                "INSERT INTO attributes VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                (aspect, row, int(attribute.is_stated)),
            )
        self.put_dependencies(memory.record.user, memory.depends_on)

    def put_dependencies(self, user: str, pairs: Sequence[tuple[Attribute, Attribute]]) -> None:
        for subject, needed in pairs:
            self.connection.execute(
                "INSERT INTO dependencies VALUES (?, ?) ON CONFLICT DO NOTHING",
                (self._entity(user, subject), self._entity(user, needed)),
            )

    def _entity(self, user: str, attribute: Attribute) -> int:
        return self._ensure(
            "SELECT entity FROM entities WHERE user = ? AND key = ?",
            (user, attribute.key),
            "INSERT INTO entities (user, key, kind, name) VALUES (?, ?, ?, ?) RETURNING entity",
            (user, attribute.key, attribute.kind, attribute.name),
        )

    def _aspect(self, entity: int, name: str) -> int:
        return self._ensure(
            "SELECT aspect FROM aspects WHERE entity = ? AND name = ?",
            (entity, name),
            "INSERT INTO aspects (entity, name) VALUES (?, ?) RETURNING aspect",
            (entity, name),
        )

    # -- history and counters -------------------------------------------------------------

    def _log(self, record: MemoryRecord, change: MemoryChange) -> None:
        self.connection.execute(
            """INSERT INTO memory_history
                (user, memory_id, operation, at, actor, action, why, before, other, other_id)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            entry_values(record, change),
        )

    def put_history(self, user: str, entries: Sequence[HistoryEntry]) -> None:
        self.connection.executemany(
            """INSERT INTO memory_history (user, memory_id, operation, at, actor, action, why,
                before, other, other_id, undone) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            [
                (
                    user,
                    entry.memory_id,
                    entry.operation,
                    moment_text(entry.at),
                    entry.actor,
                    entry.action,
                    entry.why,
                    _as_json(entry.before),
                    _as_json(entry.other),
                    entry.other_id,
                    int(entry.undone),
                )
                for entry in entries
            ],
        )

    def mark_undone(self, user: str, entries: Sequence[int]) -> None:
        self.connection.executemany(
            "UPDATE memory_history SET undone = 1 WHERE user = ? AND entry = ?",
            [(user, entry) for entry in entries],
        )

    def count(self, user: str, name: str, amount: int = 1) -> None:
        self.connection.execute(
            """INSERT INTO counters VALUES (?, ?, ?)
                ON CONFLICT (user, name) DO UPDATE SET value = counters.value + excluded.value""",
            (user, name, amount),
        )

    def set_import_progress(self, user: str, digest: str, line_count: int, at: datetime) -> None:
        self.connection.execute(
            """INSERT INTO imports VALUES (?, ?, ?, ?) ON CONFLICT (user, digest)
                DO UPDATE SET line_count = excluded.line_count, at = excluded.at""",
            (user, digest, line_count, moment_text(at)),
        )

    # -- numbers --------------------------------------------------------------------------

    def _scope(self, scope: Scope) -> int:
        if "" in (scope.agent, scope.project):
            raise InputError("an agent or project needs a name", hint="None means everywhere")
        if scope not in self._scopes:
            names = (scope.user, scope.agent, scope.project)
            self._scopes[scope] = self._ensure(
                "SELECT scope FROM scopes WHERE user = ?"
                " AND coalesce(agent, '') = coalesce(?, '')"
                " AND coalesce(project, '') = coalesce(?, '')",
                names,
                "INSERT INTO scopes (user, agent, project) VALUES (?, ?, ?) RETURNING scope",
                names,
            )
        return self._scopes[scope]

    def _embedder(self, name: str) -> tuple[int, int] | None:
        """The number and dimension of an embedder the store knows."""
        if name not in self._embedders:
            self._embedders[name] = self.connection.execute(
                "SELECT embedder, dimension FROM embedders WHERE name = ?", (name,)
            ).fetchone()
        return self._embedders[name]

    def _next_change(self, user: str) -> int:
        """The number of this transaction; indexes in memory ask for all that is above theirs."""
        if self._change is None:
            found = self.connection.execute(
                "UPDATE meta SET value = CAST(value AS INTEGER) + 1"
                " WHERE key = 'change' RETURNING value"
            ).fetchone()
            if found is None:
                raise Corrupt("the store has lost its count of changes", hint="restore a backup")
            self._change = int(found[0])
        return self._change

    def _ensure(
        self, find: str, find_by: tuple[Any, ...], make: str, make_from: tuple[Any, ...]
    ) -> int:
        found = self.connection.execute(find, find_by).fetchone()
        if found is None:
            found = self.connection.execute(make, make_from).fetchone()
        return int(found[0])


def entry_values(record: MemoryRecord, change: MemoryChange) -> tuple[Any, ...]:
    """An entry of a memory's history, in the order of its columns."""
    return (
        record.user,
        record.id,
        change.operation,
        moment_text(change.at),
        change.actor,
        change.action,
        change.why,
        _as_json(change.before),
        _as_json(change.other),
        change.other_id,
    )


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else moment_text(moment)


def _as_json(record: MemoryRecord | None) -> str | None:
    return None if record is None else json.dumps(record_to_dict(record), ensure_ascii=False)
