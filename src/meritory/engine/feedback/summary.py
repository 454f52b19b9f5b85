"""What all reports say together: totals, approval and its trend, risk, pairs, contests."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta

from meritory.domain.feedback import Contested, FeedbackEvent, FeedbackQuery
from meritory.engine.learning.job import day_of
from meritory.engine.services import Services
from meritory.rank import feedback as pairing
from meritory.rank.belief import faded
from meritory.rank.feedback import (
    LATEST_COUNT,
    MONTH_DAYS,
    WEEK_DAYS,
    Approval,
    Trend,
    approval,
    trend,
)
from meritory.rank.risk import Risk, risks
from meritory.text import feedback
from meritory.text.feedback import content_words, main_text

# Of each side; pairing compares every negative with every positive.
PAIR_EVENTS_LIMIT = 500


@dataclass(frozen=True, slots=True)
class DomainTotals:
    """The reports of one domain."""

    total: int
    positive: int
    negative: int


@dataclass(frozen=True, slots=True)
class Approvals:
    """How much of it is approval: of all, of the latest twenty, of a week and a month."""

    overall: Approval
    latest: Approval
    week: Approval
    month: Approval
    trend: Trend


@dataclass(frozen=True, slots=True)
class Summary:
    """All reports in numbers."""

    total: int
    positive: int
    negative: int
    # Became or strengthened a lesson; was kept without one; waits to be completed.
    accepted: int
    rejected: int
    clarification_required: int
    domains: dict[str, DomainTotals]
    approval: Approvals
    contested: int
    last_updated: datetime | None


def summary(services: Services, user: str) -> Summary:
    """All reports of a user in numbers."""
    counts = services.store.feedback_counts(user)
    by_status: Counter[str] = Counter()
    sides: Counter[tuple[str, int]] = Counter()
    for one in counts:
        by_status[one.status] += one.count
        sides[one.domain, one.polarity] += one.count
    domains = {
        name: DomainTotals(
            sum(many for (domain, _), many in sides.items() if domain == name),
            sides[name, feedback.UP],
            sides[name, feedback.DOWN],
        )
        for name in sorted({one.domain for one in counts})
    }
    return Summary(
        total=by_status.total(),
        positive=sum(one.positive for one in domains.values()),
        negative=sum(one.negative for one in domains.values()),
        accepted=by_status["promoted"],
        rejected=by_status["rejected"],
        clarification_required=by_status["clarification_required"],
        domains=domains,
        approval=_approvals(services, user),
        contested=len(contested(services, user)),
        last_updated=max((one.last_at for one in counts), default=None),
    )


def _approvals(services: Services, user: str) -> Approvals:
    store, now = services.store, services.world.now()
    week = approval(*store.approvals(user, since=now - timedelta(days=WEEK_DAYS)))
    month = approval(*store.approvals(user, since=now - timedelta(days=MONTH_DAYS)))
    return Approvals(
        approval(*store.approvals(user)),
        approval(*store.approvals(user, limit=LATEST_COUNT)),
        week,
        month,
        trend(week, month),
    )


def risk(services: Services, user: str, days: int | None = None) -> list[Risk]:
    """Which tags, tools and domains fail more often than the rest, what is surest first."""
    since = None if days is None else services.world.now() - timedelta(days=days)
    positive, negative = services.store.approvals(user, since=since)
    return risks(services.store.feedback_tallies(user, since), positive, negative)


def pairs(services: Services, user: str) -> list[pairing.Pair]:
    """Pairs of what to do and what not to do, out of the latest reports that became lessons."""
    sides = [
        [
            _for_pairing(event)
            for event in services.store.feedback_events(
                user, FeedbackQuery(polarity=side, status="promoted", limit=PAIR_EVENTS_LIMIT)
            )
        ]
        for side in (feedback.DOWN, feedback.UP)
    ]
    return pairing.pairs(*sides)


def _for_pairing(event: FeedbackEvent) -> pairing.FeedbackText:
    text = main_text(event.polarity, event.texts)
    tool = (event.last_action or {}).get("tool")
    place = f"Work on {event.domain}" + (f" with {tool}." if tool else ".")
    return pairing.FeedbackText(
        event.id,
        place if event.context in ("", text) else event.context,
        text,
        event.what_to_change if event.polarity == feedback.DOWN else "",
        frozenset(content_words(f"{text} {event.context}")),
        frozenset(event.tags),
    )


CONTESTED_LIMIT = 1_000


def contested(services: Services, user: str, limit: int = CONTESTED_LIMIT) -> list[Contested]:
    """Memories with much for and much against them, as it weighs today; a person should look."""
    today = day_of(services.world.now())
    found = services.store.contested(user, limit)
    return [
        Contested(one.memory, faded(one.belief, today))
        for one in found
        if faded(one.belief, today).is_contested
    ]
