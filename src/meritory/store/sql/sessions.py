"""The timeline and the books of a store; each verb runs inside the transaction."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from meritory.domain.codec import moment_text
from meritory.domain.errors import NotFound
from meritory.domain.session import (
    CHANNELS,
    Candidate,
    Event,
    Injection,
    Judged,
    Labelled,
    Rating,
    SessionRecord,
    SessionScore,
    Spending,
    Turn,
)
from meritory.store.sql.rows import SELECT_SESSION, SqlConnection, decode_session

EVENT_LIMIT = 50_000


class SqlEvents:
    """What a transaction writes down for people to see."""

    connection: SqlConnection

    def log_events(self, user: str, events: Sequence[Event]) -> None:
        if not events:
            return
        self.connection.executemany(
            """INSERT INTO events (user, at, category, name, session_key, memory_id, request_id,
                details) VALUES (?, ?, ?, ?, ?, ?, ?, ?)""",
            event_rows(user, events),
        )
        self.connection.execute(
            "DELETE FROM events WHERE event <= (SELECT max(event) FROM events) - ?",
            (EVENT_LIMIT,),
        )

    def add_spending(self, user: str, spending: Spending) -> None:
        self.connection.execute(
            """INSERT INTO spending (user, at, purpose, model, input_tokens, output_tokens, cost)
                VALUES (?, ?, ?, ?, ?, ?, ?)""",
            (
                user,
                moment_text(spending.at),
                spending.purpose,
                spending.model,
                spending.input_tokens,
                spending.output_tokens,
                spending.cost,
            ),
        )


def event_rows(user: str, events: Sequence[Event]) -> list[tuple[str | None, ...]]:
    """Events as their table has them, but for the number."""
    return [
        (
            user,
            moment_text(event.at),
            event.category,
            event.name,
            event.session_key,
            event.memory_id,
            event.request_id,
            json.dumps(dict(event.details), ensure_ascii=False, default=str),
        )
        for event in events
    ]


_FTS_ONLY_RANK = 0

# What was served may be served anew; what happened since is never touched here.
_ADD_CANDIDATE = """INSERT INTO session_memories (session, memory_id, source, origins,
        effective_score, composite_score, predictor_score, final_score, rank, baseline_rank,
        predictor_rank, was_injected, propensity, feature_version, features)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (session, memory_id) DO """
_PUT_CANDIDATE = f"""{_ADD_CANDIDATE} UPDATE SET
        source = CASE WHEN session_memories.source = 'exploration'
            THEN session_memories.source ELSE excluded.source END,
        origins = excluded.origins, effective_score = excluded.effective_score,
        composite_score = excluded.composite_score, predictor_score = excluded.predictor_score,
        final_score = excluded.final_score, rank = excluded.rank,
        baseline_rank = excluded.baseline_rank, predictor_rank = excluded.predictor_rank,
        was_injected = CASE WHEN session_memories.was_injected = 1
            THEN 1 ELSE excluded.was_injected END,
        propensity = CASE WHEN session_memories.was_injected = 1
            THEN session_memories.propensity ELSE excluded.propensity END,
        feature_version = excluded.feature_version,
        features = excluded.features"""
_PUT_HIT = """INSERT INTO session_memories (session, memory_id, source, origins, final_score, rank,
        was_injected, propensity, feature_version, features, fts_hit_count)
    VALUES (?, ?, 'fts_only', '["text"]', 0.0, ?, 0, 1.0, 0, x'', 1)
    ON CONFLICT (session, memory_id) DO UPDATE
        SET fts_hit_count = session_memories.fts_hit_count + 1"""
_PUT_SHOWN = """UPDATE session_memories SET was_injected = 1, in_context = 1, handle = ?,
        injection = coalesce(injection, ?),
        source = CASE WHEN source = 'fts_only' THEN 'effective' ELSE source END
    WHERE session = ? AND memory_id = ?"""
_PUT_SCORE = """INSERT INTO session_scores VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (session) DO UPDATE SET judge = excluded.judge, score = excluded.score,
        confidence = excluded.confidence, memories_recalled = excluded.memories_recalled,
        memories_used = excluded.memories_used,
        novel_context_count = excluded.novel_context_count,
        missing_topics = excluded.missing_topics,
        continuity_reasoning = excluded.continuity_reasoning, raw = excluded.raw,
        excluded = excluded.excluded, at = excluded.at"""
_SESSION_COLUMNS = (
    *("agent", "project", "harness", "cwd", "state", "context", "has_prompt", "embedder"),
    *("context_vector", "gap_hours", "alpha", "started_at", "ended_at", "prompt_count"),
    *("injection_count", "handle_count", "is_explained", "summary", "scorer", "model_version"),
)


class SqlSessions(SqlEvents):
    """What a transaction can do with sessions."""

    connection: SqlConnection

    # -- sessions -------------------------------------------------------------------------

    def open_session(self, session: SessionRecord) -> bool:
        columns = ("user", "key", *_SESSION_COLUMNS)
        done = self.connection.execute(
            f"INSERT INTO sessions ({', '.join(columns)})"  # noqa: S608 - names of ours
            f" VALUES ({', '.join(':' + name for name in columns)})"
            " ON CONFLICT (user, key) DO NOTHING",
            _session_values(session),
        )
        return done.rowcount == 1

    def session_of(self, user: str, key: str) -> SessionRecord:
        found = self.connection.execute(
            f"{SELECT_SESSION} WHERE user = ? AND key = ?", (user, key)
        ).fetchone()
        if found is None:
            raise no_session(key)
        return decode_session(found)

    def update_session(self, session: SessionRecord) -> None:
        done = self.connection.execute(
            f"UPDATE sessions SET {', '.join(f'{name} = :{name}' for name in _SESSION_COLUMNS)}"  # noqa: S608
            " WHERE user = :user AND key = :key",
            _session_values(session),
        )
        if done.rowcount != 1:
            raise no_session(session.key)

    def _session(self, user: str, key: str) -> int:
        found = self.connection.execute(
            "SELECT session FROM sessions WHERE user = ? AND key = ?", (user, key)
        ).fetchone()
        if found is None:
            raise no_session(key)
        return int(found[0])

    # -- what is served and shown ---------------------------------------------------------

    def put_candidates(self, user: str, key: str, candidates: Sequence[Candidate]) -> None:
        session = self._session(user, key)
        # There is one ranking: what an earlier one held and this one does not has no place.
        self.connection.execute(
            """UPDATE session_memories SET rank = 0, baseline_rank = NULL, predictor_rank = NULL
                WHERE session = ?""",
            (session,),
        )
        self.connection.executemany(_PUT_CANDIDATE, _candidate_values(session, candidates))

    def add_candidates(self, user: str, key: str, candidates: Sequence[Candidate]) -> None:
        session = self._session(user, key)
        self.connection.executemany(
            f"{_ADD_CANDIDATE} NOTHING", _candidate_values(session, candidates)
        )

    def put_injection(self, user: str, key: str, injection: Injection) -> None:
        session = self._session(user, key)
        self.connection.execute(
            "INSERT INTO injections VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                session,
                injection.number,
                injection.kind,
                injection.turn,
                injection.code,
                moment_text(injection.at),
                injection.token_count,
            ),
        )
        self.connection.executemany(
            _PUT_SHOWN,
            [(handle, injection.number, session, shown) for handle, shown in injection.memories],
        )
        self.connection.execute(
            """UPDATE sessions SET injection_count = ?, is_explained = max(is_explained, ?),
                handle_count = max(handle_count, ?) WHERE session = ?""",
            (injection.number, int(injection.is_explained), _last_handle(injection), session),
        )
        self.add_usage(user, {shown: 1 for _, shown in injection.memories}, injection.at)

    def add_usage(self, user: str, counts: Mapping[str, int], at: datetime) -> None:
        """Counts injections of memories; not a change of the memory."""
        self.connection.executemany(
            """UPDATE memory_stats SET access_count = access_count + ?, last_accessed = ?
                WHERE row = (SELECT row FROM memories WHERE user = ? AND id = ?)""",
            [(count, moment_text(at), user, memory_id) for memory_id, count in counts.items()],
        )

    def add_hits(self, user: str, key: str, memory_ids: Sequence[str]) -> None:
        session = self._session(user, key)
        self.connection.executemany(
            _PUT_HIT, [(session, memory_id, _FTS_ONLY_RANK) for memory_id in memory_ids]
        )

    def restore_context(self, user: str, key: str, memory_ids: Sequence[str]) -> None:
        session = self._session(user, key)
        self.connection.executemany(
            "UPDATE session_memories SET in_context = 1 WHERE session = ? AND memory_id = ?",
            [(session, memory_id) for memory_id in memory_ids],
        )

    def clear_context(self, user: str, key: str) -> None:
        self.connection.execute(
            "UPDATE session_memories SET in_context = 0 WHERE session = ?",
            (self._session(user, key),),
        )

    # -- what is said about it ------------------------------------------------------------

    def add_ratings(self, user: str, key: str, ratings: Sequence[Rating]) -> None:
        session = self._session(user, key)
        self.connection.executemany(
            """INSERT INTO rating_events (session, memory_id, turn, channel, score, at)
                VALUES (?, ?, ?, ?, ?, ?)""",
            [
                (session, r.memory_id, r.turn, r.channel, r.score, moment_text(r.at))
                for r in ratings
            ],
        )
        for memory_id in dict.fromkeys(rating.memory_id for rating in ratings):
            mean, count = self._mean_rating(session, memory_id)
            self.connection.execute(
                """UPDATE session_memories SET agent_relevance_score = ?, agent_feedback_count = ?
                    WHERE session = ? AND memory_id = ?""",
                (mean, count, session, memory_id),
            )

    def _mean_rating(self, session: int, memory_id: str) -> tuple[float | None, int]:
        """One rating per turn: of the strongest channel, and of those the last."""
        by_turn: dict[int, tuple[int, float]] = {}
        for turn, channel, score in self.connection.execute(
            """SELECT turn, channel, score FROM rating_events
                WHERE session = ? AND memory_id = ? ORDER BY event""",
            (session, memory_id),
        ):
            strength = CHANNELS.index(channel)
            if turn not in by_turn or strength <= by_turn[turn][0]:
                by_turn[turn] = (strength, score)
        scores = [score for _, score in by_turn.values()]
        return (sum(scores) / len(scores) if scores else None), len(scores)

    def mark_harmful(self, user: str, key: str, memory_ids: Sequence[str]) -> None:
        session = self._session(user, key)
        self.connection.executemany(
            "UPDATE session_memories SET is_harmful = 1 WHERE session = ? AND memory_id = ?",
            [(session, memory_id) for memory_id in memory_ids],
        )

    def put_transcript(self, user: str, key: str, turns: Sequence[Turn]) -> None:
        text = json.dumps([[turn.role, turn.text] for turn in turns], ensure_ascii=False)
        self._set(user, key, "transcript", text)

    def put_digest(self, user: str, key: str, data: bytes) -> None:
        self._set(user, key, "digest", data)

    def put_used(self, user: str, key: str, used: Mapping[str, float]) -> None:
        self._set(user, key, "used", json.dumps(dict(used)))

    def _set(self, user: str, key: str, column: str, value: str | bytes) -> None:
        self.connection.execute(
            f"UPDATE sessions SET {column} = ? WHERE session = ?",  # noqa: S608 - names of ours
            (value, self._session(user, key)),
        )

    # -- what it taught -------------------------------------------------------------------

    def put_verdict(
        self, user: str, key: str, score: SessionScore, judged: Sequence[Judged]
    ) -> None:
        session = self._session(user, key)
        self.connection.execute(
            _PUT_SCORE,
            (
                session,
                score.judge,
                score.score,
                score.confidence,
                score.memories_recalled,
                score.memories_used,
                score.novel_context_count,
                json.dumps(list(score.missing_topics), ensure_ascii=False),
                score.continuity_reasoning,
                score.raw,
                score.excluded,
                moment_text(score.at),
            ),
        )
        self.connection.execute(
            """UPDATE session_memories SET relevance_score = NULL, is_missing = 0
                WHERE session = ?""",
            (session,),
        )
        self.connection.executemany(
            """UPDATE session_memories SET relevance_score = ?, is_missing = ?
                WHERE session = ? AND memory_id = ?""",
            [(one.relevance_score, int(one.is_missing), session, one.memory_id) for one in judged],
        )

    def put_labels(
        self, user: str, key: str, labels: Sequence[Labelled], uses: Mapping[str, float]
    ) -> None:
        session = self._session(user, key)
        self.connection.executemany(
            """UPDATE session_memories SET label = ?, label_parts = ?
                WHERE session = ? AND memory_id = ?""",
            [(one.label, json.dumps(dict(one.parts)), session, one.memory_id) for one in labels],
        )
        self.connection.execute("DELETE FROM uses WHERE session = ?", (session,))
        # What was erased since must not come back by its id.
        self.connection.executemany(
            """INSERT INTO uses SELECT ?, id, ? FROM memories WHERE user = ? AND id = ?""",
            [(session, gain, user, memory_id) for memory_id, gain in uses.items()],
        )
        self.connection.execute(
            """UPDATE session_scores SET memories_used = (SELECT count(*) FROM uses u
                JOIN session_memories c ON c.session = u.session AND c.memory_id = u.memory_id
                WHERE u.session = ? AND c.was_injected = 1) WHERE session = ?""",
            (session, session),
        )
        self.connection.execute(
            "UPDATE sessions SET learned = ? WHERE session = ?",
            (self._next_lesson(user), session),
        )

    def _next_lesson(self, user: str) -> int:
        """The number of what is learned now; histories in memory ask for all above theirs."""
        (number,) = self.connection.execute(
            "UPDATE meta SET value = CAST(value AS INTEGER) + 1 WHERE key = 'learned'"
            " RETURNING value"
        ).fetchone()
        return int(number)

    def set_usefulness(self, user: str, usefulness: Mapping[str, float]) -> None:
        self.connection.executemany(
            """UPDATE memory_stats SET usefulness = ?
                WHERE row = (SELECT row FROM memories WHERE user = ? AND id = ?)""",
            [(value, user, memory_id) for memory_id, value in usefulness.items()],
        )


def _last_handle(injection: Injection) -> int:
    """The highest handle's number; one that was purged is not given again."""
    return max((int(handle[1:]) for handle, _ in injection.memories), default=0)


