"""Two stored memories become one, or one of them holds, or both: nothing is lost by an undo."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meritory import Conflict, InputError, Memory, MemoryRecord, NotFound, PersonOnly
from meritory.domain.quality import LinkKind, MemoryLink
from meritory.engine.memories import pairs
from meritory.engine.quality import figures

SHORT, LONG = "Anna leads design", "Anna leads the design team since May"


def agent(memory: Memory) -> Memory:
    """The same store, as an agent's surface opens it."""
    view = memory.view(everywhere=True)
    view.backend.services = replace(view.services, is_person=False, actor="mcp")
    return view


def note(memory: Memory, text: str, **fields: object) -> MemoryRecord:
    return memory.remember(text, on_similar="keep", **fields)


def linked(
    memory: Memory, older: MemoryRecord, newer: MemoryRecord, kind: LinkKind = "alike"
) -> MemoryLink:
    """A link that the gate would have made."""
    made = MemoryLink(
        older_id=older.id,
        newer_id=newer.id,
        kind=kind,
        cosine=0.8,
        reason="they share most words",
        at=memory.services.world.now(),
    )
    user = memory.scope.user
    memory.services.store.write(user, lambda transaction: transaction.put_links(user, [made]))
    return made


def decision(memory: Memory, record: MemoryRecord) -> str | None:
    (link,) = memory.services.store.links_of(memory.scope.user, [record.id])
    return link.decision


def live(memory: Memory) -> set[str]:
    return {record.content for record in memory.page(everywhere=True)}


def test_the_text_that_says_more_stays_with_the_details_of_both(memory: Memory) -> None:
    short = note(memory, SHORT, tags=["team"], about=["anna"], importance=0.9)
    long = note(memory, LONG, tags=["may"], about=["design"])
    linked(memory, short, long)
    kept = memory.merge(short.id[:20], long.id)
    assert (kept.id, kept.content, kept.importance) == (long.id, LONG, 0.9)
    assert set(kept.tags) == {"team", "may"}
    assert live(memory) == {LONG}
    assert memory.get(short.id).superseded_by == long.id
    # What was stated about the other memory still leads here.
    assert memory.describe("anna").aspects["fact"] == (long.id,)
    merge = memory.history(long.id)[-1]
    assert (merge.action, merge.why, merge.actor) == ("merge", "merged by a person", "library")
    assert (merge.other_id, merge.other.content if merge.other else "") == (short.id, SHORT)
    taken = memory.history(short.id)[-1]
    assert (taken.action, taken.other_id) == ("supersede", long.id)
    assert decision(memory, short) == "same"
    assert [hit.content for hit in memory.recall("who leads design?")] == [LONG]
    assert [entry.memory_id for entry in memory.merges()] == [long.id]


@pytest.mark.parametrize(("keep", "stays"), [("a", SHORT), ("b", LONG)])
@pytest.mark.parametrize("way", ["undo kept", "undo gone", "split"])
def test_it_comes_apart_again_exactly(memory: Memory, keep: str, stays: str, way: str) -> None:
    one, other = note(memory, SHORT, tags=["team"]), note(memory, LONG, pinned=True)
    services = memory.services
    services.store.write("default", lambda t: t.add_usage("default", {one.id: 3}, one.created_at))
    linked(memory, one, other)
    before = {record.id: memory.get(record.id) for record in (one, other)}
    kept = memory.merge(one.id, other.id, keep)  # type: ignore[arg-type]
    assert (kept.content, kept.pinned, kept.access_count) == (stays, True, 3)
    gone = other if kept.id == one.id else one
    changed = {
        "undo kept": lambda: memory.undo(kept.id),
        "undo gone": lambda: memory.undo(gone.id),
        "split": lambda: memory.split(kept.id),
    }[way]()
    assert {record.id for record in changed} == {one.id, other.id}
    for record_id, record in before.items():
        assert replace(memory.get(record_id), updated_at=record.updated_at) == record
    assert decision(memory, one) is None
    # A merge that a person made says nothing about the gate.
    assert figures.audited(services, "default").total == 0
    with pytest.raises(Conflict, match="no merge to split"):
        memory.split(kept.id)


def test_a_later_change_stays_when_the_merge_is_taken_apart(memory: Memory) -> None:
    one, other = note(memory, SHORT), note(memory, LONG)
    kept = memory.merge(one.id, other.id)
    memory.update(kept.id, importance=0.1)
    memory.undo(one.id)
    assert live(memory) == {SHORT, LONG}
    assert memory.get(kept.id).importance == 0.1


