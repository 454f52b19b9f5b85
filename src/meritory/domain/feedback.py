"""Feedback: reports, lessons, testimony and the belief in a memory's claim.

A belief has three masses of evidence: for the claim, against it, and undecided. Evidence of value 1
supports the claim with its whole weight, -1 opposes it, and 0 pulls the mean to the middle without
making the claim contested. The mean of the belief is the usefulness.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from meritory.domain.memory import MemoryRecord, Origin, Scope

Witness = Literal["person", "agent", "judge"]

# Undecided evidence of a new memory: one session of good ratings gives 0.6.
PRIOR_MASS = 4.0
# Contested: this much evidence on either side, and this share on the smaller one.
CONTESTED_MASS = 1.0
CONTESTED_SHARE = 0.25
# Two sessions in which a memory misled bring its usefulness below this, if it never helped.
MISLED_USEFULNESS = 0.4


@dataclass(frozen=True, slots=True)
class Belief:
    """The masses of evidence, faded to a day (days since the epoch)."""

    support: float = 0.0
    doubt: float = 0.0
    undecided: float = 0.0
    as_of_day: float = 0.0

    @property
    def alpha(self) -> float:
        """Return the first parameter of the Beta distribution."""
        return self.support + (PRIOR_MASS + self.undecided) / 2.0

    @property
    def beta(self) -> float:
        """Return the second parameter of the Beta distribution."""
        return self.doubt + (PRIOR_MASS + self.undecided) / 2.0

    @property
    def usefulness(self) -> float:
        """Return the mean of the belief, 0.5 without evidence."""
        return self.alpha / (self.alpha + self.beta)

    @property
    def is_contested(self) -> bool:
        """Return whether much evidence is against the claim, with or without much for it."""
        lesser = min(self.support, self.doubt)
        is_split = lesser >= CONTESTED_SHARE * (self.support + self.doubt)
        return (lesser >= CONTESTED_MASS and is_split) or self.usefulness < MISLED_USEFULNESS


Status = Literal["promoted", "clarification_required", "rejected"]
TEXTS = (
    *("context", "what_went_wrong", "what_to_change", "what_worked", "reasoning"),
    *("visual_evidence", "skill"),
)


@dataclass(frozen=True, slots=True)
class Issue:
    """A problem with one field of a report."""

    field: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackEvent:
    """One report, without secrets and with long texts cut."""

    id: str
    at: datetime
    # The signal as given; its polarity is 1 for up, -1 for down, 0 for neither.
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
    # The given scores and guardrails, and the verdict on them.
    rubric: Mapping[str, Any] | None = None
    diagnosis: Mapping[str, Any] | None = None
    quality: float = 0.0
    issues: tuple[Issue, ...] = ()
    memory_ids: tuple[str, ...] = ()
    # The lesson that it made or strengthened, and its number among the reports of that lesson.
    memory_id: str | None = None
    occurrence: int = 0
    completed_at: datetime | None = None

    @property
    def texts(self) -> dict[str, str]:
        """Return the texts that are not empty, by field."""
        return {name: text for name in TEXTS if (text := getattr(self, name))}

    @property
    def scope(self) -> Scope:
        """Return the scope of its lesson."""
        return Scope(self.user, self.agent, self.project)


@dataclass(frozen=True, slots=True)
class FeedbackQuery:
    """A page of reports, latest first; `before` is the last id of the page before."""

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
    """The number of reports of one kind."""

    domain: str
    polarity: int
    status: Status
    count: int
    last_at: datetime


@dataclass(frozen=True, slots=True)
class Testimony:
    """The evidence of one report on a memory's claim, from -1 (against) to 1 (for)."""

    at: datetime
    witness: Witness
    value: float
    session_key: str | None = None


@dataclass(frozen=True, slots=True)
class Lesson:
    """A memory that was made from reports, with their number."""

    memory_id: str
    polarity: int
    report_count: int
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True, slots=True)
class Contested:
    """A memory with much evidence for its claim and much against it."""

    memory: MemoryRecord
    belief: Belief