def no_session(key: str) -> NotFound:
    """The answer for a session that was never started."""
    return NotFound(f"no session {key[:80]!r}", hint="start it with session-start")


def _session_values(session: SessionRecord) -> dict[str, Any]:
    values: dict[str, Any] = {name: getattr(session, name) for name in _SESSION_COLUMNS}
    vector = session.context_vector
    return {
        **values,
        "user": session.user,
        "key": session.key,
        "has_prompt": int(session.has_prompt),
        "is_explained": int(session.is_explained),
        "context_vector": None if vector is None else np.asarray(vector, np.float32).tobytes(),
        "started_at": moment_text(session.started_at),
        "ended_at": None if session.ended_at is None else moment_text(session.ended_at),
    }


def _candidate_values(session: int, candidates: Sequence[Candidate]) -> list[tuple[Any, ...]]:
    # There are few ways to be found: each is written out once.
    origins = {names: json.dumps(names) for names in {one.origins for one in candidates}}
    return [
        (
            session,
            candidate.memory_id,
            candidate.source,
            origins[candidate.origins],
            candidate.effective_score,
            candidate.composite_score,
            candidate.predictor_score,
            candidate.final_score,
            candidate.rank,
            candidate.baseline_rank,
            candidate.predictor_rank,
            int(candidate.was_injected),
            candidate.propensity,
            candidate.feature_version,
            struct.pack(f"={len(candidate.features)}d", *candidate.features),
        )
        # In the table's own order pages are filled one after the other: fewer have to be written.
        for candidate in sorted(candidates, key=lambda one: one.memory_id)
    ]
