"""Links between memories: values of one claim in order of time, and pairs that look alike."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from meritory.domain.errors import NotFound
from meritory.domain.memory import LinkDecision, LinkKind, MemoryLink
from meritory.domain.world import moment_text
from meritory.store.sql.mapper import RecordTable, SqlConnection, SqlReader, as_json

# A chain is followed so far.
CHAIN_LIMIT = 64
_LINKS = RecordTable("memory_links", MemoryLink, owner=("user",))
_LIVE = "deleted_at IS NULL AND superseded_by IS NULL"
# By id, one after the other: for IN, SQLite reads all memories of the user for every link.
_BOTH_LIVE = " AND ".join(
    f"""EXISTS (SELECT 1 FROM memories m WHERE m.user = memory_links.user
        AND m.id = memory_links.{end} AND {_LIVE})"""  # noqa: S608 - our names
    for end in ("older_id", "newer_id")
)
# Every live memory that a chain leads to from each of the given ones, latest first.
_LATER = f"""WITH RECURSIVE later (start, id, depth) AS (
        SELECT id, id, 0 FROM memories
            WHERE user = :user AND id IN (SELECT value FROM json_each(:ids))
        UNION
        SELECT l.start, k.newer_id, l.depth + 1 FROM later l
            JOIN memory_links k ON k.user = :user AND k.older_id = l.id
                AND coalesce(k.decision, k.kind) = 'newer'
            WHERE l.depth < :limit)
    SELECT DISTINCT l.start, m.id, coalesce(m.valid_from, m.created_at) AS since FROM later l
        JOIN memories m ON m.user = :user AND m.id = l.id AND {_LIVE}
    WHERE l.id <> l.start ORDER BY since DESC, m.id DESC"""  # noqa: S608


class SqlLinkReads(SqlReader):
    """Links, for a store and for a transaction."""

    def links_of(self, user: str, memory_ids: Sequence[str]) -> list[MemoryLink]:
        """Return all links of these memories, decided ones too, oldest first."""
        return self._records(
            _LINKS,
            user,
            """user = :user AND (older_id IN (SELECT value FROM json_each(:ids))
                OR newer_id IN (SELECT value FROM json_each(:ids)))
                ORDER BY at, older_id, newer_id""",
            {"user": user, "ids": as_json(memory_ids)},
        )

    def open_links(self, user: str, limit: int) -> list[MemoryLink]:
        """Return links between live memories about which nothing is decided, latest first."""
        return self._records(
            _LINKS,
            user,
            f"user = :user AND decision IS NULL AND {_BOTH_LIVE}"
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

    def newest_of(self, user: str, memory_ids: Sequence[str]) -> dict[str, str]:
        """Return by memory the live one with the newest value of its claim, if another has it."""
        names = {"user": user, "ids": as_json(memory_ids), "limit": CHAIN_LIMIT}
        newest: dict[str, str] = {}
        for start, memory_id, _ in self._all(user, _LATER, names):
            newest.setdefault(start, memory_id)
        return newest


class SqlLinkWrites(SqlLinkReads):
    """Changes of links."""

    connection: SqlConnection

    def put_links(self, user: str, links: Sequence[MemoryLink]) -> None:
        """Store links; one that exists stays as it is."""
        self.connection.executemany(
            f"{_LINKS.insert} ON CONFLICT (user, older_id, newer_id) DO NOTHING",
            [_LINKS.values(link, user=user) for link in links],
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
