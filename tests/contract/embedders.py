"""Vectors of several embedders: registration, serving, the switch from one to the next."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from contract.builders import (
    EMBEDDER,
    NOW,
    OTHER_EMBEDDER,
    found,
    indexed,
    insert,
    memory_id,
    numbers,
    record,
    unit,
    update,
    vector_search,
)
from contract.shelf import Shelf
from meritory.domain.errors import InputError, NotFound
from meritory.domain.memory import EmbedderInfo, EmbeddingState, Scope
from meritory.store.contract.memories import NeighbourProbe, Search
from meritory.store.contract.store import Store

DEFAULT = Scope()


def is_complete(state: EmbeddingState) -> bool:
    """Whether nothing is missing, as a plain value."""
    return state.is_complete


class Embedders:
    def test_the_first_embedder_serves_and_a_later_one_waits(self, shelf: Shelf) -> None:
        store = shelf.store
        assert store.serving_embedder() is None
        store.register_embedder(EMBEDDER)
        assert store.serving_embedder() == EMBEDDER
        insert(store, record(1))
        store.register_embedder(OTHER_EMBEDDER)
        assert shelf.reopen().serving_embedder() == EMBEDDER

    def test_while_there_are_no_memories_the_latest_serves(self, store: Store) -> None:
        for embedder in (EMBEDDER, OTHER_EMBEDDER, EMBEDDER):
            store.register_embedder(embedder)
            assert store.serving_embedder() == embedder

    def test_registering_again_renews_how_to_open_it(self, store: Store) -> None:
        store.register_embedder(EMBEDDER)
        insert(store, record(1))
        renewed = replace(EMBEDDER, spec='{"url": "elsewhere"}')
        store.register_embedder(renewed)
        assert store.serving_embedder() == renewed

    def test_an_embedder_cannot_change_its_dimension(self, store: Store) -> None:
        store.register_embedder(EMBEDDER)
        with pytest.raises(InputError):
            store.register_embedder(EmbedderInfo(EMBEDDER.name, 9, EMBEDDER.spec))
        assert store.serving_embedder() == EMBEDDER

    def test_a_vector_of_a_retired_embedder_is_left_out_and_the_memory_kept(
        self, store: Store
    ) -> None:
        store.register_embedder(EMBEDDER)
        vectors = {EMBEDDER.name: unit(1, 0, 0, 0), "nobody": unit(1, 0)}
        insert(store, indexed(record(1), vectors=vectors))
        assert store.get("default", memory_id(1)).embedder == EMBEDDER.name
        with pytest.raises(NotFound):
            store.write("default", lambda t: t.put_vectors("nobody", [(record(1), unit(1, 0))]))

    @pytest.mark.parametrize(
        "vector",
        [unit(1, 0, 0), unit(1, 0, 0, 0, 0), unit(), np.full(4, np.nan), np.full(4, np.inf)],
        ids=["short", "long", "empty", "nan", "infinite"],
    )
    def test_a_vector_that_could_spoil_searches_is_refused(
        self, store: Store, vector: np.ndarray
    ) -> None:
        store.register_embedder(EMBEDDER)
        insert(store, indexed(record(1), vectors={EMBEDDER.name: unit(1, 0, 0, 0)}))
        bad = np.asarray(vector, np.float32)
        with pytest.raises(InputError):
            insert(store, indexed(record(2), vectors={EMBEDDER.name: bad}))
        with pytest.raises(InputError):
            store.write("default", lambda t: t.put_vectors(EMBEDDER.name, [(record(1), bad)]))
        assert numbers(found(store, vector_search(DEFAULT, 1, 0, 0, 0))) == [1]

    def test_double_precision_and_strided_vectors_are_taken(self, store: Store) -> None:
        store.register_embedder(EMBEDDER)
        wide = np.array([[0.6, 9], [0.8, 9], [0, 9], [0, 9]], np.float64)[:, 0]
        insert(store, indexed(record(1), vectors={EMBEDDER.name: wide}))  # type: ignore[dict-item]
        pool = store.search(vector_search(DEFAULT, 0.6, 0.8, 0, 0))
        assert pool.raw_cosine.tolist() == [pytest.approx(1.0, abs=1e-3)]

    def test_a_zero_vector_counts_as_made_and_is_never_near(self, store: Store) -> None:
        store.register_embedder(EMBEDDER)
        insert(store, indexed(record(1), vectors={EMBEDDER.name: unit(0, 0, 0, 0)}))
        assert store.without_vector(EMBEDDER.name, 5) == []
        assert is_complete(store.embedding_state(EMBEDDER.name))
        assert found(store, vector_search(DEFAULT, 1, 0, 0, 0)) == []
        assert store.get("default", memory_id(1)).embedder is None

    def test_stored_vectors_are_told_by_id_user_and_embedder(self, store: Store) -> None:
        store.register_embedder(EMBEDDER)
        insert(
            store,
            indexed(record(1), vectors={EMBEDDER.name: unit(0, 3, 4, 0)}),
            indexed(record(2), vectors={EMBEDDER.name: unit(0, 0, 0, 0)}),
            record(3),
        )
        asked = [memory_id(number) for number in (1, 2, 3, 4)]
        told = store.vectors("default", EMBEDDER.name, asked)
        # A text without a vector, one that is yet to get its own, and nobody.
        assert list(told) == asked[:1]
        assert told[asked[0]].tolist() == pytest.approx([0.0, 0.6, 0.8, 0.0], abs=4e-3)
        assert store.vectors("anna", EMBEDDER.name, asked) == {}
        assert store.vectors("default", OTHER_EMBEDDER.name, asked) == {}
        assert store.vectors("default", EMBEDDER.name, []) == {}

    def test_what_lacks_a_vector_is_told_in_a_fixed_order(self, store: Store) -> None:
        store.register_embedder(EMBEDDER)
        insert(
            store,
            record(3),
            record(1, user="other"),
            record(2, deleted_at=NOW),
            indexed(record(4), vectors={EMBEDDER.name: unit(1, 0, 0, 0)}),
            record(5, superseded_by=memory_id(4)),
        )
        lacking = store.without_vector(EMBEDDER.name, 9)
        # Which user comes first is the store's affair.
        assert numbers([m.id for m in lacking if m.user == "default"]) == [3, 2, 5]
        assert numbers([m.id for m in lacking if m.user == "other"]) == [1]
        assert store.without_vector(EMBEDDER.name, 1) == lacking[:1]
        assert store.embedding_state(EMBEDDER.name) == EmbeddingState(1, 5)
        assert store.embedding_state("nobody") == EmbeddingState(0, 5)

    def test_what_lacks_a_vector_goes_on_where_the_last_batch_ended(self, store: Store) -> None:
        store.register_embedder(EMBEDDER)
        insert(store, *(record(n) for n in (3, 1, 5, 2)))
        (first, last) = store.without_vector(EMBEDDER.name, 2)
        assert numbers([first.id, last.id]) == [3, 1]
        rest = store.without_vector(EMBEDDER.name, 2, last)
        assert numbers([m.id for m in rest]) == [5, 2]
        assert store.without_vector(EMBEDDER.name, 2, rest[-1]) == []
        # Whose place is lost starts again: better twice than never.
        store.write("default", lambda t: t.purge("default", last.id))
        again = store.without_vector(EMBEDDER.name, 9, last)
        assert numbers([m.id for m in again]) == [3, 5, 2]

    def test_put_vectors_skips_texts_that_changed_meanwhile(self, store: Store) -> None:
        store.register_embedder(EMBEDDER)
        insert(store, record(1, "embedded"), record(2, "embedded too"))
        batch = store.without_vector(EMBEDDER.name, 9)
        update(store, batch[0], replace(batch[0], content="changed"))
        store.write("default", lambda t: t.purge("default", memory_id(2)))
        vectors = [(memory, unit(1, 0, 0, 0)) for memory in batch]
        store.write("default", lambda t: t.put_vectors(EMBEDDER.name, vectors))
        assert store.embedding_state(EMBEDDER.name) == EmbeddingState(0, 1)
        assert found(store, vector_search(DEFAULT, 1, 0, 0, 0)) == []

    def test_put_vectors_shows_in_the_next_search(self, store: Store) -> None:
        store.register_embedder(EMBEDDER)
        insert(store, record(1))
        assert found(store, vector_search(DEFAULT, 1, 0, 0, 0)) == []
        for vector in (unit(0, 1, 0, 0), unit(1, 0, 0, 0)):
            store.write(
                "default", lambda t, v=vector: t.put_vectors(EMBEDDER.name, [(record(1), v)])
            )
        pool = store.search(vector_search(DEFAULT, 1, 0, 0, 0))
        assert pool.raw_cosine.tolist() == [pytest.approx(1.0, abs=1e-3)]
        assert len(store.history("default", memory_id(1))) == 1

    def test_a_switch_happens_only_when_it_is_complete(self, shelf: Shelf) -> None:
        store = shelf.store
        store.register_embedder(EMBEDDER)
        first, second = unit(1, 0, 0, 0), unit(0, 1, 0)
        insert(store, *(indexed(record(n), vectors={EMBEDDER.name: first}) for n in (1, 2)))
        store.register_embedder(OTHER_EMBEDDER)
        store.write("default", lambda t: t.put_vectors(OTHER_EMBEDDER.name, [(record(1), second)]))
        assert not store.serve_embedder(OTHER_EMBEDDER.name)
        assert store.serving_embedder() == EMBEDDER
        assert numbers(found(store, vector_search(DEFAULT, 1, 0, 0, 0))) == [1, 2]
        store.write("default", lambda t: t.put_vectors(OTHER_EMBEDDER.name, [(record(2), second)]))
        assert store.serve_embedder(OTHER_EMBEDDER.name)
        for opened in shelf.before_and_after_reopening():
            assert opened.serving_embedder() == OTHER_EMBEDDER
            assert opened.get("default", memory_id(1)).embedder == OTHER_EMBEDDER.name
            assert found(opened, vector_search(DEFAULT, 1, 0, 0, 0)) == []
            new = Search(DEFAULT, (), OTHER_EMBEDDER.name, second)
            assert numbers(found(opened, new)) == [1, 2]

    def test_a_switch_takes_along_what_may_yet_be_restored(self, store: Store) -> None:
        store.register_embedder(EMBEDDER)
        gone = record(2, deleted_at=NOW)
        replaced = record(3, superseded_by=memory_id(1))
        insert(store, record(1), gone, replaced)
        store.register_embedder(OTHER_EMBEDDER)
        vector = unit(0, 1, 0)
        store.write("default", lambda t: t.put_vectors(OTHER_EMBEDDER.name, [(record(1), vector)]))
        assert not is_complete(store.embedding_state(OTHER_EMBEDDER.name))
        assert not store.serve_embedder(OTHER_EMBEDDER.name)
        lacking = store.without_vector(OTHER_EMBEDDER.name, 9)
        assert numbers([m.id for m in lacking]) == [2, 3]
        vectors = [(memory, vector) for memory in lacking]
        store.write("default", lambda t: t.put_vectors(OTHER_EMBEDDER.name, vectors))
        assert is_complete(store.embedding_state(OTHER_EMBEDDER.name))
        assert store.serve_embedder(OTHER_EMBEDDER.name)
        search = Search(DEFAULT, (), OTHER_EMBEDDER.name, vector)
        assert numbers(found(store, search)) == [1]
        update(store, gone, record(2), "undo")
        update(store, replaced, record(3), "undo")
        assert numbers(found(store, search)) == [1, 2, 3]

    def test_an_unknown_embedder_never_serves(self, store: Store) -> None:
        store.register_embedder(EMBEDDER)
        assert not store.serve_embedder("nobody")
        assert store.serving_embedder() == EMBEDDER
        insert(store, record(1))
        assert not store.serve_embedder("nobody")
        assert store.serving_embedder() == EMBEDDER

    def test_the_nearest_are_those_by_the_embedder_that_is_asked_for(self, store: Store) -> None:
        """While vectors are made anew, memories have two that mean nothing to each other."""
        other = replace(OTHER_EMBEDDER, dimension=EMBEDDER.dimension)
        vectors = {EMBEDDER.name: unit(1, 0, 0, 0), other.name: unit(0, 1, 0, 0)}
        for embedder in (EMBEDDER, other):
            store.register_embedder(embedder)
        insert(store, indexed(record(1), vectors=vectors))
        asked = np.stack([unit(1, 0, 0, 0), unit(0, 1, 0, 0), unit(0, 0, 1, 0)])
        for count in (1, 2, 3):
            for embedder, near in ((EMBEDDER.name, [1, 0, 0]), (other.name, [0, 1, 0])):
                probe = NeighbourProbe(Scope(), embedder, asked[:count], 9, 0.5)
                found = store.write(probe.scope.user, lambda t, probe=probe: t.nearest(probe))
                assert [len(one) for one in found] == near[:count]
