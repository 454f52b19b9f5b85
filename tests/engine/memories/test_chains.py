"""Chains: which value of a claim recall shows, who may hide whom, and what changes do to links."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meritory import Memory, MemoryRecord
from meritory.domain.quality import LinkDecision, LinkKind, MemoryLink
from meritory.engine.memories.chains import ALIKE_LIMIT, links_of_new
from meritory.engine.memories.gate import GateVerdict
from meritory.store.contract.memories import Near

OLD, NEW, NEWEST = (f"The staging server listens on port {n}" for n in (5432, 6543, 7654))
QUESTION = "which port does the staging server use?"
PAST = "which port did the staging server use before?"
NOW = datetime(2026, 3, 2, tzinfo=UTC)


def keep(memory: Memory, text: str, **fields: Any) -> MemoryRecord:
    """Store a text as it is, so that only planted links hold it in a chain."""
    return memory.remember(text, on_similar="keep", **fields)


def plant(
    memory: Memory,
    older: MemoryRecord,
    newer: MemoryRecord,
    decision: LinkDecision | None = None,
    kind: LinkKind = "newer",
) -> None:
    link = MemoryLink(
        older_id=older.id,
        newer_id=newer.id,
        kind=kind,
        cosine=0.9,
        reason="test",
        at=newer.created_at,
        decision=decision,
    )
    memory.services.store.write("default", lambda t: t.put_links("default", [link]))


def chain_of(memory: Memory, *texts: str) -> list[MemoryRecord]:
    """Store texts as the values of one claim."""
    records = [keep(memory, text) for text in texts]
    for older, newer in itertools.pairwise(records):
        plant(memory, older, newer)
    return records


def found(memory: Memory, query: str = QUESTION, **options: Any) -> list[str]:
    return [hit.content for hit in memory.recall(query, **options)]


def links(memory: Memory, *records: MemoryRecord) -> list[tuple[str, str, str]]:
    """The links of memories: the older text, the kind and the newer text."""
    stored = memory.services.store.links_of("default", [record.id for record in records])
    text = {record.id: record.content for record in memory.page(everywhere=True, include_gone=True)}
    return sorted((text[one.older_id], one.kind, text[one.newer_id]) for one in stored)


# -- what recall shows --------------------------------------------------------------------


def test_the_present_value_stands_for_its_chain(memory: Memory) -> None:
    keep(memory, "The kitchen has a port wine from Porto")
    chain_of(memory, OLD, NEW, NEWEST)
    assert found(memory)[0] == NEWEST
    assert not {OLD, NEW} & set(found(memory))


def test_a_value_in_other_words_takes_the_place_of_the_old_one(memory: Memory) -> None:
    _, newest = chain_of(memory, OLD, "Heron moved behind a unix socket")
    others = [keep(memory, f"The staging server has disk number {n}") for n in range(6)]
    best = memory.recall(QUESTION, limit=1, explain=True)[0]
    assert (best.content, best.until) == (newest.content, None)
    assert best.parts is not None
    assert best.parts.hybrid > 0
    # The freed places go to others.
    assert len(found(memory, limit=5)) == 5
    assert len(found(memory, limit=20)) == len(others) + 1


def test_nothing_is_hidden_by_what_cannot_be_seen(memory: Memory) -> None:
    old = keep(memory, OLD)
    for fields in ({"project": "heron"}, {"agent": "codex"}, {"valid_until": "2020-01-01"}):
        plant(memory, old, keep(memory, NEW, **fields))
    assert found(memory) == [OLD]
    assert found(memory.view(project="heron")) == [NEW]


def test_a_question_about_the_past_gets_the_old_values_with_their_end(memory: Memory) -> None:
    gone = keep(memory, "Heron was reachable through a tunnel")
    old = memory.remember(OLD, supersedes=gone.id)
    new = keep(memory, NEW)
    plant(memory, old, new)
    assert [(hit.content, hit.until) for hit in memory.recall(QUESTION)] == [(NEW, None)]
    hits = memory.recall(PAST, explain=True)
    ends = {hit.content: hit.until for hit in hits}
    assert ends == {NEW: None, OLD: new.created_at, gone.content: old.created_at}
    # It was not found by its words, and follows the memory that superseded it.
    contents = [hit.content for hit in hits]
    place = contents.index(gone.content)
    assert contents[place - 1] == OLD
    assert hits[place].score == hits[place - 1].score
    assert found(memory, PAST, limit=1) == contents[:1]


@pytest.mark.parametrize("way", ["merge", "resolves"])
def test_a_merged_memory_is_no_earlier_value(memory: Memory, way: str) -> None:
    old = keep(memory, OLD)
    other = "Port 5432 is what the staging server listens on"
    if way == "merge":
        memory.merge(old.id, keep(memory, other).id)
    else:
        resolves = [{"id": old.id, "as": "same"}]
        memory.remember_many([{"content": other, "on_similar": "keep", "resolves": resolves}])
    assert len(found(memory, PAST)) == 1


def test_the_present_value_comes_before_an_old_one_that_was_asked_for(memory: Memory) -> None:
    chain_of(memory, OLD, "Heron moved behind a unix socket")
    assert found(memory, PAST) == ["Heron moved behind a unix socket", OLD]


def test_the_past_goes_back_to_the_first_value(memory: Memory) -> None:
    values = ["Through a tunnel", "By telephone", "On paper"]
    last = keep(memory, values[0])
    for text in (*values[1:], NEW):
        last = memory.remember(text, supersedes=last.id)
    assert found(memory, PAST) == [NEW, *reversed(values)]


def test_the_past_of_other_scopes_and_the_forgotten_stay_unseen(memory: Memory) -> None:
    secret = keep(memory, "A secret of the kestrel", project="kestrel")
    gone = keep(memory, "A forgotten value")
    new = keep(memory, NEW)
    for old in (secret, gone):
        plant(memory, old, new)
    memory.forget(gone.id)
    assert found(memory, PAST) == found(memory.view(project="heron"), PAST) == [NEW]
    assert found(memory.view(project="kestrel"), PAST) == [NEW, secret.content]


def test_pins_and_constraints_are_never_hidden(memory: Memory) -> None:
    old, _ = chain_of(memory, OLD, NEW)
    assert found(memory) == [NEW]
    memory.update(old.id, pinned=True)
    assert set(found(memory)) == {OLD, NEW}
    memory.update(old.id, pinned=False, kind="constraint")
    assert set(found(memory)) == {OLD, NEW}


@pytest.mark.parametrize("decision", [None, "newer"])
def test_a_link_hides_nothing_that_has_become_stronger(
    memory: Memory, decision: LinkDecision | None
) -> None:
    old, new = keep(memory, OLD, origin="web"), keep(memory, NEW, origin="web")
    plant(memory, old, new, decision)
    assert found(memory) == [NEW]
    memory.confirm(old.id)
    # Unless it was decided so.
    assert (OLD in found(memory)) is (decision is None)


def test_the_latest_value_that_is_strong_enough_is_shown(memory: Memory) -> None:
    old, new = chain_of(memory, OLD, NEW)
    plant(memory, new, keep(memory, NEWEST, origin="web"))
    assert set(found(memory)) == {NEW, NEWEST}
    assert old.content not in found(memory)


def test_a_circle_keeps_its_latest_memory(memory: Memory) -> None:
    old, new = chain_of(memory, OLD, NEW)
    plant(memory, new, old)
    assert found(memory) == [NEW]


def test_a_separated_pair_is_no_chain(memory: Memory) -> None:
    old, new, other = (keep(memory, text) for text in (OLD, NEW, NEWEST))
    plant(memory, old, new, "separate")
    plant(memory, new, other, kind="alike")
    assert set(found(memory)) == {OLD, NEW, NEWEST}


# -- what a write links -------------------------------------------------------------------


def test_another_value_is_linked_as_the_newer_one(memory: Memory) -> None:
    old, new = memory.remember(OLD), memory.remember(NEW)
    assert links(memory, old, new) == [(OLD, "newer", NEW)]
    assert found(memory) == [NEW]
    newest = memory.remember(NEWEST)
    assert (OLD, "newer", NEWEST) in links(memory, newest)
    assert found(memory) == [NEWEST]


def test_values_of_one_batch_are_linked(memory: Memory) -> None:
    memory.remember_many([OLD, NEW, NEWEST])
    assert found(memory) == [NEWEST]


def test_the_date_decides_and_not_the_order_of_writing(memory: Memory) -> None:
    new = memory.remember(NEW)
    old = memory.remember(OLD, valid_from="2020-05-01")
    assert links(memory, new) == [(OLD, "newer", NEW)]
    assert found(memory) == [NEW]
    imported = memory.remember_many([{"content": NEWEST, "created_at": "2021-01-01"}])[0]
    assert imported.memory is not None
    assert links(memory, imported.memory, old) == [
        (OLD, "newer", NEW),
        (OLD, "newer", NEWEST),
        (NEWEST, "newer", NEW),
    ]
    assert found(memory) == [NEW]


@pytest.mark.parametrize("weaker", [{"origin": "web"}, {"origin": "tool"}, {"origin": "agent"}])
def test_a_weaker_source_hides_nothing(memory: Memory, weaker: dict[str, Any]) -> None:
    stated = memory.remember(OLD)
    memory.remember(NEW, **weaker)
    assert links(memory, stated) == [(OLD, "alike", NEW)]
    assert set(found(memory)) == {OLD, NEW}
    # The other way round it does.
    memory.remember(NEWEST)
    assert found(memory) == [NEWEST]


def test_texts_that_look_alike_are_linked_for_review_and_only_some(memory: Memory) -> None:
    texts = [f"Badger {name} sleeps in the old barn" for name in ("Al", "Bo", "Cy", "Di", "Ed")]
    records = [memory.remember(text) for text in texts]
    kinds = [kind for _, kind, _ in links(memory, records[-1])]
    assert kinds
    assert kinds.count("alike") <= ALIKE_LIMIT
    assert set(found(memory, "badger barn")) >= {texts[0], texts[-1]} or "newer" in kinds


_MEMORIES = st.builds(
    MemoryRecord,
    id=st.uuids().map(str),
    content=st.just(OLD),
    kind=st.sampled_from(["fact", "constraint"]),
    provenance=st.sampled_from(["user_stated", "assistant_derived", "episode_summary"]),
    origin=st.sampled_from(["user", "agent", "web"]),
    trust=st.sampled_from(["trusted", "untrusted"]),
    pinned=st.booleans(),
    created_at=st.integers(0, 3).map(lambda days: NOW + timedelta(days=days)),
    updated_at=st.just(NOW),
)


@given(_MEMORIES, _MEMORIES)
def test_only_an_equal_or_a_stronger_memory_becomes_the_newer_end(
    new: MemoryRecord, old: MemoryRecord
) -> None:
    near = Near(old, 0.9)
    (link,) = links_of_new(new, [near], GateVerdict("kept_both", chained=(near,)), 0.75, NOW)
    ends = {new.id: new, old.id: old}
    older, newer = ends[link.older_id], ends[link.newer_id]
    assert older.created_at <= newer.created_at
    assert newer is new or old.created_at > new.created_at
    if link.kind == "newer":
        assert not older.is_binding
        assert (older.trust, newer.trust) != ("trusted", "untrusted")
        assert newer.origin == "user" or older.origin != "user"
        assert newer.provenance == "user_stated" or older.provenance != "user_stated"
    elif older.trust == newer.trust and newer.provenance == newer.origin + "_stated":
        assert older.is_binding


# -- what changes do to links -------------------------------------------------------------


def test_what_is_forgotten_hides_nothing(memory: Memory) -> None:
    _, new, newest = chain_of(memory, OLD, NEW, NEWEST)
    memory.forget(newest.id)
    assert found(memory) == [NEW]
    memory.forget(new.id)
    assert found(memory) == [OLD]
    memory.undo(newest.id)
    # The chain passes through what is forgotten.
    assert found(memory) == [NEWEST]


def test_an_undone_write_hides_nothing(memory: Memory) -> None:
    memory.remember(OLD)
    new = memory.remember(NEW)
    memory.undo(new.id)
    assert found(memory) == [OLD]
    memory.undo(new.id)
    assert found(memory) == [NEW]


def test_a_purge_in_the_middle_keeps_the_ends_together(memory: Memory) -> None:
    old, new, newest = chain_of(memory, OLD, NEW, NEWEST)
    memory.forget(new.id, purge=True)
    assert links(memory, old) == [(OLD, "newer", NEWEST)]
    assert found(memory) == [NEWEST]
    memory.forget(newest.id, purge=True)
    assert found(memory) == [OLD]


def test_a_purge_of_a_successor_restores_no_old_value_beside_the_present_one(
    memory: Memory,
) -> None:
    old = keep(memory, OLD)
    new = memory.remember(NEW, supersedes=old.id)
    plant(memory, new, keep(memory, NEWEST))
    memory.forget(new.id, purge=True)
    assert memory.get(old.id).is_live
    assert found(memory) == [NEWEST]


def test_a_chain_passes_through_what_was_superseded(memory: Memory) -> None:
    _, new = chain_of(memory, OLD, NEW)
    memory.remember("Heron is gone", supersedes=new.id)
    assert found(memory) == ["Heron is gone"]


def test_an_edit_leaves_the_chain_and_may_join_another(memory: Memory) -> None:
    old, new = memory.remember(OLD), memory.remember(NEW)
    memory.update(new.id, content="Anna owns a dog")
    assert links(memory, old) == []
    assert found(memory) == [OLD]
    memory.undo(new.id)
    assert links(memory, old) == [(OLD, "newer", NEW)]
    assert found(memory) == [NEW]
    memory.update(new.id, content=NEWEST)
    assert found(memory) == [NEWEST]


def test_an_edit_keeps_decisions(memory: Memory) -> None:
    old, new = keep(memory, OLD), keep(memory, NEW)
    plant(memory, old, new, "newer")
    memory.update(new.id, content="Anna owns a dog")
    assert found(memory) == ["Anna owns a dog"]


def test_a_new_date_turns_a_link_round(memory: Memory) -> None:
    old, new = memory.remember(OLD), memory.remember(NEW)
    memory.update(new.id, valid_from=old.created_at - timedelta(days=9))
    assert links(memory, old) == [(NEW, "newer", OLD)]
    assert found(memory) == [OLD]
    memory.undo(new.id)
    assert found(memory) == [NEW]


def test_other_fields_keep_the_links(memory: Memory) -> None:
    old, new = chain_of(memory, OLD, NEW)
    memory.update(new.id, tags=["db"], importance=0.9)
    assert links(memory, old) == [(OLD, "newer", NEW)]


def test_recall_asks_the_store_once_more_and_only_once(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(8):
        keep(memory, f"The staging server has disk number {n}")
    store, calls = memory.services.store, []
    reading = type(store)._reading

    def counted(self: Any, user: str | None) -> Any:
        calls.append(user)
        return reading(self, user)

    monkeypatch.setattr(type(store), "_reading", counted)
    assert len(found(memory)) == 8
    without = len(calls)
    monkeypatch.setattr(type(store), "later_values", lambda *given, **named: [])
    calls.clear()
    assert len(found(memory)) == 8
    assert without == len(calls) + 1


def test_a_record_is_not_changed_by_its_chain(memory: Memory) -> None:
    old, new = chain_of(memory, OLD, NEW)
    found(memory)
    assert [replace(memory.get(one.id), access_count=0) for one in (old, new)] == [old, new]
