"""What counting retrievals costs, and what a kill loses of it: `python -m bench.counting`.

Latency: one thread asks, and beside it a feeder tells the counter 10,000 retrievals a second, in
bursts of ten searches with ten results every 10 ms, as 1,000 searches a second would. Blocks with
counting (each search counts what it found, the feeder counts, the flusher writes) and without
(the feeder wakes up just as often and counts nothing) alternate within the same minutes, the
order turned around from pair to pair. The figure is the ratio of the two medians of each pair,
and the interval is a bootstrap of their median: a busy machine slows both halves of a pair alike.

Kill: a child searches and tells each search; it is killed at some moment, and the oldest count
that is missing says how much was lost.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench import report
from bench.texts import memories, questions
from meritory import Memory
from meritory.engine.memories import recall
from meritory.engine.memories.recall import RETRIEVED, Counter
from meritory.store.sqlite.store import SqliteStore

MEMORIES = 4_000
RATE_PER_S = 10_000
PER_SEARCH = 10
WAKE_S = 0.010
PAIRS = 400
SEARCHES_PER_BLOCK = 8
RESAMPLES = 2_000
RATIO_BAR = 1.02
KILLS = 12
# As shipped.
KILL_INTERVAL_MS = 2_000


class Feeder(threading.Thread):
    """Tells a counter so many retrievals a second; without a counter it only wakes up."""

    def __init__(self, ids: Sequence[str]) -> None:
        super().__init__(daemon=True)
        self._results = [
            [ids[(at * PER_SEARCH + place) % len(ids)] for place in range(PER_SEARCH)]
            for at in range(997)
        ]
        self.counter: Counter | None = None
        self.told = 0
        self.told_s = 0.0
        self.ended = threading.Event()

    def run(self) -> None:
        """Makes up for every moment that has passed since the last burst."""
        owed, before, place = 0.0, time.perf_counter(), 0
        while not self.ended.wait(WAKE_S):
            now = time.perf_counter()
            owed += (now - before) * RATE_PER_S / PER_SEARCH
            counter = self.counter
            if counter is not None:
                self.told_s += now - before
            before = now
            while owed >= 1:
                owed -= 1
                place = (place + 1) % len(self._results)
                if counter is not None:
                    counter.add("default", self._results[place])
                    self.told += PER_SEARCH


def latency(path: Path, pairs: int) -> dict[str, float]:
    """The ratio of search times with and without counting."""
    asked = questions(SEARCHES_PER_BLOCK * 50)
    with Memory(path, background=False) as memory:
        kept = memory.remember_many(
            {"content": text, "on_similar": "keep"} for text in memories(MEMORIES)
        )
        feeder = Feeder([one.memory.id for one in kept if one.memory is not None])
        plain = memory.view()
        plain.backend.services = replace(memory.services, counter=None)
        for question in asked:
            memory.recall(question)
        feeder.start()
        ratios, with_ms, without_ms = [], [], []
        for pair in range(pairs):
            times: dict[bool, float] = {}
            start = pair * SEARCHES_PER_BLOCK % len(asked)
            block = asked[start : start + SEARCHES_PER_BLOCK]
            for counts in (True, False) if pair % 2 else (False, True):
                feeder.counter = memory.services.counter if counts else None
                times[counts] = _median_ms(memory if counts else plain, block)
            ratios.append(times[True] / times[False])
            with_ms.append(times[True])
            without_ms.append(times[False])
        feeder.ended.set()
        feeder.join()
        rate = feeder.told / feeder.told_s
    with Memory(path, background=False) as memory:
        stored = memory.services.store.counters("default")[RETRIEVED]
    low, high = _interval(ratios)
    return {
        "ratio": statistics.median(ratios),
        "ratio_low": low,
        "ratio_high": high,
        "with_ms": statistics.median(with_ms),
        "without_ms": statistics.median(without_ms),
        "told_per_s": rate,
        "stored": float(stored),
        "told": float(feeder.told),
    }


def _interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Between what the median of the pairs lies: other programs make single pairs absurd."""
    values, rng = np.array(ratios), np.random.default_rng(11)
    drawn = values[rng.integers(len(values), size=(RESAMPLES, len(values)))]
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975]).tolist()
    return low, high


