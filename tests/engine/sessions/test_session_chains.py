"""Sessions show the present value of a claim, in the place of earlier ones, with its date."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from session_kit import HERON, TERSE, Desk, filler

from meritory.domain.quality import LinkKind, MemoryLink
from meritory.engine import pipeline
from meritory.engine.memories.write import indexed
from meritory.engine.sessions.prompt import PromptRequest
from meritory.store.contract.memories import MemoryChange
from meritory.text.tokens import token_estimate

OLD = "The release train leaves from platform osprey"
NEW = "The release train leaves from platform kestrel"
ASKED = "from which platform does the release train leave?"
PAST = "from which platform did the release train leave before?"


def chained(desk: Desk, *texts: str, **fields: object) -> list[str]:
    """Store texts a day apart, as the values of one claim."""
    ids: list[str] = []
    for text in texts:
        ids += desk.note(text, **fields)
        desk.clock.go(days=1)
    for older, newer in itertools.pairwise(ids):
        link(desk, older, newer)
    return ids


def link(desk: Desk, older: str, newer: str, kind: LinkKind = "newer") -> None:
    planted = MemoryLink(
        older_id=older,
        newer_id=newer,
        kind=kind,
        cosine=0.9,
        reason="test",
        at=desk.clock.now,
    )
    user = desk.memory.scope.user
    desk.store.write(user, lambda transaction: transaction.put_links(user, [planted]))


def dates(text: str) -> dict[str, str]:
    """By handle the date in brackets at the end of a memory of one line."""
    found = re.findall(r"^(m\d+)[a-z ]*: .* \(([^()]*\d{4})\)$", text, re.MULTILINE)
    return dict(found)


def test_a_start_shows_the_present_value_with_its_date(desk: Desk) -> None:
    old, new = chained(desk, OLD, NEW)
    desk.note(HERON, TERSE)
    session = desk.memory.session("run", context=ASKED)
    assert session.memories[0].id == new
    assert old not in {one.id for one in session.memories}
    assert dates(session.inject) == {"m1": "since 3 Mar 2026"}
    # Served as a candidate with its features: there is as much to learn from as before.
    row = desk.rows()[old]
    assert row.candidate.features
    assert not row.candidate.was_injected
    assert desk.rows()[new].candidate.rank < row.candidate.rank


def test_a_start_without_a_task_hides_earlier_values_too(desk: Desk) -> None:
    old, _, newest = chained(desk, OLD, NEW, "The release train leaves from platform merlin")
    session = desk.memory.session("run")
    shown = {one.id for one in session.memories}
    assert newest in shown
    assert old not in shown
    assert len(shown) == 1


def test_the_present_value_comes_into_the_pool_for_an_earlier_one(
    desks: Callable[..., Desk],
) -> None:
    desk = desks(embedder_kind="none")
    old, new = chained(desk, OLD, "Heron goes by bus", importance=0.0)
    desk.note(*filler(190), importance=1.0)
    session = desk.memory.session("run", context=ASKED)
    row = desk.rows()[new].candidate
    assert row.origins == ("chain",)
    assert row.features
    assert session.memories[0].id == new
    assert old in session.ranking
    assert old not in {one.id for one in session.memories}


def test_a_hidden_value_is_never_tried_out(desks: Callable[..., Desk]) -> None:
    desk = desks(predictor_scorer="random")
    desk.grant(0.5)
    desk.tune(exploration_rate=1.0, start_limit=2)
    old, _ = chained(desk, OLD, NEW)
    desk.note(*filler(4))
    desk.clock.go(days=2)
    for number in range(12):
        session = desk.memory.session(f"run{number}", context=ASKED)
        assert old not in {one.id for one in session.memories}


def test_a_pin_is_shown_beside_its_later_value(desk: Desk) -> None:
    old, new = chained(desk, OLD, NEW)
    desk.memory.update(old, pinned=True)
    session = desk.memory.session("run", context=ASKED)
    assert {one.id for one in session.memories} == {old, new}
    handle = {one.id: one.handle for one in session.memories}
    assert dates(session.inject) == {handle[new]: "since 3 Mar 2026"}


def test_a_prompt_gets_the_present_value_in_place_of_a_hit(desk: Desk) -> None:
    desk.note(HERON)
    session = desk.memory.session("run", context="where is heron?")
    old, new = chained(desk, OLD, "Heron goes by bus")
    served = session.prompt(ASKED)
    assert [one.id for one in served.memories] == [new]
    assert dates(served.inject) == {served.memories[0].handle: "since 3 Mar 2026"}
    assert desk.rows()[new].candidate.was_injected
    # The agent has it now, so the earlier one is no news.
    assert session.prompt(ASKED).memories == ()
    assert old not in {one.id for one in session.memories}


def test_the_first_prompt_of_a_session_gets_the_present_value(desk: Desk) -> None:
    session = desk.memory.session("run")
    old, new = chained(desk, OLD, NEW)
    served = session.prompt(ASKED)
    assert [one.id for one in served.memories] == [new]
    assert old in desk.rows()


def test_a_prompt_about_the_past_gets_both_values(desk: Desk) -> None:
    session = desk.memory.session("run", context="where is heron?")
    old, new = chained(desk, OLD, NEW)
    served = session.prompt(PAST)
    assert [one.id for one in served.memories] == [new, old]
    first, second = (one.handle for one in served.memories)
    assert dates(served.inject) == {first: "since 3 Mar 2026", second: "until 3 Mar 2026"}


def test_a_first_prompt_about_the_past_adds_the_earlier_value(desk: Desk) -> None:
    old, new = chained(desk, OLD, NEW)
    session = desk.memory.session("run")
    assert [one.id for one in session.memories] == [new]
    served = session.prompt(PAST)
    assert [one.id for one in served.memories] == [old]
    assert dates(served.inject) == {served.memories[0].handle: "until 3 Mar 2026"}


def superseded(desk: Desk, *texts: str, **fields: object) -> list[str]:
    """Store texts a day apart; each supersedes the one before it."""
    ids: list[str] = []
    for text in texts:
        more = {"supersedes": ids[-1]} if ids else {}
        ids.append(desk.memory.remember(text, **more, **fields).id)
        desk.clock.go(days=1)
    return ids


def alter(desk: Desk, memory_id: str, **fields: Any) -> None:
    """Change a superseded memory, which no command may."""
    user = desk.memory.scope.user
    before = desk.store.get(user, memory_id)
    change = MemoryChange("alter", desk.clock.now, "test", "update", "test", before)
    record = indexed(replace(before, **fields), {})
    desk.store.write(user, lambda transaction: transaction.update(record, change))


LATEST = "The release train leaves from platform merlin"


def test_a_prompt_about_the_past_gets_superseded_values(desk: Desk) -> None:
    session = desk.memory.session("run", context="where is heron?")
    oldest, old, new = superseded(desk, OLD, NEW, LATEST)
    served = session.prompt(PAST)
    assert [one.id for one in served.memories] == [new, old, oldest]
    assert list(dates(served.inject).values()) == [
        "since 4 Mar 2026",
        "until 4 Mar 2026",
        "until 3 Mar 2026",
    ]
    row = desk.rows()[oldest].candidate
    assert row.was_injected
    # They are shown once, and a prompt about the present gets none of them.
    assert session.prompt(PAST).memories == ()
    other = desk.memory.session("other", context="where is heron?")
    assert [one.id for one in other.prompt(ASKED).memories] == [new]


def test_a_first_prompt_about_the_past_gets_superseded_values(desk: Desk) -> None:
    old, new = superseded(desk, OLD, NEW)
    session = desk.memory.session("run")
    # The agent has the present value already.
    assert [one.id for one in session.memories] == [new]
    served = session.prompt(PAST)
    assert [one.id for one in served.memories] == [old]
    assert list(dates(served.inject).values()) == ["until 3 Mar 2026"]


def test_a_later_prompt_finds_earlier_values_through_a_memory_in_context(desk: Desk) -> None:
    old, new = superseded(desk, OLD, NEW)
    desk.note(HERON)
    session = desk.memory.session("run", context=ASKED)
    assert new in {one.id for one in session.memories}
    assert [one.id for one in session.prompt(PAST).memories] == [old]


def test_earlier_values_of_others_stay_hidden(desk: Desk) -> None:
    """Forgotten ones, those of another project, and those that no person has confirmed."""
    session = desk.memory.session("run", context="where is heron?")
    gone, foreign, unverified, new = superseded(desk, OLD, NEW, LATEST, OLD + " again")
    alter(desk, gone, deleted_at=desk.clock.now)
    alter(desk, foreign, project="elsewhere")
    alter(desk, unverified, trust="untrusted")
    assert [one.id for one in session.prompt(PAST).memories] == [new]


def test_earlier_values_are_paid_from_the_budget(desks: Callable[..., Desk]) -> None:
    budget = 320
    desk = desks(session_prompt_tokens=budget)
    session = desk.memory.session("run", context="where is heron?")
    *_, new = superseded(desk, *(f"{OLD} {number}" for number in range(12)))
    served = session.prompt(PAST)
    assert served.memories[0].id == new
    assert 1 < len(served.memories) <= desk.memory.services.policy.session.prompt_limit
    assert token_estimate(served.inject) <= budget


def test_what_was_never_delivered_is_replaced_too(desk: Desk) -> None:
    session = desk.memory.session("run", context="where is heron?")
    old, new = desk.note(OLD, NEW)
    asked = PromptRequest("run", desk.memory.scope, ASKED, awaits_receipt=True)
    desk.memory.forget(new)
    assert [one.id for one in pipeline.prompt(desk.memory.services, asked).memories] == [old]
    desk.memory.undo(new)
    link(desk, old, new)
    assert [one.id for one in session.prompt("qqqq zzzz").memories] == [new]


def test_only_a_memory_whose_age_matters_has_a_date(desk: Desk) -> None:
    (gone,) = desk.note("The mascot is an otter")
    desk.clock.go(days=1)
    desk.memory.remember("The mascot is a badger", supersedes=gone)
    desk.note(HERON, "The build cache is now on the second disk")
    desk.note("Never deploy version 2 on Fridays", kind="constraint")
    desk.note("Currently prefers tea", kind="preference")
    desk.memory.remember("The lease is now held by Ida", valid_from="2025-11-03T23:30:00+00:00")
    session = desk.memory.session("run")
    handle = {one.content: one.handle for one in session.memories}
    assert dates(session.inject) == {
        handle["The mascot is a badger"]: "since 3 Mar 2026",
        handle["The build cache is now on the second disk"]: "3 Mar 2026",
        handle["The lease is now held by Ida"]: "3 Nov 2025",
    }


def test_a_block_with_dates_is_the_same_text_again(desk: Desk) -> None:
    chained(desk, OLD, NEW)
    desk.note(HERON, "The build cache is now on the second disk")
    first = desk.memory.session("run", context=PAST)
    assert "(until 3 Mar 2026)" in first.inject
    desk.clock.go(days=400)
    assert desk.memory.session("run").inject == first.inject


def test_dates_are_paid_from_the_budget(desks: Callable[..., Desk]) -> None:
    budget = 400
    desk = desks(session_start_tokens=budget, session_start_limit=50)
    desk.note(*(f"The {text} now" for text in filler(40)))
    session = desk.memory.session("run")
    assert len(dates(session.inject)) == len(session.memories) > 3
    assert token_estimate(session.inject) <= budget


# Not linked: the two shops are two values that the gate cannot tell from two facts.
FORMER = "The bakery that delivers our office bread is Krume"
LATTER = "The bakery that delivers our office bread is Kornfeld"
BREAD = "which bakery delivers the bread for our office?"


def unlinked(desk: Desk) -> tuple[str, str]:
    """Store two notes about one subject three days apart, without a link."""
    [former] = desk.note(FORMER)
    desk.clock.go(days=3)
    [latter] = desk.note(LATTER, on_similar="keep")
    user = desk.memory.scope.user
    assert not [one for one in desk.store.links_of(user, [former]) if one.is_chain]
    return former, latter


def test_a_start_shows_notes_about_one_subject_newest_first(desk: Desk) -> None:
    former, latter = unlinked(desk)
    shown = [one.id for one in desk.memory.session("run", context=BREAD).memories]
    assert shown.index(latter) < shown.index(former)


def test_a_prompt_gets_notes_about_one_subject_newest_first(desk: Desk) -> None:
    desk.memory.session("run", context="tidy the kitchen rota").prompt("is the rota done?")
    former, latter = unlinked(desk)
    served = desk.memory.session("run").prompt(BREAD)
    shown = [one.id for one in served.memories]
    assert shown.index(latter) < shown.index(former)


def test_a_start_about_an_event_keeps_the_order_of_relevance(desk: Desk) -> None:
    former, latter = unlinked(desk)
    asked = "did the office have bread when the bakery that delivers it was Krume?"
    shown = [one.id for one in desk.memory.session("run", context=asked).memories]
    assert shown.index(former) < shown.index(latter)


def doubted(desk: Desk, *texts: str) -> list[str]:
    """Store texts a day apart, each probably a newer value than the one before."""
    ids: list[str] = []
    for text in texts:
        ids += desk.note(text)
        desk.clock.go(days=1)
    for older, newer in itertools.pairwise(ids):
        link(desk, older, newer, "unsure")
    return ids


def test_a_start_shows_both_values_of_an_unsure_chain_the_newer_one_first(desk: Desk) -> None:
    old, new = doubted(desk, OLD, "Heron goes by bus")
    desk.note(HERON, TERSE)
    session = desk.memory.session("run", context=ASKED)
    ids = [one.id for one in session.memories]
    assert ids.index(new) + 1 == ids.index(old)
    handle = {one.id: one.handle for one in session.memories}
    assert dates(session.inject)[handle[old]] == "said 2 Mar 2026"
    assert desk.memory.session("run", context=ASKED).inject == session.inject


def test_a_prompt_gets_both_values_of_an_unsure_chain_the_newer_one_first(desk: Desk) -> None:
    desk.note(HERON)
    session = desk.memory.session("run", context="where is heron?")
    old, new = doubted(desk, OLD, "Heron goes by bus")
    served = session.prompt(ASKED)
    assert [one.id for one in served.memories] == [new, old]
    assert dates(served.inject) == {served.memories[1].handle: "said 2 Mar 2026"}
    assert desk.rows()[new].candidate.was_injected


def test_a_question_about_an_event_keeps_the_order_of_relevance(desk: Desk) -> None:
    desk.note(HERON)
    session = desk.memory.session("run", context="where is heron?")
    old, _ = doubted(desk, OLD, "Heron goes by bus")
    served = session.prompt("when did the release train leave from platform osprey?")
    assert [one.id for one in served.memories] == [old]
