"""Counts, pages and graphs for the dashboard and the status reports."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from meritory.domain.memory import Scope
from meritory.domain.session import EntityGraph, MemoryDelivery, SessionQuery, SessionSummary


class DashboardReads(Protocol):
    """Reads that only the dashboard and the status reports make."""

    def change_numbers(self) -> dict[str, int]:
        """Return a number per topic that changes with every write to that topic.

        It covers all users and is cheap however large the store is.
        """

    def totals(self, user: str) -> dict[str, int]:
        """Return counts of memories by state, kind, provenance and trust, and of their history."""

    def facets(self, scope: Scope) -> dict[str, dict[str, int]]:
        """Return counts of visible memories by state, and of the live ones by other fields."""

    def activity(self, user: str, since: datetime) -> dict[str, int]:
        """Return counts since a moment: memories, sessions, injections, reports and outcomes."""

    def session_page(self, user: str, query: SessionQuery) -> list[SessionSummary]:
        """Return a page of sessions with their outcomes, latest first."""

    def session_summary(self, user: str, key: str) -> SessionSummary:
        """Return one session with its outcome; raise NotFound otherwise."""

    def shown_in(self, user: str, memory_id: str, limit: int) -> list[MemoryDelivery]:
        """Return the sessions that a memory was injected into, latest first."""

    def entity_graph(self, scope: Scope, node_limit: int, edge_limit: int) -> EntityGraph:
        """Return the entities with the most visible live memories, and their connections."""
