"""What stands around every command: the global options, the settings, the open memory."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from meritory.cli.options import META
from meritory.domain.errors import InputError, MeritoryError

if TYPE_CHECKING:
    from meritory.api.memory import Memory
    from meritory.domain.place import Place
    from meritory.settings import Settings


DEBUG_VARIABLE = "MERITORY_DEBUG"
BACKUPS_NAME = "backups"
ACTOR = "cli"
STDIN_LIMIT_BYTES = 1 << 20
SHORT_ID_CHARS = 12
_NOTES = META + "notes"


class ConfirmationDeclined(MeritoryError):
    """The person said no."""

    code = "declined"
    status = 409


class Interrupted(MeritoryError):
    """The person stopped it; what was done so far is kept."""

    code = "interrupted"
    status = 499


@dataclass(frozen=True, slots=True)
class GlobalFlags:
    """The global options as they were given."""

    as_json: bool = False
    user: str | None = None
    home: str | None = None
    store: str | None = None
    no_color: bool = False


def current_flags() -> GlobalFlags:
    """The global options of the command that runs."""
    meta = click.get_current_context().meta
    given = {item.name: meta.get(META + item.name) for item in fields(GlobalFlags)}
    return GlobalFlags(**{name: value for name, value in given.items() if value is not None})


def note(text: str) -> None:
    """Keeps a remark for the end of the answer; the same one is made once."""
    notes: list[str] = click.get_current_context().meta.setdefault(_NOTES, [])
    if text not in notes:
        notes.append(text)


def taken_notes() -> list[str]:
    """The remarks made so far."""
    return list(click.get_current_context().meta.get(_NOTES, ()))


def is_terminal(stream: IO[str] | None) -> bool:
    """Whether a person looks at this stream; it is None when it was closed."""
    return stream is not None and not stream.closed and stream.isatty()


# -- settings -------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """The variables that count, with `--home` in the place of $MERITORY_HOME."""
    found = {name: value for name, value in os.environ.items() if name != DEBUG_VARIABLE}
    home = current_flags().home
    return {**found, "MERITORY_HOME": home} if home else found


def current_home() -> Path:
    """The data folder."""
    from meritory.settings import home_folder

    return home_folder(environment())


def current_settings(more: Mapping[str, object] | None = None) -> Settings:
    """The settings, global options and those of the command included."""
    from meritory.settings import load_settings

    flags = current_flags()
    # A path on the command line starts where the person stands, not in the data folder.
    store = os.path.abspath(os.path.expanduser(flags.store)) if flags.store else None
    # A file that is named goes before the database of a team.
    url = "" if store else None
    chosen = {"user": flags.user, "store.path": store, "database.url": url, **(more or {})}
    return load_settings(current_home(), environment(), chosen)


def store_place(settings: Settings) -> Place:
    """Where the store lies; the data folder is made ready when it is in there."""
    from meritory.settings import prepare_home

    if not current_flags().store:
        prepared = prepare_home(settings.home)
        if prepared.notice:
            note(prepared.notice)
    return named_place(settings)


def named_place(settings: Settings) -> Place:
    """Where the store lies, nothing touched."""
    from meritory.api.opening import settings_place

    return settings_place(settings)


def demand_file(settings: Settings, instead: str) -> Path:
    """The file of the store, for what can be done with a file only."""
    file = named_place(settings).file
    if file is None:
        raise InputError("the store is a PostgreSQL database, not a file", hint=instead)
    return file


# -- the open memory ------------------------------------------------------------------------


@contextlib.contextmanager
def opened(
    project: str | None = None, agent: str | None = None, *, quiet: bool = False
) -> Iterator[Memory]:
    """The memory of the user, open for the length of the block."""
    from meritory.api.memory import Memory

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
        if not quiet:
            _note_embedding(memory, settings)
        yield memory
        failures = memory.services.embedding.failures
        if failures and not quiet:
            note(
                "the embedder could not be reached, so what could be done was done without it; "
                "`meritory doctor` says why, `meritory reembed` makes up for it"
            )


def _note_embedding(memory: Memory, settings: Settings) -> None:
    from meritory.engine.observe.health import is_reembedding_due

    if is_reembedding_due(memory.services.store, settings.embedder):
        note("the embedder was changed and vectors are missing; `meritory reembed` makes them")


def handles(memory: Memory, ids: Iterable[str]) -> dict[str, str]:
    """How to show ids: on a terminal as short as still names one memory, else in full."""
    distinct = dict.fromkeys(ids)
    if current_flags().as_json or not is_terminal(sys.stdout):
        return {memory_id: memory_id for memory_id in distinct}
    return {memory_id: _short(memory, memory_id) for memory_id in distinct}


def _short(memory: Memory, memory_id: str) -> str:
    for length in range(SHORT_ID_CHARS, len(memory_id), 2):
        # The store itself says whether a beginning names one memory only.
        try:
            memory.get(memory_id[:length])
        except InputError:
            continue
        except MeritoryError:
            # Merged into another or purged: nothing to be named any more.
            return memory_id
        return memory_id[:length]
    return memory_id


@contextlib.contextmanager
def resumable() -> Iterator[None]:
    """Says that a long run which was stopped can be gone on with."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise Interrupted(
            "interrupted; what was done so far is kept",
            hint="the same command goes on where it stopped",
        ) from error


# -- people ---------------------------------------------------------------------------------


def given(**values: Any) -> dict[str, Any]:
    """The options that were really given."""
    return {name: value for name, value in values.items() if value not in (None, (), False)}


def read_text(text: str) -> str:
    """The text itself, or what stands on stdin when it is `-`."""
    if text != "-":
        return text
    if is_terminal(sys.stdin):
        click.secho("Type the text, then Ctrl-D on a line of its own.", dim=True, err=True)
    if sys.stdin is None:
        raise InputError("stdin is closed", hint="give the text itself instead of -")
    raw = sys.stdin.buffer.read(STDIN_LIMIT_BYTES + 1)
    if len(raw) > STDIN_LIMIT_BYTES:
        raise InputError("stdin holds more than a memory can", hint="split it into single claims")
    try:
        return raw.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise InputError(
            f"stdin is not UTF-8: byte {error.start + 1} does not fit",
            hint="convert it first, e.g. with iconv -t utf-8",
        ) from error


def demand_yes(question: str, *, yes: bool) -> None:
    """Asks before what cannot be taken back; nothing happens without a yes."""
    if yes:
        return
    from meritory.text.normalize import shown

    try:
        agreed = click.confirm(shown(question), err=True)
    except click.Abort:
        if is_terminal(sys.stdin):
            raise
        # The question stands there without an answer, and would share its line with the error.
        click.echo(err=True)
        raise InputError("this needs a yes, and nobody is there to ask", hint="add --yes") from None
    if not agreed:
        raise ConfirmationDeclined("nothing was done", hint="answer y, or add --yes, to go on")
