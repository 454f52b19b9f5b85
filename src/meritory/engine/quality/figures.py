"""What people say of merges: right or wrong, one by one, and what that says of the gate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from meritory.domain.memory import PROVENANCES, HistoryEntry, Listing, MemoryRecord, Scope
from meritory.domain.quality import MergeVerdict, ShownFigure, ShownLately
from meritory.engine.memories.gate import Gate, gate_in_use, judge
from meritory.engine.memories.retrieval_counts import RETRIEVED
from meritory.engine.memories.write import NEIGHBOUR_LIMIT
from meritory.engine.services import Services
from meritory.rank.candidates import REQUIRED
from meritory.rank.features import FEATURE_VERSION, FEATURES
from meritory.rank.risk import interval
from meritory.store.contract.store import Near, NeighbourProbe

_PAGE = 200
# So many merges are looked through for those that nobody has audited yet.
_LOOK_AT = 2_000


@dataclass(frozen=True, slots=True)
class Audited:
    """How many merges were audited and were wrong, with the interval of that share."""

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
    """One merge with what was said about it."""

    entry: HistoryEntry
    verdict: MergeVerdict | None


def audited(services: Services, user: str) -> Audited:
    """What all audits say."""
    verdicts = list(services.store.merge_audits(user).values())
    wrong = verdicts.count("wrong")
    low, high = interval(wrong, len(verdicts))
    return Audited(len(verdicts), wrong, round(low, 6), round(high, 6))


def merges(services: Services, user: str, limit: int, *, before: int | None = None) -> list[Merge]:
    """The latest merges with their verdicts, newest first, those split again among them."""
    verdicts = services.store.merge_audits(user)
    found = services.store.merges_of(user, limit, before)
    return [Merge(entry, verdicts.get(entry.entry)) for entry in found]


def unaudited(services: Services, user: str, limit: int) -> list[Merge]:
    """The latest merges that nobody has said anything about, newest first."""
    found: list[Merge] = []
    before: int | None = None
    for _ in range(_LOOK_AT // _PAGE):
        page = merges(services, user, _PAGE, before=before)
        found += [one for one in page if one.verdict is None and not one.entry.undone]
        if len(page) < _PAGE or len(found) >= limit:
            break
        before = page[-1].entry.entry
    return found[:limit]


def mark(services: Services, user: str, entry: int, verdict: MergeVerdict) -> Merge:
    """Notes what a person says about a merge; NotFound when it is none of theirs."""
    known = services.store.merge_entry(user, entry)
    now = services.world.now()
    services.store.write(lambda t: t.put_merge_audit(user, known.entry, verdict, now))
    return Merge(known, verdict)


WEEK = timedelta(days=7)
# A page is not to wait: so many of the week's additions are held against older memories.
REDUNDANT_SAMPLE = 8
ADDITIONS_MAX = 200
SESSION_COUNT = 100
GATED = ("stored", "merged", "superseded", "kept_both")
_COSINE, _TEXT = FEATURES.index("cosine"), FEATURES.index("text")
_DECIMALS = 6


@dataclass(frozen=True, slots=True)
class Share:
    """So many of so many, with the interval of that share; rate is None of none."""

    count: int
    total: int
    rate: float | None
    low: float
    high: float

    @classmethod
    def of(cls, count: int, total: int) -> Share:
        """A share with its Wilson interval."""
        low, high = interval(count, total)
        rate = round(count / total, _DECIMALS) if total else None
        return cls(count, total, rate, round(low, _DECIMALS), round(high, _DECIMALS))


@dataclass(frozen=True, slots=True)
class Worth:
    """What memories of one source were worth where they were shown, no weight applied."""

    name: str
    helped: Share
    mean_label: float | None


@dataclass(frozen=True, slots=True)
class Redundant:
    """The week's additions, and how many of a sample the gate would merge by now."""

    additions: int
    is_cut: bool
    sample: Share
    per_week: float | None


@dataclass(frozen=True, slots=True)
class BelowFloor:
    """What was shown unasked although neither words nor meaning speak for it."""

    memories: int
    shown: int
    turns: int
    per_turn: float | None


@dataclass(frozen=True, slots=True)
class QualityFigures:
    """All of them."""

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
    """Every figure, out of bounded questions to the store."""
    store = services.store
    counters = store.counters(user)
    shown = store.shown_lately(user, SESSION_COUNT)
    return QualityFigures(
        gate_trigger=trigger_rate(counters),
        outcomes=_led_by(counters, "write."),
        false_merges=audited(services, user),
        split=counters.get("split", 0),
        redundant=_redundant(services, user, sample),
        below_floor=_below_floor(shown, services.policy.recall.relevance_floor),
        by_provenance=_worths(shown.memories, "provenance", PROVENANCES),
        by_extractor=_worths(shown.memories, "extractor"),
        extraction=_led_by(counters, "extract"),
        refusals=store.expirable(user, "refusals", services.world.now()),
        retrievals=counters.get(RETRIEVED, 0),
        janitor={**_led_by(counters, "janitor."), **_led_by(counters, "retention.")},
    )


