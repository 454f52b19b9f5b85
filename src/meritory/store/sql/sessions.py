"""Sessions: rankings, injections, ratings, verdicts, labels and the timeline."""

from __future__ import annotations

import functools
import json
import math
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from meritory.domain.errors import NotFound
from meritory.domain.memory import Scope
from meritory.domain.session import (
    CHANNELS,
    NO_EFFECT_LABEL,
    Candidate,
    Event,
    Judged,
    Labelled,
    Proof,
    Rating,
    SessionMemory,
    SessionRecord,
    SessionScore,
    ShownRow,
    Spending,
    Turn,
)
from meritory.domain.world import moment_text
from meritory.rank.usage_history import UsedSessions
from meritory.store.search.cache import UsageHistory
from meritory.store.sql import candidates as packs
from meritory.store.sql.mapper import (
    DOUBLES,
    ColumnCodec,
    RecordTable,
    SqlConnection,
    SqlReader,
    decode_transcript,
    encode_transcript,
    moment,
)

EVENT_LIMIT = 50_000
_EVENTS_PER_TIMELINE = 2_000
# Older evidence has faded, and a memory that is always shown would cost more with every session.
PROOFS_PER_MEMORY = 100
_FTS_ONLY_RANK = 0


# There are few combinations of searches, and each is in many rows.
_ORIGINS = ColumnCodec(
    functools.lru_cache(256)(json.dumps),
    functools.lru_cache(256)(lambda text: tuple(json.loads(text))),
)
SESSIONS = RecordTable("sessions", SessionRecord)
EVENTS = RecordTable("events", Event, owner=("user",))
_SPENDING = RecordTable("spending", Spending, owner=("user",))
_RATINGS = RecordTable("rating_events", Rating, owner=("session",))
_SCORES = RecordTable("session_scores", SessionScore, owner=("session",))
_SHOWN = RecordTable("session_memories", ShownRow)
_CANDIDATES = RecordTable(
    "session_memories",
    Candidate,
    owner=("session",),
    codecs={"origins": _ORIGINS, "features": DOUBLES},
)
_OUTCOMES = RecordTable("session_memories", SessionMemory, omit=("candidate",))
_COLUMNS = (*_CANDIDATES.columns, *_OUTCOMES.columns)
_NUMBER = "SELECT session FROM sessions WHERE user = ? AND key = ?"
_ADD_CANDIDATE = f"{_CANDIDATES.insert_rows} ON CONFLICT (session, memory_id) DO NOTHING"
# A later ranking replaces the numbers. It does not undo an injection or an exploration.
_FIXED = {
    "source": """CASE WHEN session_memories.source = 'exploration'
        THEN session_memories.source ELSE excluded.source END""",
    "was_injected": """CASE WHEN session_memories.was_injected = 1
        THEN 1 ELSE excluded.was_injected END""",
    "propensity": """CASE WHEN session_memories.was_injected = 1
        THEN session_memories.propensity ELSE excluded.propensity END""",
}
_REPLACED = ", ".join(
    f"{name} = {_FIXED.get(name, 'excluded.' + name)}"
    for name in _CANDIDATES.columns
    if name != "memory_id"
)
_PUT_CANDIDATE = (
    f"{_CANDIDATES.insert_rows} ON CONFLICT (session, memory_id) DO UPDATE SET {_REPLACED}"
)
_PUT_HIT = """INSERT INTO session_memories (session, memory_id, source, origins, final_score, rank,
        was_injected, propensity, feature_version, features, fts_hit_count)
    VALUES (?, ?, 'fts_only', '["text"]', 0.0, ?, 0, 1.0, 0, x'', 1)
    ON CONFLICT (session, memory_id) DO UPDATE
        SET fts_hit_count = session_memories.fts_hit_count + 1"""
OF_SESSION = "session = (SELECT session FROM sessions WHERE user = ? AND key = ?)"


