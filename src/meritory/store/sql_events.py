"""The timeline and the books of a store; each verb runs inside the transaction."""

from __future__ import annotations

import json
from collections.abc import Sequence

from meritory.codec import moment_text
from meritory.store.sessions import Event, Spending
from meritory.store.sql import Connection

EVENT_LIMIT = 50_000


class SqlEvents:
    """What a transaction writes down for people to see."""

    connection: Connection

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
