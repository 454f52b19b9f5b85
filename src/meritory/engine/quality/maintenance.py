"""Maintenance: the schedule of its jobs, their status, and the daily job of retention.

Retention erases old records, such as transcripts and events, and never memories. It packs the
candidates of sessions that are over and thins those of old ones. The store keeps records that are
still needed: transcripts with an unfinished job, the timeline of open sessions, actions that rules
are based on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import get_args

from meritory.domain.errors import Busy, NotFound, StorageError
from meritory.domain.job import Job
from meritory.domain.policy import RetentionPolicy
from meritory.domain.quality import Keepsake
from meritory.domain.session import Event
from meritory.engine.jobs.runner import After, Effect
from meritory.engine.observe.observer import publish
from meritory.engine.quality.janitor import JANITOR_JOB, week_of
from meritory.engine.quality.missed_pairs import PAIRS_JOB
from meritory.engine.services import Services
from meritory.store.contract.store import Transaction

RETENTION_JOB = "retention"
# Small, so that no other write waits long.
BATCH_SIZE = 200
PACK_BATCH_SIZE = 20
# The candidates of a session that never ended are packed after this time.
LONG_OPEN = timedelta(days=2)
# The first sessions after the start of a daemon come before maintenance.
FIRST_LOOK_AFTER = timedelta(minutes=10)
LOOK_EVERY = timedelta(hours=1)
_ERASED = "retention."
# The month of the last compaction, counted from year 0.
_COMPACTED = "store.compacted_month"


class Schedule:
    """Queues a weekly janitor job and the daily jobs for every user."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._next_look = services.world.now() + FIRST_LOOK_AFTER

    def look(self) -> int:
        """Queue the jobs that are due, at most once an hour; return their number."""
        store, now = self._services.store, self._services.world.now()
        if now < self._next_look:
            return 0
        self._next_look = now + LOOK_EVERY
        keys = dict.fromkeys((RETENTION_JOB, PAIRS_JOB), day_of(now))
        if self._services.policy.janitor.enabled:
            keys = {JANITOR_JOB: week_of(now), **keys}

        def queue(user: str, kind: str, key: str) -> bool:
            try:
                # There is never a second job of a week or day, whatever its outcome.
                store.job(user, kind, key)
            except NotFound:
                return store.write(user, lambda writing: writing.put_job(user, kind, key, now))
            return False

        users = dict.fromkeys((self._services.user, *store.users()))
        return sum(queue(user, kind, key) for user in users for kind, key in keys.items())


@dataclass(frozen=True, slots=True)
class JobLook:
    """The job of this week or day; its state is "not yet" before it is queued."""

    key: str
    state: str
    finished_at: datetime | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class MaintenanceStatus:
    """The jobs, and the totals of all their runs."""

    janitor: JobLook
    retention: JobLook
    pairs: JobLook
    demoted: int
    forgotten: int
    links_found: int
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
        look(PAIRS_JOB, day_of(now)),
        counters.get("janitor.demoted", 0),
        counters.get("janitor.forgotten", 0),
        counters.get("links.found", 0),
        {
            name.removeprefix(_ERASED): count
            for name, count in sorted(counters.items())
            if name.startswith(_ERASED)
        },
    )


def day_of(at: datetime) -> str:
    """Return the day of a moment; it is the key of that day's job."""
    return at.date().isoformat()


def limits(policy: RetentionPolicy, now: datetime) -> Iterator[tuple[Keepsake, datetime]]:
    """Return the kinds of records with a limited life, and the time before which they expire."""
    for kind in get_args(Keepsake):
        limit_days: int = getattr(policy, f"{kind.removesuffix('s')}_days")
        if limit_days > 0:
            yield kind, now - timedelta(days=limit_days)


def due(services: Services, user: str) -> dict[Keepsake, int]:
    """Return how many records of each kind would be erased now."""
    now = services.world.now()
    return {
        kind: services.store.expirable(user, kind, before)
        for kind, before in limits(services.policy.retention, now)
    }


def erase(services: Services, user: str) -> dict[Keepsake, int]:
    """Erase expired records in batches and return their number by kind."""

    def erase_batch(kind: Keepsake, before: datetime, transaction: Transaction) -> int:
        count = transaction.expire(user, kind, before, BATCH_SIZE)
        if count:
            transaction.count(user, f"retention.{kind}", count)
        return count

    erased: dict[Keepsake, int] = {}
    for kind, before in limits(services.policy.retention, services.world.now()):
        erased[kind] = 0
        count = BATCH_SIZE
        while count >= BATCH_SIZE:
            count = services.store.write(user, partial(erase_batch, kind, before))
            erased[kind] += count
    return erased


def pack(services: Services, user: str) -> None:
    """Pack the candidates of sessions that are over, and thin those of old sessions."""
    before = services.world.now() - LONG_OPEN

    def work(transaction: Transaction) -> int:
        packed = transaction.pack_candidates(user, before, PACK_BATCH_SIZE)
        thinned = transaction.thin_candidates(user, PACK_BATCH_SIZE)
        for name, count in (("sessions.packed", packed), ("sessions.thinned", thinned)):
            if count:
                transaction.count(user, name, count)
        return packed + thinned

    while services.store.write(user, work):
        pass


def compact(services: Services, user: str) -> None:
    """Rewrite the files of the store once a month: rows that shrank leave pages half empty."""
    now = services.world.now()
    month = 12 * now.year + now.month
    last = services.store.counters(user).get(_COMPACTED, 0)
    if user != services.user or month == last:
        return
    try:
        services.store.erase_traces()
    except (Busy, StorageError) as error:
        # In use by another process, or without room for a copy: the next month tries again.
        services.observer.failed("compaction", error)
    services.store.write(
        user, lambda transaction: transaction.count(user, _COMPACTED, month - last)
    )


def erase_expired(services: Services, job: Job) -> Effect:
    """Return the effect of the daily job: the event that lists the erased records."""
    pack(services, job.user)
    erased = erase(services, job.user)
    compact(services, job.user)
    at = services.world.now()
    details: dict[str, object] = {str(kind): count for kind, count in erased.items()}
    event = Event(at=at, category="retention", name="retention.erased", details=details)

    def effect(transaction: Transaction) -> After | None:
        if not any(erased.values()):
            return None
        transaction.log_events(job.user, [event])
        return partial(publish, services, [event])

    return effect