def no_session(key: str) -> NotFound:
    """Return the error for a session that was never started."""
    return NotFound(f"no session {key[:80]!r}", hint="start it with session-start")


class SqlOneSession(SqlReader):
    """One session, for a store and for a transaction."""

    # Of a transaction.
    connection: SqlConnection

    def session(self, user: str, key: str) -> SessionRecord:
        """Return one session; raise NotFound if it was never started."""
        session = self.find_session(user, key)
        if session is None:
            raise no_session(key)
        return session

    def find_session(self, user: str, key: str) -> SessionRecord | None:
        """Return one session, None if it was never started."""
        return self._record(SESSIONS, user, "user = ? AND key = ?", (user, key))

    def has_event(self, user: str, session_key: str, name: str) -> bool:
        """Return whether the timeline of a session has an event of this name."""
        found = self._one(
            user,
            "SELECT 1 FROM events WHERE user = ? AND session_key = ? AND name = ? LIMIT 1",
            (user, session_key, name),
        )
        return found is not None

    def _session_column(self, user: str, key: str, column: str) -> Any:
        row = self._one(
            user,
            f"SELECT {column} FROM sessions WHERE user = ? AND key = ?",  # noqa: S608 - our names
            (user, key),
        )
        if row is None:
            raise no_session(key)
        return row[0]

    def _session(self, user: str, key: str) -> int:
        """Return the number of a session that is about to change; unpack its candidates."""
        session = int(self._session_column(user, key, "session"))
        packs.unpack(self.connection, session)
        return session


