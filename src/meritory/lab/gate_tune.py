"""The gate tried at other thresholds on the user's own memories; nothing is written.

Each of the latest memories is held against the older ones near to it, as if it came in now, and
the real judge decides. What was merged before tells what a higher threshold would have missed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from meritory.domain.errors import Conflict, InputError
from meritory.domain.memory import Listing, MemoryRecord, Scope
from meritory.engine.memories.gate import Gate, GateVerdict, gate_in_use, judge
from meritory.engine.memories.write import NEIGHBOUR_LIMIT
from meritory.engine.quality.figures import Audited, audited, older_neighbours
from meritory.engine.services import Services

THRESHOLDS = (0.50, 0.55, 0.60, 0.65, 0.70, 0.75, 0.80, 0.85, 0.90, 0.95)


SAMPLE_COUNT = 2_000


SAMPLE_COUNT_MAX = 20_000


TIME_LIMIT_S = 60.0


EXAMPLE_COUNT = 10


PAST_MERGE_COUNT = 1_000


# A lower threshold is only worth its noise if it finds so many more.
NEW_MERGES_MIN = 10


GAIN_SHARE = 0.9


# How sure one must be that the gate's merges are right before it is let loose on more.
AUDITED_MIN = 25


WRONG_SHARE_MAX = 0.15


_BATCH = 64


_NOTED_COSINE = re.compile(r"\(cosine (-?\d\.\d+)\)$")


Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class TuneRequest:
    """Which thresholds to try, on how many memories, and for how long at most."""

    thresholds: Sequence[float] = THRESHOLDS
    sample_count: int = SAMPLE_COUNT
    time_limit_s: float = TIME_LIMIT_S


@dataclass(frozen=True, slots=True)
class Row:
    """What one threshold would do; `past_lost` are merges of before that it would have missed."""

    threshold: float
    pair_count: int
    merged: int
    superseded: int
    kept_both: int
    past_kept: int
    past_lost: int


@dataclass(frozen=True, slots=True)
class Example:
    """Two memories that would become one, from this threshold on."""

    threshold: float
    cosine: float
    older: MemoryRecord
    newer: MemoryRecord
    reason: str


@dataclass(frozen=True, slots=True)
class Tuning:
    """All that the trial showed."""

    embedder: str
    threshold: float
    is_chosen: bool
    looked_at: int
    is_cut: bool
    rows: Sequence[Row]
    examples: Sequence[Example]
    audited: Audited
    recommended: float | None
    why: str


@dataclass(slots=True)
class _Tally:
    """What was counted so far."""

    pairs: Counter[float] = field(default_factory=Counter)
    decisions: Counter[tuple[float, str]] = field(default_factory=Counter)
    # By memory the highest threshold at which it would merge.
    examples: dict[str, Example] = field(default_factory=dict)
    looked_at: int = 0


def tune(
    services: Services,
    user: str,
    request: TuneRequest | None = None,
    progress: Progress = lambda done, total: None,
) -> Tuning:
    """Tries thresholds on the latest memories of a user, all scopes."""
    asked = request or TuneRequest()
    thresholds = _checked(asked)
    gate = gate_in_use(services.policy, services.embedding.stored_name())
    if gate is None:
        raise Conflict(
            "the gate is off, or no embedder serves", hint="set gate.enabled and embedder.kind"
        )
    past = _past_cosines(services, user)
    tried = sorted({*thresholds, round(gate.floor, 4)})
    until_ms = services.world.monotonic_ms() + asked.time_limit_s * 1000
    tally, is_cut = _Tally(), False
    for batch, scope, done, total in _batches(services, user, asked.sample_count):
        _try(services, (scope, gate), batch, tried, tally)
        progress(done, total)
        if services.world.monotonic_ms() > until_ms:
            is_cut = done < total
            break
    rows = [_row(one, tally, past) for one in tried]
    known = audited(services, user)
    recommended, why = recommend(rows, gate.floor, known)
    return Tuning(
        gate.embedder,
        gate.floor,
        services.policy.gate.threshold is not None,
        tally.looked_at,
        is_cut,
        rows,
        _examples(tally, gate.floor),
        known,
        recommended,
        why,
    )


def _checked(asked: TuneRequest) -> tuple[float, ...]:
    if not asked.thresholds or not all(0.0 < one <= 1.0 for one in asked.thresholds):
        raise InputError("thresholds are numbers above 0, up to 1", hint="for example 0.7")
    if not 1 <= asked.sample_count <= SAMPLE_COUNT_MAX:
        raise InputError(f"a sample has 1 to {SAMPLE_COUNT_MAX} memories")
    return tuple(asked.thresholds)


def _batches(
    services: Services, user: str, sample_count: int
) -> Iterator[tuple[list[MemoryRecord], Scope, int, int]]:
    """The latest memories, those of one scope together, with how far that is."""
    found = services.store.listing(Listing(Scope(user), everywhere=True, limit=sample_count))
    scopes: dict[Scope, list[MemoryRecord]] = {}
    for record in found:
        scopes.setdefault(record.scope, []).append(record)
    done = 0
    for scope, group in scopes.items():
        for start in range(0, len(group), _BATCH):
            batch = group[start : start + _BATCH]
            done += len(batch)
            yield batch, scope, done, len(found)


def _try(
    services: Services,
    where: tuple[Scope, Gate],
    batch: Sequence[MemoryRecord],
    tried: Sequence[float],
    tally: _Tally,
) -> None:
    scope, gate = where
    widest = Gate(gate.embedder, tried[0], tried[0])
    tally.looked_at += len(batch)
    for record, near in older_neighbours(services, scope, widest, batch):
        known: dict[int, GateVerdict] = {}
        for threshold in reversed(tried):
            held = [one for one in near if one.cosine >= threshold][:NEIGHBOUR_LIMIT]
            tally.pairs[threshold] += len(held)
            # The same neighbours get the same verdict: they are a beginning of one list.
            verdict = known.get(len(held)) or judge(record, held, threshold)
            known[len(held)] = verdict
            tally.decisions[threshold, verdict.decision] += 1
            if verdict.decision == "merged" and record.id not in tally.examples:
                tally.examples[record.id] = _example(threshold, record, verdict)


def _example(threshold: float, record: MemoryRecord, verdict: GateVerdict) -> Example:
    nearest = verdict.near[0]
    return Example(threshold, nearest.cosine, nearest.memory, record, verdict.reason)


def _examples(tally: _Tally, floor: float) -> list[Example]:
    """Merges that a lower threshold than now would bring, the nearest pairs first."""
    fresh = [one for one in tally.examples.values() if one.threshold < floor]
    return sorted(fresh, key=lambda one: (-one.cosine, one.newer.id))[:EXAMPLE_COUNT]


def _past_cosines(services: Services, user: str) -> list[float]:
    """How near those were that the gate merged before."""
    found = services.store.merges_of(user, PAST_MERGE_COUNT)
    noted = (_NOTED_COSINE.search(entry.why) for entry in found)
    return [float(one.group(1)) for one in noted if one is not None]


def _row(threshold: float, tally: _Tally, past: Sequence[float]) -> Row:
    kept = sum(cosine >= threshold for cosine in past)
    return Row(
        threshold,
        tally.pairs[threshold],
        tally.decisions[threshold, "merged"],
        tally.decisions[threshold, "superseded"],
        tally.decisions[threshold, "kept_both"],
        kept,
        len(past) - kept,
    )


def recommend(rows: Sequence[Row], floor: float, known: Audited) -> tuple[float | None, str]:
    """A threshold that the trial speaks for, and why; None when nothing is shown either way."""
    if known.total < AUDITED_MIN:
        return None, (
            f"{known.total} merges were audited and at least {AUDITED_MIN} are needed: "
            "`meritory gate audit` lists more; until then the present value stays"
        )
    if known.high > WRONG_SHARE_MAX:
        return None, (
            f"up to {known.high:.0%} of the merges may be wrong: split those first and report "
            "them; merging more would not help"
        )
    now = next(row for row in rows if row.threshold == round(floor, 4))
    lower = [r for r in rows if r.threshold < now.threshold]
    gains = [r for r in lower if r.merged - now.merged >= NEW_MERGES_MIN]
    if not gains:
        best = max((r.merged - now.merged for r in lower), default=0)
        return None, f"no lower threshold finds {NEW_MERGES_MIN} more merges (at most {best})"
    # The highest of those that find nearly as many as any: more pairs to look at are only work.
    enough = GAIN_SHARE * (max(row.merged for row in gains) - now.merged)
    chosen = max(
        (row for row in gains if row.merged - now.merged >= enough), key=lambda r: r.threshold
    )
    return chosen.threshold, (
        f"{chosen.merged - now.merged} more memories would be joined, and of {known.total} audited "
        f"merges {known.wrong} were wrong (at most {known.high:.0%})"
    )
