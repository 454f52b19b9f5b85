"""What the model links as unsure chains, in which order both are served, and what changes do."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from session_kit import Desk

from meritory import Memory
from meritory.domain.quality import LinkKind, MemoryLink
from meritory.engine.memories.gate import UNSURE_LIMIT

FIRST = "I've collected 14 beer mats since I started in spring"
SECOND = "I just got another one, so I now have 19 beer mats in my collection"
OLD, NEW = "The staging server listens on port 5432", "Rosa likes strong tea"
ASKED = "which port does the staging server use?"
EVENT = "which port did the staging server use when it was set up?"


def keep(desk: Desk, text: str, **fields: Any) -> str:
    """Store a text as it is, a day after the last one."""
    record = desk.memory.remember(text, on_similar="keep", **fields)
    desk.clock.go(days=1)
    return record.id


def plant(desk: Desk, older: str, newer: str, kind: LinkKind = "unsure") -> None:
    made = MemoryLink(
        older_id=older, newer_id=newer, kind=kind, cosine=0.5, reason="test", at=desk.clock.now
    )
    user = desk.memory.scope.user
    desk.store.write(user, lambda transaction: transaction.put_links(user, [made]))


def kinds(memory: Memory, *ids: str) -> list[tuple[str, str, str]]:
    found = memory.services.store.links_of(memory.scope.user, ids)
    return [(one.older_id, one.kind, one.newer_id) for one in found]


def found(desk: Desk, query: str = ASKED, **options: Any) -> list[str]:
    return [hit.content for hit in desk.memory.recall(query, **options)]


def test_what_is_probably_a_newer_value_is_linked_and_both_stay(desk: Desk) -> None:
    old = desk.memory.remember(FIRST)
    desk.clock.go(days=9)
    new = desk.memory.remember(SECOND)
    assert kinds(desk.memory, new.id) == [(old.id, "unsure", new.id)]
    assert found(desk, "how many beer mats do I have?") == [SECOND, FIRST]


def test_the_date_decides_which_one_is_older(desk: Desk) -> None:
    new = desk.memory.remember(SECOND)
    old = desk.memory.remember(FIRST, valid_from="2025-05-01")
    assert kinds(desk.memory, old.id) == [(old.id, "unsure", new.id)]


def test_notes_of_one_day_are_not_linked(desk: Desk) -> None:
    desk.memory.remember(FIRST)
    desk.clock.go(hours=5)
    assert kinds(desk.memory, desk.memory.remember(SECOND).id) == []


def test_a_memory_has_few_unsure_links(desk: Desk) -> None:
    for count in (11, 12, 13, 14):
        keep(desk, f"I've collected {count} beer mats since I started in spring")
    new = desk.memory.remember(SECOND)
    assert len(kinds(desk.memory, new.id)) == UNSURE_LIMIT


@pytest.mark.parametrize("fields", [{"origin": "web"}, {"origin": "agent"}])
def test_a_weaker_source_is_put_before_nothing(desk: Desk, fields: dict[str, Any]) -> None:
    old = desk.memory.remember(FIRST)
    desk.clock.go(days=2)
    new = desk.memory.remember(SECOND, **fields)
    assert kinds(desk.memory, old.id, new.id) == []
    # Nor by a link from before its source was known to be weaker.
    one, other = keep(desk, OLD), keep(desk, NEW, **fields)
    plant(desk, one, other)
    assert found(desk) == [OLD]


def test_the_newer_one_is_brought_before_the_older_one(desk: Desk) -> None:
    old, new = keep(desk, OLD), keep(desk, NEW)
    assert found(desk) == [OLD]
    plant(desk, old, new)
    assert found(desk) == [NEW, OLD]
    assert found(desk, limit=1) == [NEW]
    # A question about an event keeps the order of relevance.
    assert found(desk, EVENT) == [OLD]


def test_the_newest_of_several_is_first(desk: Desk) -> None:
    old, new, newest = keep(desk, OLD), keep(desk, NEW), keep(desk, "Heron is gone")
    plant(desk, old, new)
    plant(desk, old, newest)
    plant(desk, new, newest)
    assert found(desk)[0] == "Heron is gone"


def test_a_pin_keeps_its_place(desk: Desk) -> None:
    old, new = keep(desk, OLD, pinned=True), keep(desk, NEW)
    plant(desk, old, new)
    assert found(desk) == [OLD]


def test_what_is_forgotten_or_separate_comes_no_more(desk: Desk) -> None:
    old, new = keep(desk, OLD), keep(desk, NEW)
    plant(desk, old, new)
    desk.memory.forget(new)
    assert found(desk) == [OLD]
    desk.memory.undo(new)
    assert found(desk) == [NEW, OLD]
    desk.memory.decide(f"{old}:{new}", "keep")
    assert found(desk) == [OLD]


def test_what_superseded_the_newer_one_comes_in_its_place(desk: Desk) -> None:
    old, new = keep(desk, OLD), keep(desk, NEW)
    plant(desk, old, new)
    desk.memory.remember("Heron is gone", supersedes=new)
    assert found(desk) == ["Heron is gone", OLD]


def test_a_purge_in_the_middle_keeps_the_ends_together(desk: Desk) -> None:
    old, new, newest = keep(desk, OLD), keep(desk, NEW), keep(desk, "Heron is gone")
    plant(desk, old, new)
    plant(desk, new, newest, "newer")
    desk.memory.forget(new, purge=True)
    assert kinds(desk.memory, old) == [(old, "unsure", newest)]


def test_an_edit_finds_the_links_again(desk: Desk) -> None:
    old = desk.memory.remember(FIRST).id
    desk.clock.go(days=9)
    new = desk.memory.remember("The tram stops at the mill").id
    assert kinds(desk.memory, new) == []
    desk.memory.update(new, content=SECOND)
    assert kinds(desk.memory, new) == [(old, "unsure", new)]
    desk.memory.undo(new)
    assert kinds(desk.memory, new) == []
    assert desk.clock.now - desk.memory.get(old).created_at >= timedelta(days=9)
