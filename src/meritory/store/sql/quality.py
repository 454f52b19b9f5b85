"""Merges, neighbours and what was shown, out of a store."""

from __future__ import annotations

import json
import struct
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import date, datetime, timedelta
from typing import Any

from meritory.domain.access import Consent
from meritory.domain.codec import moment_text
from meritory.domain.errors import InputError, NotFound
from meritory.domain.memory import HistoryEntry, MemoryRecord, Outcome, Scope
from meritory.domain.quality import (
    Carried,
    CarriedAudit,
    CarriedBelief,
    CarriedLesson,
    CarriedRefusal,
    CarriedTestimony,
    CarriedWording,
    Keepsake,
    MergeVerdict,
    Refusal,
    Retrieval,
    ShownFigure,
    ShownLately,
    WeekOutcome,
)
from meritory.store.contract.store import Near, NeighbourProbe
from meritory.store.contract.transfer import R
from meritory.store.search.index import Nearest
from meritory.store.sql.memory_reads import SqlReads, as_json
from meritory.store.sql.rows import SqlConnection, SqlReader, moment

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

    _engine: SqlReader

    @abstractmethod
    def _nearest(self, probe: NeighbourProbe, scope: int) -> list[Nearest]:
        """By row; every store has a way of its own."""

    def neighbours(self, probe: NeighbourProbe) -> list[list[Near]]:
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


def _shown(row: Sequence[Any]) -> ShownFigure:
    label, has_helped, origins, features, version, provenance, sources = row
    learned = json.loads(sources) if sources else []
    return ShownFigure(
        label,
        bool(has_helped),
        tuple(json.loads(origins)),
        struct.unpack(f"={len(features) // 8}d", features),
        version,
        provenance,
        learned[0].get("extractor") if learned else None,
    )


# The table of each kind, and what a row is told by.
_TABLES: dict[type[Carried], tuple[str, str]] = {
    CarriedWording: ("feedback_wordings", "agent, project, fingerprint"),
    CarriedLesson: ("feedback_lessons", "memory_id"),
    CarriedTestimony: ("feedback_evidence", "memory_id, feedback_id"),
    CarriedBelief: ("memory_beliefs", "memory_id"),
    CarriedRefusal: ("refusals", "id"),
    CarriedAudit: ("merge_audits", "entry"),
}
_MOMENTS = frozenset({"at", "first_at", "last_at"})


class SqlCarrying:
    """What a transaction can do with them."""

    connection: SqlConnection

    def carry(self, user: str, rows: Sequence[Carried]) -> None:
        for row in rows:
            table, key = _TABLES[type(row)]
            names = [item.name for item in fields(row)]
            self.connection.execute(
                f"INSERT INTO {table} (user, {', '.join(names)})"  # noqa: S608 - names of ours
                f" VALUES (?{', ?' * len(names)}) ON CONFLICT (user, {key}) DO NOTHING",
                (user, *(_plain(getattr(row, name)) for name in names)),
            )


class SqlCarryingReads:
    """What can be asked of a store about them."""

    _engine: SqlReader

    def carried(self, user: str, kind: type[R]) -> list[R]:
        table, key = _TABLES[kind]
        names = [item.name for item in fields(kind)]
        statement = f"SELECT {', '.join(names)} FROM {table} WHERE user = ? ORDER BY {key}"  # noqa: S608
        with self._engine.read() as connection:
            found = connection.execute(statement, (user,)).fetchall()
        return [kind(**_typed(dict(zip(names, row, strict=True)))) for row in found]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return moment_text(value)
    return int(value) if isinstance(value, bool) else value


def _typed(values: dict[str, Any]) -> dict[str, Any]:
    for name in _MOMENTS & values.keys():
        values[name] = moment(values[name])
    if "is_contested" in values:
        values["is_contested"] = bool(values["is_contested"])
    return values


