"""The two ends of a migration: tables, how rows are rewritten, and progress in the target.

SQLite gives each number once in a file, PostgreSQL once for each user: on the way into a file a
user's numbers may have to be raised, and all references with them.
"""

from __future__ import annotations

import abc
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from meritory.store.sql.mapper import SqlConnection
from meritory.store.sql.memories import MEMORIES, row_hash
from meritory.store.sql.tables import BY_NAME, TENANT, SqlTable
from meritory.store.sql.tables import TABLES as ALL_TABLES

Row = tuple[Any, ...]
# Enough that round trips no longer count, and few enough to be held in memory.
PAGE_ROWS = 4_000
# Sessions hold whole transcripts, models whole checkpoints.
_PAGE_ROWS = {"sessions": 100, "models": 1}


@dataclass(frozen=True, slots=True)
class TablePart:
    """A table, or the vectors of one embedder."""

    table: SqlTable
    # Its name, and its number in the target.
    embedder: tuple[str, int] | None = None

    @property
    def name(self) -> str:
        """The name under which the target records progress."""
        return self.table.name if self.embedder is None else f"{self.table.name} {self.embedder[0]}"

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that tell a user's rows apart; empty where a user has only one."""
        fixed = {TENANT, *(("embedder",) if self.embedder else ())}
        return tuple(name for name in self.table.key if name not in fixed)

    @property
    def page_rows(self) -> int:
        """How many rows are read at a time."""
        return _PAGE_ROWS.get(self.table.name, PAGE_ROWS)


VECTORS, MODELS, JOBS = BY_NAME["memory_vectors"], BY_NAME["models"], BY_NAME["jobs"]
# Engines fill these from other tables, or keep them for themselves.
DERIVED = frozenset({"memories_fts", "memories_vocabulary", "memory_terms", "tenants"})
# All users share these: a migration joins them with those of the target.
COMMON = frozenset({"meta", "embedders", "schema_version"})
TABLES = tuple(table for table in ALL_TABLES if table.name not in DERIVED | COMMON)
# Merely opening a store can leave rows in these: a migration replaces them.
BOOKKEEPING = frozenset({"scopes", "counters", "events", "consents", "predictor_state", "jobs"})
# By the table that gives numbers the column that holds them.
GIVEN: dict[str, str] = {table.name: table.number for table in TABLES if table.number is not None}


Edit = Callable[[Any], Any]
# A memory's scope by its number: agent and project, over which its hash goes too.
Scopes = Mapping[int, tuple[str | None, str | None]]
# Columns that hold a memory, or a rule, as it once was.
_MEMORIES_WITHIN = {("memory_history", "before"), ("memory_history", "other")}
_RULES_WITHIN = {("rule_events", "before")}


@dataclass(frozen=True, slots=True)
class Rewriting:
    """How the rows of one user are rewritten for the target."""

    old_user: str
    new_user: str
    raised: Mapping[str, int] = field(default_factory=dict)
    scopes: Scopes = field(default_factory=dict)
    # PostgreSQL has no NUL character in its texts.
    takes_nul: bool = True

    def of(self, part: TablePart) -> Callable[[Row], Row]:
        """What makes the rows of one part those of the other side."""
        edits = {
            at: edit
            for at, column in enumerate(part.table.columns)
            if (edit := self._edit(part, column.name)) is not None
        }
        if part.table.name == "memories":
            return partial(self._memory, edits, _places(part))
        if edits or not self.takes_nul:
            return partial(self._edited, edits)
        return _same

    def _edit(self, part: TablePart, column: str) -> Edit | None:
        table = part.table
        raised = self.raised.get(table.numbers.get(column, ""), 0)
        is_renamed = self.old_user != self.new_user
        if part.embedder is not None and column == "embedder":
            number = part.embedder[1]
            return lambda _: number
        if column == "user":
            return (lambda _: self.new_user) if is_renamed else None
        if raised:
            return partial(_raised, raised)
        if is_renamed and (table.name, column) in _MEMORIES_WITHIN:
            return self._memory_within
        if self.raised.get("actions") and (table.name, column) in _RULES_WITHIN:
            return self._rule_within
        return None

    def _edited(self, edits: Mapping[int, Edit], row: Row) -> Row:
        if edits:
            values = list(row)
            for at, edit in edits.items():
                values[at] = edit(values[at])
            row = tuple(values)
        return row if self.takes_nul else without_nul(row)

    def _memory(self, edits: Mapping[int, Edit], places: tuple[int, ...], row: Row) -> Row:
        """A memory, whose hash goes over its user too; one that is damaged stays so."""
        told = self._edited(edits, row)
        *at, scope_at, hash_at = places
        scope = self.scopes.get(row[scope_at], (None, None))
        new_scope = scope if self.takes_nul else without_nul(scope)
        before, after = _durable(row, at, scope), _durable(told, at, new_scope)
        if before == after or row_hash(before) != row[hash_at]:
            return told
        return (*told[:hash_at], row_hash(after), *told[hash_at + 1 :])

    def _memory_within(self, text: Any) -> Any:
        known = _object(text)
        if known.get("user") != self.old_user:
            return text
        return json.dumps({**known, "user": self.new_user}, ensure_ascii=False)

    def _rule_within(self, text: Any) -> Any:
        known = _object(text)
        through = known.get("replayed_through")
        if not isinstance(through, int):
            return text
        return json.dumps({**known, "replayed_through": _raised(self.raised["actions"], through)})


