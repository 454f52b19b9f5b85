"""Inserting, updating, history, counters, entities: what one transaction promises."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import timedelta

import pytest

from contract.builders import (
    EMBEDDER,
    NOW,
    about,
    change,
    found,
    ids,
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
from meritory.domain.errors import MeritoryError, NotFound
from meritory.domain.memory import HistoryEntry, Scope
from meritory.store.contract.memories import MemoryChange, NeighbourProbe
from meritory.store.contract.store import Store, Transaction
from meritory.text.normalize import content_hash

DEFAULT = Scope()


class Writing:
    def test_write_returns_what_the_work_returns(self, store: Store) -> None:
        assert store.write("default", lambda _: 42) == 42

    def test_a_transaction_that_raises_leaves_nothing(self, shelf: Shelf) -> None:
        store = shelf.store
        store.register_embedder(EMBEDDER)
        insert(store, record(1, "stays"))
        before = store.get("default", memory_id(1))

        def work(transaction: Transaction) -> None:
            item = indexed(
                record(2, "leaves"),
                vectors={EMBEDDER.name: unit(1, 0, 0, 0)},
                attributes=(about("thing"),),
            )
            transaction.insert(item, change())
            transaction.update(indexed(record(1, "changed")), change("update", before=before))
            transaction.count("default", "n")
            transaction.add_usage("default", {memory_id(1): 5}, NOW)
            transaction.set_import_progress("default", "d", 9, NOW)
            raise RuntimeError("stop")

        with pytest.raises(RuntimeError, match="stop"):
            store.write("default", work)
        for opened in shelf.before_and_after_reopening():
            assert list(opened.walk("default")) == [before]
            assert opened.counters("default") == {}
            assert opened.import_progress("default", "d") == 0
            assert opened.entities(DEFAULT, 5) == []
            assert found(opened, words_search(DEFAULT, "leaves", "changed")) == []
            assert len(opened.history("default", memory_id(1))) == 1
            assert opened.history("default", memory_id(2)) == []

    def test_an_id_is_taken_only_once(self, store: Store) -> None:
        insert(store, record(1, "first"))
        with pytest.raises(MeritoryError):
            insert(store, record(1, "second"))
        assert store.get("default", memory_id(1)).content == "first"

    def test_reads_see_what_the_transaction_wrote(self, store: Store) -> None:
        def work(transaction: Transaction) -> None:
            transaction.insert(indexed(record(1, "old")), change())
            first = transaction.get("default", memory_id(1))
            changed = replace(first, superseded_by=memory_id(2))
            transaction.update(indexed(changed), change("supersede", before=first))
            assert transaction.get("default", memory_id(1)) == changed
            assert transaction.superseded_by("default", memory_id(2)) == [changed]
            assert len(transaction.history("default", memory_id(1))) == 2
            assert transaction.live_by_hash(DEFAULT, [content_hash("old")]) == {}

        store.write("default", work)

    def test_live_by_hash_knows_only_the_living(self, store: Store) -> None:
        insert(
            store,
            record(1, "gone", deleted_at=NOW),
            record(2, "old", superseded_by=memory_id(3)),
            record(3, "here"),
        )
        wanted = {text: content_hash(text) for text in ("gone", "old", "here", "never")}
        live = store.write("default", lambda t: t.live_by_hash(DEFAULT, list(wanted.values())))
        assert {digest: memory.id for digest, memory in live.items()} == {
            wanted["here"]: memory_id(3)
        }
        assert store.write("default", lambda t: t.live_by_hash(DEFAULT, [])) == {}

    def test_nearest_is_nearest_first_above_the_floor_and_alive(self, store: Store) -> None:
        store.register_embedder(EMBEDDER)
        vectors = {1: unit(1, 0, 0, 0), 2: unit(1, 1, 0, 0), 3: unit(0, 1, 0, 0)}
        insert(
            store,
            *(indexed(record(n), vectors={EMBEDDER.name: v}) for n, v in vectors.items()),
            indexed(record(4, deleted_at=NOW), vectors={EMBEDDER.name: unit(1, 0, 0, 0)}),
            record(5),
        )
        wanted = unit(1, 0.1, 0, 0)

        def nearest(limit: int, floor: float) -> list[int]:
            probe = NeighbourProbe(DEFAULT, EMBEDDER.name, wanted[None, :], limit, floor)
            (near,) = store.write(probe.scope.user, lambda t: t.nearest(probe))
            for one in near:
                expected = float(vectors[int(one.memory.id)] @ wanted)
                assert one.cosine == pytest.approx(expected, abs=1e-3)
            return numbers([one.memory.id for one in near])

        assert nearest(5, -1.0) == [1, 2, 3]
        assert nearest(2, -1.0) == [1, 2]
        assert nearest(5, 0.9) == [1]

    def test_update_of_an_unknown_memory_is_refused(self, store: Store) -> None:
        insert(store, record(1, user="other"))
        with pytest.raises(NotFound):
            update(store, record(1), record(1, "taken over"))
        assert store.get("other", memory_id(1)).content == "claim number 1"

    def test_update_replaces_every_field(self, store: Store) -> None:
        first = record(1, "first text")
        insert(store, first)
        second = replace(
            first,
            content="second text",
            kind="decision",
            agent="ann",
            project="pro",
            provenance="episode_summary",
            origin="web",
            trust="untrusted",
            confidence=0.25,
            importance=0.75,
            pinned=True,
            demotion=3,
            tags=("x",),
            valid_from=NOW,
            valid_until=NOW + timedelta(days=1),
            updated_at=NOW + timedelta(days=2),
            superseded_by=memory_id(7),
            deleted_at=NOW,
            access_count=12,
            last_accessed=NOW + timedelta(days=3),
            usefulness=0.125,
        )
        update(store, first, second)
        assert store.get("default", first.id) == second

    def test_words_follow_the_text(self, store: Store) -> None:
        insert(store, record(1, "alpha"))
        update(store, record(1, "alpha"), record(1, "beta"))
        assert found(store, words_search(DEFAULT, "alpha")) == []
        assert numbers(found(store, words_search(DEFAULT, "beta"))) == [1]

    def test_a_vector_goes_with_its_text(self, store: Store) -> None:
        store.register_embedder(EMBEDDER)
        first = record(1, "alpha")
        insert(store, indexed(first, vectors={EMBEDDER.name: unit(1, 0, 0, 0)}))
        # The text stays: so does its vector.
        update(store, first, replace(first, importance=0.9))
        assert store.get("default", first.id).embedder == EMBEDDER.name
        assert store.get("default", first.id).dimension == EMBEDDER.dimension
        assert numbers(found(store, vector_search(DEFAULT, 1, 0, 0, 0))) == [1]
        # The text changes: an old vector would answer for the wrong words.
        update(store, first, replace(first, content="beta"))
        assert store.get("default", first.id).embedder is None
        assert [m.id for m in store.without_vector(EMBEDDER.name, 9)] == [first.id]
        assert found(store, vector_search(DEFAULT, 1, 0, 0, 0)) == []

    def test_an_update_may_leave_no_note(self, shelf: Shelf) -> None:
        store = shelf.store
        store.register_embedder(EMBEDDER)
        first = record(1, "alpha")
        attributes = (about("thing"),)
        vectors = {EMBEDDER.name: unit(1, 0, 0, 0)}
        insert(store, indexed(first, vectors=vectors, attributes=attributes))
        later = replace(first, updated_at=NOW + timedelta(days=1))
        store.write("default", lambda t: t.update(indexed(later, attributes=attributes), None))
        for opened in shelf.before_and_after_reopening():
            assert opened.get("default", first.id).updated_at == later.updated_at
            assert [e.action for e in opened.history("default", first.id)] == ["create"]
            assert numbers(found(opened, vector_search(DEFAULT, 1, 0, 0, 0))) == [1]
            assert numbers(found(opened, words_search(DEFAULT, "alpha"))) == [1]
            assert [e.name for e in opened.entities(DEFAULT, 9)] == ["thing"]
            assert opened.check(deep=True) == []
        store = shelf.store
        # A new text never keeps the vector of the old one.
        store.write("default", lambda t: t.update(indexed(replace(later, content="beta")), None))
        assert store.get("default", first.id).embedder is None
        with pytest.raises(NotFound):
            store.write("default", lambda t: t.update(indexed(record(2)), None))

    def test_history_is_a_chain(self, store: Store) -> None:
        states = [record(1, f"text {n}") for n in range(4)]
        insert(store, states[0])
        for before, after in itertools.pairwise(states):
            update(store, before, after)
        entries = store.history("default", memory_id(1))
        assert [e.action for e in entries] == ["create", "update", "update", "update"]
        assert [e.before for e in entries] == [None, *states[:3]]
        assert [e.after for e in entries] == states
        assert [e.entry for e in entries] == sorted({e.entry for e in entries})
        assert all(e.at == NOW and e.actor == "tester" for e in entries)

    def test_history_keeps_the_other_text_of_a_merge(self, store: Store) -> None:
        first, other = record(1, "first"), record(2, "other", tags=("t",))
        insert(store, first)
        note = MemoryChange(
            "merge-op", NOW, "gate", "merge", "alike", before=first, other=other, other_id=other.id
        )
        store.write("default", lambda t: t.update(indexed(first), note))
        (merge,) = store.merges(DEFAULT, 10)
        assert (merge.other, merge.other_id, merge.why) == (other, other.id, "alike")
        assert store.merges(Scope("someone"), 10) == []
        store.write("default", lambda t: t.mark_undone("default", [merge.entry]))
        assert store.merges(DEFAULT, 10) == []
        assert [e.undone for e in store.history("default", first.id)] == [False, True]

    def test_merges_come_newest_first_and_limited(self, store: Store) -> None:
        for n in range(1, 5):
            insert(store, record(n))
            update(store, record(n), record(n), "merge")
        assert numbers([e.memory_id for e in store.merges(DEFAULT, 3)]) == [4, 3, 2]

    def test_an_operation_ties_changes_together(self, store: Store) -> None:
        def work(transaction: Transaction) -> None:
            transaction.insert(indexed(record(1)), change(operation="one"))
            transaction.insert(indexed(record(2)), change(operation="two"))
            transaction.insert(indexed(record(3)), change(operation="two"))

        store.write("default", work)
        entries = store.write("default", lambda t: t.operation("default", "two"))
        assert numbers([e.memory_id for e in entries]) == [2, 3]
        assert store.write("other", lambda t: t.operation("other", "two")) == []
        assert store.write("default", lambda t: t.operation("default", "three")) == []

    def test_superseded_by_finds_the_predecessors(self, store: Store) -> None:
        insert(
            store,
            record(1, superseded_by=memory_id(3)),
            record(2, superseded_by=memory_id(3), deleted_at=NOW),
            record(3),
            record(4, superseded_by=memory_id(3), user="other"),
        )
        found_ = store.write("default", lambda t: t.superseded_by("default", memory_id(3)))
        assert numbers(ids(found_)) == [1, 2]

    def test_put_history_brings_entries_in_as_they_were(self, store: Store) -> None:
        before, other = record(1, "was"), record(2, "other")
        entry = HistoryEntry(
            entry=99,
            memory_id=memory_id(1),
            operation="imported",
            at=NOW,
            actor="somebody",
            action="merge",
            why="because",
            before=before,
            after=None,
            other=other,
            other_id=other.id,
            undone=True,
        )

        def work(transaction: Transaction) -> None:
            transaction.insert(indexed(record(1, "is")), None)
            transaction.put_history("default", [entry])

        store.write("default", work)
        (kept,) = store.history("default", memory_id(1))
        assert replace(kept, entry=99, after=None) == entry
        assert kept.after == record(1, "is")

    def test_counters_add_up(self, shelf: Shelf) -> None:
        store = shelf.store
        store.write("default", lambda t: t.count("default", "a"))
        store.write("default", lambda t: t.count("default", "a", 4))
        store.write("default", lambda t: t.count("default", "b", -1))
        assert shelf.reopen().counters("default") == {"a": 5, "b": -1}

    def test_durations_are_counted_apart(self, shelf: Shelf) -> None:
        store = shelf.store
        for counts in ({("recall", 9): 2, ("recall", 10): 1}, {("recall", 9): 3}):
            store.write("default", lambda t, counts=counts: t.count_durations("default", counts))
        store.write("default", lambda t: t.count("default", "a"))
        for opened in shelf.before_and_after_reopening():
            assert opened.durations("default") == {("recall", 9): 5, ("recall", 10): 1}
            assert opened.durations("other") == {}
            assert opened.counters("default") == {"a": 1}

    def test_usage_is_counted_and_changes_nothing_else(self, shelf: Shelf) -> None:
        store = shelf.store
        insert(store, record(1), record(2))
        later = NOW + timedelta(hours=5)
        store.write(
            "default", lambda t: t.add_usage("default", {memory_id(1): 2, memory_id(77): 1}, NOW)
        )
        store.write("default", lambda t: t.add_usage("default", {memory_id(1): 3}, later))
        used = shelf.reopen().get("default", memory_id(1))
        assert used == replace(record(1), access_count=5, last_accessed=later)
        assert shelf.store.get("default", memory_id(2)) == record(2)
        assert len(shelf.store.history("default", memory_id(1))) == 1

    def test_import_progress_is_kept_per_user_and_file(self, shelf: Shelf) -> None:
        store = shelf.store
        assert store.import_progress("default", "d") == 0
        for line_count in (10, 25):
            store.write(
                "default", lambda t, n=line_count: t.set_import_progress("default", "d", n, NOW)
            )
        assert shelf.reopen().import_progress("default", "d") == 25
        assert shelf.store.import_progress("default", "e") == 0
        assert shelf.store.import_progress("other", "d") == 0

    def test_totals_count_by_state_kind_provenance_and_trust(self, store: Store) -> None:
        insert(
            store,
            record(1),
            record(2, kind="lesson", provenance="episode_summary", trust="untrusted"),
            record(3, deleted_at=NOW, superseded_by=memory_id(1)),
            record(4, superseded_by=memory_id(1)),
            indexed(record(5), attributes=(about("thing"),)),
            record(6, user="other"),
        )
        totals = store.totals("default")
        assert totals == {
            "live": 3,
            "deleted": 1,
            "superseded": 1,
            "history": 5,
            "entities": 1,
            "kind.fact": 2,
            "kind.lesson": 1,
            "provenance.episode_summary": 1,
            "provenance.user_stated": 2,
            "trust.trusted": 2,
            "trust.untrusted": 1,
        }
        assert store.totals("nobody")["live"] == 0

    def test_users_are_those_with_a_memory(self, store: Store) -> None:
        assert store.users() == []
        insert(store, record(1, user="zoe"), record(2, user="ann"), record(3, user="ann"))
        assert store.users() == ["ann", "zoe"]
