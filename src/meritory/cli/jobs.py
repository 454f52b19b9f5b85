"""Commands about background jobs: jobs, jobs retry, jobs run."""

from __future__ import annotations

import click

from meritory.cli.command import command, group, limit_option, note
from meritory.cli.context import opened, resumable
from meritory.cli.output import Answer, Field, RecordView, age, counts, line_answer, text_or_empty
from meritory.domain.errors import NotFound
from meritory.domain.job import JOB_STATES, Job, JobState

JOBS_LIMIT, JOBS_LIMIT_MAX = 50, 10_000
_RETRIED_STATES: tuple[JobState, ...] = ("parked", "queued")
_JOBS: RecordView[Job] = RecordView(
    Field("id", read=lambda job: f"{job.kind}/{job.key}"),
    Field("kind", "kind"),
    Field("key", "key", style="cyan"),
    Field("state", "state"),
    Field("stage", "stage", lambda job: job.stage or None),
    Field("attempt_count", "attempts"),
    Field("created_at", "age", show=age, style="dim"),
    Field("due_at"),
    Field("finished_at"),
    Field("error", "error", show=text_or_empty, wraps=True),
)


@group("jobs", "meritory jobs --state parked")
@click.option("--state", type=click.Choice(JOB_STATES), help="Only jobs in this state.")
@limit_option(JOBS_LIMIT, JOBS_LIMIT_MAX)
def jobs(state: JobState | None, limit: int) -> Answer:
    """List background jobs, newest first.

    The stage is the last one that took effect; no stage takes effect twice. A job that failed too
    often is parked until `meritory jobs retry`.
    """
    with opened(quiet=True) as memory:
        records = memory.services.store.jobs(memory.scope.user, state, limit)
    if not records:
        note(f"no job is {state}" if state else "there are no jobs")
    return _JOBS.answer(records)


@command("retry", "meritory jobs retry 7f3c2a", jobs)
@click.argument("key")
def retry(key: str) -> Answer:
    """Queue parked jobs again.

    KEY is a job's key, or KIND/KEY as `meritory jobs --json` prints it. A parked job resumes where
    it stopped, with new attempts; a job that waits for its next attempt becomes due now.
    """
    with opened(quiet=True) as memory:
        store, user = memory.services.store, memory.scope.user
        now = memory.services.world.now()
        waiting = [
            job
            for state in _RETRIED_STATES
            for job in store.jobs(user, state, JOBS_LIMIT_MAX)
            if key in (job.key, f"{job.kind}/{job.key}")
        ]
        if not waiting:
            raise NotFound(
                f"no parked or queued job has the key {key[:80]!r}",
                hint="`meritory jobs` lists them",
            )
        queued = store.write(
            user,
            lambda transaction: [
                transaction.resume_job(user, job.kind, job.key, now) for job in waiting
            ],
        )
    note("the daemon runs them when they are due, `meritory jobs run` at once")
    return _JOBS.answer(queued)


@command("run", "meritory jobs run", jobs)
def run() -> Answer:
    """Run the jobs that are due, now and in this process.

    Not needed while the daemon runs. Exits with 1 when jobs are parked.
    """
    with resumable(), opened(quiet=True) as memory:
        done_count = memory.drain()
        states = memory.services.store.job_counts()
    if states["parked"]:
        note("`meritory jobs --state parked` shows why, `meritory jobs retry KEY` tries again")
    line = f"{done_count} jobs done; now {counts(states)}"
    return line_answer(line, int(states["parked"] > 0), done_count=done_count, counts=states)
