"""Describe a record once, as a list of fields; print it as a table, as plain lines or as JSON.

Every text passes `shown` before it is printed, so that no stored text can control a terminal.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from meritory.domain.world import World, moment_text
from meritory.text.normalize import shown

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

# Below this width a table has no room to wrap, so plain lines are printed instead.
NARROWEST_TABLE = 60
BRIEF_LIMIT_CHARS = 280
_GAP = "  "
_STATES = {"ok": "green", "warn": "yellow", "fail": "bold red"}
Name = TypeVar("Name", bound=str)
_UNITS = ((86_400 * 365, "y"), (86_400, "d"), (3_600, "h"), (60, "m"))

# -- global options and notes ---------------------------------------------------------------

META = "meritory."
_NOTES = META + "notes"


@dataclass(frozen=True, slots=True)
class GlobalFlags:
    """The global options as they were given."""

    as_json: bool = False
    user: str | None = None
    home: str | None = None
    store: str | None = None
    no_color: bool = False


def current_flags() -> GlobalFlags:
    """Return the global options of the running command."""
    meta = click.get_current_context().meta
    names = [item.name for item in fields(GlobalFlags)]
    return GlobalFlags(**{name: meta[META + name] for name in names if META + name in meta})


def note(*lines: str) -> None:
    """Add notes that are printed after the answer; the same note is printed once."""
    notes: list[str] = click.get_current_context().meta.setdefault(_NOTES, [])
    notes += [line for line in dict.fromkeys(lines) if line not in notes]


# -- values ---------------------------------------------------------------------------------


def to_json(value: Any) -> Any:
    """Convert a record, or a value in one, to JSON types; times become ISO 8601 in UTC."""
    if isinstance(value, datetime):
        return moment_text(value)
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: to_json(getattr(value, item.name)) for item in fields(value)}
    return value


def text(value: object) -> str:
    """Return a value as a cell: `-` for none, yes or no for a boolean, UTC for a time."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return clock_text(value)
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def text_or_empty(value: object) -> str:
    """Return a value as a cell that stays empty when there is none."""
    return "" if value is None else text(value)


def number(form: str) -> Callable[[Any], str]:
    """Return a function that formats a number by a format specification; none becomes `-`."""
    return lambda value: "-" if value is None else format(value, form)


def age(moment: datetime | None, now: datetime | None = None) -> str:
    """Return how long ago something was, in one unit."""
    if moment is None:
        return "never"
    seconds = ((now or World().now()) - moment).total_seconds()
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return "now"


def clock_text(moment: datetime | None) -> str:
    """Return a time as people read it, in UTC."""
    return f"{moment:%Y-%m-%d %H:%M} UTC" if moment is not None else ""


def counts(amounts: Mapping[Name, int], empty: str = "none") -> str:
    """Return named amounts as one text, such as `3 stored, 1 kept both`."""
    return ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in amounts.items()) or empty


def flat(value: str) -> str:
    """Return a text on one line, safe to print."""
    return shown(" ".join(value.split()), one_line=True)