PREFIX_CHARS_MIN = 4
_REFUSAL_COLUMNS = (
    *("id", "at", "agent", "project", "session_key", "content", "kind", "provenance", "origin"),
    *("confidence", "turn", "quote", "reason", "extractor", "memory_id"),
)
_SELECT_REFUSALS = f"SELECT user, {', '.join(_REFUSAL_COLUMNS)} FROM refusals WHERE user = :user"  # noqa: S608 - names of ours, here and below
_PUT_REFUSAL = (
    f"INSERT INTO refusals (user, {', '.join(_REFUSAL_COLUMNS)})"  # noqa: S608
    f" VALUES (:user, {', '.join(':' + name for name in _REFUSAL_COLUMNS)})"
    " ON CONFLICT (user, id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _REFUSAL_COLUMNS)
)
# By what is kept: its table, what tells one row, and which rows are old.
_OLD: Mapping[Keepsake, tuple[str, str, str]] = {
    "transcripts": (
        "sessions",
        "session",
        # What somebody has yet to learn from stays.
        """(transcript IS NOT NULL OR digest IS NOT NULL) AND ended_at < :before
            AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.state IN ('queued', 'running', 'parked')
                AND j.user = sessions.user AND j.key = sessions.key)
            ORDER BY ended_at, session""",
    ),
    # A session that goes on keeps its timeline whole.
    "events": (
        "events",
        "event",
        # What extraction has seen (hashes alone) keeps what was forgotten from coming back.
        """at < :before AND category <> 'extraction' AND NOT EXISTS (SELECT 1 FROM sessions s
            WHERE s.user = events.user AND s.key = events.session_key AND s.state = 'open')
            ORDER BY at, event""",
    ),
    # What was blamed is what rules are tried on and explained by, for as long as there are any.
    "actions": (
        "actions",
        "action",
        """at < :before AND NOT (blame_count > 0 AND EXISTS (SELECT 1 FROM rules r
            WHERE r.user = actions.user AND r.tool = actions.tool
                AND r.state NOT IN ('expired', 'retired'))) ORDER BY at, action""",
    ),
    "refusals": ("refusals", "id", "at < :before ORDER BY at, id"),
    "feedback": ("feedback_events", "event", "at < :before ORDER BY at, event"),
}


class SqlQualityRows:
    """Refusals, counts, audits and consent out of one connection."""

    connection: SqlConnection

    def refusals(self, user: str, limit: int, offset: int = 0) -> list[Refusal]:
        found = self.connection.execute(
            f"{_SELECT_REFUSALS} AND memory_id IS NULL"
            " ORDER BY at DESC, id DESC LIMIT :limit OFFSET :offset",
            {"user": user, "limit": limit, "offset": offset},
        )
        return [_refusal(row) for row in found]

    def refusal(self, user: str, prefix: str) -> Refusal:
        if len(prefix) < PREFIX_CHARS_MIN or not prefix.isalnum() or not prefix.isascii():
            raise _no_refusal(prefix)
        found = self.connection.execute(
            f"{_SELECT_REFUSALS} AND id >= :low AND id < :high ORDER BY id LIMIT 2",
            {"user": user, "low": prefix, "high": prefix + "~"},
        ).fetchall()
        if not found:
            raise _no_refusal(prefix)
        if len(found) > 1 and found[0][1] != prefix:
            raise InputError(f"several refusals start with {prefix!r}", hint="give more of the id")
        return _refusal(found[0])

    def retrievals(self, user: str, memory_ids: Sequence[str]) -> dict[str, Retrieval]:
        found = self.connection.execute(
            """SELECT m.id, r.count, r.last_at FROM memories m JOIN retrievals r ON r.row = m.row
                WHERE m.user = ? AND m.id IN (SELECT value FROM json_each(?))""",
            (user, as_json(memory_ids)),
        )
        return {memory_id: Retrieval(count, moment(at)) for memory_id, count, at in found}

    def merge_audits(self, user: str) -> dict[int, MergeVerdict]:
        found = self.connection.execute(
            "SELECT entry, verdict FROM merge_audits WHERE user = ?", (user,)
        )
        return dict(found.fetchall())

    def session_counts(self, user: str, since: datetime) -> dict[Scope, int]:
        found = self.connection.execute(
            """SELECT agent, project, count(*) FROM sessions
                WHERE user = ? AND started_at >= ? GROUP BY agent, project""",
            (user, moment_text(since)),
        )
        return {Scope(user, agent, project): count for agent, project, count in found}

    def expirable(self, user: str, what: Keepsake, before: datetime) -> int:
        table, _, old = _OLD[what]
        (count,) = self.connection.execute(
            f"SELECT count(*) FROM {table} WHERE user = :user AND {old.partition(' ORDER')[0]}",  # noqa: S608
            {"user": user, "before": moment_text(before)},
        ).fetchone()
        return int(count)

    def consent(self, user: str) -> Consent | None:
        found = self.connection.execute(
            "SELECT install_date, opt_in, last_prompted_at FROM consents WHERE user = ?", (user,)
        ).fetchone()
        if found is None:
            return None
        installed, opt_in, prompted = found
        return Consent(
            moment(installed),
            None if opt_in is None else bool(opt_in),
            None if prompted is None else moment(prompted),
        )


