"""Update, forget, undo, split and purge: nothing a user said is lost, but for a purge."""

from __future__ import annotations

import pytest

from meritory import Conflict, InputError, Memory, NotFound, PersonOnly
from meritory.engine.memories import undo
from places import Places


def contents(memory: Memory, query: str) -> list[str]:
    return [found.content for found in memory.recall(query)]


def test_update_keeps_what_was_before(memory: Memory) -> None:
    made = memory.remember("Lunch is at noon", tags=["food"])
    changed = memory.update(made.id, content="Lunch is at one", importance=0.9)
    assert (changed.content, changed.importance, changed.tags) == (
        "Lunch is at one",
        0.9,
        ("food",),
    )
    assert contents(memory, "lunch one") == ["Lunch is at one"]
    (found,) = memory.recall("noon", explain=True, min_score=0)
    assert found.parts is not None
    assert found.parts.text == 0.0  # near in meaning, but the old word is gone from the index
    create, update = memory.history(made.id)
    assert (create.action, update.action) == ("create", "update")
    assert update.before is not None
    assert update.before.content == "Lunch is at noon"
    assert create.after == update.before
    assert update.after == changed


def test_update_never_merges(memory: Memory) -> None:
    memory.remember("Lunch is at noon")
    other = memory.remember("Dinner is at eight")
    assert memory.update(other.id, content="Lunch is at noon").id == other.id
    assert memory.stats()["live"] == 2


def test_a_moved_memory_is_found_in_its_new_project_only(memory: Memory, places: Places) -> None:
    made = memory.remember("Lunch is at noon")
    memory.update(made.id, project="b")
    assert contents(memory, "lunch") == []
    with places.memory(project="b") as other:
        assert contents(other, "lunch") == ["Lunch is at noon"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"content": ""}, "empty"),
        ({"id": "x"}, "unknown field"),
        ({"trust": "trusted"}, "unknown field"),
        ({"access_count": 5}, "unknown field"),
        ({"valid_until": "1999-01-01", "valid_from": "2000-01-01"}, "before valid_from"),
    ],
)
def test_a_bad_update_changes_nothing(
    memory: Memory, fields: dict[str, object], message: str
) -> None:
    made = memory.remember("Lunch is at noon")
    with pytest.raises(InputError, match=message):
        memory.update(made.id, **fields)
    assert memory.get(made.id) == made


def test_forget_and_undo(memory: Memory) -> None:
    made = memory.remember("Lunch is at noon")
    memory.forget(made.id, why="wrong")
    assert contents(memory, "lunch") == []
    assert memory.get(made.id).deleted_at is not None
    assert memory.history(made.id)[-1].why == "wrong"
    with pytest.raises(Conflict, match="undo that change first"):
        memory.update(made.id, importance=0.1)
    memory.undo(made.id)
    assert contents(memory, "lunch") == ["Lunch is at noon"]


def test_undo_walks_back_step_by_step(memory: Memory) -> None:
    made = memory.remember("one text")
    memory.update(made.id, content="second text")
    memory.update(made.id, content="third text")
    memory.undo(made.id)
    assert memory.get(made.id).content == "second text"
    memory.undo(made.id)
    assert memory.get(made.id).content == "one text"
    assert contents(memory, "one text") == ["one text"]
    memory.undo(made.id)
    assert memory.get(made.id).deleted_at is not None
    memory.undo(made.id)
    assert contents(memory, "one text") == ["one text"]
    with pytest.raises(Conflict, match="nothing left"):
        memory.undo(made.id)


def test_undo_keeps_counters_that_came_meanwhile(memory: Memory) -> None:
    made = memory.remember("one text")
    memory.update(made.id, importance=0.9)
    store, now = memory.services.store, memory.services.world.now()
    store.write("default", lambda transaction: transaction.add_usage("default", {made.id: 3}, now))
    memory.undo(made.id)
    found = memory.get(made.id)
    assert (found.importance, found.access_count) == (0.5, 3)


