"""The nightly search finds pairs that the gate did not see, asks once, and stays small."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from session_kit import Desk

from meritory.domain.quality import MemoryLink
from meritory.engine.memories import write
from meritory.engine.quality import missed_pairs, review
from meritory.engine.quality.maintenance import Schedule, day_of
from meritory.engine.quality.missed_pairs import PAIRS_JOB, search

USER = "default"
# Stored with `keep`, these pass by the gate, as an import without it does.
SAME = ("Anna leads the design team", "The design team is led by Anna")
VALUES = ("The staging server listens on port 5432", "The staging server listens on port 6543")
# Nothing in common with each other.
_NOUNS = (
    "zebra kettle moonlight gravel sonnet walrus ledger pepper tunnel velvet anchor biscuit cactus"
    " drizzle ember falcon glacier hammock igloo jigsaw kayak lantern magnet nectar orbit parsley"
    " quartz rudder saddle thimble umbrella violin waffle xylophone yogurt zipper acorn bramble"
    " cobalt dagger easel fiddle garnet harpoon ink jasper kernel lagoon marble napkin oyster"
    " pigeon quiver raisin sapphire turnip urchin vinegar whistle yarn"
)
_WORDS = _NOUNS.split()
OTHERS = [" ".join(_WORDS[at : at + 2]) for at in range(0, 60, 2)]
ALIKE = ("The team meets in the small room", "The team meets in the little room")


def note(desk: Desk, *texts: str, days: float = 2) -> list[str]:
    """Store texts some days apart, without the gate."""
    ids = []
    for text in texts:
        ids += desk.note(text)
        desk.clock.go(days=days)
    return ids


def links(desk: Desk, *ids: str) -> set[tuple[str, str, str]]:
    return {(one.older_id, one.newer_id, one.kind) for one in _all(desk, ids)}


def _all(desk: Desk, ids: tuple[str, ...]) -> list[MemoryLink]:
    return desk.store.links_of(USER, ids)


def asked(desk: Desk) -> set[tuple[str, ...]]:
    """The texts of the open pairs."""
    items = desk.memory.review(500).results
    return {tuple(record.content for record in item.memories) for item in items}


def night(desk: Desk) -> None:
    """Let the daily jobs of the next day run, as the daemon does."""
    schedule = Schedule(desk.memory.services)
    desk.clock.go(days=1)
    assert schedule.look() > 0
    desk.memory.drain()
    assert desk.store.job(USER, PAIRS_JOB, day_of(desk.clock.now)).state == "done"


def test_a_night_finds_duplicates_and_other_values(desk: Desk) -> None:
    same, values, alike = note(desk, *SAME), note(desk, *VALUES), note(desk, *ALIKE)
    note(desk, *OTHERS[:20], days=0)
    assert asked(desk) == set()
    night(desk)
    assert asked(desk) == {SAME, VALUES, ALIKE}
    assert links(desk, *values) == {(*values, "newer")}
    assert links(desk, *same, *alike) == {(*same, "alike"), (*alike, "alike")}
    assert desk.counters()["links.found"] == 3
    # It has asked: the next night adds nothing and says nothing.
    night(desk)
    assert desk.counters()["links.found"] == 3


def test_what_was_decided_is_not_asked_again(desk: Desk) -> None:
    pairs = [note(desk, *texts) for texts in (SAME, VALUES, ALIKE)]
    night(desk)
    for ids, answer in zip(pairs, ("merge", "newer", "keep"), strict=True):
        desk.memory.decide(":".join(ids), answer)
    before = [_all(desk, (ids[0],)) for ids in pairs]
    night(desk)
    assert asked(desk) == set()
    assert [_all(desk, (ids[0],)) for ids in pairs] == before


def test_what_was_taken_apart_is_not_asked_about(desk: Desk) -> None:
    first = desk.memory.remember(SAME[0])
    second = desk.memory.remember_many([SAME[1]])[0]
    assert second.outcome == "merged"
    desk.memory.split(first.id)
    old = desk.memory.remember("CI runs on Jenkins")
    desk.memory.remember("CI runs on Actions", supersedes=old.id)
    desk.memory.undo(old.id)
    night(desk)
    assert asked(desk) == set()


def test_values_of_one_day_hide_none_of_them(desk: Desk) -> None:
    ids = note(desk, *VALUES, days=0.1)
    night(desk)
    assert links(desk, *ids) == {(*ids, "alike")}
    found = {hit.content for hit in desk.memory.recall("staging server port")}
    assert found == set(VALUES)


def test_values_that_were_written_in_another_order_keep_that_of_time(desk: Desk) -> None:
    late = desk.memory.remember(VALUES[1], on_similar="keep")
    early = desk.memory.remember(VALUES[0], on_similar="keep", valid_from="2025-01-01")
    night(desk)
    assert links(desk, late.id) == {(early.id, late.id, "newer")}


def test_a_pair_hidden_by_nearer_texts_is_found(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "NEIGHBOUR_LIMIT", 1)
    (old,) = note(desk, "The staging server listens on port 5432")
    note(desk, "The stage of the staging server has a port of its own to listen on")
    note(desk, "Does the staging server listen on port 6543?")
    new = desk.memory.remember("The staging server listens on port 6543").id
    assert old not in {one.older_id for one in _all(desk, (new,))}
    night(desk)
    assert (old, new, "newer") in links(desk, new)


def test_others_are_no_pair(desk: Desk) -> None:
    """Another project, a stated subject, an expired memory, a forgotten one."""
    note(desk, SAME[0])
    desk.note(SAME[1], project="elsewhere")
    note(desk, VALUES[0])
    desk.note(VALUES[1], about=["port"])
    gone, _ = note(desk, *ALIKE)
    desk.memory.forget(gone)
    note(desk, "The lease is held by Ida until spring")
    desk.note("The lease is held by Bo until spring", valid_until="2026-03-20")
    desk.clock.go(days=30)
    night(desk)
    assert asked(desk) == set()


def test_pairs_of_forgotten_memories_leave_the_list(desk: Desk) -> None:
    ids = note(desk, *ALIKE)
    night(desk)
    desk.memory.forget(ids[0])
    assert asked(desk) == set()
    night(desk)
    assert links(desk, *ids) == set()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missed_pairs, "EXAMINED_LIMIT", 10)
    monkeypatch.setattr(missed_pairs, "BATCH_SIZE", 4)


def rounds(desk: Desk, count: int) -> Iterator[tuple[int, int]]:
    for _ in range(count):
        result = search(desk.memory.services, USER)
        yield result.examined, result.found


@pytest.mark.usefixtures("small")
def test_a_night_looks_at_a_part_and_the_next_goes_on(desk: Desk) -> None:
    note(desk, *OTHERS[:22], SAME[0], *OTHERS[22:], SAME[1], days=0)
    # 32 memories; the last one closes the pair. Then a new round begins.
    assert list(rounds(desk, 5)) == [(10, 0), (10, 0), (10, 0), (2, 1), (10, 0)]


@pytest.mark.usefixtures("small")
def test_a_place_to_go_on_from_may_be_gone(desk: Desk) -> None:
    ids = note(desk, *OTHERS[:12], days=0)
    assert list(rounds(desk, 1)) == [(10, 0)]
    for memory_id in ids:
        desk.memory.forget(memory_id, purge=True)
    note(desk, *ALIKE)
    assert sum(found for _, found in rounds(desk, 3)) == 1


def test_a_night_finds_no_more_than_a_person_answers(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missed_pairs, "FOUND_LIMIT", 3)
    monkeypatch.setattr(missed_pairs, "OPEN_LIMIT", 5)
    colours = ("red", "green", "blue", "black", "white", "brown", "grey")
    animals = ("heron", "otter", "lynx", "badger", "kestrel", "newt", "vole")
    for colour, animal in zip(colours, animals, strict=True):
        text = f"The {colour} {animal} sleeps in the small barn"
        note(desk, text, text.replace("small", "little"))
    results = [search(desk.memory.services, USER).found for _ in range(6)]
    assert results[0] == 3
    assert sum(results) == 5
    assert desk.memory.review().total == 5
    item = desk.memory.review().results[0]
    desk.memory.decide(item.id, "keep")
    assert search(desk.memory.services, USER).found == 1


def test_without_an_embedder_there_is_nothing_to_search(desks: Callable[..., Desk]) -> None:
    desk = desks(embedder_kind="none")
    note(desk, *ALIKE)
    night(desk)
    assert asked(desk) == set()


def test_a_switched_off_gate_searches_nothing(desks: Callable[..., Desk]) -> None:
    desk = desks(gate_enabled=False)
    note(desk, *ALIKE)
    assert search(desk.memory.services, USER).examined == 0


def test_the_list_keeps_what_is_shown_most(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(review, "ALIKE_LIMIT", 1)
    used = note(desk, *ALIKE)
    note(desk, *SAME)
    desk.store.write(USER, lambda t: t.add_usage(USER, {used[0]: 3}, desk.clock.now))
    night(desk)
    assert asked(desk) == {ALIKE}
