"""What came of a move: by user and table what was copied, compared, and found to differ."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from meritory.domain.errors import Conflict
from meritory.store.migrate.endpoint import (
    BOOKKEEPING,
    GIVEN,
    JOBS,
    MODELS,
    PAGE_ROWS,
    TABLES,
    VECTORS,
    Added,
    Endpoint,
    EndpointEmbedder,
    EndpointReader,
    EndpointState,
    EndpointWriter,
    Progress,
    Rewriting,
    Row,
    TablePart,
    key_of,
)
from meritory.store.sql.tables import BY_NAME


@dataclass(slots=True)
class TableTally:
    """The rows of one table."""

    found: int = 0
    copied: int = 0
    compared: int = 0
    differing: int = 0
    # By embedder where there are several, else one.
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
        """Whether nothing was found to differ."""
        return not any(one.differing for one in self.tables.values())

    def compared(self, part: TablePart, found: RowComparison) -> None:
        """Takes in what comparing a part brought."""
        one = self.tables[part.table.name]
        one.compared += found.row_count
        one.differing += found.difference_count
        one.digests.append(found.digest)
        self.differences += found.differences


@dataclass(slots=True)
class MigrationReport:
    """What came of it, user by user."""

    source: str
    target: str
    is_copy: bool = True
    users: list[UserTally] = field(default_factory=list)
    # Users whose rows changed in the source while they were read.
    changed_meanwhile: list[str] = field(default_factory=list)

    def tally(self, user: str, new_user: str) -> UserTally:
        """A new tally for a user."""
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
        """By table the sum over all users of `found`, `copied`, `compared` or `differing`."""
        sums: Counter[str] = Counter()
        for tally in self.users:
            for name, one in tally.tables.items():
                sums[name] += getattr(one, what)
        return sums


Watch = Callable[[int, int], None]
_NUMBERS_AT_ONCE = 10_000


class _Unequal(Exception):
    """Jobs came out otherwise than they went in."""


@dataclass(slots=True)
class RowCounter:
    """How many rows were handled, of how many."""

    watch: Watch = lambda done, total: None
    total: int = 0
    done: int = 0

    def add(self, count: int) -> None:
        """Notes that some more were."""
        self.done += count
        self.watch(min(self.done, self.total), self.total)


@dataclass(frozen=True, slots=True)
class MigrationRun:
    """Who is moved where, and what is noted on the way."""

    source: EndpointReader
    target: Endpoint
    # What tells the source from all other stores.
    origin: str
    user: str
    new_user: str
    tally: UserTally
    counter: RowCounter = field(default_factory=RowCounter)
    carries_secret: bool = False
    # Throws away what an unfinished move left in the target.
    restart: bool = False
    batch_rows: int = PAGE_ROWS


def travel(journey: MigrationRun) -> None:
    """Moves the user, from wherever an earlier call came to."""
    progress = _begun(journey)
    tally, counter = journey.tally, journey.counter
    tally.copied_before = sum(progress.copied.values())
    tally.was_complete = progress.is_complete
    counter.add(tally.copied_before)
    if progress.is_complete and progress.standing == journey.source.standing(journey.user):
        counter.add(tally.copied_before)
        return
    with journey.target.reading() as there:
        parts, tally.left_behind = parts_of(journey.source, there, journey.user)
    rewriting = rewriting_of(
        journey.source, journey.target, (journey.user, journey.new_user), progress.raised
    )
    if progress.is_complete:
        # The changed rows may be another user's: only a comparison shows.
        _compare(journey, parts, rewriting)
        return
    *others, jobs = parts
    for part in _left(others, progress):
        progress = _copied(journey, part, rewriting, progress)
    _compare(journey, others, rewriting)
    if tally.is_equal:
        _finish(journey, jobs, rewriting, progress)


def _compare(journey: MigrationRun, parts: Sequence[TablePart], rewriting: Rewriting) -> None:
    with journey.target.reading() as there:
        for part in parts:
            found = compared(part, rewriting, journey.source, there)
            journey.tally.compared(part, found)
            journey.counter.add(found.row_count)


def _begun(journey: MigrationRun) -> Progress:
    """Where to go on, or a beginning."""
    with journey.target.reading() as there:
        known = demand_room(journey, there)
        is_unused = not any(_occupied(there, user) for user in there.users())
        standing = journey.source.standing(journey.user)
        if known is not None:
            is_seen = known.is_complete and not journey.target.is_hidden
            if is_seen or known.standing == standing:
                return known
            _demand_untouched(journey, there, known)
            journey.tally.was_begun_anew = True
    carries_secret = journey.carries_secret and is_unused
    return journey.target.write(
        journey.new_user, lambda writing: _beginning(journey, writing, standing, carries_secret)
    )


def demand_room(journey: MigrationRun, there: EndpointReader) -> Progress | None:
    """Where a move from this source stands; refused where anything else of the user's is."""
    known, occupied = there.progress(journey.new_user), _occupied(there, journey.new_user)
    is_ours = known is not None and (known.source, known.user) == (journey.origin, journey.user)
    if known is None or known.is_complete:
        if not occupied:
            return None
        if is_ours:
            return known
        raise Conflict(
            f"{journey.target.name} has {', '.join(occupied[:3])} of {journey.new_user!r} already",
            hint="move under another name with --as NAME, or to a new place"
            " (models lie in a folder beside a file)",
        )
    if journey.restart:
        return None
    if is_ours:
        return known
    raise Conflict(
        f"{journey.target.name} holds an unfinished move of {journey.new_user!r} from elsewhere",
        hint="finish that one, or throw away all that is there of that user with --restart",
    )


