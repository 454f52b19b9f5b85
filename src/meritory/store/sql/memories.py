"""Memories, their history and their entities: rows, records, pages, neighbours and merges."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meritory.domain.errors import Corrupt, InputError, NotFound
from meritory.domain.memory import (
    Entity,
    EntityView,
    HistoryEntry,
    Listing,
    MemoryRecord,
    Scope,
)
from meritory.domain.world import moment_text
from meritory.store.contract.memories import Attribute, IntArray, Near, NeighbourProbe
from meritory.store.search.index import Nearest
from meritory.store.sql.mapper import (
    CODECS,
    FLOAT,
    RecordTable,
    SqlConnection,
    SqlReader,
    as_json,
    chosen_filters,
    encode_vector,
)
from meritory.store.sql.visibility import LIVE, visible_scopes

_PAGE_ROWS = 500
# The most problems of one kind that a check returns.
DAMAGE_LIMIT = 20
_COUNTERS = ("access_count", "last_accessed", "usefulness")
_FLOATS = [name for name, kind in MemoryRecord.__annotations__.items() if kind == "float"]
# The fields that the hash of a row covers, in their order. Counters and the embedder are not.
MEMORIES = RecordTable(
    "memories",
    MemoryRecord,
    omit=(*_COUNTERS, "embedder", "dimension"),
    codecs=dict.fromkeys(_FLOATS, FLOAT),
)
COUNTERS = RecordTable(
    "memory_stats",
    MemoryRecord,
    owner=("row", "scope"),
    omit=[name for name in MemoryRecord.__dataclass_fields__ if name not in _COUNTERS],
)
_IN_SCOPE = ("agent", "project")
MEMORY_COLUMNS = (
    *(name for name in MEMORIES.columns if name not in _IN_SCOPE),
    *("scope", "words", "content_hash", "session_key", "turn", "change", "row_hash"),
)
_SELECTED = ", ".join(("s." if name in _IN_SCOPE else "m.") + name for name in MEMORIES.columns)
SELECT_RECORD = f"""
    SELECT m.row, {_SELECTED}, m.row_hash, {COUNTERS.selected("t")}, e.name, e.dimension
    FROM memories m
    JOIN scopes s ON s.scope = m.scope
    JOIN memory_stats t ON t.row = m.row
    LEFT JOIN memory_vectors v ON v.row = m.row AND length(v.vector) > 0
        AND v.embedder = (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'serving')
    LEFT JOIN embedders e ON e.embedder = v.embedder
"""  # noqa: S608 - our names, here and below
# Damaged tags of one memory must not end the search among the others.
_HAS_TAG = """CASE WHEN json_valid(m.tags)
    THEN EXISTS (SELECT 1 FROM json_each(m.tags) WHERE value = :tag) END"""
# The filters of a listing, by field.
_FILTERS = {
    "kind": "m.kind = :kind",
    "provenance": "m.provenance = :provenance",
    "trust": "m.trust = :trust",
    "tag": _HAS_TAG,
    "after": "m.id < :after",
    "of_project": """m.scope IN (SELECT scope FROM scopes
        WHERE user = :user AND coalesce(project, '') = :of_project)""",
}
_STATES = {
    "live": LIVE,
    "superseded": "m.deleted_at IS NULL AND m.superseded_by IS NOT NULL",
    "forgotten": "m.deleted_at IS NOT NULL",
}
# `after` is not stored: it is the `before` of the next entry, or the memory itself.
HISTORY = RecordTable(
    "memory_history", HistoryEntry, owner=("user",), numbered="entry", omit=("after",)
)
_NEXT_BEFORE = """SELECT before FROM memory_history
    WHERE user = ? AND memory_id = ? AND entry > ? ORDER BY entry LIMIT 1"""
_TEXTS = """SELECT m.row, m.content FROM memories m
    WHERE m.row IN (SELECT value FROM json_each(:rows)) AND +m.user = :user"""
_LAST_ENTRY = 1 << 62
_HOLDS = "m.trust = 'trusted' AND (m.valid_until IS NULL OR m.valid_until > :now)"
# The named entities and the ones they depend on directly.
_IN_PLAY = """WITH named AS (
        SELECT entity FROM entities
        WHERE user = :user AND key IN (SELECT value FROM json_each(:keys))),
    in_play AS (
        SELECT entity FROM named
        UNION SELECT d.on_entity FROM dependencies d JOIN named USING (entity))
