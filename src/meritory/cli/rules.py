"""Commands about rules: what agents are warned of or kept from, and why."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.context import current_flags, handles, note, opened, taken_notes
from meritory.cli.options import HELP_NAMES, command, global_options
from meritory.cli.output import Answer, Block, Column, Fields, Lines, Table
from meritory.cli.records import age
from meritory.cli.render import show_answer
from meritory.domain.codec import moment_text

if TYPE_CHECKING:
    from meritory.api.memory import Memory
    from meritory.domain.rule import Rule
    from meritory.engine.rules.book import RuleView

_COLUMNS = (
    Column("id", "cyan"),
    Column("state"),
    Column("trigger", wraps=True),
    Column("reports"),
    Column("weight"),
    Column("replay"),
    Column("why", wraps=True),
)
_EVENTS = (Column("when", "dim"), Column("what"), Column("by"), Column("reason", wraps=True))
_SHORT_CHARS = 16


@click.group(
    "rules",
    invoke_without_command=True,
    context_settings={"help_option_names": list(HELP_NAMES), "max_content_width": 100},
    epilog="\b\nExample:\n  meritory rules --all\n",
)
@click.option("--all", "every", is_flag=True, help="Also those that are expired or retired.")
@click.option("--project", metavar="NAME", help="Only those that this project is under.")
@click.pass_context
def rules(ctx: click.Context, every: bool, project: str | None) -> None:
    """List the rules that came of reports.

    A rule is proposed, then warns, then blocks, and comes down again as its reports fade. Each step
    up needs a replay of harmless actions without an alarm.
    """
    if ctx.invoked_subcommand is None:
        show_answer(_listing(every, project), current_flags(), taken_notes())


# A group has no answer of its own, so it is no `Command`, but it takes the same options.
rules.params += global_options(hidden=True)


def _listing(every: bool, project: str | None) -> Answer:
    from meritory.engine.rules import book

    with opened(project, quiet=True) as memory:
        found = book.listing(memory.services, memory.scope, every=every)
    if not found:
        note("there are no rules; they come of reports, `meritory feedback down` makes one")
    return Answer({"results": [_plain(view) for view in found]}, _table(found))


def _table(found: Sequence[RuleView]) -> list[Block]:
    rows = [
        (
            view.rule.id[:_SHORT_CHARS],
            view.rule.state,
            str(view.rule.trigger),
            str(view.rule.report_count),
            f"{view.weight:.1f}",
            _replayed(view.rule),
            view.rule.text,
        )
        for view in found
    ]
    return [Table(_COLUMNS, rows)] if rows else []


def _replayed(rule: Rule) -> str:
    return f"{rule.alarm_count} of {rule.replay_count}"


def _plain(view: RuleView) -> dict[str, Any]:
    rule = view.rule
    return {
        "id": rule.id,
        "state": rule.state,
        "trigger": str(rule.trigger),
        "text": rule.text,
        "project": rule.project,
        "weight": round(view.weight, 3),
        "report_count": rule.report_count,
        "risk": rule.risk,
        "reach": view.reach,
        "is_approved": rule.is_approved,
        "replay_count": rule.replay_count,
        "alarm_count": rule.alarm_count,
        "memory_id": rule.memory_id,
        "created_at": moment_text(rule.created_at),
        "reported_at": None if rule.reported_at is None else moment_text(rule.reported_at),
        "expires_at": moment_text(rule.expires_at),
    }


def _shown(memory: Memory, name: str) -> Answer:
    from meritory.engine.rules import book

    view = book.show(memory.services, memory.scope.user, name)
    now = memory.services.world.now()
    rule = view.rule
    pairs = [
        ("id", rule.id),
        ("state", rule.state),
        ("trigger", str(rule.trigger)),
        ("why", rule.text),
        ("project", rule.project or "everywhere"),
        ("reports", f"{rule.report_count}, weighing {view.weight:.2f} by now"),
        ("may go to", view.reach),
        ("replay", f"{_replayed(rule)} harmless actions would have been in its way"),
        ("expires", moment_text(rule.expires_at)),
    ]
    if rule.memory_id is not None:
        pairs.append(("memory", handles(memory, [rule.memory_id])[rule.memory_id]))
    plain = {**_plain(view), "events": [_event(event) for event in view.events]}
    return Answer(plain, [Fields(pairs), Lines([""]), *_history(view, now)])


def _event(event: Any) -> dict[str, Any]:
    return {
        "at": moment_text(event.at),
        "kind": event.kind,
        "reason": event.reason,
        "actor": event.actor,
        "session_key": event.session_key,
        "feedback_id": event.feedback_id,
        "is_undone": event.is_undone,
    }


def _history(view: RuleView, now: datetime) -> list[Block]:
    rows = [
        (
            age(now, event.at),
            event.kind + (" (undone)" if event.is_undone else ""),
            event.actor,
            event.reason,
        )
        for event in view.events
    ]
    return [Table(_EVENTS, rows)] if rows else []


@command("show", "meritory rules show 01JCA2")
@click.argument("name", metavar="RULE")
def show(name: str) -> Answer:
    """Show one rule with everything that happened to it."""
    with opened(quiet=True) as memory:
        return _shown(memory, name)


@command("propose", 'meritory rules propose "shell: git push --force" --why "it overwrites others"')
@click.argument("trigger")
@click.option("--why", required=True, help="What goes wrong.")
@click.option("--project", metavar="NAME", help="Only in this project.")
def propose(trigger: str, why: str, project: str | None) -> Answer:
    """Propose a rule; it does nothing until it is approved.

    TRIGGER is a tool and a pattern. For a shell: a program and words that must all be there; for
    edit, read and web: a path or address with * for anything.
    """
    from meritory.engine.rules import book

    with opened(project, quiet=True) as memory:
        rule = book.propose(memory.services, memory.scope, trigger, why)
        note(f"`meritory rules approve {rule.id[:_SHORT_CHARS]}` lets it warn, and once more block")
        return _shown(memory, rule.id)


@command("approve", "meritory rules approve 01JCA2")
@click.argument("name", metavar="RULE")
def approve(name: str) -> Answer:
    """Let a rule take one step up: from proposed to warns, from warns to blocks.

    Refused when its trigger fits recorded actions that nobody minded.
    """
    from meritory.engine.rules import book

    with opened(quiet=True) as memory:
        rule = book.approve(memory.services, memory.scope.user, name)
        memory.drain()
        return _shown(memory, rule.id)


@command("retire", "meritory rules retire 01JCA2 --why 'it is wanted here'")
@click.argument("name", metavar="RULE")
@click.option("--why", default="", help="Kept with the rule.")
def retire(name: str, why: str) -> Answer:
    """End a rule; reports do not bring it back, `meritory rules undo` does."""
    from meritory.engine.rules import book

    with opened(quiet=True) as memory:
        rule = book.retire(memory.services, memory.scope.user, name, why)
        return _shown(memory, rule.id)


@command("undo", "meritory rules undo 01JCA2")
@click.argument("name", metavar="RULE")
def undo(name: str) -> Answer:
    """Take the last change of a rule back.

    A rule whose step up was taken back does not step up again before the next report.
    """
    from meritory.engine.rules import book

    with opened(quiet=True) as memory:
        rule = book.undo(memory.services, memory.scope.user, name)
        return _shown(memory, rule.id)


@command("replay", "meritory rules replay 'shell: git push --force'")
@click.argument("name", metavar="RULE")
@click.option("--project", metavar="NAME", help="Only on actions in this project.")
def replay(name: str, project: str | None) -> Answer:
    """Try a rule, or a trigger that is only thought of, on actions that nobody minded.

    Ends with 1 when it would have been in the way of any.
    """
    from meritory.engine.rules import book

    with opened(project, quiet=True) as memory:
        _, found = book.try_out(memory.services, memory.scope, name)
    plain = {
        "tried_count": found.tried_count,
        "alarm_count": found.alarm_count,
        "examples": list(found.examples),
    }
    lines = [f"{found.alarm_count} of {found.tried_count} harmless actions would be in its way"]
    return Answer(plain, [Lines([*lines, *found.examples])], 1 if found.alarm_count else 0)


@command("lift", "meritory rules lift 7f3c2a")
@click.argument("session_key", metavar="SESSION")
@click.option("--kind", help="Only this kind, e.g. no_push.")
def lift(session_key: str, kind: str | None) -> Answer:
    """Lift what a session must keep to because it was said in a report."""
    from meritory.engine.rules import constraints

    with opened(quiet=True) as memory:
        count = constraints.lift(memory.services, memory.scope.user, session_key, kind)
    return Answer({"lifted": count}, [Lines([f"{count} lifted"])])


for _command in (show, propose, approve, retire, undo, replay, lift):
    rules.add_command(_command)
