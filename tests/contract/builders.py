"""Small things to store, written the way the store wants them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import numpy as np

from meritory.domain.memory import Action, EmbedderInfo, MemoryRecord, Scope
from meritory.store.contract.memories import Attribute, FloatArray, Indexed, MemoryChange, Search
from meritory.store.contract.store import Store, Transaction
from meritory.text.normalize import content_hash
from meritory.text.terms import index_words

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
EMBEDDER = EmbedderInfo("unit-4", 4, '{"kind": "unit"}')
OTHER_EMBEDDER = EmbedderInfo("unit-3", 3, '{"kind": "other"}')


def memory_id(number: int) -> str:
    """An id as long as real ones, in the order of the numbers."""
    return f"{number:026d}"


def record(number: int, content: str | None = None, **fields: Any) -> MemoryRecord:
    """A memory with a given number."""
    at = NOW + timedelta(seconds=number)
    values = {"created_at": at, "updated_at": at, **fields}
    return MemoryRecord(id=memory_id(number), content=content or f"claim number {number}", **values)


def about(name: str, aspect: str = "fact", *, is_stated: bool = False) -> Attribute:
    """An entity under an aspect."""
    return Attribute(f"topic:{name}", "topic", name, aspect, is_stated)


def indexed(memory: MemoryRecord, **derived: Any) -> Indexed:
    """A memory with what is derived from its text; `derived` adds vectors and entities."""
    return Indexed(
        memory,
        index_words(" ".join((memory.content, *memory.tags))),
        content_hash(memory.content),
        **derived,
    )


def change(action: Action = "create", operation: str = "op", **fields: Any) -> MemoryChange:
    """The note for a history entry."""
    return MemoryChange(operation, NOW, "tester", action, **fields)


def unit(*numbers: float) -> FloatArray:
    """A vector of length one."""
    vector = np.array(numbers, np.float32)
    length = float(np.linalg.norm(vector))
    return np.asarray(vector / length if length else vector, np.float32)


def insert(store: Store, *memories: MemoryRecord | Indexed) -> None:
    """Stores memories, those of one user in one transaction."""
    items = [m if isinstance(m, Indexed) else indexed(m) for m in memories]

    def work(user: str, transaction: Transaction) -> None:
        for item in items:
            if item.record.user == user:
                transaction.insert(item, change())

    for user in dict.fromkeys(item.record.user for item in items):
        store.write(user, partial(work, user))


def update(
    store: Store, before: MemoryRecord, memory: MemoryRecord | Indexed, action: Action = "update"
) -> None:
    """Replaces a memory, with what it was before in its history."""
    item = memory if isinstance(memory, Indexed) else indexed(memory)
    store.write(item.record.user, lambda t: t.update(item, change(action, before=before)))


def words_search(scope: Scope, *terms: str) -> Search:
    """A search by words alone."""
    return Search(scope, terms)


def vector_search(scope: Scope, *numbers: float) -> Search:
    """A search by a vector alone."""
    return Search(scope, (), embedder=EMBEDDER.name, vector=unit(*numbers))


def found(store: Store, search: Search) -> list[str]:
    """The ids a search leads to, in order of id."""
    rows = store.search(search).rows
    return ids(store.fetch(search.scope, rows, NOW).values())


def ids(memories: Iterable[MemoryRecord]) -> list[str]:
    """Ids in order."""
    return sorted(memory.id for memory in memories)


def numbers(memory_ids: Sequence[str]) -> list[int]:
    """Back from ids to numbers."""
    return [int(identity) for identity in memory_ids]
