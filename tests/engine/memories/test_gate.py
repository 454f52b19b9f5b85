"""The decision of the similarity gate, from memories and cosines alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from contract.builders import NOW, record
from meritory.domain.memory import MemoryRecord
from meritory.engine.memories.gate import (
    COMPARE_THRESHOLD,
    LONG_TEXT_CHARS,
    Gate,
    GateVerdict,
    gate_threshold,
    judge,
    near_or_related,
)
from meritory.store.contract.memories import Near

FLOOR = gate_threshold("static-minilm-256-v1")


def near(number: int, content: str, cosine: float = 0.9, **fields: Any) -> Near:
    return Near(record(number, content, **fields), cosine)


def decide(content: str, *neighbours: Near, **fields: Any) -> GateVerdict:
    new: MemoryRecord = record(90, content, **fields)
    return judge(new, list(neighbours), FLOOR, by_person=True)


def test_another_value_is_kept_and_names_the_older_one() -> None:
    old = near(1, "Our office is in Kiel.")
    verdict = decide("Our office is in Bonn.", old)
    assert (verdict.decision, verdict.chained) == ("kept_both", (old,))


def test_every_older_value_is_chained_from_far_too() -> None:
    olds = near(1, "Our office is in Kiel.", 0.8), near(2, "Our office is in Ulm.", 0.5)
    verdict = decide("Our office is in Bonn.", *olds)
    assert verdict.chained == olds


def test_a_far_neighbour_is_compared_but_not_reported() -> None:
    assert COMPARE_THRESHOLD < 0.5 < FLOOR
    merged = decide("The mail is read by Vera.", near(1, "Vera reads the mail.", 0.5))
    assert merged.decision == "merged"
    assert decide("Vera reads books.", near(1, "Vera reads the mail.", 0.5)).decision == "stored"


def test_a_pin_of_a_person_is_chained_but_not_retired_by_others() -> None:
    old = near(1, "Standup is at 9:30.", pinned=True)
    new = record(90, "Standup is now at 10:00.")
    verdict = judge(new, [old], FLOOR, by_person=False)
    assert (verdict.decision, verdict.chained) == ("kept_both", (old,))


def test_an_update_retires_every_earlier_value() -> None:
    olds = near(1, "Standup is at 9:30."), near(2, "Standup is at 9:45.")
    verdict = decide("Standup is now at 10:00.", *olds)
    assert (verdict.decision, verdict.near, verdict.chained) == ("superseded", olds, ())


def test_an_update_does_not_retire_a_later_statement() -> None:
    later = near(1, "Standup is at 9:30.", valid_from=NOW + timedelta(days=9))
    assert decide("Standup is now at 10:00.", later).decision == "kept_both"


def test_a_long_text_is_compared_with_near_ones_only() -> None:
    gate = Gate("static-minilm-256-v1", FLOOR, COMPARE_THRESHOLD)
    assert gate.floor_for(record(1, "short")) == COMPARE_THRESHOLD
    assert gate.floor_for(record(1, "x" * (LONG_TEXT_CHARS + 1))) == FLOOR


# Five words of content in common, and more than four of its own in each.
BOX = "The nightly import of prices runs on an old grey box under one desk and takes three hours."
CLUSTER = "The nightly import of prices runs in the big tall blue cluster and takes twenty minutes."


def is_wanted(new: str, old: str, cosine: float) -> bool:
    return near_or_related([new], FLOOR)(0, old, cosine)


def test_a_far_neighbour_is_wanted_if_its_words_allow_another_value() -> None:
    assert is_wanted("Our office is in Bonn.", "Our office is in Kiel.", 0.5)
    assert not is_wanted("Our office is in Bonn.", "Vera plays chess.", 0.5)
    assert is_wanted("Our office is in Bonn.", "Vera plays chess.", FLOOR)


def test_without_a_word_of_change_far_texts_differ_in_one_value_at_most() -> None:
    assert not is_wanted(CLUSTER, BOX, 0.6)
    changed = CLUSTER.replace("prices runs", "prices now runs")
    assert is_wanted(changed, BOX, 0.6)
    assert decide(changed, near(1, BOX, 0.6)).decision == "superseded"
    # Nothing is proved about words that are not separated.
    assert is_wanted("办公室在波恩", "办公室在基尔", 0.5)


def test_neighbours_that_are_not_wanted_decide_nothing() -> None:
    olds = [near(1, BOX, 0.6), near(2, "Vera plays chess.", 0.5)]
    assert decide(CLUSTER, *olds) == decide(CLUSTER)
