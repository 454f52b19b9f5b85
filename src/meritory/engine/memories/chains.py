"""Chains of memories that give one claim other values: which value holds, and since when.

A chain is made of links and of superseded memories. `write` stores the links.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from meritory.domain.memory import MemoryRecord, Scope
from meritory.domain.quality import LinkKind, MemoryLink
from meritory.engine.memories.gate import GateVerdict, may_renew, since
from meritory.store.contract.memories import LaterValue, Near
from meritory.store.contract.store import Store, Transaction
from meritory.text.claims.compare import words_of
from meritory.text.time import asks_about_past, date_text, may_change

# A new memory gets at most this many links to memories that it only looks like.
ALIKE_LIMIT = 3
# Two texts look alike if neither has more words of its own than this.
ALIKE_OWN_WORDS = 3
# So many of the latest values are considered for each memory.
_CONSIDERED = 3
# So many earlier values are read for one question about the past.
_EARLIER_LIMIT = 64
# Rules and preferences hold until they are changed; their age says little.
_AGEING_KINDS = frozenset({"fact", "decision", "episode"})
_REASONS: dict[LinkKind, str] = {
    "newer": "another value of one claim",
    "unsure": "probably another value of one claim",
    "alike": "the texts are similar",
}


# -- links to write ---------------------------------------------------------------------------


def links_of_new(
    new: MemoryRecord, near: Sequence[Near], verdict: GateVerdict, floor: float, now: datetime
) -> list[MemoryLink]:
    """Return the links of a new memory: to other values of its claim, and to texts like it."""
    linked = {one.memory.id for one in (*verdict.chained, *verdict.unsure)}
    if verdict.decision == "superseded":
        linked |= {one.memory.id for one in verdict.near}
    words = words_of(new.content)
    alike = [
        one
        for one in near
        if one.cosine >= floor
        and one.memory.id not in linked
        and _own_words(words, words_of(one.memory.content)) <= ALIKE_OWN_WORDS
    ]
    return [
        *(_link(new, one, "newer", now) for one in verdict.chained),
        *(_link(new, one, "unsure", now) for one in verdict.unsure),
        *(_link(new, one, "alike", now) for one in alike[:ALIKE_LIMIT]),
    ]


def links_of_changed(
    record: MemoryRecord, near: Sequence[Near], verdict: GateVerdict, floor: float, now: datetime
) -> list[MemoryLink]:
    """Return the links of a memory that was changed; a change never merges or supersedes."""
    chained = verdict.chained
    if verdict.decision == "superseded":
        chained = (*chained, *verdict.near)
    return links_of_new(
        record, near, replace(verdict, decision="kept_both", chained=chained), floor, now
    )


def _link(new: MemoryRecord, near: Near, kind: LinkKind, now: datetime) -> MemoryLink:
    """Return the link of two memories in the order of time.

    A weaker memory does not hide a stronger one, nor anything a pin or a constraint. A person may
    decide otherwise, so the pair is kept for review.
    """
    older, newer = sorted((near.memory, new), key=lambda record: (since(record), record is new))
    if kind == "newer" and not may_renew(older, newer, by_person=False):
        kind = "alike"
    # No words of either text: a purge of a third memory would not find them here.
    reason = _REASONS[kind]
    return MemoryLink(
        older_id=older.id, newer_id=newer.id, kind=kind, cosine=near.cosine, reason=reason, at=now
    )


def _own_words(left: frozenset[str], right: frozenset[str]) -> int:
    return max(len(left - right), len(right - left))


def bridges(
    transaction: Transaction,
    gone: MemoryRecord,
    superseded: Iterable[MemoryRecord],
    now: datetime,
) -> list[MemoryLink]:
    """Return the links that keep a chain together when a memory in its middle is erased."""
    links = transaction.links_of(gone.user, [gone.id])
    sure = [link for link in links if link.is_chain]
    linked = [*sure, *(link for link in links if link.is_unsure)]
    replaced = {old.id for old in superseded}
    older = {link.older_id for link in linked} | replaced
    newer = {link.newer_id for link in linked} | {gone.superseded_by or gone.id}
    sure_ends = {end for link in sure for end in (link.older_id, link.newer_id)}
    sure_ends |= replaced | {gone.superseded_by or gone.id}
    reason = "a value between them was erased"
    return [
        MemoryLink(
            older_id=one,
            newer_id=two,
            kind="newer" if {one, two} <= sure_ends else "unsure",
            cosine=0.0,
            reason=reason,
            at=now,
        )
        for one in sorted(older - {gone.id})
        for two in sorted(newer - {gone.id, one})
    ]


# -- present values ---------------------------------------------------------------------------


class PresentValue(NamedTuple):
    """The memory that holds the present value of another one's claim."""

    memory: MemoryRecord
    # The moment when the next value after the other one's began.
    until: datetime


