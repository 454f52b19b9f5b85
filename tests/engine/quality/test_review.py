"""The review list: what it asks, in which order, what the answers do, and how it stays small."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from session_kit import Desk

from meritory import Conflict, InputError, Memory, MemoryRecord, NotFound, PersonOnly
from meritory.domain.quality import LinkKind, MemoryLink, ReviewItem
from meritory.engine.quality import review
from meritory.engine.quality.missed_pairs import PAIRS_JOB


def agent(memory: Memory) -> Memory:
    """The same store, as an agent's surface opens it."""
    view = memory.view(everywhere=True)
    view.backend.services = replace(view.services, is_person=False)
    return view


def note(memory: Memory, text: str, **fields: object) -> MemoryRecord:
    return memory.remember(text, on_similar="keep", **fields)


def pair(
    memory: Memory, first: str, second: str, kind: LinkKind = "alike", **fields: object
) -> tuple[MemoryRecord, MemoryRecord]:
    """Two memories with a link that the gate would have made."""
    older, newer = note(memory, first, **fields), note(memory, second, **fields)
    link(memory, older, newer, kind)
    return older, newer


def link(
    memory: Memory, older: MemoryRecord, newer: MemoryRecord, kind: LinkKind = "alike"
) -> None:
    made = MemoryLink(
        older_id=older.id,
        newer_id=newer.id,
        kind=kind,
        cosine=0.8,
        reason=f"between {older.content} and {newer.content}",
        at=memory.services.world.now(),
    )
    user = memory.scope.user
    memory.services.store.write(user, lambda transaction: transaction.put_links(user, [made]))


def shown(memory: Memory, record: MemoryRecord, count: int) -> None:
    at = memory.services.world.now()
    user = memory.scope.user
    memory.services.store.write(user, lambda t: t.add_usage(user, {record.id: count}, at))


def asked(memory: Memory) -> list[str]:
    """The texts of every item, in the order of the list."""
    items = memory.review(500).results
    return [" / ".join(record.content for record in item.memories) for item in items]


def only(memory: Memory) -> ReviewItem:
    (item,) = memory.review().results
    return item


def dispute(desk: Desk, text: str = "The heron sleeps at noon") -> MemoryRecord:
    """A memory that reports disagree about."""
    record = note(desk.memory, text)
    for number in range(6):
        desk.memory.capture_feedback("up" if number % 2 else "down", memory_ids=[record.id])
        desk.clock.go(days=1)
    return record


def test_an_empty_store_asks_nothing(memory: Memory) -> None:
    page = memory.review()
    assert (page.results, page.total) == ((), 0)


def test_it_asks_about_pairs_proposals_and_disputes(desk: Desk) -> None:
    memory = desk.memory.view(everywhere=True)
    dispute(desk)
    pair(memory, "CI runs on Jenkins", "CI runs on Actions", "newer")
    pair(memory, "Anna leads design", "Design is led by Anna", project="zoo")
    note(memory, "Never stop the shop", kind="constraint", origin="agent")
    page = memory.review()
    assert page.total == 4
    by_kind = {item.kind: item for item in page.results}
    assert set(by_kind) == {"alike", "newer", "proposal", "contested"}
    newer = by_kind["newer"]
    assert newer.id == ":".join(record.id for record in newer.memories)
    assert newer.why == "between CI runs on Jenkins and CI runs on Actions"
    assert newer.actions == ("newer", "keep", "merge", "forget")
    assert by_kind["proposal"].why.endswith("proposed it as a constraint")
    assert by_kind["proposal"].actions == ("confirm", "reject", "forget")
    assert by_kind["contested"].why.startswith("reports disagree")
    # A project sees its own and what all share, but not what is of another one.
    kinds = {item.kind for item in desk.memory.review().results}
    assert kinds == {"newer", "proposal", "contested"}
    zoo = memory.view(project="zoo")
    assert {item.kind for item in zoo.review().results} == {"alike", "newer", "proposal"}


def test_the_most_used_come_first_then_the_latest(memory: Memory) -> None:
    pair(memory, "a one", "a two")
    used, _ = pair(memory, "b one", "b two")
    _, found = pair(memory, "c one", "c two")
    pair(memory, "d one", "d two")
    shown(memory, used, 2)
    user, at = memory.scope.user, memory.services.world.now()
    memory.services.store.write(user, lambda t: t.add_retrievals(user, {found.id: 3}, at))
    order = ["c one / c two", "b one / b two", "d one / d two", "a one / a two"]
    assert asked(memory) == order
    counts = [(item.shown_count, item.found_count) for item in memory.review().results]
    assert counts == [(0, 3), (2, 0), (0, 0), (0, 0)]
    assert [item.memories[0].content for item in memory.review(2, 1).results] == ["b one", "d one"]
    assert memory.review(2, 1).total == 4
    for limit, offset in ((0, 0), (1, -1), (10_001, 0)):
        with pytest.raises(InputError, match="must be a whole number"):
            memory.review(limit, offset)


