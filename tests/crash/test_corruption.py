"""Damaged files: never a crash, never a hang, never a silent empty start, and hardly unnoticed.

MERITORY_TEST_DAMAGES sets the number of damaged files.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from contract.builders import (
    EMBEDDER,
    NOW,
    about,
    indexed,
    insert,
    memory_id,
    record,
    unit,
    update,
    vector_search,
    words_search,
)
from meritory.domain.errors import Corrupt, MeritoryError, StorageError
from meritory.domain.memory import Listing, Scope
from meritory.store.contract.memories import NeighbourProbe
from meritory.store.sqlite.store import SqliteStore
from meritory.text.normalize import content_hash

DAMAGES = int(os.environ.get("MERITORY_TEST_DAMAGES", "150"))
DEFAULT = Scope()
MEMORY_COUNT = 120
PAGE_BYTES = 4_096
NOTICED_SHARE = 0.9


def flip_one(data: bytearray, chance: random.Random) -> None:
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def flip_many(data: bytearray, chance: random.Random) -> None:
    for _ in range(chance.randint(2, 64)):
        data[chance.randrange(len(data))] = chance.randrange(256)


def smear(data: bytearray, chance: random.Random) -> None:
    start, length = chance.randrange(len(data)), chance.randint(2, 600)
    data[start : start + length] = chance.randbytes(len(data[start : start + length]))


def zero_page(data: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(data) // PAGE_BYTES) * PAGE_BYTES
    data[start : start + PAGE_BYTES] = bytes(PAGE_BYTES)


def swap_pages(data: bytearray, chance: random.Random) -> None:
    one, two = (p * PAGE_BYTES for p in chance.sample(range(len(data) // PAGE_BYTES), 2))
    first, second = data[one : one + PAGE_BYTES], data[two : two + PAGE_BYTES]
    data[one : one + PAGE_BYTES], data[two : two + PAGE_BYTES] = second, first


def truncate(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(len(data)) :]


MUTATORS: tuple[Callable[[bytearray, random.Random], None], ...] = (
    flip_one,
    flip_one,
    flip_many,
    flip_many,
    smear,
    zero_page,
    swap_pages,
    truncate,
)


def fill(path: Path) -> None:
    """A store with a bit of everything."""
    store, chance = SqliteStore(path), random.Random(3)
    store.register_embedder(EMBEDDER)
    for number in range(MEMORY_COUNT):
        memory = record(number, f"claim {number} " + "text " * chance.randrange(80), tags=("t",))
        vectors = {EMBEDDER.name: unit(*(chance.random() for _ in range(4)))}
        attributes = (about(f"topic {number % 9}"),)
        insert(store, indexed(memory, vectors=vectors, attributes=attributes))
        if number % 3 == 0:
            update(store, memory, indexed(record(number, f"claim {number} anew")))
    store.write("default", lambda t: t.add_usage("default", {memory_id(1): 3}, NOW))
    store.close()


def told(store: SqliteStore) -> dict[str, Any]:
    """All that a user can read out of a store."""
    everything = list(store.walk("default"))
    return {
        "memories": everything,
        "history": [store.history("default", memory.id) for memory in everything],
        "listing": store.listing(Listing(DEFAULT, limit=1_000)),
        "found": len(store.search(words_search(DEFAULT, "claim")).rows),
        "near": len(store.search(vector_search(DEFAULT, 1, 1, 1, 1)).rows),
        "about": store.memories_about(DEFAULT, [about("topic 1").key], NOW, 1_000),
        "totals": store.totals("default"),
        "counters": store.counters("default"),
    }


def outcome(path: Path, sound: dict[str, Any]) -> str:
    """What a user would meet: an error, a complaint of the check, harm unseen, or no harm."""
    try:
        store = SqliteStore(path)
    except Corrupt:
        return "refused"
    try:
        complaints = store.check(deep=True)
        assert all(isinstance(text, str) and text for text in complaints)
        try:
            answers = told(store)
        except MeritoryError as error:
            assert isinstance(error, StorageError), error
            assert complaints or isinstance(error, Corrupt), error
            return "complained"
        if complaints:
            return "complained"
        assert answers["memories"], "a damaged store started empty"
        return "harmless" if answers == sound else "unseen"
    finally:
        store.close()


def test_damage_is_noticed_and_never_makes_things_worse(tmp_path: Path) -> None:
    good = tmp_path / "good.db"
    fill(good)
    with closing(SqliteStore(good)) as store:
        sound = told(store)
    original, chance = good.read_bytes(), random.Random(17)
    counted: Counter[str] = Counter()
    for number in range(DAMAGES):
        data = bytearray(original)
        MUTATORS[number % len(MUTATORS)](data, chance)
        path = tmp_path / f"{number}.db"
        path.write_bytes(data)
        counted[outcome(path, sound)] += 1
        assert path.exists()
        assert path.stat().st_size > 0 or not data
    noticed = counted["refused"] + counted["complained"]
    assert noticed >= NOTICED_SHARE * (noticed + counted["unseen"]), counted
    assert noticed >= DAMAGES // 4, counted


def test_every_changed_letter_of_a_memory_is_noticed(tmp_path: Path) -> None:
    """Damage that SQLite itself cannot see: one letter in the middle of a text."""
    good = tmp_path / "good.db"
    fill(good)
    original = good.read_bytes()
    for number in range(1, 30, 3):  # every third was rewritten
        text = f"claim {number} ".encode()
        at = original.find(text)
        assert at > 0
        data = bytearray(original)
        while at >= 0:
            data[at] ^= 2
            at = original.find(text, at + 1)
        path = tmp_path / f"{number}.db"
        path.write_bytes(data)
        with closing(SqliteStore(path)) as store:
            assert store.check(deep=True) != []
            with pytest.raises(Corrupt):
                store.get("default", memory_id(number))
            # One damaged memory does not take the others from the agent.
            assert store.get("default", memory_id(number + 1)).id == memory_id(number + 1)
            pool = store.search(vector_search(DEFAULT, 1, 1, 1, 1))
            assert len(store.fetch(DEFAULT, pool.rows, NOW)) == MEMORY_COUNT - 1 - lacking(store)
            assert len(store.damaged) == 1


def lacking(store: SqliteStore) -> int:
    """How many live memories have no vector, by the rule of `fill`."""
    state = store.embedding_state(EMBEDDER.name)
    return state.memory_count - state.embedded_count


@pytest.mark.parametrize("keep", [0, 31, 32, 100, 5_000])
def test_a_damaged_log_loses_at_most_the_log(tmp_path: Path, keep: int) -> None:
    """A log that is cut short or gone leaves the database as it was at the last checkpoint."""
    path = tmp_path / "meritory.db"
    store = SqliteStore(path)
    insert(store, record(1))
    store.erase_traces()
    insert(store, record(2))
    copy = tmp_path / "copy.db"
    shutil.copyfile(path, copy)
    log = path.with_name("meritory.db-wal").read_bytes()
    copy.with_name("copy.db-wal").write_bytes(log[:keep])
    store.close()
    with closing(SqliteStore(copy)) as opened:
        assert [m.id for m in opened.walk("default")][:1] == [memory_id(1)]
        assert opened.check(deep=True) == []


def test_a_lost_counter_row_and_a_broken_link_are_complained_about(tmp_path: Path) -> None:
    path = tmp_path / "meritory.db"
    fill(path)
    with closing(SqliteStore(path)) as store:
        store._engine._writer.execute("PRAGMA foreign_keys = OFF")
        store._engine.write(lambda c: c.execute("DELETE FROM memory_stats WHERE row = 5"))
        assert any("lack their counters" in text for text in store.check(deep=True))
        orphan = "DELETE FROM aspects WHERE aspect = (SELECT max(aspect) FROM attributes)"
        store._engine.write(lambda c: c.execute(orphan))
        assert any("points at nothing" in text for text in store.check(deep=True))
        assert store.check(deep=False) == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE memory_history SET before = '{broken' WHERE before IS NOT NULL",
        "UPDATE memory_history SET before = '[]' WHERE before IS NOT NULL",
        "UPDATE memory_history SET at = 'once' WHERE entry = 3",
    ],
)
def test_history_that_makes_no_sense_is_named_not_tripped_over(
    tmp_path: Path, statement: str
) -> None:
    path = tmp_path / "meritory.db"
    fill(path)
    with closing(SqliteStore(path)) as store:
        store._engine.write(lambda c: c.execute(statement))
        assert store.check(deep=True) != []
        with pytest.raises(Corrupt):
            told(store)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE memories SET content = content || 'x' WHERE row = 2",
        "UPDATE memories SET content = CAST(x'ff00fe' AS TEXT) WHERE row = 2",
        "UPDATE memories SET row_hash = x'00' WHERE row = 2",
        "UPDATE memories SET tags = '{' WHERE row = 2",
        "UPDATE memory_stats SET last_accessed = 'yesterday' WHERE row = 2",
    ],
)
def test_one_damaged_memory_takes_no_other_from_anybody(tmp_path: Path, statement: str) -> None:
    path, damaged, spoilt = tmp_path / "meritory.db", 2, memory_id(1)
    fill(path)
    with closing(SqliteStore(path)) as store:
        probe = NeighbourProbe(DEFAULT, EMBEDDER.name, unit(1, 1, 1, 1)[None, :], MEMORY_COUNT, 0.0)
        hashes = {m.id: content_hash(m.content) for m in store.walk("default")}
        (near,) = store.write(probe.scope.user, lambda t: t.nearest(probe))
        assert spoilt in {n.memory.id for n in near}
        store._engine.write(lambda c: c.execute(statement))
        assert store.check(deep=True) != []
        expected = [memory_id(n) for n in range(MEMORY_COUNT) if memory_id(n) != spoilt]
        assert [m.id for m in store.walk("default")] == expected
        assert store.damaged == {damaged}
        newest_first = expected[::-1]
        assert [m.id for m in store.listing(Listing(DEFAULT, limit=1_000))] == newest_first
        # A page is as long as it was asked to be: a short one would mean the end.
        page = store.listing(Listing(DEFAULT, tag="t", after=memory_id(3), limit=1))
        assert [m.id for m in page] == [memory_id(2)]
        page = store.listing(Listing(DEFAULT, after=memory_id(2), limit=1))
        assert [m.id for m in page] == [memory_id(0)]
        store.damaged.clear()
        (left,) = store.write(probe.scope.user, lambda t: t.nearest(probe))
        assert [n.memory.id for n in left] == [n.memory.id for n in near if n.memory.id != spoilt]
        assert store.damaged == {damaged}
        store.damaged.clear()
        wanted = [hashes[spoilt], hashes[memory_id(4)]]
        known = store.write("default", lambda t: t.live_by_hash(DEFAULT, wanted))
        assert {m.id for m in known.values()} == {memory_id(4)}
        assert store.damaged == {damaged}
        with pytest.raises(Corrupt):
            store.get("default", spoilt)
        with pytest.raises(Corrupt):
            store.write("default", lambda t: t.get("default", spoilt))


def test_a_damaged_memory_without_vector_does_not_stop_the_making_of_others(
    tmp_path: Path,
) -> None:
    with closing(SqliteStore(tmp_path / "meritory.db")) as store:
        store.register_embedder(EMBEDDER)
        insert(store, *(record(n) for n in (1, 2, 3)))
        store._engine.write(lambda c: c.execute("UPDATE memories SET row_hash = x'' WHERE row = 1"))
        assert [m.id for m in store.without_vector(EMBEDDER.name, 2)] == [
            memory_id(2),
            memory_id(3),
        ]