def _demand_untouched(journey: MigrationRun, there: EndpointReader, known: Progress) -> None:
    """Delete rows of the target user only if the caller asks for it."""
    for table in TABLES:
        # Files of models know no transaction: there may be one more than was noted.
        if table is MODELS or table.name in BOOKKEEPING:
            continue
        if there.count(journey.new_user, table) != known.copied.get(table.name, 0):
            raise Conflict(
                f"{journey.target.name} has {table.name} of {journey.new_user!r} that were not"
                " moved there",
                hint="move under another name with --as NAME, or throw away all that is there of"
                " that user with --restart",
            )


def _occupied(there: EndpointReader, user: str) -> list[str]:
    """The tables in which a user has something of his own."""
    own = (table for table in TABLES if table.name not in BOOKKEEPING)
    return [table.name for table in own if there.has_rows(user, table)]


def _beginning(
    journey: MigrationRun, writing: EndpointWriter, standing: EndpointState, carries_secret: bool
) -> Progress:
    writing.clear(journey.new_user)
    if carries_secret:
        # What takes the place of a store goes on with its codes.
        writing.note("secret", journey.source.secret())
    _join_embedders(journey.source, writing)
    raised = {}
    for name in GIVEN:
        table = BY_NAME[name]
        numbers = journey.source.numbers(journey.user, table, _NUMBERS_AT_ONCE)
        if by := writing.taken(table, numbers):
            raised[name] = by
    progress = Progress(journey.origin, journey.user, standing, raised)
    writing.note(key_of(journey.new_user), progress.encoded())
    return progress


def _join_embedders(source: EndpointReader, writing: EndpointWriter) -> None:
    """A store without vectors takes over the embedders; any other keeps those that it has."""
    known = {one.name: one for one in writing.embedders()}
    for one in source.embedders():
        there = known.get(one.name)
        if there is not None and there.dimension != one.dimension:
            raise Conflict(
                f"{one.name} has vectors of {there.dimension} numbers in the target, "
                f"and of {one.dimension} in the source",
                hint="these are two models under one name; rename one of them",
            )
    if writing.has_vectors():
        return
    for one in source.embedders():
        writing.register(one)
    serving = source.serving()
    for one in writing.embedders():
        if one.name == serving:
            writing.note("serving", str(one.number))


def parts_of(
    source: EndpointReader, target: EndpointReader, user: str
) -> tuple[list[TablePart], list[str]]:
    """What is copied, in order, and embedders whose vectors the target has no use for."""
    there: Mapping[str, EndpointEmbedder] = {one.name: one for one in target.embedders()}
    parts, left_behind = [], []
    for table in TABLES:
        if table is not VECTORS:
            parts.append(TablePart(table))
            continue
        for one in source.embedders():
            if one.name in there:
                parts.append(TablePart(VECTORS, (one.name, there[one.name].number)))
            elif source.vector_count(user, one.number):
                left_behind.append(one.name)
    return parts, left_behind


def _left(parts: Sequence[TablePart], progress: Progress) -> Iterator[TablePart]:
    """The parts that are not done yet, from the one that was last written to on."""
    names = [part.name for part in parts]
    if progress.part is None:
        return iter(parts)
    if progress.part not in names:
        raise Conflict(
            f"the target has no {progress.part!r} any more", hint="start over with --restart"
        )
    return iter(parts[names.index(progress.part) :])


def _copied(
    journey: MigrationRun, part: TablePart, rewriting: Rewriting, progress: Progress
) -> Progress:
    """Copies a part batch by batch; each notes in the same transaction how far it came."""
    after = progress.after if progress.part == part.name else None
    if progress.part == part.name and after is None:
        # Its end was reached.
        return progress
    names = [column.name for column in part.table.columns]
    places = [names.index(name) for name in part.key]
    rows, told = journey.source.rows(journey.user, part, after), rewriting.of(part)
    size = min(part.page_rows, journey.batch_rows)
    batch = list(islice(rows, size))
    while batch:
        following = list(islice(rows, size))
        reached = tuple(batch[-1][at] for at in places) if following else None
        progress = journey.target.write(
            journey.new_user,
            _CopyBatch(journey, part, [told(row) for row in batch], progress, reached),
        )
        journey.tally.tables[part.table.name].copied += len(batch)
        journey.counter.add(len(batch))
        batch = following
    return progress


