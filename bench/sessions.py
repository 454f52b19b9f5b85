"""What a session costs an agent: `python -m bench.sessions`, and `--load` for many at once.

A daemon process of its own serves stores of several sizes over its Unix socket. The machine may
be shared and noisy, so each figure is a median over rounds, comes with the daemon's CPU time, and
beside it stands the ratio to a plain search over the same texts in the same minutes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench import report, stock
from bench.plain import TextIndex
from bench.served import Daemon, running
from bench.speed import show
from bench.texts import memories, questions, sentences
from meritory.domain.policy import EmbedderSpec
from meritory.ports.embedder import open_embedder

SMALL, MEDIUM, LARGE, MILLION = 100, 4_000, 100_000, 1_000_000
POOL_SIZE = 150
# Sessions of the past in each store.
HISTORY, SHORT_HISTORY = 200, 50

Row = tuple[str, float, float | None, str]


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured, and from where on a figure is too high."""

    rounds: int = 5
    starts_per_round: int = 40
    prompts_per_start: int = 3
    daemon_starts: int = 5
    start_p50_ms: float = 15.0
    start_p95_ms: float = 40.0
    large_start_p95_ms: float = 100.0
    prompt_p50_ms: float = 8.0
    prompt_p95_ms: float = 20.0
    ready_ms: float = 1_000.0


# -- measuring ------------------------------------------------------------------------------


@dataclass
class Timed:
    """Times of one kind of request, round by round, and the daemon's CPU time in all of them."""

    rounds: list[list[float]] = field(default_factory=list)
    cpu_ms: float = 0.0
    errors: int = 0

    def percentile(self, percent: float) -> float:
        """The median over the rounds of a percentile."""
        return statistics.median(float(np.percentile(one, percent)) for one in self.rounds)

    @property
    def p50(self) -> float:
        return self.percentile(50)

    @property
    def p95(self) -> float:
        return self.percentile(95)

    @property
    def cpu_each_ms(self) -> float:
        """CPU time of one request on average."""
        return self.cpu_ms / max(1, sum(len(one) for one in self.rounds))

    @property
    def note(self) -> str:
        """What is told beside a figure."""
        return f"daemon CPU {self.cpu_each_ms:.1f} ms"


