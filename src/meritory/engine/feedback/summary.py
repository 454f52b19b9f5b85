"""Summarise all reports: totals, approval and its trend, risks, pairs, contested memories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

from meritory.domain.errors import InputError
from meritory.domain.feedback import Contested, FeedbackEvent, FeedbackQuery, Status
from meritory.domain.world import epoch_days
from meritory.engine.services import Services
from meritory.rank import feedback
from meritory.rank.belief import faded
from meritory.text.feedback import DOWN, UP, content_words, main_text, polarity

# Of each polarity: pairing compares every negative with every positive.
PAIR_EVENTS_LIMIT = 500
CONTESTED_LIMIT = 1_000
_FILTERS = ("domain", "project", "session_key", "memory_id")
_STATUSES = ("promoted", "clarification_required", "rejected")


def make_query(
    limit: int,
    *,
    signal: str | None,
    status: str | None,
    before: str | None,
    fields: Mapping[str, str | None],
) -> FeedbackQuery:
    """Return the query for a page of reports; InputError names the wrong filter."""
    unknown = [name for name in fields if name not in _FILTERS]
    if unknown:
        raise InputError(f"unknown filter of reports: {unknown[0]!r}", hint=", ".join(_FILTERS))
    side = None if signal is None else polarity(signal)
    if signal is not None and side is None:
        raise InputError(f"{str(signal)[:40]!r} is not a signal", hint="up or down")
    if status is not None and status not in _STATUSES:
        raise InputError(
            f"{str(status)[:40]!r} is not the status of a report", hint=", ".join(_STATUSES)
        )
    known = cast("Status | None", status)
    return FeedbackQuery(polarity=side, status=known, before=before, limit=limit, **fields)


@dataclass(frozen=True, slots=True)
class DomainTotals:
    """The reports of one domain."""

    total: int
    positive: int
    negative: int


@dataclass(frozen=True, slots=True)
class Approvals:
    """The approval of all reports, of the latest twenty, of a week and of a month."""

    overall: feedback.Approval
    latest: feedback.Approval
    week: feedback.Approval
    month: feedback.Approval
    trend: feedback.Trend


@dataclass(frozen=True, slots=True)
class Summary:
    """The numbers of all reports."""

    total: int
    positive: int
    negative: int
    # Reports that became or strengthened a lesson, were stored only, or lack fields.
    accepted: int
    rejected: int
    clarification_required: int
    domains: dict[str, DomainTotals]
    approval: Approvals
    contested: int
    last_updated: datetime | None


def summary(services: Services, user: str) -> Summary:
    """Return the numbers of all reports of a user."""
    store, now = services.store, services.world.now()
    counts = store.feedback_counts(user)
    by_status: Counter[str] = Counter()
    by_domain: Counter[str] = Counter()
    by_polarity: Counter[tuple[str, int]] = Counter()
    for row in counts:
        by_status[row.status] += row.count
        by_domain[row.domain] += row.count
        by_polarity[row.domain, row.polarity] += row.count
    domains = {
        name: DomainTotals(by_domain[name], by_polarity[name, UP], by_polarity[name, DOWN])
        for name in sorted(by_domain)
    }
    week = feedback.approval(*store.approvals(user, since=now - timedelta(days=feedback.WEEK_DAYS)))
    month = feedback.approval(
        *store.approvals(user, since=now - timedelta(days=feedback.MONTH_DAYS))
    )
    return Summary(
        total=by_status.total(),
        positive=sum(totals.positive for totals in domains.values()),
        negative=sum(totals.negative for totals in domains.values()),
        accepted=by_status["promoted"],
        rejected=by_status["rejected"],
        clarification_required=by_status["clarification_required"],
        domains=domains,
        approval=Approvals(
            feedback.approval(*store.approvals(user)),
            feedback.approval(*store.approvals(user, limit=feedback.LATEST_COUNT)),
            week,
            month,
            feedback.trend(week, month),
        ),
        contested=len(contested(services, user)),
        last_updated=max((row.last_at for row in counts), default=None),
    )


def risk(services: Services, user: str, days: int | None = None) -> list[feedback.Risk]:
    """Return the tags, tools and domains with the most failures, the most certain first."""
    since = None if days is None else services.world.now() - timedelta(days=days)
    positive, negative = services.store.approvals(user, since=since)
    return feedback.risks(services.store.feedback_tallies(user, since), positive, negative)


def pairs(services: Services, user: str) -> list[feedback.Pair]:
    """Return preference pairs from the latest reports that became lessons."""

    def texts(polarity: int) -> list[feedback.FeedbackText]:
        query = FeedbackQuery(polarity=polarity, status="promoted", limit=PAIR_EVENTS_LIMIT)
        return [_pairing_text(event) for event in services.store.feedback_events(user, query)]

    return feedback.pairs(texts(DOWN), texts(UP))


def _pairing_text(event: FeedbackEvent) -> feedback.FeedbackText:
    text = main_text(event.polarity, event.texts)
    tool = (event.last_action or {}).get("tool")
    context = f"Work on {event.domain}" + (f" with {tool}." if tool else ".")
    return feedback.FeedbackText(
        event.id,
        context if event.context in ("", text) else event.context,
        text,
        event.what_to_change if event.polarity == DOWN else "",
        frozenset(content_words(f"{text} {event.context}")),
        frozenset(event.tags),
    )


def contested(services: Services, user: str) -> list[Contested]:
    """Return the memories with much current evidence on both sides, for a person to decide."""
    today = epoch_days(services.world.now())
    rows = services.store.contested(user, CONTESTED_LIMIT)
    current = [Contested(row.memory, faded(row.belief, today)) for row in rows]
    return [row for row in current if row.belief.is_contested]
