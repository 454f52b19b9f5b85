"""The repair of a damaged store: rows that follow from other rows are made again."""

from __future__ import annotations

from itertools import islice

from meritory.engine.memories.embedding import Progress
from meritory.engine.memories.write import BATCH_LIMIT, indexed
from meritory.engine.services import Services
from meritory.store.contract.memories import Indexed
from meritory.store.contract.store import Transaction


def repair(services: Services, progress: Progress) -> list[str]:
    """Repair the store; return what was done, one sentence each."""
    store, embedding = services.store, services.embedding
    done = store.repair()
    count = 0
    for user in store.users():
        walk = (indexed(record, {}) for record in store.walk(user))
        while batch := list(islice(walk, BATCH_LIMIT)):
            store.write(user, lambda t, batch=batch: _reindex(t, batch))
            count += len(batch)
    done.append(f"indexed the words and entities of {count} memories again")
    if not embedding.is_off:
        name = embedding.wanted().name
        missing = store.embedding_state(name)
        embedding.reembed(progress, lambda: False)
        made = store.embedding_state(name).embedded_count - missing.embedded_count
        done.append(f"made {made} vectors again")
    return done


def _reindex(transaction: Transaction, batch: list[Indexed]) -> None:
    for memory in batch:
        transaction.reindex(memory)
