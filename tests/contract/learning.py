"""What sessions taught, who may become a candidate, and that a purge takes all of it along."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from contract.builders import (
    EMBEDDER,
    NOW,
    OTHER_EMBEDDER,
    about,
    found,
    indexed,
    insert,
    memory_id,
    numbers,
    record,
    unit,
    update,
    words_search,
)
from contract.sessions import (
    HOUR,
    KEY,
    USER,
    begin,
    candidate,
    injection,
    rating,
    rows,
    session,
    verdict,
)
from contract.shelf import Shelf
from meritory.domain.memory import Scope
from meritory.domain.session import Event, Labelled, Proof
from meritory.rank.usage_history import UsedSessions
from meritory.store.contract.memories import Gathering, Search, Trait
from meritory.store.contract.store import Store, Transaction

DAY = timedelta(days=1)
SCOPE = Scope(USER)
NO_ROWS = np.empty(0, np.int64)


def teach(store: Store, uses: Mapping[int, float], key: str = KEY, user: str = USER) -> None:
    """Labels a session with what helped in it."""
    labels = [Labelled(memory_id(n), gain, {"rule": "known"}) for n, gain in uses.items()]
    helped = {memory_id(n): gain for n, gain in uses.items()}
    store.write(user, lambda t: t.put_labels(user, key, labels, helped))


def learned(
    store: Store, scope: Scope = SCOPE, embedder: str | None = EMBEDDER.name
) -> UsedSessions:
    """What the store knows of the past."""
    past, _ = store.past(scope, embedder)
    assert len(past.times_days) == len(past.contexts) == len(past.projects)
    assert len(past.use_session) == len(past.use_memory) == len(past.use_gain)
    return past


def uses(store: Store, past: UsedSessions) -> list[tuple[int, int, float]]:
    """The uses as (place of the session, number of the memory, gain)."""
    known = store.fetch(SCOPE, past.use_memory, NOW)
    return [
        (int(place), int(known[int(row)].id), float(gain))
        for place, row, gain in zip(past.use_session, past.use_memory, past.use_gain, strict=True)
    ]


def gathering(scope: Scope = SCOPE, ids: tuple[str, ...] = (), **search: Any) -> Gathering:
    """A search for everything that there is."""
    legs = {"embedder": EMBEDDER.name, "vector": unit(1, 0, 0, 0), "terms": ("claim",), **search}
    return Gathering(Search(scope, injectable_at=NOW, **legs), 50, NO_ROWS, ids)


def gathered(store: Store, wanted: Gathering) -> list[int]:
    """The numbers of the memories a gathering leads to, by any side."""
    pool = store.gather(wanted)
    assert pool.rows.tolist() == sorted(set(pool.rows.tolist()))
    sides = (pool.by_effective, pool.by_cosine, pool.by_text, list(pool.row_of_id.values()))
    for side in sides:
        assert set(np.asarray(side, np.int64).tolist()) <= set(pool.rows.tolist())
    lengths = {len(column) for column in (pool.text, pool.cosine, pool.centred, pool.vectors)}
    assert lengths == {len(pool.rows)}
    scope = wanted.search.scope
    known = {trait.id for trait in store.traits(scope, pool.rows, NOW).values()}
    return sorted(int(one) for one in known)


class Learning:
    # -- labels and the past --------------------------------------------------------------

    def test_labels_and_uses_are_replaced_as_a_whole(self, shelf: Shelf) -> None:
        insert(shelf.store, *(record(n) for n in (1, 2, 3)))
        begin(shelf.store, 1, 2)
        first = [Labelled(memory_id(1), 0.75, {"rule": "rated", "agent": 0.5, "judge": None})]
        shelf.store.write(USER, lambda t: t.put_labels(USER, KEY, first, {memory_id(1): 0.75}))
        for store in shelf.before_and_after_reopening():
            assert rows(store)[1].label == 0.75
            assert rows(store)[1].label_parts == first[0].parts
            assert (rows(store)[2].label, rows(store)[2].label_parts) == (None, {})
            assert uses(store, learned(store)) == [(0, 1, 0.75)]
        second = [Labelled(memory_id(n), None, {"rule": "unjudged"}) for n in (1, 2)]
        store.write(USER, lambda t: t.put_labels(USER, KEY, second, {memory_id(3): 1.0}))
        assert [one.label for one in rows(store).values()] == [None, None]
        # A memory that was no candidate counts here all the same.
        assert uses(store, learned(store)) == [(0, 3, 1.0)]

    def test_the_past_is_in_order_of_time(self, store: Store) -> None:
        insert(store, record(1), record(2))
        for n, key in enumerate(("late", "early", "middle")):
            begin(store, key=key, started_at=NOW + (3 - 2 * n if n < 2 else 2) * DAY)
            teach(store, {1 + n % 2: 0.5 + n / 10}, key)
        past = learned(store)
        assert np.diff(past.times_days).tolist() == [1.0, 1.0]
        assert uses(store, past) == [(0, 2, 0.6), (1, 1, 0.7), (2, 1, 0.5)]

    def test_sessions_that_taught_nothing_yet_are_not_past(self, store: Store) -> None:
        begin(store, 1, key="open")
        begin(store, 1, key="ended", state="ended")
        assert len(learned(store).times_days) == 0
        teach(store, {}, "ended")
        # Nothing helped, which is something to know.
        past = learned(store)
        assert (len(past.times_days), len(past.use_memory)) == (1, 0)

    def test_the_past_catches_up_with_every_labelling(self, store: Store) -> None:
        insert(store, record(1), record(2))
        begin(store, key="a")
        begin(store, key="b", started_at=NOW + DAY)
        teach(store, {1: 0.5}, "a")
        assert uses(store, learned(store)) == [(0, 1, 0.5)]
        teach(store, {2: 0.9}, "b")
        assert uses(store, learned(store)) == [(0, 1, 0.5), (1, 2, 0.9)]
        teach(store, {2: 0.7}, "a")
        assert uses(store, learned(store)) == [(0, 2, 0.7), (1, 2, 0.9)]
        teach(store, {}, "b")
        assert uses(store, learned(store)) == [(0, 2, 0.7)]

    def test_the_past_catches_up_with_what_others_wrote(self, shelf: Shelf) -> None:
        """Two processes on one store: each learns from the other's sessions."""
        store = shelf.store
        insert(store, record(1), record(2))
        begin(store, key="a")
        begin(store, key="b", started_at=NOW + DAY)
        other = Shelf(shelf.folder, shelf._make).store
        try:
            teach(store, {1: 0.5}, "a")
            assert uses(other, learned(other)) == [(0, 1, 0.5)]
            teach(other, {2: 0.9}, "b")
            other.write(USER, lambda t: t.put_verdict(USER, "b", verdict(), []))
            assert uses(store, learned(store)) == [(0, 1, 0.5), (1, 2, 0.9)]
            teach(store, {2: 0.4}, "a")
            assert uses(other, learned(other)) == [(0, 2, 0.4), (1, 2, 0.9)]
            assert store.judged_counts(USER) == other.judged_counts(USER) == (1, 0)
        finally:
            other.close()

    def test_users_have_each_their_own_past(self, store: Store) -> None:
        for user in (USER, "ann"):
            insert(store, record(1, user=user))
            begin(store, user=user)
        teach(store, {1: 0.5}, user="ann")
        assert len(learned(store).times_days) == 0
        assert learned(store, Scope("ann")).use_gain.tolist() == [0.5]

    def test_projects_have_small_numbers(self, store: Store) -> None:
        for n, project in enumerate(("p", None, "q", "p")):
            begin(store, key=f"s{n}", project=project, started_at=NOW + n * DAY)
            teach(store, {}, f"s{n}")
        past, here = store.past(Scope(USER, None, "p"), None)
        assert (past.projects == here).tolist() == [True, False, False, True]
        assert past.projects[1] == -1
        past, nowhere = store.past(SCOPE, None)
        assert nowhere == -1
        _, new = store.past(Scope(USER, None, "never seen"), None)
        assert new not in past.projects.tolist()

    def test_contexts_of_another_embedder_say_nothing(self, store: Store) -> None:
        wide = {"embedder": EMBEDDER.name, "context_vector": unit(1, 1, 0, 0)}
        other = {"embedder": OTHER_EMBEDDER.name, "context_vector": unit(1, 0, 0)}
        for n, fields in enumerate((wide, other, {}, wide)):
            begin(store, key=f"s{n}", started_at=NOW + n * DAY, **fields)
            teach(store, {}, f"s{n}")
        past = learned(store)
        assert past.contexts.shape == (4, 4)
        assert past.contexts.any(axis=1).tolist() == [True, False, False, True]
        assert past.contexts[0] == pytest.approx(unit(1, 1, 0, 0), abs=1e-3)
        assert learned(store, embedder=OTHER_EMBEDDER.name).contexts.shape == (4, 3)
        for unknown in (None, "nobody"):
            assert not learned(store, embedder=unknown).contexts.any()
        # And back again: what is held in memory is of the embedder that was asked for.
        assert learned(store).contexts.shape == (4, 4)

    def test_a_damaged_context_does_not_break_the_past(self, store: Store) -> None:
        vectors = (unit(1, 0, 0, 0), unit(1, 0, 0), np.full(4, np.nan, np.float32))
        for n, vector in enumerate(vectors):
            begin(
                store,
                key=f"s{n}",
                started_at=NOW + n * DAY,
                embedder=EMBEDDER.name,
                context_vector=vector,
            )
            teach(store, {}, f"s{n}")
        past = learned(store)
        assert past.contexts.shape == (3, 4)
        assert past.contexts[:2].tolist() == [[1, 0, 0, 0], [0, 0, 0, 0]]

    def test_usefulness_is_set_for_ones_own(self, store: Store) -> None:
        insert(store, record(1), record(1, user="ann"), record(2))
        before = store.get(USER, memory_id(1))
        store.write(USER, lambda t: t.set_usefulness(USER, {memory_id(1): 0.75, memory_id(9): 0.1}))
        assert store.get(USER, memory_id(1)) == replace(before, usefulness=0.75)
        assert store.get("ann", memory_id(1)).usefulness == 0.5
        assert store.get(USER, memory_id(2)).usefulness == 0.5

    def test_proofs_tell_what_sessions_say_of_a_memory(self, store: Store) -> None:
        for n, key in enumerate(("b", "a", "silent")):
            begin(store, 1, 2, 3, key=key, started_at=NOW + (2 - n) * DAY)
            # The third was considered, never shown: what is said about it proves nothing.
            shown = injection(1, 1, 2)
            store.write(USER, lambda t, key=key, shown=shown: t.put_injection(USER, key, shown))
        begin(store, 1, key="a", user="ann")
        store.write("ann", lambda t: t.add_ratings("ann", "a", [rating(1, 1.0)]))
        store.write(USER, lambda t: t.add_ratings(USER, "b", [rating(1, -0.5)]))
        rated = [Labelled(memory_id(1), -0.4, {"rule": "rated", "agent": -0.5})]
        store.write(USER, lambda t: t.put_labels(USER, "b", rated, {}))
        store.write("ann", lambda t: t.put_labels("ann", "a", rated, {}))
        # The rating alone, before it is labelled, proves nothing yet.
        store.write(USER, lambda t: t.add_ratings(USER, "silent", [rating(1, 1.0)]))
        teach(store, {1: 0.25, 2: 0.0, 3: 0.9}, "a")
        assert store.proofs(USER, [memory_id(1), memory_id(2), memory_id(3)]) == {
            memory_id(1): [
                Proof("a", NOW + DAY, None, 0.25, is_known=True),
                Proof("b", NOW + 2 * DAY, -0.5, -0.4),
            ],
            memory_id(2): [Proof("a", NOW + DAY, None, 0.0, is_known=True)],
        }
        assert store.proofs(USER, []) == {}

    def test_who_was_shown_a_memory_lately(self, store: Store) -> None:
        """What counts is when it was shown, not when the session began."""
        insert(store, record(1), record(2))
        for key, state, shown, age in (
            ("old", "finished", 1, 30 * HOUR),
            ("fresh", "finished", 1, HOUR),
            ("other", "finished", 2, HOUR),
            ("open", "open", 1, HOUR),
            ("ended", "ended", 1, HOUR),
        ):
            begin(store, 1, 2, key=key, state=state, started_at=NOW - 99 * HOUR)
            made = injection(1, shown, at=NOW - age)
            store.write(USER, lambda t, key=key, made=made: t.put_injection(USER, key, made))
        asked = store.sessions_shown(USER, memory_id(1), NOW - DAY)
        # An open one will be labelled when it ends.
        assert sorted(asked) == ["ended", "fresh"]
        assert store.sessions_shown("ann", memory_id(1), NOW - DAY) == []

    # -- who may become a candidate -------------------------------------------------------

    def test_only_live_trusted_valid_memories_of_the_scope_are_gathered(self, store: Store) -> None:
        store.register_embedder(EMBEDDER)
        vectors = {EMBEDDER.name: unit(1, 0, 0, 0)}
        fields: list[dict[str, Any]] = [
            {},
            {"project": "p"},
            {"project": "q"},
            {"agent": "a"},
            {"user": "ann"},
            {"trust": "untrusted", "origin": "web", "pinned": True},
            {"deleted_at": NOW},
            {"superseded_by": memory_id(1)},
            {"valid_until": NOW},
            {"valid_until": NOW + timedelta(seconds=1)},
            {"kind": "constraint"},
        ]
        memories = [record(n, **given) for n, given in enumerate(fields, 1)]
        insert(
            store,
            *(
                indexed(one, vectors=vectors, attributes=(about("thing", one.kind),))
                for one in memories
            ),
        )
        every = tuple(one.id for one in memories)
        for wanted, expected in (
            (gathering(ids=every), [1, 10, 11]),
            (gathering(Scope(USER, None, "p"), every), [1, 2, 10, 11]),
            (gathering(Scope(USER, "a", "q"), every), [1, 3, 4, 10, 11]),
            (gathering(Scope("ann"), every), [5]),
            (gathering(Scope("nobody"), every), []),
            (gathering(ids=every, embedder=None, vector=None), [1, 10, 11]),
        ):
            assert gathered(store, wanted) == expected

    def test_what_changed_is_gathered_as_it_is_now(self, store: Store) -> None:
        store.register_embedder(EMBEDDER)
        vectors = {EMBEDDER.name: unit(1, 0, 0, 0)}
        first, second = record(1), record(2, trust="untrusted")
        insert(store, indexed(first, vectors=vectors), indexed(second, vectors=vectors))
        assert gathered(store, gathering()) == [1]
        update(store, second, indexed(replace(second, trust="trusted"), vectors=vectors))
        assert gathered(store, gathering()) == [1, 2]
        update(store, first, replace(first, deleted_at=NOW), "delete")
        assert gathered(store, gathering()) == [2]
        store.write(USER, lambda t: t.purge(USER, memory_id(2)))
        assert gathered(store, gathering(ids=(memory_id(1), memory_id(2)))) == []

    def test_expired_memories_leave_their_places_to_others(self, store: Store) -> None:
        """Many that are no longer valid must not crowd out those that are."""
        insert(store, *(record(n, importance=0.1) for n in range(1, 6)))
        insert(store, *(record(n, importance=1.0, valid_until=NOW) for n in range(10, 80)))
        wanted = gathering(embedder=None, vector=None, terms=())
        assert gathered(store, wanted) == [1, 2, 3, 4, 5]

    def test_what_may_not_be_injected_takes_nobodys_place(self, store: Store) -> None:
        """Hundreds of untrusted and expired texts match better than the one that counts."""
        insert(store, record(1, "a claim among many other words that make it match less well"))
        insert(store, *(record(n, "claim claim", trust="untrusted") for n in range(10, 200)))
        insert(store, *(record(n, "claim claim", valid_until=NOW) for n in range(200, 300)))
        search = Search(SCOPE, ("claim",), text_limit=20, hit_limit=5)
        asked = replace(search, injectable_at=NOW)
        assert found(store, asked) == [memory_id(1)]
        assert memory_id(1) not in found(store, search)
        assert gathered(store, Gathering(asked, 0, NO_ROWS)) == [1]

    def test_every_side_is_limited_whatever_the_size(self, store: Store) -> None:
        store.register_embedder(EMBEDDER)
        insert(
            store,
            *(
                indexed(
                    record(n, importance=(n % 10) / 10),
                    vectors={EMBEDDER.name: unit(n, 400 - n, 0, 1)},
                )
                for n in range(1, 301)
            ),
        )
        pool = store.gather(
            Gathering(
                Search(
                    SCOPE,
                    ("claim",),
                    EMBEDDER.name,
                    unit(1, 0, 0, 0),
                    text_limit=40,
                    vector_limit=20,
                ),
                30,
                NO_ROWS,
            )
        )
        sides = (pool.by_effective, pool.by_cosine, pool.by_text)
        assert [len(side) for side in sides] == [30, 20, 40]
        assert len(pool.rows) <= 90
        by_row = store.traits(SCOPE, pool.rows, NOW)
        # Of equal importance the newest stand first; the most important of all at the top.
        best = [by_row[row] for row in pool.by_effective.tolist()]
        assert {trait.importance for trait in best} == {0.9}
        assert [trait.id for trait in best] == sorted((trait.id for trait in best), reverse=True)
        nearest = [int(by_row[row].id) for row in pool.by_cosine.tolist()]
        assert nearest == list(range(300, 280, -1))

    def test_traits_are_what_ranking_needs(self, store: Store) -> None:
        full = record(
            1,
            "twelve chars",
            kind="lesson",
            project="p",
            importance=0.25,
            pinned=True,
            valid_from=NOW - DAY,
            usefulness=0.75,
        )
        insert(store, full, record(2))
        store.write(USER, lambda t: t.add_usage(USER, {full.id: 3}, NOW))
        every = np.arange(1, 9)
        traits = {one.id: one for one in store.traits(Scope(USER, None, "p"), every, NOW).values()}
        one = traits[full.id]
        assert (one.kind, one.project, one.importance, one.pinned) == ("lesson", "p", 0.25, True)
        days = [(NOW - DAY).timestamp() / 86_400, full.created_at.timestamp() / 86_400]
        assert [one.since_days, one.created_days] == pytest.approx(days, abs=1e-7)
        assert (one.access_count, one.usefulness) == (3, 0.75)
        plain = traits[memory_id(2)]
        assert plain.since_days == plain.created_days
        assert [one.id for one in store.traits(SCOPE, every, NOW).values()] == [memory_id(2)]

    def test_traits_that_were_asked_for_before_follow_every_change(self, store: Store) -> None:
        first = [record(n, project="p", valid_until=NOW + n * DAY) for n in range(1, 8)]
        insert(store, *first)
        every, here = np.arange(1, 20), Scope(USER, None, "p")

        def known(after: int = 0) -> dict[int, Trait]:
            found = store.traits(here, every, NOW + after * DAY).values()
            return {int(one.id): one for one in found}

        assert sorted(known()) == [1, 2, 3, 4, 5, 6, 7]
        store.write(USER, lambda t: t.add_usage(USER, {memory_id(1): 2}, NOW))
        store.write(USER, lambda t: t.set_usefulness(USER, {memory_id(1): 0.25}))
        update(store, first[1], replace(first[1], importance=0.125, pinned=True))
        update(store, first[2], replace(first[2], trust="untrusted"))
        update(store, first[3], replace(first[3], project="q"))
        update(store, first[4], replace(first[4], deleted_at=NOW), "delete")
        store.write(USER, lambda t: t.purge(USER, memory_id(6)))
        insert(store, record(8, project="p"))
        traits = known()
        assert sorted(traits) == [1, 2, 7, 8]
        assert (traits[1].access_count, traits[1].usefulness) == (2, 0.25)
        assert (traits[2].importance, bool(traits[2].pinned)) == (0.125, True)
        assert sorted(known(after=1)) == [2, 7, 8]
        update(store, first[4], first[4], "undo")
        assert sorted(known()) == [1, 2, 5, 7, 8]

    def test_traits_are_told_to_their_owner_alone(self, store: Store) -> None:
        insert(store, record(1), record(2, user="ann"))
        every = np.arange(1, 9)
        for _ in range(2):
            found = {
                user: [one.id for one in store.traits(Scope(user), every, NOW).values()]
                for user in (USER, "ann", "nobody")
            }
            assert found == {USER: [memory_id(1)], "ann": [memory_id(2)], "nobody": []}

    # -- purge ----------------------------------------------------------------------------

    def test_a_purge_drops_the_digests_that_may_hold_its_words(self, shelf: Shelf) -> None:
        for user in (USER, "ann"):
            insert(shelf.store, *(record(n, user=user) for n in (1, 2, 3)))
            for key, candidates in (("shown", (1, 2)), ("considered", (2, 1)), ("other", (2, 3))):
                begin(shelf.store, *candidates, key=key, user=user)
                shelf.store.write(user, lambda t, k=key, u=user: t.put_digest(u, k, b"digest"))
            shelf.store.write(user, lambda t, u=user: t.put_injection(u, "shown", injection(1, 1)))
        shelf.store.write(USER, lambda t: t.purge(USER, memory_id(1)))
        for store in shelf.before_and_after_reopening():
            keys = ("shown", "considered", "other")
            assert [key for key in keys if store.digest(USER, key)] == ["other"]
            assert [key for key in keys if store.digest("ann", key)] == list(keys)

    def test_a_purge_takes_candidates_ratings_uses_and_events_along(self, shelf: Shelf) -> None:
        for user in (USER, "ann"):
            insert(shelf.store, record(1, user=user), record(2, user=user))
            begin(shelf.store, 1, 2, user=user)

            def happen(transaction: Transaction, user: str = user) -> None:
                transaction.put_injection(user, KEY, injection(1, 1, 2))
                transaction.add_hits(user, KEY, [memory_id(1)])
                transaction.add_ratings(user, KEY, [rating(1, 0.5), rating(2, 0.25)])
                transaction.put_used(user, KEY, {memory_id(1): 1.0, memory_id(2): 1.0})
                transaction.log_events(
                    user,
                    [
                        Event(at=NOW, category="f", name="rated", memory_id=memory_id(n))
                        for n in (1, 2)
                    ],
                )

            shelf.store.write(user, happen)
            teach(shelf.store, {1: 0.5, 2: 0.5}, user=user)
        assert len(learned(shelf.store).use_memory) == 2
        shelf.store.write(USER, lambda t: t.purge(USER, memory_id(1)))
        for store in shelf.before_and_after_reopening():
            assert list(rows(store)) == [2]
            assert [one.handle for one in store.shown(USER, KEY)] == ["m2"]
            assert numbers([one.memory_id for one in store.ratings(USER, KEY)]) == [2]
            assert store.proofs(USER, [memory_id(1)]) == {}
            assert store.events(USER, memory_id=memory_id(1)) == []
            assert len(store.events(USER, memory_id=memory_id(2))) == 1
            assert memory_id(1) not in (store.used(USER, KEY) or {})
            assert found(store, words_search(SCOPE, "claim")) == [memory_id(2)]
            # Ann's stay as they were.
            assert list(rows(store, user="ann")) == [1, 2]
            assert len(store.ratings("ann", KEY)) == 2
            assert len(store.events("ann", memory_id=memory_id(1))) == 1
            assert store.used("ann", KEY) == {memory_id(1): 1.0, memory_id(2): 1.0}
            assert len(learned(store, Scope("ann")).use_memory) == 2
        assert uses(store, learned(store)) == [(0, 2, 0.5)]

    def test_what_is_labelled_after_a_purge_brings_nothing_back(self, store: Store) -> None:
        insert(store, record(1), record(2))
        begin(store, 1, 2)
        store.write(USER, lambda t: t.purge(USER, memory_id(1)))
        teach(store, {1: 1.0, 2: 1.0})
        assert list(rows(store)) == [2]
        assert uses(store, learned(store)) == [(0, 2, 1.0)]

    def test_handles_go_on_after_a_purge(self, store: Store) -> None:
        """A handle that was given once is never given to another memory."""
        insert(store, *(record(n) for n in (1, 2, 3)))
        begin(store, 1, 2, 3)
        store.write(USER, lambda t: t.put_injection(USER, KEY, injection(1, 1, 2)))
        store.write(USER, lambda t: t.purge(USER, memory_id(1)))
        made = injection(2, 3, first=store.session(USER, KEY).handle_count + 1)
        store.write(USER, lambda t: t.put_injection(USER, KEY, made))
        assert [one.handle for one in store.shown(USER, KEY)] == ["m2", "m3"]
        assert store.session(USER, KEY).handle_count == 3

    def test_sessions_without_candidates_are_whole_too(self, store: Store) -> None:
        store.write("default", lambda t: t.open_session(session()))
        store.write(USER, lambda t: t.put_candidates(USER, KEY, []))
        assert store.session_memories(USER, KEY) == []
        store.write(USER, lambda t: t.put_candidates(USER, KEY, [candidate(1)]))
        assert list(rows(store)) == [1]
