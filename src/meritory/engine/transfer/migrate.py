"""Move the users of a store between SQLite and PostgreSQL, and compare every row of both."""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from meritory.domain.errors import Conflict, InputError, NotFound
from meritory.domain.place import Place
from meritory.domain.world import World, moment_text
from meritory.engine.transfer.backup import ModelFiles
from meritory.ports.file_lock import held
from meritory.store.migrate.endpoint import (
    BOOKKEEPING,
    GIVEN,
    JOBS,
    MODELS,
    PAGE_ROWS,
    TABLES,
    VECTORS,
    Endpoint,
    EndpointReader,
    EndpointWriter,
    Progress,
    Rewriting,
    Row,
    TablePart,
)
from meritory.store.sql.tables import BY_NAME

Watch = Callable[[int, int], None]
Count = Callable[[int], None]
# All differences are counted, so many are listed.
NAMED_LIMIT = 20
_NUMBERS_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class MigrationRequest:
    """Which users to move, and how."""

    # None means all users.
    user: str | None = None
    new_name: str | None = None
    # Discards the rows of an unfinished migration in the target.
    restart: bool = False
    # At most so many rows are one transaction.
    batch_rows: int = PAGE_ROWS

    def name(self, user: str) -> str:
        """Return the name of a user in the target."""
        return self.new_name or user


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that is not the same on both sides; its key is the target's."""

    user: str
    table: str
    key: dict[str, Any]
    # "missing" or "extra" in the target, or the columns that are not the same.
    what: str


@dataclass(slots=True)
class RowComparison:
    """The result of comparing one part."""

    row_count: int = 0
    difference_count: int = 0
    differences: list[Difference] = field(default_factory=list)
    # Over all rows of the target in their order.
    digest: str = ""


@dataclass(slots=True)
class TableTally:
    """The rows of one table."""

    found: int = 0
    copied: int = 0
    compared: int = 0
    differing: int = 0
    # One, or one for each embedder.
    digests: list[str] = field(default_factory=list)


@dataclass(slots=True)
class UserTally:
    """The rows of one user."""

    user: str
    new_user: str
    tables: dict[str, TableTally] = field(
        default_factory=lambda: {table.name: TableTally() for table in TABLES}
    )
    differences: list[Difference] = field(default_factory=list)
    # Rows that earlier calls had copied.
    copied_before: int = 0
    was_complete: bool = False
    was_begun_anew: bool = False
    # Embedders whose vectors are not copied and must be computed again.
    left_behind: list[str] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        """Whether no row differs."""
        return not any(table.differing for table in self.tables.values())

    def add(self, part: TablePart, comparison: RowComparison) -> None:
        """Add the comparison of a part."""
        table = self.tables[part.table.name]
        table.compared += comparison.row_count
        table.differing += comparison.difference_count
        table.digests.append(comparison.digest)
        self.differences += comparison.differences


@dataclass(slots=True)
class MigrationReport:
    """The result of a migration, user by user."""

    source: str
    target: str
    is_copy: bool = True
    users: list[UserTally] = field(default_factory=list)
    # Users whose rows changed in the source while they were read.
    changed_meanwhile: list[str] = field(default_factory=list)

    def tally(self, user: str, new_user: str) -> UserTally:
        """Add a tally for a user."""
        self.users.append(UserTally(user, new_user))
        return self.users[-1]

    @property
    def is_equal(self) -> bool:
        """Whether both sides are the same as far as they were compared."""
        return all(tally.is_equal for tally in self.users)

    @property
    def differences(self) -> list[Difference]:
        """The first few rows that are not the same."""
        return [one for tally in self.users for one in tally.differences][:NAMED_LIMIT]

    def total(self, what: str) -> Counter[str]:
        """Return by table the sum of `found`, `copied`, `compared` or `differing`."""
        sums: Counter[str] = Counter()
        for tally in self.users:
            for name, table in tally.tables.items():
                sums[name] += getattr(table, what)
        return sums


# -- verbs ----------------------------------------------------------------------------------------


