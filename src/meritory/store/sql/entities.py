"""Entities, aspects and what is about them, and the figures of a store, in SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from meritory.domain.codec import moment_text
from meritory.domain.errors import NotFound
from meritory.domain.memory import Entity, EntityView, Scope
from meritory.store.contract.store import Attribute
from meritory.store.sql.memory_reads import SqlReads, as_json
from meritory.store.sql.rows import SqlConnection

_LIVE = "m.deleted_at IS NULL AND m.superseded_by IS NULL"
_HOLDS = "m.trust = 'trusted' AND (m.valid_until IS NULL OR m.valid_until > :now)"
# The entities named and, one hop on, what they depend on.
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
    WHERE m.user = :user AND m.pinned = 1 AND {_LIVE} AND {_HOLDS}
        AND m.scope IN (SELECT value FROM json_each(:scopes))"""  # noqa: S608 - constants
# From the constraints on: they are few, and what is about an entity may be everything.
_CONSTRAINTS = f"""{_IN_PLAY} SELECT m.id FROM memories m
    WHERE m.user = :user AND m.kind = 'constraint' AND {_LIVE} AND {_HOLDS}
        AND m.scope IN (SELECT value FROM json_each(:scopes))
        AND EXISTS (SELECT 1 FROM attributes a JOIN aspects p ON p.aspect = a.aspect
            WHERE a.row = m.row AND p.entity IN (SELECT entity FROM in_play))"""  # noqa: S608 - constants
# However many memories are about an entity, only the latest are looked at.
ASPECT_LIMIT = 256
ROWS_PER_ASPECT = 400


def entities(reads: SqlReads, scope: Scope, limit: int) -> list[Entity]:
    """The entities with the most live memories that the scope may see."""
    found = reads.connection.execute(
        f"""SELECT n.kind, n.name, count(DISTINCT m.row) AS many
            FROM entities n JOIN aspects p ON p.entity = n.entity
            JOIN attributes a ON a.aspect = p.aspect
            JOIN memories m ON m.row = a.row AND {_LIVE}
            WHERE n.user = ? AND m.scope IN (SELECT value FROM json_each(?))
            GROUP BY n.entity, n.kind, n.name, n.key ORDER BY many DESC, n.key LIMIT ?""",  # noqa: S608
        (scope.user, as_json(reads.visible_scopes(scope)), limit),
    )
    return [Entity(kind, name, many) for kind, name, many in found]


def describe(reads: SqlReads, scope: Scope, key: str) -> EntityView:
    """An entity with its aspects, their live memories and its dependencies."""
    connection = reads.connection
    found = connection.execute(
        "SELECT entity, kind, name FROM entities WHERE user = ? AND key = ?", (scope.user, key)
    ).fetchone()
    if found is None:
        raise NotFound(f"nothing is known about {key[:80]!r}")
    entity, kind, name = found
    rows = connection.execute(
        f"""SELECT p.name, m.id, m.kind FROM aspects p
            JOIN attributes a ON a.aspect = p.aspect
            JOIN memories m ON m.row = a.row AND {_LIVE}
            WHERE p.entity = ? AND m.scope IN (SELECT value FROM json_each(?))
            ORDER BY p.name, m.id""",  # noqa: S608
        (entity, as_json(reads.visible_scopes(scope))),
    ).fetchall()
    if not rows:
        # The same answer as for a name nobody ever used: other scopes keep theirs to themselves.
        raise NotFound(f"nothing is known about {key[:80]!r}")
    aspects: dict[str, tuple[str, ...]] = {}
    for aspect, memory_id, _ in rows:
        aspects[aspect] = (*aspects.get(aspect, ()), memory_id)
    needed = connection.execute(
        """SELECT n.kind, n.name FROM dependencies d JOIN entities n ON n.entity = d.on_entity
            WHERE d.entity = ? ORDER BY n.key""",
        (entity,),
    )
    return EntityView(
        Entity(kind, name, len({memory_id for _, memory_id, _ in rows})),
        aspects,
        tuple(dict.fromkeys(memory_id for _, memory_id, k in rows if k == "constraint")),
        tuple(Entity(kind, name) for kind, name in needed),
    )


