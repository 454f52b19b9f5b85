"""Quality: refused candidates, audits, retrieval counts, and rows of extra export tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple, get_args

from meritory.domain.feedback import Witness
from meritory.domain.memory import (
    Kind,
    MemoryRecord,
    Origin,
    Outcome,
    Provenance,
)
from meritory.domain.session import NO_EFFECT_LABEL

MergeVerdict = Literal["right", "wrong"]
# The data that retention erases when it is old; never memories.
Keepsake = Literal["transcripts", "events", "actions", "refusals", "feedback"]


@dataclass(frozen=True, slots=True)
class Retrieval:
    """How often a search returned a memory, and when last."""

    count: int
    last_at: datetime


class WeekOutcome(NamedTuple):
    """How many writes had an outcome in the week that begins on this Monday."""

    week: str
    outcome: Outcome
    many: int


@dataclass(frozen=True, slots=True)
class ShownFigure:
    """A memory that a session was shown, with its features and its label.

    Provenance and extractor are None if it was erased since.
    """

    label: float | None
    origins: tuple[str, ...]
    features: tuple[float, ...]
    feature_version: int
    provenance: Provenance | None
    extractor: str | None

    @property
    def has_helped(self) -> bool:
        """Whether `memories_used` of its session counts it."""
        return self.label is not None and self.label > NO_EFFECT_LABEL


@dataclass(frozen=True, slots=True)
class ShownLately:
    """The memories that the latest sessions were shown, and the number of injections."""

    session_count: int
    turn_count: int
    memories: Sequence[ShownFigure]


# `alike`, `newer` and `unsure` are links between two memories; the others are about one.
ReviewKind = Literal["alike", "newer", "unsure", "proposal", "contested"]
ReviewAction = Literal["merge", "newer", "keep", "confirm", "reject", "forget"]
# Of a pair: the text of the first or of the second memory.
KeptText = Literal["a", "b"]
REVIEW_ACTIONS: tuple[str, ...] = get_args(ReviewAction)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewItem:
    """One question for a person: its memories, the older one first, and the possible answers.

    The id of a pair is that of both memories, `OLDER:NEWER`.
    """

    id: str
    kind: ReviewKind
    why: str
    at: datetime
    # How often sessions were shown its memories, and searches found them.
    shown_count: int
    found_count: int
    actions: tuple[ReviewAction, ...]
    memories: tuple[MemoryRecord, ...]


@dataclass(frozen=True, slots=True)
class ReviewPage:
    """A page of the review list, and the number of all its items."""

    results: tuple[ReviewItem, ...]
    total: int


# `newer`: another value of one claim. `unsure`: probably that, so that both stay visible. `alike`:
# perhaps one claim in two wordings.
LinkKind = Literal["newer", "unsure", "alike"]
# What a person or an agent made of a link: one claim, the newer one holds, or two claims.
LinkDecision = Literal["same", "newer", "separate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """A row of a table that an export contains in addition to memories."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedWording(Carried):
    """The lesson of a wording; an empty agent or project means none."""

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
    """The testimony of one report on one memory."""

    memory_id: str
    feedback_id: str
    at: datetime
    witness: Witness
    value: float
    session_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedBelief(Carried):
    """The belief in a memory."""

    memory_id: str
    support: float
    doubt: float
    undecided: float
    as_of_day: float
    is_contested: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedRefusal(Carried):
    """A refused candidate of extraction, without its user."""

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
    # The turn of the transcript, and the text that supports the candidate.
    turn: str | None
    quote: str
    reason: str
    # The extractor and the version of its prompt or rules.
    extractor: str
    # The memory that was made when it was restored.
    memory_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal(CarriedRefusal):
    """An extracted candidate that did not become a memory; it can be restored."""

    user: str
    memory_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLink(Carried):
    """Two memories whose claims are related, and what was decided about them."""

    older_id: str
    newer_id: str
    kind: LinkKind
    cosine: float
    reason: str
    at: datetime
    decision: LinkDecision | None = None
    decided_by: str | None = None
    decided_at: datetime | None = None

    @property
    def is_chain(self) -> bool:
        """Return whether the newer memory gives the present value of the older one's claim."""
        return (self.decision or self.kind) == "newer"

    @property
    def is_unsure(self) -> bool:
        """Return whether the newer memory probably gives a newer value, undecided."""
        return self.decision is None and self.kind == "unsure"


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedAudit(Carried):
    """The verdict of a person on a merge, by history entry."""

    entry: int
    at: datetime
    verdict: MergeVerdict
