"""What can be asked of an SQLite store about sessions."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meritory.domain.codec import moment_text
from meritory.domain.errors import Corrupt, NotFound
from meritory.domain.memory import Scope
from meritory.domain.session import (
    Event,
    Injection,
    Proof,
    Rating,
    SessionMemory,
    SessionRecord,
    SessionScore,
    ShownRow,
    Spending,
    Turn,
)
from meritory.rank.usage_history import Past
from meritory.store.search.usage_history import UsageHistory
from meritory.store.sql.rows import (
    SELECT_CANDIDATE,
    SELECT_EVENT,
    SELECT_SCORE,
    SELECT_SESSION,
    SqlReader,
    decode_candidate,
    decode_event,
    decode_score,
    decode_session,
    decode_turns,
    moment,
)
from meritory.store.sql.sessions import no_session
from meritory.store.sql.training_reader import stored_vectors

_EVENTS_PER_TIMELINE = 2_000
# Older evidence has faded, and a memory that is always shown would cost more with every session.
PROOFS_PER_MEMORY = 100
_OF_SESSION = "session = (SELECT session FROM sessions WHERE user = ? AND key = ?)"


class SqlSessionReads:
    """Sessions, what they were shown and what they taught."""

    _engine: SqlReader

    def __init__(self) -> None:
        self._pasts: dict[str, UsageHistory] = {}
        self._past_lock = threading.Lock()
        self._secret: bytes | None = None
        # By user the state of learning for which the counts were made.
        self._judged: dict[str, tuple[int | None, tuple[int, int]]] = {}

    # -- sessions -------------------------------------------------------------------------

    def session(self, user: str, key: str) -> SessionRecord:
        found = self._one(f"{SELECT_SESSION} WHERE user = ? AND key = ?", (user, key))
        if found is None:
            raise no_session(key)
        return decode_session(found)

    def session_of_code(self, user: str, code: str) -> SessionRecord:
        # From the latest on, where the code of whoever asks almost always is: no index is worth it.
        found = self._one(
            """SELECT s.key FROM injections i CROSS JOIN sessions s ON s.session = i.session
                WHERE i.code = ? AND s.user = ? ORDER BY i.session DESC LIMIT 1""",
            (code, user),
        )
        if found is None:
            raise NotFound("no injection has this code", hint="copy it as it stands in the notes")
        return self.session(user, found[0])

    def sessions(
        self, user: str, limit: int, *, project: str | None = None, before: str | None = None
    ) -> list[SessionRecord]:
        rows = self._all(
            f"""{SELECT_SESSION} WHERE user = :user AND (:project IS NULL OR project = :project)
                AND (:before IS NULL OR (started_at, session) <
                    (SELECT started_at, session FROM sessions WHERE user = :user AND key = :before))
                ORDER BY started_at DESC, session DESC LIMIT :limit""",  # noqa: S608
            {"user": user, "project": project, "before": before, "limit": limit},
        )
        return [decode_session(row) for row in rows]

    def previous_session(self, scope: Scope, before: datetime) -> SessionRecord | None:
        found = self._one(
            f"""{SELECT_SESSION} WHERE user = ? AND project IS ? AND agent IS ? AND started_at < ?
                AND summary <> '' ORDER BY started_at DESC, session DESC LIMIT 1""",
            (scope.user, scope.project, scope.agent, moment_text(before)),
        )
        return None if found is None else decode_session(found)

    def session_memories(self, user: str, key: str) -> list[SessionMemory]:
        rows = self._all(
            f"{SELECT_CANDIDATE} WHERE {_OF_SESSION} ORDER BY rank = 0, rank, memory_id",
            (user, key),
        )
        return [decode_candidate(row) for row in rows]

    def shown(self, user: str, key: str) -> list[ShownRow]:
        rows = self._all(
            "SELECT memory_id, handle, injection, in_context, is_harmful, source, rank"  # noqa: S608
            f" FROM session_memories WHERE {_OF_SESSION} AND handle IS NOT NULL"
            " ORDER BY CAST(substr(handle, 2) AS INTEGER)",
            (user, key),
        )
        return [
            ShownRow(memory_id, handle, number, bool(in_context), bool(is_harmful), source, rank)
            for memory_id, handle, number, in_context, is_harmful, source, rank in rows
        ]

    def injections(self, user: str, key: str) -> list[Injection]:
        rows = self._all(
            "SELECT number, kind, turn, code, at, token_count FROM injections"  # noqa: S608
            f" WHERE {_OF_SESSION} ORDER BY number",
            (user, key),
        )
        return [
            Injection(
                number=number, kind=kind, turn=turn, code=code, at=moment(at), token_count=tokens
            )
            for number, kind, turn, code, at, tokens in rows
        ]

    def ratings(self, user: str, key: str) -> list[Rating]:
        rows = self._all(
            "SELECT memory_id, turn, channel, score, at FROM rating_events"  # noqa: S608
            f" WHERE {_OF_SESSION} ORDER BY event",
            (user, key),
        )
        return [
            Rating(memory_id, turn, channel, score, moment(at))
            for memory_id, turn, channel, score, at in rows
        ]

    def transcript(self, user: str, key: str) -> tuple[Turn, ...]:
        return decode_turns(self._told(user, key, "transcript"))

    def digest(self, user: str, key: str) -> bytes | None:
        told = self._told(user, key, "digest")
        return None if told is None else bytes(told)

    def used(self, user: str, key: str) -> dict[str, float] | None:
        told = self._told(user, key, "used")
        return None if told is None else dict(json.loads(told))

    def _told(self, user: str, key: str, column: str) -> Any:
        found = self._one(
            f"SELECT {column} FROM sessions WHERE user = ? AND key = ?",  # noqa: S608 - ours
            (user, key),
        )
        if found is None:
            raise no_session(key)
        return found[0]

    def session_score(self, user: str, key: str) -> SessionScore | None:
        found = self._one(f"{SELECT_SCORE} WHERE {_OF_SESSION}", (user, key))
        return None if found is None else decode_score(found)

    def sessions_shown(self, user: str, memory_id: str, since: datetime) -> list[str]:
        rows = self._all(
            """SELECT s.key FROM session_memories c JOIN sessions s ON s.session = c.session
                JOIN injections i ON i.session = c.session AND i.number = c.injection
                WHERE c.memory_id = ? AND c.was_injected = 1 AND s.user = ?
                    AND s.state <> 'open' AND i.at >= ?
                ORDER BY s.session""",
            (memory_id, user, moment_text(since)),
        )
        return [key for (key,) in rows]

    # -- what they taught -----------------------------------------------------------------

    def past(self, scope: Scope, embedder: str | None) -> tuple[Past, int]:
        with self._engine.read() as connection, self._past_lock:
            index = self._pasts.setdefault(scope.user, UsageHistory(scope.user))
            past = index.caught_up(connection, embedder)
            return past, index.project_number(scope.project)

    def vectors(
        self, user: str, embedder: str, memory_ids: Sequence[str]
    ) -> dict[str, NDArray[np.float32]]:
        with self._engine.read() as connection:
            return stored_vectors(connection, user, embedder, memory_ids)

    def proofs(self, user: str, memory_ids: Sequence[str]) -> dict[str, list[Proof]]:
        found: dict[str, list[Proof]] = {}
        for memory_id in memory_ids:
            rows = self._all(
                """SELECT s.key, s.started_at,
                        CAST(json_extract(c.label_parts, '$.agent') AS DOUBLE PRECISION),
                        c.label, json_extract(c.label_parts, '$.rule') = 'known'
                    FROM session_memories c JOIN sessions s ON s.session = c.session
                    WHERE c.memory_id = ? AND c.was_injected = 1 AND c.label IS NOT NULL
                        AND s.user = ?
                    ORDER BY c.session DESC LIMIT ?""",
                (memory_id, user, PROOFS_PER_MEMORY),
            )
            proofs = [
                Proof(key, moment(at), agent, label, bool(is_known))
                for key, at, agent, label, is_known in rows
            ]
            if proofs:
                found[memory_id] = sorted(proofs, key=lambda one: one.at)
        return found

    # -- what can be seen -----------------------------------------------------------------

    def events(
        self, user: str, *, session_key: str | None = None, memory_id: str | None = None
    ) -> list[Event]:
        column, value = (
            ("session_key", session_key) if session_key is not None else ("memory_id", memory_id)
        )
        return self._timeline(user, column, value)

    def request_events(self, user: str, request_id: str) -> list[Event]:
        return self._timeline(user, "request_id", request_id)

    def _timeline(self, user: str, column: str, value: str | None) -> list[Event]:
        rows = self._all(
            f"{SELECT_EVENT} WHERE user = ? AND {column} = ? ORDER BY event DESC LIMIT ?",
            (user, value, _EVENTS_PER_TIMELINE),
        )
        return [decode_event(row) for row in reversed(rows)]

    def spending(self, user: str, since: datetime) -> list[Spending]:
        rows = self._all(
            """SELECT at, purpose, model, input_tokens, output_tokens, cost FROM spending
                WHERE user = ? AND at >= ? ORDER BY at, spend""",
            (user, moment_text(since)),
        )
        return [Spending(moment(at), *rest) for at, *rest in rows]

    def session_totals(self, user: str) -> dict[str, int]:
        totals = {
            f"sessions.{state}": many
            for state, many in self._all(
                "SELECT state, count(*) FROM sessions WHERE user = ? GROUP BY state", (user,)
            )
        }
        of_user = "session IN (SELECT session FROM sessions WHERE user = ?)"
        for name, statement in (
            ("sessions.judged", f"SELECT count(*) FROM session_scores WHERE {of_user}"),  # noqa: S608
            (
                "sessions.excluded",
                f"SELECT count(*) FROM session_scores WHERE excluded IS NOT NULL AND {of_user}",  # noqa: S608
            ),
            ("ratings", f"SELECT count(*) FROM rating_events WHERE {of_user}"),  # noqa: S608
        ):
            found = self._one(statement, (user,))
            totals[name] = int(found[0]) if found else 0
        return totals

    def harnesses(self, user: str) -> list[tuple[str, int, datetime]]:
        rows = self._all(
            """SELECT harness, count(*), max(started_at) FROM sessions
                WHERE user = ? AND harness IS NOT NULL GROUP BY harness ORDER BY harness""",
            (user,),
        )
        return [(name, many, moment(last)) for name, many, last in rows]

    def judged_counts(self, user: str) -> tuple[int, int]:
        learned = self._last_lesson(user)
        known = self._judged.get(user)
        if known is None or known[0] != learned:
            counts = self._one(
                """SELECT count(*), count(r.excluded) FROM session_scores r
                    JOIN sessions s ON s.session = r.session WHERE s.user = ?""",
                (user,),
            )
            total, excluded = counts or (0, 0)
            known = self._judged[user] = (learned, (total - excluded, excluded))
        return known[1]

    def _last_lesson(self, user: str) -> int | None:
        """The number of what was learned last."""
        found = self._one("SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'learned'", ())
        return int(found[0]) if found else None

    def secret(self) -> bytes:
        if self._secret is None:
            found = self._one("SELECT value FROM meta WHERE key = 'secret'", ())
            if found is None:
                raise Corrupt("the store has lost its secret", hint="restore a backup")
            self._secret = bytes.fromhex(found[0])
        return self._secret

    def _one(self, statement: str, values: Any) -> tuple[Any, ...] | None:
        with self._engine.read() as connection:
            found: tuple[Any, ...] | None = connection.execute(statement, values).fetchone()
            return found

    def _all(self, statement: str, values: Any) -> list[tuple[Any, ...]]:
        with self._engine.read() as connection:
            return connection.execute(statement, values).fetchall()
