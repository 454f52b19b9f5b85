"""Belief in a memory's own claim, from weighted evidence that fades; its mean is the usefulness.

Evidence is kept as three masses: for the claim, against it, and undecided. A value of 1 speaks for
the claim with its whole weight, -1 against it, 0 says that the memory was there and decided
nothing, which pulls the mean to the middle without making the claim contested.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from meritory.domain.memory import MemoryRecord, Origin, Scope

Witness = Literal["person", "agent", "judge"]

# Undecided evidence that every memory begins with: one session of good ratings gives 0.6.
PRIOR_MASS = 4.0
# Contested: this much on either side, and neither side a mere exception.
CONTESTED_MASS = 1.0
CONTESTED_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Belief:
    """The masses of evidence as they weigh on a day (days since the epoch)."""

    support: float = 0.0
    doubt: float = 0.0
    undecided: float = 0.0
    as_of_day: float = 0.0

    @property
    def alpha(self) -> float:
        """The first parameter of the Beta distribution."""
        return self.support + (PRIOR_MASS + self.undecided) / 2.0

    @property
    def beta(self) -> float:
        """The second parameter of the Beta distribution."""
        return self.doubt + (PRIOR_MASS + self.undecided) / 2.0

    @property
    def usefulness(self) -> float:
        """The mean of the belief, 0.5 without evidence."""
        return self.alpha / (self.alpha + self.beta)

    @property
    def is_contested(self) -> bool:
        """Whether there is much to be said for the claim and much against it."""
        lesser = min(self.support, self.doubt)
        return lesser >= CONTESTED_MASS and lesser >= CONTESTED_SHARE * (self.support + self.doubt)


Status = Literal["promoted", "clarification_required", "rejected"]
TEXTS = (
    *("context", "what_went_wrong", "what_to_change", "what_worked", "reasoning"),
    *("visual_evidence", "skill"),
)


@dataclass(frozen=True, slots=True)
class Issue:
    """Something about a report that was not as it should be, and where."""

    field: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackEvent:
    """One report, as it is kept: secrets are out of it and long texts are cut."""

    id: str
    at: datetime
    # As it was said, and 1 for up, -1 for down, 0 for what is neither.
    signal: str
    polarity: int
    status: Status
    reason: str = ""
    user: str
    project: str | None = None
    agent: str | None = None
    session_key: str | None = None
    origin: Origin = "user"
    context: str = ""
    what_went_wrong: str = ""
    what_to_change: str = ""
    what_worked: str = ""
    reasoning: str = ""
    visual_evidence: str = ""
    skill: str = ""
    tags: tuple[str, ...] = ()
    domain: str = "general"
    last_action: Mapping[str, str] | None = None
    # The scores and guardrails that were given, and the verdict on them.
    rubric: Mapping[str, Any] | None = None
    diagnosis: Mapping[str, Any] | None = None
    quality: float = 0.0
    issues: tuple[Issue, ...] = ()
    memory_ids: tuple[str, ...] = ()
    # The lesson it became or strengthened, and the how-manieth report of it this was.
    memory_id: str | None = None
    occurrence: int = 0
    completed_at: datetime | None = None

    @property
    def texts(self) -> dict[str, str]:
        """Every text that says something, by its field."""
        return {name: text for name in TEXTS if (text := getattr(self, name))}

    @property
    def scope(self) -> Scope:
        """The scope that its lesson belongs to."""
        return Scope(self.user, self.agent, self.project)


@dataclass(frozen=True, slots=True)
class FeedbackQuery:
    """Which reports are wanted, latest first; `before` is the last id of the page before."""

    polarity: int | None = None
    status: Status | None = None
    domain: str | None = None
    project: str | None = None
    session_key: str | None = None
    memory_id: str | None = None
    before: str | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True)
class FeedbackCount:
    """How many reports of one kind there are."""

    domain: str
    polarity: int
    status: Status
    count: int
    last_at: datetime


@dataclass(frozen=True, slots=True)
class Testimony:
    """One report's word on one memory's claim, -1 against it to 1 for it."""

    at: datetime
    witness: Witness
    value: float
    session_key: str | None = None


@dataclass(frozen=True, slots=True)
class Lesson:
    """A memory that was made from reports, and how often it was reported."""

    memory_id: str
    polarity: int
    report_count: int
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True, slots=True)
class Contested:
    """A memory with much to be said for its claim and much against it."""

    memory: MemoryRecord
    belief: Belief
