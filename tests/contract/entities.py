"""Entities, their aspects, what depends on what, and what must always be shown."""

from __future__ import annotations

import pytest

from contract.builders import NOW, about, indexed, insert, numbers, record, update
from meritory.domain.errors import NotFound
from meritory.domain.memory import Entity, Scope
from meritory.store.contract.memories import Indexed
from meritory.store.contract.store import Store

DEFAULT = Scope()


class Entities:
    def test_entities_come_most_mentioned_first(self, store: Store) -> None:
        insert(
            store,
            indexed(record(1), attributes=(about("x"), about("y"))),
            indexed(record(2), attributes=(about("y"), about("y", "other aspect"))),
            indexed(record(3, deleted_at=NOW), attributes=(about("x"),)),
        )
        expected = [Entity("topic", "y", 2), Entity("topic", "x", 1)]
        assert store.entities(DEFAULT, 10) == expected
        assert store.entities(DEFAULT, 1) == expected[:1]

    def test_describe_tells_aspects_constraints_and_dependencies(self, store: Store) -> None:
        insert(
            store,
            indexed(
                record(1),
                attributes=(about("api", "speed"), about("api", "cost")),
                depends_on=((about("api"), about("db")),),
            ),
            indexed(record(2, kind="constraint"), attributes=(about("api", "speed"),)),
            indexed(record(3, deleted_at=NOW), attributes=(about("api", "speed"),)),
        )
        view = store.describe(DEFAULT, "topic:api")
        assert view.entity == Entity("topic", "api", 2)
        assert {k: numbers(v) for k, v in view.aspects.items()} == {"cost": [1], "speed": [1, 2]}
        assert numbers(view.constraints) == [2]
        assert view.depends_on == (Entity("topic", "db"),)
        with pytest.raises(NotFound):
            store.describe(DEFAULT, "topic:" + "x" * 100_000)

    def test_traversal_goes_one_hop_along_dependencies(self, store: Store) -> None:
        insert(
            store,
            indexed(record(1), attributes=(about("a"),)),
            indexed(record(2), attributes=(about("b"),)),
            indexed(record(3), attributes=(about("c"),)),
        )
        pairs = [(about("a"), about("b")), (about("b"), about("c"))]
        store.write("default", lambda t: t.put_dependencies("default", pairs))
        store.write("default", lambda t: t.put_dependencies("default", pairs))
        assert numbers(store.memories_about(DEFAULT, ["topic:a"], NOW, 9)) == [2, 1]
        assert numbers(store.memories_about(DEFAULT, ["topic:a"], NOW, 1)) == [2]
        assert numbers(store.memories_about(DEFAULT, ["topic:c", "topic:none"], NOW, 9)) == [3]
        assert store.memories_about(DEFAULT, [], NOW, 9) == []
        named = [(one.key, two.key) for one, two in store.dependencies("default")]
        assert named == [("topic:a", "topic:b"), ("topic:b", "topic:c")]
        assert store.dependencies("other") == []

    def test_required_are_pins_and_constraints_in_play(self, store: Store) -> None:
        insert(
            store,
            record(1, pinned=True),
            indexed(record(2, kind="constraint"), attributes=(about("a"),)),
            indexed(record(3, kind="constraint"), attributes=(about("b"),)),
            record(4, pinned=True, trust="untrusted"),
            indexed(record(5, kind="constraint", trust="untrusted"), attributes=(about("a"),)),
            record(6, pinned=True, deleted_at=NOW),
            indexed(record(7), attributes=(about("a"),)),
        )
        assert numbers(store.required(DEFAULT, [], NOW)) == [1]
        assert numbers(store.required(DEFAULT, ["topic:a"], NOW)) == [1, 2]
        store.write("default", lambda t: t.put_dependencies("default", [(about("a"), about("b"))]))
        assert numbers(store.required(DEFAULT, ["topic:a"], NOW)) == [1, 2, 3]

    def test_a_constraint_that_names_no_entity_is_required_everywhere(self, store: Store) -> None:
        insert(store, record(1, kind="constraint"), record(2))
        insert(store, record(3, kind="constraint", trust="untrusted"))
        assert numbers(store.required(DEFAULT, [], NOW)) == [1]
        assert numbers(store.required(DEFAULT, ["topic:a"], NOW)) == [1]

    def test_what_was_said_stays_and_what_was_read_is_read_anew(self, store: Store) -> None:
        first = record(1)
        item = indexed(first, attributes=(about("said", is_stated=True), about("read")))
        insert(store, item)
        update(store, first, Indexed(first, "", "h", attributes=(about("new"),)))
        assert sorted(e.name for e in store.entities(DEFAULT, 9)) == ["new", "said"]
        stated = store.stated_attributes("default")
        assert {k: [a.name for a in v] for k, v in stated.items()} == {first.id: ["said"]}
        assert store.stated_attributes("other") == {}
