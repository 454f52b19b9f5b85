"""Update, forget, undo, split and purge: nothing a user said is lost, but for a purge."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure import Conflict, InputError, Memory, NotFound


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
    (found,) = memory.recall("noon", explain=True)
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


def test_a_moved_memory_is_found_in_its_new_project_only(memory: Memory) -> None:
    made = memory.remember("Lunch is at noon", project="a")
    memory.update(made.id, project="b")
    assert contents(memory, "lunch") == []
    with Memory(memory.services.store.path, project="b") as other:
        assert contents(other, "lunch") == ["Lunch is at noon"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"content": ""}, "empty"),
        ({"id": "x"}, "no field"),
        ({"trust": "trusted"}, "no field"),
        ({"access_count": 5}, "no field"),
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
    with pytest.raises(Conflict, match="undo that first"):
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
    with pytest.raises(Conflict, match="nothing left"):
        memory.undo(made.id)


def test_undo_keeps_counters_that_came_meanwhile(memory: Memory) -> None:
    made = memory.remember("one text")
    memory.update(made.id, importance=0.9)
    store, now = memory.services.store, memory.services.world.now()
    store.write(lambda transaction: transaction.add_usage("default", {made.id: 3}, now))
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
    first = memory.remember("I think the staging database is called heron")
    memory.remember("The staging database is called heron")
    memory.update(first.id, importance=0.9)
    back = memory.split(first.id)
    assert [part.content for part in back] == ["The staging database is called heron"]
    assert memory.get(first.id).importance == 0.9
    assert memory.stats()["live"] == 2


def test_a_purge_leaves_no_trace_in_any_file(memory: Memory, tmp_path: Path) -> None:
    kept = memory.remember("Something else stays")
    made = memory.remember("I think Quixotetta likes the `zanzibar` table", about="quixotetta")
    memory.remember("Quixotetta likes the `zanzibar` table")
    memory.update(made.id, content="Quixotetta loathes the `zanzibar` table")
    memory.forget(made.id, purge=True)
    with pytest.raises(NotFound):
        memory.get(made.id)
    assert memory.history(kept.id)
    memory.close()
    for file in tmp_path.iterdir():
        if file.is_file():
            data = file.read_bytes().lower()
            assert b"quixotetta" not in data, file
            assert b"zanzibar" not in data, file


@pytest.mark.parametrize("wanted", ["", "01", "zzzz", "../../etc", "x" * 1_000_000, "%", "0'; --"])
def test_an_absurd_id_is_simply_not_found(memory: Memory, wanted: str) -> None:
    memory.remember("something")
    with pytest.raises(NotFound):
        memory.get(wanted)
    with pytest.raises(NotFound):
        memory.forget(wanted)


def test_another_users_memory_cannot_be_reached_by_its_id(memory: Memory) -> None:
    made = memory.remember("mine")
    with Memory(memory.services.store.path, user="mallory") as other:
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
