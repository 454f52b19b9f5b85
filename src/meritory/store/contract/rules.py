"""Actions of agents, the rules against repeated mistakes, and the constraints of sessions."""

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


class RuleReads(Protocol):
    """Reads of actions, rules and constraints, also within a transaction."""

    def actions(self, user: str, query: ActionQuery) -> list[RecordedAction]:
        """Return recorded actions, latest first."""

    def rules(self, user: str, states: Collection[State]) -> list[Rule]:
        """Return the rules in these states, latest first."""

    def rule(self, user: str, prefix: str) -> Rule:
        """Return the rule whose id starts with `prefix`.

        Raise NotFound for none, InputError for several.
        """

    def rule_events(self, user: str, rule_id: str, limit: int) -> list[RuleEvent]:
        """Return the events of a rule, latest first."""

    def session_constraints(self, user: str, session_key: str) -> list[SessionConstraint]:
        """Return the constraints of a session that are not lifted."""


class RuleWrites(RuleReads, Protocol):
    """Changes of actions, rules and constraints."""

    def add_action(self, user: str, action: RecordedAction) -> int:
        """Store an action and return its number."""

    def add_action_reports(self, user: str, reports: Sequence[ActionReport]) -> None:
        """Record which actions a report is about; a second record of one changes nothing."""

    def put_rule(self, user: str, rule: Rule, event: RuleEvent | None = None) -> None:
        """Store a rule in place of the one with its id, and an event."""

    def add_rule_event(self, user: str, event: RuleEvent) -> None:
        """Store an event of a rule."""

    def mark_rule_event_undone(self, user: str, number: int) -> None:
        """Mark an event as undone."""

    def put_session_constraint(self, user: str, constraint: SessionConstraint) -> bool:
        """Store a constraint, or restore a lifted one; return False if it was in force."""

    def lift_session_constraints(
        self, user: str, session_key: str, kinds: Collection[str], at: datetime
    ) -> int:
        """Lift the constraints of these kinds and return their number."""
