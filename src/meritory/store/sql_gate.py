"""Merges, neighbours and what was shown, out of a store."""

from __future__ import annotations

import json
import struct
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Any

from meritory.codec import moment_text
from meritory.store.base import Near, Probe
from meritory.store.gate_reads import ShownLately, ShownMemory, WeekOutcome
from meritory.store.index import Nearest
from meritory.store.reads import SqlReads, as_json
from meritory.store.sql import Reader
from meritory.types import HistoryEntry, MemoryRecord, Outcome

# A week by week account looks at so many changes at most: a page must not read all of history.
OUTCOME_ENTRIES = 20_000
_LAST_ENTRY = 1 << 62
_OUTCOMES = """SELECT substr(at, 1, 10) AS day,
        CASE WHEN action = 'merge' THEN 'merged'
            WHEN why LIKE 'supersedes %' THEN 'superseded'
            WHEN other_id IS NOT NULL THEN 'kept_both' ELSE 'stored' END AS outcome,
        count(*)
    FROM memory_history
    WHERE entry > (SELECT max(entry) FROM memory_history) - :entries
        AND user = :user AND at >= :since AND action IN ('create', 'merge')
    GROUP BY day, outcome ORDER BY day, outcome"""
_LATEST = """SELECT session FROM sessions WHERE user = :user
    ORDER BY started_at DESC, session DESC LIMIT :limit"""
_SHOWN = f"""SELECT c.label, u.memory_id IS NOT NULL, c.origins, c.features, c.feature_version,
        m.provenance, m.sources
    FROM ({_LATEST}) s JOIN session_memories c ON c.session = s.session
        LEFT JOIN uses u ON u.session = c.session AND u.memory_id = c.memory_id
        LEFT JOIN memories m ON m.user = :user AND m.id = c.memory_id
    WHERE c.was_injected = 1"""  # noqa: S608 - a constant, as below
_TURNS = f"""SELECT (SELECT count(*) FROM ({_LATEST}) s),
    (SELECT count(*) FROM ({_LATEST}) s JOIN injections i ON i.session = s.session)"""  # noqa: S608


class SqlGateReads(ABC):
    """What can be asked of a store about merges and what was shown."""

    _engine: Reader

    @abstractmethod
    def _nearest(self, probe: Probe, scope: int) -> list[Nearest]:
        """By row; every store has a way of its own."""

    def neighbours(self, probe: Probe) -> list[list[Near]]:
        with self._engine.read() as connection:
            found = connection.execute(
                """SELECT scope FROM scopes WHERE user = ?
                    AND coalesce(agent, '') = ? AND coalesce(project, '') = ?""",
                (probe.scope.user, probe.scope.agent or "", probe.scope.project or ""),
            ).fetchone()
        if found is None:
            return [[] for _ in probe.vectors]
        nearest = self._nearest(probe, found[0])
        rows = {row for one in nearest for row in one.rows.tolist()}
        with self._engine.read() as connection:
            records = _live(SqlReads(connection), probe.scope.user, rows)
        return [
            [
                Near(records[row], cosine)
                for row, cosine in zip(one.rows.tolist(), one.cosines.tolist(), strict=True)
                if row in records
            ]
            for one in nearest
        ]

    def merges_of(self, user: str, limit: int, before: int | None = None) -> list[HistoryEntry]:
        with self._engine.read() as connection:
            last = _LAST_ENTRY if before is None else before
            return SqlReads(connection).merges_before(user, last, limit)

    def gate_outcomes(self, user: str, since: datetime) -> list[WeekOutcome]:
        values = {"user": user, "since": moment_text(since), "entries": OUTCOME_ENTRIES}
        with self._engine.read() as connection:
            days = connection.execute(_OUTCOMES, values).fetchall()
        weeks: Counter[tuple[str, Outcome]] = Counter()
        for day, outcome, many in days:
            at = date.fromisoformat(day)
            weeks[(at - timedelta(days=at.weekday())).isoformat(), outcome] += many
        return [WeekOutcome(*key, many) for key, many in weeks.items()]

    def shown_lately(self, user: str, session_limit: int) -> ShownLately:
        values = {"user": user, "limit": session_limit}
        with self._engine.read() as connection:
            sessions, turns = connection.execute(_TURNS, values).fetchone()
            rows = [_shown(row) for row in connection.execute(_SHOWN, values)]
        return ShownLately(sessions, turns, rows)


def _live(reads: SqlReads, user: str, rows: set[int]) -> dict[int, MemoryRecord]:
    found = reads.sound_records(
        # The plus keeps SQLite from walking through all of a user's memories.
        """m.row IN (SELECT value FROM json_each(:rows)) AND +m.user = :user
            AND m.deleted_at IS NULL AND m.superseded_by IS NULL""",
        {"user": user, "rows": as_json(sorted(rows))},
    )
    return {row: record for row, record in found.items() if record is not None}


def _shown(row: Sequence[Any]) -> ShownMemory:
    label, has_helped, origins, features, version, provenance, sources = row
    learned = json.loads(sources) if sources else []
    return ShownMemory(
        label,
        bool(has_helped),
        tuple(json.loads(origins)),
        struct.unpack(f"={len(features) // 8}d", features),
        version,
        provenance,
        learned[0].get("extractor") if learned else None,
    )
