"""The front door's verbs about feedback, embedded; `meritory.remote.feedback` has their twins."""

from __future__ import annotations

from typing import Any

from meritory.errors import InputError
from meritory.flow import feedback as capturing
from meritory.flow import feedback_summary
from meritory.flow.feedback import Captured
from meritory.flow.feedback_summary import Summary
from meritory.flow.reports import Report
from meritory.flow.services import Services
from meritory.rank.feedback.pairs import Pair
from meritory.rank.feedback.risk import Risk
from meritory.store.feedback import Contested, FeedbackEvent, FeedbackQuery
from meritory.text.feedback.signals import polarity
from meritory.types import Scope

PAGE_LIMIT_MAX = 1_000


class FeedbackVerbs:
    """What a person or an agent says about the work, and what all of it together says."""

    scope: Scope
    _services: Services

    def capture_feedback(self, signal: str, context: str = "", **fields: Any) -> Captured:
        """Keeps a thumbs up or down; what says enough becomes a lesson, or strengthens one.

        Fields: what_went_wrong, what_to_change, what_worked, tags, rubric_scores, guardrails,
        last_action, reasoning, visual_evidence, skill, memory_ids, session_key, origin.
        """
        report = Report(signal, {"context": context, **fields})
        return capturing.capture(self._services, self.scope, report)

    # The short name, for programs.
    feedback = capture_feedback

    def complete_feedback(
        self, event_id: str, signal: str | None = None, **fields: Any
    ) -> Captured:
        """Adds to a report what it lacked; it is decided about anew."""
        named = _checked_id(event_id)
        return capturing.complete(self._services, self.scope, named, Report(signal, fields))

    def feedback_events(
        self,
        limit: int = 50,
        *,
        signal: str | None = None,
        status: str | None = None,
        before: str | None = None,
        **wanted: str | None,
    ) -> list[FeedbackEvent]:
        """A page of reports, latest first; also by domain, project, session_key, memory_id."""
        query = feedback_query(
            limit, {"signal": signal, "status": status, "before": before} | wanted
        )
        return self._services.store.feedback_events(self.scope.user, query)

    def feedback_event(self, event_id: str) -> FeedbackEvent:
        """The report with this id, or the only one whose id starts so."""
        return self._services.store.feedback_event(self.scope.user, _checked_id(event_id))

    def feedback_summary(self) -> Summary:
        """All reports in numbers: totals, domains, approval and its trend."""
        return feedback_summary.summary(self._services, self.scope.user)

    def feedback_risk(self, days: int | None = None) -> list[Risk]:
        """Which tags, tools and domains fail more often than the rest, with intervals."""
        if days is not None and (not isinstance(days, int) or not 1 <= days <= 36_500):
            raise InputError(f"days must be a whole number from 1 to 36500, not {days!r}")
        return feedback_summary.risk(self._services, self.scope.user, days)

    def feedback_pairs(self) -> list[Pair]:
        """Pairs of what to do and what not to do, for preference training."""
        return feedback_summary.pairs(self._services, self.scope.user)

    def contested(self) -> list[Contested]:
        """Memories with much for and much against them, for a person to review."""
        return feedback_summary.contested(self._services, self.scope.user)


_WANTED = ("domain", "project", "session_key", "memory_id")
_STATUSES = ("promoted", "clarification_required", "rejected")


def feedback_query(limit: int, wanted: dict[str, Any]) -> FeedbackQuery:
    """Which reports are wanted, checked."""
    told = dict(wanted)
    signal, status, before = (told.pop(name, None) for name in ("signal", "status", "before"))
    unknown = [name for name in told if name not in _WANTED]
    if unknown:
        raise InputError(f"reports are not found by {unknown[0]!r}", hint=", ".join(_WANTED))
    if not isinstance(limit, int) or not 1 <= limit <= PAGE_LIMIT_MAX:
        raise InputError(f"limit must be a whole number from 1 to {PAGE_LIMIT_MAX}, not {limit!r}")
    side = None if signal is None else polarity(signal)
    if signal is not None and side is None:
        raise InputError(f"{str(signal)[:40]!r} is no signal", hint="up or down")
    if status is not None and status not in _STATUSES:
        raise InputError(f"no report is {str(status)[:40]!r}", hint=", ".join(_STATUSES))
    return FeedbackQuery(polarity=side, status=status, before=before, limit=limit, **told)


def _checked_id(event_id: object) -> str:
    if isinstance(event_id, str):
        return event_id
    raise InputError(f"an id is text, not {type(event_id).__name__}")
