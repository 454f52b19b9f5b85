"""The ladder of a rule: proposed, warns, blocks, one step at a time, and down again.

A rule weighs as much as the reports behind it, each half as much after seven days. The action at
hand counts as one more case: so the second case of a mistake is warned of and the fourth blocked.
Up it goes only while a replay of harmless actions raised no alarm; down it goes when its weight
has faded, when warnings were followed by no complaint, and at its end.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Final, Literal

State = Literal["proposed", "warns", "blocks", "expired", "retired"]


_FILE_TOOLS: Final = ("edit", "read", "web")


@dataclass(frozen=True, slots=True)
class Trigger:
    """A tool's family or name, and the words that must all be in its argument."""

    tool: str
    words: tuple[str, ...]

    @property
    def pattern(self) -> str:
        """The words as they can be read and written."""
        return shlex.join(self.words)

    def __str__(self) -> str:
        return f"{self.tool}: {self.pattern}"

    @property
    def head(self) -> str | None:
        """What an action must have among its heads to fit, None when that cannot be said."""
        if self.tool == "shell":
            return self.words[0]
        last = self.words[0].rpartition("/")[2]
        return last if self.tool in _FILE_TOOLS and "*" not in last else None

    @property
    def argument_count(self) -> int:
        """How many words there are beside the program."""
        return len(self.words) - (self.tool == "shell")


@lru_cache(1_024)
def stored_trigger(tool: str, pattern: str) -> Trigger:
    """A trigger as it was stored."""
    return Trigger(tool, tuple(shlex.split(pattern)))


# -- fitting --------------------------------------------------------------------------------


# -- making ---------------------------------------------------------------------------------


Decision = Literal["allow", "warn", "deny"]
RuleEventKind = Literal[
    "proposed", "reported", "widened", "stepped_up", "stepped_down", "held", "expired",
    "approved", "retired", "undone", "warned", "blocked", "praised",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAction:
    """A call of a tool as it is kept: its argument without secrets, and what it was answered.

    `number` is 0 until it is stored. Blame and praise count the reports that were mainly about it.
    """

    number: int = 0
    session_key: str
    at: datetime
    project: str | None
    harness: str | None
    tool: str
    tool_name: str
    argument: str
    heads: tuple[str, ...]
    risk: int
    decision: Decision
    rule_id: str | None = None
    blame_count: int = 0
    praise_count: int = 0


@dataclass(frozen=True, slots=True)
class ActionQuery:
    """Which recorded actions are wanted, latest first; None leaves a choice open.

    `after` and `before` are numbers and moments that bound them, both outside.
    """

    session_key: str | None = None
    tool: str | None = None
    head: str | None = None
    rule_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    after: int = 0
    limit: int = 100


@dataclass(frozen=True, slots=True)
class ActionReport:
    """That a report is about an action, and how surely; one of them is the one it is mainly of."""

    feedback_id: str
    action: int
    polarity: int
    score: float
    is_primary: bool
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule as it stands.

    `weight` is that of its reports at `weighed_at`. `held_count` is the number of reports at which
    somebody took a step back. The counts of the replay are those of the latest one, which looked
    at actions up to `replayed_through`.
    """

    id: str
    project: str | None
    tool: str
    pattern: str
    text: str
    state: State
    risk: int
    is_forbidden: bool
    weight: float
    weighed_at: datetime
    report_count: int
    created_at: datetime
    updated_at: datetime
    expires_at: datetime
    is_approved: bool = False
    held_count: int = -1
    replay_count: int = 0
    alarm_count: int = 0
    replayed_through: int = 0
    memory_id: str | None = None
    reported_at: datetime | None = None

    @property
    def trigger(self) -> Trigger:
        """What sets it off."""
        return stored_trigger(self.tool, self.pattern)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleEvent:
    """Something that happened to a rule; `before` is the rule as it was, where it was changed."""

    number: int = 0
    rule_id: str
    at: datetime
    kind: RuleEventKind
    reason: str
    actor: str
    session_key: str | None = None
    action: int | None = None
    feedback_id: str | None = None
    before: Rule | None = None
    is_undone: bool = False


@dataclass(frozen=True, slots=True)
class SessionConstraint:
    """What a session must keep to."""

    session_key: str
    kind: str
    argument: str
    said: str
    feedback_id: str | None
    at: datetime
    lifted_at: datetime | None = None
