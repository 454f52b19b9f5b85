"""Undo the last change of a memory, and split a merge."""

from __future__ import annotations

from dataclasses import replace

from meritory.domain.errors import Conflict
from meritory.domain.memory import Action, HistoryEntry, MemoryRecord
from meritory.engine.learning.label import relabel_sessions
from meritory.engine.memories.gate import gate_in_use, revert
from meritory.engine.memories.validate import kept_tags
from meritory.engine.memories.write import indexed, relink, require_may_change, require_person
from meritory.engine.services import Services
from meritory.store.contract.memories import MemoryChange
from meritory.store.contract.store import Transaction
from meritory.text.normalize import content_hash


def last_change(history: list[HistoryEntry]) -> HistoryEntry:
    """Return the latest change that was not undone."""
    for entry in reversed(history):
        if entry.action != "undo" and not entry.undone:
            return entry
    raise Conflict("there is nothing left to undo")


def undo(services: Services, record: MemoryRecord) -> list[MemoryRecord]:
    """Undo the last change of a memory and return every memory that this changed.

    Undoing a merge splits it. Undoing a creation forgets the memory and restores those that it
    superseded; a second undo brings it back.
    """
    entry = last_change(services.store.history(record.user, record.id))
    changed = _revert_entry(services, entry, must_be_last=True)
    if record.deleted_at is not None:
        relabel_sessions(services, record)
    return changed


def split(services: Services, record: MemoryRecord, entry_number: int | None) -> list[MemoryRecord]:
    """Split a merge into its two memories; later changes are kept."""
    for entry in reversed(services.store.history(record.user, record.id)):
        if entry.action == "merge" and not entry.undone and entry_number in (None, entry.entry):
            return _revert_entry(services, entry, must_be_last=False)
    raise Conflict(f"{record.id} has no merge to split")


def _require_may_revert(services: Services, *versions: MemoryRecord) -> None:
    """Refuse to set or lift a pin, a constraint or a proposal, but for a person."""
    for version in versions:
        require_may_change(version, by_person=services.is_person)
    if len({kept_tags((), version.tags) for version in versions}) > 1:
        commands = f"`meritory undo {versions[0].id}`"
        require_person(services.is_person, "take back a decision about a proposal", commands)


def _revert_entry(
    services: Services, entry: HistoryEntry, *, must_be_last: bool
) -> list[MemoryRecord]:
    """Revert one history entry, and the changes made together with it, in one transaction."""
    texts = [r.content for r in (entry.before, entry.other) if r is not None]
    vectors = dict(zip(texts, services.embedding.documents(texts), strict=True))
    subject = entry.before or entry.after
    if subject is None:
        raise Conflict("the memory was erased in the meantime")
    user, now, operation = subject.user, services.world.now(), services.world.new_id()
    gate = gate_in_use(services.policy, services.embedding.serving_name())
    why = f"undid the {entry.action} of {entry.at:%Y-%m-%d %H:%M}"

    def change(action: Action, before: MemoryRecord | None) -> MemoryChange:
        return MemoryChange(operation, now, services.actor, action, why, before)

    def restore(transaction: Transaction, entry: HistoryEntry) -> MemoryRecord:
        current = transaction.get(user, entry.memory_id)
        record = revert(current, entry, now)
        _require_may_revert(services, current, record)
        fitting = vectors.get(record.content, {})
        transaction.update(indexed(record, fitting), change("undo", current))
        relink(transaction, gate, current, record, fitting, now)
        return record

    def forget_created(transaction: Transaction) -> list[MemoryRecord]:
        """Forget a memory whose creation is undone, and restore those that it superseded."""
        current = transaction.get(user, entry.memory_id)
        _require_may_revert(services, current)
        forgotten = replace(current, deleted_at=now, updated_at=now)
        # Forgetting is a change like any other: it can be undone in turn.
        transaction.update(indexed(forgotten, {}), change("delete", current))
        changed = [forgotten]
        for other in transaction.operation(user, entry.operation):
            if other.action == "supersede" and not other.undone:
                changed.append(restore(transaction, other))
                transaction.mark_undone(user, [other.entry])
        return changed

    def restore_merged(transaction: Transaction, other: MemoryRecord) -> MemoryRecord:
        """Store the memory that was merged into this one again, unless its text is there."""
        digest = content_hash(other.content)
        existing = transaction.live_by_hash(other.scope, [digest]).get(digest)
        if existing is not None:
            return existing
        _require_may_revert(services, other)
        created = replace(change("split", None), other_id=entry.memory_id)
        transaction.insert(indexed(other, vectors.get(other.content, {})), created)
        return other

    def work(transaction: Transaction) -> list[MemoryRecord]:
        history = transaction.history(user, entry.memory_id)
        pending = [e.entry for e in history if e.action != "undo" and not e.undone]
        if entry.entry not in pending or (must_be_last and pending[-1] != entry.entry):
            raise Conflict(
                "the memory was changed in the meantime",
                hint="look at its history, then try again",
            )
        is_creation = entry.before is None
        changed = forget_created(transaction) if is_creation else [restore(transaction, entry)]
        if entry.action == "merge" and entry.other is not None:
            changed.append(restore_merged(transaction, entry.other))
            # A person who splits a merge has judged it wrong.
            transaction.put_merge_audit(user, entry.entry, "wrong", now)
        transaction.mark_undone(user, [entry.entry])
        transaction.count(user, "split" if entry.action == "merge" else "undone")
        return changed

    return services.store.write(user, work)
