"""A purge erases: the verbs know nothing any more, and neither do the bytes on disk."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import pytest

from contract.builders import (
    EMBEDDER,
    NOW,
    about,
    change,
    found,
    indexed,
    insert,
    memory_id,
    numbers,
    record,
    unit,
    update,
    vector_search,
    words_search,
)
from contract.shelf import Shelf
from meritory.domain.errors import NotFound
from meritory.domain.job import Lease
from meritory.domain.memory import Scope
from meritory.store.contract.memories import MemoryChange, NeighbourProbe
from meritory.store.contract.store import Store

DEFAULT = Scope()
# No word of any other test starts alike: FTS5 would store only the end of it.
WORD = "qxzvkjwhim"


def purge(store: Store, number: int, user: str = "default") -> None:
    """Erases a memory and its traces."""
    store.write(user, lambda t: t.purge(user, memory_id(number)))
    store.erase_traces()


class Purging:
    def test_purge_of_what_is_not_there_is_refused(self, store: Store) -> None:
        insert(store, record(1, user="other"))
        with pytest.raises(NotFound):
            purge(store, 1)
        with pytest.raises(NotFound):
            purge(store, 2)
        assert store.get("other", memory_id(1))

    def test_nothing_knows_a_purged_memory(self, shelf: Shelf) -> None:
        store = shelf.store
        store.register_embedder(EMBEDDER)
        vectors = {EMBEDDER.name: unit(1, 0, 0, 0)}
        first = record(1, f"about {WORD}", pinned=True)
        insert(
            store,
            indexed(first, vectors=vectors, attributes=(about(WORD, f"{WORD}-aspect"),)),
            indexed(record(2, "stays"), vectors=vectors),
        )
        update(store, first, indexed(replace(first, importance=1.0), vectors=vectors))
        assert len(store.search(vector_search(DEFAULT, 1, 0, 0, 0)).rows) == 2
        purge(store, 1)
        for opened in shelf.before_and_after_reopening():
            with pytest.raises(NotFound):
                opened.get("default", memory_id(1))
            assert opened.history("default", memory_id(1)) == []
            assert (
                opened.write("default", lambda t: t.operation("default", "op"))[0].memory_id
                != first.id
            )
            assert found(opened, words_search(DEFAULT, WORD)) == []
            assert len(opened.search(vector_search(DEFAULT, 1, 0, 0, 0)).rows) == 1
            assert opened.entities(DEFAULT, 9) == []
            assert opened.totals("default")["entities"] == 0
            assert opened.required(DEFAULT, [], NOW) == []
            assert [m.id for m in opened.walk("default")] == [memory_id(2)]
            with pytest.raises(NotFound):
                opened.describe(DEFAULT, about(WORD).key)
            assert opened.check(deep=True) == []

    def test_purged_memories_do_not_crowd_out_the_nearest(self, store: Store) -> None:
        store.register_embedder(EMBEDDER)
        vectors = {EMBEDDER.name: unit(1, 0, 0, 0)}
        insert(store, *(indexed(record(n), vectors=vectors) for n in range(1, 9)))
        probe = NeighbourProbe(DEFAULT, EMBEDDER.name, unit(1, 0, 0, 0)[None, :], 2, 0.5)
        store.write(probe.scope.user, lambda t: t.nearest(probe))
        for n in range(1, 8):
            purge(store, n)
        (near,) = store.write(probe.scope.user, lambda t: t.nearest(probe))
        assert numbers([n.memory.id for n in near]) == [8]

    def test_an_entity_that_others_name_stays(self, store: Store) -> None:
        insert(
            store,
            indexed(record(1), attributes=(about("shared"), about("own"))),
            indexed(
                record(2),
                attributes=(about("shared"),),
                # Nothing is told of it, and it is needed all the same.
                depends_on=((about("shared"), about("needed")),),
            ),
        )
        purge(store, 1)
        assert [e.name for e in store.entities(DEFAULT, 9)] == ["shared"]
        assert store.totals("default")["entities"] == 2
        needed = store.describe(DEFAULT, about("shared").key).depends_on
        assert [e.name for e in needed] == ["needed"]

    def test_no_byte_of_the_text_is_left(self, shelf: Shelf) -> None:
        store = shelf.store
        store.register_embedder(EMBEDDER)
        first = record(1, f"The {WORD} opens at nine", tags=(f"{WORD}-tag",))
        insert(
            store,
            indexed(
                first,
                vectors={EMBEDDER.name: unit(1, 2, 3, 4)},
                attributes=(about(f"{WORD}-entity", f"{WORD}-aspect"), about("common")),
                depends_on=((about(f"{WORD}-entity"), about(f"{WORD}-needed")),),
            ),
            indexed(record(2, "another"), attributes=(about("common"),)),
        )
        update(store, first, replace(first, content=f"The {WORD} opens at ten"))
        assert shelf.files_with(WORD)
        purge(store, 1)
        assert shelf.files_with(WORD) == []
        shelf.store.close()
        assert shelf.files_with(WORD) == []

    def test_no_byte_is_left_in_what_went_wrong_with_a_job(self, shelf: Shelf) -> None:
        """Nor does it concern the jobs of others."""
        store, lease = shelf.store, Lease("me", NOW, timedelta(minutes=5))
        insert(store, record(1, f"The {WORD} opens at nine"))
        for user, error in (("default", f"cannot read '{WORD}'"), ("other", "out of reach")):
            store.write(user, lambda t, user=user: t.put_job(user, "kind", "key", NOW))
            job = store.write(
                user, lambda t, user=user: t.take_named_job(lease, user, "kind", "key")
            )
            assert job is not None
            store.write(job.user, lambda t, job=job, error=error: t.fail_job(job, error, None))
        purge(store, 1)
        assert shelf.files_with(WORD) == []
        assert store.job("other", "kind", "key").error == "out of reach"

    def test_no_byte_of_a_merged_text_is_left(self, shelf: Shelf) -> None:
        store = shelf.store
        survivor, other = record(1, "plain survivor"), record(2, f"merged {WORD}")
        insert(store, survivor)
        note = MemoryChange("m", NOW, "gate", "merge", "", survivor, other, other.id)
        store.write("default", lambda t: t.update(indexed(survivor), note))
        assert shelf.files_with(WORD)
        purge(store, 1)
        assert shelf.files_with(WORD) == []

    def test_no_byte_is_left_in_the_history_of_what_it_was_merged_with(self, shelf: Shelf) -> None:
        """The survivor wore the other's words until the two were split again."""
        store = shelf.store
        survivor, other = record(1, "plain survivor"), record(2, f"telling {WORD}")
        worn = replace(survivor, content=other.content)
        insert(store, survivor)
        note = MemoryChange("m", NOW, "gate", "merge", f"{WORD} too", survivor, other, other.id)
        store.write("default", lambda t: t.update(indexed(worn), note))
        update(store, worn, survivor, "undo")
        store.write(
            "default", lambda t: t.insert(indexed(other), change("split", other_id=survivor.id))
        )
        purge(store, 2)
        assert shelf.files_with(WORD) == []
        assert store.get("default", survivor.id) == survivor
        kept = store.history("default", survivor.id)
        assert [e.action for e in kept] == ["create", "merge", "undo"]
        assert kept[0].before is None
        assert kept[-1].after == survivor

    def test_what_stands_for_an_erased_text_can_never_be_restored(self, shelf: Shelf) -> None:
        """Merged, changed, split: the survivor's history holds the erased text as a past state."""
        store = shelf.store
        survivor, other = record(1, "plain survivor"), record(2, f"telling {WORD}")
        worn, later = replace(survivor, content=other.content), replace(survivor, content="later")
        insert(store, survivor)
        note = MemoryChange("m", NOW, "gate", "merge", "", survivor, other, other.id)
        store.write("default", lambda t: t.update(indexed(worn), note))
        update(store, worn, later)
        store.write(
            "default", lambda t: t.mark_undone("default", [store.merges(DEFAULT, 1)[0].entry])
        )
        store.write(
            "default", lambda t: t.insert(indexed(other), change("split", other_id=survivor.id))
        )
        purge(store, 2)
        assert shelf.files_with(WORD) == []
        assert store.get("default", survivor.id) == later
        create, merge, changed = store.history("default", survivor.id)
        assert (create.undone, merge.undone, changed.undone) == (False, True, True)
        assert changed.before is not None
        assert changed.before.content not in (survivor.content, later.content)

    def test_no_byte_is_left_after_a_long_life(self, shelf: Shelf) -> None:
        """Texts that grow and shrink move between pages; no copy may stay behind."""
        store, chance = shelf.store, random.Random(5)
        live = {}
        for number in range(1, 121):
            live[number] = record(number, f"{WORD}{number:03d} " + "x" * chance.randrange(400))
            insert(store, live[number])
        for _ in range(200):
            number = chance.choice(list(live))
            changed = replace(
                live[number], content=f"{WORD}{number:03d} " + "y" * chance.randrange(6_000)
            )
            update(store, live[number], changed)
            live[number] = changed
        doomed = chance.sample(sorted(live), 25)
        for number in doomed:
            store.write("default", lambda t, n=number: t.purge("default", memory_id(n)))
        store.erase_traces()
        left = {n: shelf.files_with(f"{WORD}{n:03d}") for n in doomed}
        assert {n: names for n, names in left.items() if names} == {}
        assert shelf.files_with(f"{WORD}{min(live.keys() - set(doomed)):03d}")
        assert store.check(deep=True) == []
