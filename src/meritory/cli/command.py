"""How commands are declared: the global options, `@command`, `@group` and shared options."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any

import click

from meritory.cli.output import Answer, print_answer

CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_META = "meritory."
_NOTES = _META + "notes"
_OPTIONS = {
    "as_json": ("--json", None, "Print one JSON object instead of a table."),
    "user": ("--user", "NAME", "Whose memories. Default: the setting `user`."),
    "home": ("--home", "FOLDER", "The data folder instead of $MERITORY_HOME."),
    "store": ("--store", "FILE", "The database file instead of the one in the data folder."),
    "no_color": ("--no-color", None, "No colours; NO_COLOR=1 does the same."),
}


# -- global options and notes ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GlobalFlags:
    """The global options as they were given."""

    as_json: bool = False
    user: str | None = None
    home: str | None = None
    store: str | None = None
    no_color: bool = False


def global_options(*, hidden: bool) -> list[click.Parameter]:
    """Return the options of every command; below the root the help lists only `--json`."""

    def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        # Every level of the command line reads the same place; the innermost option wins.
        if value == "":
            raise click.BadParameter("it is empty", ctx, param)
        if value not in (None, False):
            ctx.meta[_META + str(param.name)] = value

    return [
        click.Option(
            [word, name],
            is_flag=metavar is None,
            metavar=metavar,
            help=about,
            hidden=hidden and name != "as_json",
            expose_value=False,
            callback=keep,
        )
        for name, (word, metavar, about) in _OPTIONS.items()
    ]


def current_flags() -> GlobalFlags:
    """Return the global options of the running command."""
    meta = click.get_current_context().meta
    given = {item.name: meta.get(_META + item.name) for item in fields(GlobalFlags)}
    return GlobalFlags(**{name: value for name, value in given.items() if value is not None})


def note(text: str) -> None:
    """Add a note that is printed after the answer; the same note is printed once."""
    notes: list[str] = click.get_current_context().meta.setdefault(_NOTES, [])
    if text not in notes:
        notes.append(text)


# -- commands and groups --------------------------------------------------------------------


def _print_result(result: object) -> int:
    """Print the answer that a command returned, and return its exit code."""
    if not isinstance(result, Answer):
        return 0
    flags, notes = current_flags(), click.get_current_context().meta.get(_NOTES, ())
    print_answer(result, notes, as_json=flags.as_json, no_color=flags.no_color)
    return result.code


class Command(click.Command):
    """A command that returns an answer."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.params += global_options(hidden=True)

    def invoke(self, ctx: click.Context) -> int:
        """Run the command, print its answer and return the exit code."""
        return _print_result(super().invoke(ctx))


class CommandGroup(click.Group):
    """A group of commands; its own function answers when no command of it is named.

    `lazy` maps the name of a command to its `module:function`, imported when it is called.
    """

    def __init__(self, *args: Any, lazy: Mapping[str, str] | None = None, **more: Any) -> None:
        super().__init__(*args, **more)
        self._lazy = dict(lazy or {})
        self.params += global_options(hidden=True)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        module, _, function = self._lazy[cmd_name].partition(":")
        found: click.Command = getattr(import_module(module), function)
        return found

    def invoke(self, ctx: click.Context) -> Any:
        result = super().invoke(ctx)
        return _print_result(result) if isinstance(result, Answer) else result


def command(
    name: str, example: str, parent: click.Group | None = None
) -> Callable[[Callable[..., Any]], Command]:
    """Make a function a command, of a group if one is given; the example ends its help."""

    def decorate(function: Callable[..., Any]) -> Command:
        made = click.command(
            name, cls=Command, epilog=_epilog(example), context_settings=CONTEXT_SETTINGS
        )(function)
        if parent is not None:
            parent.add_command(made)
        return made

    return decorate


def group(
    name: str, example: str, *, cls: type[CommandGroup] = CommandGroup, **more: Any
) -> Callable[[Callable[..., Answer | None]], CommandGroup]:
    """Make a function a group; the function runs when no command of the group is named."""
    more.setdefault("invoke_without_command", True)

    def decorate(function: Callable[..., Answer | None]) -> CommandGroup:
        @functools.wraps(function)
        def callback(*args: Any, **values: Any) -> Answer | None:
            if click.get_current_context().invoked_subcommand is None:
                return function(*args, **values)
            return None

        made = click.group(
            name, cls=cls, epilog=_epilog(example), context_settings=CONTEXT_SETTINGS, **more
        )
        return made(callback)

    return decorate


def _epilog(example: str) -> str:
    lines = "\n".join(f"  {line.strip()}" for line in example.strip().splitlines())
    return f"\b\nExample:\n{lines}\n"


# -- shared options -------------------------------------------------------------------------

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def limit_option(default: int | None, maximum: int, about: str = "How many at most.") -> Decorator:
    """Return `--limit`."""
    return click.option(
        "--limit",
        type=click.IntRange(1, maximum),
        default=default,
        show_default=default is not None,
        help=about,
    )


def yes_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--yes`."""
    return click.option("--yes", "-y", is_flag=True, help="Do not ask.")(function)


def scope_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--project` and `--agent`."""
    with_agent = click.option(
        "--agent", metavar="NAME", help="Only memories that this agent may see."
    )
    with_project = click.option(
        "--project", metavar="NAME", help="Memories of this project and those of no project."
    )
    return with_project(with_agent(function))
