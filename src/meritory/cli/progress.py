"""A progress bar on stderr, when a person is looking."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from meritory.cli.frame import current_flags, is_terminal

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

    from meritory.cli.render import wants_colour

    plain = wants_colour(current_flags()) is False
    console = Console(stderr=True, color_system=None if plain else "auto")
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as drawn:
        task = drawn.add_task(label, total=None)

        def report(done: int, total: int) -> None:
            drawn.update(task, completed=done, total=total)

        yield report
