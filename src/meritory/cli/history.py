"""Commands about changes: history, undo, merges, split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.context import handles, note, opened
from meritory.cli.options import command
from meritory.cli.output import Answer, Block, Column, Lines, Table
from meritory.cli.records import ID_COLUMN, change_lines, changed_fields, clock_text, memory_table
from meritory.domain.codec import moment_text, record_to_dict

if TYPE_CHECKING:
    from meritory.api.memory import Memory
    from meritory.domain.memory import HistoryEntry, MemoryRecord


MERGES_LIMIT, MERGES_LIMIT_MAX = 50, 10_000
ENTRY_MAX = 1 << 62


@command("history", "meritory history 01kx3f9qz2")
@click.argument("memory_id", metavar="ID")
def history(memory_id: str) -> Answer:
    """Show every change of a memory: who, when, why, before and after."""
    with opened() as memory:
        entries = memory.history(memory_id)
        ids = handles(memory, (entry.other_id for entry in entries if entry.other_id))
    lines = [line for entry in entries for line in _entry_lines(entry, ids)]
    return Answer({"results": [_entry_plain(entry) for entry in entries]}, [Lines(lines)])


def _entry_plain(entry: HistoryEntry) -> dict[str, Any]:
    states = {"before": entry.before, "after": entry.after, "other": entry.other}
    return {
        "id": entry.memory_id,
        "entry": entry.entry,
        "at": moment_text(entry.at),
        "actor": entry.actor,
        "action": entry.action,
        "why": entry.why,
        "undone": entry.undone,
        "other_id": entry.other_id,
        "changes": changed_fields(entry.before, entry.after),
        **{name: None if r is None else record_to_dict(r) for name, r in states.items()},
    }


def _entry_lines(entry: HistoryEntry, ids: dict[str, str]) -> list[str]:
    undone = " (undone)" if entry.undone else ""
    why = f": {' '.join(entry.why.split())}" if entry.why else ""
    lines = [
        f"#{entry.entry}  {clock_text(entry.at)}  {entry.action} by {entry.actor}{undone}{why}"
    ]
    if entry.before is None and entry.after is not None:
        lines.append(f"  + content: {' '.join(entry.after.content.split())}")
    lines += change_lines(changed_fields(entry.before, entry.after))
    if entry.other is not None:
        lines.append(f"  with: {' '.join(entry.other.content.split())}")
    if entry.other_id is not None:
        lines.append(f"  other memory: {ids[entry.other_id]}")
    return lines


@command("undo", "meritory undo 01kx3f9qz2")
@click.argument("memory_id", metavar="ID")
def undo(memory_id: str) -> Answer:
    """Take back the last change of a memory.

    Again goes further back. A merge comes apart; a memory that was just made is forgotten, and
    what it had replaced returns.
    """
    with opened() as memory:
        return _changed_answer(memory, memory.undo(memory_id))


@command("split", "meritory split 01kx3f9qz2")
@click.argument("memory_id", metavar="ID")
@click.option(
    "--entry",
    type=click.IntRange(1, ENTRY_MAX),
    help="Which merge, by its number in the history; the latest otherwise.",
)
def split(memory_id: str, entry: int | None) -> Answer:
    """Take a merge apart again.

    The memory becomes what it was before, and the text that was merged into it a memory of its
    own; what was changed since stays.
    """
    with opened() as memory:
        return _changed_answer(memory, memory.split(memory_id, entry))


def _changed_answer(memory: Memory, records: Sequence[MemoryRecord]) -> Answer:
    shown_ids = handles(memory, (record.id for record in records))
    blocks: list[Block] = [memory_table(records, shown_ids, memory.services.world.now())]
    return Answer({"results": [record_to_dict(record) for record in records]}, blocks)


@command("merges", "meritory merges --limit 10")
@click.option(
    "--limit",
    type=click.IntRange(1, MERGES_LIMIT_MAX),
    default=MERGES_LIMIT,
    show_default=True,
    help="How many at most.",
)
def merges(limit: int) -> Answer:
    """List the latest merges, newest first; each can be split again."""
    with opened() as memory:
        entries = memory.merges(limit)
        ids = handles(memory, (entry.memory_id for entry in entries))
    if not entries:
        note("nothing was merged")
    rows = [
        (
            ids[entry.memory_id],
            str(entry.entry),
            clock_text(entry.at),
            entry.before.content if entry.before else "",
            entry.other.content if entry.other else "",
        )
        for entry in entries
    ]
    columns = (
        ID_COLUMN,
        Column("entry"),
        Column("when", "dim"),
        Column("was", wraps=True),
        Column("merged with", wraps=True),
    )
    blocks = [Table(columns, rows)] if rows else []
    return Answer({"results": [_entry_plain(entry) for entry in entries]}, blocks)
