"""Status of the maintenance jobs: the results of janitor and retention, and their current runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from meritory.domain.errors import NotFound
from meritory.engine.quality.janitor import JANITOR_JOB, week_of
from meritory.engine.quality.retention import RETENTION_JOB, day_of
from meritory.engine.services import Services

_ERASED = "retention."


@dataclass(frozen=True, slots=True)
class JobLook:
    """The job of this week or day; its state is "not yet" before it is queued."""

    key: str
    state: str
    finished_at: datetime | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class MaintenanceStatus:
    """Both jobs, and the totals of all their runs."""

    janitor: JobLook
    retention: JobLook
    demoted: int
    forgotten: int
    erased: Mapping[str, int]


def status(services: Services, user: str) -> MaintenanceStatus:
    """Return the status of the maintenance jobs of a user."""
    counters, now = services.store.counters(user), services.world.now()

    def look(kind: str, key: str) -> JobLook:
        try:
            job = services.store.job(user, kind, key)
        except NotFound:
            return JobLook(key, "not yet")
        return JobLook(key, job.state, job.finished_at, job.error)

    return MaintenanceStatus(
        look(JANITOR_JOB, week_of(now)),
        look(RETENTION_JOB, day_of(now)),
        counters.get("janitor.demoted", 0),
        counters.get("janitor.forgotten", 0),
        {
            name.removeprefix(_ERASED): count
            for name, count in sorted(counters.items())
            if name.startswith(_ERASED)
        },
    )
