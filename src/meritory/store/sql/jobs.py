"""The job queue in SQL.

Times are compared as text, and one too far ahead counts as past (see
`meritory.store.contract.jobs`). So a damaged time makes a job run early at worst; it never stops
the queue.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

from meritory.domain.codec import moment_text, parse_moment
from meritory.domain.errors import Conflict, InputError, NotFound
from meritory.domain.job import (
    JOB_STATES,
    LEASE_LENGTH_MAX,
    PARK_AFTER_ATTEMPTS,
    WAIT_MAX,
    Job,
    JobState,
    Lease,
)
from meritory.store.sql.memory_reads import SqlReads, as_json
from meritory.store.sql.rows import SqlReader

_COLUMNS = tuple(field.name for field in fields(Job))
_MOMENTS = ("due_at", "created_at", "leased_until", "finished_at")
_UNKNOWN_MOMENT = datetime(1970, 1, 1, tzinfo=UTC)
_SELECT = f"SELECT {', '.join(_COLUMNS).replace('number', 'job')} FROM jobs WHERE "  # noqa: S608 - ours
_NAMED = "user = :user AND kind = :kind AND key = :key"
_OF_KINDS = "kind IN (SELECT value FROM json_each(:kinds))"
_DUE = "state = 'queued' AND (due_at <= :now OR due_at > :wait_max)"
_ABANDONED = """state = 'running'
    AND (coalesce(leased_until, '') <= :now OR leased_until > :lease_max)"""
# Each condition walks its part of the index `jobs_by_due` in order and stops at the first job.
_FIRST = f"""{_OF_KINDS} AND job NOT IN (SELECT value FROM json_each(:skip))
    ORDER BY due_at, job LIMIT 1"""  # noqa: S608 - ours
_TO_PARK = f"{_ABANDONED} AND {_OF_KINDS} AND attempt_count >= :attempt_max"
_PARK = f"""UPDATE jobs SET state = 'parked', lease = NULL, leased_until = NULL,
        error = 'whoever ran it died or took too long, ' || attempt_count || ' times'
    WHERE {_TO_PARK}"""  # noqa: S608 - ours
# The same where several may ask at once: what others hold at this moment is not waited for.
SKIP_LOCKED = " FOR UPDATE SKIP LOCKED"
PARK_UNLOCKED = _PARK.replace(
    _TO_PARK,
    f"job IN (SELECT job FROM jobs WHERE {_TO_PARK}{SKIP_LOCKED})",  # noqa: S608 - ours
)
_KEEP = """UPDATE jobs SET stage = :stage, state = :state, attempt_count = :attempt_count,
        due_at = :due_at, lease = :lease, leased_until = :leased_until, error = :error,
        finished_at = :finished_at
    WHERE job = :number"""
# After an interrupted call its holder may not have heard how far a job came.
_AS_KNOWN = " AND lease = :known_lease AND stage = :known_stage"
_NEXT = f"""SELECT min(at) FROM (
    SELECT CASE WHEN due_at > :wait_max THEN :now ELSE due_at END AS at FROM jobs
        WHERE state = 'queued' AND {_OF_KINDS}
    UNION ALL
    SELECT CASE WHEN leased_until <= :lease_max THEN leased_until ELSE :now END FROM jobs
        WHERE state = 'running' AND {_OF_KINDS}) AS moments"""  # noqa: S608 - ours


class SqlJobRows(SqlReads):
    """Jobs out of one connection."""

    def find_jobs(self, where: str, values: Mapping[str, Any]) -> list[Job]:
        """The jobs that fit a condition of ours, in its order."""
        return [_decode(row) for row in self._rows(_SELECT + where, values)]

    def named_job(self, user: str, kind: str, key: str) -> Job:
        """One job; NotFound otherwise."""
        found = self.find_jobs(_NAMED, {"user": user, "kind": kind, "key": key})
        if not found:
            raise NotFound(f"no job {kind[:40]} {key[:80]!r}", hint="`meritory jobs` lists them")
        return found[0]


class SqlJobs(SqlJobRows):
    """The verbs of the job queue, for one transaction."""

    # By its number alone: whatever got damaged in its row, a job can be changed.
    _KEEP = _KEEP
    _PARK = _PARK
    # What follows the question for the first job.
    _LOCKED = ""

    def put_job(self, user: str, kind: str, key: str, due_at: datetime) -> bool:
        at = moment_text(due_at)
        made = self.connection.execute(
            """INSERT INTO jobs (user, kind, key, state, due_at, created_at)
                VALUES (?, ?, ?, 'queued', ?, ?) ON CONFLICT (user, kind, key) DO NOTHING""",
            (user, kind, key, at, at),
        )
        return made.rowcount == 1

    def requeue_job(self, user: str, kind: str, key: str, due_at: datetime) -> bool:
        found = self.find_jobs(_NAMED, {"user": user, "kind": kind, "key": key})
        for job in found:
            at = job.due_at if job.state == "queued" else due_at
            self._keep(job, stage="", attempt_count=0, error=None, **_waiting(at))
        return bool(found)

    def resume_job(self, user: str, kind: str, key: str, due_at: datetime) -> Job:
        job = self.named_job(user, kind, key)
        if job.state == "parked":
            return self._keep(job, attempt_count=0, **_waiting(due_at))
        if job.state == "queued":
            return self._keep(job, due_at=min(job.due_at, due_at))
        raise Conflict(f"the job {kind} {key!r} is {job.state}", hint="there is nothing to retry")

    def take_job(
        self, lease: Lease, kinds: Collection[str], skip: Collection[int] = ()
    ) -> Job | None:
        values = {
            **_limits(lease.now),
            "kinds": as_json(kinds),
            "skip": as_json(skip),
            "attempt_max": PARK_AFTER_ATTEMPTS,
        }
        self.connection.execute(self._PARK, values)
        found = [
            job
            for condition in (_DUE, _ABANDONED)
            for job in self.find_jobs(f"{condition} AND {_FIRST}{self._LOCKED}", values)
        ]
        if not found:
            return None
        return self._leased(min(found, key=lambda job: (job.due_at, job.number)), lease)

    def take_named_job(self, lease: Lease, user: str, kind: str, key: str) -> Job | None:
        names = {"user": user, "kind": kind, "key": key}
        found = self.find_jobs(f"{_NAMED} AND state = 'queued'{self._LOCKED}", names)
        return self._leased(found[0], lease) if found else None

    def _leased(self, job: Job, lease: Lease) -> Job:
        held = {"lease": lease.holder, "leased_until": lease.until}
        return self._keep(job, state="running", attempt_count=job.attempt_count + 1, **held)

    def pass_stage(self, job: Job, stage: str, until: datetime) -> Job:
        return self._keep_held(job, stage=stage, leased_until=until, attempt_count=1, error=None)

    def finish_job(self, job: Job, at: datetime) -> Job:
        changes = {**_waiting(job.due_at), "state": "done", "finished_at": at}
        return self._keep_held(job, error=None, **changes)

    def fail_job(self, job: Job, error: str, retry_at: datetime | None) -> Job:
        changes = _waiting(job.due_at if retry_at is None else retry_at)
        if retry_at is None or job.attempt_count >= PARK_AFTER_ATTEMPTS:
            changes["state"] = "parked"
        return self._keep_held(job, error=error, **changes)

    def postpone_job(self, job: Job, retry_at: datetime, why: str | None = None) -> Job:
        return self._keep_held(
            job,
            attempt_count=max(0, job.attempt_count - 1),
            error=job.error if why is None else why,
            **_waiting(retry_at),
        )

    def _keep_held(self, job: Job, **changes: Any) -> Job:
        changed = replace(job, **changes)
        known = {"known_lease": job.lease, "known_stage": job.stage}
        kept = self.connection.execute(self._KEEP + _AS_KNOWN, {**_values(changed), **known})
        if kept.rowcount != 1:
            raise Conflict(
                f"the job {job.kind} {job.key!r} is in other hands by now",
                hint="nothing was changed; whoever holds it does the rest",
            )
        return changed

    def _keep(self, job: Job, **changes: Any) -> Job:
        """Changes a job that was read in this transaction."""
        changed = replace(job, **changes)
        if changed != job:
            self.connection.execute(self._KEEP, _values(changed))
        return changed


class SqlJobReads:
    """What can be asked of a store about jobs."""

    _engine: SqlReader

    def jobs(self, user: str | None, state: JobState | None, limit: int) -> list[Job]:
        conditions = [
            "TRUE",
            *([] if user is None else ["user = :user"]),
            *([] if state is None else ["state = :state"]),
        ]
        engine = self._engine
        with engine.read_across() if user is None else engine.read() as connection:
            return SqlJobRows(connection).find_jobs(
                f"{' AND '.join(conditions)} ORDER BY job DESC LIMIT :limit",
                {"user": user, "state": state, "limit": limit},
            )

    def job(self, user: str, kind: str, key: str) -> Job:
        with self._engine.read() as connection:
            return SqlJobRows(connection).named_job(user, kind, key)

    def job_counts(self, user: str | None = None) -> dict[JobState, int]:
        if user is None:
            with self._engine.read_across() as connection:
                found = dict(connection.execute("SELECT state, count(*) FROM jobs GROUP BY state"))
        else:
            counted = "SELECT state, count(*) FROM jobs WHERE user = ? GROUP BY state"
            with self._engine.read() as connection:
                found = dict(connection.execute(counted, (user,)))
        return {state: found.get(state, 0) for state in JOB_STATES}

    def oldest_due(self, now: datetime) -> datetime | None:
        with self._engine.read_across() as connection:
            (at,) = connection.execute(
                f"SELECT min(due_at) FROM jobs WHERE ({_DUE}) OR ({_ABANDONED})",  # noqa: S608
                _limits(now),
            ).fetchone()
        return None if at is None else min(_moment(at), now)

    def next_job_at(self, now: datetime, kinds: Collection[str]) -> datetime | None:
        with self._engine.read_across() as connection:
            (at,) = connection.execute(_NEXT, {**_limits(now), "kinds": as_json(kinds)}).fetchone()
        return None if at is None else max(_moment(at), now)


def _waiting(due_at: datetime) -> dict[str, Any]:
    """The fields of a job that nobody holds."""
    return {
        "state": "queued",
        "due_at": due_at,
        "lease": None,
        "leased_until": None,
        "finished_at": None,
    }


def _limits(now: datetime) -> dict[str, str]:
    """The present, and from when on a moment is too far ahead to be true."""
    return {
        "now": moment_text(now),
        "wait_max": moment_text(now + WAIT_MAX),
        "lease_max": moment_text(now + LEASE_LENGTH_MAX),
    }


def _values(job: Job) -> dict[str, Any]:
    values = {name: getattr(job, name) for name in _COLUMNS}
    for name in _MOMENTS:
        values[name] = None if values[name] is None else moment_text(values[name])
    return values


def _decode(row: Sequence[Any]) -> Job:
    values = dict(zip(_COLUMNS, row, strict=True))
    for name in _MOMENTS:
        values[name] = None if values[name] is None else _moment(values[name])
    return Job(**values)


def _moment(text: str) -> datetime:
    """A stored moment; what cannot be read is long ago."""
    try:
        return parse_moment(text)
    except InputError:
        return _UNKNOWN_MOMENT
