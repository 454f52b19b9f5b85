"""What the quality figures and the tuning of the gate ask a store; nothing here ever writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

from meritory.types import HistoryEntry, Outcome, Provenance

if TYPE_CHECKING:
    from meritory.store.base import Near, Probe


class WeekOutcome(NamedTuple):
    """How many writes had an outcome in the week that begins on this day (a Monday)."""

    week: str
    outcome: Outcome
    many: int


@dataclass(frozen=True, slots=True)
class ShownMemory:
    """One memory that a session was shown, with the numbers it was ranked by and its label.

    Provenance and extractor are None for one that was erased since.
    """

    label: float | None
    # Whether it is among the uses of its session, which `memories_used` counts, too.
    has_helped: bool
    origins: tuple[str, ...]
    features: tuple[float, ...]
    feature_version: int
    provenance: Provenance | None
    extractor: str | None


@dataclass(frozen=True, slots=True)
class ShownLately:
    """What the latest sessions were shown, and in how many texts."""

    session_count: int
    turn_count: int
    memories: Sequence[ShownMemory]


class GateReads(Protocol):
    """What can be asked about merges and what was shown."""

    def neighbours(self, probe: Probe) -> list[list[Near]]:
        """For each vector the nearest live memories of exactly this scope, nearest first."""

    def merges_of(self, user: str, limit: int, before: int | None = None) -> list[HistoryEntry]:
        """The latest merges of a user in all scopes, newest first, those split again included.

        `before` goes on behind the last entry of a page.
        """

    def gate_outcomes(self, user: str, since: datetime) -> list[WeekOutcome]:
        """What became of new texts, week by week, as far back as the latest history tells."""

    def shown_lately(self, user: str, session_limit: int) -> ShownLately:
        """What the latest sessions were shown."""
