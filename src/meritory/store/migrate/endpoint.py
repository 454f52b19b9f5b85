"""The two ends of a migration: tables, how rows are rewritten, and progress in the target.

SQLite gives each number once in a file, PostgreSQL once for each user: on the way into a file a
user's numbers may have to be raised, and all references with them.
"""

from __future__ import annotations

import abc
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

import msgspec

from meritory.domain.codec import prepared
from meritory.store.sql.mapper import SqlConnection
from meritory.store.sql.memories import MEMORIES, row_hash
from meritory.store.sql.tables import BY_NAME, TENANT, SqlTable
from meritory.store.sql.tables import TABLES as ALL_TABLES

T = TypeVar("T")
Row = tuple[Any, ...]
# Enough that round trips no longer count, and few enough to be held in memory.
PAGE_ROWS = 4_000
# Sessions hold whole transcripts, models whole checkpoints.
_PAGE_ROWS = {"sessions": 100, "models": 1}
VECTORS, MODELS, JOBS = BY_NAME["memory_vectors"], BY_NAME["models"], BY_NAME["jobs"]
# Engines fill these from other tables, or keep them for themselves.
DERIVED = frozenset({"memories_fts", "memories_vocabulary", "memory_terms", "tenants"})
# All users share these: a migration joins them with those of the target.
COMMON = frozenset({"meta", "embedders", "schema_version"})
TABLES = tuple(table for table in ALL_TABLES if table.name not in DERIVED | COMMON)
# Merely opening a store can leave rows in these: a migration replaces them.
BOOKKEEPING = frozenset(
    {"scopes", "counters", "events", "project_folders", "consents", "predictor_state", "jobs"}
)
# By table the column whose numbers it gives.
GIVEN: dict[str, str] = {table.name: table.number for table in TABLES if table.number is not None}


@dataclass(frozen=True)
class TablePart:
    """A table, or the vectors of one embedder."""

    table: SqlTable
    # Its name, and its number in the target.
    embedder: tuple[str, int] | None = None

    @property
    def name(self) -> str:
        """The name under which the target records progress."""
        return self.table.name if self.embedder is None else f"{self.table.name} {self.embedder[0]}"

    @cached_property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.table.columns]

    @cached_property
    def key(self) -> list[str]:
        """The columns that tell a user's rows apart; empty where a user has only one."""
        fixed = {TENANT, *(("embedder",) if self.embedder else ())}
        return [name for name in self.table.key if name not in fixed]

    @cached_property
    def key_at(self) -> list[int]:
        """The places of the key in a row."""
        return [self.columns.index(name) for name in self.key]

    @property
    def page_rows(self) -> int:
        """How many rows are read at a time."""
        return _PAGE_ROWS.get(self.table.name, PAGE_ROWS)


# -- rewriting ------------------------------------------------------------------------------------

# Columns with an earlier version of a memory, or of a rule, as JSON.
_WITH_MEMORY = {("memory_history", "before"), ("memory_history", "other")}
_WITH_RULE = {("rule_events", "before")}
_AGENT_AT = MEMORIES.columns.index("agent")


@dataclass(frozen=True, slots=True)
class Rewriting:
    """How the rows of one user are rewritten for the target."""

    old_user: str
    new_user: str
    # By the table that gives numbers the amount that is added to each.
    raised: Mapping[str, int] = field(default_factory=dict)
    # By number the agent and project of a scope: the hash of a memory covers them.
    scopes: Mapping[int, tuple[str | None, str | None]] = field(default_factory=dict)
    # PostgreSQL has no NUL character in its texts.
    takes_nul: bool = True

    def of(self, part: TablePart) -> Callable[[Row], Row]:
        """Return the function that rewrites the rows of a part."""
        edits: dict[int, Callable[[Any], Any]] = {}
        is_renamed, actions = self.old_user != self.new_user, self.raised.get("actions", 0)

        def rename(user: Any) -> Any:
            return self.new_user if user == self.old_user else user

        for at, column in enumerate(part.columns):
            raised = self.raised.get(part.table.numbers.get(column, ""), 0)
            within = (part.table.name, column)
            if part.embedder is not None and column == "embedder":
                edits[at] = partial(_replaced, part.embedder[1])
            elif column == TENANT and is_renamed:
                edits[at] = partial(_replaced, self.new_user)
            elif raised:
                edits[at] = partial(_raised, raised)
            elif is_renamed and within in _WITH_MEMORY:
                edits[at] = partial(_edit_json, "user", rename)
            elif actions and within in _WITH_RULE:
                edits[at] = partial(_edit_json, "replayed_through", partial(_raised, actions))

        def rewrite(row: Row) -> Row:
            if edits:
                values = list(row)
                for at, edit in edits.items():
                    values[at] = edit(values[at])
                row = tuple(values)
            return row if self.takes_nul else without_nul(row)

        return self._hashed(part, rewrite) if part.table.name == "memories" else rewrite

    def _hashed(self, part: TablePart, rewrite: Callable[[Row], Row]) -> Callable[[Row], Row]:
        """Return a function that renews the hash of a memory, too; a damaged one stays damaged."""
        durable = [name for name in MEMORIES.columns if name not in ("agent", "project")]
        at = [part.columns.index(name) for name in durable]
        scope_at, hash_at = part.columns.index("scope"), part.columns.index("row_hash")

        def hashed_values(row: Row, scope: Row) -> list[Any]:
            values = [row[place] for place in at]
            return [*values[:_AGENT_AT], *scope, *values[_AGENT_AT:]]

        def rewrite_memory(row: Row) -> Row:
            new, scope = rewrite(row), self.scopes.get(row[scope_at], (None, None))
            before = hashed_values(row, scope)
            after = hashed_values(new, scope if self.takes_nul else without_nul(scope))
            if before == after or row_hash(before) != row[hash_at]:
                return new
            return (*new[:hash_at], row_hash(after), *new[hash_at + 1 :])

        return rewrite_memory