@dataclass(frozen=True, slots=True)
class _CopyBatch:
    """Rows to write, and what to note with them."""

    journey: MigrationRun
    part: TablePart
    rows: list[Row]
    progress: Progress
    reached: tuple[object, ...] | None

    def __call__(self, writing: EndpointWriter) -> Progress:
        user, known = self.journey.new_user, self.progress
        added = writing.add(user, self.part, self.rows)
        name = self.part.table.name
        progress = replace(
            known,
            part=self.part.name,
            after=self.reached,
            copied={**known.copied, name: known.copied.get(name, 0) + len(self.rows)},
            document_count=known.document_count + added.document_count,
            token_count=known.token_count + added.token_count,
        )
        writing.note(key_of(user), progress.encoded())
        return progress


def _finish(
    journey: MigrationRun, jobs: TablePart, rewriting: Rewriting, progress: Progress
) -> None:
    """Jobs, numbers and the mark that all is done, in one transaction."""
    told, user = rewriting.of(jobs), journey.new_user
    rows = [told(row) for row in journey.source.rows(journey.user, jobs)]
    given = {
        name: number + progress.raised.get(name, 0)
        for name, number in progress.standing.given.items()
    }
    standing = replace(progress.standing, given=given)

    def work(writing: EndpointWriter) -> RowComparison:
        if rows:
            writing.add(user, jobs, rows)
        found = compare(jobs, user, rows, writing.rows(user, jobs))
        if found.difference_count:
            journey.tally.compared(jobs, found)
            raise _Unequal
        writing.settle(user, standing, Added(progress.document_count, progress.token_count))
        copied = {**progress.copied, JOBS.name: len(rows)}
        done = replace(progress, copied=copied, is_complete=True)
        writing.note(key_of(user), done.encoded())
        return found

    try:
        found = journey.target.write(user, work)
    except _Unequal:
        return
    journey.tally.compared(jobs, found)
    journey.tally.tables[JOBS.name].copied = len(rows)
    journey.counter.add(2 * len(rows))


def compared(
    part: TablePart, rewriting: Rewriting, source: EndpointReader, target: EndpointReader
) -> RowComparison:
    """Compares a part of both sides."""
    expected = map(rewriting.of(part), source.rows(rewriting.old_user, part))
    return compare(part, rewriting.new_user, expected, target.rows(rewriting.new_user, part))


def rewriting_of(
    source: EndpointReader, target: Endpoint, names: tuple[str, str], raised: Mapping[str, int]
) -> Rewriting:
    """Return how a user's rows change on their way to the target."""
    scopes = BY_NAME["scopes"]
    columns = [column.name for column in scopes.columns]
    at = [columns.index(name) for name in ("scope", "agent", "project")]
    found = ([row[place] for place in at] for row in source.rows(names[0], TablePart(scopes)))
    known = {number: (agent, project) for number, agent, project in found}
    return Rewriting(*names, raised, known, target.takes_nul)


# So many are named, all are counted.
NAMED_LIMIT = 20
_Key = tuple[Any, ...]


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
    """What came of comparing one part."""

    row_count: int = 0
    difference_count: int = 0
    differences: list[Difference] = field(default_factory=list)
    # Over all rows of the target in their order.
    digest: str = ""


def compare(
    part: TablePart, user: str, expected: Iterable[Row], found: Iterable[Row]
) -> RowComparison:
    """Walks both sides at once; both come in the order of their keys."""
    result, whole = RowComparison(), hashlib.blake2b(digest_size=16)
    names = [column.name for column in part.table.columns]
    places = [names.index(name) for name in part.key]

    def note(row: Row, what: str) -> None:
        result.difference_count += 1
        if len(result.differences) < NAMED_LIMIT:
            key = {names[at]: row[at] for at in places}
            result.differences.append(Difference(user, part.table.name, key, what))

    def key_of(row: Row) -> _Key:
        return tuple([row[at] for at in places])

    for wanted, there in _side_by_side(expected, found, key_of):
        result.row_count += wanted is not None
        if there is not None:
            whole.update(repr(there).encode("utf-8", "surrogatepass"))
        if wanted == there:
            continue
        if wanted is None or there is None:
            note(wanted or there or (), "missing" if there is None else "extra")
        else:
            pairs = zip(names, wanted, there, strict=True)
            note(there, ", ".join(name for name, one, other in pairs if one != other))
    result.digest = whole.hexdigest()
    return result


def _side_by_side(
    left: Iterable[Row], right: Iterable[Row], key_of: Callable[[Row], _Key]
) -> Iterator[tuple[Row | None, Row | None]]:
    """Rows of the same key together, None where one side has none."""
    ones, others = iter(left), iter(right)
    one, other = next(ones, None), next(others, None)
    while one is not None or other is not None:
        # Most rows are the same, and then so are their keys.
        if one == other or (one and other and key_of(one) == key_of(other)):
            yield one, other
            one, other = next(ones, None), next(others, None)
        elif other is None or (one is not None and key_of(one) < key_of(other)):
            yield one, None
            one = next(ones, None)
        else:
            yield None, other
            other = next(others, None)
