"""Feedback: kept exactly as it was, counted, and gone with the memory it became."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from contract.builders import NOW, insert, memory_id, record
from contract.shelf import Shelf
from meritory.domain.errors import InputError, NotFound
from meritory.domain.feedback import Belief, FeedbackEvent, FeedbackQuery, Issue, Testimony
from meritory.domain.memory import Scope
from meritory.rank.feedback import RiskTally
from meritory.store.contract.store import Store

LESSON = memory_id(7)


def event(number: int, **fields: Any) -> FeedbackEvent:
    values: dict[str, Any] = {
        "id": memory_id(number),
        "at": NOW + timedelta(minutes=number),
        "signal": "👎",
        "polarity": -1,
        "status": "promoted",
        "user": "default",
    }
    return FeedbackEvent(**(values | fields))


WHOLE = event(
    1,
    reason="lesson",
    project="shop",
    agent="coder",
    session_key="s-1",
    origin="agent",
    context="c",
    what_went_wrong="w",
    what_to_change="t",
    what_worked="k",
    reasoning="r",
    visual_evidence="v",
    skill="deploy",
    tags=("git", "ünï"),
    domain="git",
    last_action={"tool": "Bash", "file": "a.py"},
    rubric={"scores": [], "guardrails": {"x": None}, "weighted_score": 0.5},
    diagnosis={"category": "system_failure", "evidence": []},
    quality=0.85,
    issues=(Issue("memory_ids", "no memory 'x'"),),
    memory_ids=(memory_id(3),),
    memory_id=LESSON,
    occurrence=2,
    completed_at=NOW,
)


def add(store: Store, *events: FeedbackEvent) -> None:
    for event in events:
        store.write(event.user, lambda t, event=event: t.add_feedback(event))


class Feedback:
    """Reports, lessons, words on memories, beliefs."""

    def test_a_report_comes_back_as_it_was(self, store: Store, shelf: Shelf) -> None:
        add(store, WHOLE, event(2))
        assert store.feedback_event("default", WHOLE.id) == WHOLE
        assert shelf.reopen().feedback_event("default", WHOLE.id) == WHOLE

    def test_a_report_is_replaced_whole(self, store: Store) -> None:
        add(store, event(1, status="rejected"))
        store.write("default", lambda t: t.replace_feedback(WHOLE))
        assert store.feedback_event("default", WHOLE.id) == WHOLE
        assert len(store.feedback_events("default", FeedbackQuery())) == 1

    def test_prefixes_name_one_report_of_ones_own(self, store: Store) -> None:
        add(store, event(1), event(2, user="other"))
        with pytest.raises(NotFound):
            store.feedback_event("default", memory_id(2))
        for absurd in ("", "abc", "é" * 26, "x" * 100, "%"):
            with pytest.raises(NotFound):
                store.feedback_event("default", absurd)
        add(store, event(3))
        with pytest.raises(InputError):
            store.feedback_event("default", memory_id(1)[:20])

    def test_a_listing_is_filtered_and_paged(self, store: Store) -> None:
        add(store, *(event(n, polarity=1 if n % 2 else -1, domain=f"d{n % 3}") for n in range(9)))
        add(store, event(20, user="other"))
        found = store.feedback_events("default", FeedbackQuery(limit=4))
        assert [one.id for one in found] == [memory_id(n) for n in (8, 7, 6, 5)]
        more = store.feedback_events("default", FeedbackQuery(before=found[-1].id, limit=100))
        assert [one.id for one in more] == [memory_id(n) for n in (4, 3, 2, 1, 0)]
        some = store.feedback_events("default", FeedbackQuery(polarity=1, domain="d1"))
        assert [one.id for one in some] == [memory_id(n) for n in (7, 1)]

    def test_counts_approvals_and_tallies(self, store: Store) -> None:
        add(store, *(event(n, polarity=1, tags=("a",)) for n in range(3)))
        bash = {"tool": "Bash"}
        add(store, *(event(n, tags=("a", "b"), last_action=bash) for n in range(3, 7)))
        add(store, event(7, polarity=0, status="rejected", tags=("a",)), event(8, user="other"))
        counts = {(c.polarity, c.status): c.count for c in store.feedback_counts("default")}
        assert counts == {(1, "promoted"): 3, (-1, "promoted"): 4, (0, "rejected"): 1}
        assert max(c.last_at for c in store.feedback_counts("default")) == NOW + timedelta(
            minutes=7
        )
        assert store.approvals("default") == (3, 4)
        assert store.approvals("default", limit=5) == (1, 4)
        assert store.approvals("default", since=NOW + timedelta(minutes=5)) == (0, 2)
        assert store.approvals("nobody") == (0, 0)
        assert set(store.feedback_tallies("default", None)) == {
            RiskTally("tag", "a", 3, 4),
            RiskTally("tag", "b", 0, 4),
            RiskTally("tool", "Bash", 0, 4),
            RiskTally("domain", "general", 3, 4),
        }

    def test_a_wording_stands_for_a_lesson_in_its_scope(self, store: Store) -> None:
        scope = Scope("default", None, "shop")
        store.write(scope.user, lambda t: t.put_wording(scope, "f", "m1"))
        assert store.lesson_for(scope, "f") == "m1"
        for other in (
            Scope("other", None, "shop"),
            Scope("default"),
            Scope("default", "x", "shop"),
        ):
            assert store.lesson_for(other, "f") is None
        store.write(scope.user, lambda t: t.put_wording(scope, "f", "m2"))
        assert store.lesson_for(scope, "f") == "m2"

    def test_reports_of_a_lesson_are_counted(self, store: Store) -> None:
        counts = [
            store.write(
                "default",
                lambda t, n=n: t.count_report("default", LESSON, -1, NOW + timedelta(days=n)),
            )
            for n in range(3)
        ]
        assert counts == [1, 2, 3]
        found = store.lessons("default", [LESSON, "nothing"])[LESSON]
        assert (found.report_count, found.first_at) == (3, NOW)
        assert found.last_at == NOW + timedelta(days=2)
        assert store.lessons("other", [LESSON]) == {}

    def test_one_report_has_one_word_on_a_memory(self, store: Store) -> None:
        first, second = Testimony(NOW, "person", 1.0, "s"), Testimony(NOW, "agent", -1.0)
        store.write("default", lambda t: t.add_testimony("default", "f1", {"m": first}))
        again = store.write("default", lambda t: t.add_testimony("default", "f1", {"m": second}))
        assert again == {"m": [second]}
        store.write("default", lambda t: t.add_testimony("default", "f2", {"m": first, "n": first}))
        assert store.testimony("default", ["m", "n", "o"]) == {"m": [first, second], "n": [first]}
        assert store.testimony("other", ["m"]) == {}

    def test_only_live_memories_are_contested(self, store: Store) -> None:
        fight = Belief(2.0, 1.5, 0.0, 20_000.0)
        for number in (1, 2, 3):
            insert(store, record(number))
        beliefs = {memory_id(1): fight, memory_id(2): replace(fight, doubt=0.1), "gone": fight}
        store.write("default", lambda t: t.put_beliefs("default", beliefs))
        (found,) = store.contested("default", 10)
        assert (found.memory.id, found.belief) == (memory_id(1), fight)
        assert store.contested("other", 10) == []
        store.write("default", lambda t: t.put_beliefs("default", {memory_id(1): Belief()}))
        assert store.contested("default", 10) == []

    def test_a_purge_takes_the_reports_that_told_it_along(self, store: Store) -> None:
        insert(store, record(7, "a lesson"))
        add(store, WHOLE, event(2, memory_ids=(LESSON,)))
        said = Testimony(NOW, "person", 1.0)

        def learn(transaction: Any) -> None:
            transaction.put_wording(WHOLE.scope, "f", LESSON)
            transaction.count_report("default", LESSON, -1, NOW)
            transaction.add_testimony("default", WHOLE.id, {LESSON: said})
            transaction.put_beliefs("default", {LESSON: Belief(2.0, 2.0)})

        store.write("default", learn)
        store.write("default", lambda t: t.purge("default", LESSON))
        assert [one.id for one in store.feedback_events("default", FeedbackQuery())] == [
            memory_id(2)
        ]
        assert store.lesson_for(WHOLE.scope, "f") is None
        assert store.lessons("default", [LESSON]) == {}
        assert store.testimony("default", [LESSON]) == {}
        assert store.contested("default", 10) == []
