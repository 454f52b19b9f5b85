"""`meritory gate tune`: try other thresholds of the similarity gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from meritory.cli.context import handles, note, opened
from meritory.cli.gate import audited_plain, audited_text
from meritory.cli.options import command
from meritory.cli.output import Answer, Block, Column, Fields, Lines, Table
from meritory.cli.render import bar

if TYPE_CHECKING:
    from meritory.lab.gate_tune import Example, Row, Tuning


SAMPLE_MAX, SECONDS_MAX = 20_000, 3_600
_TUNE_COLUMNS = (
    Column("threshold"),
    Column("pairs"),
    Column("merge"),
    Column("supersede"),
    Column("keep both"),
    Column("past merges kept"),
    Column("lost"),
)


@command("tune", "meritory gate tune --sample 500 --threshold 0.6 --threshold 0.7")
@click.option(
    "--threshold",
    "thresholds",
    type=click.FloatRange(0, 1, min_open=True),
    multiple=True,
    metavar="COSINE",
    help="A threshold to try; may be given several times. Ten of them otherwise.",
)
@click.option(
    "--sample",
    type=click.IntRange(1, SAMPLE_MAX),
    default=2_000,
    show_default=True,
    help="On how many of the latest memories.",
)
@click.option(
    "--seconds",
    type=click.IntRange(1, SECONDS_MAX),
    default=60,
    show_default=True,
    help="For how long at most.",
)
def tune(thresholds: tuple[float, ...], sample: int, seconds: int) -> Answer:
    """Try other thresholds of the gate on your own memories; nothing is written.

    Each of the latest memories is held against older ones as if it came in now. Words decide what
    is merged, so a lower threshold finds more to join and costs work, never a fact.
    """
    from meritory.lab import gate_tune

    asked = gate_tune.TuneRequest(thresholds or gate_tune.THRESHOLDS, sample, float(seconds))
    with opened() as memory, bar("trying thresholds") as report:
        found = gate_tune.tune(memory.services, memory.scope.user, asked, report)
        ids = handles(memory, (m.id for one in found.examples for m in (one.older, one.newer)))
    if found.is_cut:
        note(f"only {found.looked_at} memories were tried in {seconds} s; --seconds gives it more")
    return Answer(_tune_plain(found), _tune_blocks(found, ids))


def _tune_blocks(found: Tuning, ids: dict[str, str]) -> list[Block]:
    chosen = "chosen in the settings" if found.is_chosen else "calibrated for this embedder"
    blocks: list[Block] = [
        Fields(
            [
                ("embedder", found.embedder),
                ("threshold now", f"{found.threshold:g} ({chosen})"),
                ("tried on", f"{found.looked_at} memories"),
                ("wrong merges", audited_text(found.audited)),
            ]
        ),
        Lines([""]),
        Table(_TUNE_COLUMNS, [_tune_cells(row, found.threshold) for row in found.rows]),
    ]
    if found.examples:
        blocks.append(Lines(["", "A lower threshold would newly merge, for example:"]))
        blocks.append(Lines([line for one in found.examples for line in _example(one, ids)]))
    blocks.append(Lines(["", _verdict(found)]))
    if found.recommended is not None:
        blocks.append(Lines(["", "[gate]", f"threshold = {found.recommended:g}"]))
    return blocks


def _tune_cells(row: Row, now: float) -> tuple[str, ...]:
    mark = " (now)" if row.threshold == round(now, 4) else ""
    counts = (row.pair_count, row.merged, row.superseded, row.kept_both)
    return (f"{row.threshold:g}{mark}", *map(str, (*counts, row.past_kept, row.past_lost)))


def _example(one: Example, ids: dict[str, str]) -> list[str]:
    return [
        f"  from {one.threshold:g} on (cosine {one.cosine:.3f}): {one.reason}",
        f"    {ids[one.older.id]}  {' '.join(one.older.content.split())}",
        f"    {ids[one.newer.id]}  {' '.join(one.newer.content.split())}",
    ]


def _verdict(found: Tuning) -> str:
    if found.recommended is None:
        return f"No change is recommended: {found.why}."
    return f"Recommended: {found.recommended:g}, for {found.why}. In config.toml:"


def _tune_plain(found: Tuning) -> dict[str, Any]:
    return {
        "embedder": found.embedder,
        "threshold": found.threshold,
        "is_chosen": found.is_chosen,
        "looked_at": found.looked_at,
        "is_cut": found.is_cut,
        "audited": audited_plain(found.audited),
        "recommended": found.recommended,
        "why": found.why,
        "results": [
            {
                "threshold": row.threshold,
                "pairs": row.pair_count,
                "merged": row.merged,
                "superseded": row.superseded,
                "kept_both": row.kept_both,
                "past_kept": row.past_kept,
                "past_lost": row.past_lost,
            }
            for row in found.rows
        ],
        "examples": [
            {
                "threshold": one.threshold,
                "cosine": round(one.cosine, 6),
                "older": {"id": one.older.id, "content": one.older.content},
                "newer": {"id": one.newer.id, "content": one.newer.content},
                "reason": one.reason,
            }
            for one in found.examples
        ],
    }
