"""Only an act of a person sets or lifts a pin or a constraint; everything else proposes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from meritory import Conflict, Memory, MemoryRecord, PersonOnly

RULE = "Never push to main"
Act = Callable[[Memory, MemoryRecord], Any]


def agent(memory: Memory) -> Memory:
    """The same store, as an agent's surface opens it."""
    view = memory.view()
    view.backend.services = replace(view.services, is_person=False)
    return view


ACTS: dict[str, Act] = {
    "remember": lambda memory, rule: memory.remember(
        "Never merge on Fridays", kind="constraint", pinned=True
    ),
    "repeat": lambda memory, rule: memory.remember(RULE, kind="constraint", pinned=True),
    "repeat with an end": lambda memory, rule: memory.remember(
        RULE, valid_until="2020-01-01T00:00:00Z"
    ),
    "paraphrase": lambda memory, rule: memory.remember("Do not push to main", kind="constraint"),
    "no longer": lambda memory, rule: memory.remember("We no longer forbid to push to main"),
    "supersede": lambda memory, rule: memory.remember("Pushing is fine", supersedes=rule.id),
    "as the user": lambda memory, rule: memory.remember(
        "Never force push", kind="constraint", origin="user", provenance="user_stated"
    ),
    "update": lambda memory, rule: memory.update(rule.id, kind="fact", pinned=False),
    "reword": lambda memory, rule: memory.update(rule.id, content="Always push to main"),
    "end": lambda memory, rule: memory.update(rule.id, valid_until="2020-01-01T00:00:00Z"),
    "move": lambda memory, rule: memory.update(rule.id, project="elsewhere"),
    "tags": lambda memory, rule: memory.update(rule.id, tags=["rejected:constraint"]),
    "forget": lambda memory, rule: memory.forget(rule.id),
    "purge": lambda memory, rule: memory.forget(rule.id, purge=True),
    "undo": lambda memory, rule: memory.undo(rule.id),
    "confirm": lambda memory, rule: memory.confirm(rule.id),
    "reject": lambda memory, rule: memory.reject(rule.id),
}


@pytest.mark.parametrize("name", ACTS)
def test_an_agent_neither_sets_nor_lifts(memory: Memory, name: str) -> None:
    rule = memory.remember(RULE, kind="constraint", pinned=True)
    try:
        ACTS[name](agent(memory), rule)
    except PersonOnly as error:
        assert (error.status, error.code) == (403, "person_only") and "meritory" in str(error)
    except Exception as error:
        assert name == "supersede", error
    assert replace(memory.get(rule.id), sources=(), updated_at=rule.updated_at) == rule
    assert [record.id for record in memory.page() if record.is_binding] == [rule.id]
    assert memory.required("") == [rule.id]


def test_a_person_does_all_of_it(memory: Memory) -> None:
    rule = memory.remember(RULE, kind="constraint", pinned=True)
    for name in ("remember", "as the user"):
        assert ACTS[name](memory, rule).is_binding
    assert not ACTS["update"](memory, rule).is_binding
    memory.undo(rule.id)
    assert memory.get(rule.id).is_binding
    memory.forget(rule.id)
    assert not memory.get(rule.id).is_live


def test_a_forgotten_constraint_returns_by_a_person_only(memory: Memory) -> None:
    rule = memory.remember(RULE, kind="constraint")
    memory.forget(rule.id)
    with pytest.raises(PersonOnly):
        agent(memory).undo(rule.id)
    demoted = memory.remember("Never merge on Fridays", kind="constraint")
    memory.update(demoted.id, kind="fact")
    with pytest.raises(PersonOnly):
        agent(memory).undo(demoted.id)
    assert memory.required("") == []


def test_the_words_of_others_are_not_the_users(memory: Memory) -> None:
    made = agent(memory).remember("The badger sleeps", origin="user", provenance="user_stated")
    assert (made.origin, made.provenance) == ("agent", "assistant_derived")
    assert memory.remember("The otter swims").provenance == "user_stated"


def test_marks_of_proposals_belong_to_nobody_else(memory: Memory) -> None:
    marks = ["proposed:pin", "rejected:constraint", "animals"]
    for caller in (memory, agent(memory)):
        made = caller.remember(f"The badger sleeps, says {caller.scope}", tags=marks)
        assert made.tags == ("animals",)
    proposed = agent(memory).remember("Never wake the badger", kind="constraint", tags=["animals"])
    assert proposed.tags == ("animals", "proposed:constraint")
    assert agent(memory).update(proposed.id, tags=[]).tags == ("proposed:constraint",)


def test_an_agent_proposes_by_an_update(memory: Memory) -> None:
    made = agent(memory).remember("Tests run before every commit", kind="procedure")
    changed = agent(memory).update(made.id, kind="constraint", pinned=True)
    assert (changed.kind, changed.pinned) == ("procedure", False)
    assert changed.tags == ("proposed:pin", "proposed:constraint")
    assert [record.id for record in memory.proposals()] == [made.id]


def test_a_person_decides_about_proposals(memory: Memory) -> None:
    writer = agent(memory)
    first = writer.remember("Never wake the badger", kind="constraint")
    second = writer.remember("Tests run before every commit", pinned=True)
    assert [record.id for record in memory.proposals()] == [second.id, first.id]
    assert memory.proposals(1) == [second]
    assert memory.required("") == []
    assert memory.confirm(second.id).pinned
    rejected = memory.reject(first.id)
    assert (rejected.kind, rejected.tags) == ("fact", ("rejected:constraint",))
    assert memory.proposals() == []
    with pytest.raises(Conflict, match="no proposal"):
        memory.reject(first.id)
    # The same text proposes no more, and an agent cannot take the decision back.
    assert writer.remember("Never wake the badger", kind="constraint").id == first.id
    assert memory.proposals() == []
    with pytest.raises(PersonOnly):
        writer.undo(first.id)
    memory.undo(first.id)
    assert [record.id for record in memory.proposals()] == [first.id]
    accepted = memory.remember("Never wake the badger", kind="constraint")
    assert (accepted.id, accepted.kind, accepted.tags) == (first.id, "constraint", ())


def test_proposals_keep_to_their_scope(memory: Memory) -> None:
    for project in ("shop", "api"):
        agent(memory).remember(f"Never stop {project}", kind="constraint", project=project)
    (found,) = memory.view(project="shop").proposals()
    assert found.project == "shop"
