"""`meritory top`: the daemon's figures on one screen, refreshed until you leave."""

from __future__ import annotations

import contextlib
import select
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from meritory.cli.command import command, current_home
from meritory.cli.daemon import ensured
from meritory.cli.output import (
    Answer,
    Block,
    Field,
    Fields,
    RecordView,
    age,
    counts,
    current_flags,
    is_terminal,
    number,
    rich_table,
    single_keys,
    terminal,
)
from meritory.domain.errors import MeritoryError
from meritory.domain.world import parse_moment
from meritory.engine.observe.observer import OPERATIONS
from meritory.text.normalize import shown

if TYPE_CHECKING:
    from rich.console import RenderableType

    from meritory.api.client import Daemon

SESSION_COUNT, ERROR_COUNT, OUTCOME_COUNT = 8, 5, 60
# The same marks as the dashboard: different shapes, not only different colours.
MARKS = {"win": "●", "loss": "▲", "tie": "■", "excluded": "○"}
_STEPS = "▁▂▃▄▅▆▇█"
_KEY_CHARS, _ABOUT_CHARS = 20, 100
_PREDICTOR = RecordView(
    "phase alpha success_rate scorer model_version training_sessions min_training_sessions"
)
Figures = Mapping[str, Any]
_milliseconds = number(".1f")
_LATENCIES = RecordView(
    Field("id", "operation", style="cyan"),
    Field("count", "times"),
    *(
        Field(f"{name}_ms", name, show=lambda ms: f"{_milliseconds(ms)} ms")
        for name in ("last", "p50", "p95", "p99")
    ),
)


def blocks(figures: Figures, now: datetime) -> list[Block]:
    """Return all figures as blocks."""

    def ago(at: str) -> str:
        return age(parse_moment(at), now)

    def outcome(session: Figures) -> str:
        name = session["outcome"]
        return f"{MARKS[name]} {name}" if name else str(session["state"])

    sessions = RecordView(
        Field("id", "session", show=lambda key: str(key[:_KEY_CHARS]), style="cyan"),
        Field("started_at", "age", show=ago, style="dim"),
        Field("", "outcome", outcome),
        Field("margin", "margin", show=number("+.3f")),
        Field("shown", "shown"),
        Field("context", "about", show=lambda text: str(text[:_ABOUT_CHARS]), wraps=True),
    )
    errors = RecordView(
        Field("code", "error", style="red"),
        Field("at", "age", show=ago, style="dim"),
        Field("stage", "stage"),
        Field("message", "what", wraps=True),
    )
    return [
        Fields(_summary(figures)),
        *sessions.blocks(figures["sessions"], ""),
        *_LATENCIES.blocks(figures["latencies"], ""),
        *errors.blocks(figures["errors"], ""),
    ]


def _summary(figures: Figures) -> list[tuple[str, str]]:
    predictor, recent, health = figures["predictor"], figures["activity"], figures["health"]
    state = [f"{health['status']} {health['score']:.2f}"]
    for domain in health["domains"]:
        if domain["status"] != "healthy" or domain["warnings"]:
            warnings = f": {'; '.join(domain['warnings'])}" if domain["warnings"] else ""
            line = f"{domain['domain']} {domain['status']} {domain['score']:.2f}{warnings}"
            state.append(line)
    learned = (
        f"{predictor['phase']}, influence {100 * (1 - predictor['alpha']):.0f} % "
        f"(alpha {predictor['alpha']:.2f}), wins {100 * predictor['success_rate']:.0f} %, "
        f"model v{predictor['model_version']} {predictor['scorer']}, "
        f"{predictor['training_sessions']} of {predictor['min_training_sessions']} sessions"
    )
    pairs = [("health", "\n".join(state)), ("predictor", learned)]
    if figures["outcomes"]:
        pairs.append(("outcomes", "".join(MARKS[outcome] for outcome in figures["outcomes"])))
        pairs.append(("success", sparkline(figures["success_rates"])))
    day = (
        f"{recent['memories']} memories, {recent['sessions']} sessions, "
        f"{recent['injected']} shown, {recent['win']} won, {recent['loss']} lost"
    )
    return [*pairs, ("last 24 h", day), ("queue", counts(figures["queue"]))]


def sparkline(values: Sequence[float]) -> str:
    """Return shares from 0 to 1 as a row of bars."""
    last = len(_STEPS) - 1
    return "".join(_STEPS[min(last, max(0, round(value * last)))] for value in values)


@command("top", "meritory top", "meritory top --once")
@click.option("--once", is_flag=True, help="Print it once and exit.")
def top(once: bool) -> Answer | None:
    """Watch the daemon live, starting it if needed.

    Shows health, the predictor with its latest outcomes, sessions, the queue, latencies and errors.
    Refreshes every two seconds until q or Ctrl-C.
    """
    flags = current_flags()
    daemon = ensured(current_home())
    if once or flags.as_json or not (is_terminal(sys.stdout) and is_terminal(sys.stdin)):
        figures = read_figures(daemon, flags.user)
        return Answer(figures, *blocks(figures, datetime.now(UTC)))
    from rich.live import Live

    with (
        contextlib.suppress(KeyboardInterrupt),
        single_keys(),
        Live(console=terminal(), screen=True, auto_refresh=False) as live,
    ):
        while True:
            live.update(_screen(daemon, flags.user), refresh=True)
            # Wait for the next frame, or for a key.
            ready, _, _ = select.select([sys.stdin], [], [], 2.0)
            if ready and sys.stdin.read(1).lower() in ("q", ""):
                break
    return None


def read_figures(daemon: Daemon, user: str | None) -> dict[str, Any]:
    """Request all figures from the daemon."""

    def ask(path: str, **query: object) -> Any:
        named = {**query, **({} if user is None else {"user": user})}
        words = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in named.items())
        return daemon.request("GET", f"{path}?{words}" if words else path)

    status = ask("/api/predictor/status")
    compared = ask("/api/predictor/comparisons", limit=OUTCOME_COUNT)["results"][::-1]
    names = {None: "excluded", 1: "win", 0: "loss"}
    latencies = daemon.request("GET", "/api/analytics/latency")["results"]
    errors = daemon.request("GET", f"/api/analytics/errors?limit={ERROR_COUNT}")
    return {
        "health": ask("/api/diagnostics"),
        "predictor": _PREDICTOR.json(status),
        "outcomes": [names.get(one["predictor_won"], "tie") for one in compared],
        "success_rates": [one["success_rate"] for one in compared],
        "activity": ask("/api/analytics/activity"),
        "sessions": ask("/api/sessions", limit=SESSION_COUNT)["results"],
        "queue": ask("/api/pipeline/status")["queue"],
        "latencies": [one for one in latencies if one["id"] in OPERATIONS and one["count"]],
        "errors": errors["results"],
    }


# -- live screen ----------------------------------------------------------------------------


def _screen(daemon: Daemon, user: str | None) -> RenderableType:
    """Return one frame; a daemon that is down may come back."""
    from rich.console import Group
    from rich.text import Text

    now = datetime.now(UTC)
    head = Text(f"Meritory  {daemon.url}  {now:%H:%M:%S} UTC  q quits", style="bold")
    try:
        parts = blocks(read_figures(daemon, user), now)
    except MeritoryError as error:
        return Group(head, Text(shown(error.message, one_line=True), style="red"))
    return Group(
        head,
        Text(""),
        *(Text(shown(part)) if isinstance(part, str) else rich_table(part) for part in parts),
    )
