"""Commands about jobs, the work that is done after a session: jobs, jobs retry, jobs run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.context import current_flags, note, opened, resumable, taken_notes
from meritory.cli.options import HELP_NAMES, command, global_options
from meritory.cli.output import Answer, Block, Column, Lines, Table
from meritory.cli.records import age
from meritory.cli.render import show_answer
from meritory.domain.codec import moment_text
from meritory.domain.errors import NotFound
from meritory.domain.job import JOB_STATES

if TYPE_CHECKING:
    from meritory.domain.job import Job, JobState

JOBS_LIMIT, JOBS_LIMIT_MAX = 50, 10_000
_RETRIED_STATES: tuple[JobState, ...] = ("parked", "queued")
_COLUMNS = (
    Column("kind"),
    Column("key", "cyan"),
    Column("state"),
    Column("stage"),
    Column("attempts"),
    Column("age", "dim"),
    Column("error", wraps=True),
)


@click.group(
    "jobs",
    invoke_without_command=True,
    context_settings={"help_option_names": list(HELP_NAMES), "max_content_width": 100},
    epilog="\b\nExample:\n  meritory jobs --state parked\n",
)
@click.option("--state", type=click.Choice(JOB_STATES), help="Only jobs in this state.")
@click.option(
    "--limit",
    type=click.IntRange(1, JOBS_LIMIT_MAX),
    default=JOBS_LIMIT,
    show_default=True,
    help="How many at most.",
)
@click.pass_context
def jobs(ctx: click.Context, state: JobState | None, limit: int) -> None:
    """List the work that is done after sessions, newest first.

    The stage is the last one that took effect; no stage ever does so twice. A job that failed too
    often is parked until `meritory jobs retry`.
    """
    if ctx.invoked_subcommand is None:
        show_answer(_listing(state, limit), current_flags(), taken_notes())


# A group has no answer of its own, so it is no `Command`, but it takes the same options.
jobs.params += global_options(hidden=True)


def _listing(state: JobState | None, limit: int) -> Answer:
    with opened(quiet=True) as memory:
        found = memory.services.store.jobs(memory.scope.user, state, limit)
        now = memory.services.world.now()
    if not found:
        note(f"no job is {state}" if state else "there are no jobs")
    return Answer({"results": [_plain(job) for job in found]}, _table(found, now))


def _table(found: Sequence[Job], now: datetime) -> list[Block]:
    rows = [
        (
            job.kind,
            job.key,
            job.state,
            job.stage or "-",
            str(job.attempt_count),
            age(now, job.created_at),
            job.error or "",
        )
        for job in found
    ]
    return [Table(_COLUMNS, rows)] if rows else []


def _plain(job: Job) -> dict[str, Any]:
    return {
        "id": _name(job),
        "kind": job.kind,
        "key": job.key,
        "state": job.state,
        "stage": job.stage or None,
        "attempt_count": job.attempt_count,
        "created_at": moment_text(job.created_at),
        "due_at": moment_text(job.due_at),
        "finished_at": None if job.finished_at is None else moment_text(job.finished_at),
        "error": job.error,
    }


def _name(job: Job) -> str:
    return f"{job.kind}/{job.key}"


@command("retry", "meritory jobs retry 7f3c2a")
@click.argument("key")
def retry(key: str) -> Answer:
    """Queue parked jobs again.

    KEY is a job's key, or KIND/KEY as `meritory jobs --json` prints it. A parked job goes on where
    it stopped, with new attempts; one that waits for its next attempt is due at once.
    """
    with opened(quiet=True) as memory:
        services, user = memory.services, memory.scope.user
        now = services.world.now()
        waiting = [
            job
            for state in _RETRIED_STATES
            for job in services.store.jobs(user, state, JOBS_LIMIT_MAX)
            if key in (job.key, _name(job))
        ]
        if not waiting:
            raise NotFound(f"no job {key[:80]!r} waits", hint="`meritory jobs` lists them")
        queued = services.store.write(
            lambda transaction: [
                transaction.resume_job(user, job.kind, job.key, now) for job in waiting
            ]
        )
    note("the daemon runs them when they are due, `meritory jobs run` at once")
    return Answer({"results": [_plain(job) for job in queued]}, _table(queued, now))


@command("run", "meritory jobs run")
def run() -> Answer:
    """Run the jobs that are due, now and in this process.

    Not needed while the daemon runs. Ends with 1 when jobs are parked.
    """
    with resumable(), opened(quiet=True) as memory:
        done_count = memory.drain()
        counts = memory.services.store.job_counts()
    plain = {"done_count": done_count, "counts": counts}
    told = ", ".join(f"{many} {state}" for state, many in counts.items())
    if counts["parked"]:
        note("`meritory jobs --state parked` says why, `meritory jobs retry KEY` tries again")
    return Answer(
        plain, [Lines([f"{done_count} jobs done; now {told}"])], 1 if counts["parked"] else 0
    )


jobs.add_command(retry)
jobs.add_command(run)