"""
_ASPECTS = f"""{_IN_PLAY} SELECT p.aspect FROM in_play
    CROSS JOIN aspects p ON p.entity = in_play.entity ORDER BY p.aspect LIMIT :aspects"""  # noqa: S608
_PINNED = f"""SELECT m.id FROM memories m
    WHERE m.user = :user AND m.pinned = 1 AND {LIVE} AND {_HOLDS}
        AND m.scope IN (SELECT value FROM json_each(:scopes))"""  # noqa: S608 - constants
# Starts at the constraints: they are few, while any number of memories can be about an entity.
_CONSTRAINTS = f"""{_IN_PLAY} SELECT m.id FROM memories m
    WHERE m.user = :user AND m.kind = 'constraint' AND {LIVE} AND {_HOLDS}
        AND m.scope IN (SELECT value FROM json_each(:scopes))
        AND (EXISTS (SELECT 1 FROM attributes a JOIN aspects p ON p.aspect = a.aspect
                WHERE a.row = m.row AND p.entity IN (SELECT entity FROM in_play))
            OR NOT EXISTS (SELECT 1 FROM attributes a WHERE a.row = m.row))"""  # noqa: S608 - constants
# Only the latest memories about an entity are read.
ASPECT_LIMIT = 256
ROWS_PER_ASPECT = 400
# Made once: every record that is read is hashed.
_HASHED_TEXT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=repr).encode


def row_hash(values: Sequence[Any]) -> bytes:
    """Return the hash of the stored values, in the order of `MEMORIES.columns`."""
    # Only a damaged row can hold bytes; any text in their place gives another hash.
    return hashlib.blake2b(_HASHED_TEXT(list(values)).encode(), digest_size=16).digest()


def decode_memory(row: Sequence[Any]) -> MemoryRecord:
    """Return the memory of a `SELECT_RECORD` row; raise Corrupt when its hash does not match."""
    end = 1 + len(MEMORIES.columns)
    values = row[1:end]
    if row_hash(values) != row[end]:
        raise Corrupt(
            f"memory {values[0]} does not match its hash",
            hint="run `meritory doctor --deep`; a backup may still have the undamaged text",
        )
    *counters, embedder, dimension = row[end + 1 :]
    # Counters are not hashed: one may be damaged while the rest is sound.
    used = COUNTERS.fields(counters)
    return MEMORIES.decode(values, **used, embedder=embedder, dimension=dimension)


def vector_blob(vector: NDArray[np.float32], dimension: int) -> bytes:
    """Return a unit vector as bytes, empty for the zero vector, which means there is none."""
    if vector.shape != (dimension,) or not np.isfinite(vector).all():
        raise InputError(f"a vector must have {dimension} finite numbers")
    return encode_vector(vector) if np.any(vector) else b""


def fetch_all(
    connection: SqlConnection, statement: str, values: Mapping[str, Any]
) -> list[tuple[Any, ...]]:
    """Return all rows, also when a text in them is damaged."""
    try:
        return connection.execute(statement, values).fetchall()
    except sqlite3.OperationalError as error:
        if "decode to UTF-8" not in str(error) or not isinstance(connection, sqlite3.Connection):
            raise
    # Invalid UTF-8 ends the whole query: read again and replace the invalid bytes. The hash of
    # that row will not match.
    factory = connection.text_factory
    connection.text_factory = lambda data: data.decode(errors="replace")
    try:
        return connection.execute(statement, values).fetchall()
    finally:
        connection.text_factory = factory


class MemoryRows:
    """The memories that one connection sees."""

    def __init__(self, connection: SqlConnection, damaged: set[int] | None = None) -> None:
        self.connection = connection
        self._damaged = set() if damaged is None else damaged

    def records(self, where: str, values: Mapping[str, Any]) -> list[MemoryRecord]:
        """Return the memories that meet a condition; raise Corrupt if one is damaged."""
        rows = self.connection.execute(f"{SELECT_RECORD} WHERE {where}", values)
        return [decode_memory(row) for row in rows]

    def sound_records(self, where: str, values: Mapping[str, Any]) -> dict[int, MemoryRecord]:
        """Return the undamaged memories that meet a condition, by row number.

        One damaged row must not hide the others; `doctor` names it.
        """
        return self._decoded(where, values)[0]

    def page(self, where: str, values: Mapping[str, Any], limit: int) -> list[MemoryRecord]:
        """Return `limit` undamaged memories, if there are as many."""
        page: list[MemoryRecord] = []
        offset = 0
        while len(page) < limit:
            wanted = limit - len(page)
            records, count = self._decoded(where, {**values, "limit": wanted, "offset": offset})
            page += records.values()
            offset += wanted
            if count < wanted:
                break
        return page

    def _decoded(
        self, where: str, values: Mapping[str, Any]
    ) -> tuple[dict[int, MemoryRecord], int]:
        rows = fetch_all(self.connection, f"{SELECT_RECORD} WHERE {where}", values)
        records: dict[int, MemoryRecord] = {}
        for row in rows:
            try:
                records[row[0]] = decode_memory(row)
            except Corrupt:
                self._damaged.add(row[0])
        return records, len(rows)


class SqlMemoryQueries(SqlReader):
    """Neighbours and the history of memories, for a store and for a transaction."""

    # Returns the nearest rows of a scope; every database finds them in its own way.
    _find_nearest: Callable[[NeighbourProbe, int], list[Nearest]]

    def nearest(self, probe: NeighbourProbe) -> list[list[Near]]:
        """Return for each vector the nearest live memories of exactly one scope, nearest first."""
        scope = self._one(
            probe.scope.user,
            """SELECT scope FROM scopes WHERE user = ?
                AND coalesce(agent, '') = ? AND coalesce(project, '') = ?""",
            (probe.scope.user, probe.scope.agent or "", probe.scope.project or ""),
        )
        if scope is None:
            return [[] for _ in probe.vectors]
        nearest = [
            list(zip(near.rows.tolist(), near.cosines.tolist(), strict=True))
            for near in self._find_nearest(probe, scope[0])
        ]
        if probe.is_wanted is not None:
            nearest = self._wanted(probe.scope.user, nearest, probe.is_wanted)
        rows = {row for pairs in nearest for row, _ in pairs}
        # Read again: a transaction may have moved or superseded memories that the index has.
        records = self._rows_of_user(
            probe.scope.user, rows, f"AND m.scope = :scope AND {LIVE}", scope=scope[0]
        )
        return [
            [Near(records[row], cosine) for row, cosine in pairs if row in records]
            for pairs in nearest
        ]

    def _wanted(
        self,
        user: str,
        nearest: list[list[tuple[int, float]]],
        is_wanted: Callable[[int, str, float], bool],
    ) -> list[list[tuple[int, float]]]:
        """Return the rows and cosines that are wanted, after reading only the texts."""
        rows = as_json({row for pairs in nearest for row, _ in pairs})
        with self._reading(user) as connection:
            texts = dict(fetch_all(connection, _TEXTS, {"user": user, "rows": rows}))
        return [
            [
                (row, cosine)
                for row, cosine in pairs
                if row in texts and is_wanted(at, texts[row], cosine)
            ]
            for at, pairs in enumerate(nearest)
        ]

    def _rows_of_user(
        self, user: str, rows: set[int], where: str = "", **values: Any
    ) -> dict[int, MemoryRecord]:
        if not rows:
            return {}
        with self._reading(user) as connection:
            return MemoryRows(connection, self.damaged).sound_records(
                # The plus keeps SQLite from scanning all memories of the user.
                f"m.row IN (SELECT value FROM json_each(:rows)) AND +m.user = :user {where}",  # noqa: S608
                {"user": user, "rows": as_json(sorted(rows)), **values},
            )

    # -- history --------------------------------------------------------------------------

    def history(self, user: str, memory_id: str) -> list[HistoryEntry]:
        """Return all changes of a memory, oldest first."""
        return self._entries(user, "memory_id = ? ORDER BY entry", memory_id)

    def operation(self, user: str, operation: str) -> list[HistoryEntry]:
        """Return all changes of one operation, oldest first."""
        return self._entries(user, "operation = ? ORDER BY entry", operation)

    def merges(self, scope: Scope, limit: int) -> list[HistoryEntry]:
        """Return the latest merges that the scope may see and that were not split again."""
        with self._reading(scope.user) as connection:
            scopes = as_json(visible_scopes(connection, scope))
        return self._entries(
            scope.user,
            """action = 'merge' AND undone = 0 AND EXISTS (
                SELECT 1 FROM memories m WHERE m.user = memory_history.user
                    AND m.id = memory_history.memory_id
                    AND m.scope IN (SELECT value FROM json_each(?))) ORDER BY entry DESC LIMIT ?""",
            scopes,
            limit,
        )

    def merges_of(self, user: str, limit: int, before: int | None = None) -> list[HistoryEntry]:
        """Return the latest merges of a user in all scopes, also those split again.

        `before` is the last entry of the page before.
        """
        return self._entries(
            user,
            "action = 'merge' AND entry < ? ORDER BY entry DESC LIMIT ?",
            _LAST_ENTRY if before is None else before,
            limit,
        )

    def merge_entry(self, user: str, entry: int) -> HistoryEntry:
        """Return one merge by its history entry; raise NotFound otherwise."""
        entries = self._entries(user, "entry = ? AND action = 'merge'", entry)
        if not entries:
            raise NotFound(f"there is no merge {entry}", hint="`meritory merges` lists them")
        return entries[0]

    def _entries(self, user: str, where: str, *values: Any) -> list[HistoryEntry]:
        with self._reading(user) as connection:
            rows = connection.execute(
                f"{HISTORY.select} WHERE user = ? AND {where}", (user, *values)
            ).fetchall()
            return [_with_state_after(connection, user, HISTORY.fields(row)) for row in rows]


def _with_state_after(connection: SqlConnection, user: str, fields: dict[str, Any]) -> HistoryEntry:
    key = (user, fields["memory_id"], fields["entry"])
    following = connection.execute(_NEXT_BEFORE, key).fetchone()
    if following is not None:
        before = following[0]
        after = None if before is None else CODECS["MemoryRecord"].decode(before)
    else:
        now = MemoryRows(connection).records(
            "m.user = :user AND m.id = :id", {"user": user, "id": fields["memory_id"]}
        )
        after = now[0] if now else None
    return HistoryEntry(**fields, after=after)


class SqlMemoryReads(SqlMemoryQueries):
    """Memories by id, page, row or entity."""

    def fetch(self, scope: Scope, rows: IntArray, now: datetime) -> dict[int, MemoryRecord]:
        """Return the live and valid memories of these rows that the scope may see."""
        with self._reading(scope.user) as connection:
            scopes = visible_scopes(connection, scope)
            return MemoryRows(connection, self.damaged).sound_records(
                f"""m.row IN (SELECT value FROM json_each(:rows))
                    AND m.scope IN (SELECT value FROM json_each(:scopes)) AND {LIVE}
                    AND (m.valid_until IS NULL OR m.valid_until > :now)""",  # noqa: S608
                {
                    "rows": as_json(rows.tolist()),
                    "scopes": as_json(scopes),
                    "now": moment_text(now),
                },
            )

    def memories(self, user: str, memory_ids: Sequence[str]) -> dict[str, MemoryRecord]:
        """Return the undamaged memories with these ids, in any state, by id."""
        with self._reading(user) as connection:
            records = MemoryRows(connection, self.damaged).sound_records(
                "m.user = :user AND m.id IN (SELECT value FROM json_each(:ids))",
                {"user": user, "ids": as_json(memory_ids)},
            )
        return {record.id: record for record in records.values()}

    def get(self, user: str, prefix: str, within: Scope | None = None) -> MemoryRecord:
        """Return the memory whose id starts with `prefix`.

        Raise NotFound for none, InputError for several. A memory that `within` may not see does
        not exist.
        """
        select, scopes = f"{SELECT_RECORD} WHERE m.user = :user", "[]"
        if within is not None:
            select += " AND m.scope IN (SELECT value FROM json_each(:scopes))"
            with self._reading(user) as connection:
                scopes = as_json(visible_scopes(connection, within))
        unknown = NotFound(f"no memory {prefix[:40]!r}")
        return decode_memory(self._by_prefix(select, user, prefix, unknown, scopes=scopes))

    def listing(self, listing: Listing) -> list[MemoryRecord]:
        """Return a page of memories, newest first."""
        conditions = ["m.user = :user"]
        if not listing.everywhere:
            conditions.append("m.scope IN (SELECT value FROM json_each(:scopes))")
        if listing.state is not None:
            conditions.append(_STATES[listing.state])
        elif not listing.include_gone:
            conditions.append(LIVE)
        filters, values = chosen_filters(listing, _FILTERS)
        conditions += filters
        with self._reading(listing.scope.user) as connection:
            scopes = as_json(visible_scopes(connection, listing.scope))
            return MemoryRows(connection, self.damaged).page(
                f"{' AND '.join(conditions)} ORDER BY m.id DESC LIMIT :limit OFFSET :offset",
                {"user": listing.scope.user, "scopes": scopes, **values},
                listing.limit,
            )

    def walk(self, user: str) -> Iterator[MemoryRecord]:
        """Yield every undamaged memory of a user, in any state, oldest first."""
        last = 0
        # All row numbers at once: no index is by user and in order, and sorting the memories of
        # a user again for every page takes a hundred times as long. The loop ends when no memory
        # was added since.
        while rows := [
            row
            for (row,) in self._all(
                user,
                "SELECT row FROM memories WHERE user = ? AND row > ? ORDER BY row",
                (user, last),
            )
        ]:
            for start in range(0, len(rows), _PAGE_ROWS):
                yield from self._rows_of_user(
                    user, set(rows[start : start + _PAGE_ROWS]), "ORDER BY m.row"
                ).values()
            last = rows[-1]

    def live_rows(self, user: str, after: int, limit: int) -> dict[int, MemoryRecord]:
        """Return the undamaged live memories behind a row, by row in its order."""
        rows = self._all(
            user,
            # The plus keeps SQLite from sorting all memories of the user.
            f"SELECT m.row FROM memories m WHERE +m.user = ? AND m.row > ? AND {LIVE}"  # noqa: S608
            " ORDER BY m.row LIMIT ?",
            (user, after, limit),
        )
        return self._rows_of_user(user, {row for (row,) in rows}, "ORDER BY m.row")

    # -- entities -------------------------------------------------------------------------

    def describe(self, scope: Scope, key: str) -> EntityView:
        """Return an entity with its aspects, live memories and dependencies, or raise NotFound."""
        # An entity that the scope cannot see gets the same reply as one that does not exist.
        unknown = NotFound(f"nothing is known about {key[:80]!r}")
        with self._reading(scope.user) as connection:
            found = connection.execute(
                "SELECT entity, kind, name FROM entities WHERE user = ? AND key = ?",
                (scope.user, key),
            ).fetchone()
            if found is None:
                raise unknown
            entity, kind, name = found
            rows = connection.execute(
                f"""SELECT p.name, m.id, m.kind FROM aspects p
                    JOIN attributes a ON a.aspect = p.aspect
                    JOIN memories m ON m.row = a.row AND {LIVE}
                    WHERE p.entity = ? AND m.scope IN (SELECT value FROM json_each(?))
                    ORDER BY p.name, m.id""",  # noqa: S608
                (entity, as_json(visible_scopes(connection, scope))),
            ).fetchall()
            needed = connection.execute(
                """SELECT n.kind, n.name FROM dependencies d
                    JOIN entities n ON n.entity = d.on_entity WHERE d.entity = ? ORDER BY n.key""",
                (entity,),
            ).fetchall()
        if not rows:
            raise unknown
        aspects: dict[str, tuple[str, ...]] = {}
        for aspect, memory_id, _ in rows:
            aspects[aspect] = (*aspects.get(aspect, ()), memory_id)
        return EntityView(
            Entity(kind, name, len({memory_id for _, memory_id, _ in rows})),
            aspects,
            tuple(dict.fromkeys(memory_id for _, memory_id, k in rows if k == "constraint")),
            tuple(Entity(kind, name) for kind, name in needed),
        )

    def stated_attributes(self, user: str) -> dict[str, tuple[Attribute, ...]]:
        """Return the stated attributes of memories, by memory id."""
        stated: dict[str, tuple[Attribute, ...]] = {}
        for memory_id, key, kind, name, aspect in self._all(
            user,
            """SELECT m.id, n.key, n.kind, n.name, p.name FROM attributes a
                JOIN aspects p ON p.aspect = a.aspect JOIN entities n ON n.entity = p.entity
                JOIN memories m ON m.row = a.row
                WHERE m.user = ? AND a.is_stated = 1 ORDER BY m.row, n.key, p.name""",
            (user,),
        ):
            stated[memory_id] = (
                *stated.get(memory_id, ()),
                Attribute(key, kind, name, aspect, is_stated=True),
            )
        return stated

    def dependencies(self, user: str) -> list[tuple[Attribute, Attribute]]:
        """Return every dependency between entities, in a fixed order."""
        rows = self._all(
            user,
            """SELECT a.key, a.kind, a.name, b.key, b.kind, b.name FROM dependencies d
                JOIN entities a ON a.entity = d.entity JOIN entities b ON b.entity = d.on_entity
                WHERE a.user = ? ORDER BY a.key, b.key""",
            (user,),
        )
        return [
            (Attribute(key, kind, name, ""), Attribute(needed_key, needed_kind, needed_name, ""))
            for key, kind, name, needed_key, needed_kind, needed_name in rows
        ]

    def memories_about(
        self, scope: Scope, keys: Sequence[str], now: datetime, limit: int
    ) -> list[str]:
        """Return ids of trusted, valid memories about entities or their dependencies.

        The newest come first.
        """
        with self._reading(scope.user) as connection:
            values = _parameters(connection, scope, keys, now)
            aspects = connection.execute(_ASPECTS, {**values, "aspects": ASPECT_LIMIT}).fetchall()
            rows: set[int] = set()
            for (aspect,) in aspects:
                latest = connection.execute(
                    "SELECT row FROM attributes WHERE aspect = ? ORDER BY row DESC LIMIT ?",
                    (aspect, max(ROWS_PER_ASPECT, 4 * limit)),
                )
                rows.update(row for (row,) in latest)
            ids = connection.execute(
                f"""SELECT m.id FROM memories m WHERE m.row IN (SELECT value FROM json_each(:rows))
                    AND {LIVE} AND {_HOLDS} AND m.scope IN (SELECT value FROM json_each(:scopes))
                    ORDER BY m.id DESC LIMIT :limit""",  # noqa: S608
                {**values, "rows": as_json(rows), "limit": limit},
            )
            return [memory_id for (memory_id,) in ids]

    def required(self, scope: Scope, keys: Sequence[str], now: datetime) -> list[str]:
        """Return ids of trusted, valid pins of the scope and of constraints on these entities.

        A constraint that names no entity holds everywhere.
        """
        with self._reading(scope.user) as connection:
            values = _parameters(connection, scope, keys, now)
            # Two statements: for one with OR, SQLite scans all memories.
            pinned = connection.execute(_PINNED, values).fetchall()
            constraints = connection.execute(_CONSTRAINTS, values).fetchall()
        return sorted({memory_id for (memory_id,) in (*pinned, *constraints)})


def _parameters(
    connection: SqlConnection, scope: Scope, keys: Sequence[str], now: datetime
) -> dict[str, str]:
    scopes = visible_scopes(connection, scope)
    return {
        "user": scope.user,
        "keys": as_json(keys),
        "scopes": as_json(scopes),
        "now": moment_text(now),
    }


def check_memories(connection: SqlConnection, user: str | None = None) -> list[str]:
    """Return the problems of memories and their history, of one user or of all."""
    values = () if user is None else (user,)

    def problems(select: str, owner: str, decode: Callable[[Any], object]) -> Iterator[str]:
        for row in connection.execute(f"{select} WHERE {owner} = ?" if values else select, values):
            try:
                decode(row)
            except Corrupt as error:
                yield error.message

    damage = list(islice(problems(SELECT_RECORD, "m.user", decode_memory), DAMAGE_LIMIT))
    damage += islice(problems(HISTORY.select, "user", HISTORY.fields), DAMAGE_LIMIT)
    of_user = "WHERE m.user = ?" if values else ""
    (lacking,) = connection.execute(
        f"""SELECT count(*) - count(t.row) FROM memories m
            LEFT JOIN memory_stats t ON t.row = m.row {of_user}""",  # noqa: S608
        values,
    ).fetchone()
    return [*damage, f"{lacking} memories lack their counters"] if lacking else damage
