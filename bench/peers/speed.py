"""How fast each system stores and searches, what memory it takes and what it leaves on disk.

Times are CPU time of the worker's process. Plain FTS5 runs between the calls, in the same process,
so the ratio holds on a busy machine too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.peers.client import Client, with_vectors
from bench.peers.minilm import Encoder
from bench.texts import memories, questions

MEMORIES, QUICK_MEMORIES = 10_000, 1_000
STORES, SEARCHES = 100, 200
BATCH = 500
LIMIT = 10
# As an agent's memories often are: ten turns a session.
TURNS = 10


def measure(
    client: Client, encoder: Encoder | None, count: int, call: Callable[..., dict]
) -> dict[str, object]:
    """Store many, store one by one, search, and close; return the figures."""
    texts, asked = memories(count + STORES), questions(SEARCHES)
    with tempfile.TemporaryDirectory() as folder:
        call(client, "open", folder=folder, beside=True)
        many = [
            call(client, "store", items=_items(texts, start, min(start + BATCH, count), encoder))
            for start in range(0, count, BATCH)
        ]
        one = call(client, "time_stores", items=_items(texts, count, count + STORES, encoder))
        rows = None if encoder is None else encoder.embed(asked)
        items = with_vectors([{"text": text} for text in asked], rows)
        search = call(client, "time_searches", items=items, limit=LIMIT)
        closed = call(client, "close")
        disk = bytes_of(Path(folder)) - int(closed["plain_bytes"])
    total, plain = (sum(float(part[name]) for part in many) for name in ("cpu_ms", "plain_cpu_ms"))
    return {
        "memories": count,
        "store_many": {
            "ms_each": round(total / count, 3),
            "fts5_ms_each": round(plain / count, 4),
            "ratio": round(total / plain, 1),
        },
        "store_one": ratios(one),
        "search": ratios(search),
        "peak_mb": round(float(closed["peak_mb"]), 1),
        "bytes_each": round(disk / (count + STORES)),
        "fts5_bytes_each": round(int(closed["plain_bytes"]) / (count + STORES)),
    }


def _items(
    texts: Sequence[str], start: int, end: int, encoder: Encoder | None
) -> list[dict[str, object]]:
    part = texts[start:end]
    items = [
        {
            "text": text,
            "session": f"s{at // TURNS}",
            "turn": at % TURNS,
            "role": "user",
            "at": None,
            "derived": False,
        }
        for at, text in enumerate(part, start=start)
    ]
    return with_vectors(items, None if encoder is None else encoder.embed(part))


def ratios(reply: dict[str, Any]) -> dict[str, float]:
    """Return p50 and p95 of the calls, those of FTS5, and their ratios."""
    found: dict[str, float] = {}
    for name, share in (("p50", 50), ("p95", 95)):
        mine = float(np.percentile(reply["cpu_ms"], share))
        plain = float(np.percentile(reply["plain_cpu_ms"], share))
        found[f"{name}_ms"] = round(mine, 3)
        found[f"fts5_{name}_ms"] = round(plain, 4)
        found[f"{name}_ratio"] = round(mine / max(plain, 1e-6), 2)
        found[f"wall_{name}_ms"] = round(float(np.percentile(reply["wall_ms"], share)), 3)
    found["mean_ms"] = round(float(reply["mean_cpu_ms"]), 3)
    return found


def bytes_of(folder: Path) -> int:
    """Return the size of all files under a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
