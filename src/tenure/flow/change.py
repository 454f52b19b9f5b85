"""Changing, forgetting, undoing, splitting: each leaves a trace; only a purge leaves none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from tenure.errors import Conflict, InputError
from tenure.flow.drafts import (
    PROPOSED_CONSTRAINT,
    PROPOSED_PIN,
    check_validity,
    checked_field,
    known_fields,
    screened,
)
from tenure.flow.services import Services
from tenure.flow.write import indexed
from tenure.ports.embedder import Vectors
from tenure.store.base import Change, Transaction
from tenure.text.normal import check_text
from tenure.types import Action, HistoryEntry, MemoryRecord

UPDATABLE = (
    "content",
    "kind",
    "agent",
    "project",
    "confidence",
    "importance",
    "pinned",
    "tags",
    "valid_from",
    "valid_until",
)


def update(
    services: Services, record: MemoryRecord, given: Mapping[str, Any], *, by_person: bool
) -> MemoryRecord:
    """Changes fields of a memory; never merges, and keeps what it was in history."""
    fields = {name: value for name, value in given.items() if name != "content"}
    known_fields(fields, UPDATABLE)
    values = {name: checked_field(name, value) for name, value in fields.items()}
    if "content" in given:
        check_text(given["content"])
        values["content"] = screened(given["content"], services.policy.secrets)
    if not by_person and (values.get("pinned") or values.get("kind") == "constraint"):
        raise InputError(
            "only a person may pin a memory or make it a constraint",
            hint="propose it, and let a person confirm with `tenure confirm ID`",
        )
    if not record.is_live:
        raise Conflict(f"{record.id} is forgotten or superseded", hint="undo that first")

    def change(current: MemoryRecord) -> MemoryRecord:
        changed = replace(current, **values)
        check_validity(changed.valid_from, changed.valid_until)
        return changed

    return _apply(services, record, change, _Note("update"), values.get("content"))


def confirm(services: Services, record: MemoryRecord) -> MemoryRecord:
    """Makes a memory trusted, and what was only proposed for it real: a person has said so."""

    def change(current: MemoryRecord) -> MemoryRecord:
        proposals = (PROPOSED_PIN, PROPOSED_CONSTRAINT)
        return replace(
            current,
            trust="trusted",
            pinned=current.pinned or PROPOSED_PIN in current.tags,
            kind="constraint" if PROPOSED_CONSTRAINT in current.tags else current.kind,
            tags=tuple(tag for tag in current.tags if tag not in proposals),
        )

    return _apply(services, record, change, _Note("confirm"))


def forget(services: Services, record: MemoryRecord, why: str) -> MemoryRecord:
    """Hides a memory from every search; undo brings it back."""
    if record.deleted_at is not None:
        return record
    now = services.world.now()
    return _apply(
        services, record, lambda current: replace(current, deleted_at=now), _Note("delete", why)
    )


def purge(services: Services, record: MemoryRecord) -> None:
    """Erases a memory and every trace of its text; this cannot be undone."""

    def work(transaction: Transaction) -> None:
        transaction.purge(record.user, record.id)
        transaction.count(record.user, "purged")

    services.store.write(work)
    services.store.erase_traces()


@dataclass(frozen=True, slots=True)
class _Note:
    """What the history says about a change."""

    action: Action
    why: str = ""


def _apply(
    services: Services,
    record: MemoryRecord,
    change: Callable[[MemoryRecord], MemoryRecord],
    note: _Note,
    content: str | None = None,
) -> MemoryRecord:
    """Changes a memory as it is by now, and notes what it was before."""
    now = services.world.now()
    vectors = services.embedding.documents([content])[0] if content is not None else {}

    def work(transaction: Transaction) -> MemoryRecord:
        current = transaction.get(record.user, record.id)
        changed = replace(change(current), updated_at=now)
        logged = Change(
            services.world.new_id(), now, services.actor, note.action, note.why, current
        )
        transaction.update(indexed(changed, vectors), logged)
        return transaction.get(record.user, record.id)

    return services.store.write(work)


def last_change(history: list[HistoryEntry]) -> HistoryEntry:
    """The latest change that was not undone yet."""
    for entry in reversed(history):
        if entry.action != "undo" and not entry.undone:
            return entry
    raise Conflict("there is nothing left to undo")


def undo(services: Services, record: MemoryRecord) -> list[MemoryRecord]:
    """Takes back the last change of a memory; returns every memory that changed by that.

    A merge comes apart again. A memory that was just made is forgotten, and what it superseded
    returns. What only a later change replaced is never lost: undo again goes further back.
    """
    entry = last_change(services.store.history(record.user, record.id))
    return _revert(services, record, entry)


def split(services: Services, record: MemoryRecord, entry_number: int | None) -> list[MemoryRecord]:
    """Takes a merge apart: the survivor as it was before, the other text as its own memory."""
    history = services.store.history(record.user, record.id)
    merges = [e for e in history if e.action == "merge" and not e.undone]
    wanted = [e for e in merges if entry_number in (None, e.entry)]
    if not wanted:
        raise Conflict(f"{record.id} holds no merge that could be split")
    latest = last_change(history)
    if wanted[-1].entry == latest.entry:
        return _revert(services, record, latest)
    # Later changes stand: only the other text comes back on its own.
    return _revert(services, record, wanted[-1], keep_survivor=True)


def _revert(
    services: Services, record: MemoryRecord, entry: HistoryEntry, *, keep_survivor: bool = False
) -> list[MemoryRecord]:
    texts = [r.content for r in (entry.before, entry.other) if r is not None]
    made = dict(zip(texts, services.embedding.documents(texts), strict=True))
    work = _Reversal(services, entry, made, services.world.now())
    return services.store.write(
        lambda transaction: work.run(transaction, record, keep_survivor=keep_survivor)
    )


class _Reversal:
    """Undoes one history entry inside one transaction."""

    def __init__(
        self,
        services: Services,
        entry: HistoryEntry,
        vectors: dict[str, dict[str, Vectors]],
        now: datetime,
    ) -> None:
        self._services = services
        self._entry = entry
        self._vectors = vectors
        self._now = now
        self._operation = services.world.new_id()

    def run(
        self, transaction: Transaction, record: MemoryRecord, *, keep_survivor: bool
    ) -> list[MemoryRecord]:
        """Reverts the entry and what was done together with it."""
        entry, user = self._entry, record.user
        if entry.entry not in {
            e.entry for e in transaction.history(user, record.id) if not e.undone
        }:
            raise Conflict("somebody else undid that already")
        changed = []
        if entry.before is None:
            changed.append(self._forget_new(transaction, user))
            changed += self._restore_superseded(transaction, user)
        elif not keep_survivor:
            changed.append(self._restore(transaction, entry.before))
        if entry.action == "merge" and entry.other is not None:
            changed.append(self._bring_back(transaction, entry.other))
        transaction.mark_undone(user, [entry.entry])
        transaction.count(user, "split" if entry.action == "merge" else "undone")
        return changed

    def _forget_new(self, transaction: Transaction, user: str) -> MemoryRecord:
        current = transaction.get(user, self._entry.memory_id)
        gone = replace(current, deleted_at=self._now, updated_at=self._now)
        transaction.update(indexed(gone, {}), self._change("undo", current))
        return gone

    def _restore_superseded(self, transaction: Transaction, user: str) -> list[MemoryRecord]:
        restored = []
        for other in transaction.operation(user, self._entry.operation):
            if other.action == "supersede" and not other.undone and other.before is not None:
                restored.append(self._restore(transaction, other.before))
                transaction.mark_undone(user, [other.entry])
        return restored

    def _restore(self, transaction: Transaction, before: MemoryRecord) -> MemoryRecord:
        current = transaction.get(before.user, before.id)
        back = replace(
            before,
            updated_at=self._now,
            access_count=current.access_count,
            last_accessed=current.last_accessed,
            usefulness=current.usefulness,
        )
        transaction.update(
            indexed(back, self._vectors.get(back.content, {})), self._change("undo", current)
        )
        return back

    def _bring_back(self, transaction: Transaction, other: MemoryRecord) -> MemoryRecord:
        transaction.insert(
            indexed(other, self._vectors.get(other.content, {})),
            replace(self._change("split", None), other_id=self._entry.memory_id),
        )
        return other

    def _change(self, action: Action, before: MemoryRecord | None) -> Change:
        why = f"undid the {self._entry.action} of {self._entry.at:%Y-%m-%d %H:%M}"
        return Change(self._operation, self._now, self._services.actor, action, why, before)
