"""Fills a PostgreSQL store as a company would have it: a few large tenants, and many small ones."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from bench import stock
from bench.texts import memories, questions
from meritory import Memory
from meritory.domain.memory import Scope
from meritory.engine.memories.validate import make_draft
from meritory.engine.memories.write import Prepared, prepare_batch
from meritory.engine.services import Services
from meritory.settings import Settings, load_settings
from meritory.store.contract.memories import Indexed, MemoryChange
from meritory.store.contract.store import Store, Transaction
from meritory.store.postgres.write import ARRIVALS_LIMIT

# What a small server of a team is given; everything else is as PostgreSQL comes.
SETTINGS = ("shared_buffers=2GB", "max_wal_size=4GB")
# Of the past of every tenant: so many sessions, and what helped in each.
PAST_SESSIONS = 4
_NOTES = "fill.json"


@dataclass(frozen=True, slots=True)
class Tenant:
    """One tenant, and how many memories it has."""

    number: int
    size: int

    @property
    def name(self) -> str:
        """Its user."""
        return f"team-{self.number:03d}"

    def texts(self) -> list[str]:
        """All that is remembered: others have their own mixture of the same sentences."""
        return memories(self.size, seed=1_000 + self.number)


def tenants(count: int, total: int) -> list[Tenant]:
    """So many tenants, the largest first: the second has two thirds of the first, and so on."""
    shares = [1.0 / (rank + 2) for rank in range(count)]
    sizes = [int(total * share / sum(shares)) for share in shares]
    sizes[0] += total - sum(sizes)
    return [Tenant(number, size) for number, size in enumerate(sizes)]


def settings_of(home: Path, url: str) -> Settings:
    """What a daemon of this database would be told; nothing comes from the environment."""
    home.mkdir(parents=True, exist_ok=True)
    return load_settings(home, {"MERITORY_DATABASE_URL": url})


Arrival = tuple[Indexed, MemoryChange]


def load(store: Store, user: str, taken: Sequence[Arrival]) -> None:
    """Insert memories of one user, so many in each transaction."""
    for start in range(0, len(taken), ARRIVALS_LIMIT):

        def work(transaction: Transaction, start: int = start) -> None:
            for memory, change in taken[start : start + ARRIVALS_LIMIT]:
                transaction.insert(memory, change)

        store.write(user, work)


def arrivals(services: Services, scope: Scope, texts: Sequence[str]) -> Iterator[Arrival]:
    """The texts as memories, with all that is derived from them."""
    items = list(stock.drafts(texts))
    for start in range(0, len(items), ARRIVALS_LIMIT):
        made = [_draft(item, scope) for item in items[start : start + ARRIVALS_LIMIT]]
        prepared = prepare_batch(services, made)
        change = MemoryChange(services.world.new_id(), prepared.now, "bench", "create")
        for item in prepared.items:
            assert isinstance(item, Prepared), item
            yield item.memory, change


def _draft(item: dict[str, Any], scope: Scope) -> Any:
    given = {name: value for name, value in item.items() if name != "content"}
    return make_draft(item["content"], scope, given)


@dataclass(frozen=True, slots=True)
class Order:
    """What one process fills."""

    home: Path
    url: str
    tenants: tuple[Tenant, ...]


def fill(home: Path, url: str, wanted: Sequence[Tenant], processes: int) -> dict[str, float]:
    """Fills what is missing; returns how fast it went, also when that was in an earlier run."""
    notes = home / _NOTES
    known: dict[str, float] = json.loads(notes.read_text("utf-8")) if notes.is_file() else {}
    missing = _missing(home, url, wanted)
    if missing:
        began = time.perf_counter()
        orders = [
            Order(home / f"home-{at}", url, tuple(missing[at::processes]))
            for at in range(processes)
        ]
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            took = pool.map(_filled, orders)
        count = sum(tenant.size for tenant in missing)
        known |= {
            "fill_s": time.perf_counter() - began,
            "fill_memories": count,
            "load_us_each": 1e6 * sum(load_s for load_s, _ in took) / count,
            "prepare_us_each": 1e6 * sum(prepare_s for _, prepare_s in took) / count,
        }
    if missing or "index_s" not in known:
        known |= _finish(home, url, wanted)
    notes.write_text(json.dumps(known), encoding="utf-8")
    return known


def _missing(home: Path, url: str, wanted: Sequence[Tenant]) -> list[Tenant]:
    """Tenants that are not there; one that is there in part was interrupted, and is begun anew."""
    with Memory(settings=settings_of(home / "home", url), background=False) as memory:
        memory.services.embedding.wanted()
    with psycopg.connect(url) as connection:
        found: dict[str, int] = dict(
            connection.execute('SELECT "user", row FROM meritory.tenants').fetchall()
        )
        missing = [tenant for tenant in wanted if found.get(tenant.name, 0) < tenant.size]
        for tenant in missing:
            if tenant.name in found:
                erase(connection, tenant.name)
    return missing


def erase(connection: psycopg.Connection[Any], user: str) -> None:
    """Takes a tenant out, as only the owner of the tables can."""
    tables = connection.execute(
        "SELECT table_name FROM information_schema.columns"
        " WHERE table_schema = 'meritory' AND column_name = 'user'"
    ).fetchall()
    connection.execute("SET LOCAL session_replication_role = replica")
    for (table,) in tables:
        connection.execute(f'DELETE FROM meritory.{table} WHERE "user" = %s', (user,))
    connection.commit()


def _filled(order: Order) -> tuple[float, float]:
    """How long storing took in all, and how long making ready what was stored."""
    load_s = prepare_s = 0.0
    settings = settings_of(order.home, order.url)
    for tenant in order.tenants:
        with Memory(settings=settings, background=False, user=tenant.name) as memory:
            began = time.perf_counter()
            texts = tenant.texts()
            # In pieces: a large tenant as a whole would take gigabytes.
            for start in range(0, len(texts), 5 * ARRIVALS_LIMIT):
                piece = texts[start : start + 5 * ARRIVALS_LIMIT]
                ready = list(arrivals(memory.services, memory.scope, piece))
                stored_from = time.perf_counter()
                prepare_s += stored_from - began
                load(memory.services.store, tenant.name, ready)
                began = time.perf_counter()
                load_s += began - stored_from
        print(f"{tenant.name}: {tenant.size:,}", flush=True)
    return load_s, prepare_s


def _finish(home: Path, url: str, wanted: Sequence[Tenant]) -> dict[str, float]:
    """Indexes of large tenants, a past for everybody, and what autovacuum would do in time."""
    began = time.perf_counter()
    with Memory(settings=settings_of(home / "home", url), background=False) as memory:
        memory.services.store.tidy(lambda: False)
        index_s = time.perf_counter() - began
        asked = iter(questions(PAST_SESSIONS * len(wanted)))
        for tenant in wanted:
            view = memory.view(user=tenant.name, project=stock.PROJECT)
            for number in range(PAST_SESSIONS):
                session = view.session(f"past-{number}", context=next(asked))
                session.end(used=dict.fromkeys(session.ranking[: stock.USED_PER_SESSION], 1.0))
            view.drain()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
    return {"index_s": index_s}
