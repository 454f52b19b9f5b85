"""The surroundings of a command: settings, the open memory, input and confirmation."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.command import current_flags, note
from meritory.cli.output import is_terminal
from meritory.domain.errors import InputError, MeritoryError
from meritory.text.normalize import shown

if TYPE_CHECKING:
    from meritory.api.memory import Memory
    from meritory.domain.place import Place
    from meritory.settings import Settings

DEBUG_VARIABLE = "MERITORY_DEBUG"
BACKUPS_NAME = "backups"
ACTOR = "cli"
STDIN_LIMIT_BYTES = 1 << 20
SHORT_ID_CHARS = 12


class ConfirmationDeclined(MeritoryError):
    """The user said no."""

    code = "declined"
    status = 409


class Interrupted(MeritoryError):
    """The user stopped the command; finished work is kept."""

    code = "interrupted"
    status = 499


# -- settings -------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """Return the environment variables, with `--home` in place of $MERITORY_HOME."""
    variables = {name: value for name, value in os.environ.items() if name != DEBUG_VARIABLE}
    home = current_flags().home
    return {**variables, "MERITORY_HOME": home} if home else variables


def current_home() -> Path:
    """Return the data folder."""
    from meritory.settings import home_folder

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
    from meritory.settings import prepare_home

    if not current_flags().store:
        prepared = prepare_home(settings.home)
        if prepared.notice:
            note(prepared.notice)
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
        if not quiet and memory.services.embedding.failures:
            note(
                "the embedder could not be reached, so the command ran without it; "
                "`meritory doctor` shows why, `meritory reembed` makes the missing vectors"
            )


def handles(memory: Memory, ids: Iterable[str]) -> dict[str, str]:
    """Return how to print ids: on a terminal as short as still unique, else in full."""
    distinct = dict.fromkeys(ids)
    if current_flags().as_json or not is_terminal(sys.stdout):
        return {memory_id: memory_id for memory_id in distinct}
    return {memory_id: _short_id(memory, memory_id) for memory_id in distinct}


def _short_id(memory: Memory, memory_id: str) -> str:
    for length in range(SHORT_ID_CHARS, len(memory_id), 2):
        try:
            memory.get(memory_id[:length])
        except InputError:
            # Several memories begin like this.
            continue
        except MeritoryError:
            # Merged into another memory, or purged: no prefix names it any more.
            return memory_id
        return memory_id[:length]
    return memory_id


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
