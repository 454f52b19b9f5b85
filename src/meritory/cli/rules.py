"""Commands about rules, which warn agents of an action or block it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from meritory.cli.command import command, group, handles, opened, opened_services
from meritory.cli.output import Answer, Field, Fields, RecordView, age, note, number, to_json

if TYPE_CHECKING:
    from meritory.api.memory import Memory

_SHORT_CHARS = 16
_REPLAYED = "{0.alarm_count} of {0.replay_count}"


_RULES = RecordView(
    Field("rule.id", "id", show=lambda name: name[:_SHORT_CHARS], style="cyan"),
    Field("rule.state", "state"),
    Field("trigger", "trigger", lambda view: str(view.rule.trigger), wraps=True),
    Field("rule.report_count", "reports"),
    Field("weight", "weight", lambda view: round(view.weight, 3), number(".1f")),
    Field("", "replay", lambda view: _REPLAYED.format(view.rule)),
    Field("rule.text", "why", wraps=True),
    "rule.project rule.risk reach rule.is_approved rule.replay_count rule.alarm_count",
    "rule.memory_id rule.created_at rule.reported_at rule.expires_at",
)
_EVENTS = RecordView(
    Field("at", "when", show=age, style="dim"),
    Field("", "event", lambda event: event.kind + (" (undone)" if event.is_undone else "")),
    "kind",
    Field("actor", "by"),
    Field("reason", "reason", wraps=True),
    "session_key feedback_id is_undone",
)


@group("rules", "meritory rules --all")
@click.option("--all", "every", is_flag=True, help="Also expired and retired rules.")
@click.option("--project", metavar="NAME", help="Only rules that apply in this project.")
def rules(every: bool, project: str | None) -> Answer:
    """List the rules made from reports.

    A rule is proposed, then warns, then blocks, and steps down again as its reports get older. Each
    step up needs a replay over harmless actions without a false alarm.
    """
    from meritory.engine.rules import book

    with opened(project, quiet=True) as memory:
        views = book.listing(memory.services, memory.scope, every=every)
    return _RULES.answer(views, "there are no rules yet; `meritory feedback down` can make one")


def _detail(memory: Memory, name: str) -> Answer:
    from meritory.engine.rules import book

    view = book.show(memory.services, memory.scope.user, name)
    rule = view.rule
    pairs = [
        ("id", rule.id),
        ("state", rule.state),
        ("trigger", str(rule.trigger)),
        ("why", rule.text),
        ("project", rule.project or "all"),
        ("reports", f"{rule.report_count}, current weight {view.weight:.2f}"),
        ("may go to", view.reach),
        ("replay", f"{_REPLAYED.format(rule)} harmless actions would have matched"),
        ("expires", to_json(rule.expires_at)),
    ]
    if rule.memory_id is not None:
        pairs.append(("memory", handles(memory, [rule.memory_id])[rule.memory_id]))
    plain = {**_RULES.json(view), "events": [_EVENTS.json(event) for event in view.events]}
    return Answer(plain, Fields(pairs), "", *_EVENTS.blocks(view.events))


@command("show", "meritory rules show 01JCA2", parent=rules)
@click.argument("name", metavar="RULE")
def show(name: str) -> Answer:
    """Show one rule with its events."""
    with opened(quiet=True) as memory:
        return _detail(memory, name)


@command(
    "propose",
    'meritory rules propose "shell: git push --force" --why "it overwrites others"',
    parent=rules,
)
@click.argument("trigger")
@click.option("--why", required=True, help="What goes wrong.")
@click.option("--project", metavar="NAME", help="Only in this project.")
def propose(trigger: str, why: str, project: str | None) -> Answer:
    """Propose a rule; it does nothing until it is approved.

    TRIGGER is a tool and a pattern. For a shell: a program and words that must all occur; for
    edit, read and web: a path or address with * for anything.
    """
    from meritory.engine.rules import book

    with opened(project, quiet=True) as memory:
        rule = book.propose(memory.services, memory.scope, trigger, why)
        note(f"`meritory rules approve {rule.id[:_SHORT_CHARS]}` makes it warn, a second one block")
        return _detail(memory, rule.id)


@command("approve", "meritory rules approve 01JCA2", parent=rules)
@click.argument("name", metavar="RULE")
def approve(name: str) -> Answer:
    """Move a rule one step up: from proposed to warns, from warns to blocks.

    Rejected when its trigger matches recorded actions without a complaint.
    """
    from meritory.engine.rules import book

    with opened(quiet=True) as memory:
        rule = book.approve(memory.services, memory.scope.user, name)
        memory.drain()
        return _detail(memory, rule.id)


@command("retire", "meritory rules retire 01JCA2 --why 'it is wanted here'", parent=rules)
@click.argument("name", metavar="RULE")
@click.option("--why", default="", help="Kept with the rule.")
def retire(name: str, why: str) -> Answer:
    """End a rule; reports do not bring it back, `meritory rules undo` does."""
    from meritory.engine.rules import book

    with opened(quiet=True) as memory:
        rule = book.retire(memory.services, memory.scope.user, name, why)
        return _detail(memory, rule.id)


@command("undo", "meritory rules undo 01JCA2", parent=rules)
@click.argument("name", metavar="RULE")
def undo(name: str) -> Answer:
    """Undo the last change of a rule.

    A rule whose step up was undone does not step up again before the next report.
    """
    from meritory.engine.rules import book

    with opened(quiet=True) as memory:
        rule = book.undo(memory.services, memory.scope.user, name)
        return _detail(memory, rule.id)


@command("replay", "meritory rules replay 'shell: git push --force'", parent=rules)
@click.argument("name", metavar="RULE")
@click.option("--project", metavar="NAME", help="Only on actions in this project.")
def replay(name: str, project: str | None) -> Answer:
    """Test a rule, or a trigger that is not a rule yet, on harmless actions.

    Exits with 1 when it matches any of them.
    """
    from meritory.engine.rules import book

    with opened(project, quiet=True) as memory:
        _, trial = book.try_out(memory.services, memory.scope, name)
    line = f"{trial.alarm_count} of {trial.tried_count} harmless actions would match"
    plain = RecordView("tried_count alarm_count examples").json(trial)
    return Answer(plain, line, *trial.examples, code=1 if trial.alarm_count else 0)


@command("lift", "meritory rules lift 7f3c2a", parent=rules)
@click.argument("session_key", metavar="SESSION")
@click.option("--kind", help="Only this kind, e.g. no_push.")
def lift(session_key: str, kind: str | None) -> Answer:
    """Lift the constraints that a report put on a session."""
    from meritory.engine.rules import book

    with opened_services() as (services, user):
        count = book.lift(services, user, session_key, kind)
    return Answer({"lifted": count}, f"{count} lifted")
