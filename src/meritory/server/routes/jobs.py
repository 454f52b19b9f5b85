"""Jobs: the background work after sessions."""

from __future__ import annotations

import msgspec

from meritory.domain.job import Job, JobState
from meritory.server.table import PAGE_LIMIT, Call, Limit, ReplyShape, Route, UserQuery

JobsQuery = UserQuery.plus(state=(JobState | None, None), limit=(Limit, PAGE_LIMIT))


class JobOut(
    ReplyShape,
    record=Job,
    names="id kind key state stage attempt_count created_at due_at finished_at error",
):
    """A job with its `id`, KIND/KEY; without its lease. The stage is the last completed one."""

    id: str
    stage: str | None

    @classmethod
    def named(cls, job: Job) -> JobOut:
        """Return a job with its id."""
        return cls.of(job, id=f"{job.kind}/{job.key}", stage=job.stage or None)


class Jobs(msgspec.Struct):
    """Jobs, newest first, and the number in each state."""

    results: list[JobOut]
    counts: dict[str, int]


def list_jobs(call: Call) -> Jobs:
    """List jobs, newest first."""
    services, user = call.whole_user()
    jobs = services.store.jobs(user, call.query.state, call.query.limit)
    # Only the daemon's owner sees the counts of all users.
    counts = services.store.job_counts(call.grant.user)
    return Jobs(
        [JobOut.named(job) for job in jobs], {str(state): count for state, count in counts.items()}
    )


def retry(call: Call) -> JobOut:
    """Give a parked job new attempts; a waiting one is due at once."""
    services, user = call.whole_user()
    kind, key, now = call.path["kind"], call.path["key"], services.world.now()
    job = services.store.write(
        user, lambda transaction: transaction.resume_job(user, kind, key, now)
    )
    call.server.engine.works.nudge()
    return JobOut.named(job)


ROUTES = (
    Route("GET", "/api/jobs", list_jobs, "read", "user", query=JobsQuery),
    Route("POST", "/api/jobs/{kind}/{key:path}/retry", retry, "write", "user", query=UserQuery),
)
