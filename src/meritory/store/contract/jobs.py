"""The job queue: work that takes effect once, whichever process dies in between.

A job is queued, running under a lease, done, or parked until a person acts. A worker commits the
effect of a stage and the progress of the job in one transaction, which fails as a whole once
another worker has the lease. So a stage may be computed twice but never takes effect twice.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Protocol

from meritory.domain.job import Job, JobState, Lease


class JobReads(Protocol):
    """Reads of jobs."""

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
