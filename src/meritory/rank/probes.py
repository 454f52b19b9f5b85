"""What a run over probes comes to: shares found at each depth, reciprocal rank, tags, fronts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from meritory.rank.bootstrap import interval

DEPTH: Final = 10
METRICS: Final = ("p@1", "p@3", "p@5", "mrr", "in_prompt")
_DEPTHS: Final = {"p@1": 1, "p@3": 3, "p@5": 5}

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ProbeHit:
    """What became of one probe: the place of its target in the answer, and whether it was shown.

    A rank of None means that the first DEPTH do not hold it; in_prompt is None where nobody looked.
    """

    rank: int | None
    in_prompt: bool | None = None
    took_ms: float = 0.0
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean with its interval."""

    mean: float
    low: float
    high: float


def values(hits: Sequence[ProbeHit], metric: str) -> Floats:
    """The value of a metric for each probe, in their order; NaN where nobody looked."""
    if metric == "mrr":
        return np.array([0.0 if hit.rank is None else 1.0 / hit.rank for hit in hits], np.float64)
    if metric == "in_prompt":
        seen = [np.nan if hit.in_prompt is None else float(hit.in_prompt) for hit in hits]
        return np.array(seen, np.float64)
    depth = _DEPTHS[metric]
    found = [hit.rank is not None and hit.rank <= depth for hit in hits]
    return np.array(found, np.float64)


def figures(hits: Sequence[ProbeHit]) -> dict[str, Figure]:
    """Every metric that was measured, with its bootstrap interval."""
    found: dict[str, Figure] = {}
    for metric in METRICS:
        each = values(hits, metric)
        each = each[np.isfinite(each)]
        if each.size:
            found[metric] = Figure(float(each.mean()), *interval(each))
    return found


def latency_ms(hits: Sequence[ProbeHit]) -> dict[str, float]:
    """The median and the 95th percentile of how long an answer took."""
    if not hits:
        return {}
    p50, p95 = np.quantile([hit.took_ms for hit in hits], [0.5, 0.95])
    return {"p50": float(p50), "p95": float(p95)}


def by_tag(hits: Sequence[ProbeHit]) -> dict[str, list[ProbeHit]]:
    """The hits of each tag, in the order of the tags' names."""
    found: dict[str, list[ProbeHit]] = {}
    for hit in hits:
        for tag in hit.tags:
            found.setdefault(tag, []).append(hit)
    return dict(sorted(found.items()))


def front(rows: Sequence[Mapping[str, float]], metrics: Iterable[str]) -> list[int]:
    """Places of the rows that no other beats: nowhere worse, and somewhere better."""
    names = [name for name in metrics if all(name in row for row in rows)]
    table = np.array([[row[name] for name in names] for row in rows], np.float64)
    if not table.size:
        return []
    kept = []
    for place, row in enumerate(table):
        beats = (table >= row).all(axis=1) & (table > row).any(axis=1)
        if not beats.any():
            kept.append(place)
    return kept
