"""Commands that move memories: export, import."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.context import current_flags, is_terminal, note, opened, resumable
from meritory.cli.options import command
from meritory.cli.output import Answer, Block, Lines
from meritory.cli.render import bar
from meritory.domain.errors import InputError
from meritory.text.normalize import shown

if TYPE_CHECKING:
    from meritory.api.memory import Memory
    from meritory.engine.transfer.entries import FoundFiles
    from meritory.engine.transfer.report import How, ImportReport

PROBLEMS_SHOWN = 10
SAMPLE_CHARS = 120
# As `flow.importing.entries.FORMS`, which is only loaded when something is imported.
FORMS = ("meritory", "jsonl", "mem0", "claude-mem", "basic-memory", "markdown")


@command("export", "meritory export memories.jsonl")
@click.argument("file")
@click.option(
    "--format",
    "form",
    default="jsonl",
    show_default=True,
    type=click.Choice(("jsonl", "markdown")),
    help="JSON lines for programs, or a folder of notes for people.",
)
def export(file: str, form: str) -> Answer | None:
    """Write everything as JSON lines.

    FILE must not exist yet; - writes to stdout. All memories of the user in all projects, with
    their history: `meritory import` brings them back exactly. With --format markdown FILE is a new
    folder that gets one note a project with what is live, to be read and not to be imported.
    """
    if form == "markdown":
        return _export_notes(Path(file))
    if file == "-":
        _export_to_stdout()
        return None
    from meritory.engine.transfer.export import write_export

    target = Path(file)
    with opened() as memory, bar("exporting") as progress:
        count = write_export(memory.services, memory.scope.user, target, progress)
        left_out = _left_out(memory)
    if left_out:
        note(left_out)
    line = f"exported {count} memories to {target}"
    return Answer({"file": str(target.absolute()), "memory_count": count}, [Lines([line])])


def _export_notes(folder: Path) -> Answer:
    from meritory.engine.transfer.export import write_notes

    with opened() as memory:
        count, file_count = write_notes(memory.services, memory.scope.user, folder)
    files = "file" if file_count == 1 else "files"
    line = f"exported {count} memories to {file_count} {files} in {folder}"
    plain = {"file": str(folder.absolute()), "memory_count": count, "file_count": file_count}
    return Answer(plain, [Lines([line])])


def _export_to_stdout() -> None:
    from meritory.cli.render import json_text, wants_colour
    from meritory.engine.transfer.export import export_lines

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
    from meritory.engine.transfer.export import unreadable_count

    count = unreadable_count(memory.services)
    if not count:
        return None
    told = "1 memory is damaged and was" if count == 1 else f"{count} memories are damaged and were"
    return f"{told} left out; `meritory doctor --deep` names what is wrong"


@command(
    "import",
    """meritory import memories.jsonl --project heron
    meritory import CLAUDE.md --dry-run
    meritory import ~/.claude-mem/claude-mem.db""",
)
@click.argument("path")
@click.option(
    "--from",
    "form",
    default="auto",
    show_default=True,
    type=click.Choice(("auto", *FORMS)),
    help="The format, where it is not recognised.",
)
@click.option("--project", metavar="NAME", help="The project for what names none.")
@click.option("--agent", metavar="NAME", help="The agent for what names none.")
@click.option("--only-user", metavar="NAME", help="Of several people's memories, whose.")
@click.option("--keep", is_flag=True, help="Store all as they are, even beside similar ones.")
@click.option("--dry-run", is_flag=True, help="Only look: store nothing.")
def import_lines(
    path: str,
    form: str,
    project: str | None,
    agent: str | None,
    only_user: str | None,
    keep: bool,
    dry_run: bool,
) -> Answer:
    """Take in what was kept elsewhere.

    PATH is an export, a file of JSON lines, what mem0's get_all returned or its local database,
    the database of claude-mem, a folder of basic-memory, or Markdown: CLAUDE.md, AGENTS.md,
    MEMORY.md and their like, or a folder that holds them. Nothing of it is changed.

    When it was interrupted, the same command goes on where it stopped; after the end it goes
    through all again and finds what is stored already (with --keep it does nothing). Ends with 1
    when something was refused.
    """
    from meritory.engine.transfer.formats import recognise
    from meritory.engine.transfer.import_ import import_found
    from meritory.engine.transfer.report import How

    if path == "-":
        raise InputError(
            "import reads a file, so that it can go on where it stopped",
            hint="save stdin to a file first",
        )
    found = replace(recognise(Path(path), form), only_user=only_user)
    if form == "auto" and found.form not in ("meritory", "jsonl"):
        note(f"recognised {found.form}: {found.why}")
    for remark in found.remarks:
        note(remark)
    how = How("keep" if keep else "gate", dry_run)
    chosen = project or _project_of(found)
    with resumable(), opened(chosen, agent) as memory, bar("importing") as progress:
        report = import_found(memory.services, memory.scope, found, how, progress)
    if report.resumed_at and not report.line_count:
        note("this was taken in before with --keep; without it all is looked at again")
    plain = _report_plain(report, found, how) | {"project": chosen}
    return Answer(plain, _report_blocks(report, found), 1 if report.outcomes["refused"] else 0)


def _project_of(found: FoundFiles) -> str | None:
    """The project whose instructions these are: that of their folder, as for an agent's session."""
    from meritory.server.project import project_of

    if found.form != "markdown":
        return None
    folder = found.path.absolute()
    folder = folder if folder.is_dir() else folder.parent
    while folder.name.startswith("."):
        folder = folder.parent
    name = project_of(str(folder))
    if name is not None:
        note(f"its project is {name}; --project names another")
    return name


def _report_plain(report: ImportReport, found: FoundFiles, how: How) -> dict[str, Any]:
    plain = {
        "file": str(found.path.absolute()),
        "format": found.form,
        "recognised": found.why,
        "dry_run": how.is_dry,
        "line_count": report.line_count,
        "resumed_at": report.resumed_at,
        "outcomes": dict(report.outcomes),
        "problems": [{"line": line, "reason": reason} for line, reason in report.problems],
    }
    if how.is_dry:
        plain["kinds"] = dict(report.kinds)
        plain["samples"] = [
            {"content": one.content, "kind": one.kind, "project": one.project}
            for one in report.samples
        ]
    return plain


def _report_blocks(report: ImportReport, found: FoundFiles) -> list[Block]:
    has_lines = found.form in ("meritory", "jsonl")
    what = "lines" if has_lines else "entries"
    lines = []
    if report.resumed_at and report.line_count:
        one = "line" if has_lines else "entry"
        lines.append(f"went on after {one} {report.resumed_at}, where it was interrupted")
    lines.append(f"read {report.line_count} {what}: {_counted(report.outcomes) or 'nothing new'}")
    if report.kinds:
        lines.append(f"it would bring {_counted(report.kinds)}; for instance:")
        lines += [f"  {one.kind}: {_brief(one.content)}" for one in report.samples]
    for number, reason in report.problems[:PROBLEMS_SHOWN]:
        lines.append(f"  line {number}: {reason}" if has_lines else f"  {reason}")
    more = report.outcomes["refused"] + report.outcomes["skipped"] - PROBLEMS_SHOWN
    if more > 0:
        lines.append(f"  and {more} more; --json lists up to 100")
    return [Lines(lines)]


def _brief(text: str) -> str:
    line = shown(" ".join(text.split()), one_line=True)
    return line if len(line) <= SAMPLE_CHARS else f"{line[:SAMPLE_CHARS]}..."


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{many} {name.replace('_', ' ')}" for name, many in counts.items())
