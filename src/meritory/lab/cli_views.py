"""What `meritory eval` shows to people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meritory.cli.output import Block, Column, Fields, Lines, Table

NAMES = {"p@1": "p@1", "p@3": "p@3", "p@5": "p@5", "mrr": "MRR", "in_prompt": "in prompt"}
MISSED_SHOWN = 10
HASH_CHARS = 12
_FIGURES = (Column("", "cyan"), Column("mean"), Column("95 %"))
_MISSED = (Column("missed", wraps=True), Column("place"), Column("first instead", wraps=True))
_RUNS = (
    Column("name", "cyan"),
    Column("when", "dim"),
    Column("set"),
    Column("scored"),
    Column("drifted"),
    *(Column(name) for name in NAMES.values()),
)
_AGAINST = (
    Column("", "cyan"),
    Column("before"),
    Column("after"),
    Column("difference"),
    Column("95 %"),
    Column("won/lost"),
    Column("verdict"),
)


def run_blocks(run: Mapping[str, Any]) -> list[Block]:
    """One run: its figures, its tags and what it missed."""
    if not run["scored"]:
        return [Fields(_head(run))]
    rows = [
        (NAMES[name], f"{one['mean']:.3f}", _between(one)) for name, one in run["figures"].items()
    ]
    blocks: list[Block] = [Fields(_head(run)), Lines([""]), Table(_FIGURES, rows)]
    if run["tags"]:
        blocks += [Lines([""]), _tags(run)]
    missed = [one for one in run["results"] if one.get("rank", 1) != 1]
    if missed:
        shown = [
            (one["question"], str(one["rank"] or "-"), one.get("instead", ""))
            for one in missed[:MISSED_SHOWN]
        ]
        blocks += [Lines([""]), Table(_MISSED, shown)]
        if len(missed) > len(shown):
            blocks.append(Lines([f"and {len(missed) - len(shown)} more; --json has all"]))
    return blocks


def _head(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    took = run["latency_ms"]
    scored = f"{run['scored']} of {run['probes']}"
    apart = [f"{run[name]} {name}" for name in ("drifted", "moved") if run[name]]
    pairs = [
        ("probes", scored + (f" ({', '.join(apart)})" if apart else "")),
        ("set", run["set_hash"][:HASH_CHARS]),
        ("store", f"{run['memories']} memories, {run['embedder'] or 'words only'}"),
    ]
    if took:
        pairs.append(("a recall", f"{took['p50']:.1f} ms, 95 % within {took['p95']:.1f} ms"))
    return pairs


def _tags(run: Mapping[str, Any]) -> Table:
    names = list(run["figures"])
    columns = (Column("tag", "cyan"), Column("scored"), *(Column(NAMES[name]) for name in names))
    rows = [
        (tag, str(one["scored"]), *(f"{one[name]:.3f}" if name in one else "-" for name in names))
        for tag, one in run["tags"].items()
    ]
    return Table(columns, rows)


def list_blocks(runs: Sequence[Mapping[str, Any]]) -> list[Block]:
    """The saved runs."""
    rows = [
        (
            run["name"],
            run["at"][:16].replace("T", " "),
            run["set_hash"][:HASH_CHARS],
            str(run["scored"]),
            str(run["drifted"]),
            *(_mean(run["figures"], name) for name in NAMES),
        )
        for run in runs
    ]
    return [Table(_RUNS, rows)] if rows else []


def _mean(figures: Mapping[str, Any], name: str) -> str:
    return f"{figures[name]['mean']:.3f}" if name in figures else "-"


def compare_blocks(found: Mapping[str, Any]) -> list[Block]:
    """A comparison: its verdict, and every metric behind it."""
    rows = [against_row(NAMES.get(name, name), one) for name, one in found["metrics"].items()]
    head = [
        ("verdict", f"{found['verdict']}: {found['statement']}"),
        ("pairs", _pairs(found)),
        ("margin", f"{found['margin']:g}"),
    ]
    return [Fields(head), Lines([""]), Table(_AGAINST, rows)]


def _pairs(found: Mapping[str, Any]) -> str:
    left = found.get("left_out", 0)
    return f"{found['pairs']}" + (f" ({left} drifted in one of the runs)" if left else "")


def against_row(name: str, one: Mapping[str, Any]) -> tuple[str, ...]:
    """One metric of a comparison."""
    if not one["pairs"]:
        return (name, "-", "-", "-", "-", "-", one["verdict"])
    return (
        name,
        f"{one['before']:.3f}",
        f"{one['after']:.3f}",
        f"{one['mean']:+.3f}",
        f"{one['low']:+.3f} .. {one['high']:+.3f}",
        f"{one['won']}/{one['lost']}",
        one["verdict"],
    )


def sweep_blocks(found: Mapping[str, Any]) -> list[Block]:
    """A sweep: every point, those that no other beats marked."""
    names = found["metrics"]
    columns = (
        Column(""),
        Column("settings", "cyan", wraps=True),
        *(Column(NAMES[name]) for name in names),
        Column("against today", wraps=True),
    )
    rows = [
        (
            "*" if row["on_front"] else "",
            row["id"],
            *(f"{row['figures'][name]['mean']:.3f}" for name in names),
            _change(row, names),
        )
        for row in found["results"]
    ]
    head = f"{found['scored']} of {found['probes']} probes; * no other is better in all of these"
    return [Lines([head]), Table(columns, rows), Lines(["", found["statement"]])]


def _change(row: Mapping[str, Any], names: Sequence[str]) -> str:
    """What differs from today, with its interval; only what is more than chance."""
    if row["against"] is None:
        return "what serves today"
    told = row["against"]["metrics"]
    if not any(told[name]["won"] or told[name]["lost"] for name in names if told[name]["pairs"]):
        return "the same"
    clear = [
        f"{NAMES[name]} {told[name]['mean']:+.3f} [{_between(told[name], '+')}]"
        for name in names
        if told[name]["pairs"] and (told[name]["low"] > 0.0 or told[name]["high"] < 0.0)
    ]
    return ", ".join(clear) or "within its interval"


def _between(one: Mapping[str, Any], sign: str = "") -> str:
    return f"{one['low']:{sign}.3f} .. {one['high']:{sign}.3f}"
