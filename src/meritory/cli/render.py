"""Drawing answers: rich tables on a terminal, plain lines in a pipe, one object as JSON.

Every text passes `shown` here, so that nothing a memory holds can steer a terminal.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

import click

from meritory.cli.context import GlobalFlags, current_flags, is_terminal
from meritory.cli.output import Answer, Block, Fields, Lines, Table
from meritory.text.normalize import shown

if TYPE_CHECKING:
    from rich.table import Table as RichTable


# Below this a table has no room to wrap; plain lines are left to the terminal.
NARROWEST_TABLE = 60
BRIEF_LIMIT_CHARS = 280
_GAP = "  "
_STATES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def json_text(value: Any, *, indent: int | None = None) -> str:
    """A value as JSON in plain ASCII: safe in any terminal, the same in any locale."""
    text = json.dumps(value, indent=indent, allow_nan=False)
    return text.replace("\x7f", "\\u007f")


def show_answer(answer: Answer, flags: GlobalFlags, notes: Sequence[str]) -> None:
    """Prints an answer; notes go beside it for people and into the object for programs."""
    if flags.as_json:
        plain = {**answer.plain, "notes": list(notes)} if notes else answer.plain
        click.echo(json_text(plain, indent=2 if is_terminal(sys.stdout) else None))
        return
    draw = _Terminal(flags) if is_terminal(sys.stdout) else _Plain()
    for block in answer.blocks:
        draw.block(block)
    for note in notes:
        click.secho(shown(note, one_line=True), dim=True, err=True, color=wants_colour(flags))


def wants_colour(flags: GlobalFlags) -> bool | None:
    """False when colours are unwanted; None leaves the choice to the stream."""
    if flags.no_color or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return None


def flat(text: str) -> str:
    """A text on one line, safe to show."""
    return shown(" ".join(text.split()), one_line=True)


class _Plain:
    """Lines without colour and without wrapping: what `grep` and `less -S` want."""

    def block(self, block: Block) -> None:
        """Prints one block."""
        if isinstance(block, Table):
            names = tuple(column.name.upper() for column in block.columns)
            self._aligned([names, *(tuple(map(self.cell, row)) for row in block.rows)])
        elif isinstance(block, Fields):
            width = max((len(name) for name, _ in block.pairs), default=0)
            for name, value in block.pairs:
                click.echo(f"{name:<{width}}{_GAP}{_hanging(value, width)}")
        else:
            for line in block.lines:
                click.echo(shown(line))

    def cell(self, text: str) -> str:
        """A cell of a table."""
        return flat(text)

    def _aligned(self, rows: Sequence[tuple[str, ...]]) -> None:
        widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
            click.echo(_GAP.join(cells).rstrip())


class _Terminal(_Plain):
    """Tables that fit the window, in colour when that is wanted."""

    def __init__(self, flags: GlobalFlags) -> None:
        from rich.console import Console

        plain = wants_colour(flags) is False
        self._console = Console(
            markup=False,
            highlight=False,
            emoji=False,
            color_system=None if plain else "auto",
        )

    def block(self, block: Block) -> None:
        if isinstance(block, Lines) or self._console.width < NARROWEST_TABLE:
            super().block(block)
            return
        self._console.print(rich_table(block))

    def cell(self, text: str) -> str:
        """A cell, cut where nobody would read on; `show` has the whole text."""
        return brief(text)


def brief(text: str) -> str:
    """A text on one line, cut where nobody would read on."""
    whole = flat(text)
    return whole if len(whole) <= BRIEF_LIMIT_CHARS else whole[:BRIEF_LIMIT_CHARS] + "…"


def rich_table(block: Table | Fields) -> RichTable:
    """A block as a table that fits the window."""
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
        made.add_column(column.name, no_wrap=not column.wraps, overflow="fold")
    for row in block.rows:
        cells = zip(row, block.columns, strict=True)
        made.add_row(*(Text(brief(c), style=_STATES.get(c, col.style)) for c, col in cells))
    return made


def _hanging(value: str, width: int) -> str:
    """A value of several lines, all of them indented alike."""
    return shown(value).replace("\n", "\n" + " " * width + _GAP)


def fail(stream: IO[str] | None, lines: Sequence[tuple[str, str]]) -> None:
    """Prints labelled lines such as `error: ...` and `hint: ...`."""
    colour = False if os.environ.get("NO_COLOR") else None
    for label, text in lines:
        styled = click.style(f"{label}:", fg="red" if label == "error" else "cyan", bold=True)
        click.echo(f"{styled} {shown(text, one_line=True)}", file=stream, color=colour)


Report = Callable[[int, int], None]


@contextlib.contextmanager
def bar(label: str) -> Iterator[Report]:
    """A function to report (done, total) to; it draws nothing where nobody looks."""
    if not is_terminal(sys.stderr):
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    plain = wants_colour(current_flags()) is False
    console = Console(stderr=True, color_system=None if plain else "auto")
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as drawn:
        task = drawn.add_task(label, total=None)

        def report(done: int, total: int) -> None:
            drawn.update(task, completed=done, total=total)

        yield report