def brief(value: str) -> str:
    """Return a text on one line, cut at a length that people still read."""
    line = flat(value)
    return line if len(line) <= BRIEF_LIMIT_CHARS else line[:BRIEF_LIMIT_CHARS] + "…"


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return a value as JSON in ASCII: safe in any terminal, the same in any locale."""
    return json.dumps(value, indent=indent, allow_nan=False).replace("\x7f", "\\u007f")


# -- blocks and views -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fields:
    """Names with their values, one per line."""

    pairs: Sequence[tuple[str, str]]


def read_path(record: Any, path: str) -> Any:
    """Return the value at a path of attributes, keys and positions; a missing key is None."""
    for part in path.split("."):
        if record is None:
            return None
        if part.isdigit():
            record = record[int(part)]
        else:
            record = record.get(part) if isinstance(record, Mapping) else getattr(record, part)
    return record


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record: JSON has those with a key, a table those with a label.

    A column that wraps takes the remaining width.
    """

    # A path, the last part of which is the name in JSON; empty for a table only.
    key: str
    label: str | None = None
    # Another path, or a function of the record.
    read: str | Callable[[Any], object] = ""
    show: Callable[[Any], str] = text
    style: str = ""
    wraps: bool = False

    def value(self, record: object) -> object:
        """Return the value of this field."""
        if callable(self.read):
            return self.read(record)
        return read_path(record, self.read or self.key)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of short texts below the labels of fields."""

    columns: Sequence[Field]
    rows: Sequence[tuple[str, ...]]


# A text is printed as it is, on lines of its own.
Block = Table | Fields | str


class Answer:
    """The result of a command: an object for programs, blocks for people, an exit code."""

    def __init__(self, plain: dict[str, Any], *blocks: Block, code: int = 0) -> None:
        self.plain, self.blocks, self.code = plain, blocks, code


class RecordView:
    """The fields of a kind of record, from which its table and its JSON are made.

    A text lists the paths of fields that only JSON has. JSON of a view that is `whole` has all
    other fields of the record, too.
    """

    def __init__(self, *items: Field | str, whole: bool = False) -> None:
        listed = [[it] if isinstance(it, Field) else map(Field, it.split()) for it in items]
        every = [item for some in listed for item in some]
        self._keyed = {item.key.rpartition(".")[2]: item for item in every if item.key}
        self._labelled = [item for item in every if item.label is not None]
        self._whole = whole

    def json(self, record: object) -> dict[str, Any]:
        """Return a record as JSON values."""
        rest = to_json(record) if self._whole else {}
        keyed = ((name, item) for name, item in self._keyed.items() if name not in rest)
        return {name: to_json(item.value(record)) for name, item in keyed} | rest

    def table(self, records: Sequence[object]) -> Table:
        """Return records as a table."""
        rows = [tuple(item.show(item.value(one)) for item in self._labelled) for one in records]
        return Table(self._labelled, rows)

    def blocks(self, records: Sequence[object], *lines: str) -> list[Block]:
        """Return lines and the table below them, or nothing when there are no records."""
        return [*lines, self.table(records)] if records else []

    def answer(self, records: Sequence[object], empty: str = "", **more: Any) -> Answer:
        """Return the answer of a command that lists records, with a note when there are none."""
        if empty and not records:
            note(empty)
        plain = {"results": [self.json(record) for record in records], **more}
        return Answer(plain, *self.blocks(records))


# -- printing -------------------------------------------------------------------------------


def is_terminal(stream: IO[str] | None) -> bool:
    """Whether a person reads this stream; it is None when it was closed."""
    return stream is not None and not stream.closed and stream.isatty()


def wants_colour() -> bool | None:
    """Return False when colours are off; None leaves the choice to the stream."""
    is_off = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return False if is_off or current_flags().no_color else None


def terminal(*, stderr: bool = False) -> Console:
    """Return a console that prints texts as they are, in colour when that is wanted."""
    from rich.console import Console

    return Console(
        markup=False,
        highlight=False,
        emoji=False,
        color_system=None if wants_colour() is False else "auto",
        stderr=stderr,
    )


def print_answer(answer: Answer) -> None:
    """Print an answer; notes go to stderr for people and into the object for programs."""
    notes = click.get_current_context().meta.get(_NOTES, [])
    if current_flags().as_json:
        plain = {**answer.plain, "notes": notes} if notes else answer.plain
        click.echo(json_text(plain, indent=2 if is_terminal(sys.stdout) else None))
        return
    print_blocks(answer.blocks)
    for line in notes:
        click.secho(shown(line, one_line=True), dim=True, err=True, color=wants_colour())


def print_blocks(blocks: Sequence[Block]) -> None:
    """Print blocks for people: tables on a terminal that is wide enough, else plain lines."""
    is_seen = is_terminal(sys.stdout)
    console = terminal() if is_seen else None
    for block in blocks:
        if isinstance(block, str):
            click.echo(shown(block))
        elif console is None or console.width < NARROWEST_TABLE:
            _print_plain(block, brief if is_seen else flat)
        else:
            console.print(rich_table(block))


def _print_plain(block: Table | Fields, cell: Callable[[str], str]) -> None:
    """Print a block without colour and without wrapping, for `grep` and `less -S`."""
    if isinstance(block, Table):
        names = tuple((column.label or "").upper() for column in block.columns)
        rows = [names, *(tuple(map(cell, row)) for row in block.rows)]
        widths = [max(len(text) for text in column) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
            click.echo(_GAP.join(cells).rstrip())
    else:
        width = max((len(name) for name, _ in block.pairs), default=0)
        indent = "\n" + " " * width + _GAP
        for name, value in block.pairs:
            click.echo(f"{name:<{width}}{_GAP}{shown(value).replace(chr(10), indent)}")


def rich_table(block: Table | Fields) -> RichTable:
    """Return a block as a table that fits the window."""
    from rich.table import Table as RichTable
    from rich.text import Text

    made = RichTable(
        box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=isinstance(block, Table)
    )
    if isinstance(block, Fields):
        made.add_column(no_wrap=True, style="dim")
        made.add_column(overflow="fold")
        for name, value in block.pairs:
            made.add_row(Text(name), Text(shown(value)))
        return made
    for column in block.columns:
        made.add_column(column.label or "", no_wrap=not column.wraps, overflow="fold")
    for row in block.rows:
        cells = zip(row, block.columns, strict=True)
        made.add_row(*(Text(brief(c), style=_STATES.get(c, col.style)) for c, col in cells))
    return made


@contextlib.contextmanager
def single_keys() -> Iterator[None]:
    """Read keys at once and without echo."""
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


Report = Callable[[int, int], None]


@contextlib.contextmanager
def bar(label: str) -> Iterator[Report]:
    """Yield a function that takes (done, total); it draws a bar when stderr is a terminal."""
    if not is_terminal(sys.stderr):
        yield lambda done, total: None
        return
    from rich import progress

    with progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TimeRemainingColumn(),
        console=terminal(stderr=True),
        transient=True,
    ) as drawn:
        task = drawn.add_task(label, total=None)
        yield lambda done, total: drawn.update(task, completed=done, total=total)
