"""Writing memories, their history and their links to entities, inside a transaction."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from meritory.domain.errors import Corrupt, InputError, NotFound
from meritory.domain.memory import HistoryEntry, MemoryRecord, Scope
from meritory.store.contract.memories import Attribute, FloatArray, Indexed, MemoryChange
from meritory.store.sql.erasure import erase_session
from meritory.store.sql.mapper import RecordTable, SqlConnection, as_json
from meritory.store.sql.memories import (
    COUNTERS,
    HISTORY,
    MEMORIES,
    MEMORY_COLUMNS,
    MemoryRows,
    SqlMemoryQueries,
    row_hash,
    vector_blob,
)
from meritory.store.sqlite import purge

_INSERT = (
    f"INSERT INTO memories ({', '.join(MEMORY_COLUMNS)}) "  # noqa: S608 - our names, as below
    f"VALUES ({', '.join(':' + name for name in MEMORY_COLUMNS)}) RETURNING row"
)
_UPDATE = (
    f"UPDATE memories SET {', '.join(f'{name} = :{name}' for name in MEMORY_COLUMNS)} "  # noqa: S608
    "WHERE user = :user AND id = :id"
)
CHANGES = RecordTable("memory_history", MemoryChange, owner=("user", "memory_id"))
_LAST_NUMBER = re.compile(r"(\d{1,9})\D*$")


class SqlMemoryWrites(SqlMemoryQueries):
    """New, changed and erased memories; each verb runs inside the writer's transaction."""

    connection: SqlConnection
    _change: int | None
    _scopes: dict[Scope, int]
    _embedders: dict[str, tuple[int, int] | None]

    def get(self, user: str, memory_id: str) -> MemoryRecord:
        """Return the memory with exactly this id, in any state; raise NotFound otherwise."""
        records = self._memories("m.user = :user AND m.id = :id", user, memory_id)
        if not records:
            raise NotFound(f"no memory {memory_id[:40]!r}")
        return records[0]

    def superseded_by(self, user: str, memory_id: str) -> list[MemoryRecord]:
        """Return the memories that this one supersedes."""
        where = "m.user = :user AND m.superseded_by = :id ORDER BY m.row"
        return self._memories(where, user, memory_id)

    def _memories(self, where: str, user: str, memory_id: str) -> list[MemoryRecord]:
        if not memory_id.isascii():
            return []
        return MemoryRows(self.connection).records(where, {"user": user, "id": memory_id})

    def live_by_hash(self, scope: Scope, hashes: Sequence[str]) -> dict[str, MemoryRecord]:
        """Return the live memories of exactly this scope with these content hashes."""
        rows = self.connection.execute(
            """SELECT content_hash, row FROM memories
                WHERE user = ? AND scope = ? AND deleted_at IS NULL AND superseded_by IS NULL
                    AND content_hash IN (SELECT value FROM json_each(?))
                ORDER BY row DESC""",
            (scope.user, self._scope(scope), as_json(hashes)),
        ).fetchall()
        records = self._rows_of_user(scope.user, {row for _, row in rows})
        return {digest: records[row] for digest, row in rows if row in records}

    def has(self, user: str, memory_id: str) -> bool:
        """Return whether a memory has this id."""
        found = self._one(
            user, "SELECT 1 FROM memories WHERE user = ? AND id = ?", (user, memory_id)
        )
        return found is not None

    def insert(self, memory: Indexed, change: MemoryChange | None) -> None:
        """Store a new memory with its vectors, words, entities and first history entry.

        Without a change there is no history entry: an import adds its own by `put_history`.
        """
        record = memory.record
        (row,) = self.connection.execute(_INSERT, self._values(memory)).fetchone()
        self.connection.execute(COUNTERS.insert, {"row": row, **self._counters(record)})
        self._set_vectors(row, memory.vectors)
        self._link(row, memory)
        if change is not None:
            self._log(record, change)

    def update(self, memory: Indexed, change: MemoryChange | None) -> None:
        """Replace a memory's fields, words, vectors and entities, and add a history entry.

        Without new vectors the old ones stay if the text does. Without a change there is no
        history entry.
        """
        record = memory.record
        row, has_same_text = self._rewrite(memory)
        self.connection.execute(COUNTERS.update("row"), {"row": row, **self._counters(record)})
        if memory.vectors or not has_same_text:
            self.connection.execute("DELETE FROM memory_vectors WHERE row = ?", (row,))
            self._set_vectors(row, memory.vectors)
        if change is not None:
            self._log(record, change)

    def reindex(self, memory: Indexed) -> None:
        """Write the words, hashes and entities of an unchanged memory again."""
        self._rewrite(memory)

    def _rewrite(self, memory: Indexed) -> tuple[int, bool]:
        """Replace a memory's row and entities; return its number and whether the text stays."""
        record = memory.record
        found = self._one(
            record.user,
            "SELECT row, content = ? FROM memories WHERE user = ? AND id = ?",
            (record.content, record.user, record.id),
        )
        if found is None:
            raise NotFound(f"no memory {record.id[:40]!r}")
        row, has_same_text = found
        self._reindex_words(row, memory)
        self.connection.execute(_UPDATE, self._values(memory))
        self.connection.execute("DELETE FROM attributes WHERE row = ? AND is_stated = 0", (row,))
        self._link(row, memory)
        return row, bool(has_same_text)

    def _values(self, memory: Indexed) -> dict[str, Any]:
        """Return the stored values of a memory by column."""
        record, source = memory.record, memory.record.source
        stored = MEMORIES.row(record)
        turn = _LAST_NUMBER.search(source.turn) if source and source.turn else None
        return {
            **dict(zip(MEMORIES.columns, stored, strict=True)),
            "row_hash": row_hash(stored),
            "scope": self._scope(record.scope),
            "words": memory.words,
            "content_hash": memory.content_hash,
            "session_key": source.session_key if source else None,
            # The position of the turn in its session is the last number in its locator.
            "turn": int(turn.group(1)) if turn else None,
            "change": self._next_change(record.user),
        }

    def _counters(self, record: MemoryRecord) -> dict[str, Any]:
        return COUNTERS.values(record, scope=self._scope(record.scope))

    def _set_vectors(self, row: int, vectors: Mapping[str, FloatArray]) -> None:
        for name, vector in vectors.items():
            embedder = self._embedder(name)
            # An embedder may be retired between embedding and writing.
            if embedder is not None:
                self.connection.execute(
                    "INSERT INTO memory_vectors (embedder, row, vector) VALUES (?, ?, ?)",
                    (embedder[0], row, self._vector_value(vector, embedder[1])),
                )

    def _vector_value(self, vector: FloatArray, dimension: int) -> Any:
        """Return a vector as this database takes it."""
        return vector_blob(vector, dimension)

    def _reindex_words(self, row: int, memory: Indexed) -> None:
        """Update the full-text index before a memory is replaced."""

    def put_vectors(
        self, embedder: str, vectors: Sequence[tuple[MemoryRecord, FloatArray]]
    ) -> None:
        """Store vectors; skip memories whose text is no longer the one that was embedded."""
        known = self._embedder(embedder)
        if known is None:
            raise NotFound(f"no embedder {embedder!r} in this store")
        number, dimension = known
        for record, vector in vectors:
            change = self._next_change(record.user)
            value = self._vector_value(vector, dimension)
            found = self._one(
                record.user,
                "UPDATE memories SET change = ? WHERE user = ? AND id = ? AND content = ?"
                " RETURNING row",
                (change, record.user, record.id, record.content),
            )
            if found is not None:
                self.connection.execute(
                    "INSERT INTO memory_vectors (embedder, row, vector) VALUES (?, ?, ?)"
                    " ON CONFLICT (embedder, row) DO UPDATE SET vector = excluded.vector",
                    (number, found[0], value),
                )

    def purge(self, user: str, memory_id: str) -> None:
        """Erase a memory, its history, vectors, words and entity links permanently."""
        if not self.has(user, memory_id):
            raise NotFound(f"no memory {memory_id[:40]!r}")
        purge.erase(self.connection, user, memory_id)
        self._note_purge(user)

    def erase_session(self, user: str, key: str, job_kinds: Sequence[str]) -> dict[str, int]:
        """Erase a session and its jobs of these kinds; return the number of rows by table."""
        counts = erase_session(self.connection, user, key, job_kinds)
        self._note_purge(user)
        return counts

    def _note_purge(self, user: str) -> None:
        """Let in-memory indexes and the engine know that a memory was erased."""
        purge.note(self.connection, self._next_change(user))

    # -- entities -------------------------------------------------------------------------

    def _link(self, row: int, memory: Indexed) -> None:
        for attribute in memory.attributes:
            entity = self._entity(memory.record.user, attribute)
            aspect = self._ensure(
                "SELECT aspect FROM aspects WHERE entity = ? AND name = ?",
                (entity, attribute.aspect),
                "INSERT INTO aspects (entity, name) VALUES (?, ?) RETURNING aspect",
                (entity, attribute.aspect),
            )
            self.connection.execute(
                "INSERT INTO attributes VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                (aspect, row, int(attribute.is_stated)),
            )
        self.put_dependencies(memory.record.user, memory.depends_on)

    def copy_stated(self, user: str, from_id: str, to_id: str) -> None:
        """Let a memory be about the entities that were stated for another one, too."""
        self.connection.execute(
            """INSERT INTO attributes (aspect, row, is_stated)
                SELECT a.aspect, t.row, 1 FROM attributes a
                    JOIN memories f ON f.row = a.row JOIN memories t ON t.user = f.user
                    WHERE f.user = ? AND f.id = ? AND t.id = ? AND a.is_stated = 1
                ON CONFLICT (aspect, row) DO UPDATE SET is_stated = 1""",
            (user, from_id, to_id),
        )

    def put_dependencies(self, user: str, pairs: Sequence[tuple[Attribute, Attribute]]) -> None:
        """Record that the first entity of each pair depends on the second."""
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

    # -- history --------------------------------------------------------------------------

    def _log(self, record: MemoryRecord, change: MemoryChange) -> None:
        values = CHANGES.values(change, user=record.user, memory_id=record.id)
        self.connection.execute(CHANGES.insert, values)

    def put_history(self, user: str, entries: Sequence[HistoryEntry]) -> None:
        """Add history entries of an export."""
        values = [HISTORY.values(entry, user=user) for entry in entries]
        self.connection.executemany(HISTORY.insert, values)

    def mark_undone(self, user: str, entries: Sequence[int]) -> None:
        """Mark history entries as undone; the next undo goes further back."""
        self.connection.executemany(
            "UPDATE memory_history SET undone = 1 WHERE user = ? AND entry = ?",
            [(user, entry) for entry in entries],
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
        """Return the number and dimension of an embedder, None for an unknown one."""
        if name not in self._embedders:
            self._embedders[name] = self.connection.execute(
                "SELECT embedder, dimension FROM embedders WHERE name = ?", (name,)
            ).fetchone()
        return self._embedders[name]

    def _next_change(self, user: str) -> int:
        """Return the number of this transaction; in-memory indexes read all later ones."""
        if self._change is None:
            found = self._one(
                user,
                "UPDATE meta SET value = CAST(value AS INTEGER) + 1"
                " WHERE key = 'change' RETURNING value",
                (),
            )
            if found is None:
                raise Corrupt("the store has lost its count of changes", hint="restore a backup")
            self._change = int(found[0])
        return self._change

    def _ensure(
        self, find: str, find_by: tuple[Any, ...], make: str, make_from: tuple[Any, ...]
    ) -> int:
        found = self.connection.execute(find, find_by).fetchone()
        return int((found or self.connection.execute(make, make_from).fetchone())[0])