def _median_ms(memory: Memory, asked: Sequence[str]) -> float:
    times = []
    for question in asked:
        begun = time.perf_counter()
        memory.recall(question)
        times.append((time.perf_counter() - begun) * 1e3)
    return statistics.median(times)


def increment_us() -> float:
    """What one call for ten results costs on its own, in microseconds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one.db"
        with Memory(path, background=False) as memory:
            counter = memory.services.counter
            if counter is None:
                raise RuntimeError("there is no counter")
            results = [f"m{place}" for place in range(PER_SEARCH)]
            begun = time.perf_counter()
            for _ in range(20_000):
                counter.add("default", results)
            return (time.perf_counter() - begun) / 20_000 * 1e6


def kills(folder: Path, count: int) -> list[float]:
    """For each kill, how old the oldest lost count was, in ms."""
    recall.FLUSH_INTERVAL_MS = KILL_INTERVAL_MS
    os.environ["MERITORY_EMBEDDER_KIND"] = "none"
    path = folder / "kills.db"
    with Memory(path, background=False) as memory:
        memory.remember("The staging database is called heron")
    chance, ages = random.Random(3), []
    for _ in range(count):
        before = _stored(path)
        moments, killed_at = _killed(path, KILL_INTERVAL_MS / 1000 * (1 + chance.random()))
        kept = _stored(path) - before
        missing = moments[kept:]
        ages.append((killed_at - missing[0]) * 1e3 if missing else 0.0)
    return ages


def _stored(path: Path) -> int:
    store = SqliteStore(path)
    try:
        return store.counters("default").get(RETRIEVED, 0)
    finally:
        store.close()


def _killed(path: Path, lifetime_s: float) -> tuple[list[float], float]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            memory = Memory(path, background=False)
            while True:
                memory.recall("heron", limit=1)
                os.write(writing, f"{time.monotonic()}\n".encode())
        finally:
            os._exit(1)
    os.close(writing)
    with open(reading, "rb") as pipe:
        first = pipe.readline()
        time.sleep(lifetime_s)
        killed_at = time.monotonic()
        os.kill(child, signal.SIGKILL)
        told = first + pipe.read()
    os.waitpid(child, 0)
    return [float(line) for line in told.split(b"\n")[:-1]], killed_at


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints and stores; says whether the bar was missed by the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--json", type=Path, default=Path("counting.json"))
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MERITORY_HOME"] = str(Path(folder) / "home")
        single_us = increment_us()
        found = latency(Path(folder) / "store.db", options.pairs)
        ages = kills(Path(folder), options.kills)
    print(f"one call for {PER_SEARCH} results     {single_us:.2f} us")
    print(f"retrievals told beside      {found['told_per_s']:,.0f} a second")
    print(f"search without, with        {found['without_ms']:.2f}, {found['with_ms']:.2f} ms (p50)")
    print(
        f"ratio, median of {options.pairs} pairs   {found['ratio']:.4f}"
        f" ({found['ratio_low']:.4f} to {found['ratio_high']:.4f})"
        f", bar {RATIO_BAR}"
    )
    print(f"counts told and stored      {found['told']:,.0f} and {found['stored']:,.0f}")
    print(
        f"oldest count lost by a kill {max(ages):.0f} ms at most, {statistics.median(ages):.0f} ms"
        f" in the middle of {len(ages)}, bar {KILL_INTERVAL_MS} (the interval),"
        f" {sum(age > KILL_INTERVAL_MS for age in ages)} beyond it"
    )
    figures: dict[str, object] = {
        "increment_us": round(single_us, 3),
        "kill_interval_ms": KILL_INTERVAL_MS,
        "lost_ms": [round(age, 1) for age in ages],
        **{name: round(value, 4) for name, value in found.items()},
    }
    report.write(figures, options.json)
    is_well = found["ratio"] <= RATIO_BAR and max(ages) <= KILL_INTERVAL_MS
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
