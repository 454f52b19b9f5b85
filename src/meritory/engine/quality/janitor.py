"""The weekly sweep: what was never of use although there was occasion steps back, one notch.

A memory is demoted when sessions that may see it went on for so many months, and none of them was
shown it. Time in which nobody worked there does not count: who comes back after a break finds
everything as it was. Nothing is forgotten unless that is switched on, and all of it can be undone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import Literal, TypeVar

from meritory.domain.errors import Conflict, NotFound
from meritory.domain.job import Job
from meritory.domain.memory import HistoryEntry, MemoryRecord, Scope
from meritory.domain.policy import JanitorPolicy
from meritory.domain.session import Event
from meritory.engine.jobs.runner import After, Effect, Handler, JobRunner
from meritory.engine.memories.gate import revert
from meritory.engine.memories.validate import PROPOSED_CONSTRAINT, PROPOSED_PIN
from meritory.engine.memories.write import indexed
from meritory.engine.observe.observer import publish
from meritory.engine.services import Services
from meritory.rank.composite import PROVENANCE_LADDER
from meritory.store.contract.store import MemoryChange, Store, Transaction

JANITOR_JOB = "janitor"
ACTOR = "janitor"
MONTH = timedelta(days=30)
# A month with fewer sessions that could have shown a memory is no occasion.
ACTIVE_SESSIONS_MIN = 5
LOOKBACK_MONTHS_MAX = 600
CONFIDENCE_FACTOR = 0.8
# No sweep changes more: a wrong clock or setting must not put a whole store aside at once.
SWEEP_LIMIT = 5_000
# So few that a write of somebody else does not wait for long.
BATCH_SIZE = 50
UNDO_WEEKS = 60
_CONTESTED_LIMIT = 10_000
_DECIMALS = 6
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

T = TypeVar("T")
Fate = Literal["demote", "forget"]


@dataclass(frozen=True, slots=True)
class Due:
    """A memory whose time has come, and why."""

    memory: MemoryRecord
    fate: Fate
    idle_since: datetime
    active_months: int

    @property
    def reason(self) -> str:
        """Why, in words, as its history will say."""
        last = self.memory.last_accessed
        shown = "never shown" if last is None else f"last shown on {last:%Y-%m-%d}"
        return (
            f"{shown}, although sessions went on in {self.active_months} months"
            f" since {self.idle_since:%Y-%m-%d}"
        )


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """What a sweep would do: those due, how many were looked at, and whether there are more."""

    due: Sequence[Due]
    looked_at: int
    is_cut: bool


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a sweep did."""

    operation: str
    demoted: int
    forgotten: int


def week_of(at: datetime) -> str:
    """The ISO week of a moment, as it names a sweep."""
    year, week, _ = at.isocalendar()
    return f"{year}-W{week:02d}"


def operation_of(week: str) -> str:
    """The name under which the history keeps a sweep."""
    return f"janitor/{week}"


