"""The quality figures in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.context import current_flags, handles, note, opened, taken_notes
from meritory.cli.options import HELP_NAMES, LazyCommands, command, global_options
from meritory.cli.output import Answer, Block, Column, Fields, Lines, Table
from meritory.cli.records import clock_text
from meritory.cli.render import show_answer
from meritory.domain.codec import moment_text
from meritory.domain.errors import InputError

if TYPE_CHECKING:
    from meritory.api.memory import Memory
    from meritory.domain.quality import WeekOutcome
    from meritory.engine.quality.figures import Audited, Merge, QualityFigures, Share, Worth


def quality_pairs(found: QualityFigures) -> list[tuple[str, str]]:
    """Every figure with its name."""
    return [
        ("gate triggered", _share_text(found.gate_trigger, "writes")),
        ("wrong merges", audited_text(found.false_merges)),
        ("redundant additions", _redundant_text(found)),
        ("shown below the floor", _below_text(found)),
        *_worth_pairs(found),
        ("extraction", _counts(found.extraction)),
        ("refused, kept aside", str(found.refusals)),
        ("found by searches", f"{found.retrievals} times"),
        ("upkeep", _counts(found.janitor)),
    ]


def _share_text(share: Share, of_what: str) -> str:
    if share.rate is None:
        return f"no {of_what} yet"
    return f"{share.rate:.1%} of {share.total} {of_what}"


def _redundant_text(found: QualityFigures) -> str:
    one = found.redundant
    if one.per_week is None:
        return f"not known; {one.additions} additions this week"
    more = "or more " if one.is_cut else ""
    return (
        f"{one.per_week:g} a week: {one.sample.count} of {one.sample.total} tried, "
        f"of {one.additions} {more}additions"
    )


def _below_text(found: QualityFigures) -> str:
    one = found.below_floor
    if one.per_turn is None:
        return "nothing was shown yet"
    return f"{one.per_turn:.2f} a turn: {one.memories} of {one.shown} memories in {one.turns} turns"


def _worth_pairs(found: QualityFigures) -> Iterator[tuple[str, str]]:
    """Raw, so that a low weight cannot hide a source that is of no use."""
    for title, worths in (("", found.by_provenance), ("by ", found.by_extractor)):
        for one in worths:
            yield f"helped, {title}{one.name}", _worth_text(one)


def _worth_text(one: Worth) -> str:
    share = one.helped
    if share.rate is None or one.mean_label is None:
        return "none was judged yet"
    return (
        f"{share.rate:.0%} of {share.total} judged "
        f"({share.low:.0%} to {share.high:.0%}), mean label {one.mean_label:+.2f}"
    )


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{many} {name.replace('_', ' ')}" for name, many in counts.items()) or "none"


AUDIT_LIMIT, AUDIT_LIMIT_MAX = 20, 1_000
ENTRY_MAX = 1 << 62
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


@click.group(
    "gate",
    cls=LazyCommands,
    lazy={"tune": "meritory.lab.cli_gate:tune"},
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
    from meritory.engine.quality import figures

    with opened(quiet=True) as memory:
        services, user = memory.services, memory.scope.user
        counters = services.store.counters(user)
        since = services.world.now() - timedelta(weeks=_WEEKS)
        weeks = services.store.gate_outcomes(user, since)
        known = figures.audited(services, user)
    trigger = figures.trigger_rate(counters)
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
    from meritory.engine.quality import figures as auditing

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
    from meritory.engine.quality import figures as auditing

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


for _command in (metrics, audit):
    gate.add_command(_command)
