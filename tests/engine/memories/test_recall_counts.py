"""Retrieval counts: what people's searches found is counted once, and written down in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from session_kit import HERON, NOTES, Desk

from meritory.api.memory import Memory
from meritory.domain.errors import Busy
from meritory.domain.world import World
from meritory.engine.memories import recall as recall_module
from meritory.engine.memories.recall import FLUSH_MEMORIES, RETRIEVED, Counter, recall
from meritory.engine.observe.observer import Observer
from meritory.store.contract.store import Store, Transaction
from places import Places

THREAD = "meritory-counts"


def is_there() -> bool:
    return any(thread.name == THREAD for thread in threading.enumerate())


def counts(memory: Memory) -> dict[str, int]:
    """What is written down by now, by content."""
    store, user = memory.services.store, memory.scope.user
    texts = {one.id: one.content for one in store.walk(user)}
    found = store.retrievals(user, list(texts))
    return {texts[memory_id]: one.count for memory_id, one in found.items()}


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def counter_of(memory: Memory) -> Counter:
    found = memory.services.counter
    assert found is not None
    return found


def test_a_search_counts_what_it_returned_and_nothing_else(desk: Desk) -> None:
    desk.note(*NOTES)
    hits = [hit.content for hit in desk.memory.recall("staging database heron", limit=2)]
    desk.memory.recall("staging database heron", limit=1)
    counter_of(desk.memory).flush()
    assert counts(desk.memory) == {hits[0]: 2, **dict.fromkeys(hits[1:], 1)}
    assert desk.counters()[RETRIEVED] == 1 + len(hits)
    # Being found is not being shown to an agent.
    assert desk.memory.get(desk.memory.recall(HERON, limit=1)[0].id).access_count == 0


def test_a_search_within_a_session_counts_as_well(desk: Desk) -> None:
    desk.note(*NOTES)
    with desk.memory.session("run-1", context="staging") as session:
        hits = [hit.content for hit in session.recall("staging database heron", limit=2)]
    counter_of(desk.memory).flush()
    assert hits and counts(desk.memory) == dict.fromkeys(hits, 1)


def test_our_own_searches_count_nothing(desk: Desk) -> None:
    desk.note(*NOTES)
    recall(desk.memory.services, desk.memory.scope, HERON, 3)
    desk.memory.works.warm_up(desk.memory.scope)
    session = desk.memory.session("run", context=HERON)
    session.prompt("what is the staging database called?")
    session.end([{"role": role, "text": HERON} for role in ("user", "assistant")])
    desk.memory.drain()
    desk.memory.works.stop()
    assert counter_of(desk.memory).flush() == 0
    assert counts(desk.memory) == {}
    assert sum(one.access_count for one in desk.store.walk("default")) > 0


def test_a_view_counts_for_its_own_user(desk: Desk) -> None:
    desk.note(HERON)
    other = desk.memory.view("eve", project="shop")
    other.remember(HERON)
    other.recall(HERON)
    other.recall(HERON)
    desk.memory.recall(HERON)
    counter_of(desk.memory).flush()
    assert counts(desk.memory) == {HERON: 1}
    assert counts(other) == {HERON: 2}


def test_closing_writes_the_rest_and_leaves_no_thread(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MERITORY_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(recall_module, "FLUSH_INTERVAL_MS", 600_000)
    with places.memory() as memory:
        memory.remember(HERON)
        assert not is_there()
        memory.recall(HERON)
        assert is_there()
        assert counts(memory) == {}
        held = counter_of(memory)
    until(lambda: not is_there())
    held.add("default", ["late"])
    assert not is_there()
    with places.memory() as memory:
        assert counts(memory) == {HERON: 1}


def test_the_thread_writes_after_an_interval_and_ends_when_idle(store: Store) -> None:
    counter = Counter(store, World(), Observer(World()), interval_ms=10)
    counter.add("default", ["unknown"])
    until(lambda: store.counters("default").get(RETRIEVED) == 1)
    until(lambda: not is_there())
    counter.add("default", ["unknown"])
    until(lambda: store.counters("default").get(RETRIEVED) == 2)
    counter.close()


def test_too_many_waiting_are_written_at_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recall_module, "FLUSH_EARLY_MEMORIES", 3)
    counter = Counter(store, World(), Observer(World()), interval_ms=600_000)
    counter.add("default", ["a", "b"])
    counter.add("default", ["c"])
    until(lambda: store.counters("default").get(RETRIEVED) == 3)
    counter.close()


def test_threads_that_count_together_lose_nothing(store: Store) -> None:
    counter = Counter(store, World(), Observer(World()), interval_ms=10)
    ids = [f"m{number}" for number in range(2 * FLUSH_MEMORIES + 1)]

    def work() -> None:
        for _ in range(5):
            counter.add("default", ids)
            time.sleep(0.003)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counter.close()
    assert store.counters("default")[RETRIEVED] == 15 * len(ids)


class Stubborn:
    """A store that is busy for a while, and then is not."""

    def __init__(self, store: Store, failures: int) -> None:
        self._store = store
        self.failures = failures

    def write(self, user: str | None, work: Callable[[Transaction], object]) -> object:
        if self.failures:
            self.failures -= 1
            raise Busy("somebody else writes")
        return self._store.write(user, work)


def test_what_cannot_be_written_is_kept_and_told(store: Store) -> None:
    observer = Observer(World())
    busy = Stubborn(store, 2)
    counter = Counter(busy, World(), observer, interval_ms=10)  # type: ignore[arg-type]
    counter.add("default", ["a", "a", "b"])
    until(lambda: store.counters("default").get(RETRIEVED) == 3)
    assert [one.stage for one in observer.failures()] == ["retrieval_counts"] * 2
    busy.failures = 99
    counter.add("default", ["c"])
    # A program that is done does not fail for it.
    counter.close()


def test_without_a_counter_searches_work_the_same(desk: Desk) -> None:
    desk.note(HERON)
    desk.memory.backend.services = replace(desk.memory.services, counter=None)
    assert [hit.content for hit in desk.memory.recall(HERON)] == [HERON]
