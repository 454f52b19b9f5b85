"""Commands that move memories: export, import."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tenure.cli.answer import Answer, Block, Lines
from tenure.cli.frame import current_flags, is_terminal, note, opened, resumable
from tenure.cli.options import command
from tenure.cli.progress import bar
from tenure.errors import InputError

if TYPE_CHECKING:
    from tenure.flow.transfer import ImportReport
    from tenure.memory import Memory

PROBLEMS_SHOWN = 10


@command("export", "tenure export memories.jsonl")
@click.argument("file")
def export(file: str) -> Answer | None:
    """Write everything as JSON lines.

    FILE must not exist yet; - writes to stdout. All memories of the user in all projects, with
    their history: `tenure import` brings them back exactly.
    """
    if file == "-":
        _export_to_stdout()
        return None
    from tenure.flow.export import write_export

    target = Path(file)
    with opened() as memory, bar("exporting") as progress:
        count = write_export(memory.services, memory.scope.user, target, progress)
        left_out = _left_out(memory)
    if left_out:
        note(left_out)
    line = f"exported {count} memories to {target}"
    return Answer({"file": str(target.absolute()), "memory_count": count}, [Lines([line])])


def _export_to_stdout() -> None:
    from tenure.cli.render import json_text, wants_colour
    from tenure.flow.export import export_lines

    if current_flags().as_json:
        raise InputError("the export itself is on stdout", hint="leave out --json, or name a file")
    if sys.stdout is None:
        raise InputError("stdout is closed", hint="name a file instead of -")
    stream = sys.stdout.buffer
    is_seen = is_terminal(sys.stdout)
    with opened() as memory:
        for line in export_lines(memory.services, memory.scope.user):
            # A terminal must not obey what a memory holds.
            safe = json_text(json.loads(line)) if is_seen else line
            stream.write(safe.encode() + b"\n")
        left_out = _left_out(memory)
    stream.flush()
    if left_out:
        click.secho(left_out, dim=True, err=True, color=wants_colour(current_flags()))


def _left_out(memory: Memory) -> str | None:
    """What to say when damaged memories are not in the export."""
    from tenure.flow.export import unreadable_count

    count = unreadable_count(memory.services)
    if not count:
        return None
    told = "1 memory is damaged and was" if count == 1 else f"{count} memories are damaged and were"
    return f"{told} left out; `tenure doctor --deep` names what is wrong"


@command("import", "tenure import memories.jsonl --project heron")
@click.argument("file")
@click.option("--project", metavar="NAME", help="The project for lines that name none.")
@click.option("--agent", metavar="NAME", help="The agent for lines that name none.")
@click.option("--keep", is_flag=True, help="Store all as they are, even beside similar ones.")
def import_lines(file: str, project: str | None, agent: str | None, keep: bool) -> Answer:
    """Take in a file of JSON lines.

    FILE is an export, or has one object per line with a "content" and any fields of `remember`,
    or one text per line in JSON quotes. When it was interrupted, the same command goes on where
    it stopped; after the end it goes through all lines again and finds what is stored
    already (with --keep it does nothing). Ends with 1 when a line was refused.
    """
    from tenure.flow.transfer import import_file

    if file == "-":
        raise InputError(
            "import reads a file, so that it can go on where it stopped",
            hint="save stdin to a file first",
        )
    with resumable(), opened(project, agent) as memory, bar("importing") as progress:
        report = import_file(
            memory.services,
            memory.scope,
            Path(file),
            on_similar="keep" if keep else "gate",
            progress=progress,
        )
    refused = report.outcomes["refused"]
    if report.resumed_at and not report.line_count:
        note("this file was taken in before with --keep; without it all lines are looked at again")
    return Answer(_report_plain(report, file), _report_blocks(report), 1 if refused else 0)


def _report_plain(report: ImportReport, file: str) -> dict[str, Any]:
    return {
        "file": str(Path(file).absolute()),
        "line_count": report.line_count,
        "resumed_at": report.resumed_at,
        "outcomes": dict(report.outcomes),
        "problems": [{"line": line, "reason": reason} for line, reason in report.problems],
    }


def _report_blocks(report: ImportReport) -> list[Block]:
    lines = []
    if report.resumed_at and report.line_count:
        lines.append(f"went on after line {report.resumed_at}, where it was interrupted")
    told = ", ".join(
        f"{many} {outcome.replace('_', ' ')}" for outcome, many in report.outcomes.items()
    )
    lines.append(f"read {report.line_count} lines: {told or 'nothing new'}")
    lines += [f"  line {line}: {reason}" for line, reason in report.problems[:PROBLEMS_SHOWN]]
    more = report.outcomes["refused"] - PROBLEMS_SHOWN
    if more > 0:
        lines.append(f"  and {more} more; --json lists up to 100")
    return [Lines(lines)]
