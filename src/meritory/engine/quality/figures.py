"""Quality figures of a store: audits of merges, redundancy, relevance and usefulness."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from meritory.domain.memory import PROVENANCES, HistoryEntry, Listing, MemoryRecord, Scope
from meritory.domain.quality import MergeVerdict, ShownFigure, ShownLately
from meritory.engine.memories.gate import Gate, gate_in_use, judge
from meritory.engine.memories.recall import RETRIEVED
from meritory.engine.memories.write import NEIGHBOUR_LIMIT
from meritory.engine.services import Services
from meritory.rank.features import FEATURE_VERSION, FEATURES
from meritory.rank.feedback import interval
from meritory.rank.hybrid import REQUIRED
from meritory.store.contract.memories import Near, NeighbourProbe

_PAGE = 200
# The latest merges in which unaudited ones are searched.
_AUDIT_LIMIT = 2_000
# Newer memories are among the nearest too, and are skipped.
_NEIGHBOURS_READ = 3 * NEIGHBOUR_LIMIT
WEEK = timedelta(days=7)
# To keep the page fast, only this many of the week's additions are compared with older memories.
REDUNDANT_SAMPLE = 8
ADDITIONS_MAX = 200
SESSION_COUNT = 100
GATED = ("stored", "merged", "superseded", "kept_both")
_COSINE, _TEXT = FEATURES.index("cosine"), FEATURES.index("text")
_DECIMALS = 6


@dataclass(frozen=True, slots=True)
class Audited:
    """The number of audited and of wrong merges, with the interval of the share."""

    total: int
    wrong: int
    low: float
    high: float

    @property
    def rate(self) -> float | None:
        """The share of wrong ones; None without an audit."""
        return self.wrong / self.total if self.total else None


@dataclass(frozen=True, slots=True)
class Merge:
    """One merge and its verdict."""

    entry: HistoryEntry
    verdict: MergeVerdict | None


def audited(services: Services, user: str) -> Audited:
    """Return the result of all audits."""
    verdicts = list(services.store.merge_audits(user).values())
    wrong = verdicts.count("wrong")
    low, high = interval(wrong, len(verdicts))
    return Audited(len(verdicts), wrong, round(low, 6), round(high, 6))


def merges(services: Services, user: str, limit: int, *, before: int | None = None) -> list[Merge]:
    """Return the latest merges with their verdicts, newest first, including split ones."""
    verdicts = services.store.merge_audits(user)
    entries = services.store.merges_of(user, limit, before)
    return [Merge(entry, verdicts.get(entry.entry)) for entry in entries]


def unaudited(services: Services, user: str, limit: int) -> list[Merge]:
    """Return the latest merges without a verdict, newest first."""
    open_merges: list[Merge] = []
    before: int | None = None
    for _ in range(_AUDIT_LIMIT // _PAGE):
        page = merges(services, user, _PAGE, before=before)
        # An audit is of the gate.
        open_merges += [
            m
            for m in page
            if m.verdict is None and not m.entry.undone and not m.entry.is_asked_merge
        ]
        if len(page) < _PAGE or len(open_merges) >= limit:
            break
        before = page[-1].entry.entry
    return open_merges[:limit]


def mark(services: Services, user: str, entry: int, verdict: MergeVerdict) -> Merge:
    """Store a person's verdict on a merge; NotFound if the user has no such merge."""
    merge = services.store.merge_entry(user, entry)
    now = services.world.now()
    services.store.write(user, lambda t: t.put_merge_audit(user, merge.entry, verdict, now))
    return Merge(merge, verdict)


@dataclass(frozen=True, slots=True)
class Share:
    """A count of a total, with the share and its interval; the rate of an empty total is None."""

    count: int
    total: int
    rate: float | None
    low: float
    high: float

    @classmethod
    def of(cls, count: int, total: int) -> Share:
        """Return a share with its Wilson interval."""
        low, high = interval(count, total)
        rate = round(count / total, _DECIMALS) if total else None
        return cls(count, total, rate, round(low, _DECIMALS), round(high, _DECIMALS))


@dataclass(frozen=True, slots=True)
class Worth:
    """How often shown memories of one source helped; every memory has the same weight."""

    name: str
    helped: Share
    mean_label: float | None


@dataclass(frozen=True, slots=True)
class Redundant:
    """The additions of a week, and how many of a sample the gate would merge now."""

    additions: int
    is_cut: bool
    sample: Share
    per_week: float | None


@dataclass(frozen=True, slots=True)
class BelowFloor:
    """Memories that were injected although neither their words nor their meaning matched."""

    memories: int
    shown: int
    turns: int
    per_turn: float | None


@dataclass(frozen=True, slots=True)
class QualityFigures:
    """All quality figures."""

    gate_trigger: Share
    outcomes: Mapping[str, int]
    false_merges: Audited
    split: int
    redundant: Redundant
    below_floor: BelowFloor
    by_provenance: Sequence[Worth]
    by_extractor: Sequence[Worth]
    extraction: Mapping[str, int]
    refusals: int
    retrievals: int
    janitor: Mapping[str, int]


