"""Commands that move memories: export, import, migrate."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import click

from meritory.cli.command import command, current_settings, opened, opened_services, resumable
from meritory.cli.output import (
    Answer,
    Field,
    RecordView,
    bar,
    counts,
    current_flags,
    flat,
    is_terminal,
    json_text,
    note,
    number,
    to_json,
)
from meritory.domain.errors import InputError
from meritory.domain.place import Place

if TYPE_CHECKING:
    from meritory.api.memory import Memory
    from meritory.engine.transfer.entries import FoundFiles
    from meritory.engine.transfer.import_ import ImportReport
    from meritory.engine.transfer.migrate import MigrationReport, MigrationRequest, UserTally
    from meritory.settings import Settings

PROBLEMS_SHOWN = 10
SAMPLE_CHARS = 120
# As in engine.transfer.entries, which is only loaded for an import.
FORMS = ("meritory", "jsonl", "mem0", "claude-mem", "basic-memory", "markdown")

# -- export ---------------------------------------------------------------------------------


@command("export", "meritory export memories.jsonl")
@click.argument("file")
@click.option("--all", "everything", is_flag=True, help="Also sessions, labels and models.")
@click.option(
    "--format",
    "form",
    default="jsonl",
    show_default=True,
    type=click.Choice(("jsonl", "markdown")),
    help="JSON lines for programs, or a folder of notes for people.",
)
def export(file: str, everything: bool, form: str) -> Answer:
    """Write memories as JSON lines.

    FILE must not exist yet; - writes to stdout. Exports all memories of the user in all projects,
    with their history: `meritory import` restores them exactly. Sessions with their transcripts,
    uses, labels and comparisons, and learned models, follow with --all. With --format markdown FILE
    is a new folder with one note per project that lists the live memories, for reading only.
    """
    from meritory.engine.transfer.export import export_lines, write_export, write_notes
    from meritory.engine.transfer.learned import LEFT_OUT

    target = Path(file)
    if everything and form == "markdown":
        raise InputError("notes list memories only", hint="remove --all, or --format markdown")
    if form == "markdown":
        with opened() as memory:
            count, file_count = write_notes(memory.services, memory.scope.user, target)
        files = "file" if file_count == 1 else "files"
        return Answer(
            {"file": str(target.absolute()), "memory_count": count, "file_count": file_count},
            f"exported {count} memories to {file_count} {files} in {target}",
        )
    if file == "-":
        if current_flags().as_json:
            raise InputError("the export itself is on stdout", hint="remove --json, or name a file")
        if sys.stdout is None:
            raise InputError("stdout is closed", hint="name a file instead of -")
        is_seen = is_terminal(sys.stdout)
        with opened() as memory:
            lines = export_lines(memory.services, memory.scope.user, with_learned=everything)
            for line in lines:
                # No stored text may control a terminal.
                safe = json_text(json.loads(line)) if is_seen else line
                sys.stdout.buffer.write(safe.encode() + b"\n")
            _note_omitted(memory)
        if not everything:
            note(f"left out: {LEFT_OUT}; --all exports them as well")
        sys.stdout.buffer.flush()
        return Answer({})
    with opened() as memory, bar("exporting") as progress:
        services, user = memory.services, memory.scope.user
        count = write_export(services, user, target, progress, with_learned=everything)
        _note_omitted(memory)
    if not everything:
        note(f"left out: {LEFT_OUT}; --all exports them as well")
    plain = {
        "file": str(target.absolute()),
        "memory_count": count,
        "left_out": None if everything else LEFT_OUT,
    }
    return Answer(plain, f"exported {count} memories to {target}")


def _note_omitted(memory: Memory) -> None:
    """Add a note about damaged memories that are not in the export."""
    if count := memory.services.store.damaged_count():
        subject = "1 memory is" if count == 1 else f"{count} memories are"
        note(f"{subject} damaged and not exported; `meritory doctor --deep` shows what is wrong")


# -- import ---------------------------------------------------------------------------------


@command(
    "import",
    "meritory import memories.jsonl --project heron",
    "meritory import CLAUDE.md --dry-run",
    "meritory import ~/.claude-mem/claude-mem.db",
)
@click.argument("path")
@click.option(
    "--from",
    "form",
    default="auto",
    show_default=True,
    type=click.Choice(("auto", *FORMS)),
    help="The format, if it is not recognised.",
)
@click.option("--project", metavar="NAME", help="The project for memories without one.")
@click.option("--agent", metavar="NAME", help="The agent for memories without one.")
@click.option("--only-user", metavar="NAME", help="Only memories of this user.")
@click.option("--keep", is_flag=True, help="Store all unchanged, even if similar ones exist.")
@click.option("--dry-run", is_flag=True, help="Store nothing; show what would be stored.")
def import_lines(
    path: str,
    form: str,
    project: str | None,
    agent: str | None,
    only_user: str | None,
    keep: bool,
    dry_run: bool,
) -> Answer:
    """Import memories from other files and tools.

    PATH is an export, a file of JSON lines, the result of mem0's get_all or its local database,
    the database of claude-mem, a folder of basic-memory, or Markdown: CLAUDE.md, AGENTS.md,
    MEMORY.md and similar files, or a folder with them. The source is not changed.

    After an interruption the same command resumes; after the end it reads everything again and
    finds what is already stored (with --keep it does nothing). Exits with 1 when an entry was
    refused.
    """
    from meritory.engine.transfer.import_ import ImportOptions, import_found, recognise

    if path == "-":
        raise InputError(
            "import reads a file, so that it can resume", hint="save stdin to a file first"
        )
    source = replace(recognise(Path(path), form), only_user=only_user)
    if form == "auto" and source.form not in ("meritory", "jsonl"):
        note(f"recognised {source.form}: {source.why}")
    for remark in source.remarks:
        note(remark)
    chosen = project or _project_of(source, dry_run=dry_run)
    with resumable(), opened(chosen, agent) as memory, bar("importing") as progress:
        how = ImportOptions("keep" if keep else "gate", dry_run)
        report = import_found(memory.services, memory.scope, source, how, progress)
    if report.resumed_at and not report.line_count:
        note("this was already imported with --keep; without it everything is read again")
    plain: dict[str, Any] = {
        "file": str(source.path.absolute()),
        "format": source.form,
        "recognised": source.why,
        "dry_run": dry_run,
        **RecordView("line_count resumed_at outcomes").json(report),
        "problems": [{"line": line, "reason": reason} for line, reason in report.problems],
    }
    if dry_run:
        samples = RecordView("content kind project")
        plain["kinds"] = dict(report.kinds)
        plain["samples"] = [samples.json(sample) for sample in report.samples]
    plain["project"] = chosen
    lines = _report_lines(report, has_lines=source.form in ("meritory", "jsonl"))
    return Answer(plain, *lines, code=1 if report.outcomes["refused"] else 0)


def _project_of(source: FoundFiles, *, dry_run: bool) -> str | None:
    """Return the project of Markdown instructions: that of their folder, as for a session."""
    from meritory.engine.folders import project_for

    if source.form != "markdown":
        return None
    folder = source.path.absolute()
    folder = folder if folder.is_dir() else folder.parent
    while folder.name.startswith("."):
        folder = folder.parent
    with opened_services() as (services, user):
        name = project_for(services, user, str(folder), claims=not dry_run)
    if name is not None:
        note(f"its project is {name}; --project names another")
    return name


def _report_lines(report: ImportReport, *, has_lines: bool) -> list[str]:
    lines, (unit, units) = [], ("line", "lines") if has_lines else ("entry", "entries")
    if report.resumed_at and report.line_count:
        lines.append(f"resumed after {unit} {report.resumed_at}, where it was interrupted")
    outcomes = counts(report.outcomes, empty="nothing new")
    lines.append(f"read {report.line_count} {units}: {outcomes}")
    if report.kinds:
        lines.append(f"it would store {counts(report.kinds)}; for example:")
        for sample in report.samples:
            text = flat(sample.content)
            cut = text if len(text) <= SAMPLE_CHARS else f"{text[:SAMPLE_CHARS]}..."
            lines.append(f"  {sample.kind}: {cut}")
    for line, reason in report.problems[:PROBLEMS_SHOWN]:
        lines.append(f"  line {line}: {reason}" if has_lines else f"  {reason}")
    more = report.outcomes["refused"] + report.outcomes["skipped"] - PROBLEMS_SHOWN
    if more > 0:
        lines.append(f"  and {more} more; --json lists up to 100")
    return lines


# -- migrate --------------------------------------------------------------------------------

URL_VARIABLE = "MERITORY_DATABASE_URL"
_USERS = RecordView("user new_user copied_before was_complete was_begun_anew left_behind")
_count = number(",")
_COMPARED = RecordView(
    Field("table", "table"),
    Field("copied", "copied", show=_count),
    Field("compared", "compared", show=_count),
    Field("differing", "different", show=_count),
    Field("digest", "digest"),
)


@command(
    "migrate",
    "meritory migrate --dry-run",
    "meritory migrate --user default --as anna",
    "meritory migrate --to meritory.db",
)
@click.option("--from", "source", metavar="PLACE", help="A file, or postgresql://USER@HOST/NAME.")
@click.option("--to", "target", metavar="PLACE", help="The same; the other kind.")
@click.option("--as", "new_name", metavar="NAME", help="A new name for the user who is moved.")
@click.option("--dry-run", is_flag=True, help="Count the rows, and write nothing.")
@click.option("--verify-only", is_flag=True, help="Compare both stores, and write nothing.")
@click.option("--restart", is_flag=True, help="Discard the copy of an unfinished migration.")
def migrate(
    source: str | None,
    target: str | None,
    new_name: str | None,
    dry_run: bool,
    verify_only: bool,
    restart: bool,
) -> Answer:
    """Move a store into a team's database, or back.

    Without --from and --to, moves the file of the settings into the database that
    MERITORY_DATABASE_URL names; with a file for --to, the other way. The source is not changed. All
    users are moved, or with --user one, who can get another name with --as.

    Every row is copied and then compared; differences are listed, and the exit code is 1. After an
    interruption the same command resumes. Stop a daemon that serves the file first.
    """
    from meritory.engine.memories.validate import checked_name
    from meritory.engine.transfer import migrate as moving

    from_place, to_place = _places(current_settings({"database.url": None}), source, target)
    request = moving.MigrationRequest(
        user=current_flags().user,
        new_name=None if new_name is None else checked_name("user", new_name),
        restart=restart,
    )
    if dry_run:
        return _preview(from_place, to_place, request)
    with (
        resumable(),
        moving.open_endpoint(from_place, is_target=False) as origin,
        moving.open_endpoint(to_place, is_target=not verify_only) as destination,
        bar("comparing" if verify_only else "moving") as progress,
    ):
        work = moving.verify if verify_only else moving.move
        report = work(origin, destination, request, progress)
    _note_migration(report)

    def digest(table: str) -> str:
        """Return one short digest over those of all users and parts."""
        parts = (part for tally in report.users for part in tally.tables[table].digests)
        whole = "".join(parts)
        return hashlib.blake2b(whole.encode(), digest_size=8).hexdigest() if whole else ""

    amounts = {what: report.total(what) for what in ("copied", "compared", "differing")}
    tables: list[dict[str, Any]] = []
    for name in amounts["compared"]:
        numbers = {what: amount[name] for what, amount in amounts.items()}
        tables.append({"table": name, **numbers, "digest": digest(name)})
    plain = {
        "source": report.source,
        "target": report.target,
        "dry_run": False,
        "equal": report.is_equal,
        "users": [_USERS.json(tally) for tally in report.users],
        "results": tables,
        "differences": to_json(report.differences),
        "changed_meanwhile": report.changed_meanwhile,
    }
    filled = [table for table in tables if table["compared"] or table["differing"]]
    lines = _result_lines(report, to_place)
    return Answer(plain, *_COMPARED.blocks(filled), *lines, code=0 if report.is_equal else 1)


def _places(settings: Settings, source: str | None, target: str | None) -> tuple[Place, Place]:
    """Return source and target; an omitted one is of the other kind than the named one."""

    def named(text: str) -> Place:
        place = Place.of(text)
        if place.file is not None:
            return Place(file=place.file.absolute())
        parts = urlsplit(place.url)
        if parts.password or "password" in dict(parse_qsl(parts.query)):
            note(
                "the address contains a password, which others on this machine can see;"
                f" {URL_VARIABLE} hides it"
            )
        return place

    def default(is_file: bool) -> Place:
        if is_file:
            return Place(file=settings.store_file)
        if not settings.database.url:
            raise InputError(
                "no database is configured",
                hint=f"set {URL_VARIABLE}=postgresql://USER:PASSWORD@HOST/NAME",
            )
        return Place(url=settings.database.url)

    to_place = None if target is None else named(target)
    if source is not None:
        from_place = named(source)
    else:
        from_place = default(is_file=to_place is None or to_place.file is None)
    if to_place is None:
        to_place = default(is_file=from_place.file is None)
    if (from_place.file is None) == (to_place.file is None):
        raise InputError(
            "migrate moves from a file into a database, or back",
            hint="`meritory backup` copies a file, `pg_dump` a database",
        )
    return from_place, to_place


def _preview(source: Place, target: Place, request: MigrationRequest) -> Answer:
    from meritory.engine.transfer import migrate as moving

    with contextlib.ExitStack() as stack:
        origin = stack.enter_context(moving.open_endpoint(source, is_target=False))
        destination = None
        if moving.is_there(target):
            destination = stack.enter_context(moving.open_endpoint(target, is_target=False))
        report = moving.preview(origin, destination, request)
    amounts = report.total("found")
    users = ", ".join(_name(tally) for tally in report.users) or "no user"
    lines = [
        *(f"{_name(tally)} was already moved" for tally in report.users if tally.was_complete),
        f"{sum(amounts.values()):,} rows of {users} would go from {source.name} to {target.name}",
        "nothing was written",
    ]
    plain = {
        "source": source.name,
        "target": target.name,
        "dry_run": True,
        "users": [RecordView("user new_user").json(tally) for tally in report.users],
        "results": [{"table": name, "rows": amount} for name, amount in amounts.items()],
    }
    view = RecordView(Field("", "table", "0"), Field("", "rows", "1", _count))
    filled = [pair for pair in amounts.items() if pair[1]]
    return Answer(plain, *view.blocks(filled), *lines)


def _name(tally: UserTally) -> str:
    same = tally.user == tally.new_user
    return tally.user if same else f"{tally.user} (as {tally.new_user})"


def _result_lines(report: MigrationReport, target: Place) -> Iterator[str]:
    for one in report.differences:
        key = ", ".join(f"{name} {value}" for name, value in one.key.items())
        what = one.what if one.what in ("missing", "extra") else f"differs in {one.what}"
        yield f"{one.table} of {one.user}: {key or 'its only row'}: {what}"
    if not report.is_equal:
        count = sum(report.total("differing").values())
        yield f"{count:,} rows of {report.source} and {report.target} differ"
        for tally in report.users:
            if tally.was_complete and not tally.is_equal:
                yield (
                    f"{_name(tally)} was already moved, and nothing was copied again;"
                    " `meritory export` and `meritory import` copy memories that are only in the"
                    " source"
                )
            elif report.is_copy and not tally.is_equal:
                yield (
                    f"{_name(tally)} is not marked complete; the same command with --restart"
                    " discards the copy and makes a new one"
                )
        return
    if not report.users:
        yield f"{report.source} is empty"
    for tally in report.users:
        if tally.was_complete:
            yield f"{_name(tally)} was already moved; --verify-only compares the two"
    if not report.is_copy:
        yield f"{report.source} and {report.target} are the same, row by row"
        return
    if not all(tally.was_complete for tally in report.users):
        yield f"moved {report.source} to {report.target}; every row was compared"
    if target.file is None:
        yield f"set {URL_VARIABLE} for everyone who uses it; the file is unchanged"
    else:
        yield f"unset {URL_VARIABLE} to use it; the database is unchanged"


def _note_migration(report: MigrationReport) -> None:
    for tally in report.users:
        if tally.was_begun_anew:
            note(f"{_name(tally)} had changed since the migration started and was copied again")
        for name in tally.left_behind:
            note(f"vectors of {name} were not copied; `meritory reembed` makes those of the target")
        if tally.user != tally.new_user and tally.tables["access_tokens"].compared:
            note(f"tokens name their user: make new ones for {tally.new_user} (`meritory token`)")
    for user in report.changed_meanwhile:
        note(f"{user} wrote to {report.source} during the migration; {report.target} lacks that")
