"""Many sessions at once: `python -m bench.sessions --load`, an open loop that waits for nobody.

Requests leave at moments drawn beforehand, however slow the answers are, and each is timed from
the moment it should have left. After the rated load come 4 and 20 times as much, each followed by
the rated load again: what is too much must be refused quickly, and forgotten soon after.

Whoever sends a thousand requests a second from Python may be late by itself. Beside the time since
a refusal was due stand the time since its request was sent, and how late requests were sent, so
that a client that cannot keep up is seen and not taken for the daemon.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench import stock
from bench.agents import Agent, Answer, Lines, Request
from bench.served import Daemon, running
from bench.sessions import HISTORY, Row, finish
from bench.texts import memories, questions, sentences

SESSIONS_AT_ONCE = 20
# Besides the 21 requests of a session: what its agent looks up and writes down by itself.
RECALL_SHARE, REMEMBER_SHARE = 4 / 26, 1 / 26
FACTORS, OVERLOAD_S, AFTERWARDS_S = (4, 20), 30.0, 10.0
WARM_UP_S = 10.0
SAMPLE_EVERY_S = 30.0
SETTLED_AFTER_S = 120.0
DRAINED_WITHIN_S = 120.0
# Percentile 99 in ms at the rated load, on a machine that does nothing else.
P99_MS = {"start": 150.0, "prompt": 50.0, "recall": 80.0, "remember": 30.0}
# What a memory and a finished session each keep in the daemon's memory for good, at the least.
VECTOR_BYTES = 4 * 256
GROWTH_PERCENT, REFUSED_P99_MS, NORMAL_WITHIN_S = 5.0, 20.0, 5.0
REFUSALS = (429, 503)


# -- the loop -------------------------------------------------------------------------------


@dataclass
class Heard:
    """What came back in one phase, times in ms from the moment a request was due."""

    accepted: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    refused: list[float] = field(default_factory=list)
    # The same from the moment of sending, and how late every request was sent.
    refused_once_sent: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    # When each request was due, in seconds, how long it took, and whether it was accepted.
    timeline: list[tuple[float, float, bool]] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    def note(self, kind: str, due_s: float, took_ms: float, answer: Answer) -> None:
        """Takes down one answer; a refusal must say when to come back."""
        is_accepted = answer.status == 200
        self.statuses[answer.status] += 1
        self.timeline.append((due_s, took_ms, is_accepted))
        self.late.append(max(0.0, took_ms - answer.took_ms))
        if is_accepted:
            self.accepted[kind].append(took_ms)
        elif answer.status in REFUSALS and answer.says_when:
            self.refused.append(took_ms)
            self.refused_once_sent.append(answer.took_ms)
        else:
            self.errors[f"{kind} {answer.status} {str(answer.body)[:200]}"] += 1

    @property
    def error_count(self) -> int:
        """Answers that are neither a success nor an orderly refusal."""
        return sum(self.errors.values())

    def percentile(self, percent: float) -> float:
        """Of the times of all that was accepted, whatever its kind."""
        times = [took for some in self.accepted.values() for took in some]
        return float(np.percentile(times, percent)) if times else 0.0


class Load:
    """Sends requests at their moments and notes what comes back."""

    def __init__(self, lines: Lines, asked: list[str], texts: Iterable[str]) -> None:
        self._lines = lines
        self._draw = random.Random(5)
        self._asked = asked
        self._texts = iter(texts)
        self._agents: list[Agent] = []
        self._idle: list[Agent] = []

    async def phase(self, rate_per_s: float, seconds: float, at_once: int) -> Heard:
        """Load for a while, with so many agents."""
        while len(self._agents) < at_once:
            self._agents.append(Agent(f"agent{len(self._agents)}", self._draw, self._asked))
            self._idle.append(self._agents[-1])
        heard = Heard()
        tasks: set[asyncio.Task[None]] = set()
        began = time.perf_counter()
        due_s = 0.0
        while due_s < seconds:
            await asyncio.sleep(max(0.0, due_s - (time.perf_counter() - began)))
            task = asyncio.create_task(self._one(heard, began, due_s))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            due_s += self._draw.expovariate(rate_per_s)
        await asyncio.gather(*tasks)
        return heard

    async def _one(self, heard: Heard, began: float, due_s: float) -> None:
        agent = None
        if self._draw.random() < 1.0 - RECALL_SHARE - REMEMBER_SHARE and self._idle:
            agent = self._idle.pop(self._draw.randrange(len(self._idle)))
        request = self._aside() if agent is None else agent.request()
        try:
            answer = await self._lines.ask(request.path, request.body)
        except (OSError, EOFError, ValueError) as error:
            heard.errors[f"{request.kind} {type(error).__name__}"] += 1
        else:
            took_ms = (time.perf_counter() - began - due_s) * 1e3
            heard.note(request.kind, due_s, took_ms, answer)
            if agent is not None and answer.status == 200:
                agent.took(request, answer.body)
        finally:
            if agent is not None:
                self._idle.append(agent)

    def _aside(self) -> Request:
        """What an agent looks up or writes down by itself, beside its session."""
        if self._draw.random() < RECALL_SHARE / (RECALL_SHARE + REMEMBER_SHARE):
            body = {"query": self._draw.choice(self._asked), "project": stock.PROJECT}
            return Request("recall", "/api/memories/search", body)
        body = {"content": next(self._texts), "project": stock.PROJECT}
        return Request("remember", "/api/memories", body)


# -- the phases -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sample:
    """What the daemon holds at a moment."""

    at_s: float
    rss_mb: float
    open_files: int


async def watched(daemon: Daemon, samples: list[Sample]) -> None:
    """Looks at the daemon every now and then, until it is cancelled."""
    began = time.monotonic()
    while True:
        at_s = time.monotonic() - began
        samples.append(Sample(at_s, daemon.rss_mb(), daemon.open_files()))
        await asyncio.sleep(SAMPLE_EVERY_S)


def growth_percent(samples: list[Sample], settled_after_s: float) -> float:
    """How much more memory is held at the end than when everything had been used once."""
    settled = [one.rss_mb for one in samples if one.at_s >= settled_after_s] or [samples[-1].rss_mb]
    return (max(settled[-2:]) / settled[0] - 1.0) * 100.0


def vectors_mb(heard: Heard) -> float:
    """What the index in memory has to grow by: a vector for each new memory and session."""
    return VECTOR_BYTES * sum(len(heard.accepted[kind]) for kind in ("remember", "end")) / 1e6


def normal_after_s(heard: Heard, usual_p95_ms: float) -> float:
    """After how many seconds all is answered, and within twice the usual time, from then on."""
    slow = [
        due_s
        for due_s, took_ms, is_accepted in heard.timeline
        if not is_accepted or took_ms > 2.0 * usual_p95_ms
    ]
    # The few slowest of a quiet minute are no sign of trouble.
    slow.sort()
    return slow[-1 - len(heard.timeline) // 20] if len(slow) > len(heard.timeline) // 20 else 0.0


async def run(daemon: Daemon, options: argparse.Namespace) -> tuple[list[Row], dict[str, object]]:
    """All phases, one after the other."""
    lines = Lines(daemon.socket)
    load, samples = Load(lines, questions(400), memories(20_000, seed=5)), list[Sample]()
    await load.phase(options.rate, min(WARM_UP_S, options.minutes * 60.0), SESSIONS_AT_ONCE)
    watcher = asyncio.create_task(watched(daemon, samples))
    before_ms = daemon.cpu_ms()
    rated = await load.phase(options.rate, options.minutes * 60.0, SESSIONS_AT_ONCE)
    cpu_each_ms = (daemon.cpu_ms() - before_ms) / max(1, len(rated.timeline))
    watcher.cancel()
    samples.append(Sample(options.minutes * 60.0, daemon.rss_mb(), daemon.open_files()))
    rows = rated_rows(rated, samples, cpu_each_ms, options)
    for factor in FACTORS:
        over = await load.phase(options.rate * factor, OVERLOAD_S, SESSIONS_AT_ONCE * factor)
        after = await load.phase(options.rate, AFTERWARDS_S, SESSIONS_AT_ONCE)
        rows += overload_rows(factor, over, after, rated)
    await lines.close()
    rows.append(await _jobs_row(daemon))
    told: dict[str, object] = {
        "rate_per_s": options.rate,
        "minutes": options.minutes,
        "samples": [[round(one.at_s), round(one.rss_mb, 1), one.open_files] for one in samples],
        "errors": dict(rated.errors),
    }
    return rows, told


async def _jobs_row(daemon: Daemon) -> Row:
    """What is left to be learned when everybody has gone, and how long that takes."""
    began = time.monotonic()
    first = left = _jobs_left(daemon)
    while left and time.monotonic() - began < DRAINED_WITHIN_S:
        await asyncio.sleep(0.5)
        left = _jobs_left(daemon)
    note = f"{first} at first, {time.monotonic() - began:.0f} s to drain"
    return "jobs left", float(left), 0.0, note


def _jobs_left(daemon: Daemon) -> int:
    counts = daemon.ask("GET", "/api/pipeline/status").body["queue"]
    return int(counts.get("queued", 0)) + int(counts.get("running", 0))


# -- the rows -------------------------------------------------------------------------------


def rated_rows(
    heard: Heard, samples: list[Sample], cpu_each_ms: float, options: argparse.Namespace
) -> list[Row]:
    """What the rated load says."""
    refused = sum(heard.statuses[status] for status in REFUSALS)
    rows: list[Row] = [
        (
            f"errors at {options.rate:g}/s",
            float(heard.error_count + refused),
            0.0,
            f"{len(heard.timeline)} requests, {refused} refused {dict(heard.errors) or ''}",
        ),
        (f"daemon CPU a request at {options.rate:g}/s, ms", cpu_each_ms, None, ""),
    ]
    for kind, times in sorted(heard.accepted.items()):
        p50, p95, p99 = np.percentile(times, [50, 95, 99]).tolist()
        note = f"p50 {p50:.1f}, p95 {p95:.1f}, {len(times)} times"
        rows.append((f"{kind}, p99 ms", p99, P99_MS.get(kind), note))
    settled_after_s = min(SETTLED_AFTER_S, options.minutes * 12.0)
    grown = growth_percent(samples, settled_after_s)
    kept_mb = vectors_mb(heard) * (1.0 - settled_after_s / (options.minutes * 60.0))
    apart = grown - 100.0 * kept_mb / samples[-1].rss_mb
    files = [one.open_files for one in samples]
    return [
        *rows,
        ("RSS at the end, MB", samples[-1].rss_mb, None, f"{samples[0].rss_mb:.0f} at the start"),
        (f"RSS growth after {settled_after_s:.0f} s, %", grown, None, ""),
        (
            "the same apart from new vectors, %",
            apart,
            GROWTH_PERCENT,
            f"{kept_mb:.1f} MB are vectors of what was stored meanwhile",
        ),
        ("open files at the end", float(files[-1]), None, f"{files[0]} at the start"),
    ]


def overload_rows(factor: int, over: Heard, after: Heard, rated: Heard) -> list[Row]:
    """What too much load says, and how soon it is forgotten."""
    refused, count = len(over.refused), len(over.timeline)
    usual = rated.percentile(95)
    told = ", ".join(f"{status}: {many}" for status, many in sorted(over.statuses.items()))
    half, quick = _percentiles(over.refused, 50, 99)
    sent_half, sent_quick = _percentiles(over.refused_once_sent, 50, 99)
    late_half, late_most = _percentiles(over.late, 50, 99)
    normal_s = normal_after_s(after, usual)
    return [
        (f"{factor}x: errors", float(over.error_count), 0.0, f"{dict(over.errors) or told}"),
        (f"{factor}x: refused, %", 100.0 * refused / max(1, count), None, told),
        (f"{factor}x: refusal, p99 ms", quick, REFUSED_P99_MS, f"p50 {half:.1f}"),
        (f"{factor}x: refusal once sent, p99 ms", sent_quick, None, f"p50 {sent_half:.1f}"),
        (f"{factor}x: sent late by the client, p99 ms", late_most, None, f"p50 {late_half:.1f}"),
        (
            f"{factor}x: accepted, p99 ms",
            over.percentile(99),
            None,
            f"p50 {over.percentile(50):.1f}, usual p99 {rated.percentile(99):.1f}",
        ),
        (
            f"{factor}x: back to normal after, s",
            normal_s,
            NORMAL_WITHIN_S,
            f"twice the usual p95 of {usual:.1f} ms",
        ),
    ]


def _percentiles(times: list[float], *percents: float) -> list[float]:
    found: list[float] = np.percentile(times or [0.0], percents).tolist()
    return found


def main(options: argparse.Namespace) -> int:
    """Measures, prints and stores; says which bars were missed by the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        stock.fill(home, memories(options.memories), questions(HISTORY))
        with running(home) as daemon:
            rows, told = asyncio.run(run(daemon, options))
    return finish(rows, options.json or Path("load.json"), {"texts": sentences()[1], **told})
