"""Commands about feedback: up, down and complete; `feedback_views` has those that read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from meritory.cli import feedback_reports as views
from meritory.cli.context import current_flags, opened, taken_notes
from meritory.cli.options import HELP_NAMES, command, global_options, scope_options
from meritory.cli.output import Answer, Lines
from meritory.cli.render import show_answer
from meritory.domain.codec import record_to_dict
from meritory.domain.errors import InputError
from meritory.text.feedback import SIGNALS, name, polarity

if TYPE_CHECKING:
    from meritory.engine.feedback.capture import Captured

WRONG_USE, FAILED = 2, 1
_GUARDED = {"pass": True, "true": True, "fail": False, "false": False, "unknown": None}


class Thumbs(click.Group):
    """A group in which every spelling of a signal is a command."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        side = None if found else polarity(cmd_name)
        return found if side is None else super().get_command(ctx, name(side))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = str(args[0])
        if self.get_command(ctx, word) is None and not word.startswith("-"):
            known = ", ".join(SIGNALS)
            raise InputError(
                f"{word[:40]!r} is neither a signal nor a command",
                hint=f"signals: {known}; commands: {', '.join(self.list_commands(ctx))}",
            )
        return super().resolve_command(ctx, args)


@click.group(
    "feedback",
    cls=Thumbs,
    invoke_without_command=True,
    context_settings={"help_option_names": list(HELP_NAMES), "max_content_width": 100},
    epilog='\b\nExample:\n  meritory feedback down "It edited the generated file by hand"\n',
)
@click.pass_context
def feedback(ctx: click.Context) -> None:
    """Say what was good or bad about an agent's work.

    What all of it says is summed up by `summary`, `risk` and `list`.

    Every report is kept. What says enough becomes a lesson that later sessions are shown; a
    mistake that is told again strengthens its lesson. 👍, good, thumbs-up and the like are `up`.
    """
    if ctx.invoked_subcommand is None:
        show_answer(views.summary_answer(), current_flags(), taken_notes())


feedback.params += global_options(hidden=True)


# -- reporting --------------------------------------------------------------------------------


