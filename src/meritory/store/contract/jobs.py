"""The contract of the job queue: work that must happen once, whatever dies in between.

A job is queued, running under a lease, done, or parked until a person acts. Whoever holds it puts
what a stage did and the note that it is done into one transaction; that fails as a whole once the
lease is somebody else's. So a stage may be computed twice but never takes effect twice.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Protocol

from meritory.domain.job import Job, JobState, Lease


class JobVerbs(Protocol):
    """What a transaction can do with jobs.

    The verbs on a held job return it as it is then. They raise Conflict, so that the whole
    transaction is undone, when the lease is lost or the job is at another stage than its holder
    believes.
    """

    def put_job(self, user: str, kind: str, key: str, due_at: datetime) -> bool:
        """Queues a job, due at most `WAIT_MAX` ahead; its age counts from then.

        False when this kind and key is there already, whatever its state.
        """

    def requeue_job(self, user: str, kind: str, key: str, due_at: datetime) -> bool:
        """Queues a job again from its first stage, e.g. because what it works on has changed.

        One that waits already keeps its moment; one that runs is taken from its holder. False
        when there is none.
        """

    def resume_job(self, user: str, kind: str, key: str, due_at: datetime) -> Job:
        """Gives a parked job new attempts from where it stopped; one that waits, waits no longer.

        NotFound without one, Conflict when it runs or is done.
        """

    def take_job(
        self, lease: Lease, kinds: Collection[str], skip: Collection[int] = ()
    ) -> Job | None:
        """Leases the job of these kinds due longest, one whose holder died among them.

        The attempt is counted; a job whose holders died too often is parked instead. `skip` are
        numbers of jobs to leave alone.
        """

    def take_named_job(self, lease: Lease, user: str, kind: str, key: str) -> Job | None:
        """Leases one job that waits, due or not; None when it does not wait."""

    def pass_stage(self, job: Job, stage: str, until: datetime) -> Job:
        """Notes that a stage of a held job took effect, with whatever this transaction did for it.

        The lease now lasts until `until`, and attempts are counted anew.
        """

    def finish_job(self, job: Job, at: datetime) -> Job:
        """Ends a held job."""

    def fail_job(self, job: Job, error: str, retry_at: datetime | None) -> Job:
        """Gives a held job back for later; without a moment, or after too many attempts, parked."""

    def postpone_job(self, job: Job, retry_at: datetime, why: str | None = None) -> Job:
        """Gives a held job back for later without counting the attempt, e.g. for a spent budget."""


class JobReads(Protocol):
    """What can be asked about jobs."""

    def jobs(self, user: str | None, state: JobState | None, limit: int) -> list[Job]:
        """Jobs of a user or of all, in one state or in any, newest first."""

    def job(self, user: str, kind: str, key: str) -> Job:
        """One job; NotFound otherwise."""

    def job_counts(self, user: str | None = None) -> dict[JobState, int]:
        """How many jobs of a user, or of all, are in each state."""

    def oldest_due(self, now: datetime) -> datetime | None:
        """Since when the job waits that could be taken and waits longest; None without one."""

    def next_job_at(self, now: datetime, kinds: Collection[str]) -> datetime | None:
        """When the next job of these kinds can be taken, `now` at the earliest; None without one.

        A running one can be taken when its lease ends.
        """