def present_values(
    store: Store,
    scope: Scope,
    memory_ids: Collection[str],
    now: datetime,
    *,
    trusted: bool = False,
) -> dict[str, PresentValue]:
    """Return by memory the one that holds the present value of its claim, if another does.

    Pins and constraints have none: they are never hidden.
    """
    chains = _Chains(store.later_values(scope, tuple(memory_ids), now, trusted=trusted))
    wanted = {one: chains.present(one) for one in memory_ids if one in chains.steps}
    ids = {value.newer_id for values in wanted.values() for value in values[-_CONSIDERED:]}
    if not ids:
        return {}
    records = store.memories(scope.user, sorted(ids | wanted.keys()))
    found: dict[str, PresentValue] = {}
    for memory_id, values in wanted.items():
        old = records.get(memory_id)
        for value in reversed(values[-_CONSIDERED:]):
            newest = records.get(value.newer_id)
            if old is None or newest is None or old.is_binding:
                continue
            # Trust and provenance of both may have changed since they were linked.
            if value.is_decided or may_renew(old, newest, by_person=False):
                found[memory_id] = PresentValue(newest, min(one.since for one in values))
                break
    return found


@dataclass(frozen=True, slots=True)
class _Reached:
    """A later value as seen from one memory."""

    newer_id: str
    since: datetime
    # Whether a person or an agent decided every step to it.
    is_decided: bool


class _Chains:
    """The steps from memories to later values."""

    def __init__(self, values: Iterable[LaterValue]) -> None:
        self.steps: defaultdict[str, list[LaterValue]] = defaultdict(list)
        for one in values:
            self.steps[one.older_id].append(one)
        self._since = {step.newer_id: step.since for steps in self.steps.values() for step in steps}

    def present(self, memory_id: str) -> list[_Reached]:
        """Return the present values that a memory leads to, latest last.

        In a circle the latest memory has none.
        """
        decided = self._reach(memory_id, must_be_decided=True)
        every = self._reach(memory_id, must_be_decided=False)
        own = self._since.get(memory_id)
        present = [
            _Reached(one.newer_id, one.since, one.newer_id in decided)
            for one in every.values()
            if one.is_present and (own is None or (one.since, one.newer_id) > (own, memory_id))
        ]
        return sorted(present, key=lambda one: (one.since, one.newer_id))

    def _reach(self, memory_id: str, *, must_be_decided: bool) -> dict[str, LaterValue]:
        reached: dict[str, LaterValue] = {}
        waiting = [memory_id]
        while waiting:
            for step in self.steps.get(waiting.pop(), ()):
                is_new = step.newer_id not in reached and step.newer_id != memory_id
                if is_new and (step.is_decided or not must_be_decided):
                    reached[step.newer_id] = step
                    waiting.append(step.newer_id)
        return reached


# -- unsure values ----------------------------------------------------------------------------


