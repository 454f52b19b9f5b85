"""What falls due by the calendar and not by what somebody does: the daemon queues it."""

from __future__ import annotations

from datetime import datetime, timedelta

from meritory.domain.errors import NotFound
from meritory.engine.quality.janitor import JANITOR_JOB, week_of
from meritory.engine.quality.retention import RETENTION_JOB, day_of
from meritory.engine.services import Services

# Whoever starts a daemon wants to work with it first.
FIRST_LOOK_AFTER = timedelta(minutes=10)
LOOK_EVERY = timedelta(hours=1)


class Schedule:
    """Queues one janitor's job a week and one of retention a day for every user."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._next_look = services.world.now() + FIRST_LOOK_AFTER

    def look(self) -> int:
        """Queues what is due and not queued yet, now and then; returns how many jobs."""
        now = self._services.world.now()
        if now < self._next_look:
            return 0
        self._next_look = now + LOOK_EVERY
        users = dict.fromkeys((self._services.user, *self._services.store.users()))
        return sum(self._queue(user, kind, now) for user in users for kind in self._kinds())

    def _kinds(self) -> tuple[str, ...]:
        if self._services.policy.janitor.enabled:
            return (JANITOR_JOB, RETENTION_JOB)
        return (RETENTION_JOB,)

    def _queue(self, user: str, kind: str, now: datetime) -> bool:
        """Whatever became of a job of this week or day, there is no second one."""
        store, key = self._services.store, key_of(kind, now)
        try:
            store.job(user, kind, key)
        except NotFound:
            return store.write(lambda transaction: transaction.put_job(user, kind, key, now))
        return False


def key_of(kind: str, at: datetime) -> str:
    """The key of the job of this kind whose time a moment lies in."""
    return week_of(at) if kind == JANITOR_JOB else day_of(at)
