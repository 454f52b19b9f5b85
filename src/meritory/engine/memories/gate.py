"""What a memory becomes when another text joins it, and when it must not: pure decisions."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import cache
from typing import Literal

from meritory.domain.memory import TAG_LIMIT_COUNT, HistoryEntry, Kind, MemoryRecord, Source
from meritory.rank.composite import PROVENANCE_LADDER
from meritory.store.contract.store import Near
from meritory.text.claims.compare import (
    ClaimVerdict,
    Survivor,
    clearly_differ,
    compare_claims,
    words_of,
)
from meritory.text.claims.read import read_claim

SOURCE_LIMIT_COUNT = 64
# What an undo leaves alone; everything else about a claim is put back.
_NOT_CLAIMED = frozenset(
    {"id", "user", "created_at", "updated_at", "embedder", "dimension"}
    | {"access_count", "last_accessed", "usefulness"}
)
CHANGEABLE = tuple(f.name for f in fields(MemoryRecord) if f.name not in _NOT_CLAIMED)
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
    # The new text is read at most once, and only if a neighbour is close enough in words.
    words, claim = words_of(new.content), cache(read_claim)
    for neighbour in near[: 1 if len(new.content) > LONG_TEXT_CHARS else None]:
        old = neighbour.memory.content
        if clearly_differ(words_of(old), words):
            verdict = ClaimVerdict("keep_both", "new", "they share few words")
        else:
            verdict = compare_claims(read_claim(old), claim(new.content))
        is_near = neighbour.cosine >= floor
        survivor = verdict.survivor
        if verdict.relation == "merge" and is_near and may_merge(neighbour.memory, new, survivor):
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


def is_weaker(one: MemoryRecord, other: MemoryRecord) -> bool:
    """Whether one text has less standing: a weaker provenance, less trust, or no person behind."""
    return (
        _step(one) > _step(other)
        or (one.trust == "untrusted" and other.trust == "trusted")
        or (one.origin != "user" and other.origin == "user")
    )


def may_merge(old: MemoryRecord, new: MemoryRecord, survivor: Survivor) -> bool:
    """Whether two wordings of one claim may share a row: same trust and validity, no guard.

    The text that survives must not be the weaker one: else an agent's words would come to stand
    as what the user said.
    """
    kept, dropped = (old, new) if survivor == "old" else (new, old)
    return (
        old.trust == new.trust
        and old.valid_until == new.valid_until
        and not is_weaker(kept, dropped)
        and not _is_guarded(old, new)
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
        tags=tuple(dict.fromkeys((*old.tags, *new.tags)))[:TAG_LIMIT_COUNT],
        sources=_united(old.sources, new.sources),
        valid_from=old.valid_from or new.valid_from,
        access_count=old.access_count + new.access_count,
        trust="trusted" if new.origin == "user" else old.trust,
        updated_at=now,
    )


def may_renew(old: MemoryRecord, new: MemoryRecord) -> bool:
    """Whether the same text, said again, may change what is known about it."""
    return not is_weaker(new, old) and not _is_guarded(old, new)


def refreshed(old: MemoryRecord, new: MemoryRecord, now: datetime) -> MemoryRecord:
    """The old memory after the same text came again: renewed by an equal, noted from a weaker."""
    if not may_renew(old, new):
        return replace(old, sources=_united(old.sources, new.sources), updated_at=now)
    # Said again, it holds as it is said now: with a new end, or with none.
    return replace(merged(old, new, "old", now), valid_until=new.valid_until)


def undone(current: MemoryRecord, entry: HistoryEntry, now: datetime) -> MemoryRecord:
    """A memory without one of its changes: what later changes made of it stays."""
    before, after = entry.before or current, entry.after or current
    back = {
        name: getattr(before, name)
        for name in CHANGEABLE
        if getattr(current, name) == getattr(after, name)
    }
    return replace(current, **back, updated_at=now)


def _united(old: tuple[Source, ...], new: tuple[Source, ...]) -> tuple[Source, ...]:
    """Both, the first and the latest ones where there are too many."""
    both = tuple(dict.fromkeys((*old, *new)))
    return both if len(both) <= SOURCE_LIMIT_COUNT else (both[0], *both[1 - SOURCE_LIMIT_COUNT :])


def _kind(old: MemoryRecord, new: MemoryRecord) -> Kind:
    """A constraint stays one; a plain fact gives way to a more telling kind."""
    if "constraint" in (old.kind, new.kind):
        return "constraint"
    return new.kind if old.kind == "fact" else old.kind


def _step(record: MemoryRecord) -> int:
    return PROVENANCE_LADDER.index(record.provenance)
