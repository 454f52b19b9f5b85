"""Commands about feedback: up, down and complete report; list, show, summary, risk, ... read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.command import (
    CommandGroup,
    command,
    given_options,
    group,
    handles,
    limit_option,
    opened,
    scope_options,
)
from meritory.cli.output import (
    Answer,
    Field,
    Fields,
    RecordView,
    age,
    clock_text,
    json_text,
    note,
    number,
    to_json,
)
from meritory.domain.codec import record_to_dict
from meritory.domain.errors import InputError
from meritory.text.feedback import SIGNALS, polarity, polarity_name

if TYPE_CHECKING:
    from meritory.engine.feedback.capture import Captured

WRONG_USE, FAILED = 2, 1
LIST_LIMIT, LIST_LIMIT_MAX = 20, 1_000
STATUSES = ("promoted", "clarification_required", "rejected")
SHORT_STATUS = {"clarification_required": "unclear"}
_EVENTS = RecordView(
    Field("id", "id", style="cyan"),
    Field("at", "age", show=age, style="dim"),
    Field("", "signal", lambda event: polarity_name(event.polarity)),
    Field("", "status", lambda event: SHORT_STATUS.get(event.status, event.status)),
    Field("domain", "domain"),
    Field("", "reports", lambda event: event.occurrence or None),
    Field("quality", "quality", show=number(".2f")),
    Field(
        "",
        "what",
        lambda event: event.what_went_wrong or event.what_worked or event.context,
        wraps=True,
    ),
    whole=True,
)
_CAPTURED = RecordView("accepted status reason message event memory issues questions missing")
_percent = number(".0%")
_RISKS = RecordView(
    Field("id", read=lambda risk: f"{risk.facet}:{risk.name}"),
    Field("facet", "what", style="cyan"),
    Field("name", "name"),
    Field("total", "reports"),
    Field("rate", "failed", show=_percent),
    Field("", "95% interval", lambda risk: f"{risk.low:.0%} to {risk.high:.0%}"),
    Field("base_rate", "base", show=_percent),
    Field("level", "than the rest"),
    whole=True,
)
_APPROVALS = RecordView(
    Field("", "approval", "0", style="cyan"),
    Field("", "rate", "1.rate", _percent),
    Field(
        "",
        "95% interval",
        lambda pair: "-" if pair[1].rate is None else f"{pair[1].low:.0%} to {pair[1].high:.0%}",
    ),
    Field("", "reports", lambda pair: pair[1].positive + pair[1].negative),
)
_DOMAINS = RecordView(
    Field("", "domain", "0", style="cyan"),
    Field("", "reports", "1.total"),
    Field("", "up", "1.positive"),
    Field("", "down", "1.negative"),
)
_GUARDRAILS = {"pass": True, "true": True, "fail": False, "false": False, "unknown": None}


class Thumbs(CommandGroup):
    """A group in which every spelling of a signal is a command."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        side = None if found else polarity(cmd_name)
        return found if side is None else super().get_command(ctx, polarity_name(side))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = str(args[0])
        if self.get_command(ctx, word) is None and not word.startswith("-"):
            commands = ", ".join(self.list_commands(ctx))
            raise InputError(
                f"{word[:40]!r} is neither a signal nor a command",
                hint=f"signals: {', '.join(SIGNALS)}; commands: {commands}",
            )
        return super().resolve_command(ctx, args)


@group(
    "feedback",
    'meritory feedback down "It edited the generated file by hand"',
    default="summary",
    cls=Thumbs,
)
def feedback() -> None:
    """Report good or bad work of an agent.

    `summary`, `risk` and `list` show the reports.

    Every report is stored. One that says enough becomes a lesson that later sessions show; a
    repeated mistake strengthens its lesson. 👍, good, thumbs-up and similar words mean `up`.
    """


# -- reporting ------------------------------------------------------------------------------


# The options of every command that reports: option, field, metavar, help.
_REPORT_OPTIONS = (
    ("--wrong", "what_went_wrong", "TEXT", "What went wrong."),
    ("--change", "what_to_change", "TEXT", "What to do instead."),
    ("--worked", "what_worked", "TEXT", "What worked."),
    ("--reasoning", "reasoning", "TEXT", "Why."),
    ("--evidence", "visual_evidence", "TEXT", "What was seen."),
    ("--skill", "skill", "NAME", "The skill that was used."),
    ("--tag", "tags", "WORD", "A topic."),
    ("--tool", "tool", "NAME", "The last tool that was used."),
    ("--file", "file", "PATH", "The last file that was changed."),
    ("--memory", "memory_ids", "ID", "A memory it is about."),
    ("--session", "session_key", "KEY", "The session it is about."),
    ("--score", "scores", "CRITERION=1..5[:EVIDENCE]", "A score of the rubric."),
    ("--guardrail", "guardrails", "NAME=pass|fail|unknown", "Whether a guardrail held."),
)
_REPEATED = ("tags", "memory_ids", "scores", "guardrails")