class SqlSessionWrites(SqlOneSession):
    """Changes of sessions, the timeline and the spending log."""

    connection: SqlConnection

    def log_events(self, user: str, events: Sequence[Event]) -> None:
        """Add to the timeline; drop the oldest entries above the limit."""
        if not events:
            return
        rows = [EVENTS.values(event, user=user) for event in events]
        self.connection.executemany(EVENTS.insert, rows)
        self.connection.execute(
            "DELETE FROM events WHERE event <= (SELECT max(event) FROM events) - ?",
            (EVENT_LIMIT,),
        )

    def add_spending(self, user: str, spending: Spending) -> None:
        """Record the cost of a call of a language model."""
        self.connection.execute(_SPENDING.insert, _SPENDING.values(spending, user=user))

    # -- sessions -------------------------------------------------------------------------

    def open_session(self, session: SessionRecord) -> bool:
        """Store a new session; return False and change nothing if it exists."""
        added = self.connection.execute(
            f"{SESSIONS.insert} ON CONFLICT (user, key) DO NOTHING", SESSIONS.values(session)
        )
        return added.rowcount == 1

    def update_session(self, session: SessionRecord) -> None:
        """Replace all fields of a session but its user and key."""
        updated = self.connection.execute(SESSIONS.update("user", "key"), SESSIONS.values(session))
        if updated.rowcount != 1:
            raise no_session(session.key)

    # -- candidates and injections --------------------------------------------------------

    def put_candidates(self, user: str, key: str, candidates: Sequence[Candidate]) -> None:
        """Store a ranking in place of an earlier one.

        Hits, ratings, labels, injections and explorations stay.
        """
        session = self._session(user, key)
        # There is one ranking: a candidate of an earlier one that is not in this one has no rank.
        self.connection.execute(
            """UPDATE session_memories SET rank = 0, baseline_rank = NULL, predictor_rank = NULL
                WHERE session = ?""",
            (session,),
        )
        self._write_candidates(_PUT_CANDIDATE, session, candidates)

    def add_candidates(self, user: str, key: str, candidates: Sequence[Candidate]) -> None:
        """Store the candidates that are not stored yet; leave the others unchanged."""
        self._write_candidates(_ADD_CANDIDATE, self._session(user, key), candidates)

    def _write_candidates(
        self, statement: str, session: int, candidates: Sequence[Candidate]
    ) -> None:
        # In the order of the table's key pages fill one after the other, so fewer are written.
        ordered = sorted(candidates, key=lambda candidate: candidate.memory_id)
        rows = [(session, *_CANDIDATES.row(candidate)) for candidate in ordered]
        self.connection.executemany(statement, rows)

    def add_hits(self, user: str, key: str, memory_ids: Sequence[str]) -> None:
        """Count full-text hits; add a memory outside the candidates as `fts_only`."""
        session = self._session(user, key)
        self.connection.executemany(
            _PUT_HIT, [(session, memory_id, _FTS_ONLY_RANK) for memory_id in memory_ids]
        )

    def mark_harmful(self, user: str, key: str, memory_ids: Sequence[str]) -> None:
        """Keep memories out of the further injections of this session."""
        session = self._session(user, key)
        self.connection.executemany(
            "UPDATE session_memories SET is_harmful = 1 WHERE session = ? AND memory_id = ?",
            [(session, memory_id) for memory_id in memory_ids],
        )

    # -- ratings and transcripts ----------------------------------------------------------

    def add_ratings(self, user: str, key: str, ratings: Sequence[Rating]) -> None:
        """Store ratings and update mean and count: one per turn, the strongest channel's."""
        session = self._session(user, key)
        self.connection.executemany(
            _RATINGS.insert, [_RATINGS.values(rating, session=session) for rating in ratings]
        )
        for memory_id in dict.fromkeys(rating.memory_id for rating in ratings):
            # One rating per turn: that of the strongest channel, and of those the last.
            by_turn: dict[int, tuple[int, float]] = {}
            for turn, channel, score in self._all(
                user,
                """SELECT turn, channel, score FROM rating_events
                    WHERE session = ? AND memory_id = ? ORDER BY event""",
                (session, memory_id),
            ):
                strength = CHANNELS.index(channel)
                if turn not in by_turn or strength <= by_turn[turn][0]:
                    by_turn[turn] = (strength, score)
            scores = [score for _, score in by_turn.values()]
            self.connection.execute(
                """UPDATE session_memories SET agent_relevance_score = ?, agent_feedback_count = ?
                    WHERE session = ? AND memory_id = ?""",
                (sum(scores) / len(scores), len(scores), session, memory_id),
            )

    def put_transcript(self, user: str, key: str, turns: Sequence[Turn]) -> None:
        """Store the transcript of a session."""
        self._set(user, key, "transcript", encode_transcript(turns))

    def add_typed(self, user: str, key: str, words: str, limit_chars: int) -> None:
        """Add lines that the user typed; keep the latest within the limit."""
        known = self._session_column(user, key, "typed")
        text = f"{known}\n{words}" if known else words
        kept = text if len(text) <= limit_chars else text[-limit_chars:].partition("\n")[2]
        self._set(user, key, "typed", kept)

    def put_digest(self, user: str, key: str, data: bytes) -> None:
        """Store the encoded digest of a session in place of an earlier one."""
        self._set(user, key, "digest", data)

    def put_used(self, user: str, key: str, used: Mapping[str, float]) -> None:
        """Store the usefulness that a program reported."""
        self._set(user, key, "used", json.dumps(dict(used)))

    def _set(self, user: str, key: str, column: str, value: str | bytes) -> None:
        self.connection.execute(
            f"UPDATE sessions SET {column} = ? WHERE session = ?",  # noqa: S608 - our names
            (value, self._session(user, key)),
        )

    # -- verdicts and labels --------------------------------------------------------------

    def put_verdict(
        self, user: str, key: str, score: SessionScore, judged: Sequence[Judged]
    ) -> None:
        """Store the verdict of the judge in place of an earlier one."""
        session = self._session(user, key)
        self.connection.execute(_SCORES.upsert("session"), _SCORES.values(score, session=session))
        self.connection.execute(
            """UPDATE session_memories SET relevance_score = NULL, is_missing = 0
                WHERE session = ?""",
            (session,),
        )
        self.connection.executemany(
            """UPDATE session_memories SET relevance_score = ?, is_missing = ?
                WHERE session = ? AND memory_id = ?""",
            [
                (item.relevance_score, int(item.is_missing), session, item.memory_id)
                for item in judged
            ],
        )

    def put_labels(
        self, user: str, key: str, labels: Sequence[Labelled], uses: Mapping[str, float]
    ) -> None:
        """Store labels and the gain of each memory that helped, in place of earlier ones.

        The verdict is updated with the number of injected memories that helped.
        """
        session = self._session(user, key)
        self.connection.executemany(
            """UPDATE session_memories SET label = ?, label_parts = ?
                WHERE session = ? AND memory_id = ?""",
            [
                (item.label, json.dumps(dict(item.parts)), session, item.memory_id)
                for item in labels
            ],
        )
        self.connection.execute("DELETE FROM uses WHERE session = ?", (session,))
        # Through `memories`: the id of a purged memory must not come back.
        self.connection.executemany(
            """INSERT INTO uses SELECT ?, id, ? FROM memories WHERE user = ? AND id = ?""",
            [(session, gain, user, memory_id) for memory_id, gain in uses.items()],
        )
        self.connection.execute(
            """UPDATE session_scores SET memories_used = (SELECT count(*) FROM session_memories c
                WHERE c.session = ? AND c.was_injected = 1 AND c.label > ?) WHERE session = ?""",
            (session, NO_EFFECT_LABEL, session),
        )
        self.connection.execute(
            "UPDATE sessions SET learned = ? WHERE session = ?",
            (self._next_lesson(user), session),
        )

    def _next_lesson(self, user: str) -> int:
        """Return the number of this labelling; cached usage histories read all later ones."""
        (number,) = self.connection.execute(
            "UPDATE meta SET value = CAST(value AS INTEGER) + 1 WHERE key = 'learned'"
            " RETURNING value"
        ).fetchone()
        return int(number)

    def set_usefulness(self, user: str, usefulness: Mapping[str, float]) -> None:
        """Set the usefulness of memories."""
        self.connection.executemany(
            """UPDATE memory_stats SET usefulness = ?
                WHERE row = (SELECT row FROM memories WHERE user = ? AND id = ?)""",
            [(value, user, memory_id) for memory_id, value in usefulness.items()],
        )


