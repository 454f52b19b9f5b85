"""Rules: triggers, recorded actions, rules, their events and session constraints."""

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
    """A tool family or name, and the words that its argument must all contain."""

    tool: str
    words: tuple[str, ...]

    @property
    def pattern(self) -> str:
        """Return the words as one shell-quoted text."""
        return shlex.join(self.words)

    def __str__(self) -> str:
        return f"{self.tool}: {self.pattern}"

    @property
    def head(self) -> str | None:
        """Return the head that a matching action must have; None if there is no such head."""
        if self.tool == "shell":
            return self.words[0]
        last = self.words[0].rpartition("/")[2]
        return last if self.tool in _FILE_TOOLS and "*" not in last else None

    @property
    def argument_count(self) -> int:
        """Return the number of words without the program."""
        return len(self.words) - (self.tool == "shell")


@lru_cache(1_024)
def stored_trigger(tool: str, pattern: str) -> Trigger:
    """Return the trigger of a stored rule."""
    return Trigger(tool, tuple(shlex.split(pattern)))


Decision = Literal["allow", "warn", "deny"]
RuleEventKind = Literal[
    "proposed", "reported", "widened", "stepped_up", "stepped_down", "held", "expired",
    "approved", "retired", "undone", "warned", "blocked", "praised",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAction:
    """A call of a tool: its argument without secrets, and the decision of the guard.

    `number` is 0 until it is stored. Blame and praise count the reports mainly about it.
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
    """A page of recorded actions, latest first; None does not filter.

    `after` is a number, `since` and `until` are moments; all three are exclusive.
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
    """A link from a report to an action, with its certainty; one action is the primary one."""

    feedback_id: str
    action: int
    polarity: int
    score: float
    is_primary: bool
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule against a repeated mistake.

    `weight` is the weight of its reports at `weighed_at`. `held_count` is the number of reports at
    which a person moved it down. The replay counts are of the latest replay, which covered the
    actions up to `replayed_through`.
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
        """Return the trigger of the rule."""
        return stored_trigger(self.tool, self.pattern)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleEvent:
    """An event of a rule; `before` is the rule before a change."""

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
    """A constraint on the actions of a session."""

    session_key: str
    kind: str
    argument: str
    said: str
    feedback_id: str | None
    at: datetime
    lifted_at: datetime | None = None
