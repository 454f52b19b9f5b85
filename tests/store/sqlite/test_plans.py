"""What SQLite makes of our queries: no search may walk through every memory."""

from __future__ import annotations

import numpy as np

from contract.builders import EMBEDDER, NOW, about, indexed, insert, memory_id, numbers, record
from meritory.domain.memory import Scope
from meritory.store.sqlite.store import SqliteStore


def plan(store: SqliteStore, statements: list[str], needle: str) -> str:
    """How SQLite would run the one statement that holds a text."""
    (statement,) = (s for s in statements if needle in s)
    with store._engine.read() as connection:
        steps = connection.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
    return "\n".join(step[3] for step in steps)


def traced(store: SqliteStore) -> list[str]:
    """The statements that the store's reader runs from now on."""
    statements: list[str] = []
    with store._engine.read() as connection:
        connection.set_trace_callback(statements.append)
    return statements


def test_pins_are_found_by_their_index(store: SqliteStore) -> None:
    insert(store, *(record(n, pinned=n == 7) for n in range(20)))
    statements = traced(store)
    assert numbers(store.required(Scope(), [], NOW)) == [7]
    steps = plan(store, statements, "pinned = 1")
    assert "USING INDEX memories_pinned (user=? AND scope=?)" in steps, steps


def test_what_is_about_an_entity_is_found_from_the_entity_on(store: SqliteStore) -> None:
    topics = [about(f"topic {n}") for n in range(20)]
    insert(store, *(indexed(record(n), attributes=(topics[n],)) for n in range(20)))
    statements = traced(store)
    assert numbers(store.memories_about(Scope(), [topics[3].key], NOW, 9)) == [3]
    latest = plan(store, statements, "SELECT row FROM attributes")
    assert "SEARCH attributes USING PRIMARY KEY (aspect=?)" in latest, latest
    assert "TEMP B-TREE" not in latest, latest
    steps = plan(store, statements, "SELECT m.id FROM memories m WHERE m.row IN")
    assert "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)" in steps, steps


def test_constraints_are_found_by_their_index(store: SqliteStore) -> None:
    rules = [about(f"topic {n}") for n in range(20)]
    insert(
        store,
        *(
            indexed(record(n, kind="constraint" if n == 7 else "fact"), attributes=(rules[n],))
            for n in range(20)
        ),
    )
    statements = traced(store)
    assert numbers(store.required(Scope(), [rules[7].key], NOW)) == [7]
    steps = plan(store, statements, "m.kind = 'constraint'")
    assert "USING INDEX memories_constraints (user=? AND scope=?)" in steps, steps


def test_what_lacks_a_vector_is_found_without_reading_texts(store: SqliteStore) -> None:
    store.register_embedder(EMBEDDER)
    insert(store, *(record(n) for n in range(20)))
    after = store.get("default", memory_id(9))
    statements = traced(store)
    assert len(store.without_vector(EMBEDDER.name, 5, after)) == 5
    steps = plan(store, statements, "NOT EXISTS")
    assert "SEARCH t USING INTEGER PRIMARY KEY (rowid>?)" in steps, steps
    assert "SCAN" not in steps, steps


def test_traits_are_looked_up_row_by_row(store: SqliteStore) -> None:
    insert(store, *(record(n) for n in range(1, 21)))
    statements = traced(store)
    assert list(store.traits(Scope(), np.array([7]), NOW)) == [7]
    steps = plan(store, statements, "julianday(m.created_at)")
    assert "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)" in steps, steps


def test_open_links_look_up_their_memories_one_by_one(store: SqliteStore) -> None:
    insert(store, *(record(n) for n in range(1, 9)))
    statements = traced(store)
    assert store.open_links("default", 9) == []
    looked_up = plan(store, statements, "FROM memory_links")
    assert looked_up.count("(user=? AND id=?)") == 2, looked_up
    assert "SCAN" not in looked_up
