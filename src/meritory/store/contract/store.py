"""The storage contract: the methods that every backend has.

A `Store` reads and owns the files. `Store.write` runs a function on a `Transaction`, whose changes
all take effect together or not at all, and returns once they are on disk. Every read names its
user; no method can reach another user's rows. Records come back exactly as they were stored.

Both databases share the methods in `meritory.store.sql`, one module per noun; each of them does
the methods here in its own way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from meritory.domain.memory import MemoryRecord
from meritory.domain.place import Place
from meritory.domain.world import Subscription
from meritory.store.sql.store import SqlStore, SqlTransaction

T = TypeVar("T")
# Its reads see its writes.
Transaction = SqlTransaction


class DamagedRow(NamedTuple):
    """A row that does not match its checksum, by its table and the columns of its key."""

    table: str
    key: Mapping[str, Any]

    @property
    def key_text(self) -> str:
        """The key, to be printed."""
        return ", ".join(f"{name} {value}" for name, value in self.key.items())


class Store(SqlStore, ABC):
    """A store of memories."""

    place: Place

    @abstractmethod
    def write(self, user: str | None, work: Callable[[Transaction], T]) -> T:
        """Run `work` in one transaction of one user and return when it is durable.

        Without a user it may only take jobs, of any user.
        """

    def follow(self, call: Callable[[], None]) -> Subscription | None:
        """Call `call` soon after any process has committed a change.

        Several commits may cause one call, and a call may come without a change. It comes on a
        thread of the store and must return at once. Return None if this store cannot notify and
        must be polled.
        """
        return None

    @abstractmethod
    def try_lock(self, name: str) -> AbstractContextManager[bool]:
        """Hold the lock of this name for the length of the block; False if another process has it.

        The lock of a process that dies is released. A store that only one process can open always
        gives it.
        """

    @abstractmethod
    def without_vector(
        self, embedder: str, limit: int, after: MemoryRecord | None = None
    ) -> list[MemoryRecord]:
        """Return memories in any state that lack a vector of this embedder, in a fixed order.

        `after` is the last memory of the batch before.
        """

    # -- maintenance ----------------------------------------------------------------------

    @abstractmethod
    def erase_traces(self) -> None:
        """Erase purged texts from the files as well.

        Raise Busy if another process is in the way; the next call or opening does it.
        """

    @abstractmethod
    def tidy(self, should_stop: Callable[[], bool]) -> None:
        """Optimise the full-text index in small steps that do not block other callers."""

    @abstractmethod
    def check(self, *, deep: bool) -> list[str]:
        """Return the problems of the files; empty if there are none."""

    @abstractmethod
    def damaged_rows(self) -> list[DamagedRow]:
        """Return every row that does not match its checksum."""

    @abstractmethod
    def repair(self) -> list[str]:
        """Repair rows and indexes; return what was done, one sentence each.

        Damaged vectors and entity links are deleted: the text of their memory gives them again.
        """

    @abstractmethod
    def backup(self, target: Path) -> None:
        """Write a verified copy while the store stays in use."""

    @abstractmethod
    def size_bytes(self) -> int:
        """Return the size on disk."""

    @abstractmethod
    def engine_name(self) -> str:
        """Return the name and version of the database."""

    def advice(self) -> list[str]:
        """Return recommendations for the operator."""
        return []
