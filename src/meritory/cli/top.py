"""What `meritory top` shows: the daemon's figures as blocks, at a glance."""

from __future__ import annotations

import contextlib
import select
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from meritory.cli.context import current_flags, current_home, is_terminal
from meritory.cli.daemon import ensured, passed_on
from meritory.cli.options import command
from meritory.cli.output import Answer, Block, Column, Fields, Lines, Table
from meritory.cli.records import age
from meritory.cli.render import rich_table, wants_colour
from meritory.domain.codec import parse_moment
from meritory.domain.errors import MeritoryError
from meritory.engine.observe.observer import OPERATIONS
from meritory.text.normalize import shown

if TYPE_CHECKING:
    from rich.console import RenderableType

    from meritory.api.client import Daemon


# As the dashboard marks them: told by shape, not by colour alone.
MARKS = {"win": "●", "loss": "▲", "tie": "■", "excluded": "○"}
_STEPS = "▁▂▃▄▅▆▇█"
_SESSIONS = (
    Column("session", "cyan"),
    Column("age", "dim"),
    Column("outcome"),
    Column("margin"),
    Column("shown"),
    Column("about", wraps=True),
)
_LATENCIES = (
    Column("operation", "cyan"),
    Column("times"),
    Column("last"),
    Column("p50"),
    Column("p95"),
    Column("p99"),
)
_ERRORS = (
    Column("error", "red"),
    Column("age", "dim"),
    Column("stage"),
    Column("what", wraps=True),
)
_KEY_CHARS, _ABOUT_CHARS = 20, 100


def blocks(seen: Mapping[str, Any], now: datetime) -> list[Block]:
    """Everything at a glance."""
    made: list[Block] = [Fields(_summary(seen))]
    for columns, rows in (
        (_SESSIONS, [_session(one, now) for one in seen["sessions"]]),
        (_LATENCIES, [_latency(one) for one in seen["latencies"]]),
        (_ERRORS, [_error(one, now) for one in seen["errors"]]),
    ):
        if rows:
            made += [Lines([""]), Table(columns, rows)]
    return made


def _summary(seen: Mapping[str, Any]) -> list[tuple[str, str]]:
    predictor, lately, queue = seen["predictor"], seen["activity"], seen["queue"]
    sessions = f"{predictor['training_sessions']} of {predictor['min_training_sessions']} sessions"
    pairs = [
        ("health", _health(seen["health"])),
        (
            "predictor",
            f"{predictor['phase']}, {_percent(1 - predictor['alpha'])} of the say "
            f"(alpha {predictor['alpha']:.2f}), wins {_percent(predictor['success_rate'])}, "
            f"model v{predictor['model_version']} {predictor['scorer']}, {sessions}",
        ),
    ]
    if seen["outcomes"]:
        pairs.append(("outcomes", "".join(MARKS[one] for one in seen["outcomes"])))
        pairs.append(("success", sparkline(seen["success_rates"])))
    pairs += [
        (
            "last 24 h",
            f"{lately['memories']} memories, {lately['sessions']} sessions, "
            f"{lately['injected']} shown, {lately['win']} won, {lately['loss']} lost",
        ),
        ("queue", ", ".join(f"{many} {state}" for state, many in queue.items())),
    ]
    return pairs


def _health(health: Mapping[str, Any]) -> str:
    """The whole, and every part that is not well."""
    lines = [f"{health['status']} {health['score']:.2f}"]
    for one in health["domains"]:
        if one["status"] != "healthy" or one["warnings"]:
            told = f": {'; '.join(one['warnings'])}" if one["warnings"] else ""
            lines.append(f"{one['domain']} {one['status']} {one['score']:.2f}{told}")
    return "\n".join(lines)


def sparkline(values: Sequence[float]) -> str:
    """Shares from 0 to 1 as a row of bars."""
    last = len(_STEPS) - 1
    return "".join(_STEPS[min(last, max(0, round(value * last)))] for value in values)


def _session(one: Mapping[str, Any], now: datetime) -> tuple[str, ...]:
    outcome = one["outcome"]
    return (
        one["id"][:_KEY_CHARS],
        age(now, parse_moment(one["started_at"])),
        f"{MARKS[outcome]} {outcome}" if outcome else one["state"],
        "-" if one["margin"] is None else f"{one['margin']:+.3f}",
        str(one["shown"]),
        one["context"][:_ABOUT_CHARS],
    )


def _latency(one: Mapping[str, Any]) -> tuple[str, ...]:
    times = (one[name] for name in ("last_ms", "p50_ms", "p95_ms", "p99_ms"))
    return (one["id"], str(one["count"]), *(f"{value:.1f} ms" for value in times))


def _error(one: Mapping[str, Any], now: datetime) -> tuple[str, ...]:
    return (one["code"], age(now, parse_moment(one["at"])), one["stage"], one["message"])


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


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
