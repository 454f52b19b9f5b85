"""The product beside plain FTS5 as a store grows: `python -m bench.scale [--million]`.

At 1,000, 10,000 and 100,000 memories of about 209 characters, in sessions of ten, both store the
same texts and answer the same questions in turn, in one process that does nothing else. What
counts is CPU time: a busy machine slows both alike, so only the ratios are worth quoting. FTS5
gets every word of a question, joined by OR, and returns the ten best texts by rank: the bars are
against it. Without the stop words it has fewer texts to rank; that ratio is printed without a bar.
`--million` adds a million memories, where the
bars are wall clock. `--control` stores through the gate and asks for a thousand results, which
must miss bars.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from bench import report
from bench.plain import content_words, typed_words
from bench.texts import questions, sentences
from meritory import Memory

SIZES, MILLION = (1_000, 10_000, 100_000), 1_000_000
BATCH, TURNS = 1_000, 10
ASKED, WARM, STARTS = 200, 10, 30
CONTROL_LIMIT = 1_000
# By size, how much dearer than plain FTS5 with every word of the question a recall may be.
RECALL_RATIO = {1_000: 10.0, 10_000: 2.0}
STORE_MS, DISK_BYTES = 1.5, 1_900.0
# Flat: a memory of the last tenth costs at most so much more than one at the smallest size.
GROWTH = 1.5
RECALL_P95_MS, START_P95_MS, RSS_MB = 100.0, 150.0, 1_500.0

Row = tuple[str, float, float | None]


def texts() -> Iterator[str]:
    """Yield distinct texts of two real sentences."""
    pool, _ = sentences()
    source = random.Random(7)
    seen: set[int] = set()
    while True:
        text = " ".join(source.sample(pool, 2))
        if hash(text) not in seen:
            seen.add(hash(text))
            yield text


def items(on_similar: str) -> Iterator[dict[str, object]]:
    """Yield the texts as turns of sessions, ten each."""
    for at, text in enumerate(texts()):
        source = {
            "harness": "bench", "session_key": f"s{at // TURNS}", "turn": str(at % TURNS)
        }  # fmt: skip
        yield {"content": text, "on_similar": on_similar, "source": source}


def fill(path: Path, count: int, on_similar: str) -> dict[str, float]:
    """Store so many memories; return the milliseconds of CPU of one, of all and the last tenth."""
    made, costs = items(on_similar), []
    with Memory(path, background=False) as memory:
        for _ in range(0, count, BATCH):
            batch = list(islice(made, BATCH))
            begun = time.process_time()
            memory.remember_many(batch)
            costs.append((time.process_time() - begun) * 1e3 / len(batch))
    last = costs[-max(1, len(costs) // 10) :]
    return {"store_ms": statistics.mean(costs), "store_last_ms": statistics.mean(last)}


def fill_plain(path: Path, count: int) -> float:
    """Store the same texts in FTS5 alone; return the milliseconds of CPU of one."""
    made = texts()
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("CREATE VIRTUAL TABLE docs USING fts5(text, tokenize='porter unicode61')")
        begun = time.process_time()
        for _ in range(0, count, BATCH):
            rows = [(text,) for text in islice(made, BATCH)]
            database.executemany("INSERT INTO docs(text) VALUES (?)", rows)
            database.commit()
        taken = time.process_time() - begun
    database.close()
    return taken * 1e3 / count


def plain_search(
    database: sqlite3.Connection, words: Callable[[str], Sequence[str]]
) -> Callable[[str], object]:
    """Return a search of FTS5 for any of the chosen words of a question."""

    def search(question: str) -> object:
        match = " OR ".join(f'"{word}"' for word in words(question))
        return database.execute(
            "SELECT rowid, text FROM docs WHERE docs MATCH ? ORDER BY rank LIMIT 10", (match,)
        ).fetchall()

    return search


def asked_in_turn(calls: dict[str, Callable[[str], object]]) -> dict[str, tuple[Any, Any]]:
    """Ask everyone the same questions in turn; return milliseconds of CPU and of wall clock."""
    found = questions(ASKED + WARM)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for number, question in enumerate(found):
        for name, call in calls.items():
            cpu, wall = time.process_time(), time.perf_counter()
            call(question)
            cost = (time.process_time() - cpu) * 1e3, (time.perf_counter() - wall) * 1e3
            if number >= WARM:
                taken[name].append(cost)
    return {name: tuple(np.array(costs).T) for name, costs in taken.items()}


def inside(path: Path, plain: Path, limit: int) -> dict[str, float]:
    """Return what a fresh process takes to search both stores."""
    with Memory(path, background=False) as memory:
        database = sqlite3.connect(plain) if plain.exists() else None
        begun = time.perf_counter()
        memory.recall("what was said first?")
        found = {"first_recall_ms": (time.perf_counter() - begun) * 1e3}
        calls: dict[str, Callable[[str], object]] = {
            "recall": lambda question: memory.recall(question, limit)
        }
        if database is not None:
            calls["fts5"] = plain_search(database, content_words)
            calls["fts5_all_words"] = plain_search(database, typed_words)
        for name, (cpu, wall) in asked_in_turn(calls).items():
            p50, p95 = np.percentile(cpu, [50, 95])
            found |= {f"{name}_p50": p50, f"{name}_p95": p95}
            found[f"{name}_wall_p95"] = float(np.percentile(wall, 95))
        starts = []
        for number, question in enumerate(questions(STARTS + WARM)[WARM:]):
            begun = time.perf_counter()
            memory.session(f"scale-{time.time_ns()}-{number}", context=question)
            starts.append((time.perf_counter() - begun) * 1e3)
        found["start_p50"], found["start_p95"] = np.percentile(starts, [50, 95])
        found["rss_mb"] = _rss_mb()
    return {name: float(value) for name, value in found.items()}


def _rss_mb() -> float:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return float("nan")


def measure(folder: Path, count: int, control: bool) -> dict[str, float]:
    """Fill both stores with so many texts, and search them in a process of their own."""
    path, plain = folder / f"{count}.db", folder / f"{count}-plain.db"
    found: dict[str, float] = {}
    if not path.exists():
        found |= fill(path, count, "gate" if control else "keep")
    if not plain.exists() and count < MILLION:
        found["fts5_store_ms"] = fill_plain(plain, count)
    found["disk_bytes"] = path.stat().st_size / count
    command = [sys.executable, "-m", "bench.scale", "--inside", str(path), "--plain", str(plain)]
    command += ["--limit", str(CONTROL_LIMIT if control else 10)]
    environ = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environ, check=True, stdout=subprocess.PIPE, text=True)
    return found | json.loads(done.stdout)


def rows(count: int, found: dict[str, float], smallest: dict[str, float]) -> list[Row]:
    """Return the figures of a size by name, each with its bar."""
    made: list[Row] = [("recall, CPU ms p50", found["recall_p50"], None)]
    for name in ("fts5", "fts5_all_words"):
        if f"{name}_p50" in found:
            bar = RECALL_RATIO.get(count) if name == "fts5_all_words" else None
            ratio = found["recall_p50"] / found[f"{name}_p50"]
            made += [(f"{name}, CPU ms p50", found[f"{name}_p50"], None)]
            made += [(f"recall / {name}, p50", ratio, bar)]
    is_large = count >= MILLION
    made += [
        ("recall, wall ms p95", found["recall_wall_p95"], RECALL_P95_MS if is_large else None),
        ("session start, wall ms p95", found["start_p95"], START_P95_MS if is_large else None),
        ("resident, MB", found["rss_mb"], RSS_MB if is_large else None),
        ("first recall, wall ms", found["first_recall_ms"], None),
        ("disk, bytes a memory", found["disk_bytes"], DISK_BYTES if count > SIZES[0] else None),
    ]
    if "store_ms" in found:
        made += [("store many, CPU ms each", found["store_ms"], STORE_MS)]
        growth = found["store_last_ms"] / smallest.get("store_ms", found["store_ms"])
        made += [("last tenth / smallest size", growth, GROWTH)]
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures of each size; return 1 when a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--million", action="store_true", help="a million as well (an hour)")
    parser.add_argument("--folder", type=Path, help="keep the stores here, and use what is here")
    parser.add_argument("--control", action="store_true", help="must miss bars")
    parser.add_argument("--json", type=Path, default=Path("scale.json"))
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--plain", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--limit", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.inside:
        print(json.dumps(inside(options.inside, options.plain, options.limit)))
        return 0
    sizes = [*options.sizes, *([MILLION] if options.million else [])]
    figures: dict[str, dict[str, float]] = {}
    missed = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for count in sizes:
            found = figures[str(count)] = measure(folder, count, options.control)
            print(f"\n{count:,} memories", flush=True)
            for name, value, bar in rows(count, found, figures[str(sizes[0])]):
                is_missed = bar is not None and not value <= bar
                missed += is_missed
                verdict = "" if bar is None else f"{'MISSED ' if is_missed else ''}<= {bar:g}"
                print(f"  {name:<32}{value:>10.2f}  {verdict}".rstrip(), flush=True)
    report.write({"sizes": figures, "texts": sentences()[1], "missed": missed}, options.json)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
