"""Refusals, retrieval counts, audits, retention and consent in SQL."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from meritory.codec import moment_text
from meritory.errors import InputError, NotFound
from meritory.store.consent import Consent
from meritory.store.reads import SqlReads, as_json
from meritory.store.refusals import Refusal
from meritory.store.session_rows import moment
from meritory.store.sql import Connection, Reader
from meritory.store.sql_carrying import SqlCarrying, SqlCarryingReads
from meritory.store.sql_gate import SqlGateReads
from meritory.store.upkeep import Keepsake, MergeVerdict, Retrieval
from meritory.types import HistoryEntry, Scope

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

    connection: Connection

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

    _engine: Reader

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


def _rows(connection: Connection) -> SqlQualityRows:
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