ANSWERS: dict[str, tuple[set[str], str]] = {
    "merge": ({"Design is led by Anna now"}, "same"),
    "newer": ({"Design is led by Anna now"}, "newer"),
    "keep": ({"Anna leads design", "Design is led by Anna now"}, "separate"),
}


@pytest.mark.parametrize("action", ANSWERS)
@pytest.mark.parametrize("turned", [False, True])
def test_a_pair_is_answered_once_and_asked_again_after_an_undo(
    memory: Memory, action: str, turned: bool
) -> None:
    pair(memory, "Anna leads design", "Design is led by Anna now")
    item = only(memory)
    one, other = item.memories
    name = f"{other.id}:{one.id[:22]}" if turned else item.id
    changed = memory.decide(name, action)
    texts, decision = ANSWERS[action]
    assert {record.content for record in memory.page()} == texts
    (decided,) = memory.services.store.links_of("default", [one.id])
    assert (decided.decision, decided.decided_by) == (decision, "person")
    assert memory.review().total == 0
    with pytest.raises(Conflict):
        memory.decide(item.id, "keep")
    # The first memory of the result takes it back, whatever the answer was.
    memory.undo(changed[0].id)
    again = only(memory)
    assert (again.id, again.why, again.at) == (item.id, item.why, item.at)
    assert len(memory.page()) == 2


def test_keeping_both_is_in_the_history(memory: Memory) -> None:
    _, newer = pair(memory, "CI runs on Jenkins", "CI runs on Actions", "newer")
    memory.decide(only(memory).id, "keep")
    entry = memory.history(newer.id)[-1]
    assert (entry.action, entry.why) == ("separate", "both were kept by a person")
    assert entry.before == memory.get(newer.id)
    # A value that does not replace the other is no chain any more.
    store, now = memory.services.store, memory.services.world.now()
    assert store.later_values(memory.scope, [only_id(memory, "Jenkins")], now) == []


def only_id(memory: Memory, word: str) -> str:
    return next(record.id for record in memory.page() if word in record.content)


def test_one_of_a_pair_is_forgotten(memory: Memory) -> None:
    older, newer = pair(memory, "Anna leads design", "Design is led by Anna")
    with pytest.raises(InputError, match="`forget` is about one memory, not 2") as refused:
        memory.decide(f"{older.id}:{newer.id}", "forget")
    assert "name the one that goes" in str(refused.value)
    memory.decide(newer.id, "forget")
    assert [record.id for record in memory.page()] == [older.id]
    assert memory.review().total == 0
    memory.undo(newer.id)
    assert memory.review().total == 1


def test_proposals_are_confirmed_rejected_or_forgotten(memory: Memory) -> None:
    for action in ("confirm", "reject", "forget"):
        made = note(memory, f"Never {action} the shop", kind="constraint", origin="agent")
        assert only(memory).id == made.id
        memory.decide(made.id, action)
        assert memory.review().total == 0
        memory.undo(made.id)
        assert only(memory).kind == "proposal"
        memory.forget(made.id)


def test_a_contested_memory_is_confirmed_until_there_is_new_evidence(desk: Desk) -> None:
    made = dispute(desk)
    memory = desk.memory
    before = memory.get(made.id)
    memory.decide(made.id, "confirm")
    assert memory.review().total == 0
    assert memory.contested() != []
    assert memory.history(made.id)[-1].why == "confirmed by a person"
    assert memory.get(made.id) == before
    memory.undo(made.id)
    assert only(memory).kind == "contested"
    memory.decide(made.id, "confirm")
    desk.clock.go(days=1)
    memory.capture_feedback("down", memory_ids=[made.id])
    assert only(memory).kind == "contested"


def test_a_sure_memory_has_nothing_to_confirm(memory: Memory) -> None:
    made = note(memory, "The heron sleeps")
    with pytest.raises(Conflict, match="nothing to confirm"):
        memory.decide(made.id, "confirm")
    with pytest.raises(Conflict, match="no proposal"):
        memory.decide(made.id, "reject")
    assert len(memory.history(made.id)) == 1


@pytest.mark.parametrize(
    ("item", "action", "keep", "error", "message"),
    [
        ("{a}:{b}", "mrege", None, InputError, "did you mean 'merge'"),
        ("{a}:{b}", "merge", "A", InputError, "invalid keep"),
        ("{a}:{b}", "keep", "a", InputError, "`keep` is only for `merge`"),
        ("{a}", "keep", None, InputError, "about two memories, not 1"),
        ("{a}:{b}:{a}:{b}", "merge", None, InputError, "about two memories, not 3"),
        ("{a}:{a}", "newer", None, InputError, "named twice"),
        ("{a}:{b}", "newer", None, NotFound, "not in the review list"),
        ("{a}:{b}", "keep", None, NotFound, "not in the review list"),
        ("{a}:7zzzzz", "merge", None, NotFound, "no memory"),
        ("", "forget", None, NotFound, "no memory"),
        (":", "merge", None, NotFound, "no memory"),
    ],
)
def test_nonsense_changes_nothing(
    memory: Memory, item: str, action: str, keep: str | None, error: type, message: str
) -> None:
    one, other = note(memory, "The heron fishes"), note(memory, "The otter swims")
    with pytest.raises(error, match=message):
        memory.decide(item.format(a=one.id, b=other.id), action, keep)  # type: ignore[arg-type]
    assert len(memory.page()) == 2
    assert len(memory.history(one.id)) == len(memory.history(other.id)) == 1


