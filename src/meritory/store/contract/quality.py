"""Quality: refused candidates, merge audits, retrieval counts, retention and export rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

from meritory.domain.memory import Scope
from meritory.domain.quality import (
    Carried,
    Keepsake,
    MergeVerdict,
    Refusal,
    Retrieval,
    ShownLately,
    WeekOutcome,
)

R = TypeVar("R", bound=Carried)


class QualityReads(Protocol):
    """Reads of refusals, audits and counts, also within a transaction."""

    def refusals(self, user: str, limit: int, offset: int = 0) -> list[Refusal]:
        """Return the refusals that were not restored, latest first."""

    def refusal(self, user: str, prefix: str) -> Refusal:
        """Return the refusal whose id starts with `prefix`.

        Raise NotFound for none, InputError for several.
        """

    def retrievals(self, user: str, memory_ids: Sequence[str]) -> dict[str, Retrieval]:
        """Return the retrieval counts of memories, by memory id."""

    def merge_audits(self, user: str) -> dict[int, MergeVerdict]:
        """Return the verdicts of people on merges, by history entry."""

    def gate_outcomes(self, user: str, since: datetime) -> list[WeekOutcome]:
        """Return the outcomes of writes per week, from the latest history entries."""

    def shown_lately(self, user: str, session_limit: int) -> ShownLately:
        """Return the memories that the latest sessions were shown."""

    def session_counts(self, user: str, since: datetime) -> dict[Scope, int]:
        """Return how many sessions began in each scope since a moment."""

    def expirable(self, user: str, what: Keepsake, before: datetime) -> int:
        """Return how many rows an `expire` without limit would erase."""

    def carried(self, user: str, kind: type[R]) -> list[R]:
        """Return all export rows of one kind, in a fixed order."""


class QualityWrites(QualityReads, Protocol):
    """Changes of refusals, audits and counts."""

    def put_refusals(self, refusals: Sequence[Refusal]) -> None:
        """Store refusals in place of those with their ids."""

    def mark_restored(self, user: str, refusal_id: str, memory_id: str) -> None:
        """Record the memory that was made from a refusal."""

    def add_retrievals(self, user: str, counts: Mapping[str, int], at: datetime) -> None:
        """Add to the retrieval counts of memories; ignore unknown ids."""

    def put_merge_audit(self, user: str, entry: int, verdict: MergeVerdict, at: datetime) -> None:
        """Store the verdict of a person on a merge in place of the former one."""

    def expire(self, user: str, what: Keepsake, before: datetime, limit: int) -> int:
        """Erase up to `limit` older rows, oldest first, and return their number."""

    def carry(self, user: str, rows: Sequence[Carried]) -> None:
        """Insert export rows; rows that exist stay unchanged."""
