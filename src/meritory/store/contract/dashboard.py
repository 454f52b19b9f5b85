"""What the dashboard asks a store beside the rest: what changed, what there is, how it hangs."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from meritory.domain.memory import Scope
from meritory.domain.session import EntityGraph, MemoryShowing, SessionQuery, SessionSummary


class DashboardReads(Protocol):
    """What can be asked at a glance."""

    def change_numbers(self) -> dict[str, int]:
        """By topic a number that is another one after whoever wrote something of that kind.

        Of all users together, and cheap however much is stored.
        """

    def facets(self, scope: Scope) -> dict[str, dict[str, int]]:
        """Counts of what the scope may see by state, and of what is live by other fields."""

    def activity(self, user: str, since: datetime) -> dict[str, int]:
        """How much happened since a moment: memories, sessions, what was shown, and outcomes."""

    def session_page(self, user: str, query: SessionQuery) -> list[SessionSummary]:
        """A page of sessions with their outcomes, latest first."""

    def session_summary(self, user: str, key: str) -> SessionSummary:
        """One session with its outcome; NotFound otherwise."""

    def shown_in(self, user: str, memory_id: str, limit: int) -> list[MemoryShowing]:
        """The sessions that a memory was put before, latest first."""

    def entity_graph(self, scope: Scope, node_limit: int, edge_limit: int) -> EntityGraph:
        """The entities with the most live memories that the scope may see, and their ties."""