def _report_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for name, field, metavar, about in reversed(_REPORT_OPTIONS):
        option = click.option(name, field, metavar=metavar, help=about, multiple=field in _REPEATED)
        function = option(function)
    return function


def _fields(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a command as the fields of a report."""
    action = {key: value for key in ("tool", "file") if (value := options.pop(key))}
    scores, guardrails = [], {}
    for text in options.pop("scores"):
        criterion, _, rest = text.partition("=")
        score, _, evidence = rest.partition(":")
        try:
            scores.append({"criterion": criterion, "score": float(score), "evidence": evidence})
        except ValueError:
            raise InputError(
                f"{text[:60]!r} is not a score", hint="such as --score safety=4:'ran in a sandbox'"
            ) from None
    for text in options.pop("guardrails"):
        guardrail, _, result = text.partition("=")
        if result.casefold() not in _GUARDRAILS:
            raise InputError(
                f"{text[:60]!r} is not a guardrail result", hint="such as --guardrail tests=pass"
            )
        guardrails[guardrail] = _GUARDRAILS[result.casefold()]
    own = {"last_action": action, "rubric_scores": scores, "guardrails": guardrails}
    return {key: value for key, value in (given_options(**options) | own).items() if value}


@command(
    "up",
    'meritory feedback up "Running the linter before the commit caught the bug" --tag ci',
    parent=feedback,
)
@click.argument("text", required=False, default="")
@_report_options
@scope_options
def up(text: str, project: str | None, agent: str | None, **options: Any) -> Answer:
    """Report that something was good.

    TEXT says what it was about; with four meaningful words it also counts as what worked.
    """
    with opened(project, agent) as memory:
        return _captured(memory.capture_feedback("up", text, **_fields(options)))


@command(
    "down",
    'meritory feedback down "It pushed to main without asking" --change "Ask first"',
    parent=feedback,
)
@click.argument("text", required=False, default="")
@_report_options
@scope_options
def down(text: str, project: str | None, agent: str | None, **options: Any) -> Answer:
    """Report that something was bad.

    TEXT says what it was about; with four meaningful words it also counts as what went wrong.
    """
    with opened(project, agent) as memory:
        return _captured(memory.capture_feedback("down", text, **_fields(options)))


@command(
    "complete",
    'meritory feedback complete 01m7 --wrong "It edited the generated file"',
    parent=feedback,
)
@click.argument("event_id", metavar="ID")
@click.option("--signal", metavar="up|down", help="The signal, for a report without one.")
@click.option("--context", metavar="TEXT", help="What it was about.")
@_report_options
def complete(event_id: str, signal: str | None, context: str | None, **options: Any) -> Answer:
    """Add missing details to a report, so that it can become a lesson.

    ID is the report's id, or the beginning of it.
    """
    fields = _fields({**options, "context": context})
    with opened() as memory:
        return _captured(memory.complete_feedback(event_id, signal, **fields))


def _captured(captured: Captured) -> Answer:
    plain = {
        **_CAPTURED.json(captured),
        "memory": None if captured.memory is None else record_to_dict(captured.memory),
    }
    lines = [f"{SHORT_STATUS.get(captured.status, captured.status)}: {captured.message}"]
    if captured.memory is not None:
        lines.append(f"lesson {captured.memory.id}: {captured.memory.content}")
    lines += [
        f"{issue.field}: {issue.message}"
        for issue in captured.issues
        if issue.message not in captured.message
    ]
    if captured.questions and captured.event is not None:
        first = captured.questions[0]
        flag = {"what_went_wrong": "wrong", "what_worked": "worked"}.get(first.field, "change")
        lines.append(
            f'e.g. meritory feedback complete {captured.event.id} --{flag} "{first.example}"'
        )
    code = 0
    if captured.reason in ("unknown_signal", "rubric_malformed"):
        code = WRONG_USE
    elif captured.status == "blocked" or captured.reason == "not_promoted":
        code = FAILED
    return Answer(plain, *lines, code=code)


# -- reading --------------------------------------------------------------------------------


@command(
    "list", "meritory feedback list --signal down --status clarification_required", parent=feedback
)
@click.option("--signal", metavar="up|down", help="Only this signal.")
@click.option("--status", type=click.Choice(STATUSES), help="Only reports in this state.")
@click.option("--domain", metavar="NAME", help="Only this domain.")
@click.option("--project", metavar="NAME", help="Only this project.")
@click.option("--memory", "memory_id", metavar="ID", help="Only reports behind this lesson.")
@click.option("--before", metavar="ID", help="Continue after this report.")
@limit_option(LIST_LIMIT, LIST_LIMIT_MAX)
def list_events(limit: int, memory_id: str | None, **wanted: Any) -> Answer:
    """List reports, latest first."""
    with opened(quiet=True) as memory:
        lesson_id = memory.get(memory_id).id if memory_id else None
        events = memory.feedback_events(limit, memory_id=lesson_id, **wanted)
    is_narrowed = any(wanted.values()) or lesson_id
    return _EVENTS.answer(events, "no matching reports" if is_narrowed else "no reports yet")


@command("show", "meritory feedback show 01m7g6mw", parent=feedback)
@click.argument("event_id", metavar="ID")
def show(event_id: str) -> Answer:
    """Show one report with its diagnosis, its quality and its result."""
    with opened(quiet=True) as memory:
        event = memory.feedback_event(event_id)
    diagnosis, rubric = "", ""
    if event.diagnosis is not None:
        quotes = (f"{one['source']}: {one['quote']}" for one in event.diagnosis["evidence"])
        diagnosis = f"{event.diagnosis['category']} ({'; '.join(quotes)})"
    if event.rubric is not None:
        reasons = "; ".join(event.rubric["reasons"])
        rubric = f"{event.rubric['weighted_score']:.2f}" + (f" ({reasons})" if reasons else "")
    pairs = [
        ("id", event.id),
        ("at", clock_text(event.at)),
        ("signal", f"{polarity_name(event.polarity)} ({event.signal})"),
        ("status", f"{event.status} ({event.reason})"),
        ("project", event.project or ""),
        ("session", event.session_key or ""),
        *((key.replace("_", " "), text) for key, text in event.texts.items()),
        ("tags", ", ".join(event.tags)),
        ("domain", event.domain),
        ("last action", ", ".join(f"{k} {v}" for k, v in (event.last_action or {}).items())),
        ("diagnosis", diagnosis),
        ("rubric", rubric),
        ("quality", f"{event.quality:.2f}"),
        ("memories", ", ".join(event.memory_ids)),
        ("lesson", f"{event.memory_id} (report {event.occurrence})" if event.memory_id else ""),
        ("issues", "; ".join(f"{issue.field}: {issue.message}" for issue in event.issues)),
        ("completed", clock_text(event.completed_at)),
    ]
    return Answer(to_json(event), Fields([pair for pair in pairs if pair[1]]))


@command("summary", "meritory feedback summary", parent=feedback)
def summary() -> Answer:
    """Show all reports in numbers: totals, domains, approval and its trend."""
    with opened(quiet=True) as memory:
        totals = memory.feedback_summary()
    if not totals.total:
        note('no reports yet: `meritory feedback down "..."` or `up` makes one')
    if totals.contested:
        note("`meritory feedback contested` lists the contested memories")
    approval = totals.approval
    pairs = [
        ("reports", f"{totals.total} ({totals.positive} up, {totals.negative} down)"),
        ("lessons", f"{totals.accepted} became or strengthened one"),
        ("waiting", f"{totals.clarification_required} too unclear for one"),
        ("rejected", str(totals.rejected)),
        ("contested", f"{totals.contested} memories"),
        ("last", clock_text(totals.last_updated) or "-"),
    ]
    named = ("overall", "last 20", "7 days", "30 days")
    values = (approval.overall, approval.latest, approval.week, approval.month)
    rates = list(zip(named, values, strict=True))
    domains = sorted(totals.domains.items(), key=lambda pair: -pair[1].total)
    return Answer(
        to_json(totals),
        Fields(pairs),
        _APPROVALS.table(rates),
        f"trend: {approval.trend}",
        *_DOMAINS.blocks(domains),
    )


@command("risk", "meritory feedback risk --days 30", parent=feedback)
@click.option("--days", type=click.IntRange(1, 36_500), help="Only the last N days.")
def risk(days: int | None) -> Answer:
    """Show which tags, tools and domains fail more often than the rest.

    The interval contains the true rate 19 times out of 20; a rate counts as higher only when its
    interval is completely above the rate of all reports. Fewer than 3 reports are left out.
    """
    with opened(quiet=True) as memory:
        risks = memory.feedback_risk(days)
    return _RISKS.answer(risks, "too few reports for a risk: each tag, tool or domain needs three")


@command("pairs", "meritory feedback pairs --json > pairs.json", parent=feedback)
def pairs() -> Answer:
    """Show pairs of right and wrong actions, for preference training (DPO).

    Without --json every pair is one JSON line with prompt, chosen and rejected.
    """
    with opened(quiet=True) as memory:
        records = memory.feedback_pairs()
    if not records:
        note("no pairs yet: a mistake needs --change, or a similar success")
    results = [{"id": pair.negative_id, **to_json(pair)} for pair in records]
    return Answer({"results": results}, *(json_text(result) for result in results))


@command("contested", "meritory feedback contested", parent=feedback)
def contested() -> Answer:
    """Show memories with strong evidence both for and against them.

    They are never dropped automatically: `meritory edit`, `meritory forget`, or another
    `meritory feedback up --memory ID` settles it.
    """
    with opened(quiet=True) as memory:
        records = memory.contested()
        ids = handles(memory, [one.memory.id for one in records])
    view = RecordView(
        Field("memory.id", "id", show=lambda key: ids[key], style="cyan"),
        Field("belief.support", "for", show=number(".1f")),
        Field("belief.doubt", "against", show=number(".1f")),
        Field("belief.usefulness", "usefulness", show=number(".2f")),
        Field("memory.content", "memory", wraps=True),
    )
    return view.answer(records, "no memory is contested")