def sessions(daemon: Daemon, asked: Sequence[str], plan: Plan) -> dict[str, Timed]:
    """Sessions one after the other: each begins, is prompted, and is left open."""
    times = {kind: Timed() for kind in ("start", "prompt", "start without context")}
    questions_ = _endless(asked)
    for number in range(plan.rounds):
        keys = [f"r{number}-{at}" for at in range(plan.starts_per_round)]
        _round(daemon, times["start"], [_start(key, next(questions_)) for key in keys])
        prompts = [_prompt(key, next(questions_)) for key in keys * plan.prompts_per_start]
        _round(daemon, times["prompt"], prompts)
        bare = [_start(f"{key}-bare", None) for key in keys[: max(1, len(keys) // 4)]]
        _round(daemon, times["start without context"], bare)
    return times


def _endless(texts: Sequence[str]) -> Iterator[str]:
    while True:
        yield from texts


def _start(key: str, context: str | None) -> tuple[str, dict[str, Any]]:
    body = {"session_key": key, "project": stock.PROJECT, "context": context, "harness": "bench"}
    return "/api/hooks/session-start", body


def _prompt(key: str, text: str) -> tuple[str, dict[str, Any]]:
    body = {"session_key": key, "project": stock.PROJECT, "prompt": text, "harness": "bench"}
    return "/api/hooks/user-prompt-submit", body


def _round(daemon: Daemon, times: Timed, requests: Sequence[tuple[str, dict[str, Any]]]) -> None:
    taken = []
    before_ms = daemon.cpu_ms()
    for path, body in requests:
        reply = daemon.ask("POST", path, body)
        taken.append(reply.took_ms)
        times.errors += reply.status != 200
    times.cpu_ms += daemon.cpu_ms() - before_ms
    times.rounds.append(taken)


def candidates(daemon: Daemon, key: str) -> tuple[int, int]:
    """How many candidates of a session were recorded, and how many of them are required ones."""
    found = daemon.ask("GET", f"/api/sessions/{key}/memories").body["results"]
    return len(found), sum("required" in one["origins"] for one in found)


def candidate_row(daemon: Daemon, count: int, asked: Sequence[str]) -> Row:
    """The most candidates that any of a few sessions recorded, the required ones apart."""
    most, required = 0, 0
    for number, text in enumerate(asked):
        key = f"candidates-{number}"
        daemon.ask("POST", *_start(key, text))
        found, must = candidates(daemon, key)
        most, required = max(most, found - must), max(required, must)
    name = f"candidates recorded at {count:,}, required apart"
    return name, float(most), float(POOL_SIZE), f"{required} required at most"


def plain_times(texts: Sequence[str], asked: Sequence[str]) -> Timed:
    """A search anybody could build, over the same texts: BM25 and cosine, fused by rank."""
    embedder = open_embedder(EmbedderSpec())
    vectors, index, times = embedder.embed_documents(list(texts)), TextIndex(texts), Timed()
    taken = []
    before = time.process_time()
    for question in asked:
        began = time.perf_counter()
        found = (vectors @ embedder.embed_query(question), index.scores(question))
        ranks = [np.argsort(np.argsort(-scores)) for scores in found]
        np.argsort(-sum(1.0 / (60 + rank) for rank in ranks))[:10]
        taken.append((time.perf_counter() - began) * 1e3)
    times.cpu_ms = (time.process_time() - before) * 1e3
    times.rounds.append(taken)
    return times


# -- the rows -------------------------------------------------------------------------------


def ready_row(home: Path, name: str, plan: Plan) -> Row:
    """From the start of the process to the first answer."""
    taken, busy = [], []
    for _ in range(plan.daemon_starts):
        with running(home) as daemon:
            taken.append(daemon.ready_ms)
            busy.append(daemon.cpu_ms())
    note = f"least {min(taken):.0f} ms, CPU {statistics.median(busy):.0f} ms"
    return f"daemon up, {name}, ms", statistics.median(taken), plan.ready_ms, note


def small(folder: Path, texts: Sequence[str], asked: Sequence[str], plan: Plan) -> list[Row]:
    """An empty store, and one so small that nearly everything is a candidate."""
    (folder / "empty").mkdir(mode=0o700)
    rows = [ready_row(folder / "empty", "empty store", plan)]
    stock.fill(folder / "small", texts, asked[:10])
    with running(folder / "small") as daemon:
        rows.append(candidate_row(daemon, len(texts), asked[:5]))
    return rows


def medium(home: Path, texts: Sequence[str], asked: Sequence[str], plan: Plan) -> list[Row]:
    """Starts and prompts at the size that most stores have."""
    stock.fill(home, texts, asked[:HISTORY])
    count = len(texts)
    rows = [ready_row(home, f"{count:,} memories", plan)]
    with running(home) as daemon:
        fresh_mb = daemon.rss_mb()
        first = daemon.ask("POST", *_start("first", asked[0]))
        times = sessions(daemon, asked, plan)
        plain = plain_times(texts, asked[:100])
        rows += [
            (f"first start at {count:,} (loads the index), ms", first.took_ms, None, ""),
            *_rows(times["start"], f"start at {count:,}", (plan.start_p50_ms, plan.start_p95_ms)),
            *_rows(times["start without context"], f"start without context at {count:,}"),
            *_rows(
                times["prompt"], f"prompt at {count:,}", (plan.prompt_p50_ms, plan.prompt_p95_ms)
            ),
            *_ratios(times, plain),
            candidate_row(daemon, count, asked[:5]),
            _rss_row(daemon, count, fresh_mb),
            _error_row(times, count),
        ]
    return rows


def large(home: Path, texts: Sequence[str], asked: Sequence[str], plan: Plan) -> list[Row]:
    """Starts and prompts where no store should be slow either."""
    count = len(texts)
    began, cpu = time.perf_counter(), time.process_time()
    stock.fill(home, texts, asked[:SHORT_HISTORY])
    taken, used = time.perf_counter() - began, time.process_time() - cpu
    bar = plan.large_start_p95_ms if count <= LARGE else None
    with running(home) as daemon:
        fresh_mb = daemon.rss_mb()
        first = daemon.ask("POST", *_start("first", asked[0]))
        times = sessions(daemon, asked, plan)
        return [
            (f"filling a store of {count:,}, s", taken, None, f"CPU {used:.0f} s"),
            (f"daemon up, {count:,} memories, ms", daemon.ready_ms, None, ""),
            (f"first start at {count:,} (loads the index), ms", first.took_ms, None, ""),
            *_rows(times["start"], f"start at {count:,}", (None, bar)),
            *_rows(times["prompt"], f"prompt at {count:,}"),
            candidate_row(daemon, count, asked[:5]),
            _rss_row(daemon, count, fresh_mb),
            _error_row(times, count),
        ]


def _rows(
    times: Timed, name: str, bars: tuple[float | None, float | None] = (None, None)
) -> list[Row]:
    return [
        (f"{name}, p50 ms", times.p50, bars[0], times.note),
        (f"{name}, p95 ms", times.p95, bars[1], ""),
    ]


def _ratios(times: dict[str, Timed], plain: Timed) -> list[Row]:
    told = f"{plain.p50:.2f} ms, CPU {plain.cpu_each_ms:.2f} ms"
    return [
        row
        for kind in ("start", "prompt")
        for row in (
            (
                f"{kind} / BM25 + cosine RRF in process, p50",
                times[kind].p50 / plain.p50,
                None,
                told,
            ),
            (
                f"{kind} / BM25 + cosine RRF in process, CPU",
                times[kind].cpu_each_ms / plain.cpu_each_ms,
                None,
                "",
            ),
        )
    ]


def _rss_row(daemon: Daemon, count: int, fresh_mb: float) -> Row:
    return f"RSS of the daemon at {count:,}, MB", daemon.rss_mb(), None, f"{fresh_mb:.0f} when up"


def _error_row(times: dict[str, Timed], count: int) -> Row:
    asked = sum(len(one) for timed in times.values() for one in timed.rounds)
    errors = sum(timed.errors for timed in times.values())
    return f"errors at {count:,}", float(errors), 0.0, f"{asked} requests"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints and stores; says which bars were missed by the exit code."""
    options = _options(arguments)
    if options.load:
        from bench import load

        return load.main(options)
    plan, asked = Plan(), questions(400)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        rows = small(root, memories(SMALL), asked, plan)
        rows += medium(root / "medium", memories(MEDIUM), asked, plan)
        if not options.small_only:
            rows += large(root / "large", memories(LARGE), asked, plan)
        if options.million:
            few = Plan(rounds=3, starts_per_round=10)
            rows += large(root / "million", memories(MILLION), asked, few)
    return finish(rows, options.json or Path("sessions.json"), {"texts": sentences()[1]})


def finish(rows: list[Row], path: Path, figures: dict[str, object]) -> int:
    """Prints the table and keeps it; 1 when a bar was missed."""
    missed = show(rows)
    told = [
        {"name": name, "value": round(value, 3), "bar": bar, "note": note}
        for name, value, bar, note in rows
    ]
    report.write({**figures, "load_average": os.getloadavg()[0], "rows": told}, path)
    return 1 if missed else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.sessions", description=__doc__)
    parser.add_argument("--json", type=Path, help="result file")
    parser.add_argument("--small-only", action="store_true", help="leave the 100,000 out")
    parser.add_argument("--million", action="store_true", help="a million memories as well (slow)")
    parser.add_argument("--load", action="store_true", help="many sessions at once instead")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long the load lasts")
    parser.add_argument("--memories", type=int, default=MEDIUM, help="in the store of the load")
    parser.add_argument("--rate", type=float, default=50.0, help="requests a second")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
