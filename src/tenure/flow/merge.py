"""What a memory becomes when another text joins it, and when it must not: pure decisions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from tenure.rank.scores import PROVENANCE_LADDER
from tenure.store.base import Near
from tenure.text.claims import Survivor, compare_claims
from tenure.text.reading import read_claim
from tenure.types import MemoryRecord

# Reading takes time in proportion to length; a long text is held against the nearest only.
LONG_TEXT_CHARS = 2_000

Decision = Literal["stored", "merged", "superseded", "kept_both"]


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """What the similarity gate decided about a new memory, against which old ones, and why."""

    decision: Decision
    near: tuple[Near, ...] = ()
    survivor: Survivor = "new"
    reason: str = ""


def judge(new: MemoryRecord, near: list[Near], floor: float) -> GateVerdict:
    """Merge beats supersede beats keeping both; nothing near means simply stored.

    More than the nearest is looked at: among texts of one template the nearest often differs in
    its value while the true paraphrase comes second. Below the floor only a stated change counts.
    """
    kept = GateVerdict("stored")
    if not near:
        return kept
    retired: tuple[Near, ...] = ()
    reason = ""
    claim = read_claim(new.content)
    for neighbour in near[: 1 if len(new.content) > LONG_TEXT_CHARS else None]:
        verdict = compare_claims(read_claim(neighbour.memory.content), claim)
        is_near = neighbour.cosine >= floor
        if verdict.relation == "merge" and is_near and may_merge(neighbour.memory, new):
            return GateVerdict("merged", (neighbour,), verdict.survivor, verdict.reason)
        if verdict.relation == "supersede" and may_supersede(neighbour.memory, new):
            # "Now" ends every earlier value, not only the nearest one.
            retired, reason = (*retired, neighbour), reason or verdict.reason
        elif kept.decision == "stored" and is_near:
            kept = GateVerdict("kept_both", (neighbour,), "new", verdict.reason)
    return GateVerdict("superseded", retired, "new", reason) if retired else kept


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
