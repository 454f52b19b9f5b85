"""What extraction proposed and was refused, as every backend keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from meritory.domain.feedback import Witness
from meritory.domain.memory import Kind, Origin, Outcome, Provenance, Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A candidate that did not become a memory, and why; it can be restored."""

    id: str
    at: datetime
    scope: Scope
    session_key: str | None
    content: str
    kind: Kind
    provenance: Provenance
    origin: Origin
    confidence: float
    # Where in the transcript, and the words it rests on.
    turn: str | None
    quote: str
    reason: str
    # Which extractor and version of its prompt or rules.
    extractor: str
    # The memory it became after all.
    memory_id: str | None = None


MergeVerdict = Literal["right", "wrong"]
# What retention may take away when it is old. Memories are never among it.
Keepsake = Literal["transcripts", "events", "actions", "refusals", "feedback"]


@dataclass(frozen=True, slots=True)
class Retrieval:
    """How often a memory was found by somebody who asked, and when last."""

    count: int
    last_at: datetime


class WeekOutcome(NamedTuple):
    """How many writes had an outcome in the week that begins on this day (a Monday)."""

    week: str
    outcome: Outcome
    many: int


@dataclass(frozen=True, slots=True)
class ShownFigure:
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
    memories: Sequence[ShownFigure]


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
