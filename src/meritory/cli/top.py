"""The command that watches the daemon in a terminal: top."""

from __future__ import annotations

import contextlib
import select
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from meritory.cli.answer import Answer, Lines
from meritory.cli.daemon import ensured, passed_on
from meritory.cli.frame import current_flags, current_home, is_terminal
from meritory.cli.options import command
from meritory.cli.render import rich_table, wants_colour
from meritory.cli.top_view import blocks
from meritory.errors import MeritoryError
from meritory.flow.observe import OPERATIONS
from meritory.text.normal import shown

if TYPE_CHECKING:
    from rich.console import RenderableType

    from meritory.client import Daemon

REFRESH_S = 2.0
SESSION_COUNT, ERROR_COUNT, OUTCOME_COUNT = 8, 5, 60
_PREDICTOR = (
    "phase",
    "alpha",
    "success_rate",
    "scorer",
    "model_version",
    "training_sessions",
    "min_training_sessions",
)


@command(
    "top",
    """
    meritory top
    meritory top --once
    """,
)
@click.option("--once", is_flag=True, help="Print it once and leave.")
def top(once: bool) -> Answer | None:
    """Watch the daemon at a glance, starting it when it is down.

    Health, the predictor with its latest outcomes, sessions, the queue, how long things take and
    what went wrong. It is drawn anew every two seconds until q or Ctrl-C.
    """
    flags = current_flags()
    daemon = ensured(current_home(), passed_on(None, None, ()))
    if once or flags.as_json or not (is_terminal(sys.stdout) and is_terminal(sys.stdin)):
        seen = look(daemon, flags.user)
        return Answer(seen, blocks(seen, datetime.now(UTC)))
    _watch(daemon, flags.user)
    return None


def look(daemon: Daemon, user: str | None) -> dict[str, Any]:
    """Everything that is shown, asked of the daemon."""

    def ask(path: str, **query: object) -> Any:
        named = {**query, **({} if user is None else {"user": user})}
        words = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in named.items())
        return daemon.request("GET", f"{path}?{words}" if words else path)

    status = ask("/api/predictor/status")
    compared = ask("/api/predictor/comparisons", limit=OUTCOME_COUNT)["results"]
    latencies = daemon.request("GET", "/api/analytics/latency")["results"]
    errors = daemon.request("GET", f"/api/analytics/errors?limit={ERROR_COUNT}")
    return {
        "health": ask("/api/diagnostics"),
        "predictor": {name: status[name] for name in _PREDICTOR},
        "outcomes": [_outcome(one) for one in reversed(compared)],
        "success_rates": [one["success_rate"] for one in reversed(compared)],
        "activity": ask("/api/analytics/activity"),
        "sessions": ask("/api/sessions", limit=SESSION_COUNT)["results"],
        "queue": ask("/api/pipeline/status")["queue"],
        "latencies": [one for one in latencies if one["id"] in OPERATIONS and one["count"]],
        "errors": errors["results"],
    }


def _outcome(one: Mapping[str, Any]) -> str:
    won = one["predictor_won"]
    if won is None:
        return "excluded"
    return "win" if won == 1 else "loss" if won == 0 else "tie"


# -- a screen of its own ------------------------------------------------------------------------


def _watch(daemon: Daemon, user: str | None) -> None:
    from rich.console import Console
    from rich.live import Live

    is_plain = wants_colour(current_flags()) is False
    console = Console(
        markup=False, highlight=False, emoji=False, color_system=None if is_plain else "auto"
    )
    with (
        contextlib.suppress(KeyboardInterrupt),
        _single_keys(),
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            live.update(_screen(daemon, user), refresh=True)
            if _left():
                return


def _screen(daemon: Daemon, user: str | None) -> RenderableType:
    """One frame; a daemon that is gone may come back."""
    from rich.console import Group
    from rich.text import Text

    now = datetime.now(UTC)
    head = Text(f"Meritory  {daemon.url}  {now:%H:%M:%S} UTC  q leaves", style="bold")
    try:
        found = blocks(look(daemon, user), now)
    except MeritoryError as error:
        return Group(head, Text(shown(error.message, one_line=True), style="red"))
    return Group(
        head,
        Text(""),
        *(
            Text(shown("\n".join(one.lines))) if isinstance(one, Lines) else rich_table(one)
            for one in found
        ),
    )


@contextlib.contextmanager
def _single_keys() -> Iterator[None]:
    """Keys count at once and are not echoed."""
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _left() -> bool:
    """Waits for the next frame; says whether somebody wants to leave before."""
    ready, _, _ = select.select([sys.stdin], [], [], REFRESH_S)
    return bool(ready) and sys.stdin.read(1).lower() in ("q", "")