def stated_attributes(connection: SqlConnection, user: str) -> dict[str, tuple[Attribute, ...]]:
    """By memory id, the entities that somebody said outright it is about."""
    found: dict[str, tuple[Attribute, ...]] = {}
    for memory_id, key, kind, name, aspect in connection.execute(
        """SELECT m.id, n.key, n.kind, n.name, p.name FROM attributes a
            JOIN aspects p ON p.aspect = a.aspect JOIN entities n ON n.entity = p.entity
            JOIN memories m ON m.row = a.row
            WHERE m.user = ? AND a.is_stated = 1 ORDER BY m.row, n.key, p.name""",
        (user,),
    ):
        found[memory_id] = (*found.get(memory_id, ()), Attribute(key, kind, name, aspect, True))
    return found


def dependencies(connection: SqlConnection, user: str) -> list[tuple[Attribute, Attribute]]:
    """Every dependency between entities, in a fixed order."""
    found = connection.execute(
        """SELECT a.key, a.kind, a.name, b.key, b.kind, b.name FROM dependencies d
            JOIN entities a ON a.entity = d.entity JOIN entities b ON b.entity = d.on_entity
            WHERE a.user = ? ORDER BY a.key, b.key""",
        (user,),
    )
    return [
        (Attribute(key, kind, name, ""), Attribute(needed_key, needed_kind, needed_name, ""))
        for key, kind, name, needed_key, needed_kind, needed_name in found
    ]


@dataclass(frozen=True, slots=True)
class InPlay:
    """Who asks, about which entities, and when."""

    scope: Scope
    keys: Sequence[str]
    now: datetime

    def parameters(self, reads: SqlReads) -> dict[str, str | int]:
        """The values for the statements below."""
        return {
            "user": self.scope.user,
            "keys": as_json(self.keys),
            "scopes": as_json(reads.visible_scopes(self.scope)),
            "now": moment_text(self.now),
        }


def memories_about(reads: SqlReads, asked: InPlay, limit: int) -> list[str]:
    """Ids of memories about these entities or what they depend on, newest first."""
    values = asked.parameters(reads)
    connection = reads.connection
    rows: set[int] = set()
    for (aspect,) in connection.execute(_ASPECTS, {**values, "aspects": ASPECT_LIMIT}).fetchall():
        latest = connection.execute(
            "SELECT row FROM attributes WHERE aspect = ? ORDER BY row DESC LIMIT ?",
            (aspect, max(ROWS_PER_ASPECT, 4 * limit)),
        )
        rows.update(row for (row,) in latest)
    found = connection.execute(
        f"""SELECT m.id FROM memories m WHERE m.row IN (SELECT value FROM json_each(:rows))
            AND {_LIVE} AND {_HOLDS} AND m.scope IN (SELECT value FROM json_each(:scopes))
            ORDER BY m.id DESC LIMIT :limit""",  # noqa: S608
        {**values, "rows": as_json(rows), "limit": limit},
    )
    return [memory_id for (memory_id,) in found]


def required(reads: SqlReads, asked: InPlay) -> list[str]:
    """Ids of pinned memories of the scope and of constraints on entities in play."""
    values = asked.parameters(reads)
    # Two questions: asked as one, SQLite would walk through all memories to merge the answers.
    pinned = reads.connection.execute(_PINNED, values).fetchall()
    constraints = reads.connection.execute(_CONSTRAINTS, values).fetchall()
    return sorted({memory_id for (memory_id,) in (*pinned, *constraints)})


def totals(
    connection: SqlConnection, user: str, facets: Mapping[str, Mapping[str, int]]
) -> dict[str, int]:
    """Counts of memories by state, kind, provenance and trust, of history and of entities."""
    states = facets["state"]
    figures = {
        "live": states.get("live", 0),
        "deleted": states.get("forgotten", 0),
        "superseded": states.get("superseded", 0),
    }
    for name, statement in (
        ("history", "SELECT count(*) FROM memory_history WHERE user = ?"),
        ("entities", "SELECT count(*) FROM entities WHERE user = ?"),
    ):
        (figures[name],) = connection.execute(statement, (user,)).fetchone()
    for column in ("kind", "provenance", "trust"):
        figures |= {f"{column}.{value}": many for value, many in facets[column].items()}
    return figures
