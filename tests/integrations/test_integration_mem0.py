"""mem0's class on Meritory: calls, shapes and what is said when something is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from meritory import Memory as Engine
from meritory.domain.errors import InputError, NotFound, PersonOnly
from meritory.integrations.mem0 import AsyncMemory, Mem0Memory, Memory

TALK = [
    {"role": "system", "content": "You are helpful"},
    {"role": "user", "content": "I live in Lisbon"},
    {"role": "assistant", "content": "Lisbon is lovely"},
    {"role": "user", "content": [{"type": "text", "text": "My cat is called Mog"}]},
    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory.from_config({"llm": {"provider": "openai"}}, path=tmp_path / "m.db") as opened:
        yield opened


def texts(found: dict[str, list[dict[str, Any]]]) -> set[str]:
    return {one["memory"] for one in found["results"]}


def test_the_users_words_are_stored_as_they_are(memory: Memory) -> None:
    told = memory.add(TALK, user_id="ann")
    assert [one["event"] for one in told["results"]] == ["ADD", "ADD"]
    assert texts(told) == {"I live in Lisbon", "My cat is called Mog"}
    assert set(told["results"][0]) == {"id", "memory", "event"}
    assert memory.add("I live in Lisbon", user_id="ann") == {"results": []}
    raw = memory.add(TALK, user_id="bob", infer=False)
    assert texts(raw) == {"I live in Lisbon", "Lisbon is lovely", "My cat is called Mog"}
    assert texts(memory.add({"role": "user", "content": "one"}, user_id="eve")) == {"one"}


def test_a_question_is_not_stored(memory: Memory) -> None:
    movie = "I'm planning to watch a movie tonight. Any recommendations?"
    assert texts(memory.add(movie, user_id="ann")) == {"I'm planning to watch a movie tonight."}
    for asked in ("Which films are on?", "how do I reset my password", "wie geht das"):
        assert memory.add(asked, user_id="ann") == {"results": []}
    stated = memory.add("I'm allergic to nuts, what can I cook?", user_id="ann")
    assert texts(stated) == {"I'm allergic to nuts."}
    assert texts(memory.add("Why?", user_id="ann", infer=False)) == {"Why?"}


def test_an_item_has_mem0s_shape_and_its_metadata_exactly(memory: Memory) -> None:
    metadata = {"category": " food ", "n": 3, "deep": {"a": [1, None, "é"]}, "long": "x y" * 60}
    added = memory.add(
        "I like ramen", user_id="ann", agent_id="chef", run_id="r 1", metadata=metadata
    )
    name = added["results"][0]["id"]
    item = memory.get(name)
    assert item is not None
    assert item["metadata"] == metadata
    assert (item["user_id"], item["agent_id"], item["run_id"]) == ("ann", "chef", "r 1")
    assert {"id", "memory", "hash", "created_at", "updated_at"} <= set(item)
    assert item["id"] == name
    assert memory.get_all(filters={"user_id": "ann", "n": 3})["results"] == [item]
    assert memory.get_all(filters={"user_id": "ann", "n": 4})["results"] == []
    found = memory.search("ramen", filters={"user_id": "ann"})["results"][0]
    assert {**item, "score": found["score"]} == found
    assert memory.search("ramen", filters={"user_id": "ann"}, threshold=99)["results"] == []


def test_owners_are_told_apart(memory: Memory) -> None:
    memory.add("alpha fact about whales", user_id="ann", agent_id="a1")
    memory.add("beta fact about whales too", user_id="ann", agent_id="a2", run_id="r" * 100)
    memory.add("gamma fact about whales as well", user_id="bob")
    memory.add("delta fact about whales by agent", agent_id="a1")

    def all_of(**owner: str) -> set[str]:
        return {text.split()[0] for text in texts(memory.get_all(filters=owner))}

    def found(**owner: str) -> set[str]:
        hits = memory.search("fact about whales", filters=owner)
        return {text.split()[0] for text in texts(hits)}

    for ask in (all_of, found):
        assert ask(user_id="ann") == {"alpha", "beta"}
        assert ask(user_id="ann", agent_id="a1") == {"alpha"}
        assert ask(user_id="ann", run_id="r" * 100) == {"beta"}
        assert ask(user_id="bob") == {"gamma"}
        assert ask(user_id="bob", agent_id="a1") == set()
        assert ask(agent_id="a1") == {"delta"}
    assert len(memory.get_all(user_id="ann", limit=1)["results"]) == 1
    memory.delete_all(user_id="ann", agent_id="a1")
    assert all_of(user_id="ann") == {"beta"}
    memory.delete_all(user_id="ann")
    assert all_of(user_id="ann") == set()
    assert all_of(user_id="bob") == {"gamma"}


def test_a_memory_is_changed_deleted_and_has_a_history(memory: Memory) -> None:
    name = memory.add("I live in Lisbon", user_id="ann", metadata={"a": 1})["results"][0]["id"]
    assert "updated" in memory.update(name, text="I live in Porto")["message"]
    memory.update(name, metadata={"b": 2}, expiration_date="2999-12-31")
    item = memory.get(name)
    assert item is not None
    assert (item["memory"], item["metadata"]) == ("I live in Porto", {"a": 1, "b": 2})
    assert item["expiration_date"] == "2999-12-31"
    memory.update(name, data="I live in Faro", expiration_date=None)
    assert "deleted" in memory.delete(name)["message"]
    told = memory.history(name)
    assert [one["event"] for one in told] == ["ADD", "UPDATE", "UPDATE", "UPDATE", "DELETE"]
    assert (told[1]["old_memory"], told[1]["new_memory"]) == ("I live in Lisbon", "I live in Porto")
    assert told[-1]["is_deleted"] is True
    assert {"id", "memory_id", "created_at", "updated_at", "actor_id", "role"} <= set(told[0])
    assert memory.get("nobody") is None
    with pytest.raises(NotFound):
        memory.delete("nobody")


def test_a_deleted_memory_is_gone_for_its_id(memory: Memory) -> None:
    name = memory.add("I live in Lisbon", user_id="ann")["results"][0]["id"]
    memory.delete(name)
    assert memory.get(name) is None
    assert [one["event"] for one in memory.history(name)] == ["ADD", "DELETE"]


def test_the_async_class_has_the_same_methods(tmp_path: Path) -> None:
    async def use() -> None:
        memory = AsyncMemory(path=tmp_path / "m.db")
        await memory.add(TALK, user_id="ann")
        found = await memory.search("where does Ann live?", filters={"user_id": "ann"})
        assert "I live in Lisbon" in texts(found)
        await memory.close()

    asyncio.run(use())
    verbs = {name for name in vars(Mem0Memory) if not name.startswith("_")} - {"from_config"}
    assert verbs <= vars(AsyncMemory).keys()


def test_what_a_person_pinned_is_not_changed_through_mem0(tmp_path: Path) -> None:
    with Memory(path=tmp_path / "m.db") as memory, Engine(tmp_path / "m.db") as person:
        name = memory.add("I live in Lisbon", user_id="default")["results"][0]["id"]
        memory.add("My cat is called Mog", user_id="default")
        person.update(name, pinned=True)
        for change in (
            lambda: memory.delete(name),
            lambda: memory.update(name, text="I live in Porto"),
            lambda: memory.delete_all(user_id="default"),
            lambda: memory.reset(),
        ):
            with pytest.raises(PersonOnly):
                change()
        assert texts(memory.get_all(user_id="default")) == {
            "I live in Lisbon",
            "My cat is called Mog",
        }


def test_what_has_expired_is_not_shown(memory: Memory) -> None:
    memory.add("an old offer", user_id="ann", expiration_date="2001-01-01")
    assert memory.get_all(filters={"user_id": "ann"})["results"] == []
    shown = memory.get_all(filters={"user_id": "ann"}, show_expired=True)["results"]
    assert len(shown) == 1


def test_a_reset_erases_what_came_in_this_way(tmp_path: Path) -> None:
    with Memory(path=tmp_path / "m.db") as memory, Engine(tmp_path / "m.db") as engine:
        engine.remember("not mem0's")
        memory.add("mem0's", run_id="r1")
        memory.reset()
        assert [one.content for one in engine.page(include_gone=True)] == ["not mem0's"]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda memory: memory.add("x"),
        lambda memory: memory.add("x", user_id=" "),
        lambda memory: memory.add("x", user_id=5),
        lambda memory: memory.add(5, user_id="ann"),
        lambda memory: memory.add([5], user_id="ann"),
        lambda memory: memory.add("x", user_id="ann", metadata={"a": object()}),
        lambda memory: memory.add("x", user_id="ann", metadata={"a": "y" * 9_000}),
        lambda memory: memory.add("x", user_id="ann", expiration_date="soon"),
        lambda memory: memory.search("x"),
        lambda memory: memory.get_all(),
        lambda memory: memory.delete_all(),
        lambda memory: memory.get(5),
        lambda memory: memory.update(memory.add("x", user_id="a")["results"][0]["id"]),
    ],
)
def test_wrong_use_is_an_input_error(memory: Memory, wrong: Any) -> None:
    with pytest.raises(InputError):
        wrong(memory)