class SqlSessionReads(SqlOneSession):
    """Sessions and all that was recorded of them."""

    def __init__(self) -> None:
        self._histories: dict[str, UsageHistory] = {}
        self._history_lock = threading.Lock()
        # By user the number of the last labelling and the counts that were made after it.
        self._judged: dict[str, tuple[int | None, tuple[int, int]]] = {}

    # -- sessions -------------------------------------------------------------------------

    def session_of_code(self, user: str, code: str) -> SessionRecord:
        """Return the session of the injection with this code; raise NotFound otherwise."""
        # Starts at the latest injection, which is almost always the right one: no index needed.
        row = self._one(
            user,
            """SELECT s.key FROM injections i CROSS JOIN sessions s ON s.session = i.session
                WHERE i.code = ? AND s.user = ? ORDER BY i.session DESC LIMIT 1""",
            (code, user),
        )
        if row is None:
            raise NotFound("no injection has this code", hint="copy it as it stands in the notes")
        return self.session(user, row[0])

    def sessions(
        self, user: str, limit: int, *, project: str | None = None, before: str | None = None
    ) -> list[SessionRecord]:
        """Return sessions, latest first; `before` is the last key of the page before."""
        return self._records(
            SESSIONS,
            user,
            """user = :user AND (:project IS NULL OR project = :project)
                AND (:before IS NULL OR (started_at, session) <
                    (SELECT started_at, session FROM sessions WHERE user = :user AND key = :before))
                ORDER BY started_at DESC, session DESC LIMIT :limit""",
            {"user": user, "project": project, "before": before, "limit": limit},
        )

    def previous_session(self, scope: Scope, before: datetime) -> SessionRecord | None:
        """Return the last session of exactly this scope with a summary that began before."""
        return self._record(
            SESSIONS,
            scope.user,
            """user = ? AND project IS ? AND agent IS ? AND started_at < ? AND summary <> ''
                ORDER BY started_at DESC, session DESC LIMIT 1""",
            (scope.user, scope.project, scope.agent, moment_text(before)),
        )

    def session_memories(self, user: str, key: str) -> list[SessionMemory]:
        """Return every candidate of a session by rank."""
        with self._reading(user) as connection:
            found = connection.execute(_NUMBER, (user, key)).fetchone()
            rows = [] if found is None else packs.read_candidates(connection, found[0], _COLUMNS)
        split = len(_CANDIDATES.columns)
        records = [
            _OUTCOMES.decode(row[split:], candidate=_CANDIDATES.decode(row[:split])) for row in rows
        ]
        return sorted(
            records, key=lambda one: (one.candidate.rank or math.inf, one.candidate.memory_id)
        )

    def shown(self, user: str, key: str) -> list[ShownRow]:
        """Return the memories that a session was shown, by handle."""
        where = f"{OF_SESSION} AND handle IS NOT NULL ORDER BY CAST(substr(handle, 2) AS INTEGER)"
        return self._records(_SHOWN, user, where, (user, key))

    def ratings(self, user: str, key: str) -> list[Rating]:
        """Return every rating of a session, oldest first."""
        return self._records(_RATINGS, user, f"{OF_SESSION} ORDER BY event", (user, key))

    def transcript(self, user: str, key: str) -> tuple[Turn, ...]:
        """Return the transcript of a session; empty if there is none."""
        return decode_transcript(self._session_column(user, key, "transcript"))

    def typed(self, user: str, key: str) -> str | None:
        """Return the lines that the user typed; None if no hook reported a prompt."""
        text = self._session_column(user, key, "typed")
        return None if text is None else str(text)

    def digest(self, user: str, key: str) -> bytes | None:
        """Return the encoded digest of a session; None if there is none."""
        blob = self._session_column(user, key, "digest")
        return None if blob is None else bytes(blob)

    def used(self, user: str, key: str) -> dict[str, float] | None:
        """Return the usefulness that a program reported; None if it reported nothing."""
        text = self._session_column(user, key, "used")
        return None if text is None else dict(json.loads(text))

    def session_score(self, user: str, key: str) -> SessionScore | None:
        """Return the verdict of the judge; None before there is one."""
        return self._record(_SCORES, user, OF_SESSION, (user, key))

    def sessions_shown(self, user: str, memory_id: str, since: datetime) -> list[str]:
        """Return keys of ended sessions that were first shown a memory since a moment."""
        rows = self._all(
            user,
            """SELECT s.key FROM session_memories c JOIN sessions s ON s.session = c.session
                JOIN injections i ON i.session = c.session AND i.number = c.injection
                WHERE c.memory_id = ? AND c.was_injected = 1 AND s.user = ?
                    AND s.state <> 'open' AND i.at >= ?
                ORDER BY s.session""",
            (memory_id, user, moment_text(since)),
        )
        return [key for (key,) in rows]

    # -- learning -------------------------------------------------------------------------

    def drop_history(self, user: str) -> None:
        """Forget the cached usage history, after a session was erased."""
        with self._history_lock:
            self._histories.pop(user, None)
        self._judged.pop(user, None)

    def past(self, scope: Scope, embedder: str | None) -> tuple[UsedSessions, int]:
        """Return which memories helped in which sessions, and the number of this project."""
        with self._reading(scope.user) as connection, self._history_lock:
            history = self._histories.setdefault(scope.user, UsageHistory(scope.user))
            past = history.caught_up(connection, embedder)
            return past, history.project_number(scope.project)

    def proofs(self, user: str, memory_ids: Sequence[str]) -> dict[str, list[Proof]]:
        """Return the evidence of the latest labelled sessions by memory, oldest first."""
        proofs: dict[str, list[Proof]] = {}
        for memory_id in memory_ids:
            rows = self._all(
                user,
                """SELECT s.key, s.started_at,
                        CAST(json_extract(c.label_parts, '$.agent') AS DOUBLE PRECISION),
                        c.label, json_extract(c.label_parts, '$.rule') = 'known'
                    FROM session_memories c JOIN sessions s ON s.session = c.session
                    WHERE c.memory_id = ? AND c.was_injected = 1 AND c.label IS NOT NULL
                        AND s.user = ?
                    ORDER BY c.session DESC LIMIT ?""",
                (memory_id, user, PROOFS_PER_MEMORY),
            )
            if rows:
                proofs[memory_id] = sorted(
                    (
                        Proof(key, moment(at), agent, label, bool(is_known))
                        for key, at, agent, label, is_known in rows
                    ),
                    key=lambda proof: proof.at,
                )
        return proofs

    def judged_counts(self, user: str) -> tuple[int, int]:
        """Return how many judged sessions count, and how many do not; cached."""
        learned = self._last_lesson(user)
        cached = self._judged.get(user)
        if cached is None or cached[0] != learned:
            counts = self._one(
                user,
                """SELECT count(*), count(r.excluded) FROM session_scores r
                    JOIN sessions s ON s.session = r.session WHERE s.user = ?""",
                (user,),
            )
            total, excluded = counts or (0, 0)
            cached = self._judged[user] = (learned, (total - excluded, excluded))
        return cached[1]

    def _last_lesson(self, user: str) -> int | None:
        """Return the number of the last labelling."""
        row = self._one(user, "SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'learned'", ())
        return int(row[0]) if row else None

    # -- timeline and totals --------------------------------------------------------------

    def events(
        self,
        user: str,
        *,
        session_key: str | None = None,
        memory_id: str | None = None,
        request_id: str | None = None,
    ) -> list[Event]:
        """Return the timeline of a session, a memory or a request, oldest first."""
        given = {"session_key": session_key, "request_id": request_id, "memory_id": memory_id}
        column = next((name for name, value in given.items() if value is not None), "memory_id")
        where = f"user = ? AND {column} = ? ORDER BY event DESC LIMIT ?"
        values = (user, given[column], _EVENTS_PER_TIMELINE)
        return self._records(EVENTS, user, where, values)[::-1]

    def spending(self, user: str, since: datetime) -> list[Spending]:
        """Return the calls of language models since a moment, oldest first."""
        where = "user = ? AND at >= ? ORDER BY at, spend"
        return self._records(_SPENDING, user, where, (user, moment_text(since)))

    def session_totals(self, user: str) -> dict[str, int]:
        """Return counts of sessions by state, of judged and excluded ones, and of ratings."""
        totals = {
            f"sessions.{state}": count
            for state, count in self._all(
                user, "SELECT state, count(*) FROM sessions WHERE user = ? GROUP BY state", (user,)
            )
        }
        for name, source in (
            ("sessions.judged", "session_scores WHERE"),
            ("sessions.excluded", "session_scores WHERE excluded IS NOT NULL AND"),
            ("ratings", "rating_events WHERE"),
        ):
            ((totals[name],),) = self._all(
                user,
                f"SELECT count(*) FROM {source} session IN"  # noqa: S608 - our names
                " (SELECT session FROM sessions WHERE user = ?)",
                (user,),
            )
        return totals

    def harnesses(self, user: str) -> list[tuple[str, int, datetime]]:
        """Return every harness with its number of sessions and the start of the last one."""
        rows = self._all(
            user,
            """SELECT harness, count(*), max(started_at) FROM sessions
                WHERE user = ? AND harness IS NOT NULL GROUP BY harness ORDER BY harness""",
            (user,),
        )
        return [(name, count, moment(last)) for name, count, last in rows]