def test_undoing_a_supersede_brings_the_old_memory_back(memory: Memory) -> None:
    old = memory.remember("The staging database is called heron")
    new = memory.remember("The staging database is now called osprey")
    memory.undo(old.id)
    assert memory.get(old.id).is_live
    assert memory.get(new.id).is_live


def test_undoing_the_new_memory_restores_what_it_superseded(memory: Memory) -> None:
    old = memory.remember("The staging database is called heron")
    new = memory.remember("The staging database is now called osprey")
    changed = memory.undo(new.id)
    assert {record.id for record in changed} == {old.id, new.id}
    assert contents(memory, "staging database") == ["The staging database is called heron"]


def test_a_merge_can_be_split_again(memory: Memory) -> None:
    first = memory.remember("I think the staging database is called heron", tags=["a"])
    merged = memory.remember("The staging database is called heron", tags=["b"])
    assert merged.id == first.id
    parts = memory.split(first.id)
    assert {part.content for part in parts} == {
        "I think the staging database is called heron",
        "The staging database is called heron",
    }
    assert memory.get(first.id).tags == ("a",)
    assert memory.stats()["live"] == 2
    assert memory.merges() == []
    assert len(contents(memory, "staging heron")) == 2
    with pytest.raises(Conflict, match="no merge"):
        memory.split(first.id)


def test_a_split_leaves_later_changes_alone(memory: Memory) -> None:
    first = memory.remember("I think the staging database is called heron", tags=["a"])
    memory.remember("The staging database is called heron", tags=["b"])
    memory.update(first.id, importance=0.9)
    memory.split(first.id)
    found = memory.get(first.id)
    assert (found.content, found.importance, found.tags) == (first.content, 0.9, ("a",))
    assert memory.stats()["live"] == 2


def test_a_split_after_a_repeat_still_gives_both_texts_back(memory: Memory) -> None:
    short, long = "Anna drinks tea.", "Anna drinks tea. She adds two spoons of honey."
    first = memory.remember(short)
    assert memory.remember(long).content == long
    memory.remember(long, tags=["again"])
    memory.split(first.id)
    assert {record.content for record in memory.page()} == {short, long}


def test_undoing_the_successor_does_not_bring_back_what_was_forgotten(memory: Memory) -> None:
    old = memory.remember("The staging database is called heron")
    new = memory.remember("The staging database is now called osprey")
    memory.forget(old.id)
    memory.undo(new.id)
    assert memory.get(old.id).deleted_at is not None
    assert memory.get(old.id).superseded_by is None
    memory.undo(old.id)
    assert memory.get(old.id).is_live


def test_a_chain_of_successors_comes_apart_link_by_link(memory: Memory) -> None:
    a = memory.remember("The staging database is called heron")
    b = memory.remember("The staging database is now called osprey")
    c = memory.remember("The staging database is now called kestrel")
    assert [memory.get(m.id).is_live for m in (a, b, c)] == [False, False, True]
    memory.undo(c.id)
    assert [memory.get(m.id).is_live for m in (a, b, c)] == [False, True, False]
    memory.undo(b.id)  # its own retirement was taken back already: this is its creation
    assert [memory.get(m.id).is_live for m in (a, b, c)] == [True, False, False]


def test_an_undo_overtaken_by_another_change_gives_way(memory: Memory) -> None:
    made = memory.remember("one text")
    memory.update(made.id, content="second text")
    chosen = undo.last_change(memory.history(made.id))
    memory.update(made.id, content="third text")
    with pytest.raises(Conflict, match="changed in the meantime"):
        undo._revert_entry(memory.services, chosen, must_be_last=True)
    assert memory.get(made.id).content == "third text"


