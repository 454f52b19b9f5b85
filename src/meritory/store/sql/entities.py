"""Entities, their aspects and the memories about them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from meritory.domain.errors import NotFound
from meritory.domain.memory import Entity, EntityView, Scope
from meritory.domain.world import moment_text
from meritory.store.contract.memories import Attribute
from meritory.store.sql.connection import SqlConnection, as_json
from meritory.store.sql.dashboard import TOP_ENTITIES, SqlDashboardReads
from meritory.store.sql.memories import LIVE, visible_scopes

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
        AND EXISTS (SELECT 1 FROM attributes a JOIN aspects p ON p.aspect = a.aspect
            WHERE a.row = m.row AND p.entity IN (SELECT entity FROM in_play))"""  # noqa: S608 - constants
# Only the latest memories about an entity are read.
ASPECT_LIMIT = 256
ROWS_PER_ASPECT = 400


class SqlEntityReads(SqlDashboardReads):
    """Entities, their aspects and the memories about them."""

    def entities(self, scope: Scope, limit: int) -> list[Entity]:
        def count() -> list[Entity]:
            with self._reading(scope.user) as connection:
                values = {"user": scope.user, "limit": limit}
                scopes = as_json(visible_scopes(connection, scope))
                rows = connection.execute(TOP_ENTITIES, {**values, "scopes": scopes}).fetchall()
            return [Entity(kind, name, memory_count) for _, kind, name, memory_count in rows]

        return list(self._while_unchanged(("entities", scope, limit), count))

    def describe(self, scope: Scope, key: str) -> EntityView:
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
        with self._reading(scope.user) as connection:
            values = _parameters(connection, scope, keys, now)
            # Two statements: for one with OR, SQLite scans all memories.
            pinned = connection.execute(_PINNED, values).fetchall()
            constraints = connection.execute(_CONSTRAINTS, values).fetchall()
        return sorted({memory_id for (memory_id,) in (*pinned, *constraints)})


def _parameters(
    connection: SqlConnection, scope: Scope, keys: Sequence[str], now: datetime
) -> dict[str, str]:
    return {
        "user": scope.user,
        "keys": as_json(keys),
        "scopes": as_json(visible_scopes(connection, scope)),
        "now": moment_text(now),
    }