def move(
    source: Endpoint, target: Endpoint, request: MigrationRequest, watch: Watch
) -> MigrationReport:
    """Copy the requested users, then compare every row of both sides."""
    require_two_kinds(source, target)
    report = MigrationReport(source.name, target.name)
    with source.reading() as reading:
        users = chosen(reading, request)
        count = _counter(watch, 2 * sum(counts(reading, user).total() for user in users))
        for user in users:
            tally = report.tally(user, request.name(user))
            with target.claimed(tally.new_user):
                _UserMigration(source, reading, target, request, tally).run(count)
        before = {user: reading.state(user) for user in users}
    if report.is_equal:
        target.reveal([request.name(user) for user in users])
    with source.reading() as reading:
        report.changed_meanwhile += [u for u in users if reading.state(u) != before[u]]
    return report


def verify(
    source: Endpoint, target: Endpoint, request: MigrationRequest, watch: Watch
) -> MigrationReport:
    """Compare every row of both sides, and write nothing."""
    require_two_kinds(source, target)
    report = MigrationReport(source.name, target.name, is_copy=False)
    with source.reading() as reading, target.reading() as there:
        users = chosen(reading, request)
        count = _counter(watch, sum(counts(reading, user).total() for user in users))
        for user in users:
            tally = report.tally(user, request.name(user))
            migration = _UserMigration(source, reading, target, request, tally)
            noted = there.progress(migration.new_user)
            rewriting = migration.rewriting(noted.raised if noted else {})
            migration.compare(there, migration.parts(there), rewriting, count)
    return report


def preview(
    source: Endpoint, target: Endpoint | None, request: MigrationRequest
) -> MigrationReport:
    """Count the rows to copy, and check that an existing target can take them."""
    report = MigrationReport(source.name, "" if target is None else target.name, is_copy=False)
    with source.reading() as reading, contextlib.ExitStack() as stack:
        there = None if target is None else stack.enter_context(target.reading())
        for user in chosen(reading, request):
            tally = report.tally(user, request.name(user))
            if target is not None and there is not None:
                migration = _UserMigration(source, reading, target, request, tally)
                known = migration.require_room(there)
                tally.was_complete = known is not None and known.is_complete
            if not tally.was_complete:
                for name, count in counts(reading, user).items():
                    tally.tables[name].found = count
    return report


def require_two_kinds(source: Endpoint, target: Endpoint) -> None:
    """Reject a copy within one engine, which has its own tools."""
    if source.kind == target.kind:
        raise InputError(
            "a store is moved from a file into a database or back",
            hint="`meritory backup` copies a file, `pg_dump` a database",
        )


def chosen(reading: EndpointReader, request: MigrationRequest) -> list[str]:
    """Return the users to migrate; raise an error for a user without rows."""
    users = [user for user in reading.users() if request.user in (None, user)]
    users = [user for user in users if any(reading.has_rows(user, table) for table in TABLES)]
    if request.user is not None and not users:
        raise NotFound(
            f"the store has nothing of a user {request.user!r}",
            hint=f"its users are {', '.join(reading.users()[:10]) or 'none'}",
        )
    if request.new_name is not None and len(users) > 1:
        raise InputError(
            f"the store has {len(users)} users, and only one can get a name",
            hint="say which one with --user",
        )
    return users


def counts(reading: EndpointReader, user: str) -> Counter[str]:
    """Return by table the number of a user's rows."""
    return Counter({table.name: reading.count(user, table) for table in TABLES})


def _counter(watch: Watch, total: int) -> Count:
    """Return a function that counts rows and reports the sum; rows are copied, then compared."""
    done = 0

    def count(row_count: int) -> None:
        nonlocal done
        done += row_count
        watch(min(done, total), total)

    return count


# -- one user -------------------------------------------------------------------------------------


class _Unequal(Exception):
    """The jobs in the target are not those that were written: nothing of them stays."""


