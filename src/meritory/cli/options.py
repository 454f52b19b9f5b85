"""What all commands share: the global options, taken before and after the command's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import click

from meritory.cli.output import Answer

HELP_NAMES = ("-h", "--help")
META = "meritory."
_WORDS = {
    "as_json": ("--json", "Print one JSON object instead of a table."),
    "user": ("--user", "Whose memories; the setting `user` otherwise."),
    "home": ("--home", "The data folder instead of $MERITORY_HOME."),
    "store": ("--store", "The database file instead of the one in the data folder."),
    "no_color": ("--no-color", "No colours; NO_COLOR=1 does the same."),
}
_METAVARS = {"user": "NAME", "home": "FOLDER", "store": "FILE"}


def global_options(*, hidden: bool) -> list[click.Parameter]:
    """The options of every command; below the root only `--json` is listed in the help."""
    return [
        click.Option(
            [word, name],
            is_flag=name not in _METAVARS,
            metavar=_METAVARS.get(name),
            help=text,
            hidden=hidden and name != "as_json",
            expose_value=False,
            callback=_keep,
        )
        for name, (word, text) in _WORDS.items()
    ]


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Notes a global option where every level finds it; the one nearest to the command wins."""
    if value == "":
        raise click.BadParameter("it is empty", ctx, param)
    if value not in (None, False):
        ctx.meta[META + str(param.name)] = value


class LazyCommands(click.Group):
    """A group some of whose commands are imported only when they are called.

    `lazy` maps a command's name to `module:function`.
    """

    def __init__(self, *args: Any, lazy: Mapping[str, str], **more: Any) -> None:
        super().__init__(*args, **more)
        self._lazy = dict(lazy)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        module, _, function = self._lazy[cmd_name].partition(":")
        found: click.Command = getattr(import_module(module), function)
        return found


class Command(click.Command):
    """A command whose answer is printed as a table or as JSON."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.params += global_options(hidden=True)

    def invoke(self, ctx: click.Context) -> int:
        """Runs the command, prints its answer and returns the exit code."""
        answer = super().invoke(ctx)
        if not isinstance(answer, Answer):
            return 0
        from meritory.cli.context import current_flags, taken_notes
        from meritory.cli.render import show_answer

        show_answer(answer, current_flags(), taken_notes())
        return answer.code


def command(name: str, example: str) -> Callable[[Callable[..., Any]], Command]:
    """Makes a function a command; the example ends its help."""
    lines = "\n".join(f"  {line.strip()}" for line in example.strip().splitlines())
    return click.command(
        name,
        cls=Command,
        epilog=f"\b\nExample:\n{lines}\n",
        context_settings={"help_option_names": list(HELP_NAMES), "max_content_width": 100},
    )


def scope_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--project` and `--agent`."""
    with_agent = click.option("--agent", metavar="NAME", help="Only what this agent may see.")
    with_project = click.option(
        "--project", metavar="NAME", help="This project's memories and those of no project."
    )
    return with_project(with_agent(function))