def without_nul(row: Row) -> Row:
    """The row with a sign in the place of every NUL character; nearly all rows are as they were."""
    if not any(type(value) is str and "\0" in value for value in row):
        return row
    return tuple(v.replace("\0", "\ufffd") if isinstance(v, str) else v for v in row)


def _same(row: Row) -> Row:
    return row


def _raised(by: int, number: int | None) -> int | None:
    # None is no number, and neither is nought: it says that there was none yet.
    return number + by if number else number


def _places(part: TablePart) -> tuple[int, ...]:
    """Where a memory has its durable values, but for agent and project, its scope and its hash."""
    names = [column.name for column in part.table.columns]
    durable = [name for name in MEMORIES.columns if name not in ("agent", "project")]
    return tuple(names.index(name) for name in (*durable, "scope", "row_hash"))


_AGENT_AT = MEMORIES.columns.index("agent")


def _durable(row: Row, at: list[int], scope: tuple[Any, ...]) -> list[Any]:
    """The values over which a memory's hash goes, in their order."""
    values = [row[place] for place in at]
    return [*values[:_AGENT_AT], *scope, *values[_AGENT_AT:]]


def _object(text: Any) -> dict[str, Any]:
    """What a text holds; nothing where that cannot be read any more."""
    try:
        known = json.loads(text) if isinstance(text, str) else {}
    except ValueError:
        return {}
    return known if isinstance(known, dict) else {}


# Beside the other things that a store knows of itself.
_PREFIX = "moving "


def key_of(user: str) -> str:
    """Under which name the target notes it."""
    return _PREFIX + user


@dataclass(frozen=True, slots=True)
class EndpointState:
    """The numbers by which a user's rows are known to have changed, or not."""

    change: int = 0
    purge: int = 0
    learned: int = 0
    # By the table that gives numbers the highest that was ever given.
    given: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Progress:
    """What was done for a user, and from where."""

    source: str
    user: str
    standing: EndpointState
    # By the table that gives numbers what is added to each on the way.
    raised: Mapping[str, int] = field(default_factory=dict)
    # The part that was last written to and the key of its last row, None when it is done.
    part: str | None = None
    after: tuple[Any, ...] | None = None
    copied: Mapping[str, int] = field(default_factory=dict)
    document_count: int = 0
    token_count: int = 0
    is_complete: bool = False

    def encoded(self) -> str:
        """As the target keeps it."""
        return json.dumps(asdict(self))


def decoded(text: str) -> Progress:
    """What `encoded` wrote."""
    known: dict[str, Any] = json.loads(text)
    after = known.pop("after")
    return Progress(
        standing=EndpointState(**known.pop("standing")),
        after=None if after is None else tuple(after),
        **known,
    )


T = TypeVar("T")


class EndpointEmbedder(NamedTuple):
    """An embedder that a store knows, by its number there."""

    number: int
    name: str
    dimension: int
    spec: str


class Added(NamedTuple):
    """What new memories added to the full-text index, where it counts by itself."""

    document_count: int = 0
    token_count: int = 0


