"""Forget a memory, or erase it with every trace of its text."""

from __future__ import annotations

from dataclasses import replace

from meritory.domain.memory import MemoryRecord
from meritory.engine.learning.label import relabel_sessions
from meritory.engine.memories.chains import bridges
from meritory.engine.memories.validate import screened
from meritory.engine.memories.write import (
    apply_change,
    indexed,
    is_act_of_person,
    require_may_change,
)
from meritory.engine.services import Services
from meritory.store.contract.memories import MemoryChange
from meritory.store.contract.store import Transaction
from meritory.text.normalize import check_text


def forget(
    services: Services, record: MemoryRecord, why: str, *, origin: str = "user"
) -> MemoryRecord:
    """Hide a memory from every search. An undo restores it."""
    if record.deleted_at is not None:
        return record
    by_person = is_act_of_person(services, origin)
    if why:
        check_text(why, what="a reason")
        why = screened(why, services.policy.secrets.policy)
    now = services.world.now()

    def change(current: MemoryRecord) -> MemoryRecord:
        require_may_change(current, by_person=by_person)
        return replace(current, deleted_at=now)

    forgotten = apply_change(services, record, change, "delete", why)
    relabel_sessions(services, forgotten)
    return forgotten


def purge(services: Services, record: MemoryRecord) -> None:
    """Erase a memory, its history and every copy of its text. This cannot be undone.

    Memories that it had superseded become visible again.
    """
    require_may_change(record, by_person=services.is_person)
    now = services.world.now()

    def work(transaction: Transaction) -> None:
        superseded = transaction.superseded_by(record.user, record.id)
        for old in superseded:
            operation, why = services.world.new_id(), "its successor was erased"
            change = MemoryChange(operation, now, services.actor, "undo", why, old)
            restored = replace(old, superseded_by=None, updated_at=now)
            transaction.update(indexed(restored, {}), change)
        links = bridges(transaction, record, superseded, now)
        transaction.purge(record.user, record.id)
        transaction.put_links(record.user, links)
        transaction.count(record.user, "purged")

    services.store.write(record.user, work)
    # The database may keep deleted text in free pages and in its log until it is compacted.
    services.store.erase_traces()
