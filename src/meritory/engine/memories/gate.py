"""The similarity gate: merge a new memory into a near one, supersede it, or keep both.

The decisions are pure; `write` applies them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from typing import Any, Literal

from meritory.domain.memory import (
    METADATA_LIMIT_CHARS,
    METADATA_LIMIT_COUNT,
    TAG_LIMIT_COUNT,
    HistoryEntry,
    Kind,
    MemoryRecord,
    Source,
    metadata_text,
)
from meritory.domain.policy import Policy
from meritory.engine.memories.validate import settled
from meritory.model.succession import succession_model
from meritory.rank.hybrid import PROVENANCE_LADDER
from meritory.store.contract.memories import Near
from meritory.text.claims import compare, cue_words
from meritory.text.claims.compare import Survivor
from meritory.text.claims.reading import Claim, read_claim
from meritory.text.succession import READ_CHARS, features, sight

# From this cosine a neighbour is reported as similar, by embedder (ADR 0005).
GATE_THRESHOLDS = {"static-minilm-256-v1": 0.75}
GATE_THRESHOLD_DEFAULT = 0.80
# From this cosine two texts are compared. Words decide, so a poor value costs duplicates and never
# a fact: another value or voice moves a short text far under an embedder that adds up words.
COMPARE_THRESHOLD = 0.45
# The same for a text that states a change; few texts do.
CHANGE_THRESHOLD = 0.2
SOURCE_LIMIT_COUNT = 64
# Fields that an undo does not touch; it restores all others.
_NOT_REVERTIBLE = frozenset(
    {"id", "user", "created_at", "updated_at", "embedder", "dimension"}
    | {"access_count", "last_accessed", "usefulness"}
)
_REVERTIBLE = tuple(f.name for f in fields(MemoryRecord) if f.name not in _NOT_REVERTIBLE)
# Parsing time grows with length, so a long text is compared with its nearest neighbour only.
LONG_TEXT_CHARS = 2_000
# So many texts that were compared are kept as read, if they are not longer than this.
TEXTS_KEPT = 1_024
KEPT_TEXT_CHARS = 500
# A new memory gets at most this many links to memories that it probably gives a newer value.
UNSURE_LIMIT = 2
# Notes of one day are often parts of one story.
UNSURE_APART = timedelta(days=1)

Decision = Literal["stored", "merged", "superseded", "kept_both"]


@dataclass(frozen=True, slots=True)
class Gate:
    """The embedder whose vectors the gate compares, and the lowest cosines of a neighbour."""

    embedder: str
    # For a neighbour that is reported as similar.
    floor: float
    # For a neighbour that is compared.
    compare_floor: float

    def floor_for(self, record: MemoryRecord, *, is_bulk: bool = True) -> float:
        """Return the lowest cosine at which a neighbour of this memory is compared with it.

        In bulk, such as an import, far neighbours of stated changes would double the cost.
        """
        # Of a long text, only a near neighbour can be the same claim.
        if len(record.content) > LONG_TEXT_CHARS:
            return self.floor
        # "We moved our CI to Buildkite" has little in common with where the CI was before.
        if not is_bulk and _text_of(record.content).may_state_change:
            return min(self.compare_floor, CHANGE_THRESHOLD)
        return self.compare_floor


def gate_threshold(embedder: str) -> float:
    """Return the calibrated threshold of the similarity gate for an embedder's vectors."""
    return GATE_THRESHOLDS.get(embedder, GATE_THRESHOLD_DEFAULT)


def gate_in_use(policy: Policy, serving: str | None) -> Gate | None:
    """Return the configured gate; None if it is off or no embedder is serving."""
    if serving is None or not policy.gate.enabled:
        return None
    if policy.gate.threshold is not None:
        return Gate(serving, policy.gate.threshold, policy.gate.threshold)
    floor = gate_threshold(serving)
    return Gate(serving, floor, min(floor, COMPARE_THRESHOLD))


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """The decision about a new memory, the neighbours that it concerns, and the reason."""

    decision: Decision
    near: tuple[Near, ...] = ()
    survivor: Survivor = "new"
    reason: str = ""
    # Neighbours that give the same claim another value; the later one of two holds now.
    chained: tuple[Near, ...] = ()
    # Neighbours that probably do, by the model.
    unsure: tuple[Near, ...] = ()


