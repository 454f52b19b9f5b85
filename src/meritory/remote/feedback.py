"""The verbs about feedback at a daemon."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from meritory.flow.feedback import Captured
from meritory.flow.feedback_summary import Summary
from meritory.rank.feedback.pairs import Pair
from meritory.rank.feedback.risk import Risk
from meritory.store.feedback import Contested, FeedbackEvent


class RemoteFeedback(ABC):
    """What a person or an agent says about the work, told to a daemon."""

    @abstractmethod
    def _did(self, verb: str, kind: Any, /, **arguments: Any) -> Any:
        """Lets the daemon do something, and returns what it says as a value of a kind."""

    def capture_feedback(self, signal: str, context: str = "", **fields: Any) -> Captured:
        """Keeps a thumbs up or down; what says enough becomes a lesson, or strengthens one."""
        found: Captured = self._did(
            "capture-feedback", Captured, signal=signal, context=context, **fields
        )
        return found

    feedback = capture_feedback

    def complete_feedback(
        self, event_id: str, signal: str | None = None, **fields: Any
    ) -> Captured:
        """Adds to a report what it lacked; it is decided about anew."""
        found: Captured = self._did(
            "complete-feedback", Captured, event_id=event_id, signal=signal, **fields
        )
        return found

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
        asked = {"limit": limit, "signal": signal, "status": status, "before": before, **wanted}
        found: list[FeedbackEvent] = self._did("feedback-events", list[FeedbackEvent], **asked)
        return found

    def feedback_event(self, event_id: str) -> FeedbackEvent:
        """The report with this id, or the only one whose id starts so."""
        found: FeedbackEvent = self._did("feedback-event", FeedbackEvent, event_id=event_id)
        return found

    def feedback_summary(self) -> Summary:
        """All reports in numbers: totals, domains, approval and its trend."""
        found: Summary = self._did("feedback-summary", Summary)
        return found

    def feedback_risk(self, days: int | None = None) -> list[Risk]:
        """Which tags, tools and domains fail more often than the rest, with intervals."""
        found: list[Risk] = self._did("feedback-risk", list[Risk], days=days)
        return found

    def feedback_pairs(self) -> list[Pair]:
        """Pairs of what to do and what not to do, for preference training."""
        found: list[Pair] = self._did("feedback-pairs", list[Pair])
        return found

    def contested(self) -> list[Contested]:
        """Memories with much for and much against them, for a person to review."""
        found: list[Contested] = self._did("contested", list[Contested])
        return found
