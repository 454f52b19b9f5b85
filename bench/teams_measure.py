"""What one process that serves every tenant of a PostgreSQL store sees; nothing else is in it."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from bench import stock
from bench.teams_fill import Tenant, settings_of
from bench.texts import questions, sentences
from meritory import Memory
from meritory.domain.memory import Scope
from meritory.store.contract.memories import Gathering, Search
from meritory.store.postgres import vectors

TOP = 10
Call = Callable[[str], object]
# One search for meaning alone, with nothing that words or neighbours could add.
_POOL = 50


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is asked, and what."""

    recalls: int = 600
    starts: int = 300
    hard_queries: int = 60
    seed: int = 17


@dataclass(slots=True)
class Figures:
    """Everything measured, in ms where it is a time."""

    values: dict[str, float] = field(default_factory=dict)
    cold: list[tuple[int, float]] = field(default_factory=list)

    def take(self, name: str, calls: Sequence[Call], asked: Iterator[str], keep: Path) -> None:
        """Calls one after the other; keeps what lies in the middle, and the worst but for few."""
        own_ms, server_ms = time.process_time() * 1e3, server_cpu_ms(keep)
        times = [timed(call, next(asked)) for call in calls]
        self.values[f"{name} own CPU"] = (time.process_time() * 1e3 - own_ms) / len(calls)
        self.values[f"{name} server CPU"] = (server_cpu_ms(keep) - server_ms) / len(calls)
        for percent in (50, 95, 99):
            self.values[f"{name} p{percent}"] = float(np.percentile(times, percent))


def measured(home: Path, url: str, tenants: Sequence[Tenant], plan: Plan) -> Figures:
    """Touches every tenant for the first time, then asks all of them in any order."""
    figures, chance = Figures(), random.Random(plan.seed)
    asked = cycle(questions(1_500))
    with Memory(settings=settings_of(home, url), background=False) as memory:
        views = {
            tenant.name: memory.view(user=tenant.name, project=stock.PROJECT) for tenant in tenants
        }
        # The embedder is loaded once a process, whoever asks.
        memory.services.embedding.query("anything")
        figures.values["rss before any tenant, MB"] = rss_mb()
        for tenant in chance.sample(tenants, len(tenants)):
            took = timed(views[tenant.name].recall, next(asked))
            figures.cold.append((tenant.size, took))
        figures.values["rss with all tenants, MB"] = rss_mb()
        for tenant in tenants:
            views[tenant.name].session(f"warm-{time.time_ns()}", context=next(asked))
        for name, weights in _draws(tenants).items():
            drawn = chance.choices(tenants, weights, k=plan.recalls)
            calls = [views[one.name].recall for one in drawn]
            figures.take(f"recall, {name}", calls, asked, home.parent)
            drawn = chance.choices(tenants, weights, k=plan.starts)
            figures.take(
                f"session start, {name}",
                [_start(views[one.name]) for one in drawn],
                asked,
                home.parent,
            )
        figures.values["rss at the end, MB"] = rss_mb()
        figures.values |= index_quality(memory, tenants, plan)
        figures.values["load average"] = os.getloadavg()[0]
    return figures


def _draws(tenants: Sequence[Tenant]) -> dict[str, list[float]]:
    """Who asks how often: as many as there are memories, or all alike."""
    return {
        "by size": [float(tenant.size) for tenant in tenants],
        "all alike": [1.0 for _ in tenants],
    }


def _start(view: Memory) -> Callable[[str], object]:
    return lambda context: view.session(f"bench-{time.time_ns()}", context=context)


def timed(call: Callable[[str], object], text: str) -> float:
    """How long one call takes, in ms."""
    began = time.perf_counter()
    call(text)
    return (time.perf_counter() - began) * 1e3


# -- what the index finds ---------------------------------------------------------------------


def index_quality(memory: Memory, tenants: Sequence[Tenant], plan: Plan) -> dict[str, float]:
    """Of the ten nearest of a tenant, how many the index finds, asked as a search is.

    Questions have no answer here, and sentences of others lie nearer to what those have: both are
    harder for a graph than asking for what it holds.
    """
    large = [tenant for tenant in tenants if tenant.size > vectors.EXACT_ROWS]
    found: dict[str, list[float]] = {"recall": [], "session start": []}
    times: list[float] = []
    for tenant, texts in zip(large, _hard(plan, len(large)), strict=True):
        scope = Scope(tenant.name, None, stock.PROJECT)
        for text in texts:
            exactly = _nearest(memory, scope, text, exactly=True)
            began = time.perf_counter()
            nearly = _nearest(memory, scope, text, exactly=False)
            times.append((time.perf_counter() - began) * 1e3)
            for name, ids in exactly.items():
                found[name].append(len(ids & nearly[name]) / max(len(ids), 1))
    if not times:
        return {}
    return {
        "large tenants": float(len(large)),
        "hard queries": float(len(times)),
        **{f"recall@10 of the index, {name}": float(np.mean(all_)) for name, all_ in found.items()},
        **{f"worst of them, {name}": float(np.min(all_)) for name, all_ in found.items()},
        "both searches through the index p50": float(np.median(times)),
    }


def _hard(plan: Plan, count: int) -> Iterator[list[str]]:
    chance = random.Random(plan.seed + 1)
    asked, said = questions(1_500), sentences()[0]
    half = plan.hard_queries // 2
    for _ in range(count):
        yield [*chance.sample(asked, half), *chance.sample(said, plan.hard_queries - half)]


def _nearest(memory: Memory, scope: Scope, text: str, *, exactly: bool) -> dict[str, set[int]]:
    """The rows of the ten nearest, by the measure of a search and by that of a session's start."""
    query, store = memory.services.embedding.query(text), memory.services.store
    search = Search(scope, (), query.embedder, query.vector, vector_limit=_POOL)
    limit = vectors.EXACT_ROWS
    try:
        # The same way through the store, which then takes the tenant for a small one.
        vectors.EXACT_ROWS = 10**9 if exactly else limit
        pool = store.search(search)
        gathered = store.gather(Gathering(search, 0, np.empty(0, np.int64), ()))
    finally:
        vectors.EXACT_ROWS = limit
    best = np.argsort(-np.nan_to_num(pool.cosine, nan=-1.0), kind="stable")[:TOP]
    return {
        "recall": set(pool.rows[best].tolist()),
        "session start": set(gathered.by_cosine[:TOP].tolist()),
    }


# -- what it takes ----------------------------------------------------------------------------


def server_cpu_ms(keep: Path) -> float:
    """The CPU time of all that the server started and that still runs."""
    (postmaster, *_) = (keep / "server" / "data" / "postmaster.pid").read_text().split()
    ticks = 0
    for listing in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = listing.read_text(encoding="utf-8").rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:13])) if fields[1] == postmaster else 0
    return ticks * 1e3 / os.sysconf("SC_CLK_TCK")


def rss_mb() -> float:
    """The memory of this process."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return float("nan")


def as_json(figures: Figures) -> dict[str, Any]:
    """All of it for the process that asked."""
    return {"values": figures.values, "cold": figures.cold}
