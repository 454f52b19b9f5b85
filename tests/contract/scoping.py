"""Who sees what: a table of users, agents and projects, and a thousand random crossings."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable

import numpy as np
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
    words_search,
)
from meritory.domain.errors import InputError, NotFound
from meritory.domain.memory import Listing, MemoryRecord, Scope, Source
from meritory.store.contract.memories import Near, NeighbourProbe, Search
from meritory.store.contract.store import Store, Transaction
from meritory.text.normalize import content_hash

TEXT = "shared claim"
AXIS = (None, "a", "b")
EVERY_SCOPE = [
    Scope(user, agent, project)
    for user, agent, project in itertools.product(("u", "v"), AXIS, AXIS)
]
# Names that a careless comparison would take for each other, or for nothing, or for SQL.
TRICKY = (None, "a", "A", "á", "á", "a ", " a", "%", "_", "null", "None", "'", '"a"', "a/b", "0")
CROSSINGS = 1_000


def sees(asking: Scope, owner: Scope) -> bool:
    """The rule in one line: one's own user; the agent and project asked for, or none."""
    return (
        owner.user == asking.user
        and owner.agent in (None, asking.agent)
        and owner.project in (None, asking.project)
    )


def fill(store: Store, scopes: list[Scope]) -> list[MemoryRecord]:
    """One pinned constraint about one entity in every scope, with the same words and vector."""
    store.register_embedder(EMBEDDER)
    memories = [
        record(
            number,
            TEXT,
            user=scope.user,
            agent=scope.agent,
            project=scope.project,
            kind="constraint",
            pinned=True,
        )
        for number, scope in enumerate(scopes)
    ]
    insert(
        store,
        *(
            indexed(
                memory,
                vectors={EMBEDDER.name: unit(1, 0, 0, 0)},
                attributes=(about("thing", "constraint"),),
            )
            for memory in memories
        ),
    )
    return memories


def by_words(store: Store, scope: Scope) -> list[str]:
    return found(store, Search(scope, ("shared",), text_limit=1_000))


def by_vector(store: Store, scope: Scope) -> list[str]:
    return found(store, Search(scope, (), EMBEDDER.name, unit(1, 0.1, 0, 0), vector_limit=1_000))


def by_rows(store: Store, scope: Scope) -> list[str]:
    return ids(store.fetch(scope, np.arange(2_000), NOW).values())


def by_listing(store: Store, scope: Scope) -> list[str]:
    return ids(store.listing(Listing(scope, limit=1_000)))


def by_entity(store: Store, scope: Scope) -> list[str]:
    try:
        view = store.describe(scope, about("thing").key)
    except NotFound:
        return []
    assert view.entity.memory_count == len(view.constraints)
    assert sorted(itertools.chain(*view.aspects.values())) == sorted(view.constraints)
    return sorted(view.constraints)


def by_traversal(store: Store, scope: Scope) -> list[str]:
    return sorted(store.memories_about(scope, [about("thing").key], NOW, 1_000))


def by_need(store: Store, scope: Scope) -> list[str]:
    return sorted(store.required(scope, [about("thing").key], NOW))


def by_pin(store: Store, scope: Scope) -> list[str]:
    return sorted(store.required(scope, [], NOW))


def by_id(store: Store, scope: Scope) -> list[str]:
    found = []
    for known in store.walk(scope.user):
        with contextlib.suppress(NotFound):
            found.append(store.get(scope.user, known.id, scope).id)
    return sorted(found)


def by_hash(store: Store, scope: Scope) -> list[str]:
    digest = content_hash(TEXT)
    return ids(store.write(scope.user, lambda t: t.live_by_hash(scope, [digest])).values())


def by_nearness(store: Store, scope: Scope) -> list[str]:
    probe = NeighbourProbe(scope, EMBEDDER.name, unit(1, 0, 0, 0)[None, :], 1_000, 0.5)
    (near,) = store.write(probe.scope.user, lambda t: t.nearest(probe))
    return ids(n.memory for n in near)


Way = Callable[[Store, Scope], list[str]]
WAYS: tuple[Way, ...] = (
    by_words,
    by_vector,
    by_rows,
    by_id,
    by_listing,
    by_entity,
    by_traversal,
    by_need,
    by_pin,
)
EXACT_WAYS: tuple[Way, ...] = (by_hash, by_nearness)


