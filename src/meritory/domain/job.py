"""The contract of the job queue: work that must happen once, whatever dies in between.

A job is queued, running under a lease, done, or parked until a person acts. Whoever holds it puts
what a stage did and the note that it is done into one transaction; that fails as a whole once the
lease is somebody else's. So a stage may be computed twice but never takes effect twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, get_args

from meritory.domain.errors import InputError

JobState = Literal["queued", "running", "done", "parked"]
JOB_STATES: tuple[JobState, ...] = get_args(JobState)

# A job that failed this often without getting on waits for a person.
PARK_AFTER_ATTEMPTS = 5
# No lease lasts and no job waits longer. A moment further ahead was written by a clock that went
# wrong, and counts as past: otherwise its job would wait until that clock's year has come.
LEASE_LENGTH_MAX = timedelta(hours=1)
WAIT_MAX = timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One piece of work, as it was when it was read.

    `stage` is the last one that took effect, empty before the first. `attempt_count` counts since
    then. `lease` says who holds it; `error` what went wrong last, unless it got on since.
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
    """Who takes a job, and for how long nobody else may.

    `holder` is new for every taking: one who comes back late must not pass for the next.
    """

    holder: str
    now: datetime
    length: timedelta

    def __post_init__(self) -> None:
        if not timedelta(0) < self.length <= LEASE_LENGTH_MAX:
            raise InputError(f"a lease lasts up to {LEASE_LENGTH_MAX}, not {self.length}")

    @property
    def until(self) -> datetime:
        """When others may take the job."""
        return self.now + self.length