def test_an_agent_answers_pairs_of_its_own_but_no_question_of_authority(memory: Memory) -> None:
    program = agent(memory)
    older, newer = pair(memory, "CI runs on Jenkins", "CI runs on Actions", "newer", origin="agent")
    program.decide(f"{older.id}:{newer.id}", "newer")
    (decided,) = memory.services.store.links_of("default", [older.id])
    assert decided.decided_by == "agent"
    memory.undo(older.id)
    proposed = note(memory, "Never stop CI", kind="constraint", origin="agent")
    pin = note(memory, "CI runs nightly", pinned=True)
    link(memory, older, pin, "newer")
    link(memory, proposed, newer)
    said = note(memory, "CI runs on Saturdays")
    link(memory, said, newer, "newer")
    answers: list[Callable[[], object]] = [
        *(lambda a=a: program.decide(proposed.id, a) for a in ("confirm", "reject", "forget")),
        *(lambda a=a: program.decide(f"{older.id}:{pin.id}", a) for a in ANSWERS),
        *(lambda a=a: program.decide(f"{proposed.id}:{newer.id}", a) for a in ANSWERS),
        # The user said it; an agent's inference does not replace that.
        lambda: program.decide(f"{said.id}:{newer.id}", "newer"),
        lambda: program.decide(pin.id, "forget"),
    ]
    before = {record.id: memory.get(record.id) for record in (older, newer, proposed, pin, said)}
    for answer in answers:
        with pytest.raises(PersonOnly) as refused:
            answer()
        assert (refused.value.code, refused.value.status) == ("person_only", 403)
        assert "meritory" in str(refused.value)
    assert {record_id: memory.get(record_id) for record_id in before} == before
    assert memory.review().total == 5


# -- maintenance ------------------------------------------------------------------------------


def test_maintenance_drops_links_of_no_use(desk: Desk) -> None:
    memory = desk.memory
    kept = pair(memory, "Anna leads design", "Design is led by Anna")
    gone = pair(memory, "CI runs on Jenkins", "Our CI is Jenkins")
    edited = pair(memory, "The shop opens at nine", "The shop opens at ten", "newer")
    chain = pair(memory, "The db is heron", "The db is otter", "newer")
    desk.clock.go(hours=1)
    memory.forget(gone[0].id)
    memory.update(edited[1].id, content="The shop has a cat")
    # Other changes leave the claim as it was.
    memory.update(kept[0].id, importance=0.9)
    memory.forget(chain[0].id)
    store = memory.services.store
    job = store.write("default", lambda t: t.put_job("default", PAIRS_JOB, "x", desk.clock.now))
    assert job and memory.drain() > 0
    ids = [record.id for two in (kept, gone, edited, chain) for record in two]
    left = {(found.older_id, found.newer_id) for found in store.links_of("default", ids)}
    # A chain may pass through a memory that is gone.
    assert left == {tuple(r.id for r in kept), tuple(r.id for r in chain)}
    # The links of the edited text went with the edit.
    assert desk.counters()["links.dropped"] == 1
    assert review.prune(memory.services, "default") == 0


def test_of_too_many_pairs_the_most_used_stay(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(review, "ALIKE_LIMIT", 2)
    used, _ = pair(memory, "a one", "a two")
    pair(memory, "b one", "b two")
    pair(memory, "c one", "c two")
    decided = pair(memory, "d one", "d two")
    memory.decide(f"{decided[0].id}:{decided[1].id}", "keep")
    shown(memory, used, 1)
    assert review.prune(memory.services, "default") == 1
    assert asked(memory) == ["a one / a two", "c one / c two"]
    # An answer is no link of no use.
    assert len(memory.services.store.links_of("default", [decided[0].id])) == 1
    assert review.prune(memory.services, "eve") == 0


def test_unsure_pairs_come_below_all_others(memory: Memory) -> None:
    used, _ = pair(memory, "d one", "d two", "unsure")
    pair(memory, "e one", "e two")
    shown(memory, used, 9)
    assert asked(memory) == ["e one / e two", "d one / d two"]
    item = memory.review().results[1]
    assert (item.kind, item.actions[0]) == ("unsure", "newer")
    memory.decide(item.id, "keep")
    assert asked(memory) == ["e one / e two"]
