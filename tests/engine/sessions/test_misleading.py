"""A memory that misled leaves the first places and is not shown, until a person confirms it."""

from __future__ import annotations

from session_kit import Desk, filler

STALE = "The staging database is called heron and listens on port 5432"
ASKED = "which port does the staging database heron listen on?"


def misled(desk: Desk, memory_id: str, *keys: str) -> None:
    """Hold sessions in which the agent rates a memory as misleading."""
    for key in keys:
        session = desk.memory.session(key, context=ASKED)
        assert memory_id in {one.id for one in session.memories}
        session.rate({memory_id: -0.9})
        session.end()
        desk.memory.drain()
        desk.clock.go(days=1)


def test_two_bad_ratings_take_it_out_of_the_first_ten(desk: Desk) -> None:
    desk.note(*filler(40))
    (stale,) = desk.note(STALE)
    desk.clock.go(days=2)
    misled(desk, stale, "first")
    assert desk.memory.session("one", context=ASKED).ranking[0] == stale
    misled(desk, stale, "second")
    after = desk.memory.session("two", context=ASKED)
    assert stale not in after.ranking[:10]
    assert stale not in {one.id for one in after.memories}
    assert stale not in {one.id for one in after.prompt(ASKED).memories}
    (reason,) = desk.memory.why(stale, "two")["reasons"]
    assert "it misled more than it helped" in reason
    # A search that asks for it finds it.
    assert stale in {one.id for one in desk.memory.recall(ASKED)}


def test_a_person_who_confirms_it_brings_it_back(desk: Desk) -> None:
    desk.note(*filler(40))
    (stale,) = desk.note(STALE)
    desk.clock.go(days=2)
    misled(desk, stale, "first", "second")
    (item,) = [one for one in desk.memory.review().results if one.kind == "contested"]
    assert [one.id for one in item.memories] == [stale]
    assert "it misled sessions" in item.why
    desk.memory.decide(stale, "confirm")
    assert stale in {one.id for one in desk.memory.session("again", context=ASKED).memories}


def test_help_outweighs_a_single_bad_rating(desk: Desk) -> None:
    desk.note(*filler(40))
    (stale,) = desk.note(STALE)
    desk.clock.go(days=2)
    for number in range(2):
        session = desk.memory.session(f"good-{number}", context=ASKED)
        session.rate({stale: 0.9})
        session.end()
        desk.memory.drain()
    misled(desk, stale, "first", "second")
    assert stale in {one.id for one in desk.memory.session("two", context=ASKED).memories}


def test_what_is_required_stays(desk: Desk) -> None:
    desk.note(*filler(40))
    (stale,) = desk.note(STALE, pinned=True)
    desk.clock.go(days=2)
    misled(desk, stale, "first", "second", "third", "fourth")
    assert stale in {one.id for one in desk.memory.session("two", context=ASKED).memories}
