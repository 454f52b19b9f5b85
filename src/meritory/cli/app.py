"""The root command: a table of commands that are only imported when they are called."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

import click
from click.shell_completion import CompletionItem

from meritory.cli import errors
from meritory.cli.context import current_flags
from meritory.cli.options import HELP_NAMES, global_options
from meritory.domain.errors import InputError

BROKEN_PIPE_CODE = 141


class CommandEntry(NamedTuple):
    """A command in the table: what it is called, where it lives and what it does."""

    name: str
    place: str
    summary: str


# A new command is one function in the right file and one line here.
SECTIONS: tuple[tuple[str, tuple[CommandEntry, ...]], ...] = (
    (
        "Memories",
        (
            CommandEntry("remember", "write:remember", "Store a text as a memory."),
            CommandEntry("recall", "search:recall", "Find the memories that answer a query best."),
            CommandEntry("list", "search:list_memories", "List memories, newest first."),
            CommandEntry("show", "search:show", "Show one memory with all its fields."),
            CommandEntry("edit", "write:edit", "Change fields of a memory."),
            CommandEntry("confirm", "write:confirm", "Vouch for a memory that was only proposed."),
            CommandEntry("forget", "write:forget", "Hide memories, or erase them for good."),
        ),
    ),
    (
        "Changes",
        (
            CommandEntry("history", "history:history", "Show every change of a memory."),
            CommandEntry("undo", "history:undo", "Take back the last change of a memory."),
            CommandEntry("merges", "history:merges", "List the latest merges."),
            CommandEntry("split", "history:split", "Take a merge apart again."),
        ),
    ),
    (
        "Structure and figures",
        (
            CommandEntry("entities", "entities:entities", "List what memories are about."),
            CommandEntry(
                "describe", "entities:describe", "Show all that is known about an entity."
            ),
            CommandEntry(
                "stats", "entities:stats", "Count memories, writes, sessions and fallbacks."
            ),
        ),
    ),
    (
        "Sessions",
        (
            CommandEntry(
                "demo",
                "demo:demo",
                "Play a recorded week, then go on until the predictor is heard.",
            ),
            CommandEntry("sessions", "sessions:sessions", "List sessions and what came of them."),
            CommandEntry("pipeline", "sessions:pipeline", "Show every stage of a session."),
        ),
    ),
    (
        "Learning",
        (
            CommandEntry(
                "feedback", "feedback:feedback", "Say what was good or bad about an agent's work."
            ),
            CommandEntry(
                "predictor", "predictor:predictor", "Show and steer the model that learns."
            ),
            CommandEntry("rules", "rules:rules", "List the rules that came of reports."),
            CommandEntry(
                "extraction",
                "extraction:extraction",
                "List what was not kept of finished sessions.",
            ),
            CommandEntry("why", "why:why", "Show every number that put a memory into a session."),
            CommandEntry("backtest", "why:backtest", "Rank your own past sessions again."),
            CommandEntry(
                "eval",
                "meritory.lab.cli:evaluate",
                "Measure how well memories are found, on a copy.",
            ),
        ),
    ),
    (
        "Quality",
        (
            CommandEntry("gate", "gate:gate", "Show what the similarity gate does."),
            CommandEntry("janitor", "janitor:janitor", "Show the upkeep."),
        ),
    ),
    (
        "Agents",
        (
            CommandEntry(
                "connect", "connect:connect", "Put Meritory into an agent's own settings."
            ),
            CommandEntry(
                "disconnect",
                "connect:disconnect",
                "Take Meritory out of an agent's settings again.",
            ),
            CommandEntry("hook", "agents:hook", "Answer one event of an agent's client."),
            CommandEntry("mcp", "agents:mcp", "Serve the memory tools to an agent over stdio."),
        ),
    ),
    (
        "Daemon",
        (
            CommandEntry("up", "daemon:up", "Start the daemon."),
            CommandEntry("down", "daemon:down", "Stop the daemon."),
            CommandEntry(
                "status",
                "daemon:status",
                "Show whether the daemon runs, and how it is.",
            ),
            CommandEntry("dashboard", "dashboard:dashboard", "Open the dashboard in a browser."),
            CommandEntry("top", "top:top", "Watch the daemon at a glance."),
            CommandEntry("api", "daemon:api", "Ask the daemon, starting it when it is down."),
            CommandEntry("token", "token:token", "List the tokens with which others may come in."),
            CommandEntry("jobs", "jobs:jobs", "List the work that is done after sessions."),
        ),
    ),
    (
        "Moving and care",
        (
            CommandEntry("export", "transfer:export", "Write everything as JSON lines."),
            CommandEntry("import", "transfer:import_lines", "Take in what was kept elsewhere."),
            CommandEntry("backup", "doctor:backup", "Copy the store while it stays in use."),
            CommandEntry("restore", "doctor:restore", "Put a backup in the store's place."),
            CommandEntry(
                "migrate", "migrate:migrate", "Move a store into a team's database, or back."
            ),
            CommandEntry("reembed", "doctor:reembed", "Make the vectors that are missing."),
            CommandEntry("doctor", "doctor:doctor", "Check that everything is in order."),
            CommandEntry(
                "telemetry",
                "telemetry:telemetry",
                "Show or change whether numbers about sessions are kept.",
            ),
            CommandEntry("config", "config:config", "Show the settings and where they come from."),
            CommandEntry(
                "completion", "config:completion", "Print the completion script of a shell."
            ),
        ),
    ),
)
EPILOG = """\b
Examples:
  meritory remember "The staging database is called heron"
  meritory recall "what is the staging database called?"
  meritory recall heron --json