def without_nul(row: Row) -> Row:
    """Return the row with a replacement character for every NUL; nearly all rows have none."""
    if not any(type(value) is str and "\0" in value for value in row):
        return row
    return tuple(v.replace("\0", "\ufffd") if isinstance(v, str) else v for v in row)


def _replaced(new: Any, old: Any) -> Any:
    return new


def _raised(by: int, number: Any) -> Any:
    # None and 0 are not numbers of rows: there was none yet.
    return number + by if number and isinstance(number, int) else number


def _edit_json(name: str, edit: Callable[[Any], Any], text: Any) -> Any:
    """Return a JSON object with one field edited; text that cannot be read stays as it is."""
    try:
        value = json.loads(text)
    except (ValueError, TypeError):
        return text
    if not isinstance(value, dict) or edit(value.get(name)) == value.get(name):
        return text
    return json.dumps({**value, name: edit(value[name])}, ensure_ascii=False)


# -- progress -------------------------------------------------------------------------------------


def key_of(user: str) -> str:
    """Return the key in `meta` under which the target records the progress of a user."""
    return f"moving {user}"


@dataclass(frozen=True, slots=True)
class EndpointState:
    """The numbers that change with a user's rows."""

    change: int = 0
    purge: int = 0
    learned: int = 0
    # By the table that gives numbers the highest that was ever given.
    given: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Progress:
    """How much of a user was copied, and from where."""

    source: str
    user: str
    state: EndpointState
    # By the table that gives numbers the amount that is added to each.
    raised: Mapping[str, int] = field(default_factory=dict)
    # The part that was last written to and the key of its last row, None when it is done.
    part: str | None = None
    after: tuple[Any, ...] | None = None
    copied: Mapping[str, int] = field(default_factory=dict)
    is_complete: bool = False


# -- endpoints ------------------------------------------------------------------------------------


class EndpointEmbedder(NamedTuple):
    """An embedder, by its number in a store."""

    number: int
    name: str
    dimension: int
    spec: str


