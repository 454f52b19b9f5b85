"""The job queue: work that takes effect once, whichever process dies in between.

A job is queued, running under a lease, done, or parked until a person acts. A worker commits
the effect of a stage and the progress of the job in one transaction, which fails as a whole
once another worker has the lease. So a stage may be computed twice, but takes effect once.

Times are compared as text, and a time too far ahead counts as past (see `meritory.domain.job`). So
a damaged time at worst makes a job run early; it never stops the queue.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from meritory.domain.errors import Conflict, Corrupt, InputError, NotFound
from meritory.domain.job import (
    JOB_STATES,
    LEASE_LENGTH_MAX,
    PARK_AFTER_ATTEMPTS,
    WAIT_MAX,
    Job,
    JobState,
    Lease,
)
from meritory.domain.world import moment_text
from meritory.store.sql.mapper import (
    ColumnCodec,
    RecordTable,
    SqlConnection,
    SqlReader,
    as_json,
    moment,
)
from meritory.store.sql.memories import fetch_all

_UNKNOWN_MOMENT = datetime(1970, 1, 1, tzinfo=UTC)


def _moment(text: str) -> datetime:
    """Return a stored moment, one long ago if it cannot be read."""
    try:
        return moment(text)
    except Corrupt:
        return _UNKNOWN_MOMENT


_MOMENT = ColumnCodec(moment_text, _moment)
_JOBS = RecordTable(
    "jobs",
    Job,
    renamed={"number": "job"},
    codecs=dict.fromkeys(("due_at", "created_at", "leased_until", "finished_at"), _MOMENT),
)
_NAMED = "user = :user AND kind = :kind AND key = :key"
_OF_KINDS = "kind IN (SELECT value FROM json_each(:kinds))"
_DUE = "state = 'queued' AND (due_at <= :now OR due_at > :wait_max)"
_ABANDONED = """state = 'running'
    AND (coalesce(leased_until, '') <= :now OR leased_until > :lease_max)"""
# Each condition walks its part of the index `jobs_by_due` in order and stops at the first job.
_FIRST = f"""{_OF_KINDS} AND job NOT IN (SELECT value FROM json_each(:skip))
    ORDER BY due_at, job LIMIT 1"""  # noqa: S608
_TO_PARK = f"{_ABANDONED} AND {_OF_KINDS} AND attempt_count >= :attempt_max"
_PARK = f"""UPDATE jobs SET state = 'parked', lease = NULL, leased_until = NULL,
        error = 'its worker died or took too long, ' || attempt_count || ' times'
    WHERE {_TO_PARK}"""  # noqa: S608
# Where several processes take jobs at once: do not wait for rows that another one has locked.
SKIP_LOCKED = " FOR UPDATE SKIP LOCKED"
PARK_UNLOCKED = _PARK.replace(
    _TO_PARK,
    f"job IN (SELECT job FROM jobs WHERE {_TO_PARK}{SKIP_LOCKED})",  # noqa: S608
)
_KEEP = """UPDATE jobs SET stage = :stage, state = :state, attempt_count = :attempt_count,
        due_at = :due_at, lease = :lease, leased_until = :leased_until, error = :error,
        finished_at = :finished_at
    WHERE job = :job"""
# After an interrupted call the holder may not know which stage a job has reached.
_AS_KNOWN = " AND lease = :known_lease AND stage = :known_stage"
_NEXT = f"""SELECT min(at) FROM (
    SELECT CASE WHEN due_at > :wait_max THEN :now ELSE due_at END AS at FROM jobs
        WHERE state = 'queued' AND {_OF_KINDS}
    UNION ALL
    SELECT CASE WHEN leased_until <= :lease_max THEN leased_until ELSE :now END FROM jobs
        WHERE state = 'running' AND {_OF_KINDS}) AS moments"""  # noqa: S608


def _find(connection: SqlConnection, where: str, values: Mapping[str, Any]) -> list[Job]:
    rows = fetch_all(connection, f"{_JOBS.select} WHERE {where}", values)
    return [_JOBS.decode(row) for row in rows]


def _find_named(connection: SqlConnection, user: str, kind: str, key: str) -> Job:
    jobs = _find(connection, _NAMED, {"user": user, "kind": kind, "key": key})
    if not jobs:
        raise NotFound(f"no job {kind[:40]} {key[:80]!r}", hint="`meritory jobs` lists them")
    return jobs[0]


class SqlJobWrites(SqlReader):
    """Changes of jobs.

    The methods on a held job return its new state. They raise Conflict, which undoes the whole
    transaction, if the lease is lost or the job is at another stage than its holder assumes.
    """

    connection: SqlConnection
    # By number alone, so that a job with a damaged row can be changed.
    _KEEP = _KEEP
    _PARK = _PARK
    # The end of the statement that selects the next job.
    _LOCKED = ""

    def put_job(self, user: str, kind: str, key: str, due_at: datetime) -> bool:
        """Queue a job, due at most `WAIT_MAX` ahead; its age counts from then.

        Return False if a job of this kind and key exists, in any state.
        """
        at = moment_text(due_at)
        made = self.connection.execute(
            """INSERT INTO jobs (user, kind, key, state, due_at, created_at)
                VALUES (?, ?, ?, 'queued', ?, ?) ON CONFLICT (user, kind, key) DO NOTHING""",
            (user, kind, key, at, at),
        )
        return made.rowcount == 1

    def requeue_job(self, user: str, kind: str, key: str, due_at: datetime) -> bool:
        """Queue a job again from its first stage, e.g. because its input has changed.

        A queued job keeps its due time; a running one is taken from its holder. Return False if
        there is none.
        """
        jobs = _find(self.connection, _NAMED, {"user": user, "kind": kind, "key": key})
        for job in jobs:
            at = job.due_at if job.state == "queued" else due_at
            self._keep(job, stage="", attempt_count=0, error=None, **_waiting(at))
        return bool(jobs)

    def resume_job(self, user: str, kind: str, key: str, due_at: datetime) -> Job:
        """Give a parked job new attempts from where it stopped; make a queued one due.

        Raise NotFound without one, Conflict if it is running or done.
        """
        job = _find_named(self.connection, user, kind, key)
        if job.state == "parked":
            return self._keep(job, attempt_count=0, **_waiting(due_at))
        if job.state == "queued":
            return self._keep(job, due_at=min(job.due_at, due_at))
        raise Conflict(f"the job {kind} {key!r} is {job.state}", hint="there is nothing to retry")

    def take_job(
        self, lease: Lease, kinds: Collection[str], skip: Collection[int] = ()
    ) -> Job | None:
        """Lease the job of these kinds that has been due longest, or one whose holder died.

        This counts as an attempt; a job whose holders died too often is parked instead. `skip`
        are numbers of jobs to leave alone.
        """
        values = {
            **_limits(lease.now),
            "kinds": as_json(kinds),
            "skip": as_json(skip),
            "attempt_max": PARK_AFTER_ATTEMPTS,
        }
        self.connection.execute(self._PARK, values)
        jobs = [
            job
            for condition in (_DUE, _ABANDONED)
            for job in _find(self.connection, f"{condition} AND {_FIRST}{self._LOCKED}", values)
        ]
        if not jobs:
            return None
        return self._leased(min(jobs, key=lambda job: (job.due_at, job.number)), lease)

    def take_named_job(self, lease: Lease, user: str, kind: str, key: str) -> Job | None:
        """Lease one queued job, due or not; None if it is not queued."""
        names = {"user": user, "kind": kind, "key": key}
        jobs = _find(self.connection, f"{_NAMED} AND state = 'queued'{self._LOCKED}", names)
        return self._leased(jobs[0], lease) if jobs else None

    def _leased(self, job: Job, lease: Lease) -> Job:
        if not timedelta(0) < lease.length <= LEASE_LENGTH_MAX:
            raise InputError(f"a lease lasts up to {LEASE_LENGTH_MAX}, not {lease.length}")
        held = {"lease": lease.holder, "leased_until": lease.now + lease.length}
        return self._keep(job, state="running", attempt_count=job.attempt_count + 1, **held)

    def pass_stage(self, job: Job, stage: str, until: datetime) -> Job:
        """Record that this transaction is the effect of a stage of a held job.

        The lease now lasts until `until`, and the count of attempts starts again.
        """
        return self._keep_held(job, stage=stage, leased_until=until, attempt_count=1, error=None)

    def finish_job(self, job: Job, at: datetime) -> Job:
        """End a held job."""
        changes = {**_waiting(job.due_at), "state": "done", "finished_at": at}
        return self._keep_held(job, error=None, **changes)

    def fail_job(self, job: Job, error: str, retry_at: datetime | None) -> Job:
        """Queue a held job again; park it without a moment or after too many attempts."""
        changes = _waiting(job.due_at if retry_at is None else retry_at)
        if retry_at is None or job.attempt_count >= PARK_AFTER_ATTEMPTS:
            changes["state"] = "parked"
        return self._keep_held(job, error=error, **changes)

    def postpone_job(self, job: Job, retry_at: datetime, why: str | None = None) -> Job:
        """Queue a held job again without counting the attempt, e.g. when a budget is spent."""
        return self._keep_held(
            job,
            attempt_count=max(0, job.attempt_count - 1),
            error=job.error if why is None else why,
            **_waiting(retry_at),
        )

    def _keep_held(self, job: Job, **changes: Any) -> Job:
        changed = replace(job, **changes)
        known = {"known_lease": job.lease, "known_stage": job.stage}
        kept = self.connection.execute(self._KEEP + _AS_KNOWN, {**_JOBS.values(changed), **known})
        if kept.rowcount != 1:
            raise Conflict(
                f"another worker has taken the job {job.kind} {job.key!r}",
                hint="nothing was changed; the other worker continues it",
            )
        return changed

    def _keep(self, job: Job, **changes: Any) -> Job:
        """Change a job that was read in this transaction."""
        changed = replace(job, **changes)
        if changed != job:
            self.connection.execute(self._KEEP, _JOBS.values(changed))
        return changed


class SqlJobReads(SqlReader):
    """Jobs of one user or of all."""

    def jobs(self, user: str | None, state: JobState | None, limit: int) -> list[Job]:
        """Return jobs of a user or of all, in one state or in any, newest first."""
        conditions = [
            "TRUE",
            *([] if user is None else ["user = :user"]),
            *([] if state is None else ["state = :state"]),
        ]
        with self._reading(user) as connection:
            return _find(
                connection,
                f"{' AND '.join(conditions)} ORDER BY job DESC LIMIT :limit",
                {"user": user, "state": state, "limit": limit},
            )

    def job(self, user: str, kind: str, key: str) -> Job:
        """Return one job; raise NotFound otherwise."""
        with self._reading(user) as connection:
            return _find_named(connection, user, kind, key)

    def job_counts(self, user: str | None = None) -> dict[JobState, int]:
        """Return how many jobs of a user, or of all, are in each state."""
        where, values = ("", ()) if user is None else (" WHERE user = ?", (user,))
        statement = f"SELECT state, count(*) FROM jobs{where} GROUP BY state"  # noqa: S608
        counts = dict(self._all(user, statement, values))
        return {state: counts.get(state, 0) for state in JOB_STATES}

    def oldest_due(self, now: datetime) -> datetime | None:
        """Return the due time of the job that has waited longest; None without one."""
        statement = f"SELECT min(due_at) FROM jobs WHERE ({_DUE}) OR ({_ABANDONED})"  # noqa: S608
        ((at,),) = self._all(None, statement, _limits(now))
        return None if at is None else min(_moment(at), now)

    def next_job_at(self, now: datetime, kinds: Collection[str]) -> datetime | None:
        """Return when the next job of these kinds can be taken, not before `now`; None without one.

        A running job can be taken when its lease ends.
        """
        ((at,),) = self._all(None, _NEXT, {**_limits(now), "kinds": as_json(kinds)})
        return None if at is None else max(_moment(at), now)


def _waiting(due_at: datetime) -> dict[str, Any]:
    """Return the fields of a job that no worker holds."""
    return {
        "state": "queued",
        "due_at": due_at,
        "lease": None,
        "leased_until": None,
        "finished_at": None,
    }


def _limits(now: datetime) -> dict[str, str]:
    """Return the present, and the moments after which a due time or a lease is invalid."""
    return {
        "now": moment_text(now),
        "wait_max": moment_text(now + WAIT_MAX),
        "lease_max": moment_text(now + LEASE_LENGTH_MAX),
    }