class _UserMigration:
    """The migration of one user; a call continues where an earlier one stopped."""

    def __init__(
        self,
        source: Endpoint,
        reading: EndpointReader,
        target: Endpoint,
        request: MigrationRequest,
        tally: UserTally,
    ) -> None:
        self._reading, self._target, self._request = reading, target, request
        self.tally, self.user, self.new_user = tally, tally.user, tally.new_user
        # Identifies the source without its secret.
        origin = f"{source.kind} {reading.noted('secret') or ''}".encode()
        self._origin = hashlib.sha256(origin).hexdigest()[:32]

    def run(self, count: Count) -> None:
        """Copy and compare the user."""
        progress = self._begin()
        tally, is_complete = self.tally, progress.is_complete
        tally.copied_before = sum(progress.copied.values())
        tally.was_complete = is_complete
        count(tally.copied_before)
        if is_complete and progress.state == self._reading.state(self.user):
            count(tally.copied_before)
            return
        with self._target.reading() as there:
            *parts, jobs = self.parts(there)
        rewriting = self.rewriting(progress.raised)
        if is_complete:
            # The changed rows may be another user's: only a comparison shows.
            with self._target.reading() as there:
                self.compare(there, [*parts, jobs], rewriting, count)
            return
        names = [part.name for part in parts]
        if progress.part is not None and progress.part not in names:
            hint = "start over with --restart"
            raise Conflict(f"the target has no {progress.part!r} any more", hint=hint)
        for part in parts[names.index(progress.part) if progress.part else 0 :]:
            progress = self._copy(part, rewriting, progress, count)
        with self._target.reading() as there:
            self.compare(there, parts, rewriting, count)
        if tally.is_equal:
            self._finish(jobs, rewriting, progress, count)

    def require_room(self, there: EndpointReader) -> Progress | None:
        """Return the progress from this source; raise Conflict if the user has other rows there."""
        known, occupied = there.progress(self.new_user), _occupied(there, self.new_user)
        is_ours = known is not None and (known.source, known.user) == (self._origin, self.user)
        if known is None or known.is_complete:
            if not occupied:
                return None
            if is_ours:
                return known
            raise Conflict(
                f"{self._target.name} has {', '.join(occupied[:3])} of {self.new_user!r} already",
                hint="move under another name with --as NAME, or to a new place"
                " (models lie in a folder beside a file)",
            )
        if self._request.restart:
            return None
        if is_ours:
            return known
        raise Conflict(
            f"{self._target.name} holds an unfinished move of {self.new_user!r} from elsewhere",
            hint="finish that one, or throw away all that is there of that user with --restart",
        )

    def _begin(self) -> Progress:
        """Return the recorded progress, or begin in an empty target."""
        state, request = self._reading.state(self.user), self._request
        with self._target.reading() as there:
            known = self.require_room(there)
            is_unused = not any(_occupied(there, user) for user in there.users())
            if known is not None:
                is_visible = known.is_complete and not self._target.is_hidden
                if is_visible or known.state == state:
                    return known
                self._require_untouched(there, known)
                self.tally.was_begun_anew = True

        def begin(writing: EndpointWriter) -> Progress:
            writing.clear(self.new_user)
            if is_unused and request.user is None and request.new_name is None:
                # A store that replaces another goes on with its codes.
                writing.note("secret", self._reading.noted("secret") or "")
            _join_embedders(self._reading, writing)
            raised = {}
            for name in GIVEN:
                numbers = self._reading.numbers(self.user, BY_NAME[name], _NUMBERS_AT_ONCE)
                if by := writing.taken(BY_NAME[name], numbers):
                    raised[name] = by
            progress = Progress(self._origin, self.user, state, raised)
            writing.note_progress(self.new_user, progress)
            return progress

        return self._target.write(self.new_user, begin)

    def _require_untouched(self, there: EndpointReader, known: Progress) -> None:
        """Reject rows of the target user that are deleted only if the caller asks for it."""
        for table in TABLES:
            # Files of models are not part of a transaction: there may be one more than recorded.
            if table is MODELS or table.name in BOOKKEEPING:
                continue
            if there.count(self.new_user, table) != known.copied.get(table.name, 0):
                raise Conflict(
                    f"{self._target.name} has {table.name} of {self.new_user!r} that were not"
                    " moved there",
                    hint="move under another name with --as NAME, or throw away all that is there"
                    " of that user with --restart",
                )

    def parts(self, there: EndpointReader) -> list[TablePart]:
        """Return the parts to copy, in order, jobs last; note embedders that the target lacks."""
        numbers = {embedder.name: embedder.number for embedder in there.embedders()}
        parts: list[TablePart] = []
        for table in TABLES:
            if table is not VECTORS:
                parts.append(TablePart(table))
                continue
            for embedder in self._reading.embedders():
                if embedder.name in numbers:
                    parts.append(TablePart(VECTORS, (embedder.name, numbers[embedder.name])))
                elif self._reading.vector_count(self.user, embedder.number):
                    self.tally.left_behind.append(embedder.name)
        return parts

    def rewriting(self, raised: Mapping[str, int]) -> Rewriting:
        """Return how the user's rows change on their way to the target."""
        part = TablePart(BY_NAME["scopes"])
        rows = (dict(zip(part.columns, row, strict=True)) for row in self._rows(part))
        scopes = {row["scope"]: (row["agent"], row["project"]) for row in rows}
        return Rewriting(self.user, self.new_user, raised, scopes, self._target.takes_nul)

    def _rows(self, part: TablePart, after: Sequence[Any] | None = None) -> Iterator[Row]:
        return self._reading.rows(self.user, part, after)

    def _copy(
        self, part: TablePart, rewriting: Rewriting, progress: Progress, count: Count
    ) -> Progress:
        """Copy a part in batches; each transaction also records the progress."""
        after = progress.after if progress.part == part.name else None
        if progress.part == part.name and after is None:
            # Its end was reached.
            return progress
        rows, rewrite, table = self._rows(part, after), rewriting.of(part), part.table.name
        size = min(part.page_rows, self._request.batch_rows)
        batch = list(islice(rows, size))
        while batch:
            following = list(islice(rows, size))
            copied = {**progress.copied, table: progress.copied.get(table, 0) + len(batch)}
            last = tuple(batch[-1][at] for at in part.key_at) if following else None
            reached = replace(progress, part=part.name, after=last, copied=copied)
            rewritten = [rewrite(row) for row in batch]

            def write(
                writing: EndpointWriter,
                rewritten: Sequence[Row] = rewritten,
                reached: Progress = reached,
            ) -> None:
                writing.add(self.new_user, part, rewritten)
                writing.note_progress(self.new_user, reached)

            self._target.write(self.new_user, write)
            progress = reached
            self.tally.tables[table].copied += len(batch)
            count(len(batch))
            batch = following
        return progress

    def compare(
        self, there: EndpointReader, parts: Iterable[TablePart], rewriting: Rewriting, count: Count
    ) -> None:
        """Compare parts of both sides."""
        for part in parts:
            expected = map(rewriting.of(part), self._rows(part))
            comparison = compare(part, self.new_user, expected, there.rows(self.new_user, part))
            self.tally.add(part, comparison)
            count(comparison.row_count)

    def _finish(
        self, jobs: TablePart, rewriting: Rewriting, progress: Progress, count: Count
    ) -> None:
        """Write jobs, numbers and the mark that all is done, in one transaction."""
        rows, user = list(map(rewriting.of(jobs), self._rows(jobs))), self.new_user
        raised, state = progress.raised, progress.state
        given = {name: number + raised.get(name, 0) for name, number in state.given.items()}

        def work(writing: EndpointWriter) -> RowComparison:
            if rows:
                writing.add(user, jobs, rows)
            comparison = compare(jobs, user, rows, writing.rows(user, jobs))
            if comparison.difference_count:
                self.tally.add(jobs, comparison)
                raise _Unequal
            writing.settle(user, replace(state, given=given))
            copied = {**progress.copied, JOBS.name: len(rows)}
            writing.note_progress(user, replace(progress, copied=copied, is_complete=True))
            return comparison

        with contextlib.suppress(_Unequal):
            self.tally.add(jobs, self._target.write(user, work))
            self.tally.tables[JOBS.name].copied = len(rows)
            count(2 * len(rows))


