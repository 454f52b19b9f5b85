"""The contract of a store's care: its files, its health and its end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from meritory.domain.world import Following


class StoreMaintenance(Protocol):
    """What is done for a store as a whole."""

    def erase_traces(self) -> None:
        """Makes sure that what was purged is gone from the files too.

        Busy when somebody is in the way: it is made up for at the next opening or call.
        """

    def tidy(self, should_stop: Callable[[], bool]) -> None:
        """Puts the full-text index in order, in steps so small that nobody waits for them."""

    def damaged_count(self) -> int:
        """How many rows were met that do not match their hash."""

    def check(self, *, deep: bool) -> list[str]:
        """What is wrong with the files, in words; empty when all is well."""

    def backup(self, target: Path) -> None:
        """Writes a verified copy while the store stays in use."""

    def size_bytes(self) -> int:
        """How much room it takes on disk."""

    def engine_name(self) -> str:
        """The database behind it, with its version."""

    def advice(self) -> list[str]:
        """What its operator had better change, in words; nothing is wrong with it."""

    def close(self) -> None:
        """Finishes what is under way and lets go of the files; safe to call twice."""


class ChangeReads(Protocol):
    """How to be told."""

    def follow(self, told: Callable[[], None]) -> Following | None:
        """Calls `told` soon after somebody, in any process, has committed something.

        Several commits may be told as one, and one is told where there may have been some. It is
        called on a thread of the store's and must return at once. None when this store cannot tell
        and must be looked at.
        """


class Locks(Protocol):
    """Whose turn it is."""

    def turn(self, what: str) -> AbstractContextManager[bool]:
        """Has the turn at something for the length of the block; False when another has it.

        Whoever dies has it no more. A store that has one process by its nature always gives it.
        """