def unsure_values(
    store: Store,
    scope: Scope,
    memory_ids: Collection[str],
    now: datetime,
    *,
    trusted: bool = False,
) -> dict[str, MemoryRecord]:
    """Return by memory the latest one that probably gives its claim a newer value.

    Pins and constraints have none. Both memories stay visible: only the order and a date say which
    one is newer.
    """
    values = store.unsure_values(scope, tuple(memory_ids), now, trusted=trusted)
    values = [one for one in values if one.is_present]
    if not values:
        return {}
    ends = {end for one in values for end in (one.older_id, one.newer_id)}
    known = store.memories(scope.user, sorted(ends))
    found: dict[str, MemoryRecord] = {}
    for one in sorted(values, key=lambda value: (value.since, value.newer_id)):
        old, newer = known.get(one.older_id), known.get(one.newer_id)
        if old is None or newer is None or since(newer) <= since(old):
            continue
        # Trust and provenance of both may have changed since they were linked.
        if may_renew(old, newer, by_person=False):
            found[old.id] = newer
    return found


def newer_first(memory_ids: Sequence[str], newer: Mapping[str, str], bringing: int) -> list[str]:
    """Return ids in order, the newer one of a memory right before it.

    So many of the best memories bring one that is missing, which takes a place of its own.
    """
    order = list(memory_ids)
    for place, old_id in enumerate(memory_ids):
        new_id = newer.get(old_id)
        if new_id is None:
            continue
        at = order.index(old_id)
        if new_id in order:
            if order.index(new_id) > at:
                order.remove(new_id)
                order.insert(at, new_id)
        elif place < bringing:
            order.insert(at, new_id)
    return order


# -- earlier values ---------------------------------------------------------------------------


class EarlierValue(NamedTuple):
    """A memory whose value gave way to that of another one, and when."""

    memory: MemoryRecord
    until: datetime


def earlier_values(
    store: Store, scope: Scope, records: Collection[MemoryRecord]
) -> dict[str, list[EarlierValue]]:
    """Return by memory those whose value it directly replaced, latest first."""
    known = {record.id: record for record in records}
    found: defaultdict[str, list[EarlierValue]] = defaultdict(list)
    reached: dict[str, MemoryRecord] = {}
    asked = list(known)
    while asked and len(reached) < _EARLIER_LIMIT:
        steps = store.earlier_values(scope.user, asked)
        ids = {older_id for older_id, _ in steps} - known.keys()
        read = store.memories(scope.user, sorted(ids)) if ids else {}
        reached |= {
            one.id: one for one in read.values() if one.deleted_at is None and _may_see(scope, one)
        }
        known |= read
        for older_id, newer_id in steps:
            if older_id in reached:
                value = EarlierValue(reached[older_id], since(known[newer_id]))
                found[newer_id].append(value)
        asked = [one for one in read if one in reached]
    for values in found.values():
        values.sort(key=lambda one: (since(one.memory), one.memory.id), reverse=True)
    return dict(found)


def _may_see(scope: Scope, record: MemoryRecord) -> bool:
    return scope.covers(record.agent, record.project)


# -- dates ------------------------------------------------------------------------------------


def dates_of(
    store: Store,
    scope: Scope,
    records: Collection[MemoryRecord],
    context: str,
    now: datetime,
    ended: Mapping[str, datetime] | None = None,
) -> dict[str, str]:
    """Return by memory the date to show with it in a context, for those whose age matters.

    One that stands beside a probably newer value has the day when it was said. `ended` has the ends
    of values that are known already. Dates are days in UTC, so that the same
    memories are always the same text.
    """
    ids = [record.id for record in records]
    if not ids:
        return {}
    # Only a context about the past has memories whose value is an earlier one.
    values = present_values(store, scope, ids, now) if asks_about_past(context) else {}
    over = {**{name: value.until for name, value in values.items()}, **(ended or {})}
    following = {newer_id for _, newer_id in store.earlier_values(scope.user, ids)}
    doubted = {
        old_id
        for old_id, newer in unsure_values(store, scope, ids, now, trusted=True).items()
        if newer.id in ids
    }
    dates: dict[str, str] = {}
    for record in records:
        if record.id in over:
            dates[record.id] = f"until {date_text(over[record.id])}"
        elif record.id in doubted:
            dates[record.id] = f"said {date_text(since(record))}"
        elif record.id in following:
            dates[record.id] = f"since {date_text(since(record))}"
        elif record.kind in _AGEING_KINDS and may_change(record.content):
            dates[record.id] = date_text(since(record))
    return dates
