"""What all reports say: list, show, summary, risk, pairs and contested."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.context import handles, note, opened
from meritory.cli.options import command
from meritory.cli.output import Answer, Block, Column, Fields, Lines, Table
from meritory.cli.records import age, clock_text
from meritory.domain.codec import moment_text
from meritory.text.feedback import name

if TYPE_CHECKING:
    from meritory.domain.feedback import FeedbackEvent
    from meritory.rank.feedback import Approval


LIST_LIMIT, LIST_LIMIT_MAX = 20, 1_000
STATUSES = ("promoted", "clarification_required", "rejected")
SHORT_STATUS = {"clarification_required": "unclear"}
_EVENTS = (
    Column("id", "cyan"),
    Column("age", "dim"),
    Column("signal"),
    Column("status"),
    Column("domain"),
    Column("reports"),
    Column("quality"),
    Column("what", wraps=True),
)
_RISKS = (
    Column("what", "cyan"),
    Column("name"),
    Column("reports"),
    Column("failed"),
    Column("95% interval"),
    Column("base"),
    Column("than the rest"),
)


# -- reading ----------------------------------------------------------------------------------


@command("list", "meritory feedback list --signal down --status clarification_required")
@click.option("--signal", metavar="up|down", help="Only these.")
@click.option("--status", type=click.Choice(STATUSES), help="Only reports in this state.")
@click.option("--domain", metavar="NAME", help="Only of this domain.")
@click.option("--project", metavar="NAME", help="Only of this project.")
@click.option("--memory", "memory_id", metavar="ID", help="Only those behind this lesson.")
@click.option("--before", metavar="ID", help="Continue after this report.")
@click.option(
    "--limit",
    type=click.IntRange(1, LIST_LIMIT_MAX),
    default=LIST_LIMIT,
    show_default=True,
    help="How many at most.",
)
def list_events(limit: int, memory_id: str | None, **wanted: Any) -> Answer:
    """List reports, latest first."""
    with opened(quiet=True) as memory:
        whole = memory.get(memory_id).id if memory_id else None
        found = memory.feedback_events(limit, memory_id=whole, **wanted)
        now = memory.services.world.now()
    if not found:
        note("no reports" + (" like these" if any(wanted.values()) or whole else " yet"))
    rows = [
        (
            one.id,
            age(now, one.at),
            name(one.polarity),
            SHORT_STATUS.get(one.status, one.status),
            one.domain,
            str(one.occurrence) if one.occurrence else "-",
            f"{one.quality:.2f}",
            one.what_went_wrong or one.what_worked or one.context,
        )
        for one in found
    ]
    plain = {"results": [event_plain(one) for one in found]}
    return Answer(plain, [Table(_EVENTS, rows)] if rows else [])


@command("show", "meritory feedback show 01m7g6mw")
@click.argument("event_id", metavar="ID")
def show(event_id: str) -> Answer:
    """Show one report with its diagnosis, its quality and what became of it."""
    with opened(quiet=True) as memory:
        event = memory.feedback_event(event_id)
    pairs = [
        ("id", event.id),
        ("at", clock_text(event.at)),
        ("signal", f"{name(event.polarity)} ({event.signal})"),
        ("status", f"{event.status} ({event.reason})"),
        ("project", event.project or ""),
        ("session", event.session_key or ""),
        *((key.replace("_", " "), text) for key, text in event.texts.items()),
        ("tags", ", ".join(event.tags)),
        ("domain", event.domain),
        ("last action", ", ".join(f"{k} {v}" for k, v in (event.last_action or {}).items())),
        ("diagnosis", _diagnosis(event)),
        ("rubric", _rubric(event)),
        ("quality", f"{event.quality:.2f}"),
        ("memories", ", ".join(event.memory_ids)),
        ("lesson", f"{event.memory_id} (report {event.occurrence})" if event.memory_id else ""),
        ("issues", "; ".join(f"{one.field}: {one.message}" for one in event.issues)),
        ("completed", clock_text(event.completed_at)),
    ]
    return Answer(event_plain(event), [Fields([pair for pair in pairs if pair[1]])])


def _diagnosis(event: FeedbackEvent) -> str:
    if event.diagnosis is None:
        return ""
    told = (f"{one['source']}: {one['quote']}" for one in event.diagnosis["evidence"])
    return f"{event.diagnosis['category']} ({'; '.join(told)})"


def _rubric(event: FeedbackEvent) -> str:
    if event.rubric is None:
        return ""
    against = "; ".join(event.rubric["reasons"])
    return f"{event.rubric['weighted_score']:.2f}" + (f" ({against})" if against else "")


def event_plain(event: FeedbackEvent) -> dict[str, Any]:
    """A report as JSON has it."""
    completed = event.completed_at
    return asdict(event) | {
        "at": moment_text(event.at),
        "completed_at": None if completed is None else moment_text(completed),
    }


# -- figures ----------------------------------------------------------------------------------


@command("summary", "meritory feedback summary")
def summary() -> Answer:
    """Show all reports in numbers: totals, domains, approval and where it is heading."""
    return summary_answer()


def summary_answer() -> Answer:
    """All reports in numbers."""
    with opened(quiet=True) as memory:
        found = memory.feedback_summary()
    at = found.last_updated
    plain = asdict(found) | {"last_updated": None if at is None else moment_text(at)}
    if not found.total:
        note('no reports yet: `meritory feedback down "..."` or `up` makes one')
    told = found.approval
    blocks: list[Block] = [
        Fields(
            [
                ("reports", f"{found.total} ({found.positive} up, {found.negative} down)"),
                ("lessons", f"{found.accepted} became or strengthened one"),
                ("waiting", f"{found.clarification_required} too unclear for one"),
                ("rejected", str(found.rejected)),
                ("contested", f"{found.contested} memories"),
                ("last", clock_text(at) or "-"),
            ]
        ),
        Table(
            (Column("approval", "cyan"), Column("rate"), Column("95% interval"), Column("reports")),
            [
                _approval("overall", told.overall),
                _approval("last 20", told.latest),
                _approval("7 days", told.week),
                _approval("30 days", told.month),
            ],
        ),
        Lines([f"trend: {told.trend}"]),
    ]
    rows = [
        (domain, str(one.total), str(one.positive), str(one.negative))
        for domain, one in sorted(found.domains.items(), key=lambda item: -item[1].total)
    ]
    if rows:
        names = (Column("domain", "cyan"), Column("reports"), Column("up"), Column("down"))
        blocks.append(Table(names, rows))
    if found.contested:
        note("`meritory feedback contested` shows what is contested")
    return Answer(plain, blocks)


def _approval(label: str, found: Approval) -> tuple[str, ...]:
    rate = "-" if found.rate is None else f"{found.rate:.0%}"
    interval = "-" if found.rate is None else f"{found.low:.0%} to {found.high:.0%}"
    return label, rate, interval, str(found.positive + found.negative)


@command("risk", "meritory feedback risk --days 30")
@click.option("--days", type=click.IntRange(1, 36_500), help="Only the last so many days.")
def risk(days: int | None) -> Answer:
    """Show which tags, tools and domains fail more often than the rest.

    The interval holds the true rate 19 times out of 20; only one that lies wholly above the rate
    of all reports counts as higher. What has fewer than 3 reports is left out.
    """
    with opened(quiet=True) as memory:
        found = memory.feedback_risk(days)
    if not found:
        note("too few reports for a risk: each tag, tool or domain needs three")
    rows = [
        (
            one.facet,
            one.name,
            str(one.total),
            f"{one.rate:.0%}",
            f"{one.low:.0%} to {one.high:.0%}",
            f"{one.base_rate:.0%}",
            one.level,
        )
        for one in found
    ]
    plain = {"results": [{"id": f"{one.facet}:{one.name}", **asdict(one)} for one in found]}
    return Answer(plain, [Table(_RISKS, rows)] if rows else [])


@command("pairs", "meritory feedback pairs --json > pairs.json")
def pairs() -> Answer:
    """Show pairs of what to do and what not to do, for preference training (DPO).

    Without --json every pair is one JSON line with prompt, chosen and rejected.
    """
    from meritory.cli.render import json_text

    with opened(quiet=True) as memory:
        found = memory.feedback_pairs()
    if not found:
        note("no pairs yet: a mistake needs --change, or a success that is close to it")
    plain = [{"id": one.negative_id, **asdict(one)} for one in found]
    return Answer({"results": plain}, [Lines([json_text(one) for one in plain])])


@command("contested", "meritory feedback contested")
def contested() -> Answer:
    """Show memories with much to be said for them and much against them.

    They are never dropped by themselves: `meritory edit`, `meritory forget`, or another
    `meritory feedback up --memory ID` settles it.
    """
    with opened(quiet=True) as memory:
        found = memory.contested()
        shown = handles(memory, [one.memory.id for one in found])
    if not found:
        note("nothing is contested")
    rows = [
        (
            shown[one.memory.id],
            f"{one.belief.support:.1f}",
            f"{one.belief.doubt:.1f}",
            f"{one.belief.usefulness:.2f}",
            one.memory.content,
        )
        for one in found
    ]
    names = (
        *(Column("id", "cyan"), Column("for"), Column("against"), Column("usefulness")),
        Column("memory", wraps=True),
    )
    plain = {
        "results": [
            {
                "id": one.memory.id,
                "content": one.memory.content,
                "support": one.belief.support,
                "doubt": one.belief.doubt,
                "usefulness": one.belief.usefulness,
            }
            for one in found
        ]
    }
    return Answer(plain, [Table(names, rows)] if rows else [])