class EndpointReader(abc.ABC):
    """One look at a store: nothing changes while it lasts."""

    def __init__(self, connection: SqlConnection) -> None:
        self.connection = connection

    # -- what differs -----------------------------------------------------------------------

    @abc.abstractmethod
    def users(self) -> list[str]:
        """Everybody who may have something in the store."""

    @abc.abstractmethod
    def standing(self, user: str) -> EndpointState:
        """The numbers by which a user's rows are known to have changed."""

    @abc.abstractmethod
    def _owned(self, table: SqlTable) -> str:
        """The condition that a row `t` is of a user."""

    @abc.abstractmethod
    def _of(self, user: str) -> SqlConnection:
        """Return the connection, ready for statements about a user's rows."""

    @abc.abstractmethod
    def _stream(
        self, user: str, statement: str, values: Sequence[Any], page_rows: int
    ) -> Iterator[Row]:
        """Return the rows that a statement about a user finds, read a page at a time."""

    # -- what does not ----------------------------------------------------------------------

    def rows(self, user: str, part: TablePart, after: Sequence[Any] | None = None) -> Iterator[Row]:
        """A user's rows by their keys, from behind a key on; vectors as a file has them."""
        table = part.table
        names = ", ".join(f"t.{column.name}" for column in table.columns)
        keys = ", ".join(f"t.{name}" for name in part.key)
        statement = f"SELECT {names} FROM {table.name} t WHERE {self._owned(table)}"  # noqa: S608
        values: list[Any] = [user]
        if part.embedder is not None:
            statement += " AND t.embedder = ?"
            values.append(self._number_of(part))
        if after is not None and keys:
            statement += f" AND ({keys}) > ({', '.join('?' for _ in after)})"
            values += after
        return self._stream(
            user, statement + (f" ORDER BY {keys}" if keys else ""), values, part.page_rows
        )

    def numbers(self, user: str, table: SqlTable, page_rows: int) -> Iterator[int]:
        """The numbers that a table gave for a user, ascending."""
        found = self._stream(
            user,
            f"SELECT t.{table.number} FROM {table.name} t WHERE {self._owned(table)}"  # noqa: S608
            f" ORDER BY t.{table.number}",
            (user,),
            page_rows,
        )
        return (number for (number,) in found)

    def count(self, user: str, table: SqlTable) -> int:
        """How many rows a user has."""
        (count,) = (
            self._of(user)
            .execute(
                f"SELECT count(*) FROM {table.name} t WHERE {self._owned(table)}",  # noqa: S608
                (user,),
            )
            .fetchone()
        )
        return int(count)

    def has_rows(self, user: str, table: SqlTable) -> bool:
        """Whether a user has any row."""
        found = self._of(user).execute(
            f"SELECT 1 FROM {table.name} t WHERE {self._owned(table)} LIMIT 1",  # noqa: S608
            (user,),
        )
        return found.fetchone() is not None

    def embedders(self) -> list[EndpointEmbedder]:
        """The embedders that the store knows."""
        found = self.connection.execute(
            "SELECT embedder, name, dimension, spec FROM embedders ORDER BY embedder"
        )
        return [EndpointEmbedder(*row) for row in found]

    def serving(self) -> str | None:
        """The embedder whose vectors answer searches."""
        number = self._noted("serving")
        return next((one.name for one in self.embedders() if str(one.number) == number), None)

    def secret(self) -> str:
        """What the store makes its codes from."""
        return self._noted("secret") or ""

    def progress(self, user: str) -> Progress | None:
        """How far a move of this user into this store came, if there ever was one."""
        noted = self._noted(key_of(user))
        return None if noted is None else decoded(noted)

    def _noted(self, key: str) -> str | None:
        found = self.connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if found is None else str(found[0])

    def _number_of(self, part: TablePart) -> int:
        """The embedder's number on this side."""
        assert part.embedder is not None  # noqa: S101 - for mypy
        return next(one.number for one in self.embedders() if one.name == part.embedder[0])

    def vector_count(self, user: str, embedder: int) -> int:
        """How many vectors of an embedder a user has."""
        (count,) = (
            self._of(user)
            .execute(
                f"SELECT count(*) FROM memory_vectors t WHERE {self._owned(VECTORS)}"  # noqa: S608
                " AND t.embedder = ?",
                (user, embedder),
            )
            .fetchone()
        )
        return int(count)


class EndpointWriter(EndpointReader):
    """One transaction that changes the target, for one user."""

    @abc.abstractmethod
    def add(self, user: str, part: TablePart, rows: Sequence[Row]) -> Added:
        """Stores rows as they are; what is derived from them is made."""

    @abc.abstractmethod
    def clear(self, user: str) -> None:
        """Removes every row of a user."""

    @abc.abstractmethod
    def taken(self, table: SqlTable, numbers: Iterable[int]) -> int:
        """Nought if none of these numbers is taken, else the highest that was ever given."""

    @abc.abstractmethod
    def has_vectors(self) -> bool:
        """Whether anybody has a vector here."""

    @abc.abstractmethod
    def settle(self, user: str, standing: EndpointState, added: Added) -> None:
        """Lets the user appear: new numbers are given behind those that were moved."""

    @abc.abstractmethod
    def note(self, key: str, value: str) -> None:
        """Keeps something that the store knows of itself."""

    @abc.abstractmethod
    def register(self, embedder: EndpointEmbedder) -> None:
        """Makes an embedder known, unless it is."""


class Endpoint(Protocol):
    """A store that is moved from or to."""

    # As people are shown it.
    name: str
    kind: str
    takes_nul: bool

    @property
    def is_hidden(self) -> bool:
        """Return whether migrated rows stay invisible to others until they are complete."""

    def reading(self) -> AbstractContextManager[EndpointReader]:
        """One look at everything, for the length of the block."""

    def write(self, user: str, work: Callable[[EndpointWriter], T]) -> T:
        """Runs `work` in a transaction; returns once it is durable."""

    def claimed(self, user: str) -> AbstractContextManager[None]:
        """Keeps others from moving the same user in, for the length of the block."""

    def reveal(self, users: Sequence[str]) -> None:
        """Puts what was moved in its place, once all of it is there: of these users alone."""

    def close(self) -> None:
        """Lets go of the store."""