\b
Exit codes: 0 done, 1 failed, 2 wrong use, 130 interrupted.
With --json there is exactly one object on stdout, {"error": ...} when it failed.
"""


def entries() -> Iterator[CommandEntry]:
    """Every command of the table."""
    for _, section in SECTIONS:
        yield from section


def _module_name(module: str) -> str:
    return module if module.startswith("meritory.") else f"meritory.cli.{module}"


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports each when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [entry.name for entry in entries()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for entry in entries():
            if entry.name == cmd_name:
                module, _, function = entry.place.partition(":")
                found: click.Command = getattr(import_module(_module_name(module)), function)
                return found
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = str(args[0])
        if name.startswith("-") or name in self.list_commands(ctx):
            return super().resolve_command(ctx, args)
        import difflib

        near = difflib.get_close_matches(name[:40], self.list_commands(ctx), 1)
        raise InputError(
            f"there is no command {name[:40]!r}",
            hint=f"did you mean `meritory {near[0]}`?" if near else "`meritory --help` lists them",
        )

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, section in SECTIONS:
            with formatter.section(title):
                formatter.write_dl([(entry.name, entry.summary) for entry in section])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        own = [
            CompletionItem(entry.name, help=entry.summary)
            for entry in entries()
            if entry.name.startswith(incomplete)
        ]
        return own + click.Command.shell_complete(self, ctx, incomplete)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            made = super().invoke(ctx)
            errors.flush()
            return made
        except BrokenPipeError as error:
            # Under this name click leaves it to us.
            raise errors.ReaderGone from error

    def main(  # type: ignore[override]
        self, args: list[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        """The edge: whatever happens becomes a message and an exit code, never a traceback."""
        given = list(sys.argv[1:] if args is None else args)
        extra.pop("standalone_mode", None)
        errors.prepare_streams()
        try:
            made = super().main(given, "meritory", standalone_mode=False, **extra)
            code = made if isinstance(made, int) else 0
        except errors.ReaderGone:
            errors.hush()
            code = BROKEN_PIPE_CODE
        except Exception as error:
            code = errors.failed(error, as_json=errors.wants_json(given))
        except KeyboardInterrupt:
            code = errors.INTERRUPTED
        sys.exit(code)


def _root(version: bool) -> int:
    """Memory for AI agents that has to earn its place.

    Memories belong to a user and, with --project or --agent, to one project or agent. Without
    --project only memories of no project are seen.
    """
    ctx = click.get_current_context()
    as_json = current_flags().as_json
    if version:
        from meritory import __version__
        from meritory.cli.render import json_text

        click.echo(json_text({"version": __version__}) if as_json else f"meritory {__version__}")
        ctx.exit(0)
    if ctx.invoked_subcommand is None:
        if as_json:
            raise InputError("no command was given", hint="`meritory --help` lists them")
        click.echo(ctx.get_help())
    return 0


APP = LazyGroup(
    name="meritory",
    callback=_root,
    params=[
        *global_options(hidden=False),
        click.Option(["--version"], is_flag=True, help="Print the version and leave."),
    ],
    epilog=EPILOG,
    help=_root.__doc__,
    invoke_without_command=True,
    context_settings={"help_option_names": list(HELP_NAMES), "max_content_width": 100},
)
