"""The command that moves a store between a file and a team's database."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import click

from meritory.cli.context import current_flags, current_settings, note, resumable
from meritory.cli.options import command
from meritory.cli.output import Answer, Block, Column, Lines, Table
from meritory.cli.render import bar
from meritory.domain.errors import InputError

if TYPE_CHECKING:
    from meritory.domain.place import Place
    from meritory.engine.transfer.migrate import MigrationRequest
    from meritory.engine.transfer.migrate_run import MigrationReport, UserTally
    from meritory.settings import Settings

URL_VARIABLE = "MERITORY_DATABASE_URL"
_VISIBLE = (
    f"the address held a password, which others on this machine can see; {URL_VARIABLE} hides it"
)


@command(
    "migrate",
    """meritory migrate --dry-run
    meritory migrate --user default --as anna
    meritory migrate --to meritory.db""",
)
@click.option("--from", "source", metavar="PLACE", help="A file, or postgresql://USER@HOST/NAME.")
@click.option("--to", "target", metavar="PLACE", help="The same; the other kind.")
@click.option("--as", "new_name", metavar="NAME", help="Another name for the user who is moved.")
@click.option("--dry-run", is_flag=True, help="Count what would be moved, and write nothing.")
@click.option("--verify-only", is_flag=True, help="Compare both stores, and write nothing.")
@click.option("--restart", is_flag=True, help="Throw away what an unfinished move has left.")
def migrate(source: str | None, target: str | None, new_name: str | None, **how: bool) -> Answer:
    """Move a store into a team's database, or back.

    Without --from and --to the file of the settings is moved into the database that
    MERITORY_DATABASE_URL names; with a file for --to it goes the other way. The source is left as
    it is. All users are moved, or with --user one, who can get another name with --as.

    Every row is copied and then compared; what differs is named, and the exit code is 1. Stopped
    or killed at any moment, the same command goes on where it was. A daemon that serves the file
    has to be stopped first.
    """
    from meritory.engine.transfer import migrate as moving

    from_place, to_place = _places(current_settings({"database.url": None}), source, target)
    wish = moving.MigrationRequest(
        user=current_flags().user, new_name=_checked(new_name), restart=how["restart"]
    )
    if how["dry_run"]:
        return _counted(from_place, to_place, wish)
    is_copy = not how["verify_only"]
    work = moving.move if is_copy else moving.verify
    label = "moving" if is_copy else "comparing"
    with (
        resumable(),
        moving.open_endpoint(from_place, is_target=False) as one,
        moving.open_endpoint(to_place, is_target=is_copy) as other,
        bar(label) as progress,
    ):
        report = work(one, other, wish, progress)
    _remark(report)
    return _answer(report, to_place)


def _checked(name: str | None) -> str | None:
    from meritory.engine.memories.validate import checked_name

    return None if name is None else checked_name("user", name)


# -- places -----------------------------------------------------------------------------------


def _places(settings: Settings, source: str | None, target: str | None) -> tuple[Place, Place]:
    """Where from and where to: what is not said is the other kind of what is."""
    from_place, to_place = _named(source), _named(target)
    if from_place is None:
        goes_out = to_place is not None and to_place.file is not None
        from_place = _database(settings) if goes_out else _file(settings)
    if to_place is None:
        to_place = _file(settings) if from_place.file is None else _database(settings)
    if (from_place.file is None) == (to_place.file is None):
        raise InputError(
            "a store is moved from a file into a database, or back",
            hint="`meritory backup` copies a file, `pg_dump` a database",
        )
    return from_place, to_place


def _named(text: str | None) -> Place | None:
    from meritory.domain.place import Place

    if text is None:
        return None
    place = Place.of(text)
    if place.file is not None:
        return Place(file=place.file.absolute())
    parts = urlsplit(place.url)
    if parts.password or "password" in dict(parse_qsl(parts.query)):
        note(_VISIBLE)
    return place


def _file(settings: Settings) -> Place:
    from meritory.domain.place import Place

    return Place(file=settings.store_file)


def _database(settings: Settings) -> Place:
    from meritory.domain.place import Place

    if not settings.database.url:
        raise InputError(
            "no database is named",
            hint=f"set {URL_VARIABLE}=postgresql://USER:PASSWORD@HOST/NAME",
        )
    return Place(url=settings.database.url)


# -- what is said -----------------------------------------------------------------------------


def _counted(source: Place, target: Place, wish: MigrationRequest) -> Answer:
    from meritory.engine.transfer import migrate as moving

    with contextlib.ExitStack() as stack:
        one = stack.enter_context(moving.open_endpoint(source, is_target=False))
        there = moving.is_there(target)
        other = (
            stack.enter_context(moving.open_endpoint(target, is_target=False)) if there else None
        )
        report = moving.preview(one, other, wish)
    found = report.total("found")
    rows = [(name, f"{count:,}") for name, count in found.items() if count]
    users = ", ".join(_name(tally) for tally in report.users) or "nobody"
    lines = [
        *(f"{_name(tally)} was moved before" for tally in report.users if tally.was_complete),
        f"{sum(found.values()):,} rows of {users} would go from {source.name} to {target.name}",
        "nothing was written",
    ]
    plain = {
        "source": source.name,
        "target": target.name,
        "dry_run": True,
        "users": [{"user": one.user, "new_user": one.new_user} for one in report.users],
        "results": [{"table": name, "rows": count} for name, count in found.items()],
    }
    blocks: list[Block] = [Table((Column("table"), Column("rows")), rows)] if rows else []
    return Answer(plain, [*blocks, Lines(lines)])


def _answer(report: MigrationReport, target: Place) -> Answer:
    copied, compared, differing = (
        report.total(what) for what in ("copied", "compared", "differing")
    )
    columns = tuple(map(Column, ("table", "copied", "compared", "different", "digest")))
    digests = {name: _digest(report, name) for name in compared}
    rows = [
        (name, f"{copied[name]:,}", f"{compared[name]:,}", f"{differing[name]:,}", digests[name])
        for name in compared
        if compared[name] or differing[name]
    ]
    lines = [*_told_differences(report), *_told_end(report, target)]
    plain = {
        "source": report.source,
        "target": report.target,
        "dry_run": False,
        "equal": report.is_equal,
        "users": [_plain_user(tally) for tally in report.users],
        "results": [
            {
                "table": name,
                "copied": copied[name],
                "compared": compared[name],
                "differing": differing[name],
                "digest": digests[name],
            }
            for name in compared
        ],
        "differences": [asdict(one) for one in report.differences],
        "changed_meanwhile": report.changed_meanwhile,
    }
    blocks: list[Block] = [Table(columns, rows)] if rows else []
    return Answer(plain, [*blocks, Lines(lines)], 0 if report.is_equal else 1)


def _digest(report: MigrationReport, table: str) -> str:
    """One short digest over those of all users and parts."""
    import hashlib

    whole = "".join(digest for tally in report.users for digest in tally.tables[table].digests)
    return hashlib.blake2b(whole.encode(), digest_size=8).hexdigest() if whole else ""


def _plain_user(tally: UserTally) -> dict[str, Any]:
    return {
        "user": tally.user,
        "new_user": tally.new_user,
        "copied_before": tally.copied_before,
        "was_complete": tally.was_complete,
        "was_begun_anew": tally.was_begun_anew,
        "left_behind": tally.left_behind,
    }


def _name(tally: UserTally) -> str:
    same = tally.user == tally.new_user
    return tally.user if same else f"{tally.user} (as {tally.new_user})"


def _told_differences(report: MigrationReport) -> Iterator[str]:
    for one in report.differences:
        key = ", ".join(f"{name} {value}" for name, value in one.key.items())
        what = one.what if one.what in ("missing", "extra") else f"differs in {one.what}"
        yield f"{one.table} of {one.user}: {key or 'its only row'}: {what}"


def _told_end(report: MigrationReport, target: Place) -> Iterator[str]:
    if not report.is_equal:
        yield from _told_unequal(report)
        return
    if not report.users:
        yield f"nobody has anything in {report.source}"
    for tally in report.users:
        if tally.was_complete:
            yield f"{_name(tally)} was moved before; --verify-only compares the two"
    if not report.is_copy:
        yield f"{report.source} and {report.target} are the same, row by row"
        return
    if not all(tally.was_complete for tally in report.users):
        yield f"moved {report.source} to {report.target}; every row was compared"
    if target.file is None:
        yield f"set {URL_VARIABLE} for everybody who is to use it; the file is left as it was"
    else:
        yield f"unset {URL_VARIABLE} to use it; the database is left as it was"


def _told_unequal(report: MigrationReport) -> Iterator[str]:
    count = sum(report.total("differing").values())
    yield f"{count:,} rows of {report.source} and {report.target} differ"
    for tally in report.users:
        if tally.was_complete and not tally.is_equal:
            yield (
                f"{_name(tally)} was moved before, and nothing was copied again; `meritory export`"
                " and `meritory import` bring over memories that are only in the source"
            )
        elif report.is_copy and not tally.is_equal:
            yield (
                f"{_name(tally)} is not marked complete; the same command with --restart throws"
                " away what was copied, and copies it again"
            )


def _remark(report: MigrationReport) -> None:
    for tally in report.users:
        if tally.was_begun_anew:
            note(f"{_name(tally)} had changed since the move was begun, and was copied anew")
        for name in tally.left_behind:
            note(
                f"vectors of {name} were left behind; `meritory reembed` makes those of the target"
            )
        if tally.user != tally.new_user and tally.tables["access_tokens"].compared:
            note(f"tokens name their user: make new ones for {tally.new_user} (`meritory token`)")
    for user in report.changed_meanwhile:
        note(f"{user} wrote to {report.source} meanwhile, which is not in {report.target}")
