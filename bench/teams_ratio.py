"""The same memories in a file and in a database, asked in turn: what sharing a store costs."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psycopg

from bench import stock
from bench.teams_fill import Arrival, Tenant, arrivals, erase, load, settings_of
from bench.teams_measure import timed
from bench.texts import memories, questions
from meritory import Memory
from meritory.settings import load_settings
from meritory.store.contract.store import Store, Transaction
from meritory.store.postgres.write import ARRIVALS_LIMIT

# Nobody's tenant, into which many are stored at once.
_BULK = "bulk"


@dataclass(frozen=True, slots=True)
class Amount:
    """How often each is asked."""

    recalls: int = 150
    starts: int = 80
    writes: int = 80
    bulk: int = 3 * ARRIVALS_LIMIT


@dataclass(frozen=True, slots=True)
class Ratio:
    """One thing done on both sides, in ms, and what the database takes of the file's time."""

    name: str
    file_ms: float
    database_ms: float

    @property
    def ratio(self) -> float:
        """Above one the database is slower."""
        return self.database_ms / self.file_ms


@contextlib.contextmanager
def both(home: Path, url: str, tenant: Tenant) -> Iterator[tuple[Memory, Memory]]:
    """The same tenant in a file and in the database; the file is filled when it is not there."""
    file = home / "files" / f"{tenant.name}-{tenant.size}.db"
    is_new = not file.exists()
    file.parent.mkdir(parents=True, exist_ok=True)
    of_file = load_settings(home / "home", {})
    with (
        Memory(file, settings=of_file, background=False, user=tenant.name) as own,
        Memory(settings=settings_of(home / "home", url), background=False) as shared,
    ):
        if is_new:
            texts = tenant.texts()
            for start in range(0, len(texts), ARRIVALS_LIMIT):
                piece = texts[start : start + ARRIVALS_LIMIT]
                one_by_one(own.services.store, list(arrivals(own.services, own.scope, piece)))
        yield (
            own.view(user=tenant.name, project=stock.PROJECT),
            shared.view(user=tenant.name, project=stock.PROJECT),
        )


def one_by_one(store: Store, taken: Sequence[Arrival]) -> None:
    """Stores memories in one transaction, one after the other."""

    def work(transaction: Transaction) -> None:
        for memory, change in taken:
            transaction.insert(memory, change)

    store.write("default", work)


def ratios(home: Path, url: str, tenant: Tenant, amount: Amount) -> list[Ratio]:
    """Searching, beginning sessions and storing, in turn on both sides."""
    asked = questions(amount.recalls)
    new = [f"{text} So it was said." for text in memories(amount.writes, seed=4_711)]
    with both(home, url, tenant) as pair:
        for view in pair:
            for text in asked[:5]:
                view.recall(text)
                view.session(f"warm-{time.time_ns()}", context=text)
        found = [
            _in_turn("recall p50", [view.recall for view in pair], asked, 50),
            _in_turn("recall p95", [view.recall for view in pair], asked, 95),
            _in_turn("session start p50", [_start(v) for v in pair], asked[: amount.starts], 50),
        ]
        written: list[list[str]] = [[], []]
        calls = [_write(view, ids) for view, ids in zip(pair, written, strict=True)]
        found.append(_in_turn("remember p50", calls, new, 50))
        for view, ids in zip(pair, written, strict=True):
            _purge(view, ids)
    return found


def _in_turn(
    name: str, calls: Sequence[Callable[[str], object]], texts: Sequence[str], percent: float
) -> Ratio:
    times: list[list[float]] = [[], []]
    for at, text in enumerate(texts):
        for side in (0, 1) if at % 2 else (1, 0):
            times[side].append(timed(calls[side], text))
    file_ms, database_ms = (float(np.percentile(one, percent)) for one in times)
    return Ratio(name, file_ms, database_ms)


def _start(view: Memory) -> Callable[[str], object]:
    return lambda context: view.session(f"bench-{time.time_ns()}", context=context)


def _write(view: Memory, ids: list[str]) -> Callable[[str], object]:
    return lambda text: ids.append(view.remember(text, on_similar="keep").id)


def _purge(view: Memory, ids: Sequence[str]) -> None:
    """What was stored for measuring goes again, so that the next run finds the same."""

    def work(transaction: Transaction) -> None:
        for memory_id in ids:
            transaction.purge(view.scope.user, memory_id)

    view.services.store.write(view.scope.user, work)


def bulk_ratio(home: Path, url: str, amount: Amount) -> Ratio:
    """Storing many at once, by memory: in a new file, and for a tenant that is new."""
    texts = memories(amount.bulk, seed=815)
    with (
        tempfile.TemporaryDirectory() as folder,
        Memory(
            Path(folder) / "bulk.db", settings=load_settings(home / "home", {}), background=False
        ) as own,
        Memory(settings=settings_of(home / "home", url), background=False, user=_BULK) as shared,
    ):
        in_file = list(arrivals(own.services, own.scope, texts))
        in_database = list(arrivals(shared.services, shared.scope, texts))
        try:
            file_ms = _each(lambda: one_by_one(own.services.store, in_file), len(texts))
            bulk_ms = _each(lambda: load(shared.services.store, _BULK, in_database), len(texts))
        finally:
            with psycopg.connect(url) as connection:
                erase(connection, _BULK)
    return Ratio("bulk write, each", file_ms, bulk_ms)


def _each(call: Callable[[], object], count: int) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1e3 / count
