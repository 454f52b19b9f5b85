"""How commands are declared, and their surroundings: settings, the open memory, input."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.output import META, Answer, current_flags, is_terminal, note, print_answer
from meritory.domain.errors import InputError, MeritoryError
from meritory.settings.home import home_folder, prepare_home
from meritory.text.normalize import shown

if TYPE_CHECKING:
    from meritory.api.memory import Memory
    from meritory.domain.place import Place
    from meritory.engine.services import Services
    from meritory.settings import Settings

CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
DEBUG_VARIABLE = "MERITORY_DEBUG"
BACKUPS_NAME = "backups"
ACTOR = "cli"
STDIN_LIMIT_BYTES = 1 << 20
SHORT_ID_CHARS = 12
_OPTIONS = {
    "as_json": ("--json", None, "Print one JSON object instead of a table."),
    "user": ("--user", "NAME", "Whose memories. Default: the setting `user`."),
    "home": ("--home", "FOLDER", "The data folder instead of $MERITORY_HOME."),
    "store": ("--store", "FILE", "The database file instead of the one in the data folder."),
    "no_color": ("--no-color", None, "No colours; NO_COLOR=1 does the same."),
}


class ConfirmationDeclined(MeritoryError):
    """The user said no."""

    code = "declined"
    status = 409


class Interrupted(MeritoryError):
    """The user stopped the command; finished work is kept."""

    code = "interrupted"
    status = 499


# -- commands and groups --------------------------------------------------------------------


class Command(click.Command):
    """A command that returns an answer."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.params += global_options(hidden=True)

    def invoke(self, ctx: click.Context) -> int:
        """Run the command, print its answer and return the exit code."""
        return _printed(super().invoke(ctx))