def _telling(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of everything that reports."""
    for option in reversed(
        (
            click.option("--wrong", "what_went_wrong", metavar="TEXT", help="What went wrong."),
            click.option("--change", "what_to_change", metavar="TEXT", help="What to do instead."),
            click.option("--worked", "what_worked", metavar="TEXT", help="What worked."),
            click.option("--reasoning", metavar="TEXT", help="Why."),
            click.option("--evidence", "visual_evidence", metavar="TEXT", help="What was seen."),
            click.option("--skill", metavar="NAME", help="The skill that was at work."),
            click.option("--tag", "tags", multiple=True, metavar="WORD", help="A topic."),
            click.option("--tool", metavar="NAME", help="The tool that was used last."),
            click.option("--file", metavar="PATH", help="The file that was worked on last."),
            click.option(
                "--memory", "memory_ids", multiple=True, metavar="ID", help="A memory it is about."
            ),
            click.option(
                "--session", "session_key", metavar="KEY", help="The session it is about."
            ),
            click.option(
                "--score",
                "scores",
                multiple=True,
                metavar="CRITERION=1..5[:EVIDENCE]",
                help="A score of the rubric.",
            ),
            click.option(
                "--guardrail",
                "guardrails",
                multiple=True,
                metavar="NAME=pass|fail|unknown",
                help="Whether a guardrail held.",
            ),
        )
    ):
        function = option(function)
    return function


def _fields(told: dict[str, Any]) -> dict[str, Any]:
    """The options of a command as the fields of a report."""
    action = {key: told.pop(key) for key in ("tool", "file")}
    scores, guardrails = told.pop("scores"), told.pop("guardrails")
    found = {key: list(value) if isinstance(value, tuple) else value for key, value in told.items()}
    if any(action.values()):
        found["last_action"] = {key: value for key, value in action.items() if value}
    if scores:
        found["rubric_scores"] = [_score(one) for one in scores]
    if guardrails:
        found["guardrails"] = dict(map(_guardrail, guardrails))
    return {key: value for key, value in found.items() if value}


def _score(text: str) -> dict[str, Any]:
    criterion, _, rest = text.partition("=")
    number, _, evidence = rest.partition(":")
    try:
        return {"criterion": criterion, "score": float(number), "evidence": evidence}
    except ValueError:
        raise InputError(
            f"{text[:60]!r} is no score", hint="such as --score safety=4:'ran in a sandbox'"
        ) from None


def _guardrail(text: str) -> tuple[str, bool | None]:
    named, _, held = text.partition("=")
    if held.casefold() not in _GUARDED:
        raise InputError(f"{text[:60]!r} is no guardrail", hint="such as --guardrail tests=pass")
    return named, _GUARDED[held.casefold()]


@command(
    "up", 'meritory feedback up "Running the linter before the commit caught the bug" --tag ci'
)
@click.argument("text", required=False, default="")
@_telling
@scope_options
def up(text: str, project: str | None, agent: str | None, **told: Any) -> Answer:
    """Say that something was good.

    TEXT is what it was about; with four words that mean something it is also what worked.
    """
    return _report("up", text, (project, agent), told)


@command("down", 'meritory feedback down "It pushed to main without asking" --change "Ask first"')
@click.argument("text", required=False, default="")
@_telling
@scope_options
def down(text: str, project: str | None, agent: str | None, **told: Any) -> Answer:
    """Say that something was bad.

    TEXT is what it was about; with four words that mean something it is also what went wrong.
    """
    return _report("down", text, (project, agent), told)


def _report(
    signal: str, text: str, scope: tuple[str | None, str | None], told: dict[str, Any]
) -> Answer:
    fields = _fields(told)
    with opened(*scope) as memory:
        found = memory.capture_feedback(signal, text, **fields)
    return _captured(found)


@command("complete", 'meritory feedback complete 01m7 --wrong "It edited the generated file"')
@click.argument("event_id", metavar="ID")
@click.option("--signal", metavar="up|down", help="The signal, for a report that had none.")
@click.option("--context", metavar="TEXT", help="What it was about.")
@_telling
def complete(event_id: str, signal: str | None, context: str | None, **told: Any) -> Answer:
    """Add to a report what it lacked, so that a lesson can be made of it.

    ID is the report's, or the beginning of it.
    """
    fields = _fields({**told, "context": context})
    with opened() as memory:
        found = memory.complete_feedback(event_id, signal, **fields)
    return _captured(found)


def _captured(found: Captured) -> Answer:
    plain = {
        "accepted": found.accepted,
        "status": found.status,
        "reason": found.reason,
        "message": found.message,
        "event": None if found.event is None else views.event_plain(found.event),
        "memory": None if found.memory is None else record_to_dict(found.memory),
        "issues": [asdict(one) for one in found.issues],
        "questions": [asdict(one) for one in found.questions],
        "missing": list(found.missing),
    }
    lines = [f"{views.SHORT_STATUS.get(found.status, found.status)}: {found.message}"]
    if found.memory is not None:
        lines.append(f"lesson {found.memory.id}: {found.memory.content}")
    lines += [
        f"{one.field}: {one.message}" for one in found.issues if one.message not in found.message
    ]
    if found.questions and found.event is not None:
        first = found.questions[0]
        flag = {"what_went_wrong": "wrong", "what_worked": "worked"}.get(first.field, "change")
        lines.append(f'e.g. meritory feedback complete {found.event.id} --{flag} "{first.example}"')
    is_wrong = found.reason in ("unknown_signal", "rubric_malformed")
    code = WRONG_USE if is_wrong else FAILED if found.status == "blocked" else 0
    if found.reason == "not_promoted":
        code = FAILED
    return Answer(plain, [Lines(lines)], code)


for _command in (
    *(up, down, complete, views.list_events, views.show),
    *(views.summary, views.risk, views.pairs, views.contested),
):
    feedback.add_command(_command)
