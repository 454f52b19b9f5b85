"""Changing, forgetting, undoing, splitting: each leaves a trace; only a purge leaves none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from meritory.domain.errors import Conflict, InputError
from meritory.domain.memory import Action, HistoryEntry, MemoryRecord
from meritory.engine.learning.job import reconsider
from meritory.engine.memories.gate import undone
from meritory.engine.memories.validate import (
    PROPOSED_CONSTRAINT,
    PROPOSED_PIN,
    check_validity,
    checked_field,
    known_fields,
    screened,
)
from meritory.engine.memories.write import indexed
from meritory.engine.services import Services
from meritory.ports.embedder import Vectors
from meritory.store.contract.store import MemoryChange, Transaction
from meritory.text.normalize import check_text, checked_content, content_hash

_PURGED = "its successor was erased"
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
    known_fields(given, UPDATABLE)
    values = {name: checked_field(name, v) for name, v in given.items() if name != "content"}
    for text in (*values.get("tags", ()), values.get("agent"), values.get("project")):
        screened(text or "", "refuse")
    if "content" in given:
        values["content"] = screened(checked_content(given["content"]), services.policy.secrets)

    def change(current: MemoryRecord) -> MemoryRecord:
        if not current.is_live:
            raise Conflict(f"{current.id} is forgotten or superseded", hint="undo that first")
        changed = replace(current, **values)
        check_validity(changed.valid_from, changed.valid_until)
        if not by_person:
            _demand_person(current, changed)
        return changed

    return _apply(services, record, change, _ChangeNote("update"), values.get("content"))


def _demand_person(current: MemoryRecord, changed: MemoryRecord) -> None:
    """Refuses to let anybody but a person pin, constrain, or change what a person stands for."""
    if any(m.pinned or m.kind == "constraint" for m in (current, changed)):
        raise InputError(
            "only a person may pin a memory, make it a constraint, or change one",
            hint="propose it, and let a person confirm with `meritory confirm ID`",
        )
    if current.provenance == "user_stated" and changed.content != current.content:
        raise InputError(
            "only a person may change what the user said",
            hint="store it as a memory of its own",
        )


def confirm(services: Services, record: MemoryRecord) -> MemoryRecord:
    """Makes a memory trusted, and what was only proposed for it real: a person has said so."""

    def change(current: MemoryRecord) -> MemoryRecord:
        if not current.is_live:
            raise Conflict(f"{current.id} is forgotten or superseded", hint="undo that first")
        proposals = (PROPOSED_PIN, PROPOSED_CONSTRAINT)
        return replace(
            current,
            trust="trusted",
            pinned=current.pinned or PROPOSED_PIN in current.tags,
            kind="constraint" if PROPOSED_CONSTRAINT in current.tags else current.kind,
            tags=tuple(tag for tag in current.tags if tag not in proposals),
        )

    return _apply(services, record, change, _ChangeNote("confirm"))


def forget(services: Services, record: MemoryRecord, why: str) -> MemoryRecord:
    """Hides a memory from every search; undo brings it back."""
    if record.deleted_at is not None:
        return record
    if why:
        check_text(why, what="a reason")
        why = screened(why, services.policy.secrets)
    now = services.world.now()
    gone = _apply(
        services,
        record,
        lambda current: replace(current, deleted_at=now),
        _ChangeNote("delete", why),
    )
    reconsider(services, gone)
    return gone


def purge(services: Services, record: MemoryRecord) -> None:
    """Erases a memory and every trace of its text; this cannot be undone."""
    now = services.world.now()

    def work(transaction: Transaction) -> None:
        for old in transaction.superseded_by(record.user, record.id):
            # Its successor never was: what it replaced is visible again.
            note = MemoryChange(services.world.new_id(), now, services.actor, "undo", _PURGED, old)
            back = replace(old, superseded_by=None, updated_at=now)
            transaction.update(indexed(back, {}), note)
        transaction.purge(record.user, record.id)
        transaction.count(record.user, "purged")

    services.store.write(work)
    services.store.erase_traces()


@dataclass(frozen=True, slots=True)
class _ChangeNote:
    """What the history says about a change."""

    action: Action
    why: str = ""


def _apply(
    services: Services,
    record: MemoryRecord,
    change: Callable[[MemoryRecord], MemoryRecord],
    note: _ChangeNote,
    content: str | None = None,
) -> MemoryRecord:
    """Changes a memory as it is by now, and notes what it was before."""
    now = services.world.now()
    vectors = services.embedding.documents([content])[0] if content is not None else {}

    def work(transaction: Transaction) -> MemoryRecord:
        current = transaction.get(record.user, record.id)
        changed = change(current)
        if changed == current:
            return current
        changed = replace(changed, updated_at=now)
        logged = MemoryChange(
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

    A merge comes apart again. A memory that was just made is forgotten, what it superseded
    returns, and undoing once more brings it back.
    """
    entry = last_change(services.store.history(record.user, record.id))
    changed = _revert(services, entry, must_be_last=True)
    if record.deleted_at is not None:
        reconsider(services, record)
    return changed


