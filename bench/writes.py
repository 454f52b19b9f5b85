"""What writing costs on both engines, and what telling others costs: `python -m bench.writes`.

New memories in transactions of 500 and one by one, on a file and on a PostgreSQL server of our own
that waits for the disk. Then 16 writers of different tenants with every commit told to others, as
shipped, and with none. The best batch and the median of single writes are printed: both engines
run within the same minute, on whatever else the machine does.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from bench import report
from bench.postgres import ALONE, throw_away_server
from bench.texts import memories
from meritory.domain.memory import EmbedderInfo, MemoryRecord
from meritory.engine.memories.write import indexed
from meritory.store.contract.memories import Indexed, MemoryChange
from meritory.store.contract.store import Store, Transaction
from meritory.store.postgres import notify
from meritory.store.postgres.store import PostgresStore
from meritory.store.sqlite.store import SqliteStore

BATCH, BATCHES, SINGLES = 500, 4, 300
WRITERS, WRITING_S = 16, 3.0
EMBEDDER = EmbedderInfo("bench", 256, "{}")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
CREATED = MemoryChange("bench", NOW, "bench", "create")


def items(count: int) -> list[Indexed]:
    """Memories with their vectors, ready to be stored."""
    rows = np.random.default_rng(1).standard_normal((count, EMBEDDER.dimension)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return [
        indexed(
            MemoryRecord(id=f"{number:026d}", content=text, created_at=NOW, updated_at=NOW),
            {EMBEDDER.name: row},
        )
        for number, (text, row) in enumerate(zip(memories(count), rows, strict=True))
    ]


def took_ms(work: Callable[[], object]) -> float:
    """How long something takes."""
    began_s = time.perf_counter()
    work()
    return (time.perf_counter() - began_s) * 1000


def inserted(some: Sequence[Indexed], transaction: Transaction) -> None:
    """Stores memories, each with its line of history."""
    for one in some:
        transaction.insert(one, CREATED)


def written(store: Store, stock: Sequence[Indexed]) -> dict[str, float]:
    """Milliseconds a memory, many at once and one by one."""

    def put(start: int, count: int) -> float:
        some = stock[start : start + count]
        return took_ms(lambda: store.write("default", lambda t: inserted(some, t))) / count

    store.register_embedder(EMBEDDER)
    many = [put(start, BATCH) for start in range(0, BATCH * BATCHES, BATCH)]
    single = [put(BATCH * BATCHES + at, 1) for at in range(SINGLES)]
    return {"many_best_ms": min(many), "single_p50_ms": statistics.median(single)}


def commits_per_s(stores: Sequence[PostgresStore], told_every_s: float) -> float:
    """How many commits a second writers of different tenants come to together."""
    notify.NOTIFY_EVERY_S = told_every_s
    counts = [0] * WRITERS
    ends_s = time.monotonic() + WRITING_S

    def write(at: int) -> None:
        while time.monotonic() < ends_s:
            stores[at % len(stores)].write(f"user {at}", lambda t: t.count(f"user {at}", "n"))
            counts[at] += 1

    threads = [threading.Thread(target=write, args=(at,)) for at in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / WRITING_S


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.writes", description=__doc__)
    parser.add_argument("--json", type=Path, default=Path("writes.json"))
    chosen = parser.parse_args(argv)
    stock = items(BATCH * BATCHES + SINGLES)
    figures: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder, throw_away_server(ALONE) as url:
        file = SqliteStore(Path(folder) / "meritory.db")
        figures["sqlite"] = written(file, stock)
        file.close()
        # With a wait that never ends, nothing is ever told again: it comes last.
        stores = [PostgresStore(url) for _ in range(2)]
        figures["postgres"] = written(stores[0], stock)
        for name, every_s in (("all", 0.0), ("as_shipped", notify.NOTIFY_EVERY_S), ("none", 1e6)):
            figures[f"commits_per_s_told_{name}"] = commits_per_s(stores, every_s)
        for store in stores:
            store.close()
    for key, value in figures.items():
        print(f"{key}: {value}")
    report.write(figures, chosen.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
