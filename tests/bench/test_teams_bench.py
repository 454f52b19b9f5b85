"""The bench of teams fills what it says, and holds figures to the right bars."""

from __future__ import annotations

from typing import Any

import pytest
from bench.teams import MEMORIES, TENANTS, rows_of
from bench.teams_fill import tenants
from bench.teams_ratio import Ratio

from meritory.store.postgres.vectors import EXACT_ROWS


def test_tenants_are_of_very_different_sizes() -> None:
    found = tenants(TENANTS, MEMORIES)
    sizes = [tenant.size for tenant in found]
    assert len({tenant.name for tenant in found}) == TENANTS
    assert sum(sizes) == MEMORIES
    assert sizes == sorted(sizes, reverse=True)
    assert 100_000 < sizes[0] < 150_000
    assert sum(size > EXACT_ROWS for size in sizes) == 10
    assert min(sizes) > 2_000
    assert [tenant.size for tenant in tenants(3, 10)] == [5, 3, 2]


def test_the_same_tenant_always_says_the_same() -> None:
    one, other = tenants(2, 40)
    assert one.texts() == one.texts() and len(set(one.texts())) == one.size
    assert one.texts() != other.texts()


@pytest.mark.parametrize(("recall_ms", "share", "missed"), [(49.0, 0.96, 0), (51.0, 0.94, 2)])
def test_what_is_too_slow_or_not_found_misses_its_bar(
    recall_ms: float, share: float, missed: int
) -> None:
    rows = rows_of(_found(recall_ms, share), {}, 1.0)
    assert sum(bar is not None and value > bar for _, value, bar, _ in rows) == missed


def _found(recall_ms: float, share: float) -> dict[str, Any]:
    values = {
        f"{kind}, {who} p{percent}": 30.0
        for kind in ("recall", "session start")
        for who in ("by size", "all alike")
        for percent in (50, 95)
    }
    values |= {
        f"{kind}, {who} {side} CPU": 10.0
        for kind in ("recall", "session start")
        for who in ("by size", "all alike")
        for side in ("own", "server")
    }
    values |= {
        "recall, by size p95": recall_ms,
        "recall@10 of the index, recall": share,
        "worst of them, recall": 0.8,
        "recall@10 of the index, session start": 0.99,
        "worst of them, session start": 0.9,
        "rss before any tenant, MB": 100.0,
        "rss at the end, MB": 300.0,
    }
    return {"values": values, "cold": [[2_000, 80.0], [120_000, 900.0]]}


def test_a_ratio_says_how_much_slower_the_database_is() -> None:
    assert Ratio("recall", 4.0, 10.0).ratio == 2.5