class _Text:
    """A text as the gate reads it: its words, and its claim once a comparison needs it."""

    def __init__(self, content: str) -> None:
        self._content = content
        self.words = compare.words_of(content)

    @cached_property
    def openings(self) -> frozenset[str]:
        """The first characters of its words of content."""
        return compare.openings_of(self.words)

    @cached_property
    def may_state_change(self) -> bool:
        """Whether it has any word with which a change may be stated."""
        # Most texts have none, and reading takes longer.
        may_have_cues = cue_words.may_have_cues(self._content, self.words)
        return may_have_cues and self.claim.may_state_change

    @cached_property
    def claim(self) -> Claim:
        """What it claims."""
        return read_claim(self._content)


# Of texts that are the neighbours of many, as in an import; the limits bound the memory they take.
_kept_text = lru_cache(maxsize=TEXTS_KEPT)(_Text)


def _text_of(content: str) -> _Text:
    return (_kept_text if len(content) <= KEPT_TEXT_CHARS else _Text)(content)


def near_or_related(news: Sequence[str], floor: float) -> Callable[[int, str, float], bool]:
    """Return the check whether a neighbour of one of these texts matters: it is near or related."""
    texts = [_text_of(content) for content in news]
    return lambda at, old, cosine: (
        cosine >= floor
        or not _is_apart(_text_of(old), texts[at])
        or _likelihood(old, news[at], cosine) >= 0.0
    )


def _likelihood(old: str, new: str, cosine: float) -> float:
    """Return how far above its threshold the model holds a text for a newer value of another."""
    if max(len(old), len(new)) > READ_CHARS or not (seen := sight(new)).may_be_newer:
        return -math.inf
    model = succession_model()
    return float(model.score(features(sight(old), seen, cosine))) - model.threshold


def _is_apart(old: _Text, new: _Text) -> bool:
    """Return whether words show that two texts, whose vectors are not near, are two claims."""
    # Such neighbours are many, and most only share a topic.
    if compare.clearly_differ(old.words, new.words):
        return True
    if compare.share_little(old.openings, new.openings):
        return True
    return compare.differ_widely(old.openings, new.openings) and not new.may_state_change


def judge(new: MemoryRecord, near: list[Near], floor: float, *, by_person: bool) -> GateVerdict:
    """Decide about a new memory: merge before supersede before keep both.

    All neighbours are compared, not only the nearest: among texts of one template the nearest
    often differs in its value while the true paraphrase comes second. The floor is that of the
    neighbours that are reported as similar.
    """
    fallback = GateVerdict("stored")
    if not near:
        return fallback
    retired: tuple[Near, ...] = ()
    chained: tuple[Near, ...] = ()
    open_: list[Near] = []
    reason = ""
    text = _text_of(new.content)
    for neighbour in near[: 1 if len(new.content) > LONG_TEXT_CHARS else None]:
        old = _text_of(neighbour.memory.content)
        is_near = neighbour.cosine >= floor
        if compare.clearly_differ(old.words, text.words) if is_near else _is_apart(old, text):
            verdict = compare.ClaimVerdict("keep_both", "new", "they share few words")
        else:
            verdict = compare.compare_claims(old.claim, text.claim)
        survivor, record = verdict.survivor, neighbour.memory
        # Only a person changes or replaces a pin or a constraint.
        is_free = by_person or not record.is_binding
        may_merge = is_free and _may_merge(record, new, survivor)
        if verdict.relation == "merge" and may_merge:
            return GateVerdict("merged", (neighbour,), survivor, verdict.reason)
        if verdict.relation == "supersede" and is_free and may_supersede(record, new):
            # A stated change ends every earlier value, not only the nearest one.
            retired, reason = (*retired, neighbour), reason or verdict.reason
            continue
        is_chained = verdict.relation in ("chain", "supersede")
        if is_chained:
            chained = (*chained, neighbour)
        elif verdict.relation == "keep_both":
            open_.append(neighbour)
        # The writer learns of another value of the claim, however far its text is.
        if fallback.decision == "stored" and (is_near or is_chained):
            fallback = GateVerdict("kept_both", (neighbour,), "new", verdict.reason)
    decided = GateVerdict("superseded", retired, "new", reason) if retired else fallback
    return replace(decided, chained=chained, unsure=_unsure(new, open_))


def _unsure(new: MemoryRecord, near: Sequence[Near]) -> tuple[Near, ...]:
    """Return the neighbours that word rules left open and that the model links, likeliest first."""
    likely: list[tuple[float, int]] = []
    for at, neighbour in enumerate(near):
        record = neighbour.memory
        passed = since(new) - since(record)
        if abs(passed) < UNSURE_APART:
            continue
        older, newer = (record, new) if passed > timedelta(0) else (new, record)
        found = _likelihood(older.content, newer.content, neighbour.cosine)
        if found >= 0.0 and may_renew(older, newer, by_person=False):
            likely.append((-found, at))
    return tuple(near[at] for _, at in sorted(likely)[:UNSURE_LIMIT])


