"""Jobs and leases; `meritory.store.sql.jobs` describes the queue."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, get_args

JobState = Literal["queued", "running", "done", "parked"]
JOB_STATES: tuple[JobState, ...] = get_args(JobState)

# A job that failed this often at one stage is parked.
PARK_AFTER_ATTEMPTS = 5
# No lease lasts longer and no job waits longer. A later moment was written by a wrong clock and
# counts as past: otherwise its job would wait for years.
LEASE_LENGTH_MAX = timedelta(hours=1)
WAIT_MAX = timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job.

    `stage` is the last stage that took effect, empty before the first. `attempt_count` counts since
    then. `lease` names its holder; `error` is the last error since that stage.
    """

    number: int
    user: str
    kind: str
    key: str
    stage: str
    state: JobState
    attempt_count: int
    due_at: datetime
    created_at: datetime
    lease: str | None = None
    leased_until: datetime | None = None
    error: str | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of a worker to run a job for some time.

    `holder` is new for every lease: a worker that comes back late must not pass for the next one.
    """

    holder: str
    now: datetime
    length: timedelta
