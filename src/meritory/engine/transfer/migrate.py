"""What came of a move: by user and table what was copied, compared, and found to differ."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from meritory.domain.errors import InputError, NotFound
from meritory.domain.place import Place
from meritory.domain.world import World, moment_text
from meritory.engine.transfer.backup import ModelFiles
from meritory.engine.transfer.migrate_run import (
    MigrationReport,
    MigrationRun,
    RowCounter,
    UserTally,
    Watch,
    compared,
    demand_room,
    parts_of,
    rewriting_of,
    travel,
)
from meritory.ports.file_lock import held
from meritory.store.migrate.endpoint import PAGE_ROWS, TABLES, Endpoint, EndpointReader


@dataclass(frozen=True, slots=True)
class MigrationRequest:
    """What of a store is to be moved, and how."""

    # Nobody means everybody.
    user: str | None = None
    new_name: str | None = None
    # Throws away what an unfinished move left in the target.
    restart: bool = False
    # So many rows are one transaction, at most.
    batch_rows: int = PAGE_ROWS

    def name(self, user: str) -> str:
        """What a user is called in the target."""
        return self.new_name or user


def move(
    source: Endpoint, target: Endpoint, wish: MigrationRequest, watch: Watch
) -> MigrationReport:
    """Moves what is wished, then compares every row of both sides."""
    demand_two_kinds(source, target)
    with source.reading() as reading:
        users = chosen(reading, wish)
        report = MigrationReport(source.name, target.name)
        total = 2 * sum(sum(counts(reading, user).values()) for user in users)
        counter = RowCounter(watch, total)
        for user in users:
            journey = _journey((source, reading), target, wish, report.tally(user, wish.name(user)))
            with target.claimed(journey.new_user):
                travel(replace(journey, counter=counter))
        before = {user: reading.standing(user) for user in users}
    if report.is_equal:
        target.reveal([wish.name(user) for user in users])
    with source.reading() as reading:
        report.changed_meanwhile += [u for u in users if reading.standing(u) != before[u]]
    return report


def verify(
    source: Endpoint, target: Endpoint, wish: MigrationRequest, watch: Watch
) -> MigrationReport:
    """Compares every row of both sides, and writes nothing."""
    demand_two_kinds(source, target)
    report = MigrationReport(source.name, target.name, is_copy=False)
    with source.reading() as reading, target.reading() as there:
        users = chosen(reading, wish)
        total = sum(sum(counts(reading, user).values()) for user in users)
        counter = RowCounter(watch, total)
        for user in users:
            new_user = wish.name(user)
            tally = report.tally(user, new_user)
            noted = there.progress(new_user)
            raised = {} if noted is None else noted.raised
            rewriting = rewriting_of(reading, target, (user, new_user), raised)
            parts, tally.left_behind = parts_of(reading, there, user)
            for part in parts:
                found = compared(part, rewriting, reading, there)
                tally.compared(part, found)
                counter.add(found.row_count)
    return report


def preview(source: Endpoint, target: Endpoint | None, wish: MigrationRequest) -> MigrationReport:
    """Counts what would be moved, and asks a target that is there already whether it may be."""
    report = MigrationReport(source.name, "" if target is None else target.name, is_copy=False)
    with source.reading() as reading, contextlib.ExitStack() as stack:
        there = None if target is None else stack.enter_context(target.reading())
        for user in chosen(reading, wish):
            tally = report.tally(user, wish.name(user))
            if target is not None and there is not None:
                known = demand_room(_journey((source, reading), target, wish, tally), there)
                tally.was_complete = known is not None and known.is_complete
            if not tally.was_complete:
                for name, count in counts(reading, user).items():
                    tally.tables[name].found = count
    return report


def _journey(
    source: tuple[Endpoint, EndpointReader],
    target: Endpoint,
    wish: MigrationRequest,
    tally: UserTally,
) -> MigrationRun:
    side, reading = source
    return MigrationRun(
        source=reading,
        target=target,
        origin=_origin(side, reading),
        user=tally.user,
        new_user=tally.new_user,
        tally=tally,
        carries_secret=wish.user is None and wish.new_name is None,
        restart=wish.restart,
        batch_rows=wish.batch_rows,
    )


def demand_two_kinds(source: Endpoint, target: Endpoint) -> None:
    """Copies within one engine are made with its own tools."""
    if source.kind == target.kind:
        raise InputError(
            "a store is moved from a file into a database or back",
            hint="`meritory backup` copies a file, `pg_dump` a database",
        )


def chosen(reading: EndpointReader, wish: MigrationRequest) -> list[str]:
    """Return the users to migrate; raise an error for a user without rows."""
    users = [user for user in reading.users() if wish.user in (None, user)]
    found = [user for user in users if any(reading.has_rows(user, table) for table in TABLES)]
    if wish.user is not None and not found:
        raise NotFound(
            f"the store has nothing of a user {wish.user!r}",
            hint=f"its users are {', '.join(reading.users()[:10]) or 'none'}",
        )
    if wish.new_name is not None and len(found) > 1:
        raise InputError(
            f"the store has {len(found)} users, and only one can get a name",
            hint="say which one with --user",
        )
    return found


def counts(reading: EndpointReader, user: str) -> dict[str, int]:
    """By table how many rows a user has."""
    return {table.name: reading.count(user, table) for table in TABLES}


def _origin(side: Endpoint, reading: EndpointReader) -> str:
    """What tells a store from all others, without telling its secret."""
    told = f"{side.kind} {reading.secret()}".encode()
    return hashlib.sha256(told).hexdigest()[:32]


@contextlib.contextmanager
def open_endpoint(place: Place, *, is_target: bool) -> Iterator[Endpoint]:
    """Open one endpoint of a migration; a file is locked against daemons for the duration."""
    with contextlib.ExitStack() as stack:
        side: Endpoint
        if place.file is None:
            from meritory.store.migrate.postgres_endpoint import PostgresEndpoint, demand_store

            if not is_target:
                demand_store(place)
            side = PostgresEndpoint(place)
        else:
            from meritory.store.migrate.sqlite_endpoint import SqliteEndpoint

            file = place.file
            if not file.parent.is_dir():
                raise InputError(f"there is no folder {file.parent}", hint="create it first")
            lock = file.with_name(file.name + ".daemon")
            stack.enter_context(held(lock, str(file), moment_text(World().now())))
            side = SqliteEndpoint(file, ModelFiles(file), is_target=is_target)
        stack.callback(side.close)
        yield side


def is_there(place: Place) -> bool:
    """Return whether a store exists at the place."""
    if place.file is not None:
        return place.file.is_file()
    from meritory.store.migrate.postgres_endpoint import is_made

    return is_made(place)