def figures(services: Services, user: str, sample: int = REDUNDANT_SAMPLE) -> QualityFigures:
    """Return all quality figures, with bounded queries."""
    store = services.store
    counters = store.counters(user)
    shown = store.shown_lately(user, SESSION_COUNT)
    return QualityFigures(
        gate_trigger=trigger_rate(counters),
        outcomes=_with_prefix(counters, "write."),
        false_merges=audited(services, user),
        split=counters.get("split", 0),
        redundant=_redundant(services, user, sample),
        below_floor=_below_floor(shown, services.policy.recall.relevance_floor),
        by_provenance=_worths(shown.memories, "provenance", PROVENANCES),
        by_extractor=_worths(shown.memories, "extractor"),
        extraction=_with_prefix(counters, "extract"),
        refusals=store.expirable(user, "refusals", services.world.now()),
        retrievals=counters.get(RETRIEVED, 0),
        janitor={**_with_prefix(counters, "janitor."), **_with_prefix(counters, "retention.")},
    )


def trigger_rate(counters: Mapping[str, int]) -> Share:
    """Return the share of texts for which the gate found a neighbour."""
    counts = {name: counters.get(f"write.{name}", 0) for name in GATED}
    total = sum(counts.values())
    return Share.of(total - counts["stored"], total)


def _with_prefix(counters: Mapping[str, int], prefix: str) -> dict[str, int]:
    return {
        name.removeprefix(prefix).lstrip(".") if prefix.endswith(".") else name: count
        for name, count in sorted(counters.items())
        if name.startswith(prefix)
    }


def _redundant(services: Services, user: str, sample_size: int) -> Redundant:
    since = services.world.now() - WEEK
    listing = Listing(Scope(user), everywhere=True, limit=ADDITIONS_MAX)
    new = [record for record in services.store.listing(listing) if record.created_at >= since]
    sample = new[:: max(1, math.ceil(len(new) / sample_size))] if new else []
    gate = gate_in_use(services.policy, services.embedding.stored_name()) if sample else None
    share = Share.of(0, 0)
    if gate is not None:
        scopes: dict[Scope, list[MemoryRecord]] = {}
        for record in sample:
            scopes.setdefault(record.scope, []).append(record)
        merging = sum(
            judge(
                record, near[:NEIGHBOUR_LIMIT], gate.floor, by_person=record.origin == "user"
            ).decision
            == "merged"
            for scope, group in scopes.items()
            for record, near in older_neighbours(services, scope, gate, group)
        )
        share = Share.of(merging, len(sample))
    expected = None if share.rate is None else round(share.rate * len(new), 3)
    return Redundant(len(new), len(new) >= ADDITIONS_MAX, share, expected)


def _below_floor(shown: ShownLately, floor: float) -> BelowFloor:
    injected = [
        memory
        for memory in shown.memories
        if REQUIRED not in memory.origins and memory.feature_version == FEATURE_VERSION
    ]
    below = sum(
        len(memory.features) == len(FEATURES)
        and memory.features[_TEXT] <= 0.0
        # Also true for NaN, a memory without a vector.
        and not memory.features[_COSINE] >= floor
        for memory in injected
    )
    turns = shown.turn_count
    return BelowFloor(
        below, len(injected), turns, round(below / turns, _DECIMALS) if turns else None
    )


def _worths(shown: Iterable[ShownFigure], by: str, names: Sequence[str] = ()) -> list[Worth]:
    """Return by source how often a judged memory helped."""
    judged: dict[str, list[tuple[float, bool]]] = {name: [] for name in names}
    for memory in shown:
        name = getattr(memory, by)
        if name is not None and memory.label is not None:
            judged.setdefault(name, []).append((memory.label, memory.has_helped))
    return [
        Worth(
            name,
            Share.of(sum(has_helped for _, has_helped in rows), len(rows)),
            round(sum(label for label, _ in rows) / len(rows), _DECIMALS) if rows else None,
        )
        for name, rows in judged.items()
    ]


def older_neighbours(
    services: Services, scope: Scope, gate: Gate, batch: Sequence[MemoryRecord]
) -> Iterator[tuple[MemoryRecord, list[Near]]]:
    """Yield each memory that has a vector with its older neighbours, nearest first."""
    vectors = services.store.vectors(scope.user, gate.embedder, [record.id for record in batch])
    embedded = [r for r in batch if r.id in vectors and np.any(vectors[r.id])]
    if not embedded:
        return
    matrix = np.stack([vectors[record.id] for record in embedded]).astype(np.float32)
    neighbours = services.store.nearest(
        NeighbourProbe(scope, gate.embedder, matrix, _NEIGHBOURS_READ, gate.floor)
    )
    for record, near in zip(embedded, neighbours, strict=True):
        age = (record.created_at, record.id)
        yield record, [n for n in near if (n.memory.created_at, n.memory.id) < age]
