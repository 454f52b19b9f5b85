"""Quality: refused candidates, merges, retrieval counts, retention and extra export tables."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, TypeVar

from meritory.domain.errors import NotFound
from meritory.domain.memory import Outcome, Scope
from meritory.domain.quality import (
    Carried,
    CarriedAudit,
    CarriedBelief,
    CarriedLesson,
    CarriedRefusal,
    CarriedTestimony,
    CarriedWording,
    Keepsake,
    MemoryLink,
    MergeVerdict,
    Refusal,
    Retrieval,
    ShownFigure,
    ShownLately,
    WeekOutcome,
)
from meritory.domain.world import moment_text
from meritory.store.sql.candidates import pack, read_candidates, thin
from meritory.store.sql.mapper import RecordTable, SqlConnection, SqlReader, as_json, moment

R = TypeVar("R", bound=Carried)
# The candidates of so many latest sessions stay, however old they are: training reads sessions by
# number, and an age would take them from a user with few sessions.
FULL_SESSIONS = 500
# The weekly counts read at most this many changes.
OUTCOME_ENTRIES = 20_000
_OUTCOMES = """SELECT substr(at, 1, 10) AS day,
        CASE WHEN action = 'merge' THEN 'merged'
            WHEN why LIKE 'supersedes %' THEN 'superseded'
            WHEN other_id IS NOT NULL THEN 'kept_both' ELSE 'stored' END AS outcome,
        count(*)
    FROM memory_history
    WHERE entry > (SELECT max(entry) FROM memory_history) - :entries
        AND user = :user AND at >= :since AND action IN ('create', 'merge')
        AND why NOT LIKE 'merged by %'
    GROUP BY day, outcome ORDER BY day, outcome"""
_LATEST = """SELECT session FROM sessions WHERE user = :user
    ORDER BY started_at DESC, session DESC LIMIT :limit"""
_SHOWN = f"""SELECT c.session, c.memory_id, c.label, m.provenance, m.sources
    FROM ({_LATEST}) s JOIN session_memories c ON c.session = s.session
        LEFT JOIN memories m ON m.user = :user AND m.id = c.memory_id
    WHERE c.was_injected = 1 ORDER BY c.session"""  # noqa: S608 - our names, here and below
_NUMBERS = ("memory_id", "origins", "features", "feature_version")
_TURNS = f"""SELECT (SELECT count(*) FROM ({_LATEST}) s),
    (SELECT count(*) FROM ({_LATEST}) s JOIN injections i ON i.session = s.session)"""  # noqa: S608
_REFUSALS = RecordTable("refusals", Refusal)
# The table of each kind of row, and the key after the user.
_EXTRA_TABLES: Mapping[type[Carried], tuple[RecordTable[Any], str]] = {
    kind: (RecordTable(table, kind, owner=("user",)), key)
    for kind, table, key in (
        (CarriedWording, "feedback_wordings", "agent, project, fingerprint"),
        (CarriedLesson, "feedback_lessons", "memory_id"),
        (CarriedTestimony, "feedback_evidence", "memory_id, feedback_id"),
        (CarriedBelief, "memory_beliefs", "memory_id"),
        (CarriedRefusal, "refusals", "id"),
        (MemoryLink, "memory_links", "older_id, newer_id"),
        (CarriedAudit, "merge_audits", "entry"),
    )
}
_UNPACKED = """SELECT session FROM sessions
    WHERE user = :user AND (state = 'finished' OR started_at < :before)
        AND session NOT IN (SELECT session FROM session_packs WHERE length(content) > 0)
        AND session IN (SELECT session FROM session_memories)
    ORDER BY session LIMIT :limit"""
_THICK = """SELECT s.session FROM sessions s JOIN session_packs p ON p.session = s.session
    WHERE s.user = :user AND p.is_old = 0 AND length(p.content) > 0
        AND s.session NOT IN
        (SELECT session FROM sessions WHERE user = :user
            ORDER BY started_at DESC, session DESC LIMIT :latest)
    ORDER BY s.session LIMIT :limit"""
# By kind of data: the table, its key, and which rows are old.
_OLD: Mapping[Keepsake, tuple[str, str, str]] = {
    "transcripts": (
        "sessions",
        "session",
        # A transcript stays while a job has yet to read it.
        # Prompts are stored as they come, also in a session that never ends.
        """(typed IS NOT NULL
                OR ended_at IS NOT NULL AND (transcript IS NOT NULL OR digest IS NOT NULL))
            AND coalesce(ended_at, started_at) < :before
            AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.state IN ('queued', 'running', 'parked')
                AND j.user = sessions.user AND j.key = sessions.key)
            ORDER BY ended_at, session""",
    ),
    # An open session keeps its whole timeline.
    "events": (
        "events",
        "event",
        # Events of extraction (hashes only) keep forgotten texts from being extracted again.
        """at < :before AND category <> 'extraction' AND NOT EXISTS (SELECT 1 FROM sessions s
            WHERE s.user = events.user AND s.key = events.session_key AND s.state = 'open')
            ORDER BY at, event""",
    ),
    # Rules are replayed on blamed actions and explained by them.
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


class SqlQualityReads(SqlReader):
    """Refusals, counts and audits, for a store and for a transaction."""

    def refusals(
        self, user: str, limit: int, offset: int = 0, project: str | None = None
    ) -> list[Refusal]:
        """Return the refusals that were not restored, of a project or of all, latest first."""
        of_project = "" if project is None else " AND project = :project"
        return self._records(
            _REFUSALS,
            user,
            f"user = :user AND memory_id IS NULL{of_project} ORDER BY at DESC, id DESC"
            " LIMIT :limit OFFSET :offset",
            {"user": user, "limit": limit, "offset": offset, "project": project},
        )

    def refusal(self, user: str, prefix: str) -> Refusal:
        """Return the refusal whose id starts with `prefix`.

        Raise NotFound for none, InputError for several.
        """
        unknown = NotFound(
            f"no refusal has an id that starts with {prefix[:40]!r}",
            hint="`meritory extraction` lists the ids; their first characters (4 or more) are"
            " enough",
        )
        select = f"{_REFUSALS.select} WHERE user = :user"
        return _REFUSALS.decode(self._by_prefix(select, user, prefix, unknown))

    def retrievals(self, user: str, memory_ids: Sequence[str]) -> dict[str, Retrieval]:
        """Return the retrieval counts of memories, by memory id."""
        rows = self._all(
            user,
            """SELECT m.id, r.count, r.last_at FROM memories m JOIN retrievals r ON r.row = m.row
                WHERE m.user = ? AND m.id IN (SELECT value FROM json_each(?))""",
            (user, as_json(memory_ids)),
        )
        return {memory_id: Retrieval(count, moment(at)) for memory_id, count, at in rows}

    def merge_audits(self, user: str) -> dict[int, MergeVerdict]:
        """Return the verdicts of people on merges, by history entry."""
        return dict(
            self._all(user, "SELECT entry, verdict FROM merge_audits WHERE user = ?", (user,))
        )

    def session_counts(self, user: str, since: datetime) -> dict[Scope, int]:
        """Return how many sessions began in each scope since a moment."""
        rows = self._all(
            user,
            """SELECT agent, project, count(*) FROM sessions
                WHERE user = ? AND started_at >= ? GROUP BY agent, project""",
            (user, moment_text(since)),
        )
        return {Scope(user, agent, project): count for agent, project, count in rows}

    def expirable(self, user: str, what: Keepsake, before: datetime) -> int:
        """Return how many rows an `expire` without limit would erase."""
        table, _, old = _OLD[what]
        ((count,),) = self._all(
            user,
            f"SELECT count(*) FROM {table} WHERE user = :user AND {old.partition(' ORDER')[0]}",  # noqa: S608
            {"user": user, "before": moment_text(before)},
        )
        return int(count)

    def gate_outcomes(self, user: str, since: datetime) -> list[WeekOutcome]:
        """Return the outcomes of writes per week, from the latest history entries."""
        values = {"user": user, "since": moment_text(since), "entries": OUTCOME_ENTRIES}
        weeks: Counter[tuple[str, Outcome]] = Counter()
        for day, outcome, count in self._all(user, _OUTCOMES, values):
            at = date.fromisoformat(day)
            weeks[(at - timedelta(days=at.weekday())).isoformat(), outcome] += count
        return [WeekOutcome(*key, count) for key, count in weeks.items()]

    def shown_lately(self, user: str, session_limit: int) -> ShownLately:
        """Return the memories that the latest sessions were shown."""
        values = {"user": user, "limit": session_limit}
        with self._reading(user) as connection:
            sessions, turns = connection.execute(_TURNS, values).fetchone()
            rows = connection.execute(_SHOWN, values).fetchall()
            numbers = {
                (session, memory_id): of_ranking
                for session in dict.fromkeys(row[0] for row in rows)
                for memory_id, *of_ranking in read_candidates(connection, session, _NUMBERS)
            }
        figures = []
        for session, memory_id, label, provenance, sources in rows:
            origins, features, version = numbers[session, memory_id]
            learned = json.loads(sources) if sources else []
            figures.append(
                ShownFigure(
                    label,
                    tuple(json.loads(origins)),
                    struct.unpack(f"={len(features) // 8}d", features),
                    version,
                    provenance,
                    learned[0].get("extractor") if learned else None,
                )
            )
        return ShownLately(sessions, turns, figures)

    def thinned_count(self, user: str, key: str) -> int:
        """Return how many candidates of a session are no longer recorded, because it is old."""
        row = self._one(
            user,
            """SELECT p.thinned_count FROM session_packs p JOIN sessions s ON s.session = p.session
                WHERE s.user = ? AND s.key = ?""",
            (user, key),
        )
        return int(row[0]) if row else 0

    def carried(self, user: str, kind: type[R]) -> list[R]:
        """Return all export rows of one kind, in a fixed order."""
        table, key = _EXTRA_TABLES[kind]
        return self._records(table, user, f"user = ? ORDER BY {key}", (user,))


class SqlQualityWrites(SqlQualityReads):
    """Changes of refusals, counts and audits."""

    connection: SqlConnection

    def put_refusals(self, refusals: Sequence[Refusal]) -> None:
        """Store refusals in place of those with their ids."""
        self.connection.executemany(
            _REFUSALS.upsert("user", "id"), [_REFUSALS.values(refusal) for refusal in refusals]
        )

    def mark_restored(self, user: str, refusal_id: str, memory_id: str) -> None:
        """Record the memory that was made from a refusal."""
        self.connection.execute(
            "UPDATE refusals SET memory_id = ? WHERE user = ? AND id = ?",
            (memory_id, user, refusal_id),
        )

    def add_retrievals(self, user: str, counts: Mapping[str, int], at: datetime) -> None:
        """Add to the retrieval counts of memories; ignore unknown ids."""
        # A cross join keeps its order in SQLite: counts first, each memory by its id. Otherwise
        # SQLite would scan all memories of the user for every count.
        self.connection.execute(
            """INSERT INTO retrievals (row, count, last_at)
                SELECT m.row, CAST(j.value AS INTEGER), :at
                    FROM json_each(:counts) j CROSS JOIN memories m
                    WHERE m.user = :user AND m.id = j.key
                ON CONFLICT (row) DO UPDATE SET count = retrievals.count + excluded.count,
                    last_at = CASE WHEN retrievals.last_at > excluded.last_at
                        THEN retrievals.last_at ELSE excluded.last_at END""",
            {"user": user, "counts": json.dumps(dict(counts)), "at": moment_text(at)},
        )

    def put_merge_audit(self, user: str, entry: int, verdict: MergeVerdict, at: datetime) -> None:
        """Store the verdict of a person on a merge in place of the former one."""
        self.connection.execute(
            """INSERT INTO merge_audits VALUES (?, ?, ?, ?) ON CONFLICT (user, entry)
                DO UPDATE SET at = excluded.at, verdict = excluded.verdict""",
            (user, entry, moment_text(at), verdict),
        )

    def expire(self, user: str, what: Keepsake, before: datetime, limit: int) -> int:
        """Erase up to `limit` older rows, oldest first, and return their number."""
        table, key, old = _OLD[what]
        chosen = (
            f"user = :user AND {key} IN (SELECT {key} FROM {table}"  # noqa: S608
            f" WHERE user = :user AND {old} LIMIT :limit)"
        )
        # A session stays; only its transcript goes.
        statement = (
            f"UPDATE sessions SET transcript = NULL, digest = NULL, typed = NULL"  # noqa: S608
            f" WHERE {chosen}"
            if what == "transcripts"
            else f"DELETE FROM {table} WHERE {chosen}"  # noqa: S608
        )
        values = {"user": user, "before": moment_text(before), "limit": limit}
        return self.connection.execute(statement, values).rowcount

    def pack_candidates(self, user: str, before: datetime, limit: int) -> int:
        """Pack the candidates of up to `limit` sessions; return the number of sessions.

        They are finished, or began before a moment.
        """
        sessions = self.connection.execute(
            _UNPACKED, {"user": user, "before": moment_text(before), "limit": limit}
        ).fetchall()
        for (session,) in sessions:
            pack(self.connection, session)
        return len(sessions)

    def thin_candidates(self, user: str, limit: int) -> int:
        """Thin up to `limit` packed sessions that are not among the latest; return their number."""
        sessions = self.connection.execute(
            _THICK, {"user": user, "limit": limit, "latest": FULL_SESSIONS}
        ).fetchall()
        for (session,) in sessions:
            thin(self.connection, session)
        return len(sessions)

    def carry(self, user: str, rows: Sequence[Carried]) -> None:
        """Insert export rows; rows that exist stay unchanged."""
        for row in rows:
            table, key = _EXTRA_TABLES[type(row)]
            self.connection.execute(
                f"{table.insert} ON CONFLICT (user, {key}) DO NOTHING",
                table.values(row, user=user),
            )
