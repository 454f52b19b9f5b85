"""The storage contract: the methods that every backend has.

A `Store` reads and owns the files. `Store.write` runs a function on a `Transaction`, whose changes
all take effect together or not at all, and returns once they are on disk. Every read names its
user; no method can reach another user's rows. Records come back exactly as they were stored.

The methods are in the protocol of their noun, here or in `memories`, `sessions` and `feedback`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypeVar

from meritory.domain.access import AccessToken, Consent
from meritory.domain.job import Job, JobState, Lease
from meritory.domain.memory import Scope
from meritory.domain.place import Place
from meritory.domain.session import (
    EntityGraph,
    MemoryDelivery,
    ModelRows,
    SessionQuery,
    SessionSummary,
)
from meritory.domain.world import Subscription
from meritory.store.contract.feedback import (
    FeedbackReads,
    FeedbackWrites,
    QualityReads,
    QualityWrites,
    RuleReads,
    RuleWrites,
)
from meritory.store.contract.memories import MemoryReads, MemoryWrites
from meritory.store.contract.sessions import (
    PredictorReads,
    PredictorWrites,
    SessionReads,
    SessionWrites,
)

T = TypeVar("T")


class JobReads(Protocol):
    """Reads of the job queue: work that takes effect once, whichever process dies in between.

    A job is queued, running under a lease, done, or parked until a person acts. A worker commits
    the effect of a stage and the progress of the job in one transaction, which fails as a whole
    once another worker has the lease. So a stage may be computed twice, but takes effect once.
    """

    def jobs(self, user: str | None, state: JobState | None, limit: int) -> list[Job]:
        """Return jobs of a user or of all, in one state or in any, newest first."""

    def job(self, user: str, kind: str, key: str) -> Job:
        """Return one job; raise NotFound otherwise."""

    def job_counts(self, user: str | None = None) -> dict[JobState, int]:
        """Return how many jobs of a user, or of all, are in each state."""

    def oldest_due(self, now: datetime) -> datetime | None:
        """Return the due time of the job that has waited longest; None without one."""

    def next_job_at(self, now: datetime, kinds: Collection[str]) -> datetime | None:
        """Return when the next job of these kinds can be taken, not before `now`; None without one.

        A running job can be taken when its lease ends.
        """


class JobWrites(Protocol):
    """Changes of jobs.

    The methods on a held job return its new state. They raise Conflict, which undoes the whole
    transaction, if the lease is lost or the job is at another stage than its holder assumes.
    """

    def put_job(self, user: str, kind: str, key: str, due_at: datetime) -> bool:
        """Queue a job, due at most `WAIT_MAX` ahead; its age counts from then.

        Return False if a job of this kind and key exists, in any state.
        """

    def requeue_job(self, user: str, kind: str, key: str, due_at: datetime) -> bool:
        """Queue a job again from its first stage, e.g. because its input has changed.

        A queued job keeps its due time; a running one is taken from its holder. Return False if
        there is none.
        """

    def resume_job(self, user: str, kind: str, key: str, due_at: datetime) -> Job:
        """Give a parked job new attempts from where it stopped; make a queued one due.

        Raise NotFound without one, Conflict if it is running or done.
        """

    def take_job(
        self, lease: Lease, kinds: Collection[str], skip: Collection[int] = ()
    ) -> Job | None:
        """Lease the job of these kinds that has been due longest, or one whose holder died.

        This counts as an attempt; a job whose holders died too often is parked instead. `skip`
        are numbers of jobs to leave alone.
        """

    def take_named_job(self, lease: Lease, user: str, kind: str, key: str) -> Job | None:
        """Lease one queued job, due or not; None if it is not queued."""

    def pass_stage(self, job: Job, stage: str, until: datetime) -> Job:
        """Record that this transaction is the effect of a stage of a held job.

        The lease now lasts until `until`, and the count of attempts starts again.
        """

    def finish_job(self, job: Job, at: datetime) -> Job:
        """End a held job."""

    def fail_job(self, job: Job, error: str, retry_at: datetime | None) -> Job:
        """Queue a held job again; park it without a moment or after too many attempts."""

    def postpone_job(self, job: Job, retry_at: datetime, why: str | None = None) -> Job:
        """Queue a held job again without counting the attempt, e.g. when a budget is spent."""


class AccessReads(Protocol):
    """Reads of tokens and consent, also within a transaction.

    A token has the hash of its secret; the secret itself is shown once, when it is made.
    """

    def access_token(self, user: str, token_id: str) -> AccessToken | None:
        """Return the token of a user with exactly this id, valid or not."""

    def access_tokens(self, user: str) -> Sequence[AccessToken]:
        """Return all tokens of a user, valid or not, oldest first."""

    def consent(self, user: str) -> Consent | None:
        """Return the consent of a user; None before the first start."""

    def secret(self) -> bytes:
        """Return the store's secret, from which the codes of injections are made."""


class AccessWrites(AccessReads, Protocol):
    """Changes of tokens and consent."""

    def put_access_token(self, token: AccessToken) -> None:
        """Store a token in place of the one with its id."""

    def note_access(self, user: str, token_id: str, at: datetime) -> None:
        """Record the use of a token, unless a later use is recorded."""

    def put_consent(self, user: str, consent: Consent) -> None:
        """Store the consent of a user in place of the former one."""


class DashboardReads(Protocol):
    """Reads that only the dashboard and the status reports make."""

    def change_numbers(self) -> dict[str, int]:
        """Return a number per topic that changes with every write to that topic.

        It covers all users and is cheap however large the store is.
        """

    def totals(self, user: str) -> dict[str, int]:
        """Return counts of memories by state, kind, provenance and trust, and of their history."""

    def facets(self, scope: Scope) -> dict[str, dict[str, int]]:
        """Return counts of visible memories by state, and of the live ones by other fields."""

    def activity(self, user: str, since: datetime) -> dict[str, int]:
        """Return counts since a moment: memories, sessions, injections, reports and outcomes."""

    def session_page(self, user: str, query: SessionQuery) -> list[SessionSummary]:
        """Return a page of sessions with their outcomes, latest first."""

    def session_summary(self, user: str, key: str) -> SessionSummary:
        """Return one session with its outcome; raise NotFound otherwise."""

    def shown_in(self, user: str, memory_id: str, limit: int) -> list[MemoryDelivery]:
        """Return the sessions that a memory was injected into, latest first."""

    def entity_graph(self, scope: Scope, node_limit: int, edge_limit: int) -> EntityGraph:
        """Return the entities with the most visible live memories, and their connections."""


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
