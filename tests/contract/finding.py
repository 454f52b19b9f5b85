"""Getting by id, searching, fetching, listing, walking."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from contract.builders import (
    EMBEDDER,
    NOW,
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
from meritory.domain.errors import InputError, NotFound
from meritory.domain.memory import Listing, Scope, Source
from meritory.store.contract.memories import Search
from meritory.store.contract.store import Store

DEFAULT = Scope()
ABSURD_IDS = (
    "",
    " ",
    "%",
    "____",
    "abc",
    "*" * 26,
    "' OR 1=1 --",
    "../../etc/passwd",
    "/etc/passwd",
    "a" * 1_000_000,
    "\0\0\0\0",
    "\ud800\ud800\ud800\ud800",
    "ééééé",
    "~~~~~~",
)


class Finding:
    def test_get_takes_the_whole_id_a_unique_start_and_capitals(self, store: Store) -> None:
        one, two = record(1), record(2)
        one = replace(one, id="0abcd" + one.id[5:])
        insert(store, one, two)
        assert store.get("default", one.id) == one
        assert store.get("default", "0abc") == one
        assert store.get("default", " 0ABC ") == one
        assert store.get("default", two.id) == two

    def test_get_of_an_ambiguous_start_says_so(self, store: Store) -> None:
        insert(store, record(1), record(2))
        with pytest.raises(InputError, match="several"):
            store.get("default", memory_id(1)[:8])

    def test_get_finds_a_memory_whatever_its_state(self, store: Store) -> None:
        gone = record(1, deleted_at=NOW)
        old = record(2, superseded_by=memory_id(9))
        insert(store, gone, old)
        assert store.get("default", gone.id) == gone
        assert store.get("default", old.id) == old

    def test_unknown_foreign_and_absurd_ids_get_the_same_answer(self, store: Store) -> None:
        insert(store, record(1, user="somebody else"), record(2))
        for wanted in (memory_id(1), memory_id(77), *ABSURD_IDS):
            with pytest.raises(NotFound) as caught:
                store.get("default", wanted)
            assert str(caught.value) == f"no memory {wanted[:40]!r}"
            with pytest.raises(NotFound) as caught:
                store.write("default", lambda t, wanted=wanted: t.get("default", wanted))
            assert str(caught.value) == f"no memory {wanted[:40]!r}"

    def test_get_inside_a_transaction_wants_the_whole_id(self, store: Store) -> None:
        insert(store, record(1))
        with pytest.raises(NotFound):
            store.write("default", lambda t: t.get("default", memory_id(1)[:20]))
        assert store.write("default", lambda t: t.has("default", memory_id(1)))
        assert not store.write("default", lambda t: t.has("default", memory_id(1)[:20]))
        assert not store.write("other", lambda t: t.has("other", memory_id(1)))

    def test_search_finds_by_word_and_by_vector(self, store: Store) -> None:
        store.register_embedder(EMBEDDER)
        insert(
            store,
            indexed(record(1, "the harbour opens"), vectors={EMBEDDER.name: unit(1, 0, 0, 0)}),
            indexed(record(2, "the kettle boils"), vectors={EMBEDDER.name: unit(0, 1, 0, 0)}),
            record(3, "no vector here"),
        )
        assert numbers(found(store, words_search(DEFAULT, "harbours"))) == [1]
        assert numbers(found(store, words_search(DEFAULT, "vector"))) == [3]
        pool = store.search(vector_search(DEFAULT, 0, 1, 0, 0))
        best = pool.rows[int(np.nanargmax(pool.raw_cosine))]
        assert store.fetch(DEFAULT, np.array([best]), NOW)[int(best)].content == "the kettle boils"
        assert float(np.nanmax(pool.raw_cosine)) == pytest.approx(1.0, abs=1e-3)

    def test_a_pool_is_made_of_parallel_arrays(self, store: Store) -> None:
        store.register_embedder(EMBEDDER)
        turns = [
            indexed(
                record(n, f"turn {n}", sources=(Source(session_key="s", turn=str(n)),)),
                vectors={EMBEDDER.name: unit(n, 1, 0, 0)},
            )
            for n in range(1, 6)
        ]
        insert(store, *turns)
        pool = store.search(Search(DEFAULT, ("turn",), EMBEDDER.name, unit(3, 1, 0, 0)))
        assert len(pool.rows) == 5
        for name in ("text", "cosine", "raw_cosine", "length_chars", "session"):
            assert len(getattr(pool, name)) == 5
        assert pool.previous.tolist() == [-1, 0, 1, 2, 3]
        assert pool.following.tolist() == [1, 2, 3, 4, -1]
        assert set(pool.session.tolist()) == {0}

    def test_a_search_brings_the_turns_beside_a_hit_along(self, store: Store) -> None:
        def turn(n: int, text: str, session: str = "s") -> None:
            insert(store, record(n, text, sources=(Source(session_key=session, turn=str(n)),)))

        for n in range(1, 8):
            turn(n, "needle" if n == 4 else f"hay {n}")
        turn(8, "other session", "t")
        assert numbers(found(store, words_search(DEFAULT, "needle"))) == [2, 3, 4, 5, 6]

    def test_a_search_of_an_empty_store_and_with_nothing_asked_is_empty(self, store: Store) -> None:
        assert len(store.search(words_search(DEFAULT, "anything")).rows) == 0
        assert len(store.search(vector_search(DEFAULT, 1, 0, 0, 0)).rows) == 0
        insert(store, record(1))
        assert len(store.search(Search(DEFAULT, ())).rows) == 0

    @pytest.mark.parametrize(
        "term",
        ['"', '""', "*", "NEAR(", "content:x", "-", "^", "a AND", "(", "\0", "'; DROP", "x" * 9999],
    )
    def test_full_text_syntax_is_only_text(self, store: Store, term: str) -> None:
        insert(store, record(1, "plain"))
        assert found(store, words_search(DEFAULT, term)) == []
        assert numbers(found(store, words_search(DEFAULT, term, "plain"))) == [1]
        phrases = Search(DEFAULT, ("plain",), phrases=(term, f"plain {term}"))
        assert numbers(found(store, phrases)) == [1]

    def test_a_phrase_lifts_the_text_that_holds_it(self, store: Store) -> None:
        insert(
            store,
            record(1, "harbour of ships that are blue"),
            record(2, "ships of the blue harbour"),
            *(record(n, f"filler {n}") for n in range(3, 20)),
        )

        def best(*phrases: str) -> dict[int, float]:
            pool = store.search(Search(DEFAULT, ("blue", "harbour"), phrases=phrases))
            rows = store.fetch(DEFAULT, pool.rows, NOW)
            return {
                int(rows[row].id): score
                for row, score in zip(pool.rows.tolist(), pool.text.tolist(), strict=True)
            }

        plain, lifted = best(), best("blue harbour")
        assert plain.keys() == lifted.keys() == {1, 2}
        assert lifted[2] - plain[2] > lifted[1] - plain[1]
        # A phrase with a word nobody asked for brings in nothing.
        assert best("filler 5") == plain

    def test_a_vector_of_an_unknown_embedder_or_wrong_length_is_no_vector(
        self, store: Store
    ) -> None:
        store.register_embedder(EMBEDDER)
        insert(store, indexed(record(1, "one"), vectors={EMBEDDER.name: unit(1, 0, 0, 0)}))
        for embedder, vector in (
            ("nobody", unit(1, 0, 0, 0)),
            (EMBEDDER.name, unit(1, 0, 0)),
            (None, unit(1, 0, 0, 0)),
            (EMBEDDER.name, unit(0, 0, 0, 0)),
        ):
            pool = store.search(Search(DEFAULT, ("one",), embedder, vector))
            assert np.isnan(pool.raw_cosine).all()
            assert len(pool.rows) == 1

    def test_gone_memories_are_not_found(self, store: Store) -> None:
        store.register_embedder(EMBEDDER)
        vectors = {EMBEDDER.name: unit(1, 0, 0, 0)}
        insert(
            store,
            indexed(record(1, "word", deleted_at=NOW), vectors=vectors),
            indexed(record(2, "word", superseded_by=memory_id(3)), vectors=vectors),
            indexed(record(3, "word"), vectors=vectors),
        )
        assert numbers(found(store, words_search(DEFAULT, "word"))) == [3]
        assert numbers(found(store, vector_search(DEFAULT, 1, 0, 0, 0))) == [3]
        update(store, record(3, "word"), record(3, "word", deleted_at=NOW), "delete")
        assert found(store, words_search(DEFAULT, "word")) == []
        update(store, record(1, "word", deleted_at=NOW), record(1, "word"), "undo")
        assert numbers(found(store, words_search(DEFAULT, "word"))) == [1]

    def test_fetch_leaves_out_what_is_no_longer_valid(self, store: Store) -> None:
        insert(
            store,
            record(1, "word", valid_until=NOW),
            record(2, "word", valid_until=NOW + timedelta(microseconds=1)),
            record(3, "word", valid_until=None),
        )
        assert numbers(found(store, words_search(DEFAULT, "word"))) == [2, 3]

    def test_fetch_of_rows_nobody_has_is_empty(self, store: Store) -> None:
        rows = np.array([-1, 0, 1, 2**62], np.int64)
        assert store.fetch(DEFAULT, rows, NOW) == {}
        assert store.fetch(DEFAULT, np.empty(0, np.int64), NOW) == {}

    def test_texts_and_kinds_of_rows_are_those_of_one_user(self, store: Store) -> None:
        insert(store, record(1, "word one", kind="preference"), record(2, "word two"))
        insert(store, record(3, "word three", user="somebody else"))
        rows = store.search(words_search(DEFAULT, "word")).rows
        expected = [("word one", "preference"), ("word two", "fact")]
        assert [store.wordings("default", rows)[row] for row in rows.tolist()] == expected
        assert not set(expected) & set(store.wordings("somebody else", rows).values())
        assert store.wordings("default", np.empty(0, np.int64)) == {}

    def test_texts_that_were_read_before_follow_every_change(self, store: Store) -> None:
        old, other = record(1, "word one"), record(2, "word two")
        insert(store, old, other)
        rows = store.search(words_search(DEFAULT, "word")).rows
        assert len(store.wordings("default", rows)) == 2
        update(store, old, replace(old, content="word three"))
        texts = {content for content, _ in store.wordings("default", rows).values()}
        assert texts == {"word three", "word two"}

    def test_a_search_says_how_many_memories_have_each_term(self, store: Store) -> None:
        insert(store, record(1, "word one"), record(2, "word two"))
        pool = store.search(words_search(DEFAULT, "word", "one", "absent"))
        assert pool.memory_count == 2
        assert dict(pool.term_counts) == {"word": 2, "one": 1, "absent": 0}

    def test_a_word_that_no_memory_has_finds_the_nearest_words(self, store: Store) -> None:
        insert(
            store,
            record(1, "the kubernetes cluster"),
            record(2, "a database of birds"),
            record(3, "herons and heroes"),
            record(4, "plover", user="somebody else"),
        )
        typed = ("kuberntes", "databse", "birds", "zebra", "plovr", "herom", "cat")
        assert store.near_words(Search(DEFAULT, ()), typed) == {
            "kuberntes": ("kubernetes",),
            "databse": ("database",),
            "zebra": (),
            "plovr": (),
            "herom": ("hero", "heron"),
            "cat": (),
        }
        insert(store, record(5, "a zebrah"))
        assert store.near_words(Search(DEFAULT, ()), ("zebra",)) == {"zebra": ("zebrah",)}

    def test_near_terms_find_and_count_less_than_terms(self, store: Store) -> None:
        insert(store, *(record(n, f"filler {n}") for n in range(10, 20)))
        insert(store, record(1, "word"), record(2, "plain"))
        exact = store.search(words_search(DEFAULT, "word"))
        near = store.search(Search(DEFAULT, (), near_terms=("word",)))
        both = store.search(Search(DEFAULT, ("plain",), near_terms=("word",)))
        assert exact.rows.tolist() == near.rows.tolist()
        assert near.text == pytest.approx(exact.text * 0.8, rel=1e-4)
        assert len(both.rows) == 2
        assert sorted(both.text / both.text.max()) == pytest.approx([0.8, 1.0], rel=1e-3)

    def test_pages_are_in_total_order_and_miss_nothing(self, store: Store) -> None:
        order = [7, 3, 11, 1, 9, 2, 10, 5, 8, 4, 6]
        insert(store, *(record(n) for n in order))
        seen: list[str] = []
        after = None
        while page := store.listing(Listing(DEFAULT, after=after, limit=3)):
            assert len(page) <= 3
            seen += [memory.id for memory in page]
            after = seen[-1]
            insert(store, record(100 + len(seen)))  # what is newer does not shift the pages
        assert numbers(seen) == sorted(order, reverse=True)

    def test_listing_filters(self, store: Store) -> None:
        insert(
            store,
            record(1, kind="decision", tags=("a", "b")),
            record(2, tags=("ab",), deleted_at=NOW),
            record(3, tags=('x"y', "%")),
            record(4, project="p"),
        )

        def listed(**fields: object) -> list[int]:
            return numbers([m.id for m in store.listing(Listing(DEFAULT, **fields))])  # type: ignore[arg-type]

        assert listed() == [3, 1]
        assert listed(kind="decision") == [1]
        assert listed(tag="a") == [1]
        assert listed(tag="ab") == []
        assert listed(tag="ab", include_gone=True) == [2]
        assert listed(tag="%") == [3]
        assert listed(tag='x"y') == [3]
        assert listed(include_gone=True) == [3, 2, 1]
        assert listed(everywhere=True) == [4, 3, 1]

    def test_walk_goes_over_everything_of_a_user_oldest_first(self, store: Store) -> None:
        mine = [record(n) for n in range(1, 1_203)]
        gone = [replace(mine[5], deleted_at=NOW), replace(mine[6], superseded_by=mine[7].id)]
        mine[5:7] = gone
        insert(store, *mine, record(5_000, user="other"))
        walked = list(store.walk("default"))
        assert walked == mine
        assert [m.id for m in store.walk("other")] == [memory_id(5_000)]
        assert list(store.walk("nobody")) == []

    def test_a_walk_may_be_interrupted_by_writes(self, store: Store) -> None:
        insert(store, *(record(n) for n in range(1, 1_001)))
        walk = store.walk("default")
        first = next(walk)
        insert(store, record(2_000))
        assert [first.id, *(m.id for m in walk)][-1] == memory_id(2_000)

    def test_what_was_found_is_found_again_after_reopening(self, shelf: Shelf) -> None:
        shelf.store.register_embedder(EMBEDDER)
        vectors = {EMBEDDER.name: unit(1, 0, 0, 0)}
        insert(shelf.store, indexed(record(1, "lasting"), vectors=vectors))
        again = shelf.reopen()
        assert numbers(found(again, words_search(DEFAULT, "lasting"))) == [1]
        assert numbers(found(again, vector_search(DEFAULT, 1, 0, 0, 0))) == [1]
