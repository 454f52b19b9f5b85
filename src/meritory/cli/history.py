"""Commands about changes: history, undo, merges, split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.command import command, limit_option, note
from meritory.cli.context import handles, opened
from meritory.cli.output import Answer, Field, Lines, RecordView, clock_text
from meritory.cli.search import memory_table
from meritory.domain.codec import record_to_dict
from meritory.domain.memory import HistoryEntry, MemoryRecord

if TYPE_CHECKING:
    from meritory.api.memory import Memory

MERGES_LIMIT, MERGES_LIMIT_MAX = 50, 10_000
ENTRY_MAX = 1 << 62
# Fields that change by themselves, not because someone changed the memory.
_AUTOMATIC = frozenset(
    {"updated_at", "embedder", "dimension", "access_count", "last_accessed", "usefulness"}
)


def changed_fields(
    before: MemoryRecord | None, after: MemoryRecord | None
) -> dict[str, dict[str, Any]]:
    """Return the fields in which two versions of a memory differ, as JSON values."""
    if before is None or after is None:
        return {}
    old, new = record_to_dict(before), record_to_dict(after)
    return {
        name: {"before": old[name], "after": new[name]}
        for name in old
        if name not in _AUTOMATIC and old[name] != new[name]
    }


def change_lines(changes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return differences as lines with - and +."""

    def word(value: Any) -> str:
        if value is None or value == []:
            return "(none)"
        if isinstance(value, bool):
            return "yes" if value else "no"
        return ", ".join(map(str, value)) if isinstance(value, list) else _one_line(str(value))

    lines = []
    for name, change in changes.items():
        lines += [f"  - {name}: {word(change['before'])}", f"  + {name}: {word(change['after'])}"]
    return lines


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _content(record: MemoryRecord | None) -> str:
    return "" if record is None else record.content


def _view(ids: Mapping[str, str] | None = None) -> RecordView[HistoryEntry]:
    return RecordView(
        Field("", "id", lambda entry: (ids or {}).get(entry.memory_id), style="cyan"),
        Field("id", read=lambda entry: entry.memory_id),
        Field("entry", "entry"),
        Field("at", "when", style="dim"),
        Field("actor"),
        Field("action"),
        Field("why"),
        Field("undone"),
        Field("other_id"),
        Field("changes", read=lambda entry: changed_fields(entry.before, entry.after)),
        Field("before", "was", show=_content, wraps=True),
        Field("after"),
        Field("other", "merged with", show=_content, wraps=True),
    )


@command("history", "meritory history 01kx3f9qz2")
@click.argument("memory_id", metavar="ID")
def history(memory_id: str) -> Answer:
    """Show every change of a memory: who, when, why, before and after."""
    with opened() as memory:
        entries = memory.history(memory_id)
        ids = handles(memory, (entry.other_id for entry in entries if entry.other_id))
    lines = []
    for entry in entries:
        undone = " (undone)" if entry.undone else ""
        why = f": {_one_line(entry.why)}" if entry.why else ""
        when = clock_text(entry.at)
        lines.append(f"#{entry.entry}  {when}  {entry.action} by {entry.actor}{undone}{why}")
        if entry.before is None and entry.after is not None:
            lines.append(f"  + content: {_one_line(entry.after.content)}")
        lines += change_lines(changed_fields(entry.before, entry.after))
        if entry.other is not None:
            lines.append(f"  with: {_one_line(entry.other.content)}")
        if entry.other_id is not None:
            lines.append(f"  other memory: {ids[entry.other_id]}")
    return Answer({"results": [_view().json(entry) for entry in entries]}, [Lines(lines)])


@command("undo", "meritory undo 01kx3f9qz2")
@click.argument("memory_id", metavar="ID")
def undo(memory_id: str) -> Answer:
    """Undo the last change of a memory.

    Run it again to undo more. A merge is split; a new memory is forgotten, and the one it
    superseded returns.
    """
    with opened() as memory:
        return _changed(memory, memory.undo(memory_id))


@command("split", "meritory split 01kx3f9qz2")
@click.argument("memory_id", metavar="ID")
@click.option(
    "--entry",
    type=click.IntRange(1, ENTRY_MAX),
    help="The merge, by its number in the history. Default: the latest.",
)
def split(memory_id: str, entry: int | None) -> Answer:
    """Undo a merge.

    The memory becomes what it was before, and the text that was merged into it becomes a memory of
    its own. Later changes stay.
    """
    with opened() as memory:
        return _changed(memory, memory.split(memory_id, entry))


def _changed(memory: Memory, records: Sequence[MemoryRecord]) -> Answer:
    ids = handles(memory, (record.id for record in records))
    plain = {"results": [record_to_dict(record) for record in records]}
    return Answer(plain, [memory_table(records, ids)])


@command("merges", "meritory merges --limit 10")
@limit_option(MERGES_LIMIT, MERGES_LIMIT_MAX)
def merges(limit: int) -> Answer:
    """List the latest merges, newest first; `meritory split` undoes one."""
    with opened() as memory:
        entries = memory.merges(limit)
        ids = handles(memory, (entry.memory_id for entry in entries))
    if not entries:
        note("there are no merges")
    return _view(ids).answer(entries)