def _occupied(there: EndpointReader, user: str) -> list[str]:
    """Return the tables in which a user has rows of their own."""
    own = (table for table in TABLES if table.name not in BOOKKEEPING)
    return [table.name for table in own if there.has_rows(user, table)]


def _join_embedders(source: EndpointReader, writing: EndpointWriter) -> None:
    """Give a store without vectors the embedders of the source; any other keeps its own."""
    known = {embedder.name: embedder.dimension for embedder in writing.embedders()}
    for embedder in source.embedders():
        dimension = known.get(embedder.name, embedder.dimension)
        if dimension != embedder.dimension:
            raise Conflict(
                f"{embedder.name} has vectors of {dimension} numbers in the target, "
                f"and of {embedder.dimension} in the source",
                hint="these are two models under one name; rename one of them",
            )
    if writing.has_vectors():
        return
    serving = source.noted("serving")
    for embedder in source.embedders():
        writing.register(embedder)
        if str(embedder.number) == serving:
            numbers = {one.name: one.number for one in writing.embedders()}
            writing.note("serving", str(numbers[embedder.name]))


def compare(
    part: TablePart, user: str, expected: Iterable[Row], found: Iterable[Row]
) -> RowComparison:
    """Compare rows that both come in the order of their keys."""
    result, whole = RowComparison(), hashlib.blake2b(digest_size=16)

    def note(row: Row, what: str) -> None:
        result.difference_count += 1
        if len(result.differences) < NAMED_LIMIT:
            key = {part.columns[at]: row[at] for at in part.key_at}
            result.differences.append(Difference(user, part.table.name, key, what))

    def key_of(row: Row) -> Row:
        return tuple([row[at] for at in part.key_at])

    left, right = iter(expected), iter(found)
    wanted, there = next(left, None), next(right, None)
    while wanted is not None or there is not None:
        # Most rows are the same, and then so are their keys.
        is_same = wanted == there
        if there is None or (wanted and not is_same and key_of(wanted) < key_of(there)):
            note(wanted or (), "missing")
            result.row_count += 1
            wanted = next(left, None)
            continue
        whole.update(repr(there).encode("utf-8", "surrogatepass"))
        if wanted is None or (not is_same and key_of(there) < key_of(wanted)):
            note(there, "extra")
        else:
            if not is_same:
                pairs = zip(part.columns, wanted, there, strict=True)
                note(there, ", ".join(name for name, one, other in pairs if one != other))
            result.row_count += 1
            wanted = next(left, None)
        there = next(right, None)
    result.digest = whole.hexdigest()
    return result


