"""Stores of any size for the benches that need a past: memories, entities, finished sessions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from meritory import Memory
from meritory.domain.memory import Scope
from meritory.engine.memories.validate import make_draft
from meritory.engine.memories.write import Prepared, prepare_batch
from meritory.engine.services import Services
from meritory.settings import Settings, load_settings
from meritory.store.contract.memories import MemoryChange
from meritory.store.contract.store import Transaction

PROJECT = "shop"
# One in ten memories is of a project that the sessions measured here cannot see.
ELSEWHERE = ("website", "warehouse")
USED_PER_SESSION = 5
# From here on the write path's own decisions would take most of the time.
POUR_FROM = 50_000
_BATCH = 4_000
_TOPICS = ("checkout", "invoices", "search", "deploys", "login", "reports", "stock", "returns")


def settings_of(home: Path) -> Settings:
    """What a daemon of this data folder would be told; nothing comes from the environment."""
    return load_settings(home, {})


def fill(home: Path, texts: Sequence[str], asked: Sequence[str]) -> None:
    """Makes a store of the texts, a year old at most, with a session for each thing asked."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with Memory(settings=settings_of(home), project=PROJECT, background=False) as memory:
        items = drafts(texts)
        while batch := list(islice(items, _BATCH)):
            if len(texts) < POUR_FROM:
                stored = memory.remember_many([{**item, "on_similar": "keep"} for item in batch])
                assert all(one.memory is not None for one in stored)
            else:
                _pour(memory.services, memory.scope, batch)
        for number, context in enumerate(asked):
            session = memory.session(f"past-{number}", context=context)
            session.end(used=dict.fromkeys(session.ranking[:USED_PER_SESSION], 1.0))
            memory.drain()


def drafts(texts: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The texts as turns of sessions, with the tags, entities and rules that stores have."""
    now = datetime.now(UTC)
    for at, text in enumerate(texts):
        item: dict[str, Any] = {
            "content": text,
            "created_at": now - timedelta(days=at * 7 % 365 + 2),
            "importance": (at * 13 % 10 + 1) / 10,
            "source": {"harness": "bench", "session_key": f"s{at // 10}", "turn": str(at % 10)},
        }
        if at % 10 == 9:
            item["project"] = ELSEWHERE[at // 10 % len(ELSEWHERE)]
        if at % 7 == 0:
            item["tags"] = [_TOPICS[at // 7 % len(_TOPICS)]]
        if at % 11 == 0:
            item["about"] = [_TOPICS[at // 11 % len(_TOPICS)]]
        if at < 3:
            item["pinned"] = True
        yield item


def _pour(services: Services, scope: Scope, items: Sequence[dict[str, Any]]) -> None:
    """Stores drafts as the write path does, but looks for no duplicates, in one transaction."""
    made = [make_draft(item["content"], scope, _without_content(item)) for item in items]
    prepared = prepare_batch(services, made)

    def work(transaction: Transaction) -> None:
        for item in prepared.items:
            assert isinstance(item, Prepared), item
            change = MemoryChange(services.world.new_id(), prepared.now, "bench", "create")
            transaction.insert(item.memory, change)

    services.store.write("default", work)


def _without_content(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name != "content"}
