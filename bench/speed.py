"""Speed and memory, with plain alternatives timed in the same process: `python -m bench.speed`.

The machine may be shared and noisy, so each figure comes with the ratio to a plain alternative
measured in the same minutes, and with CPU time beside the wall clock.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from bench import report
from bench.plain import TextIndex
from bench.texts import memories, questions, sentences
from meritory import Memory
from meritory.domain.policy import EmbedderSpec
from meritory.engine.transfer.import_ import ImportOptions, import_found, recognise
from meritory.ports.embedder import open_embedder

SMALL, LARGE = 4_000, 100_000
QUERIES = 200
WRITES = 200
STARTS = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints and stores; says which bars were missed by the exit code."""
    options = _options(arguments)
    figures: dict[str, object] = {"texts": sentences()[1]}
    rows: list[tuple[str, float, float | None, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        rows += starts()
        rows += small(Path(folder) / "small.db")
        if not options.small_only:
            rows += large(Path(folder))
    missed = show(rows)
    figures["rows"] = [
        {"name": name, "value": round(value, 3), "bar": bar, "note": note}
        for name, value, bar, note in rows
    ]
    report.write(figures, options.json)
    return 1 if missed else 0


def starts() -> list[tuple[str, float, float | None, str]]:
    """How long a bare import and the command line's help take, above a bare interpreter."""
    rows = []
    bare = _start_ms(["-c", "pass"])
    for name, command, bar in (
        ("import meritory", ["-c", "import meritory"], 150.0),
        ("meritory --help", ["-m", "meritory", "--help"], 250.0),
    ):
        taken = _start_ms(command)
        rows.append((f"{name}, ms", taken, bar, f"bare python {bare:.0f} ms"))
    return rows


def _start_ms(command: list[str]) -> float:
    times = []
    for _ in range(STARTS):
        begun = time.perf_counter()
        subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
        times.append((time.perf_counter() - begun) * 1e3)
    return statistics.median(times)


def small(path: Path) -> list[tuple[str, float, float | None, str]]:
    """Recall and remember at 4,000 memories against plain searches over the same texts."""
    texts, asked = memories(SMALL + WRITES), questions(QUERIES)
    with Memory(path) as memory:
        memory.remember_many([{**item, "on_similar": "keep"} for item in turns(texts[:SMALL])])
        memory.recall(asked[0])
        recalls = _timed(memory.recall, asked)
        plain = _plain(texts[:SMALL], asked)
        writes = _timed(memory.remember, texts[SMALL:])
    rows = [
        ("recall at 4,000, p50 ms", recalls.p50, 5.0, f"CPU {recalls.cpu:.2f} ms"),
        ("recall at 4,000, p95 ms", recalls.p95, None, ""),
        ("remember at 4,000, p50 ms", writes.p50, 10.0, f"one fsync {_fsync_ms(path):.1f} ms"),
    ]
    for name, times in plain.items():
        ratio = recalls.p50 / times.p50
        rows.append((f"recall / {name}, p50", ratio, None, f"{times.p50:.2f} ms"))
    return rows


def turns(texts: list[str]) -> list[dict[str, object]]:
    """The texts as turns of sessions, ten each, as an agent's memories often are."""
    return [
        {
            "content": text,
            "source": {"harness": "bench", "session_key": f"s{at // 10}", "turn": str(at % 10)},
        }
        for at, text in enumerate(texts)
    ]


class Times:
    """Wall-clock times of single calls, and the CPU time of one on average, in ms."""

    def __init__(self, wall: list[float], cpu: float) -> None:
        self.p50, self.p95 = np.percentile(wall, [50, 95]).tolist()
        self.cpu = cpu


def _timed(call: Callable[[str], object], inputs: Sequence[str]) -> Times:
    wall = []
    cpu = time.process_time()
    for text in inputs:
        begun = time.perf_counter()
        call(text)
        wall.append((time.perf_counter() - begun) * 1e3)
    return Times(wall, (time.process_time() - cpu) * 1e3 / len(inputs))


def _plain(texts: list[str], asked: list[str]) -> dict[str, Times]:
    embedder = open_embedder(EmbedderSpec())
    vectors = embedder.embed_documents(texts)
    index = TextIndex(texts)

    def cosine(question: str) -> object:
        return np.argsort(-(vectors @ embedder.embed_query(question)))[:10]

    def text(question: str) -> object:
        return np.argsort(-index.scores(question))[:10]

    def fused(question: str) -> object:
        ranks = [
            np.argsort(np.argsort(-scores))
            for scores in (vectors @ embedder.embed_query(question), index.scores(question))
        ]
        return np.argsort(-sum(1.0 / (60 + rank) for rank in ranks))[:10]

    return {
        "FTS5 alone": _timed(text, asked),
        "cosine alone": _timed(cosine, asked),
        "BM25 + cosine RRF": _timed(fused, asked),
    }


def _fsync_ms(beside: Path) -> float:
    times = []
    with (beside.parent / "probe").open("wb") as file:
        for _ in range(30):
            begun = time.perf_counter()
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
            times.append((time.perf_counter() - begun) * 1e3)
    return statistics.median(times)


def large(folder: Path) -> list[tuple[str, float, float | None, str]]:
    """Import of 100,000 lines, then recall and memory use in a fresh process."""
    source, path = folder / "import.jsonl", folder / "large.db"
    with source.open("w", encoding="utf-8") as file:
        for item in turns(memories(LARGE)):
            file.write(json.dumps(item) + "\n")
    begun, cpu = time.perf_counter(), time.process_time()
    with Memory(path) as memory:
        services, scope, found = memory.services, memory.scope, recognise(source)
        result = import_found(services, scope, found, ImportOptions(), lambda done, total: None)
        outcomes = dict(result.outcomes)
    taken, used = time.perf_counter() - begun, time.process_time() - cpu
    rows: list[tuple[str, float, float | None, str]] = [
        ("import of 100,000 lines, s", taken, 180.0, f"CPU {used:.0f} s, {outcomes}")
    ]
    done = subprocess.run(
        [sys.executable, "-m", "bench.speed", "--inside", str(path)],
        check=True,
        capture_output=True,
        text=True,
    )
    inside = json.loads(done.stdout)
    size_mb = path.stat().st_size / 1e6
    rows += [
        ("first recall at 100,000 (loads the index), ms", inside["first_ms"], None, ""),
        ("recall at 100,000, p50 ms", inside["p50"], None, f"CPU {inside['cpu']:.1f} ms"),
        ("recall at 100,000, p95 ms", inside["p95"], 50.0, ""),
        ("remember at 100,000, p50 ms", inside["remember_p50"], None, ""),
        ("RSS at 100,000, MB", inside["rss_mb"], 350.0, f"database {size_mb:.0f} MB"),
    ]
    return rows


def inside(path: Path) -> int:
    """What one embedded process sees at 100,000 memories; prints JSON."""
    asked = questions(QUERIES)
    with Memory(path) as memory:
        begun = time.perf_counter()
        memory.recall(asked[0])
        first_ms = (time.perf_counter() - begun) * 1e3
        times = _timed(memory.recall, asked)
        rss_mb = _rss_mb()
        writes = _timed(memory.remember, [f"{text} indeed" for text in memories(50, seed=99)])
    figures = {
        "first_ms": first_ms,
        "p50": times.p50,
        "p95": times.p95,
        "cpu": times.cpu,
        "rss_mb": rss_mb,
        "remember_p50": writes.p50,
    }
    print(json.dumps(figures))
    return 0


def _rss_mb() -> float:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return float("nan")


def show(rows: list[tuple[str, float, float | None, str]]) -> list[str]:
    """Prints the table and returns the names of the bars that were missed."""
    missed = []
    for name, value, bar, note in rows:
        verdict = ""
        if bar is not None:
            verdict = f"<= {bar:g}" if value <= bar else f"MISSED <= {bar:g}"
            if value > bar:
                missed.append(name)
        print(f"{name:<48}{value:>10.2f}  {verdict:<16}{note}")
    return missed


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.speed", description=__doc__)
    parser.add_argument("--json", type=Path, default=Path("speed.json"), help="result file")
    parser.add_argument("--small-only", action="store_true", help="leave the 100,000 out")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    given = _options(None)
    sys.exit(inside(given.inside) if given.inside else main())
