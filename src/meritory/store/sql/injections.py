"""Injections: what a session was offered, and what of it was delivered to the agent.

A memory counts as shown from the delivery of an injection on, and not before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from meritory.domain.session import Injection
from meritory.domain.world import moment_text
from meritory.store.sql.mapper import ColumnCodec, RecordTable, SqlConnection
from meritory.store.sql.sessions import OF_SESSION, SqlOneSession

Handled = Sequence[tuple[str, str]]


def _offer(memories: Handled) -> str:
    # By id, so that a purge can remove one.
    return json.dumps({memory_id: handle for handle, memory_id in memories})


def _offered(text: str) -> tuple[tuple[str, str], ...]:
    return tuple((handle, memory_id) for memory_id, handle in json.loads(text).items())


# A delivered injection offers nothing: its memories are in the rows of the session.
_INJECTIONS = RecordTable(
    "injections",
    Injection,
    owner=("session",),
    renamed={"memories": "offer"},
    codecs={"memories": ColumnCodec(_offer, _offered)},
)
_PUT_SHOWN = """UPDATE session_memories SET was_injected = 1, in_context = 1,
        handle = coalesce(handle, ?), injection = coalesce(injection, ?),
        source = CASE WHEN source = 'fts_only' THEN 'effective' ELSE source END
    WHERE session = ? AND memory_id = ?"""
_SET_OFFER = "UPDATE injections SET is_delivered = ?, offer = ? WHERE session = ? AND number = ?"
_SHOWN_BY = "SELECT memory_id FROM session_memories WHERE session = ? AND injection = ?"


class SqlInjectionWrites(SqlOneSession):
    """Changes of injections, and of what is in the agent's context."""

    connection: SqlConnection

    def put_injection(self, user: str, key: str, injection: Injection) -> None:
        """Store an injection; one that is delivered already shows its memories at once."""
        session = self._session(user, key)
        stored = replace(injection, memories=()) if injection.is_delivered else injection
        self.connection.execute(_INJECTIONS.insert, _INJECTIONS.values(stored, session=session))
        # The highest handle: no handle is given to another memory, delivered or not.
        handle_count = max((int(handle[1:]) for handle, _ in injection.memories), default=0)
        self.connection.execute(
            """UPDATE sessions SET injection_count = ?, handle_count = max(handle_count, ?)
                WHERE session = ?""",
            (injection.number, handle_count, session),
        )
        if injection.is_delivered:
            self._show(user, session, injection)

    def offer_again(self, user: str, key: str, number: int, memories: Handled) -> None:
        """Let an injection wait for another delivery, with these memories by handle and id."""
        values = (0, _offer(memories), self._session(user, key), number)
        self.connection.execute(_SET_OFFER, values)

    def deliver(self, user: str, key: str, code: str) -> bool:
        """Record that the agent has got an injection.

        Return False if none with this code waits for its delivery.
        """
        session = self._session(user, key)
        where = "session = ? AND code = ? AND is_delivered = 0"
        injection = self._record(_INJECTIONS, user, where, (session, code))
        if injection is None:
            return False
        self._show(user, session, injection)
        self.connection.execute(_SET_OFFER, (1, _offer(()), session, injection.number))
        return True

    def _show(self, user: str, session: int, injection: Injection) -> None:
        """Record memories as shown, and count that as usage."""
        number = injection.number
        # A block that is shown again after a compaction is no second use.
        known = {row[0] for row in self.connection.execute(_SHOWN_BY, (session, number))}
        self.connection.executemany(
            _PUT_SHOWN,
            [(handle, number, session, memory_id) for handle, memory_id in injection.memories],
        )
        if injection.is_explained:
            self.connection.execute(
                "UPDATE sessions SET is_explained = 1 WHERE session = ?", (session,)
            )
        fresh = {shown: 1 for _, shown in injection.memories if shown not in known}
        self.add_usage(user, fresh, injection.at)

    def add_usage(self, user: str, counts: Mapping[str, int], at: datetime) -> None:
        """Count injections of memories; this is not a change of the memory."""
        self.connection.executemany(
            """UPDATE memory_stats SET access_count = access_count + ?, last_accessed = ?
                WHERE row = (SELECT row FROM memories WHERE user = ? AND id = ?)""",
            [(count, moment_text(at), user, memory_id) for memory_id, count in counts.items()],
        )

    def clear_context(self, user: str, key: str) -> None:
        """Record that the agent's context is empty: every memory may be shown again."""
        self.connection.execute(
            "UPDATE session_memories SET in_context = 0 WHERE session = ?",
            (self._session(user, key),),
        )


class SqlInjectionReads(SqlOneSession):
    """Injections of sessions."""

    def injections(self, user: str, key: str) -> list[Injection]:
        """Return all injections of a session in order, with what they still offer."""
        return self._records(_INJECTIONS, user, f"{OF_SESSION} ORDER BY number", (user, key))

    def undelivered(self, user: str, key: str) -> list[Injection]:
        """Return the injections that were not reported as delivered, in order."""
        where = f"{OF_SESSION} AND is_delivered = 0 ORDER BY number"
        return self._records(_INJECTIONS, user, where, (user, key))
