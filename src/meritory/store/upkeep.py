"""Retrieval counts, audits of merges, and what grows old: as every backend keeps them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from meritory.types import HistoryEntry, Scope

MergeVerdict = Literal["right", "wrong"]
# What retention may take away when it is old. Memories are never among it.
Keepsake = Literal["transcripts", "events", "actions", "refusals", "feedback"]


@dataclass(frozen=True, slots=True)
class Retrieval:
    """How often a memory was found by somebody who asked, and when last."""

    count: int
    last_at: datetime


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
