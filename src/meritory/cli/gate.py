"""Commands about the similarity gate: gate metrics, gate audit, gate tune."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.answer import Answer, Block, Column, Fields, Lines, Table
from meritory.cli.frame import current_flags, handles, note, opened, taken_notes
from meritory.cli.options import HELP_NAMES, command, global_options
from meritory.cli.progress import bar
from meritory.cli.records import clock_text
from meritory.cli.render import show_answer
from meritory.codec import moment_text
from meritory.errors import InputError

if TYPE_CHECKING:
    from meritory.flow.audit import Audited, Merge
    from meritory.flow.gate_tune import Example, Row, Tuning
    from meritory.memory import Memory
    from meritory.store.gate_reads import WeekOutcome

AUDIT_LIMIT, AUDIT_LIMIT_MAX = 20, 1_000
ENTRY_MAX = 1 << 62
SAMPLE_MAX, SECONDS_MAX = 20_000, 3_600
_WEEKS = 12
_OUTCOMES = ("stored", "merged", "superseded", "kept_both")
_WEEK_COLUMNS = (Column("week of"), *map(Column, _OUTCOMES), Column("triggered"))
_MERGE_COLUMNS = (
    Column("entry", "cyan"),
    Column("memory", "cyan"),
    Column("when", "dim"),
    Column("was", wraps=True),
    Column("merged with", wraps=True),
    Column("became", wraps=True),
)
_TUNE_COLUMNS = (
    Column("threshold"),
    Column("pairs"),
    Column("merge"),
    Column("supersede"),
    Column("keep both"),
    Column("past merges kept"),
    Column("lost"),
)


@click.group(
    "gate",
    invoke_without_command=True,
    context_settings={"help_option_names": list(HELP_NAMES), "max_content_width": 100},
    epilog="\b\nExample:\n  meritory gate tune --sample 500\n",
)
@click.pass_context
def gate(ctx: click.Context) -> None:
    """Show what the similarity gate does, audit its merges and try other thresholds."""
    if ctx.invoked_subcommand is None:
        show_answer(_metrics(), current_flags(), taken_notes())


# A group has no answer of its own, so it is no `Command`, but it takes the same options.
gate.params += global_options(hidden=True)


@command("metrics", "meritory gate metrics")
def metrics() -> Answer:
    """Show how often the gate found something near, what came of it, and how much was wrong."""
    return _metrics()


def _metrics() -> Answer:
    from meritory.flow import audit, quality

    with opened(quiet=True) as memory:
        services, user = memory.services, memory.scope.user
        counters = services.store.counters(user)
        since = services.world.now() - timedelta(weeks=_WEEKS)
        weeks = services.store.gate_outcomes(user, since)
        known = audit.audited(services, user)
    trigger = quality.trigger_rate(counters)
    counts = {name: counters.get(f"write.{name}", 0) for name in _OUTCOMES}
    told = ", ".join(f"{many} {name.replace('_', ' ')}" for name, many in counts.items())
    rate = "no writes yet" if trigger.rate is None else f"{trigger.rate:.1%} of {trigger.total}"
    pairs = [
        ("triggered", rate),
        ("outcomes", told),
        ("split again", str(counters.get("split", 0))),
        ("wrong merges", audited_text(known)),
    ]
    table = _by_week(weeks)
    blocks: list[Block] = [Fields(pairs)]
    if table:
        blocks += [Lines([""]), Table(_WEEK_COLUMNS, table)]
    plain = {
        "trigger_rate": trigger.rate,
        "writes": trigger.total,
        "outcomes": counts,
        "split": counters.get("split", 0),
        "audited": audited_plain(known),
        "results": [{"week": o.week, "outcome": o.outcome, "count": o.many} for o in weeks],
    }
    return Answer(plain, blocks)


def _by_week(found: Sequence[WeekOutcome]) -> list[tuple[str, ...]]:
    weeks: dict[str, dict[str, int]] = {}
    for one in found:
        weeks.setdefault(one.week, {})[one.outcome] = one.many
    rows = []
    for week, counts in weeks.items():
        total = sum(counts.values())
        share = 1 - counts.get("stored", 0) / total
        rows.append((week, *(str(counts.get(name, 0)) for name in _OUTCOMES), f"{share:.1%}"))
    return rows


def audited_text(known: Audited) -> str:
    """The share of wrong merges with its interval, in words."""
    if known.rate is None:
        return "none was audited yet: `meritory gate audit` lists them"
    told = f"{known.wrong} of {known.total} audited ({known.rate:.1%}"
    return f"{told}; 95% interval {known.low:.1%} to {known.high:.1%})"


def audited_plain(known: Audited) -> dict[str, Any]:
    """The same for programs."""
    return {
        "total": known.total,
        "wrong": known.wrong,
        "rate": known.rate,
        "low": known.low,
        "high": known.high,
    }


@command("audit", "meritory gate audit --right 4711 --right 4712 --wrong 4713")
@click.option(
    "--limit",
    type=click.IntRange(1, AUDIT_LIMIT_MAX),
    default=AUDIT_LIMIT,
    show_default=True,
    help="How many to list at most.",
)
@click.option(
    "--right",
    type=click.IntRange(1, ENTRY_MAX),
    multiple=True,
    metavar="ENTRY",
    help="This merge lost nothing; may be given several times.",
)
@click.option(
    "--wrong",
    type=click.IntRange(1, ENTRY_MAX),
    multiple=True,
    metavar="ENTRY",
    help="This merge joined what are two claims; may be given several times.",
)
def audit(limit: int, right: tuple[int, ...], wrong: tuple[int, ...]) -> Answer:
    """List merges that nobody has judged yet, or say which were right and which wrong.

    A rate of wrong merges that means something needs some dozens, taken as they come. Taking a
    merge apart with `meritory split` counts it as wrong.
    """
    from meritory.flow import audit as auditing

    if set(right) & set(wrong):
        raise InputError("a merge is right or wrong, not both")
    with opened(quiet=True) as memory:
        services, user = memory.services, memory.scope.user
        if right or wrong:
            # All or none: a number that names no merge of theirs stops it before anything is kept.
            for entry in (*right, *wrong):
                services.store.merge_entry(user, entry)
            marked = [auditing.mark(services, user, entry, "right") for entry in right]
            marked += [auditing.mark(services, user, entry, "wrong") for entry in wrong]
            return _marked(memory, marked)
        found = auditing.unaudited(services, user, limit)
        answer = _audit_table(memory, found)
    if not found:
        note("there is no merge left to audit")
    else:
        note("`meritory gate audit --right ENTRY` and `--wrong ENTRY` say what you think of them")
    return answer


def _marked(memory: Memory, marked: Sequence[Merge]) -> Answer:
    from meritory.flow import audit as auditing

    known = auditing.audited(memory.services, memory.scope.user)
    for one in marked:
        if one.verdict == "wrong" and not one.entry.undone:
            memory_id = one.entry.memory_id
            note(f"`meritory split {memory_id} --entry {one.entry.entry}` takes it apart")
    plain = {"results": [merge_plain(one) for one in marked], "audited": audited_plain(known)}
    return Answer(plain, [Fields([("wrong merges", audited_text(known))])])


def _audit_table(memory: Memory, found: Sequence[Merge]) -> Answer:
    ids = handles(memory, (one.entry.memory_id for one in found))
    rows = [
        (
            str(one.entry.entry),
            ids[one.entry.memory_id],
            clock_text(one.entry.at),
            one.entry.before.content if one.entry.before else "",
            one.entry.other.content if one.entry.other else "",
            one.entry.after.content if one.entry.after else "",
        )
        for one in found
    ]
    blocks = [Table(_MERGE_COLUMNS, rows)] if rows else []
    return Answer({"results": [merge_plain(one) for one in found]}, blocks)


def merge_plain(one: Merge) -> dict[str, Any]:
    """A merge for programs."""
    entry = one.entry
    return {
        "entry": entry.entry,
        "id": entry.memory_id,
        "at": moment_text(entry.at),
        "why": entry.why,
        "before": entry.before.content if entry.before else None,
        "other": entry.other.content if entry.other else None,
        "after": entry.after.content if entry.after else None,
        "is_split": entry.undone,
        "verdict": one.verdict,
    }


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
    from meritory.flow import gate_tune

    asked = gate_tune.Request(thresholds or gate_tune.THRESHOLDS, sample, float(seconds))
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


for _command in (metrics, audit, tune):
    gate.add_command(_command)
