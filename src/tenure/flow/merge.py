"""What a memory becomes when another text joins it, and when it must not: pure decisions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from tenure.rank.scores import PROVENANCE_LADDER
from tenure.store.base import Near
from tenure.text.claims import Survivor, compare
from tenure.types import MemoryRecord

Decision = Literal["stored", "merged", "superseded", "kept_both"]


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """What the similarity gate decided about a new memory, against which old one, and why."""

    decision: Decision
    near: Near | None = None
    survivor: Survivor = "new"
    reason: str = ""


def judge(new: MemoryRecord, near: list[Near]) -> GateVerdict:
    """Merge beats supersede beats keeping both; nothing near means simply stored.

    More than the nearest is looked at: among texts of one template the nearest often differs in
    its value while the true paraphrase comes second.
    """
    kept = GateVerdict("stored")
    superseding: GateVerdict | None = None
    for neighbour in near:
        verdict = compare(neighbour.memory.content, new.content)
        if verdict.relation == "merge" and may_merge(neighbour.memory, new):
            return GateVerdict("merged", neighbour, verdict.survivor, verdict.reason)
        if (
            verdict.relation == "supersede"
            and superseding is None
            and may_supersede(neighbour.memory, new)
        ):
            superseding = GateVerdict("superseded", neighbour, "new", verdict.reason)
        if kept.decision == "stored":
            kept = GateVerdict("kept_both", neighbour, "new", verdict.reason)
    return superseding or kept


def stated_at(record: MemoryRecord) -> datetime:
    """When the claim began to hold, as far as is known."""
    return record.valid_from or record.created_at


def _is_guarded(old: MemoryRecord, new: MemoryRecord) -> bool:
    """A person's pin or constraint is not rewritten or silenced by anybody but a person."""
    return (old.pinned or old.kind == "constraint") and new.origin != "user"


def may_merge(old: MemoryRecord, new: MemoryRecord) -> bool:
    """Whether two wordings of one claim may share a row: same trust and validity, no guard."""
    return (
        old.trust == new.trust and old.valid_until == new.valid_until and not _is_guarded(old, new)
    )


def may_supersede(old: MemoryRecord, new: MemoryRecord) -> bool:
    """Whether a changed claim may retire the old one: newer, trusted as much, stated as firmly."""
    return (
        stated_at(new) >= stated_at(old)
        and (new.trust == "trusted" or old.trust == "untrusted")
        and _step(new) <= _step(old)
        and not _is_guarded(old, new)
    )


def merged(old: MemoryRecord, new: MemoryRecord, survivor: Survivor, now: datetime) -> MemoryRecord:
    """The old memory with the new one taken in; nothing either of them knew is dropped."""
    stronger = min((old, new), key=_step)
    same_class = old.provenance == new.provenance
    return replace(
        old,
        content=old.content if survivor == "old" else new.content,
        kind=_kind(old, new),
        provenance=stronger.provenance,
        confidence=max(old.confidence, new.confidence) if same_class else stronger.confidence,
        importance=max(old.importance, new.importance),
        pinned=old.pinned or new.pinned,
        demotion=min(old.demotion, new.demotion),
        tags=tuple(dict.fromkeys((*old.tags, *new.tags))),
        sources=tuple(dict.fromkeys((*old.sources, *new.sources))),
        valid_from=old.valid_from or new.valid_from,
        access_count=old.access_count + new.access_count,
        trust="trusted" if new.origin == "user" else old.trust,
        updated_at=now,
    )


def _kind(
    old: MemoryRecord, new: MemoryRecord
) -> Literal["fact", "preference", "decision", "procedure", "episode", "lesson", "constraint"]:
    """A constraint stays one; a plain fact gives way to a more telling kind."""
    if "constraint" in (old.kind, new.kind):
        return "constraint"
    return new.kind if old.kind == "fact" else old.kind


def _step(record: MemoryRecord) -> int:
    return PROVENANCE_LADDER.index(record.provenance)
