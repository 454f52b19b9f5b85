"""Status of the maintenance jobs: what the janitor and retention did, and when they run next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from meritory.domain.errors import NotFound
from meritory.engine.jobs.schedule import key_of
from meritory.engine.quality.janitor import JANITOR_JOB
from meritory.engine.quality.retention import _ERASED, RETENTION_JOB
from meritory.engine.services import Services


@dataclass(frozen=True, slots=True)
class JobLook:
    """The job of this week or day; its state is "not yet" before it was queued."""

    key: str
    state: str
    finished_at: datetime | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class UpkeepStatus:
    """Both jobs, and what all of them did so far."""

    janitor: JobLook
    retention: JobLook
    demoted: int
    forgotten: int
    erased: Mapping[str, int]


def status(services: Services, user: str) -> UpkeepStatus:
    """How upkeep stands for a user."""
    counters = services.store.counters(user)
    return UpkeepStatus(
        _look(services, user, JANITOR_JOB),
        _look(services, user, RETENTION_JOB),
        counters.get("janitor.demoted", 0),
        counters.get("janitor.forgotten", 0),
        {
            name.removeprefix(_ERASED): many
            for name, many in sorted(counters.items())
            if name.startswith(_ERASED)
        },
    )


def _look(services: Services, user: str, kind: str) -> JobLook:
    key = key_of(kind, services.world.now())
    try:
        job = services.store.job(user, kind, key)
    except NotFound:
        return JobLook(key, "not yet")
    return JobLook(key, job.state, job.finished_at, job.error)
