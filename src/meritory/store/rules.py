"""The contract of actions, rules and constraints: what agents did, and what is held against it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from meritory.rank.rules.ladder import State
from meritory.text.actions import ToolAction
from meritory.text.triggers import Trigger, stored_trigger

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

    @property
    def action(self) -> ToolAction:
        """What was done."""
        return ToolAction(self.tool, self.tool_name, self.argument)


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


class RuleVerbs(Protocol):
    """What a transaction can do with actions, rules and constraints."""

    def add_action(self, user: str, action: RecordedAction) -> int:
        """Keeps an action; returns its number."""

    def add_action_reports(self, user: str, reports: Sequence[ActionReport]) -> None:
        """Notes which actions a report is about; a report is noted once."""

    def put_rule(self, user: str, rule: Rule, event: RuleEvent | None = None) -> None:
        """Keeps a rule in place of what it was before, with what happened to it."""

    def add_rule_event(self, user: str, event: RuleEvent) -> None:
        """Notes what happened."""

    def mark_rule_event_undone(self, user: str, number: int) -> None:
        """Notes that a change was taken back."""

    def put_session_constraint(self, user: str, constraint: SessionConstraint) -> bool:
        """Keeps a constraint; one that was lifted holds again. False when it held already."""

    def lift_session_constraints(
        self, user: str, session_key: str, kinds: Collection[str], at: datetime
    ) -> int:
        """Lifts the constraints of these kinds; returns how many there were."""


class RuleReads(Protocol):
    """What can be asked about actions, rules and constraints, also within a transaction."""

    def actions(self, user: str, query: ActionQuery) -> list[RecordedAction]:
        """Recorded actions, latest first."""

    def action_reports(self, user: str, feedback_id: str) -> list[ActionReport]:
        """The actions that a report is about, the main one first."""

    def rules(self, user: str, states: Collection[State]) -> list[Rule]:
        """Rules in these states, the latest first."""

    def rule(self, user: str, prefix: str) -> Rule:
        """The rule whose id starts so; NotFound for none, InputError for several."""

    def rule_events(self, user: str, rule_id: str, limit: int) -> list[RuleEvent]:
        """What happened to a rule, latest first."""

    def session_constraints(self, user: str, session_key: str) -> list[SessionConstraint]:
        """What a session must keep to now."""
