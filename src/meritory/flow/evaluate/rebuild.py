"""The memories of one store written anew into another, for what is decided at the door."""

from __future__ import annotations

from collections import Counter

from meritory.flow.services import Services
from meritory.flow.write import write
from meritory.types import Draft, MemoryRecord

MERGES_READ = 10_000


def rebuild(source: Services, target: Services) -> dict[str, int]:
    """Writes what is live, and what was merged away, in the order it was learned; counts outcomes.

    What was merged stands on its own again, so that another gate may decide otherwise.
    """
    found = {one.id: one for one in source.store.walk(source.user) if one.is_live}
    for scope in {one.scope for one in found.values()}:
        for entry in source.store.merges(scope, MERGES_READ):
            for part in (entry.before, entry.other):
                if part is not None and entry.memory_id in found:
                    found.setdefault(f"{part.id}/{part.content}", part)
    learned = sorted(found.values(), key=lambda one: (one.created_at, one.id))
    results = write(target, [_draft(one) for one in learned])
    return dict(Counter(result.outcome for result in results))


def _draft(record: MemoryRecord) -> Draft:
    return Draft(
        content=record.content,
        user=record.user,
        agent=record.agent,
        project=record.project,
        kind=record.kind,
        provenance=record.provenance,
        origin=record.origin,
        confidence=record.confidence,
        importance=record.importance,
        pinned=record.pinned,
        tags=record.tags,
        source=record.source,
        valid_from=record.valid_from,
        valid_until=record.valid_until,
        created_at=record.created_at,
    )
