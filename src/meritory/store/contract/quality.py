"""What extraction proposed and was refused, as every backend keeps it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from meritory.domain.memory import HistoryEntry, Scope
from meritory.domain.quality import (
    Keepsake,
    MergeVerdict,
    Refusal,
    Retrieval,
    ShownLately,
    WeekOutcome,
)

if TYPE_CHECKING:
    from meritory.store.contract.store import Near, NeighbourProbe


class RefusalReads(Protocol):
    """What can be asked about refusals, also within a transaction."""

    def refusals(self, user: str, limit: int, offset: int = 0) -> list[Refusal]:
        """What was refused and not restored, latest first."""

    def refusal(self, user: str, prefix: str) -> Refusal:
        """The refusal whose id starts so; NotFound for none, InputError for several."""


class RefusalVerbs(RefusalReads, Protocol):
    """What a transaction can do with refusals."""

    def put_refusals(self, refusals: Sequence[Refusal]) -> None:
        """Keeps what was refused; one that is known already is replaced."""

    def mark_restored(self, user: str, refusal_id: str, memory_id: str) -> None:
        """Notes which memory a refusal became."""


class UpkeepReads(Protocol):
    """What can be asked for upkeep, also within a transaction."""

    def retrievals(self, user: str, memory_ids: Sequence[str]) -> dict[str, Retrieval]:
        """The counts of those that were ever found."""

    def merge_audits(self, user: str) -> dict[int, MergeVerdict]:
        """What people said about merges, by history entry."""

    def merge_entry(self, user: str, entry: int) -> HistoryEntry:
        """One merge by its history entry; NotFound otherwise."""

    def session_counts(self, user: str, since: datetime) -> dict[Scope, int]:
        """How many sessions began in each scope since then."""

    def expirable(self, user: str, what: Keepsake, before: datetime) -> int:
        """How many an `expire` without limit would erase."""


class UpkeepVerbs(UpkeepReads, Protocol):
    """What a transaction can do for upkeep."""

    def add_retrievals(self, user: str, counts: Mapping[str, int], at: datetime) -> None:
        """Adds to the retrieval counts of memories; unknown ids are passed over."""

    def put_merge_audit(self, user: str, entry: int, verdict: MergeVerdict, at: datetime) -> None:
        """Notes what a person said about a merge, in place of what they said before."""

    def expire(self, user: str, what: Keepsake, before: datetime, limit: int) -> int:
        """Erases up to so many that are older, the oldest first; returns how many there were."""


class GateReads(Protocol):
    """What can be asked about merges and what was shown."""

    def nearest(self, probe: NeighbourProbe) -> list[list[Near]]:
        """For each vector the nearest live memories of exactly this scope, nearest first."""

    def merges_of(self, user: str, limit: int, before: int | None = None) -> list[HistoryEntry]:
        """The latest merges of a user in all scopes, newest first, those split again included.

        `before` goes on behind the last entry of a page.
        """

    def gate_outcomes(self, user: str, since: datetime) -> list[WeekOutcome]:
        """What became of new texts, week by week, as far back as the latest history tells."""

    def shown_lately(self, user: str, session_limit: int) -> ShownLately:
        """What the latest sessions were shown."""
