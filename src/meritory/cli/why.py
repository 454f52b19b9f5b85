"""Commands that look behind a ranking: why, backtest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from meritory.cli.context import note, opened
from meritory.cli.options import command
from meritory.cli.output import Answer, Block, Column, Fields, Lines, Table
from meritory.cli.render import bar
from meritory.cli.sessions import found_session

SESSIONS_MAX = 1_000
# People read the features that told the most; programs get all of them.
_FEATURES_SHOWN = 12
_PARTS = (Column("composite", "cyan"), Column("value"), Column("weight"), Column("adds"))
_FEATURES = (
    Column("feature", "cyan"),
    Column("value"),
    Column("within session"),
    Column("weight"),
    Column("adds"),
)
_METHODS = (
    Column("ranking", "cyan"),
    Column("NDCG@10"),
    Column("95 %"),
    Column("by quarter"),
    Column("against the baseline", wraps=True),
)


@command("why", "meritory why 01JCA2 --session 7f3c2a")
@click.argument("memory_name", metavar="MEMORY")
@click.option("--session", "session", required=True, metavar="KEY", help="The session in question.")
def why(memory_name: str, session: str) -> Answer:
    """Show every number that put a memory into a session, or kept it out of it.

    MEMORY is an id, the beginning of one, or the handle that the session knew it by (m1).
    """
    with opened(quiet=True) as memory:
        found = memory.why(memory_name, found_session(memory, session).key)
    return Answer(found, why_blocks(found))


def why_blocks(found: Mapping[str, Any]) -> list[Block]:
    """What `meritory why` says, for people."""
    verdict = "shown" if found["was_injected"] else "not shown"
    if not found["was_candidate"]:
        verdict = "not a candidate"
    pairs = [
        ("memory", found["id"]),
        ("content", found["content"] or "(erased)"),
        ("session", found["session"]),
        ("verdict", verdict),
        ("because", "\n".join(found["reasons"])),
    ]
    if not found["was_candidate"]:
        return [Fields(pairs)]
    blocks: list[Block] = [Fields([*pairs, *_numbers(found)])]
    parts = [
        (one["name"], _number(one["value"]), f"{one['weight']:.2f}", _number(one["adds"]))
        for one in found["baseline"]["parts"]
    ]
    if parts:
        blocks += [Lines([""]), Table(_PARTS, parts)]
    return [*blocks, *_features(found["predictor"])]


def _trusted(history: Mapping[str, float] | None) -> str:
    """How far history counted in a composite."""
    if history is None:
        return ""
    return f" (recency counts {history['recency']:.0%}, usefulness {history['usefulness']:.0%})"


def _numbers(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    told, fusion = found["predictor"], found["fusion"]
    spread = found["diversity"]
    composite = _number(found["baseline"]["composite"])
    model = f"v{told['model_version']} {told['scorer']}: " if told["scorer"] else ""
    pairs = [
        ("found by", ", ".join(found["origins"]) or found["source"]),
        ("rank", _whole(found["rank"])),
        (
            "baseline",
            f"rank {_whole(found['baseline_rank'])}, composite {composite}"
            + _trusted(found["baseline"].get("history")),
        ),
        (
            "predictor",
            f"{model}rank {_whole(found['predictor_rank'])}, score {_number(told['score'])}"
            + (f" ({told['note']})" if told["note"] else ""),
        ),
    ]
    if fusion is not None:
        lowered = f", times {spread['factor']:.2f} for repeating others"
        pairs.append(
            (
                "fused",
                f"{fusion['score']:.5f} (alpha {fusion['alpha']:g}, k {fusion['k']})"
                + (lowered if spread["was_lowered"] else ""),
            )
        )
    rule = found["label_parts"].get("rule")
    label = _number(found["label"]) + (f" ({rule})" if rule else "")
    pairs += [
        ("label", label),
        (
            "witnesses",
            f"judge {_number(found['relevance_score'])}, agent "
            f"{_number(found['agent_relevance_score'])}, {found['fts_hit_count']} hits",
        ),
    ]
    return pairs


def _features(told: Mapping[str, Any]) -> list[Block]:
    weighed = [one for one in told["features"] if "adds" in one]
    if not weighed:
        return []
    rows = [
        (
            one["name"],
            _number(one["value"]),
            f"{one['within_session']:+.2f}",
            f"{one['weight']:+.3f}",
            f"{one['adds']:+.3f}",
        )
        for one in weighed[:_FEATURES_SHOWN]
    ]
    note(f"the {len(rows)} features of {len(weighed)} that told the most; --json has all")
    return [Lines([""]), Table(_FEATURES, rows)]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _whole(value: int | None) -> str:
    return "-" if value is None else str(value)


@command("backtest", "meritory backtest --limit 200")
@click.option(
    "--limit",
    type=click.IntRange(1, SESSIONS_MAX),
    default=SESSIONS_MAX,
    show_default=True,
    help="How many of the latest sessions.",
)
def backtest(limit: int) -> Answer:
    """Rank your own past sessions again in every way that can be computed.

    Every ranking is held against what helped, as NDCG@10. A difference whose interval holds 0
    may be chance.
    """
    from meritory.engine.predictor.backtest import backtest as replay

    with opened(quiet=True) as memory, bar("replaying"):
        found = replay(memory.services, memory.scope.user, limit)
    note(found["note"])
    rows = [
        (
            one["id"],
            _number(one["ndcg"]["mean"]),
            f"{_number(one['ndcg']['low'])} .. {_number(one['ndcg']['high'])}",
            " ".join("-" if value is None else f"{value:.2f}" for value in one["quarters"]),
            one["statement"],
        )
        for one in found["results"]
    ]
    head = f"{found['sessions']} sessions, {found['since'][:10]} to {found['until'][:10]}"
    return Answer(found, [Lines([head]), Table(_METHODS, rows)])
