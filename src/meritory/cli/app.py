"""The root command: a table of commands, each imported when it is called."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

import click
from click.shell_completion import CompletionItem

from meritory.cli import errors
from meritory.cli.command import CONTEXT_SETTINGS, CommandGroup
from meritory.cli.output import current_flags, json_text
from meritory.domain.errors import InputError


class CommandEntry(NamedTuple):
    """A command in the table: its name, its `module:function` and a summary."""

    name: str
    location: str
    summary: str


# A new command is one function in the right file and one line here.
_TABLE = {
    "Memories": (
        ("remember", "memories:remember", "Store a text as a memory."),
        ("recall", "recall:recall", "Find the memories that answer a query best."),
        ("list", "memories:list_memories", "List memories, newest first."),
        ("show", "memories:show", "Show one memory with all its fields."),
        ("edit", "memories:edit", "Change fields of a memory."),
        ("confirm", "memories:confirm", "Confirm a memory that was only proposed."),
        ("proposals", "proposals:proposals", "Review proposed pins and constraints."),
        ("review", "review:review", "Answer questions about memories that only you can answer."),
        ("forget", "memories:forget", "Hide memories, or erase them permanently."),
    ),
    "Changes": (
        ("history", "memories:history", "Show every change of a memory."),
        ("undo", "memories:undo", "Undo the last change of a memory."),
        ("merge", "review:merge", "Merge two memories into one."),
        ("merges", "memories:merges", "List the latest merges."),
        ("split", "memories:split", "Undo a merge."),
    ),
    "Structure and figures": (
        ("entities", "memories:entities", "List the entities that memories name."),
        ("describe", "memories:describe", "Show all memories about an entity."),
        ("stats", "quality:stats", "Count memories, writes, sessions and fallbacks."),
    ),
    "Sessions": (
        ("demo", "demo:demo", "Play a recorded week, then sessions until the predictor is active."),
        ("sessions", "sessions:sessions", "List sessions with their results."),
        ("pipeline", "sessions:pipeline", "Show every stage of a session."),
    ),
    "Learning": (
        ("feedback", "feedback:feedback", "Report good or bad work of an agent."),
        ("predictor", "predictor:predictor", "Show and control the learned ranking."),
        ("rules", "rules:rules", "List the rules made from reports."),
        ("extraction", "quality:extraction", "List claims that extraction rejected."),
        ("why", "sessions:why", "Show every number that ranked a memory in a session."),
        ("backtest", "sessions:backtest", "Rank your own past sessions again."),
        ("eval", "meritory.lab.cli:evaluate", "Measure how well memories are found, on a copy."),
    ),
    "Quality": (
        ("gate", "quality:gate", "Show what the similarity gate does."),
        ("janitor", "quality:janitor", "Show the maintenance of the store."),
    ),
    "Agents": (
        ("connect", "connect:connect", "Add Meritory to the settings of an agent."),
        ("disconnect", "connect:disconnect", "Remove Meritory from the settings of an agent."),
        (
            "uninstall",
            "connect:uninstall",
            "Disconnect all agents, stop the daemon, and say what stays.",
        ),
        ("hook", "connect:hook", "Answer one event of an agent's client."),
        ("mcp", "connect:mcp", "Serve the memory tools to an agent over stdio."),
    ),
    "Daemon": (
        ("up", "daemon:up", "Start the daemon."),
        ("down", "daemon:down", "Stop the daemon."),
        ("status", "daemon:status", "Show whether the daemon runs and is healthy."),
        ("dashboard", "daemon:dashboard", "Open the dashboard in a browser."),
        ("top", "top:top", "Watch the daemon live."),
        ("api", "daemon:api", "Send a request to the daemon, starting it if needed."),
        ("token", "token:token", "List access tokens."),
        ("jobs", "daemon:jobs", "List background jobs."),
    ),
    "Backup and settings": (
        ("export", "transfer:export", "Write memories as JSON lines."),
        ("import", "transfer:import_lines", "Import memories from other files and tools."),
        ("backup", "doctor:backup", "Copy the store while it is in use."),
        ("restore", "doctor:restore", "Replace the store with a backup."),
        ("migrate", "transfer:migrate", "Move a store into a team's database, or back."),
        ("reembed", "doctor:reembed", "Make missing vectors."),
        ("embedder", "embedders:embedder", "Get an encoder for better search."),
        ("doctor", "doctor:doctor", "Check settings, store, models and agents."),
        ("telemetry", "config:telemetry", "Show or change whether session numbers are kept."),
        ("config", "config:config", "Show the settings and where they come from."),
        ("completion", "config:completion", "Print the completion script of a shell."),
    ),
}
SECTIONS = tuple((title, [CommandEntry(*row) for row in rows]) for title, rows in _TABLE.items())
EPILOG = """\b
Examples:
  meritory remember "The staging database is called heron"
  meritory recall "what is the staging database called?"
  meritory recall heron --json

\b
Exit codes: 0 success, 1 failure, 2 wrong use, 130 interrupted.
With --json stdout is exactly one object, {"error": ...} on failure.
"""


def entries() -> Iterator[CommandEntry]:
    """Yield every command of the table."""
    for _, section in SECTIONS:
        yield from section


class RootGroup(CommandGroup):
    """The root command: lists its commands by section and turns every error into a message."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [entry.name for entry in entries()]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = str(args[0])
        if name.startswith("-") or name in self.list_commands(ctx):
            return super().resolve_command(ctx, args)
        import difflib

        near = difflib.get_close_matches(name[:40], self.list_commands(ctx), 1)
        raise InputError(
            f"unknown command: {name[:40]!r}",
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
            # Click handles a BrokenPipeError itself; under this name it does not.
            raise errors.ReaderGone from error

    def main(  # type: ignore[override]
        self, args: list[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        """Run a command; every error becomes a message and an exit code, never a traceback."""
        given = list(sys.argv[1:] if args is None else args)
        extra.pop("standalone_mode", None)
        errors.prepare_streams()
        try:
            made = super().main(given, "meritory", standalone_mode=False, **extra)
            code = made if isinstance(made, int) else 0
        except errors.ReaderGone:
            errors.discard_stdout()
            code = 141
        except Exception as error:
            code = errors.print_error(error, as_json=errors.wants_json(given))
        except KeyboardInterrupt:
            code = errors.INTERRUPTED
        sys.exit(code)


def _root(version: bool) -> int:
    """Memory for AI agents that has to earn its place.

    A memory belongs to a user and, with --project or --agent, to one project or agent. Without
    --project, commands see only memories of no project.
    """
    ctx = click.get_current_context()
    as_json = current_flags().as_json
    if version:
        from meritory import __version__

        click.echo(json_text({"version": __version__}) if as_json else f"meritory {__version__}")
        ctx.exit(0)
    if ctx.invoked_subcommand is None:
        if as_json:
            raise InputError("no command was given", hint="`meritory --help` lists them")
        click.echo(ctx.get_help())
    return 0


APP = RootGroup(
    name="meritory",
    callback=_root,
    lazy={entry.name: entry.location for entry in entries()},
    is_root=True,
    params=[click.Option(["--version"], is_flag=True, help="Print the version.")],
    epilog=EPILOG,
    help=_root.__doc__,
    invoke_without_command=True,
    context_settings=CONTEXT_SETTINGS,
)
