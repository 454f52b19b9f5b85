"""Undo the last change of a memory, and split a merge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from meritory.domain.errors import Conflict
from meritory.domain.memory import Action, HistoryEntry, MemoryRecord
from meritory.engine.learning.label import relabel_sessions
from meritory.engine.memories.gate import gate_in_use, revert
from meritory.engine.memories.pairs import reopen_links
from meritory.engine.memories.validate import kept_tags
from meritory.engine.memories.write import indexed, relink, require_may_change, require_person
from meritory.engine.services import Services
from meritory.ports.embedder import Vectors
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
    superseded; a second undo brings it back. A decision about a link is open again.
    """
    entry = last_change(services.store.history(record.user, record.id))
    merge = _merge_that_took(services, record.user, entry)
    changed = _revert_entry(services, merge or entry, must_be_last=merge is None)
    if record.deleted_at is not None:
        relabel_sessions(services, record)
    return changed


def split(services: Services, record: MemoryRecord, entry_number: int | None) -> list[MemoryRecord]:
    """Split a merge into its two memories; later changes are kept."""
    for entry in reversed(services.store.history(record.user, record.id)):
        if entry.action == "merge" and not entry.undone and entry_number in (None, entry.entry):
            return _revert_entry(services, entry, must_be_last=False)
    raise Conflict(f"{record.id} has no merge to split")


def _merge_that_took(services: Services, user: str, entry: HistoryEntry) -> HistoryEntry | None:
    """Return the merge of two stored memories that superseded one of them by this entry."""
    if entry.action != "supersede":
        return None
    together = services.store.operation(user, entry.operation)
    return next((other for other in together if other.is_asked_merge and not other.undone), None)


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
    user, operation, now = subject.user, services.world.new_id(), services.world.now()

    def work(transaction: Transaction) -> list[MemoryRecord]:
        reversal = _Reversal(services, transaction, entry, user, vectors, operation, now)
        return reversal.run(must_be_last)

    return services.store.write(user, work)


@dataclass(frozen=True, slots=True)
class _Reversal:
    """Reverts one history entry inside a transaction."""

    services: Services
    transaction: Transaction
    entry: HistoryEntry
    user: str
    # The vectors of the texts that may return.
    vectors: Mapping[str, Mapping[str, Vectors]]
    operation: str
    now: datetime

    def run(self, must_be_last: bool) -> list[MemoryRecord]:
        """Revert the entry and return every memory that this changed."""
        entry, transaction = self.entry, self.transaction
        history = transaction.history(self.user, entry.memory_id)
        pending = [e.entry for e in history if e.action != "undo" and not e.undone]
        if entry.entry not in pending or (must_be_last and pending[-1] != entry.entry):
            raise Conflict(
                "the memory was changed in the meantime",
                hint="look at its history, then try again",
            )
        is_gate_merge = entry.action == "merge" and not entry.is_asked_merge
        changed = [self.forget_created() if entry.before is None else self.restore(entry)]
        if entry.before is None or entry.is_asked_merge:
            changed += self.restore_superseded()
        elif is_gate_merge and entry.other is not None:
            changed.append(self.restore_merged(entry.other))
            # A person who splits a merge of the gate has judged it wrong.
            transaction.put_merge_audit(self.user, entry.entry, "wrong", self.now)
        reopen_links(self.services, transaction, self.user, entry)
        transaction.mark_undone(self.user, [entry.entry])
        transaction.count(self.user, "split" if is_gate_merge else "undone")
        return changed

    def change(self, action: Action, before: MemoryRecord | None) -> MemoryChange:
        """Return the history entry of a change by this reversal."""
        why = f"undid the {self.entry.action} of {self.entry.at:%Y-%m-%d %H:%M}"
        return MemoryChange(self.operation, self.now, self.services.actor, action, why, before)

    def restore(self, entry: HistoryEntry) -> MemoryRecord:
        """Restore the memory of an entry to its state before."""
        current = self.transaction.get(self.user, entry.memory_id)
        record = revert(current, entry, self.now)
        if entry.is_asked_merge and entry.other is not None:
            # The memory that returns has its own uses again.
            count = max(0, record.access_count - entry.other.access_count)
            record = replace(record, access_count=count)
        _require_may_revert(self.services, current, record)
        vectors = self.vectors.get(record.content, {})
        self.transaction.update(indexed(record, vectors), self.change("undo", current))
        gate = gate_in_use(self.services.policy, self.services.embedding.serving_name())
        relink(self.transaction, gate, current, record, vectors, self.now)
        return record

    def restore_superseded(self) -> list[MemoryRecord]:
        """Restore the memories that the same operation superseded."""
        changed = []
        for other in self.transaction.operation(self.user, self.entry.operation):
            if other.action == "supersede" and not other.undone:
                changed.append(self.restore(other))
                self.transaction.mark_undone(self.user, [other.entry])
        return changed

    def forget_created(self) -> MemoryRecord:
        """Forget a memory whose creation is undone."""
        current = self.transaction.get(self.user, self.entry.memory_id)
        _require_may_revert(self.services, current)
        forgotten = replace(current, deleted_at=self.now, updated_at=self.now)
        # Forgetting is a change like any other: it can be undone in turn.
        self.transaction.update(indexed(forgotten, {}), self.change("delete", current))
        return forgotten

    def restore_merged(self, other: MemoryRecord) -> MemoryRecord:
        """Store the memory that was merged into this one again, unless its text is there."""
        digest = content_hash(other.content)
        existing = self.transaction.live_by_hash(other.scope, [digest]).get(digest)
        if existing is not None:
            return existing
        _require_may_revert(self.services, other)
        created = replace(self.change("split", None), other_id=self.entry.memory_id)
        vectors = self.vectors.get(other.content, {})
        self.transaction.insert(indexed(other, vectors), created)
        return other