def since(record: MemoryRecord) -> datetime:
    """Return the moment from which a memory holds."""
    return record.valid_from or record.created_at


def _is_weaker(record: MemoryRecord, other: MemoryRecord) -> bool:
    """Return whether a memory has a weaker provenance, less trust, or no person behind it."""
    return (
        _provenance_rank(record) > _provenance_rank(other)
        or (record.trust == "untrusted" and other.trust == "trusted")
        or (record.origin != "user" and other.origin == "user")
    )


def _may_merge(old: MemoryRecord, new: MemoryRecord, survivor: Survivor) -> bool:
    """Return whether two wordings of one claim may share a row.

    They need the same trust and validity. The surviving text must not be the weaker one, or an
    agent's wording would be attributed to the user.
    """
    kept, dropped = (old, new) if survivor == "old" else (new, old)
    return (
        old.trust == new.trust
        and old.valid_until == new.valid_until
        and not _is_weaker(kept, dropped)
    )


def may_supersede(old: MemoryRecord, new: MemoryRecord) -> bool:
    """Return whether a changed claim is newer and of no less trust and provenance than the old."""
    return (
        since(new) >= since(old)
        and (new.trust == "trusted" or old.trust == "untrusted")
        and _provenance_rank(new) <= _provenance_rank(old)
    )


def merged(old: MemoryRecord, new: MemoryRecord, survivor: Survivor, now: datetime) -> MemoryRecord:
    """Return the old memory with the details of the new one added."""
    stronger = min((old, new), key=_provenance_rank)
    same_class = old.provenance == new.provenance
    # A constraint remains one; a plain fact takes the more specific kind.
    kind: Kind = new.kind if old.kind == "fact" else old.kind
    if "constraint" in (old.kind, new.kind):
        kind = "constraint"
    record = replace(
        old,
        content=old.content if survivor == "old" else new.content,
        kind=kind,
        provenance=stronger.provenance,
        confidence=max(old.confidence, new.confidence) if same_class else stronger.confidence,
        importance=max(old.importance, new.importance),
        pinned=old.pinned or new.pinned,
        demotion=min(old.demotion, new.demotion),
        tags=tuple(dict.fromkeys((*old.tags, *new.tags)))[:TAG_LIMIT_COUNT],
        metadata=_joined(old.metadata, new.metadata),
        sources=_united(old.sources, new.sources),
        valid_from=old.valid_from or new.valid_from,
        access_count=old.access_count + new.access_count,
        trust="trusted" if new.origin == "user" else old.trust,
        updated_at=now,
    )
    return settled(record)


def may_renew(old: MemoryRecord, new: MemoryRecord, *, by_person: bool) -> bool:
    """Return whether a repeated text may change the details of the stored memory."""
    return not _is_weaker(new, old) and (by_person or not old.is_binding)


def refreshed(
    old: MemoryRecord, new: MemoryRecord, now: datetime, *, by_person: bool
) -> MemoryRecord:
    """Return the old memory after the same text was written again."""
    # A weaker writer only adds a source.
    if not may_renew(old, new, by_person=by_person):
        return replace(old, sources=_united(old.sources, new.sources), updated_at=now)
    # The latest statement decides how long the memory is valid.
    return replace(merged(old, new, "old", now), valid_until=new.valid_until)


def revert(current: MemoryRecord, entry: HistoryEntry, now: datetime) -> MemoryRecord:
    """Return a memory without one of its changes; fields changed later are kept."""
    before, after = entry.before or current, entry.after or current
    restored = {
        name: getattr(before, name)
        for name in _REVERTIBLE
        if getattr(current, name) == getattr(after, name)
    }
    return replace(current, **restored, updated_at=now)


def _joined(old: Mapping[str, Any], new: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metadata of both, the new values where they differ; the old if it is too much."""
    both = {**old, **new}
    is_small = len(both) <= METADATA_LIMIT_COUNT
    return both if is_small and len(metadata_text(both)) <= METADATA_LIMIT_CHARS else old


def _united(old: tuple[Source, ...], new: tuple[Source, ...]) -> tuple[Source, ...]:
    """Return all sources; above the limit the first and the latest ones."""
    both = tuple(dict.fromkeys((*old, *new)))
    return both if len(both) <= SOURCE_LIMIT_COUNT else (both[0], *both[1 - SOURCE_LIMIT_COUNT :])


def _provenance_rank(record: MemoryRecord) -> int:
    return PROVENANCE_LADDER.index(record.provenance)
