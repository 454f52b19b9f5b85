"""Feedback, the rules made from it, and quality: refusals, audits, counts and retention."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

from meritory.domain.feedback import (
    Belief,
    Contested,
    FeedbackCount,
    FeedbackEvent,
    FeedbackQuery,
    Lesson,
    Testimony,
)
from meritory.domain.memory import Scope
from meritory.domain.quality import (
    Carried,
    Keepsake,
    MergeVerdict,
    Refusal,
    Retrieval,
    ShownLately,
    WeekOutcome,
)
from meritory.domain.rule import (
    ActionQuery,
    ActionReport,
    RecordedAction,
    Rule,
    RuleEvent,
    SessionConstraint,
    State,
)
from meritory.rank.feedback import RiskTally

R = TypeVar("R", bound=Carried)


class FeedbackReads(Protocol):
    """Reads of reports, lessons and beliefs."""

    def feedback_event(self, user: str, prefix: str) -> FeedbackEvent:
        """Return the report whose id starts with `prefix`.

        Raise NotFound for none, InputError for several.
        """

    def feedback_events(self, user: str, query: FeedbackQuery) -> list[FeedbackEvent]:
        """Return a page of reports, latest first."""

    def feedback_counts(self, user: str) -> list[FeedbackCount]:
        """Return the number of reports by domain, polarity and status."""

    def approvals(
        self, user: str, *, since: datetime | None = None, limit: int | None = None
    ) -> tuple[int, int]:
        """Return how many reports are positive and negative, among the latest `limit`."""

    def feedback_tallies(self, user: str, since: datetime | None) -> list[RiskTally]:
        """Return positive and negative reports by tag, tool and domain."""

    def lesson_for(self, scope: Scope, fingerprint: str) -> str | None:
        """Return the memory of a wording in exactly this scope."""

    def lessons(self, user: str, memory_ids: Sequence[str]) -> dict[str, Lesson]:
        """Return the lessons among these memories, by memory id."""

    def testimony(self, user: str, memory_ids: Sequence[str]) -> dict[str, list[Testimony]]:
        """Return the latest testimony of reports on memories, by memory id."""

    def contested(self, user: str, limit: int) -> list[Contested]:
        """Return live memories with a contested claim, newest first."""


class FeedbackWrites(Protocol):
    """Changes of reports, lessons and beliefs."""

    def add_feedback(self, event: FeedbackEvent) -> None:
        """Store a new report."""

    def replace_feedback(self, event: FeedbackEvent) -> None:
        """Replace the report with this id."""

    def put_wording(self, scope: Scope, fingerprint: str, memory_id: str) -> None:
        """Map a wording to a memory."""

    def count_report(self, user: str, memory_id: str, polarity: int, at: datetime) -> int:
        """Count one more report of a lesson and return the number of its reports."""

    def add_testimony(
        self, user: str, feedback_id: str, said: Mapping[str, Testimony]
    ) -> dict[str, list[Testimony]]:
        """Store the testimony of a report and return the latest testimony on each memory."""

    def put_beliefs(self, user: str, beliefs: Mapping[str, Belief]) -> None:
        """Store the beliefs in memories in place of the former ones."""


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


class QualityReads(Protocol):
    """Reads of refusals, audits and counts, also within a transaction."""

    def refusals(self, user: str, limit: int, offset: int = 0) -> list[Refusal]:
        """Return the refusals that were not restored, latest first."""

    def refusal(self, user: str, prefix: str) -> Refusal:
        """Return the refusal whose id starts with `prefix`.

        Raise NotFound for none, InputError for several.
        """

    def retrievals(self, user: str, memory_ids: Sequence[str]) -> dict[str, Retrieval]:
        """Return the retrieval counts of memories, by memory id."""

    def merge_audits(self, user: str) -> dict[int, MergeVerdict]:
        """Return the verdicts of people on merges, by history entry."""

    def gate_outcomes(self, user: str, since: datetime) -> list[WeekOutcome]:
        """Return the outcomes of writes per week, from the latest history entries."""

    def shown_lately(self, user: str, session_limit: int) -> ShownLately:
        """Return the memories that the latest sessions were shown."""

    def session_counts(self, user: str, since: datetime) -> dict[Scope, int]:
        """Return how many sessions began in each scope since a moment."""

    def expirable(self, user: str, what: Keepsake, before: datetime) -> int:
        """Return how many rows an `expire` without limit would erase."""

    def carried(self, user: str, kind: type[R]) -> list[R]:
        """Return all export rows of one kind, in a fixed order."""


class QualityWrites(QualityReads, Protocol):
    """Changes of refusals, audits and counts."""

    def put_refusals(self, refusals: Sequence[Refusal]) -> None:
        """Store refusals in place of those with their ids."""

    def mark_restored(self, user: str, refusal_id: str, memory_id: str) -> None:
        """Record the memory that was made from a refusal."""

    def add_retrievals(self, user: str, counts: Mapping[str, int], at: datetime) -> None:
        """Add to the retrieval counts of memories; ignore unknown ids."""

    def put_merge_audit(self, user: str, entry: int, verdict: MergeVerdict, at: datetime) -> None:
        """Store the verdict of a person on a merge in place of the former one."""

    def expire(self, user: str, what: Keepsake, before: datetime, limit: int) -> int:
        """Erase up to `limit` older rows, oldest first, and return their number."""

    def carry(self, user: str, rows: Sequence[Carried]) -> None:
        """Insert export rows; rows that exist stay unchanged."""
