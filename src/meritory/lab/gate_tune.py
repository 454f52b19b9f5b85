"""Try other thresholds of the similarity gate on the user's own memories; nothing is written.

Each of the latest memories is compared with similar older ones, as if it were new, and the real
gate decides. Past merges show what a higher threshold would have missed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from meritory.domain.errors import Conflict, InputError
from meritory.domain.memory import Listing, MemoryRecord, Scope
from meritory.engine.memories.gate import Gate, GateVerdict, gate_in_use, judge
from meritory.engine.memories.write import NEIGHBOUR_LIMIT
from meritory.engine.quality.figures import Audited, audited, older_neighbours
from meritory.engine.services import Services

THRESHOLDS = (0.50, 0.55, 0.60, 0.65, 0.70, 0.75, 0.80, 0.85, 0.90, 0.95)
SAMPLE_COUNT_MAX = 20_000
EXAMPLE_COUNT = 10
PAST_MERGE_COUNT = 1_000
# A lower threshold is recommended only if it finds this many more merges.
NEW_MERGES_MIN = 10
GAIN_SHARE = 0.9
# How reliable the gate's merges must be before it may merge more.
AUDITED_MIN = 25
WRONG_SHARE_MAX = 0.15
_BATCH = 64
_NOTED_COSINE = re.compile(r"\(cosine (-?\d\.\d+)\)$")
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Row:
    """The effect of one threshold; `past_lost` counts past merges that it would have missed."""

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
    """The result of the trial."""

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
    """The counts so far."""

    pairs: Counter[float] = field(default_factory=Counter)
    decisions: Counter[tuple[float, str]] = field(default_factory=Counter)
    # For each memory the highest threshold at which it would merge.
    examples: dict[str, Example] = field(default_factory=dict)
    looked_at: int = 0


def tune(
    services: Services,
    user: str,
    thresholds: Sequence[float] = THRESHOLDS,
    *,
    sample_count: int = 2_000,
    time_limit_s: float = 60.0,
    progress: Progress = lambda done, total: None,
) -> Tuning:
    """Try thresholds on the latest memories of a user, in all scopes."""
    if not thresholds or not all(0.0 < one <= 1.0 for one in thresholds):
        raise InputError("thresholds are numbers above 0, up to 1", hint="for example 0.7")
    if not 1 <= sample_count <= SAMPLE_COUNT_MAX:
        raise InputError(f"a sample has 1 to {SAMPLE_COUNT_MAX} memories")
    gate = gate_in_use(services.policy, services.embedding.stored_name())
    if gate is None:
        raise Conflict("the gate or the embedder is off", hint="set gate.enabled and embedder.kind")
    merges = services.store.merges_of(user, PAST_MERGE_COUNT)
    noted = (_NOTED_COSINE.search(entry.why) for entry in merges)
    past = [float(match.group(1)) for match in noted if match is not None]
    tried = sorted({*thresholds, round(gate.floor, 4)})
    until_ms = services.world.monotonic_ms() + time_limit_s * 1000
    tally, is_cut = _Tally(), False
    records = services.store.listing(Listing(Scope(user), everywhere=True, limit=sample_count))
    scopes: dict[Scope, list[MemoryRecord]] = {}
    for record in records:
        scopes.setdefault(record.scope, []).append(record)
    batches = (
        group[start : start + _BATCH]
        for group in scopes.values()
        for start in range(0, len(group), _BATCH)
    )
    for batch in batches:
        _try(services, gate, batch, tried, tally)
        progress(tally.looked_at, len(records))
        if services.world.monotonic_ms() > until_ms:
            is_cut = tally.looked_at < len(records)
            break
    rows = []
    for threshold in tried:
        kept = sum(cosine >= threshold for cosine in past)
        merged, superseded, kept_both = (
            tally.decisions[threshold, name] for name in ("merged", "superseded", "kept_both")
        )
        amounts = (tally.pairs[threshold], merged, superseded, kept_both, kept, len(past) - kept)
        rows.append(Row(threshold, *amounts))
    # Merges that a lower threshold than now would add, the most similar pairs first.
    added = [one for one in tally.examples.values() if one.threshold < gate.floor]
    added.sort(key=lambda one: (-one.cosine, one.newer.id))
    known = audited(services, user)
    recommended, why = recommend(rows, gate.floor, known)
    return Tuning(
        gate.embedder,
        gate.floor,
        services.policy.gate.threshold is not None,
        tally.looked_at,
        is_cut,
        rows,
        added[:EXAMPLE_COUNT],
        known,
        recommended,
        why,
    )


def _try(
    services: Services,
    gate: Gate,
    batch: Sequence[MemoryRecord],
    tried: Sequence[float],
    tally: _Tally,
) -> None:
    """Count what each threshold would do with memories of one scope."""
    widest = Gate(gate.embedder, tried[0], tried[0])
    tally.looked_at += len(batch)
    for record, near in older_neighbours(services, batch[0].scope, widest, batch):
        known: dict[int, GateVerdict] = {}
        for threshold in reversed(tried):
            close = [one for one in near if one.cosine >= threshold][:NEIGHBOUR_LIMIT]
            tally.pairs[threshold] += len(close)
            # The lists of close memories are prefixes of one list, so the length decides.
            verdict = known.get(len(close)) or judge(
                record, close, threshold, by_person=record.origin == "user"
            )
            known[len(close)] = verdict
            tally.decisions[threshold, verdict.decision] += 1
            if verdict.decision == "merged" and record.id not in tally.examples:
                nearest = verdict.near[0]
                tally.examples[record.id] = Example(
                    threshold, nearest.cosine, nearest.memory, record, verdict.reason
                )


def recommend(rows: Sequence[Row], floor: float, known: Audited) -> tuple[float | None, str]:
    """Return the threshold that the trial supports, or None, and the reason."""
    if known.total < AUDITED_MIN:
        return None, (
            f"{known.total} merges were audited and at least {AUDITED_MIN} are needed: "
            "`meritory gate audit` lists more; until then keep the current value"
        )
    if known.high > WRONG_SHARE_MAX:
        return None, (
            f"up to {known.high:.0%} of the merges may be wrong: split and report those first; "
            "merging more would not help"
        )
    now = next(row for row in rows if row.threshold == round(floor, 4))
    lower = [r for r in rows if r.threshold < now.threshold]
    gains = [r for r in lower if r.merged - now.merged >= NEW_MERGES_MIN]
    if not gains:
        best = max((r.merged - now.merged for r in lower), default=0)
        return None, f"no lower threshold finds {NEW_MERGES_MIN} more merges (at most {best})"
    # The highest threshold with nearly the best gain: lower ones only cost time.
    enough = GAIN_SHARE * (max(row.merged for row in gains) - now.merged)
    chosen = max(
        (row for row in gains if row.merged - now.merged >= enough), key=lambda r: r.threshold
    )
    return chosen.threshold, (
        f"{chosen.merged - now.merged} more memories would be merged, and of {known.total} audited "
        f"merges {known.wrong} were wrong (at most {known.high:.0%})"
    )
