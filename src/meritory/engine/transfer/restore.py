"""Lines of our own export come back exactly: ids, times, history, links, reports and rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from meritory.domain.errors import MeritoryError, NotFound
from meritory.domain.feedback import FeedbackEvent
from meritory.domain.memory import Scope
from meritory.domain.quality import Carried
from meritory.engine.memories.write import indexed
from meritory.engine.services import Services
from meritory.engine.transfer.entries import LineBatch
from meritory.engine.transfer.extra_tables import Keepsake, KeptRule
from meritory.engine.transfer.import_schema import ExportedLine, ExportedMemory, checked_line
from meritory.engine.transfer.report import How, Note, Store, Taken, checked
from meritory.ports.embedder import Vectors
from meritory.store.contract.memories import Indexed
from meritory.store.contract.store import Transaction


class Restore:
    """Takes the lines of an export in."""

    is_repeatable = True

    def __init__(self, services: Services, scope: Scope, how: How) -> None:
        self._services = services
        self._user = scope.user
        self._how = how

    def prepare(self, batch: LineBatch, note: Note) -> Store:
        """Checks and embeds a batch; returns what restores it and notes how far it got."""
        found = [checked(self._line, line.value) for line in batch.lines]
        problems = [
            line.problem(str(held))
            for line, held in zip(batch.lines, found, strict=True)
            if isinstance(held, MeritoryError)
        ]
        sound = [held for held in found if isinstance(held, ExportedLine)]
        memories = [line.memory for line in sound if line.memory is not None]
        work = self._looking(memories) if self._how.is_dry else self._writing(memories, sound, note)

        def store() -> Taken:
            outcomes = self._services.store.write(self._user, work)
            if problems:
                outcomes["refused"] = len(problems)
            return Taken(batch.last_number, outcomes, problems)

        return store

    def _line(self, value: Any) -> ExportedLine:
        return checked_line(value, self._user)

    def _looking(self, memories: Sequence[ExportedMemory]) -> Any:
        def work(transaction: Transaction) -> Counter[str]:
            ids = [item.record.id for item in memories]
            return Counter(
                "duplicate" if transaction.has(self._user, one) else "new" for one in ids
            )

        return work

    def _writing(
        self, memories: Sequence[ExportedMemory], sound: Sequence[ExportedLine], note: Note
    ) -> Any:
        vectors = self._services.embedding.documents([item.record.content for item in memories])
        ready = [(item, _indexed(item, made)) for item, made in zip(memories, vectors, strict=True)]

        def work(transaction: Transaction) -> Counter[str]:
            note(transaction)
            outcomes = Counter(self._put(transaction, item, memory) for item, memory in ready)
            self._put_others(transaction, sound)
            self._put_keepsakes(transaction, [line.keepsake for line in sound])
            return outcomes

        return work

    def _put(self, transaction: Transaction, item: ExportedMemory, memory: Indexed) -> str:
        user, memory_id = self._user, item.record.id
        if transaction.has(user, memory_id):
            return "duplicate"
        transaction.insert(memory, None)
        transaction.put_history(user, item.history)
        if item.audits:
            # Entries have other numbers here, in the same order.
            numbers = [entry.entry for entry in transaction.history(user, memory_id)]
            moved = [replace(audit, entry=numbers[place]) for place, audit in item.audits]
            transaction.carry(user, moved)
        if item.retrieved is not None:
            counted = {memory_id: item.retrieved.count}
            transaction.add_retrievals(user, counted, item.retrieved.last_at)
        return "stored"

    def _put_others(self, transaction: Transaction, lines: Sequence[ExportedLine]) -> None:
        pairs = [line.dependency for line in lines if line.dependency is not None]
        transaction.put_dependencies(self._user, pairs)
        wanted: dict[str, int] = {}
        for line in lines:
            for name, amount in line.counters.items():
                wanted[name] = max(amount, wanted.get(name, 0))
        known = self._services.store.counters(self._user) if wanted else {}
        for name, amount in wanted.items():
            # Only what is missing: importing an export twice must not count twice.
            transaction.count(self._user, name, max(0, amount - known.get(name, 0)))

    def _put_keepsakes(self, transaction: Transaction, kept: Sequence[Keepsake | None]) -> None:
        transaction.carry(self._user, [one for one in kept if isinstance(one, Carried)])
        reports = {one.id: one for one in kept if isinstance(one, FeedbackEvent)}
        for event in reports.values():
            if not self._has_report(event.id):
                transaction.add_feedback(event)
        for one in kept:
            if isinstance(one, KeptRule) and not _has_rule(transaction, self._user, one.rule.id):
                transaction.put_rule(self._user, one.rule)
                for told in one.events:
                    transaction.add_rule_event(self._user, told)

    def _has_report(self, feedback_id: str) -> bool:
        try:
            return self._services.store.feedback_event(self._user, feedback_id).id == feedback_id
        except NotFound:
            return False


def _has_rule(transaction: Transaction, user: str, rule_id: str) -> bool:
    try:
        return transaction.rule(user, rule_id).id == rule_id
    except NotFound:
        return False


def _indexed(item: ExportedMemory, vectors: dict[str, Vectors]) -> Indexed:
    memory = indexed(item.record, vectors)
    return replace(memory, attributes=(*item.about, *memory.attributes))
