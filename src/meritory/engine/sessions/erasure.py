"""Erase a session with everything that was recorded of it."""

from __future__ import annotations

from dataclasses import dataclass

from meritory.engine.jobs.runner import EXTRACT_JOB
from meritory.engine.memories.purge import purge
from meritory.engine.services import Services
from meritory.engine.sessions.ratings import LEARN_JOB


@dataclass(frozen=True, slots=True)
class ErasedSession:
    """The number of erased rows by table, and the memories that were erased with the session."""

    key: str
    rows: dict[str, int]
    memory_ids: tuple[str, ...]
    # Memories that were extracted from the session and stay.
    kept_memory_count: int


def memories_only_from(services: Services, user: str, key: str) -> tuple[list[str], int]:
    """Return the memories that were learned in this session only, and how many in others too."""
    learned = [
        record
        for record in services.store.walk(user)
        if any(source.session_key == key for source in record.sources)
    ]
    only = [
        record.id
        for record in learned
        if all(source.session_key == key for source in record.sources)
    ]
    return only, len(learned) - len(only)


def erase_session(
    services: Services, user: str, key: str, *, with_memories: bool = False
) -> ErasedSession:
    """Erase a session; with `with_memories` also the memories that were learned only in it.

    This cannot be undone. Raise NotFound if the session was never started.
    """
    store = services.store
    session = store.session(user, key)
    only, others = memories_only_from(services, user, key)
    erased = only if with_memories else []
    for memory_id in erased:
        purge(services, store.get(user, memory_id))
    kinds = (LEARN_JOB, EXTRACT_JOB)
    rows = store.write(user, lambda t: t.erase_session(user, session.key, kinds))
    store.drop_history(user)
    # The database may keep deleted text in free pages and in its log until it is compacted.
    store.erase_traces()
    return ErasedSession(key, rows, tuple(erased), len(only) - len(erased) + others)
