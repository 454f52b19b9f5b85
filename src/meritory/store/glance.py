"""What the dashboard asks a store beside the rest: what changed, what there is, how it hangs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol, get_args

from meritory.store.sessions import SessionRecord
from meritory.types import Entity, Scope

# How the predictor did in a session; one that was not judged yet has no outcome.
SessionOutcome = Literal["win", "loss", "tie", "excluded"]
OUTCOMES: tuple[SessionOutcome, ...] = get_args(SessionOutcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionQuery:
    """Which sessions are wanted, latest first; `before` is the last key of the page before."""

    project: str | None = None
    outcome: SessionOutcome | None = None
    since: datetime | None = None
    until: datetime | None = None
    before: str | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """A session and how the predictor did in it."""

    session: SessionRecord
    outcome: SessionOutcome | None
    margin: float | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Shown:
    """A session that a memory was put before, and what came of it there."""

    session_key: str
    project: str | None
    started_at: datetime
    handle: str | None
    source: str
    rank: int
    label: float | None
    outcome: SessionOutcome | None


@dataclass(frozen=True, slots=True)
class EntityGraph:
    """The entities with the most memories, and what ties them.

    An edge is a pair of positions in `nodes` with how many memories are about both; `needs` are
    pairs of which the first depends on the second.
    """

    nodes: tuple[Entity, ...]
    edges: tuple[tuple[int, int, int], ...]
    needs: tuple[tuple[int, int], ...]


class GlanceReads(Protocol):
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

    def shown_in(self, user: str, memory_id: str, limit: int) -> list[Shown]:
        """The sessions that a memory was put before, latest first."""

    def entity_graph(self, scope: Scope, node_limit: int, edge_limit: int) -> EntityGraph:
        """The entities with the most live memories that the scope may see, and their ties."""
