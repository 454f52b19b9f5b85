"""What an export carries besides memories, row by row, as every backend hands it out and takes it.

Reports, rules and their events have verbs of their own; these are the small tables around them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar

from meritory.rank.belief import Witness
from meritory.store.upkeep import MergeVerdict
from meritory.types import Kind, Origin, Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """A row of one user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedWording(Carried):
    """Which lesson a wording stands for; an empty agent or project is none."""

    agent: str
    project: str
    fingerprint: str
    memory_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedLesson(Carried):
    """How often a lesson was reported."""

    memory_id: str
    polarity: int
    report_count: int
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedTestimony(Carried):
    """One report's word on one memory."""

    memory_id: str
    feedback_id: str
    at: datetime
    witness: Witness
    value: float
    session_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedBelief(Carried):
    """What is believed of a memory."""

    memory_id: str
    support: float
    doubt: float
    undecided: float
    as_of_day: float
    is_contested: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedRefusal(Carried):
    """Something that extraction proposed and was refused."""

    id: str
    at: datetime
    agent: str | None
    project: str | None
    session_key: str | None
    content: str
    kind: Kind
    provenance: Provenance
    origin: Origin
    confidence: float
    turn: str | None
    quote: str
    reason: str
    extractor: str
    memory_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedAudit(Carried):
    """What a person said about a merge, by its history entry."""

    entry: int
    at: datetime
    verdict: MergeVerdict


R = TypeVar("R", bound=Carried)


class CarryVerbs(Protocol):
    """What a transaction can do with carried rows."""

    def carry(self, user: str, rows: Sequence[Carried]) -> None:
        """Puts rows in for a user; what is there already stays as it is."""


class CarryReads(Protocol):
    """What can be asked about rows to carry."""

    def carried(self, user: str, kind: type[R]) -> list[R]:
        """All rows of one kind that a user has, in a fixed order."""
