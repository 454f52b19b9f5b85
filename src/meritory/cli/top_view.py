"""What `meritory top` shows: the daemon's figures as blocks, at a glance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from meritory.cli.answer import Block, Column, Fields, Lines, Table
from meritory.cli.records import age
from meritory.codec import parse_moment

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
