"""The contract of actions, rules and constraints: what agents did, and what is held against it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol

from meritory.domain.rule import (
    ActionQuery,
    ActionReport,
    RecordedAction,
    Rule,
    RuleEvent,
    SessionConstraint,
    State,
)


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
