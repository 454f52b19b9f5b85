"""The training of the weights: what it learns from, and that it learns."""

from __future__ import annotations

import random

from bench.everyday_extraction import LANGUAGES, Label, Wanted
from bench.extraction_weights import check, judged, labelled, made, trained, written


def test_made_clauses_are_cut_out_of_their_sentences() -> None:
    examples = list(made(2))
    assert {one.language for one in examples} == set(LANGUAGES)
    assert {one.is_kept for one in examples} == {True, False}
    for one in examples:
        assert one.clauses.sentence.text[slice(*one.span)].strip()
    assert not set(written("{a|b} c", random.Random(1)).lower()) & set("{|}")


def test_half_of_a_statement_teaches_nothing() -> None:
    label = Label("en", "fact_self", (Wanted((("Oslo",), ("moved",))),), "I moved to Oslo.")
    assert judged(label, "I moved to Oslo") is True
    assert judged(label, "to Oslo") is None
    assert judged(label, "the signature") is False


def test_the_weights_find_what_they_learned_and_nothing_when_they_learned_the_opposite() -> None:
    wanted = (Wanted((("Kafka",),)),)
    turns = [
        *(Label("en", "fact_team", wanted, f"We use Kafka for {name}.") for name in ("it", "all")),
        *(Label("en", "chatter", (), f"I feel {mood} today.") for mood in ("tired", "fine")),
    ] * 5
    taught = list(labelled(turns))
    assert next(check(turns, trained(taught))).endswith("kept 1.000 of 10, right 1.000 of 10")
    flipped = [type(one)(one.clauses, one.language, one.span, not one.is_kept) for one in taught]
    assert "kept 0.000" in next(check(turns, trained(flipped)))
