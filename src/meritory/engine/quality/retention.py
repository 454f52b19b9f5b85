"""What was recorded beside memories does not stay for ever: once a day the oldest of it goes.

Memories are never among it. What somebody still needs is kept by the store itself: transcripts
with a job that is not done, the timeline of sessions that go on, actions that rules stand on.
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
# So small that nobody waits for one of them.
BATCH_SIZE = 200


def day_of(at: datetime) -> str:
    """The day of a moment, as it names a job."""
    return at.date().isoformat()


def limits(policy: RetentionPolicy, now: datetime) -> Iterator[tuple[Keepsake, datetime]]:
    """What is not kept for ever, and from which moment on it is."""
    days: dict[Keepsake, int] = {
        "transcripts": policy.transcript_days,
        "events": policy.event_days,
        "actions": policy.action_days,
        "refusals": policy.refusal_days,
        "feedback": policy.feedback_days,
    }
    for what, kept_days in days.items():
        if kept_days > 0:
            yield what, now - timedelta(days=kept_days)


def due(services: Services, user: str) -> dict[Keepsake, int]:
    """How much would be erased now, by what it is; what is kept for ever is not named."""
    now = services.world.now()
    return {
        what: services.store.expirable(user, what, before)
        for what, before in limits(services.policy.retention, now)
    }


def erase(services: Services, user: str) -> dict[Keepsake, int]:
    """Erases what is too old, batch by batch; returns how much, by what it was."""
    now = services.world.now()
    erased: dict[Keepsake, int] = {}
    for what, before in limits(services.policy.retention, now):
        erased[what] = 0
        while True:
            gone = services.store.write(partial(_erase_some, user, what, before))
            erased[what] += gone
            if gone < BATCH_SIZE:
                break
    return erased


def _erase_some(user: str, what: Keepsake, before: datetime, transaction: Transaction) -> int:
    gone = transaction.expire(user, what, before, BATCH_SIZE)
    if gone:
        transaction.count(user, f"retention.{what}", gone)
    return gone


def handler(services: Services) -> Handler:
    """What the job of a day does."""
    return (("erase", partial(_stage, services)),)


def _stage(services: Services, job: Job) -> Effect:
    erased = erase(services, job.user)
    at = services.world.now()
    details: dict[str, object] = {str(what): many for what, many in erased.items()}
    event = Event(at=at, category="retention", name="retention.erased", details=details)

    def effect(transaction: Transaction) -> After | None:
        if not any(erased.values()):
            return None
        transaction.log_events(job.user, [event])
        return partial(publish, services, [event])

    return effect


_ERASED = "retention."