class Activity:
    """In which of the past months sessions went on that may see a scope's memories."""

    def __init__(self, store: Store, user: str, now: datetime) -> None:
        self._now = now
        self._months: list[dict[Scope, int]] = []
        self._known: dict[Scope, list[int]] = {}
        total = sum(store.session_counts(user, _EPOCH).values())
        before: dict[Scope, int] = {}
        while sum(before.values()) < total and len(self._months) < LOOKBACK_MONTHS_MAX:
            since = now - MONTH * (len(self._months) + 1)
            counts = store.session_counts(user, since)
            self._months.append({one: n - before.get(one, 0) for one, n in counts.items()})
            before = counts

    def months(self, scope: Scope, since: datetime) -> int:
        """How many whole months since a moment had sessions enough."""
        whole = max(0, (self._now - since) // MONTH)
        added_up = self._known.get(scope)
        if added_up is None:
            added_up = self._known[scope] = list(self._added_up(scope))
        return added_up[min(whole, len(added_up) - 1)]

    def _added_up(self, scope: Scope) -> Iterator[int]:
        active = 0
        yield active
        for month in self._months:
            seen = sum(many for session, many in month.items() if _may_see(session, scope))
            active += seen >= ACTIVE_SESSIONS_MIN
            yield active


def _may_see(session: Scope, memory: Scope) -> bool:
    return memory.agent in (None, session.agent) and memory.project in (None, session.project)


class _Judgement:
    """What the rules say of single memories; the same when planned and when done."""

    def __init__(self, services: Services, user: str) -> None:
        self._services = services
        self._policy = services.policy.janitor
        self._now = services.world.now()
        self._activity = Activity(services.store, user, self._now)
        found = services.store.contested(user, _CONTESTED_LIMIT)
        self._contested = {one.memory.id for one in found}

    def due(self, record: MemoryRecord) -> Due | None:
        """Whether a memory's time has come."""
        if self._is_exempt(record):
            return None
        since = idle_since(record)
        months = self._activity.months(record.scope, since)
        if months < months_for(self._policy, record):
            return None
        if not is_at_last_notch(record):
            return Due(record, "demote", since, months)
        return Due(record, "forget", since, months) if self._is_culled(record, since) else None

    def _is_exempt(self, record: MemoryRecord) -> bool:
        return (
            not record.is_live
            or record.pinned
            or record.kind == "constraint"
            # Never shown unasked, so that it was not shown says nothing about it.
            or record.trust == "untrusted"
            or (record.valid_until is not None and record.valid_until <= self._now)
            # A person is to decide about these.
            or record.id in self._contested
            or PROPOSED_PIN in record.tags
            or PROPOSED_CONSTRAINT in record.tags
        )

    def _is_culled(self, record: MemoryRecord, since: datetime) -> bool:
        """Only if nobody found it by asking either."""
        if not self._policy.cull:
            return False
        found = self._services.store.retrievals(record.user, [record.id]).get(record.id)
        return found is None or found.last_at < since


def idle_since(record: MemoryRecord) -> datetime:
    """Since when nothing happened to a memory; being told again or demoted begins it anew."""
    return max(record.created_at, record.updated_at, record.last_accessed or record.created_at)


def months_for(policy: JanitorPolicy, record: MemoryRecord) -> int:
    """For how many months a memory of this provenance may go without being shown."""
    months: int = getattr(policy, f"{record.provenance}_months")
    return months


def is_at_last_notch(record: MemoryRecord) -> bool:
    """Whether a further demotion would change nothing."""
    step = PROVENANCE_LADDER.index(record.provenance) + record.demotion
    return record.demotion > 0 and step >= len(PROVENANCE_LADDER) - 1


def plan(services: Services, user: str, limit: int = SWEEP_LIMIT) -> SweepPlan:
    """Everything that a sweep would do now; nothing is changed."""
    return _planned(services, user, _Judgement(services, user), limit)


def _planned(services: Services, user: str, judgement: _Judgement, limit: int) -> SweepPlan:
    looked_at = 0
    found: list[Due] = []
    for record in services.store.walk(user):
        looked_at += 1
        due = judgement.due(record)
        if due is not None:
            found.append(due)
            if len(found) > limit:
                break
    return SweepPlan(found[:limit], looked_at, len(found) > limit)


def sweep(services: Services, user: str, week: str) -> Sweep:
    """Demotes what is due, in small transactions; one that was cut off is simply run again."""
    judgement = _Judgement(services, user)
    operation = operation_of(week)
    fates: list[Fate] = []
    for batch in _batches(_planned(services, user, judgement, SWEEP_LIMIT).due):
        fates += services.store.write(partial(_put_aside, services, operation, judgement, batch))
    return Sweep(operation, fates.count("demote"), fates.count("forget"))


def _put_aside(
    services: Services,
    operation: str,
    judgement: _Judgement,
    batch: Sequence[Due],
    transaction: Transaction,
) -> list[Fate]:
    now = services.world.now()
    fates: list[Fate] = []
    for one in batch:
        try:
            current = transaction.get(one.memory.user, one.memory.id)
        except NotFound:
            continue
        # Shown, changed, or swept by another process meanwhile: then it is not due any more.
        due = judgement.due(current)
        if due is None:
            continue
        changed = _changed(current, due.fate, now)
        action: Literal["demote", "delete"] = "demote" if due.fate == "demote" else "delete"
        note = MemoryChange(operation, now, ACTOR, action, due.reason, current)
        transaction.update(indexed(changed, {}), note)
        fates.append(due.fate)
    for name, fate in (("demoted", "demote"), ("forgotten", "forget")):
        if fate in fates:
            transaction.count(batch[0].memory.user, f"janitor.{name}", fates.count(fate))
    return fates


def _changed(record: MemoryRecord, fate: Fate, now: datetime) -> MemoryRecord:
    if fate == "forget":
        return replace(record, deleted_at=now, updated_at=now)
    confidence = round(record.confidence * CONFIDENCE_FACTOR, _DECIMALS)
    return replace(record, demotion=record.demotion + 1, confidence=confidence, updated_at=now)


def handler(services: Services) -> Handler:
    """What the job of a week does."""
    return (("sweep", partial(_stage, services)),)


def _stage(services: Services, job: Job) -> Effect:
    done = sweep(services, job.user, job.key)
    event = Event(
        at=services.world.now(),
        category="janitor",
        name="janitor.swept",
        details={"week": job.key, "demoted": done.demoted, "forgotten": done.forgotten},
    )

    def effect(transaction: Transaction) -> After:
        transaction.log_events(job.user, [event])
        return partial(publish, services, [event])

    return effect


def run_now(services: Services, runner: JobRunner, user: str) -> Sweep:
    """Sweeps at once, as the job of this week; a second time in a week finds what is left."""
    now = services.world.now()
    week = week_of(now)
    before = _counted(services, user)

    def work(transaction: Transaction) -> None:
        if not transaction.put_job(user, JANITOR_JOB, week, now):
            transaction.requeue_job(user, JANITOR_JOB, week, now)

    services.store.write(work)
    if not runner.run_named(user, JANITOR_JOB, week):
        error = services.store.job(user, JANITOR_JOB, week).error
        raise Conflict(f"the sweep did not end: {error or 'another process is at it'}")
    demoted, forgotten = (a - b for a, b in zip(_counted(services, user), before, strict=True))
    return Sweep(operation_of(week), demoted, forgotten)


def _counted(services: Services, user: str) -> tuple[int, int]:
    counters = services.store.counters(user)
    return counters.get("janitor.demoted", 0), counters.get("janitor.forgotten", 0)


def undo_sweep(services: Services, user: str) -> tuple[str, int]:
    """Takes back the latest sweep that still stands; returns its week and of how many memories.

    What was changed since then stays changed.
    """
    now = services.world.now()
    for weeks in range(UNDO_WEEKS):
        week = week_of(now - timedelta(weeks=weeks))
        entries = _standing(services, user, week)
        if entries:
            operation = services.world.new_id()
            for batch in _batches(entries):
                services.store.write(partial(_take_back, services, operation, batch))
            return week, len(entries)
    raise Conflict("there is no sweep left to undo")


def _standing(services: Services, user: str, week: str) -> list[HistoryEntry]:
    """What a sweep did that was not undone since."""
    try:
        services.store.job(user, JANITOR_JOB, week)
    except NotFound:
        return []
    found = services.store.write(lambda t: t.operation(user, operation_of(week)))
    return [entry for entry in found if not entry.undone and entry.before is not None]


def _take_back(
    services: Services, operation: str, batch: Sequence[HistoryEntry], transaction: Transaction
) -> None:
    now = services.world.now()
    for entry in batch:
        if entry.before is None:
            continue
        user = entry.before.user
        current = transaction.get(user, entry.memory_id)
        why = f"undid the sweep of {entry.at:%Y-%m-%d %H:%M}"
        note = MemoryChange(operation, now, services.actor, "undo", why, current)
        transaction.update(indexed(revert(current, entry, now), {}), note)
        transaction.mark_undone(user, [entry.entry])
        transaction.count(user, "undone")


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    left = iter(items)
    while batch := list(islice(left, BATCH_SIZE)):
        yield batch
