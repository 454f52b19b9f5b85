"""Links between memories: values of one claim in order of time, and pairs that look alike."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from meritory.domain.errors import NotFound
from meritory.domain.memory import Scope
from meritory.domain.quality import LinkDecision, LinkKind, MemoryLink
from meritory.domain.world import moment_text
from meritory.store.contract.memories import LaterValue
from meritory.store.sql.mapper import RecordTable, SqlConnection, SqlReader, as_json, moment
from meritory.store.sql.visibility import visible_scopes

_LINKS = RecordTable("memory_links", MemoryLink, owner=("user",))
_LIVE = "deleted_at IS NULL AND superseded_by IS NULL"
# By id, one after the other: for IN, SQLite reads all memories of the user for every link.
_BOTH_LIVE = " AND ".join(
    f"""EXISTS (SELECT 1 FROM memories m WHERE m.user = memory_links.user
        AND m.id = memory_links.{end} AND {_LIVE})"""  # noqa: S608 - our names
    for end in ("older_id", "newer_id")
)
_IS_CHAIN = "coalesce(k.decision, k.kind) = 'newer'"
_GIVEN = "SELECT value FROM json_each(:ids)"
# Every memory that later values lead to. One step is a link, or what superseded a memory; it is a
# join with both ways because PostgreSQL allows one recursive SELECT. UNION ends circles.
_LATER = f"""WITH RECURSIVE later (id) AS (
        SELECT k.newer_id FROM memory_links k
            WHERE k.user = :user AND k.older_id IN ({_GIVEN}) AND {_IS_CHAIN}
        UNION
        SELECT coalesce(k.newer_id, s.superseded_by) FROM later l
            JOIN (SELECT 0 AS way UNION ALL SELECT 1 AS way) w ON 1 = 1
            LEFT JOIN memory_links k ON w.way = 0 AND k.user = :user AND k.older_id = l.id
                AND {_IS_CHAIN}
            LEFT JOIN memories s ON w.way = 1 AND s.user = :user AND s.id = l.id
            WHERE coalesce(k.newer_id, s.superseded_by) IS NOT NULL),
    steps (older_id, newer_id, is_decided) AS (
        SELECT k.older_id, k.newer_id, CASE WHEN k.decision IS NULL THEN 0 ELSE 1 END
            FROM memory_links k
            WHERE k.user = :user AND k.older_id IN ({_GIVEN}) AND {_IS_CHAIN}
        UNION
        SELECT k.older_id, k.newer_id, CASE WHEN k.decision IS NULL THEN 0 ELSE 1 END
            FROM later l CROSS JOIN memory_links k ON k.user = :user AND k.older_id = l.id
                AND {_IS_CHAIN}
        UNION
        SELECT s.id, s.superseded_by, 1
            FROM later l CROSS JOIN memories s ON s.user = :user AND s.id = l.id
                AND s.superseded_by IS NOT NULL)
    SELECT p.older_id, p.newer_id, p.is_decided, coalesce(m.valid_from, m.created_at),
        CASE WHEN m.deleted_at IS NULL AND m.superseded_by IS NULL
            AND (m.valid_until IS NULL OR m.valid_until > :now)
            AND (m.trust = 'trusted' OR :trusted = 0) THEN m.scope END
    FROM steps p JOIN memories m ON m.user = :user AND m.id = p.newer_id
    ORDER BY p.older_id, p.newer_id"""  # noqa: S608
# What the unsure links of the given memories lead to, and on from there what gave way to what.
_UNSURE = f"""WITH RECURSIVE later (older_id, id) AS (
        SELECT k.older_id, k.newer_id FROM memory_links k
            WHERE k.user = :user AND k.older_id IN ({_GIVEN}) AND k.kind = 'unsure'
                AND k.decision IS NULL
        UNION
        SELECT l.older_id, coalesce(k.newer_id, s.superseded_by) FROM later l
            JOIN (SELECT 0 AS way UNION ALL SELECT 1 AS way) w ON 1 = 1
            LEFT JOIN memory_links k ON w.way = 0 AND k.user = :user AND k.older_id = l.id
                AND {_IS_CHAIN}
            LEFT JOIN memories s ON w.way = 1 AND s.user = :user AND s.id = l.id
            WHERE coalesce(k.newer_id, s.superseded_by) IS NOT NULL)
    SELECT p.older_id, p.id, coalesce(m.valid_from, m.created_at),
        CASE WHEN m.deleted_at IS NULL AND m.superseded_by IS NULL
            AND (m.valid_until IS NULL OR m.valid_until > :now)
            AND (m.trust = 'trusted' OR :trusted = 0) THEN m.scope END
    FROM later p JOIN memories m ON m.user = :user AND m.id = p.id
    ORDER BY p.older_id, p.id"""  # noqa: S608
# The links into the given memories. SQLite takes the index by the newer end only where its columns
# are enough; otherwise it reads all links of the user.
_INTO = f"""SELECT n.older_id, n.newer_id FROM memories g
    CROSS JOIN memory_links n ON n.user = :user AND n.newer_id = g.id
    WHERE g.user = :user AND g.id IN ({_GIVEN})"""  # noqa: S608
# The memories whose value directly gave way to one of the given ones; one that was merged gave way
# to none. The caller sorts them: for an ORDER BY, SQLite would read everything in that order.
_EARLIER = f"""SELECT k.older_id, k.newer_id FROM ({_INTO}) i
        CROSS JOIN memory_links k ON k.user = :user AND k.older_id = i.older_id
            AND k.newer_id = i.newer_id AND {_IS_CHAIN}
    UNION
    SELECT s.id, s.superseded_by FROM memories s
        WHERE s.user = :user AND s.superseded_by IN ({_GIVEN}) AND NOT EXISTS (
            SELECT 1 FROM memory_links d WHERE d.user = :user AND d.older_id = s.id
                AND d.newer_id = s.superseded_by AND d.decision = 'same')
            AND NOT EXISTS (
            SELECT 1 FROM memory_links d WHERE d.user = :user AND d.older_id = s.superseded_by
                AND d.newer_id = s.id AND d.decision = 'same')"""  # noqa: S608
_OF = f"""user = :user AND (older_id IN ({_GIVEN}) OR newer_id IN ({_GIVEN}))
        AND older_id IN (SELECT o.id FROM memories o WHERE o.user = :user AND o.id IN ({_GIVEN})
            UNION SELECT i.older_id FROM ({_INTO}) i)
    ORDER BY at, older_id, newer_id"""  # noqa: S608


class SqlLinkReads(SqlReader):
    """Links, for a store and for a transaction."""

    def links_of(self, user: str, memory_ids: Sequence[str]) -> list[MemoryLink]:
        """Return all links of these memories, decided ones too, oldest first."""
        return self._records(
            _LINKS,
            user,
            _OF,
            {"user": user, "ids": as_json(memory_ids)},
        )

    def open_links(self, user: str, limit: int) -> list[MemoryLink]:
        """Return sure links between live memories about which nothing is decided, latest first."""
        return self._records(
            _LINKS,
            user,
            f"user = :user AND decision IS NULL AND kind <> 'unsure' AND {_BOTH_LIVE}"
            " ORDER BY at DESC, older_id, newer_id LIMIT :limit",
            {"user": user, "limit": limit},
        )

    def undecided_links(self, user: str, kind: LinkKind, limit: int) -> list[MemoryLink]:
        """Return links of a kind about which nothing is decided, latest first.

        Their memories may be forgotten or superseded.
        """
        return self._records(
            _LINKS,
            user,
            "user = :user AND decision IS NULL AND kind = :kind"
            " ORDER BY at DESC, older_id, newer_id LIMIT :limit",
            {"user": user, "kind": kind, "limit": limit},
        )

    def later_values(
        self, scope: Scope, memory_ids: Sequence[str], now: datetime, *, trusted: bool = False
    ) -> list[LaterValue]:
        """Return every step from these memories to later values of their claims.

        Present is a value that is live and valid, that the scope may see, and that is trusted if
        it must be.
        """
        names = {"user": scope.user, "ids": as_json(memory_ids), "now": moment_text(now)}
        with self._reading(scope.user) as connection:
            rows = connection.execute(_LATER, {**names, "trusted": int(trusted)}).fetchall()
            # Most memories have no later value.
            visible = frozenset(visible_scopes(connection, scope)) if rows else frozenset()
        return [
            LaterValue(older_id, newer_id, bool(is_decided), moment(since), number in visible)
            for older_id, newer_id, is_decided, since, number in rows
        ]

    def unsure_values(
        self, scope: Scope, memory_ids: Sequence[str], now: datetime, *, trusted: bool = False
    ) -> list[LaterValue]:
        """Return by memory what its unsure links lead to: probably newer values of its claim."""
        names = {"user": scope.user, "ids": as_json(memory_ids), "now": moment_text(now)}
        with self._reading(scope.user) as connection:
            rows = connection.execute(_UNSURE, {**names, "trusted": int(trusted)}).fetchall()
            visible = frozenset(visible_scopes(connection, scope)) if rows else frozenset()
        return [
            LaterValue(older_id, newer_id, False, moment(since), number in visible)
            for older_id, newer_id, since, number in rows
        ]

    def earlier_values(self, user: str, memory_ids: Sequence[str]) -> list[tuple[str, str]]:
        """Return the memories that one of these directly followed, in any state, with that one."""
        names = {"user": user, "ids": as_json(memory_ids)}
        return sorted(
            (older_id, newer_id) for older_id, newer_id in self._all(user, _EARLIER, names)
        )


class SqlLinkWrites(SqlLinkReads):
    """Changes of links."""

    connection: SqlConnection

    def put_links(self, user: str, links: Sequence[MemoryLink]) -> None:
        """Store links; one that exists stays as it is."""
        self.connection.executemany(
            f"{_LINKS.insert} ON CONFLICT (user, older_id, newer_id) DO NOTHING",
            [_LINKS.values(link, user=user) for link in links],
        )

    def drop_open_links(self, user: str, memory_id: str) -> None:
        """Delete the links of a memory about which nothing is decided."""
        self.connection.execute(
            """DELETE FROM memory_links WHERE user = :user AND decision IS NULL
                AND (older_id = :id OR newer_id = :id)""",
            {"user": user, "id": memory_id},
        )

    def decide_link(
        self,
        user: str,
        older_id: str,
        newer_id: str,
        decision: LinkDecision | None,
        by: str,
        at: datetime,
    ) -> None:
        """Record what was decided about a link; None opens it again."""
        found = self.connection.execute(
            """UPDATE memory_links SET decision = ?, decided_by = ?, decided_at = ?
                WHERE user = ? AND older_id = ? AND newer_id = ?""",
            (decision, by, moment_text(at), user, older_id, newer_id),
        )
        if not found.rowcount:
            raise NotFound(f"no link between {older_id[:40]!r} and {newer_id[:40]!r}")

    def drop_links(self, user: str, links: Sequence[MemoryLink]) -> None:
        """Delete these links, but not those about which something is decided."""
        self.connection.executemany(
            """DELETE FROM memory_links
                WHERE user = ? AND older_id = ? AND newer_id = ? AND decision IS NULL""",
            [(user, link.older_id, link.newer_id) for link in links],
        )
