"""The storage contract: the methods that every backend has.

A `Store` reads and owns the files. `Store.write` runs a function on a `Transaction`, whose changes
all take effect together or not at all, and returns once they are on disk. Every read names its
user; no method can reach another user's rows. Records come back exactly as they were stored.

Each noun has a module here and one of the same name in `meritory.store.sql`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeVar

from meritory.domain.place import Place
from meritory.domain.session import ModelRows
from meritory.domain.world import Subscription
from meritory.store.contract.access import AccessReads, AccessWrites
from meritory.store.contract.dashboard import DashboardReads
from meritory.store.contract.feedback import FeedbackReads, FeedbackWrites
from meritory.store.contract.jobs import JobReads, JobWrites
from meritory.store.contract.memories import MemoryReads, MemoryWrites
from meritory.store.contract.predictor import PredictorReads, PredictorWrites
from meritory.store.contract.quality import QualityReads, QualityWrites
from meritory.store.contract.rules import RuleReads, RuleWrites
from meritory.store.contract.sessions import SessionReads, SessionWrites

T = TypeVar("T")


class Transaction(
    MemoryWrites,
    SessionWrites,
    PredictorWrites,
    FeedbackWrites,
    RuleWrites,
    QualityWrites,
    JobWrites,
    AccessWrites,
    Protocol,
):
    """The methods of one transaction; its reads see its writes."""


class Store(
    MemoryReads,
    SessionReads,
    PredictorReads,
    FeedbackReads,
    RuleReads,
    QualityReads,
    JobReads,
    AccessReads,
    DashboardReads,
    Protocol,
):
    """A store of memories."""

    place: Place
    # None if the models are files next to the store.
    models: ModelRows | None

    def write(self, user: str | None, work: Callable[[Transaction], T]) -> T:
        """Run `work` in one transaction of one user and return when it is durable.

        Without a user it may only take jobs, of any user.
        """

    def follow(self, told: Callable[[], None]) -> Subscription | None:
        """Call `told` soon after any process has committed a change.

        Several commits may cause one call, and a call may come without a change. It comes on a
        thread of the store and must return at once. Return None if this store cannot notify and
        must be polled.
        """

    def turn(self, what: str) -> AbstractContextManager[bool]:
        """Hold the lock of this name for the length of the block; False if another process has it.

        The lock of a process that dies is released. A store that only one process can open always
        gives it.
        """

    # -- maintenance ----------------------------------------------------------------------

    def erase_traces(self) -> None:
        """Erase purged texts from the files as well.

        Raise Busy if another process is in the way; the next call or opening does it.
        """

    def tidy(self, should_stop: Callable[[], bool]) -> None:
        """Optimise the full-text index in small steps that do not block other callers."""

    def damaged_count(self) -> int:
        """Return how many rows were read that do not match their hash."""

    def check(self, *, deep: bool) -> list[str]:
        """Return the problems of the files; empty if there are none."""

    def backup(self, target: Path) -> None:
        """Write a verified copy while the store stays in use."""

    def size_bytes(self) -> int:
        """Return the size on disk."""

    def engine_name(self) -> str:
        """Return the name and version of the database."""

    def advice(self) -> list[str]:
        """Return recommendations for the operator."""

    def close(self) -> None:
        """Finish running work and release the files; safe to call twice."""