def trigger_rate(counters: Mapping[str, int]) -> Share:
    """How many of the texts that came to the gate had a neighbour there."""
    counts = {name: counters.get(f"write.{name}", 0) for name in GATED}
    total = sum(counts.values())
    return Share.of(total - counts["stored"], total)


def _led_by(counters: Mapping[str, int], lead: str) -> dict[str, int]:
    return {
        name.removeprefix(lead).lstrip(".") if lead.endswith(".") else name: many
        for name, many in sorted(counters.items())
        if name.startswith(lead)
    }


def _redundant(services: Services, user: str, sample: int) -> Redundant:
    since = services.world.now() - WEEK
    listing = Listing(Scope(user), everywhere=True, limit=ADDITIONS_MAX)
    fresh = [one for one in services.store.listing(listing) if one.created_at >= since]
    chosen = fresh[:: max(1, math.ceil(len(fresh) / sample))] if fresh else []
    found = _merging(services, chosen)
    share = Share.of(found or 0, 0 if found is None else len(chosen))
    expected = None if share.rate is None else round(share.rate * len(fresh), 3)
    return Redundant(len(fresh), len(fresh) >= ADDITIONS_MAX, share, expected)


def _merging(services: Services, chosen: Sequence[MemoryRecord]) -> int | None:
    """How many of these the gate would merge with an older one; None when there is no gate."""
    gate = gate_in_use(services.policy, services.embedding.stored_name()) if chosen else None
    if gate is None:
        return None
    scopes: dict[Scope, list[MemoryRecord]] = {}
    for record in chosen:
        scopes.setdefault(record.scope, []).append(record)
    return sum(
        judge(record, near[:NEIGHBOUR_LIMIT], gate.floor).decision == "merged"
        for scope, group in scopes.items()
        for record, near in older_neighbours(services, scope, gate, group)
    )


def _below_floor(shown: ShownLately, floor: float) -> BelowFloor:
    unasked = [one for one in shown.memories if REQUIRED not in one.origins]
    known = [one for one in unasked if one.feature_version == FEATURE_VERSION]
    below = sum(_is_below(one, floor) for one in known)
    turns = shown.turn_count
    per_turn = round(below / turns, _DECIMALS) if turns else None
    return BelowFloor(below, len(known), turns, per_turn)


def _is_below(one: ShownFigure, floor: float) -> bool:
    if len(one.features) != len(FEATURES):
        return False
    cosine, text = one.features[_COSINE], one.features[_TEXT]
    return text <= 0.0 and not cosine >= floor


def _worths(shown: Iterable[ShownFigure], by: str, names: Sequence[str] = ()) -> list[Worth]:
    """Return by source how often a judged memory helped; every memory has the same weight."""
    judged: dict[str, list[tuple[float, bool]]] = {name: [] for name in names}
    for one in shown:
        name = getattr(one, by)
        if name is not None and one.label is not None:
            judged.setdefault(name, []).append((one.label, one.has_helped))
    return [
        Worth(
            name,
            Share.of(sum(has_helped for _, has_helped in found), len(found)),
            round(sum(label for label, _ in found) / len(found), _DECIMALS) if found else None,
        )
        for name, found in judged.items()
    ]


# Newer ones are among the nearest too, and are passed over.
_GateTuneLOOK_AT = 3 * NEIGHBOUR_LIMIT


def older_neighbours(
    services: Services, scope: Scope, gate: Gate, batch: Sequence[MemoryRecord]
) -> Iterator[tuple[MemoryRecord, list[Near]]]:
    """Each memory that has a vector, with the older ones near to it, nearest first."""
    vectors = services.store.vectors(scope.user, gate.embedder, [one.id for one in batch])
    having = [one for one in batch if one.id in vectors and np.any(vectors[one.id])]
    if not having:
        return
    matrix = np.stack([vectors[one.id] for one in having]).astype(np.float32)
    found = services.store.nearest(
        NeighbourProbe(scope, gate.embedder, matrix, _GateTuneLOOK_AT, gate.floor)
    )
    for record, near in zip(having, found, strict=True):
        yield record, [one for one in near if _is_older(one.memory, record)]


def _is_older(one: MemoryRecord, other: MemoryRecord) -> bool:
    return (one.created_at, one.id) < (other.created_at, other.id)