def split(services: Services, record: MemoryRecord, entry_number: int | None) -> list[MemoryRecord]:
    """Takes a merge apart: each text is a memory of its own again; later changes stand."""
    for entry in reversed(services.store.history(record.user, record.id)):
        if entry.action == "merge" and not entry.undone and entry_number in (None, entry.entry):
            return _revert(services, entry, must_be_last=False)
    raise Conflict(f"{record.id} holds no merge that could be split")


def _revert(services: Services, entry: HistoryEntry, *, must_be_last: bool) -> list[MemoryRecord]:
    texts = [r.content for r in (entry.before, entry.other) if r is not None]
    made = dict(zip(texts, services.embedding.documents(texts), strict=True))
    reversal = _Reversal(services, entry, made)
    return services.store.write(partial(reversal.run, must_be_last=must_be_last))


class _Reversal:
    """Undoes one history entry, and what was done together with it, in one transaction."""

    def __init__(
        self, services: Services, entry: HistoryEntry, vectors: dict[str, dict[str, Vectors]]
    ) -> None:
        self._services = services
        self._entry = entry
        self._vectors = vectors
        self._now = services.world.now()
        self._operation = services.world.new_id()

    @property
    def _user(self) -> str:
        return (self._entry.before or self._entry.after or self._missing()).user

    def _missing(self) -> MemoryRecord:
        raise Conflict("the memory was erased meanwhile")

    def run(self, transaction: Transaction, *, must_be_last: bool) -> list[MemoryRecord]:
        """Reverts the entry, if it still is what it was when it was chosen."""
        entry = self._entry
        history = transaction.history(self._user, entry.memory_id)
        pending = [e.entry for e in history if e.action != "undo" and not e.undone]
        if entry.entry not in pending or (must_be_last and pending[-1] != entry.entry):
            raise Conflict("it was changed meanwhile", hint="look at its history, then try again")
        if entry.before is None:
            changed = [self._forget_new(transaction), *self._restore_superseded(transaction)]
        else:
            changed = [self._restore(transaction, entry)]
        if entry.action == "merge" and entry.other is not None:
            changed.append(self._bring_back(transaction, entry.other))
            # Whoever takes a merge apart has said what they think of it.
            transaction.put_merge_audit(self._user, entry.entry, "wrong", self._now)
        transaction.mark_undone(self._user, [entry.entry])
        transaction.count(self._user, "split" if entry.action == "merge" else "undone")
        return changed

    def _forget_new(self, transaction: Transaction) -> MemoryRecord:
        """Forgetting is a change like any other: it can be undone in turn."""
        current = transaction.get(self._user, self._entry.memory_id)
        gone = replace(current, deleted_at=self._now, updated_at=self._now)
        transaction.update(indexed(gone, {}), self._change("delete", current))
        return gone

    def _restore_superseded(self, transaction: Transaction) -> list[MemoryRecord]:
        restored = []
        for other in transaction.operation(self._user, self._entry.operation):
            if other.action == "supersede" and not other.undone:
                restored.append(self._restore(transaction, other))
                transaction.mark_undone(self._user, [other.entry])
        return restored

    def _restore(self, transaction: Transaction, entry: HistoryEntry) -> MemoryRecord:
        current = transaction.get(self._user, entry.memory_id)
        back = undone(current, entry, self._now)
        transaction.update(
            indexed(back, self._vectors.get(back.content, {})), self._change("undo", current)
        )
        return back

    def _bring_back(self, transaction: Transaction, other: MemoryRecord) -> MemoryRecord:
        digest = content_hash(other.content)
        living = transaction.live_by_hash(other.scope, [digest]).get(digest)
        if living is not None:
            return living
        transaction.insert(
            indexed(other, self._vectors.get(other.content, {})),
            replace(self._change("split", None), other_id=self._entry.memory_id),
        )
        return other

    def _change(self, action: Action, before: MemoryRecord | None) -> MemoryChange:
        why = f"undid the {self._entry.action} of {self._entry.at:%Y-%m-%d %H:%M}"
        return MemoryChange(self._operation, self._now, self._services.actor, action, why, before)