def test_the_gate_is_not_audited_for_merges_of_people(memory: Memory) -> None:
    memory.merge(note(memory, SHORT).id, note(memory, LONG).id)
    services = memory.services
    assert figures.unaudited(services, "default", 9) == []
    outcomes = services.store.gate_outcomes("default", services.world.now().replace(year=2000))
    assert {one.outcome for one in outcomes} == {"stored"}


def test_a_purge_of_what_stays_brings_the_other_back(memory: Memory) -> None:
    one, other = note(memory, SHORT), note(memory, LONG)
    memory.merge(one.id, other.id)
    memory.forget(other.id, purge=True)
    assert live(memory) == {SHORT}


def test_a_purge_of_what_went_leaves_no_text_and_an_undo_still_works(memory: Memory) -> None:
    one, other = note(memory, SHORT, tags=["team"]), note(memory, LONG)
    memory.merge(one.id, other.id)
    memory.forget(one.id, purge=True)
    assert all(entry.other is None for entry in memory.history(other.id))
    assert [record.id for record in memory.undo(other.id)] == [other.id]
    assert memory.get(other.id).tags == ()


def test_what_cannot_be_merged_is_left_alone(memory: Memory) -> None:
    one, other = note(memory, SHORT), note(memory, LONG)
    with pytest.raises(InputError, match="named twice"):
        memory.merge(one.id, one.id)
    with pytest.raises(InputError, match="invalid keep: 'c'"):
        memory.merge(one.id, other.id, "c")  # type: ignore[arg-type]
    elsewhere = note(memory, LONG, project="shop")
    with pytest.raises(Conflict, match="different projects") as refused:
        memory.merge(one.id, elsewhere.id)
    assert "meritory edit" in str(refused.value)
    foreign = note(memory.view("eve", everywhere=True), "Eve leads sales")
    with pytest.raises(NotFound):
        memory.merge(one.id, foreign.id)
    with pytest.raises(NotFound):
        pairs.merge(memory.services, one, foreign)
    memory.forget(other.id)
    with pytest.raises(Conflict, match=f"{other.id} is forgotten") as gone:
        memory.merge(one.id, other.id)
    assert f"meritory undo {other.id}" in str(gone.value)
    assert len(memory.history(one.id)) == 1


def test_an_agent_merges_neither_bindings_nor_over_the_users_words(memory: Memory) -> None:
    said, derived = note(memory, SHORT), note(memory, "Anna leads the design", origin="agent")
    web = note(memory, "Anna leads design and sales", origin="web")
    program = agent(memory)
    with pytest.raises(PersonOnly, match="a value would be lost"):
        program.merge(said.id, note(memory, LONG, origin="agent").id)
    with pytest.raises(PersonOnly) as refused:
        program.merge(said.id, derived.id, "b")
    assert f"meritory merge {derived.id} {said.id}" in str(refused.value)
    with pytest.raises(PersonOnly):
        program.merge(said.id, web.id, "a")
    # The user's own words stay by themselves, though they say less.
    assert program.merge(derived.id, said.id).content == SHORT
    assert memory.history(said.id)[-1].why == "merged by an agent"
    memory.undo(said.id)
    for fields in ({"pinned": True}, {"kind": "constraint"}):
        bound = note(memory, "Anna never leads sales", **fields)
        with pytest.raises(PersonOnly):
            program.merge(said.id, bound.id)
        assert memory.merge(said.id, bound.id, "a").is_binding
        memory.undo(said.id)
        memory.forget(bound.id)
    proposed = program.remember("Anna always leads", kind="constraint", on_similar="keep")
    with pytest.raises(PersonOnly, match="a proposal"):
        program.merge(derived.id, proposed.id)


def test_a_person_vouches_for_the_text_that_they_keep(memory: Memory) -> None:
    said, web = note(memory, SHORT), note(memory, LONG, origin="web")
    kept = memory.merge(said.id, web.id, "b")
    assert (kept.content, kept.origin, kept.provenance) == (LONG, "user", "user_stated")
    assert kept.trust == "trusted"
    memory.undo(kept.id)
    back = memory.get(web.id)
    assert (back.origin, back.provenance, back.trust) == ("web", "assistant_derived", "untrusted")