class EndpointReader(abc.ABC):
    """One snapshot of a store."""

    def __init__(self, connection: SqlConnection) -> None:
        self.connection = connection

    @abc.abstractmethod
    def users(self) -> list[str]:
        """Return all users who may have rows in the store."""

    @abc.abstractmethod
    def state(self, user: str) -> EndpointState:
        """Return the numbers that change with a user's rows."""

    @abc.abstractmethod
    def _owned(self, table: SqlTable) -> str:
        """Return the condition that a row `t` belongs to a user."""

    @abc.abstractmethod
    def _stream(
        self, user: str, statement: str, values: Sequence[Any], page_rows: int
    ) -> Iterator[Row]:
        """Return the rows that a statement about a user finds, read a page at a time."""

    def _of(self, user: str) -> SqlConnection:
        """Return the connection, ready for statements about a user's rows."""
        return self.connection

    def _across(self) -> AbstractContextManager[None]:
        """Let the statements of the block be about all users."""
        return nullcontext()

    def rows(self, user: str, part: TablePart, after: Sequence[Any] | None = None) -> Iterator[Row]:
        """Return a user's rows by their keys, from behind a key on; vectors as a file has them."""
        table = part.table
        names = ", ".join(f"t.{name}" for name in part.columns)
        keys = ", ".join(f"t.{name}" for name in part.key)
        statement = f"SELECT {names} FROM {table.name} t WHERE {self._owned(table)}"  # noqa: S608
        values: list[Any] = [user]
        if part.embedder is not None:
            statement += " AND t.embedder = ?"
            values += [one.number for one in self.embedders() if one.name == part.embedder[0]]
        if after is not None and keys:
            statement += f" AND ({keys}) > ({', '.join('?' for _ in after)})"
            values += after
        statement += f" ORDER BY {keys}" if keys else ""
        return self._stream(user, statement, values, part.page_rows)

    def numbers(self, user: str, table: SqlTable, page_rows: int) -> Iterator[int]:
        """Return the numbers that a table gave for a user, ascending."""
        number, owned = f"t.{table.number}", self._owned(table)
        asked = f"SELECT {number} FROM {table.name} t WHERE {owned} ORDER BY {number}"  # noqa: S608
        return (given for (given,) in self._stream(user, asked, (user,), page_rows))

    def _first(self, user: str, asked: str, table: SqlTable, rest: str = "", *values: Any) -> Any:
        """Return the first row of a statement about a user's rows of a table."""
        statement = f"SELECT {asked} FROM {table.name} t WHERE {self._owned(table)}{rest}"  # noqa: S608
        return self._of(user).execute(statement, (user, *values)).fetchone()

    def count(self, user: str, table: SqlTable) -> int:
        """Return the number of a user's rows."""
        return int(self._first(user, "count(*)", table)[0])

    def has_rows(self, user: str, table: SqlTable) -> bool:
        """Return whether a user has any row."""
        return self._first(user, "1", table, " LIMIT 1") is not None

    def vector_count(self, user: str, embedder: int) -> int:
        """Return the number of a user's vectors of an embedder."""
        return int(self._first(user, "count(*)", VECTORS, " AND t.embedder = ?", embedder)[0])

    def has_vectors(self) -> bool:
        """Return whether any user has a vector."""
        with self._across():
            found = self.connection.execute("SELECT embedder FROM memory_vectors LIMIT 1")
            return found.fetchone() is not None

    def embedders(self) -> list[EndpointEmbedder]:
        """Return the embedders of the store."""
        rows = self.connection.execute(
            "SELECT embedder, name, dimension, spec FROM embedders ORDER BY embedder"
        )
        return [EndpointEmbedder(*row) for row in rows]

    def noted(self, key: str) -> str | None:
        """Return a value of `meta`."""
        found = self.connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if found is None else str(found[0])

    def progress(self, user: str) -> Progress | None:
        """Return the progress of a migration of this user into this store, if there was one."""
        noted = self.noted(key_of(user))
        return None if noted is None else msgspec.json.decode(noted, type=prepared(Progress))


class EndpointWriter(EndpointReader):
    """One transaction that changes the target, for one user."""

    @abc.abstractmethod
    def add(self, user: str, part: TablePart, rows: Sequence[Row]) -> None:
        """Store rows unchanged, and what is derived from them."""

    @abc.abstractmethod
    def clear(self, user: str) -> None:
        """Delete every row of a user."""

    @abc.abstractmethod
    def taken(self, table: SqlTable, numbers: Iterable[int]) -> int:
        """Return 0 if none of these numbers is taken, else the highest that was ever given."""

    @abc.abstractmethod
    def settle(self, user: str, state: EndpointState) -> None:
        """Make the user visible; new numbers are given after those that were migrated."""

    def note(self, key: str, value: str) -> None:
        """Set a value of `meta`."""
        statement = """INSERT INTO meta VALUES (?, ?)
            ON CONFLICT (key) DO UPDATE SET value = excluded.value"""
        with self._across():
            self.connection.execute(statement, (key, value))

    def note_progress(self, user: str, progress: Progress) -> None:
        """Record the progress of a user."""
        self.note(key_of(user), msgspec.json.encode(progress).decode())

    def register(self, embedder: EndpointEmbedder) -> None:
        """Add an embedder, unless the store has it."""
        statement = """INSERT INTO embedders (name, dimension, spec) VALUES (?, ?, ?)
            ON CONFLICT (name) DO NOTHING"""
        with self._across():
            self.connection.execute(statement, embedder[1:])


class Endpoint(abc.ABC):
    """A store that is migrated from or to."""

    # As people read it.
    name: str
    kind: str
    takes_nul: bool

    @property
    def is_hidden(self) -> bool:
        """Whether migrated rows stay invisible to others until they are complete."""
        return False

    @abc.abstractmethod
    def reading(self) -> AbstractContextManager[EndpointReader]:
        """Open one snapshot of everything, for the block."""

    @abc.abstractmethod
    def write(self, user: str, work: Callable[[EndpointWriter], T]) -> T:
        """Run `work` in a transaction; return once it is durable."""

    def claimed(self, user: str) -> AbstractContextManager[None]:
        """Keep others from migrating the same user into the store, for the block."""
        return nullcontext()

    @abc.abstractmethod
    def reveal(self, users: Sequence[str]) -> None:
        """Give a new store its name, once all of these users, and no others, are in it."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close the store."""