# -- endpoints ------------------------------------------------------------------------------------


@contextlib.contextmanager
def open_endpoint(place: Place, *, is_target: bool) -> Iterator[Endpoint]:
    """Open one endpoint of a migration; a file is locked against daemons for the duration."""
    with contextlib.ExitStack() as stack:
        endpoint: Endpoint
        if place.file is None:
            from meritory.store.migrate.postgres_endpoint import PostgresEndpoint

            endpoint = PostgresEndpoint(place, is_target=is_target)
        else:
            from meritory.store.migrate.sqlite_endpoint import SqliteEndpoint

            file = place.file
            if not file.parent.is_dir():
                raise InputError(f"there is no folder {file.parent}", hint="create it first")
            lock = file.with_name(file.name + ".daemon")
            stack.enter_context(held(lock, str(file), moment_text(World().now())))
            endpoint = SqliteEndpoint(file, ModelFiles(file), is_target=is_target)
        stack.callback(endpoint.close)
        yield endpoint


def is_there(place: Place) -> bool:
    """Return whether a store exists at the place."""
    if place.file is not None:
        return place.file.is_file()
    from meritory.store.migrate.postgres_endpoint import version_of
    from meritory.store.postgres.schema import MIGRATIONS

    return version_of(place) == MIGRATIONS[-1].version
