"""The janitor: a weekly sweep that demotes memories which many sessions could use and none did.

A memory is demoted when sessions in its scope were active for a number of months and none was
shown it. Months without sessions do not count, so a break changes nothing. The janitor forgets
nothing unless that is switched on, and every sweep can be undone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from operator import methodcaller
from typing import Literal, TypeVar

from meritory.domain.errors import Conflict, NotFound
from meritory.domain.job import Job
from meritory.domain.memory import HistoryEntry, MemoryRecord, Scope
from meritory.domain.session import Event
from meritory.engine.jobs.runner import After, Effect, JobRunner, queue_job
from meritory.engine.memories.gate import revert
from meritory.engine.memories.validate import PROPOSED_CONSTRAINT, PROPOSED_PIN
from meritory.engine.memories.write import indexed
from meritory.engine.observe.observer import publish
from meritory.engine.services import Services
from meritory.rank.hybrid import PROVENANCE_LADDER
from meritory.store.contract.memories import MemoryChange
from meritory.store.contract.store import Transaction

JANITOR_JOB = "janitor"
ACTOR = "janitor"
MONTH = timedelta(days=30)
# A month with fewer sessions does not count as active.
ACTIVE_SESSIONS_MIN = 5
LOOKBACK_MONTHS_MAX = 600
CONFIDENCE_FACTOR = 0.8
# The most changes of one sweep: a wrong clock or setting must not demote a whole store.
SWEEP_LIMIT = 5_000
# Small, so that no other write waits long.
BATCH_SIZE = 50
UNDO_WEEKS = 60
_CONTESTED_LIMIT = 10_000
_DECIMALS = 6
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

T = TypeVar("T")
Fate = Literal["demote", "forget"]


@dataclass(frozen=True, slots=True)
class Due:
    """A memory that the sweep demotes or forgets, and the reason."""

    memory: MemoryRecord
    fate: Fate
    idle_since: datetime
    active_months: int

    @property
    def reason(self) -> str:
        """The reason, as the history records it."""
        last = self.memory.last_accessed
        shown = "never shown" if last is None else f"last shown on {last:%Y-%m-%d}"
        return (
            f"{shown}, although sessions went on in {self.active_months} months"
            f" since {self.idle_since:%Y-%m-%d}"
        )


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """The changes of a sweep: memories that are due, the number examined, and if there are more."""

    due: Sequence[Due]
    looked_at: int
    is_cut: bool


@dataclass(frozen=True, slots=True)
class Sweep:
    """The result of a sweep."""

    operation: str
    demoted: int
    forgotten: int


def week_of(at: datetime) -> str:
    """Return the ISO week of a moment; it is the key of that week's sweep."""
    year, week, _ = at.isocalendar()
    return f"{year}-W{week:02d}"


def operation_of(week: str) -> str:
    """Return the operation of a sweep in the history."""
    return f"janitor/{week}"