class CommandGroup(click.Group):
    """A group of commands; its own function answers when no command of it is named.

    `lazy` maps the name of a command to its `module:function`, imported when it is called.
    """

    def __init__(
        self, *args: Any, lazy: Mapping[str, str] | None = None, is_root: bool = False, **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self._lazy = dict(lazy or {})
        own = global_options(hidden=not is_root)
        self.params = [*own, *self.params] if is_root else [*self.params, *own]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        module, _, function = self._lazy[cmd_name].partition(":")
        path = module if module.startswith("meritory.") else f"meritory.cli.{module}"
        found: click.Command = getattr(import_module(path), function)
        return found

    def invoke(self, ctx: click.Context) -> Any:
        result = super().invoke(ctx)
        return _printed(result) if isinstance(result, Answer) else result


def _printed(result: object) -> int:
    """Print the answer that a command returned, and return its exit code."""
    if not isinstance(result, Answer):
        return 0
    print_answer(result)
    return result.code


def command(
    name: str, *examples: str, parent: click.Group | None = None
) -> Callable[[Callable[..., Any]], Command]:
    """Make a function a command, of a group if one is given; the examples end its help."""

    def decorate(function: Callable[..., Any]) -> Command:
        made = click.command(
            name, cls=Command, epilog=_epilog(examples), context_settings=CONTEXT_SETTINGS
        )(function)
        if parent is not None:
            parent.add_command(made)
        return made

    return decorate


def group(
    name: str,
    example: str,
    *,
    default: str = "",
    cls: type[CommandGroup] = CommandGroup,
    **more: Any,
) -> Callable[[Callable[..., Answer | None]], CommandGroup]:
    """Make a function a group; without a command of it, the default one or the function runs."""
    more.setdefault("invoke_without_command", True)

    def decorate(function: Callable[..., Answer | None]) -> CommandGroup:
        @functools.wraps(function)
        def callback(*args: Any, **values: Any) -> Answer | None:
            ctx = click.get_current_context()
            if ctx.invoked_subcommand is not None:
                return None
            if not default:
                return function(*args, **values)
            answer: Answer = ctx.invoke(made.commands[default])
            return answer

        made = click.group(
            name, cls=cls, epilog=_epilog([example]), context_settings=CONTEXT_SETTINGS, **more
        )(callback)
        return made

    return decorate


def _epilog(examples: Iterable[str]) -> str:
    lines = "\n".join(f"  {line}" for line in examples)
    return f"\b\nExample:\n{lines}\n"


# -- options ---


def global_options(*, hidden: bool) -> list[click.Parameter]:
    """Return the options of every command; below the root the help lists only `--json`."""

    def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        # Every level of the command line reads the same place; the innermost option wins.
        if value == "":
            raise click.BadParameter("it is empty", ctx, param)
        if value not in (None, False):
            ctx.meta[META + str(param.name)] = value

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


# An entry of the history, as `meritory history` and `meritory merges` number them.
ENTRY_NUMBER = click.IntRange(1, 1 << 62)
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def count_option(
    name: str, default: int | None, maximum: int, about: str, *, minimum: int = 1
) -> Decorator:
    """Return an option that takes a whole number."""
    span = click.IntRange(minimum, maximum)
    return click.option(
        name, type=span, default=default, show_default=default is not None, help=about
    )


def limit_option(
    default: int | None = 50, maximum: int = 10_000, about: str = "How many at most."
) -> Decorator:
    """Return `--limit`."""
    return count_option("--limit", default, maximum, about)


def many_option(name: str, target: str, metavar: str, about: str, **more: Any) -> Decorator:
    """Return an option that may be repeated."""
    return click.option(name, target, multiple=True, metavar=metavar, help=about, **more)


yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")


def scope_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--project` and `--agent`."""
    with_agent = click.option(
        "--agent", metavar="NAME", help="Only memories that this agent may see."
    )
    with_project = click.option(
        "--project", metavar="NAME", help="Memories of this project and those of no project."
    )
    return with_project(with_agent(function))


# -- settings -------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """Return the environment variables, with `--home` in place of $MERITORY_HOME."""
    variables = {name: value for name, value in os.environ.items() if name != DEBUG_VARIABLE}
    home = current_flags().home
    return {**variables, "MERITORY_HOME": home} if home else variables


def current_home() -> Path:
    """Return the data folder."""
    return home_folder(environment())


def current_settings(more: Mapping[str, object] | None = None) -> Settings:
    """Return the settings, with the global options and those of the command applied."""
    from meritory.settings import load_settings

    flags = current_flags()
    # A path on the command line is relative to the working directory, not to the data folder.
    store = os.path.abspath(os.path.expanduser(flags.store)) if flags.store else None
    # A named file overrides the database of a team.
    url = "" if store else None
    chosen = {"user": flags.user, "store.path": store, "database.url": url, **(more or {})}
    return load_settings(current_home(), environment(), chosen)


def store_place(settings: Settings) -> Place:
    """Return where the store is; create the data folder if the store is inside."""
    if not current_flags().store:
        note(*filter(None, [prepare_home(settings.home)]))
    return named_place(settings)


def named_place(settings: Settings) -> Place:
    """Return where the store is, without touching anything."""
    from meritory.api.embedded import settings_place

    return settings_place(settings)


# -- the open memory ------------------------------------------------------------------------


@contextlib.contextmanager
def opened(
    project: str | None = None, agent: str | None = None, *, quiet: bool = False
) -> Iterator[Memory]:
    """Open the memory of the user; unless `quiet`, note problems with the embedder."""
    from meritory.api.memory import Memory
    from meritory.engine.observe.health import is_reembedding_due
    from meritory.engine.observe.observer import keep_durations

    settings = current_settings()
    place = store_place(settings)
    with Memory(
        place.file,
        agent=agent,
        project=project,
        settings=settings,
        actor=ACTOR,
        everywhere=True,
        background=False,
    ) as memory:
        if not quiet and is_reembedding_due(memory.services.store, settings.embedder):
            note("the embedder was changed and vectors are missing; run `meritory reembed`")
        yield memory
        keep_durations(memory.services, memory.scope.user)
        if not quiet and memory.services.embedding.failures:
            note(
                "the embedder could not be reached, so the command ran without it; "
                "`meritory doctor` shows why, `meritory reembed` makes the missing vectors"
            )


def handles(memory: Memory, ids: Iterable[str]) -> dict[str, str]:
    """Return how to print ids: on a terminal as short as still unique, else in full."""
    names = {memory_id: memory_id for memory_id in ids}
    if current_flags().as_json or not is_terminal(sys.stdout):
        return names
    for memory_id in names:
        for length in range(SHORT_ID_CHARS, len(memory_id), 2):
            try:
                memory.get(memory_id[:length])
            except InputError:
                # Several memories begin like this.
                continue
            except MeritoryError:
                # Merged into another memory, or purged: no prefix names it any more.
                break
            names[memory_id] = memory_id[:length]
            break
    return names


@contextlib.contextmanager
def opened_services(project: str | None = None) -> Iterator[tuple[Services, str]]:
    """Open the memory of the user without notes; yield its engine and the user's name."""
    with opened(project, quiet=True) as memory:
        yield memory.services, memory.scope.user


@contextlib.contextmanager
def resumable() -> Iterator[None]:
    """Turn Ctrl-C into an error that says how to resume."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise Interrupted(
            "interrupted; finished work is kept",
            hint="run the same command again to resume",
        ) from error


# -- input ----------------------------------------------------------------------------------


def given_options(**values: Any) -> dict[str, Any]:
    """Return the options that were given; repeated ones as lists."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if value not in (None, (), False)
    }


def read_text(text: str) -> str:
    """Return the text itself, or all of stdin when the text is `-`."""
    if text != "-":
        return text
    if is_terminal(sys.stdin):
        click.secho("Type the text, then Ctrl-D on a line of its own.", dim=True, err=True)
    if sys.stdin is None:
        raise InputError("stdin is closed", hint="give the text itself instead of -")
    raw = sys.stdin.buffer.read(STDIN_LIMIT_BYTES + 1)
    if len(raw) > STDIN_LIMIT_BYTES:
        raise InputError(
            f"stdin has more than {STDIN_LIMIT_BYTES:,} bytes", hint="split it into single claims"
        )
    try:
        return raw.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise InputError(
            f"stdin is not UTF-8: invalid byte at position {error.start + 1}",
            hint="convert it first, e.g. with iconv -t utf-8",
        ) from error


def new_file(name: str) -> Path:
    """Return the path of a file to be made, or raise an error if that is not possible."""
    target = Path(os.path.abspath(os.path.expanduser(name)))
    if os.path.lexists(target):
        raise InputError(f"{target} already exists", hint="choose another name")
    if not target.parent.is_dir():
        raise InputError(f"there is no folder {target.parent}", hint="create it first")
    return target


def require_yes(question: str, *, yes: bool) -> None:
    """Ask before a change that cannot be undone, unless `--yes` was given."""
    if yes:
        return
    try:
        agreed = click.confirm(shown(question), err=True)
    except click.Abort:
        if is_terminal(sys.stdin):
            raise
        # End the line of the question, or the error would share it.
        click.echo(err=True)
        raise InputError(
            "this command asks for confirmation, but stdin is not a terminal", hint="add --yes"
        ) from None
    if not agreed:
        raise ConfirmationDeclined("nothing was done", hint="answer y, or add --yes")