class Scoping:
    @pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
    def test_a_scope_sees_its_own_and_what_is_everywhere(self, store: Store, way: Way) -> None:
        memories = fill(store, EVERY_SCOPE)
        for asking in EVERY_SCOPE:
            expected = ids(m for m in memories if sees(asking, m.scope))
            assert way(store, asking) == expected, asking

    @pytest.mark.parametrize("way", EXACT_WAYS, ids=lambda way: way.__name__)
    def test_duplicates_are_looked_for_in_exactly_one_scope(self, store: Store, way: Way) -> None:
        memories = fill(store, EVERY_SCOPE)
        for asking in EVERY_SCOPE:
            expected = ids(m for m in memories if m.scope == asking)
            assert way(store, asking) == expected, asking

    def test_a_thousand_random_crossings_leak_nothing(self, store: Store) -> None:
        chance = random.Random(20260504)

        def scope() -> Scope:
            return Scope(
                chance.choice(TRICKY[1:]) or "", chance.choice(TRICKY), chance.choice(TRICKY)
            )

        owners = list(dict.fromkeys(scope() for _ in range(150)))
        memories = fill(store, owners)
        for _ in range(CROSSINGS):
            asking = chance.choice(owners) if chance.random() < 0.5 else scope()
            way = chance.choice(WAYS + EXACT_WAYS)
            exact = way in EXACT_WAYS
            expected = ids(
                m for m in memories if (m.scope == asking if exact else sees(asking, m.scope))
            )
            assert way(store, asking) == expected, (way.__name__, asking)

    def test_a_memory_that_moves_is_seen_where_it_is_now(self, store: Store) -> None:
        (memory,) = fill(store, [Scope("u", None, "a")])
        moved = record(0, TEXT, user="u", project="b", kind="constraint", pinned=True)
        update(store, memory, moved)
        for way in WAYS:
            if way is by_entity or way is by_traversal or way is by_need:
                continue  # the entity link was only read out of the text, and is read anew
            assert way(store, Scope("u", None, "a")) == [], way.__name__
            assert way(store, Scope("u", None, "b")) == [memory.id], way.__name__
        assert by_hash(store, Scope("u", None, "a")) == []
        assert by_nearness(store, Scope("u", None, "a")) == []
        assert by_nearness(store, Scope("u", None, "b")) == [memory.id]

    def test_a_move_is_seen_within_its_own_transaction(self, store: Store) -> None:
        (memory,) = fill(store, [Scope("u", None, "a")])
        moved = indexed(record(0, TEXT, user="u", project="b", kind="constraint", pinned=True))
        probe = NeighbourProbe(
            Scope("u", None, "a"), EMBEDDER.name, unit(1, 0, 0, 0)[None, :], 5, 0.5
        )
        by_nearness(store, Scope("u", None, "a"))

        def work(transaction: Transaction) -> list[list[Near]]:
            transaction.update(moved, change("update", before=memory))
            return transaction.nearest(probe)

        assert store.write(probe.scope.user, work) == [[]]

    def test_users_share_nothing_but_the_file(self, store: Store) -> None:
        same = memory_id(1)
        insert(store, record(1, "mine"), record(1, "yours", user="v"))
        assert store.get("default", same).content == "mine"
        assert store.get("v", same).content == "yours"
        store.write("v", lambda t: t.count("v", "n", 3))
        store.write("v", lambda t: t.add_usage("v", {same: 2}, NOW))
        assert store.counters("default") == {}
        assert store.get("default", same).access_count == 0
        assert store.get("v", same).access_count == 2
        assert [e.memory_id for e in store.history("v", same)] == [same]
        entries = [entry.entry for entry in store.history("v", same)]
        store.write("v", lambda t: t.mark_undone("v", entries))
        assert not store.history("default", same)[0].undone
        store.write("v", lambda t: t.purge("v", same))
        assert store.get("default", same).content == "mine"
        assert len(store.history("default", same)) == 1
        assert store.users() == ["default"]

    def test_an_entity_of_one_user_is_unknown_to_another(self, store: Store) -> None:
        insert(store, indexed(record(1, user="v"), attributes=(about("secret"),)))
        with pytest.raises(NotFound):
            store.describe(Scope("u"), about("secret").key)
        assert store.entities(Scope("u"), 10) == []
        assert [e.name for e in store.entities(Scope("v"), 10)] == ["secret"]

    def test_entities_are_those_of_what_a_scope_may_see(self, store: Store) -> None:
        insert(
            store,
            indexed(record(1), attributes=(about("common"),)),
            indexed(record(2, project="a"), attributes=(about("common"), about("of a"))),
            indexed(record(3, project="b"), attributes=(about("of b"), about("common"))),
            indexed(record(4, agent="coder"), attributes=(about("of coder"),)),
        )

        def told(scope: Scope) -> dict[str, int]:
            return {entity.name: entity.memory_count for entity in store.entities(scope, 9)}

        assert told(Scope()) == {"common": 1}
        assert told(Scope(project="a")) == {"common": 2, "of a": 1}
        assert told(Scope(agent="coder")) == {"common": 1, "of coder": 1}
        assert told(Scope(agent="coder", project="b")) == {"common": 2, "of b": 1, "of coder": 1}

    def test_merges_are_those_of_what_a_scope_may_see(self, store: Store) -> None:
        for memory in (record(1), record(2, project="a"), record(3, agent="coder")):
            insert(store, memory)
            update(store, memory, memory, "merge")

        def told(scope: Scope, limit: int = 9) -> list[int]:
            return numbers([entry.memory_id for entry in store.merges(scope, limit)])

        assert told(Scope()) == [1]
        assert told(Scope(project="a")) == [2, 1]
        assert told(Scope(agent="coder", project="a")) == [3, 2, 1]
        # What is not shown takes no place.
        assert told(Scope(), 1) == [1]
        assert told(Scope("other")) == []

    def test_neighbouring_turns_of_another_scope_stay_there(self, store: Store) -> None:
        for n, project in ((1, "a"), (2, None), (3, "b")):
            source = Source(session_key="s", turn=str(n))
            insert(store, record(n, f"turn {n}", project=project, sources=(source,)))
        assert numbers(found(store, words_search(Scope(project="a"), "turn"))) == [1, 2]
        pool = store.search(words_search(Scope(project="a"), "turn"))
        assert pool.following.tolist() == [1, -1]

    def test_an_empty_name_is_not_mistaken_for_everywhere(self, store: Store) -> None:
        insert(store, record(1))
        for fields in ({"agent": ""}, {"project": ""}):
            with pytest.raises(InputError):
                insert(store, record(2, **fields))
        assert ids(store.walk("default")) == [memory_id(1)]
