"""Jobs: the work that is done after sessions."""

from __future__ import annotations

import msgspec

from meritory.domain.codec import moment_text
from meritory.domain.job import Job, JobState
from meritory.server.schemas.memories import PAGE_LIMIT, Limit
from meritory.server.schemas.sessions import UserQuery
from meritory.server.table import Call, Route


class JobsQuery(UserQuery, kw_only=True):
    """Which jobs are wanted, newest first."""

    state: JobState | None = None
    limit: Limit = PAGE_LIMIT


class JobOut(msgspec.Struct):
    """One piece of work; the stage is the last one that took effect."""

    id: str
    kind: str
    key: str
    state: JobState
    stage: str | None
    attempt_count: int
    created_at: str
    due_at: str
    finished_at: str | None
    error: str | None

    @classmethod
    def of(cls, job: Job) -> JobOut:
        """A job for the wire."""
        return cls(
            f"{job.kind}/{job.key}",
            job.kind,
            job.key,
            job.state,
            job.stage or None,
            job.attempt_count,
            moment_text(job.created_at),
            moment_text(job.due_at),
            None if job.finished_at is None else moment_text(job.finished_at),
            job.error,
        )


class Jobs(msgspec.Struct):
    """Jobs, newest first, and how many there are in each state."""

    results: list[JobOut]
    counts: dict[str, int]


def listing(call: Call) -> Jobs:
    """The latest jobs."""
    memory = call.view(call.query.user)
    store = memory.services.store
    found = store.jobs(memory.scope.user, call.query.state, call.query.limit)
    # How much others have waiting is told to the daemon's owner alone.
    counts = {str(state): many for state, many in store.job_counts(call.grant.user).items()}
    return Jobs([JobOut.of(job) for job in found], counts)


def retry(call: Call) -> JobOut:
    """Gives a parked job new attempts; one that waits is due at once."""
    memory = call.view(call.query.user)
    services, user = memory.services, memory.scope.user
    kind, key, now = call.path["kind"], call.path["key"], services.world.now()
    job = services.store.write(lambda transaction: transaction.resume_job(user, kind, key, now))
    memory.work_meanwhile()
    return JobOut.of(job)


ROUTES = (
    Route(
        method="GET",
        path="/api/jobs",
        handler=listing,
        access="read",
        reach="user",
        summary="List the work that is done after sessions, newest first.",
        query=JobsQuery,
        reply=Jobs,
    ),
    Route(
        method="POST",
        path="/api/jobs/{kind}/{key:path}/retry",
        handler=retry,
        access="write",
        reach="user",
        summary="Give a parked job new attempts.",
        query=UserQuery,
        reply=JobOut,
    ),
)
