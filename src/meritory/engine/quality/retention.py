"""Retention: a daily job that erases old records, such as transcripts and events.

It never erases memories. The store keeps records that are still needed: transcripts with an
unfinished job, the timeline of open sessions, actions that rules are based on.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial

from meritory.domain.job import Job
from meritory.domain.policy import RetentionPolicy
from meritory.domain.quality import Keepsake
from meritory.domain.session import Event
from meritory.engine.jobs.runner import After, Effect, Handler
from meritory.engine.observe.observer import publish
from meritory.engine.services import Services
from meritory.store.contract.store import Transaction

RETENTION_JOB = "retention"
# Small, so that no other write waits long.
BATCH_SIZE = 200


def day_of(at: datetime) -> str:
    """Return the day of a moment; it is the key of that day's job."""
    return at.date().isoformat()


def limits(policy: RetentionPolicy, now: datetime) -> Iterator[tuple[Keepsake, datetime]]:
    """Return the kinds of records with a limited life, and the time before which they expire."""
    days: dict[Keepsake, int] = {
        "transcripts": policy.transcript_days,
        "events": policy.event_days,
        "actions": policy.action_days,
        "refusals": policy.refusal_days,
        "feedback": policy.feedback_days,
    }
    for kind, limit_days in days.items():
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
        while True:
            count = services.store.write(user, partial(erase_batch, kind, before))
            erased[kind] += count
            if count < BATCH_SIZE:
                break
    return erased


def handler(services: Services) -> Handler:
    """Return the stage of the daily job."""
    return (("erase", partial(_stage, services)),)


def _stage(services: Services, job: Job) -> Effect:
    erased = erase(services, job.user)
    at = services.world.now()
    details: dict[str, object] = {str(kind): count for kind, count in erased.items()}
    event = Event(at=at, category="retention", name="retention.erased", details=details)

    def effect(transaction: Transaction) -> After | None:
        if not any(erased.values()):
            return None
        transaction.log_events(job.user, [event])
        return partial(publish, services, [event])

    return effect