class SqlQuality(SqlQualityRows, SqlCarrying):
    """What a transaction can do with them."""

    def put_refusals(self, refusals: Sequence[Refusal]) -> None:
        self.connection.executemany(_PUT_REFUSAL, [_refusal_values(one) for one in refusals])

    def mark_restored(self, user: str, refusal_id: str, memory_id: str) -> None:
        self.connection.execute(
            "UPDATE refusals SET memory_id = ? WHERE user = ? AND id = ?",
            (memory_id, user, refusal_id),
        )

    def add_retrievals(self, user: str, counts: Mapping[str, int], at: datetime) -> None:
        # A cross join keeps its order in SQLite: counts first, each memory by its id. Left to
        # choose, it goes over all memories of the user for every count.
        self.connection.execute(
            """INSERT INTO retrievals (row, count, last_at)
                SELECT m.row, CAST(j.value AS INTEGER), :at
                    FROM json_each(:counts) j CROSS JOIN memories m
                    WHERE m.user = :user AND m.id = j.key
                ON CONFLICT (row) DO UPDATE SET count = retrievals.count + excluded.count,
                    last_at = CASE WHEN retrievals.last_at > excluded.last_at
                        THEN retrievals.last_at ELSE excluded.last_at END""",
            {"user": user, "counts": _as_object(counts), "at": moment_text(at)},
        )

    def put_merge_audit(self, user: str, entry: int, verdict: MergeVerdict, at: datetime) -> None:
        self.connection.execute(
            """INSERT INTO merge_audits VALUES (?, ?, ?, ?) ON CONFLICT (user, entry)
                DO UPDATE SET at = excluded.at, verdict = excluded.verdict""",
            (user, entry, moment_text(at), verdict),
        )

    def expire(self, user: str, what: Keepsake, before: datetime, limit: int) -> int:
        table, key, old = _OLD[what]
        chosen = (
            f"user = :user AND {key} IN (SELECT {key} FROM {table}"  # noqa: S608
            f" WHERE user = :user AND {old} LIMIT :limit)"
        )
        # A session stays; only what was said in it goes.
        statement = (
            f"UPDATE sessions SET transcript = NULL, digest = NULL WHERE {chosen}"  # noqa: S608
            if what == "transcripts"
            else f"DELETE FROM {table} WHERE {chosen}"  # noqa: S608
        )
        values = {"user": user, "before": moment_text(before), "limit": limit}
        return self.connection.execute(statement, values).rowcount

    def put_consent(self, user: str, consent: Consent) -> None:
        prompted = consent.last_prompted_at
        self.connection.execute(
            """INSERT INTO consents VALUES (?, ?, ?, ?) ON CONFLICT (user) DO UPDATE SET
                install_date = excluded.install_date, opt_in = excluded.opt_in,
                last_prompted_at = excluded.last_prompted_at""",
            (
                user,
                moment_text(consent.install_date),
                None if consent.opt_in is None else int(consent.opt_in),
                None if prompted is None else moment_text(prompted),
            ),
        )


class SqlQualityReads(SqlGateReads, SqlCarryingReads):
    """What can be asked of a store about them."""

    _engine: SqlReader

    def refusals(self, user: str, limit: int, offset: int = 0) -> list[Refusal]:
        with self._engine.read() as connection:
            return _rows(connection).refusals(user, limit, offset)

    def refusal(self, user: str, prefix: str) -> Refusal:
        with self._engine.read() as connection:
            return _rows(connection).refusal(user, prefix)

    def retrievals(self, user: str, memory_ids: Sequence[str]) -> dict[str, Retrieval]:
        with self._engine.read() as connection:
            return _rows(connection).retrievals(user, memory_ids)

    def merge_audits(self, user: str) -> dict[int, MergeVerdict]:
        with self._engine.read() as connection:
            return _rows(connection).merge_audits(user)

    def merge_entry(self, user: str, entry: int) -> HistoryEntry:
        with self._engine.read() as connection:
            return SqlReads(connection).merge_entry(user, entry)

    def session_counts(self, user: str, since: datetime) -> dict[Scope, int]:
        with self._engine.read() as connection:
            return _rows(connection).session_counts(user, since)

    def expirable(self, user: str, what: Keepsake, before: datetime) -> int:
        with self._engine.read() as connection:
            return _rows(connection).expirable(user, what, before)

    def consent(self, user: str) -> Consent | None:
        with self._engine.read() as connection:
            return _rows(connection).consent(user)


def _rows(connection: SqlConnection) -> SqlQualityRows:
    rows = SqlQualityRows()
    rows.connection = connection
    return rows


def _as_object(counts: Mapping[str, int]) -> str:
    """For `json_each`; ids are letters and digits, and unknown ones are passed over anyway."""
    return json.dumps(dict(counts))


def _refusal_values(refusal: Refusal) -> dict[str, Any]:
    scope = refusal.scope
    own = ("at", "agent", "project")
    values = {name: getattr(refusal, name) for name in _REFUSAL_COLUMNS if name not in own}
    place = {"user": scope.user, "agent": scope.agent, "project": scope.project}
    return {**values, **place, "at": moment_text(refusal.at)}


def _refusal(row: Sequence[Any]) -> Refusal:
    user, *rest = row
    values = dict(zip(_REFUSAL_COLUMNS, rest, strict=True))
    scope = Scope(user, values.pop("agent"), values.pop("project"))
    return Refusal(scope=scope, **{**values, "at": moment(values["at"])})


def _no_refusal(prefix: str) -> NotFound:
    return NotFound(
        f"nothing that was refused has an id starting with {prefix[:40]!r}",
        hint="`meritory extraction` lists the ids; their first characters (4 or more) are enough",
    )
