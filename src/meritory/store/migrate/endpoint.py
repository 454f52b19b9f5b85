"""How far the move of one user came, as the target notes it with every batch."""

from __future__ import annotations

import abc
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from meritory.store.migrate.tables import VECTORS, Row, TablePart
from meritory.store.sql.connection import SqlConnection
from meritory.store.sql.tables import SqlTable

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
        """Whether nobody else can find what is moved here before it is revealed."""

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