class _Judgement:
    """Decides about single memories; the same when planning and when sweeping."""

    def __init__(self, services: Services, user: str) -> None:
        self._services, self._policy = services, services.policy.janitor
        self._now, store = services.world.now(), services.store
        self._contested = {row.memory.id for row in store.contested(user, _CONTESTED_LIMIT)}
        # The sessions of each past month by scope, the latest month first.
        self._months: list[dict[Scope, int]] = []
        self._active_months: dict[Scope, list[int]] = {}
        total = sum(store.session_counts(user, _EPOCH).values())
        before: dict[Scope, int] = {}
        while sum(before.values()) < total and len(self._months) < LOOKBACK_MONTHS_MAX:
            counts = store.session_counts(user, self._now - MONTH * (len(self._months) + 1))
            self._months.append({scope: n - before.get(scope, 0) for scope, n in counts.items()})
            before = counts

    def due(self, record: MemoryRecord) -> Due | None:
        """Return the fate of a memory that is due."""
        is_exempt = (
            not record.is_live
            or record.pinned
            or record.kind == "constraint"
            # An untrusted memory is shown only on request.
            or record.trust == "untrusted"
            or (record.valid_until is not None and record.valid_until <= self._now)
            # A person decides about these.
            or record.id in self._contested
            or not {PROPOSED_PIN, PROPOSED_CONSTRAINT}.isdisjoint(record.tags)
        )
        if is_exempt:
            return None
        # Being shown, changed or demoted restarts the count.
        since = max(record.created_at, record.updated_at, record.last_accessed or record.created_at)
        months = self._active_since(record.scope, since)
        limit: int = getattr(self._policy, f"{record.provenance}_months")
        if months < limit:
            return None
        # A further demotion would change nothing on the last step.
        step = PROVENANCE_LADDER.index(record.provenance) + record.demotion
        if not record.demotion or step < len(PROVENANCE_LADDER) - 1:
            return Due(record, "demote", since, months)
        if not self._policy.cull:
            return None
        # Forget it only if no search has found it either.
        found = self._services.store.retrievals(record.user, [record.id]).get(record.id)
        is_unused = found is None or found.last_at < since
        return Due(record, "forget", since, months) if is_unused else None

    def _active_since(self, scope: Scope, since: datetime) -> int:
        """Return in how many whole months sessions could see the memories of a scope."""
        active = self._active_months.get(scope)
        if active is None:
            # active[n] is the number of active months among the last n.
            active = self._active_months[scope] = [0]
            for month in self._months:
                count = sum(
                    count
                    for session, count in month.items()
                    if scope.agent in (None, session.agent)
                    and scope.project in (None, session.project)
                )
                active.append(active[-1] + (count >= ACTIVE_SESSIONS_MIN))
        whole = max(0, (self._now - since) // MONTH)
        return active[min(whole, len(active) - 1)]


def plan(
    services: Services, user: str, limit: int = SWEEP_LIMIT, judgement: _Judgement | None = None
) -> SweepPlan:
    """Return the changes that a sweep would make now."""
    judgement = judgement or _Judgement(services, user)
    examined = 0
    due: list[Due] = []
    for record in services.store.walk(user):
        examined += 1
        if item := judgement.due(record):
            due.append(item)
            if len(due) > limit:
                break
    return SweepPlan(due[:limit], examined, len(due) > limit)


def sweep(services: Services, user: str, week: str) -> Sweep:
    """Demote or forget due memories in small transactions; an interrupted sweep can run again."""
    judgement = _Judgement(services, user)
    operation = operation_of(week)

    def apply(batch: Sequence[Due], transaction: Transaction) -> list[Fate]:
        now = services.world.now()
        fates: list[Fate] = []
        for item in batch:
            try:
                record = transaction.get(user, item.memory.id)
            except NotFound:
                continue
            # It may have been shown, changed or swept by another process since it was planned.
            due = judgement.due(record)
            if due is None:
                continue
            action: Literal["demote", "delete"] = "demote"
            confidence = round(record.confidence * CONFIDENCE_FACTOR, _DECIMALS)
            changed = replace(record, demotion=record.demotion + 1, confidence=confidence)
            if due.fate == "forget":
                action, changed = "delete", replace(record, deleted_at=now)
            change = MemoryChange(operation, now, ACTOR, action, due.reason, record)
            transaction.update(indexed(replace(changed, updated_at=now), {}), change)
            fates.append(due.fate)
        for name, fate in (("demoted", "demote"), ("forgotten", "forget")):
            if fate in fates:
                transaction.count(user, f"janitor.{name}", fates.count(fate))
        return fates

    fates: list[Fate] = []
    for batch in _batches(plan(services, user, SWEEP_LIMIT, judgement).due):
        fates += services.store.write(user, partial(apply, batch))
    return Sweep(operation, fates.count("demote"), fates.count("forget"))


def run_sweep(services: Services, job: Job) -> Effect:
    """Sweep, and return the effect of the weekly job: the event with its result."""
    result = sweep(services, job.user, job.key)
    event = Event(
        at=services.world.now(),
        category="janitor",
        name="janitor.swept",
        details={"week": job.key, "demoted": result.demoted, "forgotten": result.forgotten},
    )

    def effect(transaction: Transaction) -> After:
        transaction.log_events(job.user, [event])
        return partial(publish, services, [event])

    return effect


def run_now(services: Services, runner: JobRunner, user: str) -> Sweep:
    """Run the sweep of this week now."""
    now = services.world.now()
    week = week_of(now)
    before = _counted(services, user)

    services.store.write(user, lambda t: queue_job(t, user, JANITOR_JOB, week, now))
    if not runner.run_named(user, JANITOR_JOB, week):
        error = services.store.job(user, JANITOR_JOB, week).error
        if error is None:
            raise Conflict("the janitor sweep is already running in another process")
        raise Conflict(f"the janitor sweep failed: {error}")
    demoted, forgotten = (a - b for a, b in zip(_counted(services, user), before, strict=True))
    return Sweep(operation_of(week), demoted, forgotten)


def _counted(services: Services, user: str) -> tuple[int, int]:
    counters = services.store.counters(user)
    return counters.get("janitor.demoted", 0), counters.get("janitor.forgotten", 0)


def undo_sweep(services: Services, user: str) -> tuple[str, int]:
    """Undo the latest sweep, but no later changes; return its week and the number of memories."""
    store, now, operation = services.store, services.world.now(), services.world.new_id()

    def undo(batch: Sequence[HistoryEntry], transaction: Transaction) -> None:
        for entry in batch:
            current = transaction.get(user, entry.memory_id)
            why = f"undid the sweep of {entry.at:%Y-%m-%d %H:%M}"
            change = MemoryChange(operation, now, services.actor, "undo", why, current)
            transaction.update(indexed(revert(current, entry, now), {}), change)
            transaction.mark_undone(user, [entry.entry])
            transaction.count(user, "undone")

    for weeks in range(UNDO_WEEKS):
        week = week_of(now - timedelta(weeks=weeks))
        try:
            store.job(user, JANITOR_JOB, week)
        except NotFound:
            continue
        history = store.write(user, methodcaller("operation", user, operation_of(week)))
        entries = [entry for entry in history if not entry.undone and entry.before is not None]
        if entries:
            for batch in _batches(entries):
                store.write(user, partial(undo, batch))
            return week, len(entries)
    raise Conflict("there is no sweep to undo")


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    left = iter(items)
    while batch := list(islice(left, BATCH_SIZE)):
        yield batch
