"""Rules over the wire: what is asked and answered about them, and what the guard is told."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from meritory.domain.codec import moment_text
from meritory.domain.rule import RuleEvent, SessionConstraint, State
from meritory.engine.rules.book import RuleView
from meritory.engine.rules.guard import GuardVerdict
from meritory.engine.rules.status import Replay
from meritory.server.schemas.sessions import Hook, SessionKey
from meritory.server.table import Scoped

ToolName = Annotated[str, Meta(min_length=1, max_length=256)]


class PreTool(Hook, kw_only=True):
    """A tool is about to be called; `tool_input` is what the client hands to it."""

    tool_name: ToolName
    tool_input: Any = None


class VerdictOut(msgspec.Struct):
    """Whether the tool may be called; the reason is for the agent."""

    decision: str
    reason: str
    rule: str | None
    constraint: str | None

    @classmethod
    def of(cls, verdict: GuardVerdict) -> VerdictOut:
        """The guard's word, for the wire."""
        return cls(verdict.decision, verdict.reason, verdict.rule_id, verdict.constraint)


class RulesQuery(Scoped, kw_only=True):
    """Which rules; `every` also those that are over."""

    every: bool = False


class Proposal(Scoped, kw_only=True):
    """A rule that somebody wants: a trigger as TOOL: PATTERN, and why."""

    trigger: Annotated[str, Meta(min_length=3, max_length=400)]
    why: Annotated[str, Meta(min_length=1, max_length=300)]


class Named(Scoped, kw_only=True):
    """Whose rule it is, and why something is done with it."""

    why: str = ""


class Lift(Scoped, kw_only=True):
    """The session whose constraints are lifted; all of them without a kind."""

    session_key: SessionKey
    kind: str | None = None


class LiftedOut(msgspec.Struct):
    """How many constraints were lifted."""

    lifted: int


class RuleEventOut(msgspec.Struct):
    """Something that happened to a rule."""

    at: str
    kind: str
    reason: str
    actor: str
    session_key: str | None
    feedback_id: str | None
    is_undone: bool

    @classmethod
    def of(cls, event: RuleEvent) -> RuleEventOut:
        """An event, for the wire."""
        return cls(
            moment_text(event.at),
            event.kind,
            event.reason,
            event.actor,
            event.session_key,
            event.feedback_id,
            event.is_undone,
        )


class RuleOut(msgspec.Struct):
    """A rule as it stands now."""

    id: str
    state: State
    trigger: str
    text: str
    project: str | None
    weight: float
    report_count: int
    risk: int
    reach: State
    is_approved: bool
    replay_count: int
    alarm_count: int
    memory_id: str | None
    created_at: str
    reported_at: str | None
    expires_at: str
    events: list[RuleEventOut]

    @classmethod
    def of(cls, view: RuleView) -> RuleOut:
        """A rule, for the wire."""
        rule = view.rule
        return cls(
            id=rule.id,
            state=rule.state,
            trigger=str(rule.trigger),
            text=rule.text,
            project=rule.project,
            weight=round(view.weight, 3),
            report_count=rule.report_count,
            risk=rule.risk,
            reach=view.reach,
            is_approved=rule.is_approved,
            replay_count=rule.replay_count,
            alarm_count=rule.alarm_count,
            memory_id=rule.memory_id,
            created_at=moment_text(rule.created_at),
            reported_at=None if rule.reported_at is None else moment_text(rule.reported_at),
            expires_at=moment_text(rule.expires_at),
            events=[RuleEventOut.of(event) for event in view.events],
        )


class RulesOut(msgspec.Struct):
    """Rules, those that block first."""

    results: list[RuleOut]


class ReplayOut(msgspec.Struct):
    """How many harmless actions were tried, and on how many the trigger would have acted."""

    tried_count: int
    alarm_count: int
    examples: list[str]

    @classmethod
    def of(cls, replay: Replay) -> ReplayOut:
        """A replay, for the wire."""
        return cls(replay.tried_count, replay.alarm_count, list(replay.examples))


class ConstraintOut(msgspec.Struct):
    """What a session must keep to."""

    kind: str
    argument: str
    said: str
    at: str

    @classmethod
    def of(cls, constraint: SessionConstraint) -> ConstraintOut:
        """A constraint, for the wire."""
        at = moment_text(constraint.at)
        return cls(constraint.kind, constraint.argument, constraint.said, at)


class ConstraintsQuery(Scoped, kw_only=True):
    """Of which session."""

    session_key: SessionKey


class ConstraintsOut(msgspec.Struct):
    """What a session must keep to, all of it."""

    results: list[ConstraintOut]
