"""The repair of a store: vectors, words and entities come again from the texts."""

from __future__ import annotations

from contextlib import closing

import pytest

from meritory.engine.memories.repair import repair
from places import Places, open_raw


def silent(done: int, total: int) -> None:
    """Nobody looks."""


def test_damaged_vectors_are_made_again(places: Places) -> None:
    with places.memory() as memory:
        found = memory.remember("The harbour opens at nine")
        memory.remember("Tea, not coffee")
    if places.place().file is not None:
        places.execute("UPDATE memory_vectors SET vector = x'7f7f7f7f' WHERE row = 1")
    else:
        places.execute(
            "UPDATE meritory.memory_vectors SET vector = vector OPERATOR(public.+) vector"
            " WHERE row = 1"
        )
    with places.memory() as memory:
        store = memory.services.store
        assert store.check(deep=True) == ["the vector of row 1 is damaged"]
        done = repair(memory.services, silent)
        assert "vectors made again: 1" in done
        assert store.check(deep=True) == []
        assert memory.recall("harbour")[0].memory.id == found.id


@pytest.mark.files_only("PostgreSQL has checksums of its own")
def test_columns_that_follow_from_the_text_are_written_again(places: Places) -> None:
    with places.memory() as memory:
        memory.remember("The harbour opens at nine", about=["harbour"], tags=["port"])
        before = memory.describe("harbour")
    file = places.place().file
    assert file is not None
    with closing(open_raw(file)) as raw, raw:
        (old,) = raw.execute("SELECT checksum FROM memories").fetchone()
        raw.create_function("row_checksum", -1, lambda *_: old, deterministic=True)
        raw.execute("UPDATE memories SET words = 'nonsense', content_hash = 'no hash', turn = 99")
    with places.memory() as memory:
        store = memory.services.store
        assert [row.table for row in store.damaged_rows()] == ["memories"]
        repair(memory.services, silent)
        assert store.check(deep=True) == []
        assert memory.describe("harbour") == before
        # The same text is known again by its hash.
        (again,) = memory.remember_many([{"content": "The harbour opens at nine"}])
        assert again.outcome == "duplicate"