@pytest.mark.parametrize("origin", ["agent", "web", "tool", "import"])
def test_nobody_but_a_person_rewrites_what_a_person_stands_for(memory: Memory, origin: str) -> None:
    rule = memory.remember("Never push to main", kind="constraint", pinned=True)
    stated = memory.remember("The badger sleeps")
    for memory_id, fields in (
        (rule.id, {"content": "Always push to main"}),
        (rule.id, {"pinned": False}),
        (rule.id, {"kind": "fact"}),
        (stated.id, {"content": "The badger is awake"}),
    ):
        with pytest.raises(PersonOnly, match="only a person"):
            memory.update(memory_id, origin=origin, **fields)
    with pytest.raises(InputError, match="origin"):
        memory.update(stated.id, origin="bogus", importance=0.1)
    assert memory.get(rule.id) == rule
    assert memory.get(stated.id) == stated


def test_an_update_that_changes_nothing_leaves_no_trace(memory: Memory) -> None:
    made = memory.remember("The badger sleeps")
    assert memory.update(made.id) == made
    assert memory.update(made.id, importance=0.5) == made
    assert len(memory.history(made.id)) == 1


def test_a_secret_in_a_reason_or_a_tag_is_refused(memory: Memory) -> None:
    made = memory.remember("The badger sleeps")
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
    with pytest.raises(InputError, match="secret"):
        memory.forget(made.id, why=f"leaked {token}")
    with pytest.raises(InputError, match="secret"):
        memory.update(made.id, tags=[token])
    assert memory.get(made.id) == made


def test_what_a_purged_memory_had_replaced_is_visible_again(memory: Memory) -> None:
    old = memory.remember("The staging database is called heron")
    new = memory.remember("The staging database is now called osprey")
    memory.forget(new.id, purge=True)
    assert memory.get(old.id).is_live
    assert contents(memory, "staging database") == ["The staging database is called heron"]


def test_a_program_of_one_project_cannot_reach_into_another(memory: Memory, places: Places) -> None:
    secret = memory.remember("The badger sleeps", project="p", agent="a")
    shared = memory.remember("The heron fishes")
    with places.memory(project="q", agent="b") as other:
        for call in (other.get, other.forget, other.undo, other.history, other.confirm):
            with pytest.raises(NotFound):
                call(secret.id)  # type: ignore[operator]
        with pytest.raises(NotFound):
            other.remember("The badger is awake", supersedes=secret.id)
        assert other.get(shared.id).content == "The heron fishes"
    with places.memory(everywhere=True) as person:
        assert person.get(secret.id).content == "The badger sleeps"


def test_a_purge_leaves_no_trace_in_any_file(memory: Memory, places: Places) -> None:
    kept = memory.remember("Something else stays")
    made = memory.remember("I think Quixotetta likes the `zanzibar` table", about="quixotetta")
    memory.remember("Quixotetta likes the `zanzibar` table")
    memory.update(made.id, content="Quixotetta loathes the `zanzibar` table")
    memory.forget(made.id, purge=True)
    with pytest.raises(NotFound):
        memory.get(made.id)
    assert memory.history(kept.id)
    memory.close()
    assert places.traces("something else")
    assert places.traces("quixotetta") == []
    assert places.traces("zanzibar") == []


@pytest.mark.parametrize("wanted", ["", "01", "zzzz", "../../etc", "x" * 1_000_000, "%", "0'; --"])
def test_an_absurd_id_is_simply_not_found(memory: Memory, wanted: str) -> None:
    memory.remember("something")
    with pytest.raises(NotFound):
        memory.get(wanted)
    with pytest.raises(NotFound):
        memory.forget(wanted)


def test_another_users_memory_cannot_be_reached_by_its_id(memory: Memory, places: Places) -> None:
    made = memory.remember("mine")
    with places.memory(user="mallory") as other:
        for call in (other.get, other.forget, other.undo, other.history, other.confirm):
            with pytest.raises(NotFound):
                call(made.id)  # type: ignore[operator]
        assert other.recall("mine") == []
    assert memory.get(made.id) == made


def test_the_reason_for_keeping_two_apart_goes_with_a_purge(memory: Memory) -> None:
    old = memory.remember("My favourite colour is zanzibarian")
    result = memory.remember_many(["My favourite colour is cyan"])[0]
    assert result.memory is not None
    memory.forget(old.id, purge=True)
    assert all("zanzibar" not in entry.why for entry in memory.history(result.memory.id))
