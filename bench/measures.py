"""Measures of one ranking against the relevant items: recall and reciprocal rank."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence


def recall_at(ranking: Sequence[Hashable], relevant: Collection[Hashable], k: int) -> float | None:
    """Return the share of the relevant items in the first k places, None when there are none."""
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    wanted = set(relevant)
    if not wanted:
        return None
    return len(wanted.intersection(list(dict.fromkeys(ranking))[:k])) / len(wanted)


def mrr(ranking: Sequence[Hashable], relevant: Collection[Hashable]) -> float | None:
    """Return 1 / place of the first relevant item, 0 when it is not ranked, None without any."""
    wanted = set(relevant)
    if not wanted:
        return None
    for place, item in enumerate(dict.fromkeys(ranking), start=1):
        if item in wanted:
            return 1.0 / place
    return 0.0
