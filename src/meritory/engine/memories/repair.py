"""The repair of a damaged store: rows that follow from other rows are made again."""

from __future__ import annotations

from itertools import islice

from meritory.domain.errors import MeritoryError
from meritory.engine.memories.embedding import Progress
from meritory.engine.memories.write import BATCH_LIMIT, indexed
from meritory.engine.services import Services
from meritory.store.contract.memories import Indexed
from meritory.store.contract.store import Transaction


def repair(services: Services, progress: Progress) -> list[str]:
    """Repair the store; return what was done, one sentence each."""
    done = services.store.repair()
    for step in (_reindex, _reembed):
        try:
            done.append(step(services, progress))
        except MeritoryError as error:
            done.append(f"not finished: {error.message}")
    return done


def _reindex(services: Services, progress: Progress) -> str:
    store, count = services.store, 0
    for user in store.users():
        walk = (indexed(record, {}) for record in store.walk(user))
        while batch := list(islice(walk, BATCH_LIMIT)):
            store.write(user, lambda transaction, batch=batch: _write(transaction, batch))
            count += len(batch)
    return f"memories whose words and entities were indexed again: {count}"


def _write(transaction: Transaction, batch: list[Indexed]) -> None:
    for memory in batch:
        transaction.reindex(memory)


def _reembed(services: Services, progress: Progress) -> str:
    store, embedding = services.store, services.embedding
    if embedding.is_off:
        return "no vectors made: the embedder is off (embedder.kind = none)"
    name = embedding.wanted().name
    before = store.embedding_state(name).embedded_count
    embedding.reembed(progress, lambda: False)
    return f"vectors made again: {store.embedding_state(name).embedded_count - before}"
