"""Merge, supersede, chain or keep both: nothing is ever merged away."""

from __future__ import annotations

import pytest
from bench.gate_made import paraphrase_pairs, value_pairs, word_pairs
from bench.gate_pairs import CHANGES, DISTINCT, NOT_CHANGES, PARAPHRASES
from hypothesis import assume, given
from hypothesis import strategies as st

from meritory.text.claims.compare import compare
from meritory.text.claims.read import protected_values, units_of

# The last ten of the list are said in other words; the rule does not claim to see through that.
PROVABLE = PARAPHRASES[:-10]
FACTS = (
    "The nightly backup of the blue server runs on Monday at 02:00 before the tests.",
    "Anna told Bob that the red team in Berlin has 3 new servers since January.",
    "User likes green tea more than coffee and always drinks it in the morning with Carlos.",
    "She said that her brother must leave the office in London after two weeks.",
    "The service is slow because all workers wait for the old queue from Paris.",
)
VOCABULARY = """
    anna bob likes tea coffee not never always must may before after the a in on from to is was
    has 3 5 and or only now no longer berlin paris user manages server `x` "y" /etc/z
"""
WORDS = st.sampled_from(VOCABULARY.split())
TEXTS = st.lists(WORDS, min_size=1, max_size=9).map(" ".join)


def relation(old: str, new: str) -> str:
    return compare(old, new).relation


@pytest.mark.parametrize(("old", "new"), PROVABLE)
def test_one_claim_said_twice_is_merged(old: str, new: str) -> None:
    assert relation(old, new) == "merge"
    assert relation(new, old) == "merge"


@pytest.mark.parametrize(("old", "new"), DISTINCT)
def test_near_but_different_claims_are_both_kept(old: str, new: str) -> None:
    assert relation(old, new) in {"keep_both", "chain"}
    assert relation(new, old) in {"keep_both", "chain"}


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_a_stated_change_supersedes(old: str, new: str) -> None:
    verdict = compare(old, new)
    assert (verdict.relation, verdict.survivor) == ("supersede", "new")


@pytest.mark.parametrize(("old", "new"), NOT_CHANGES)
def test_a_change_word_alone_supersedes_nothing(old: str, new: str) -> None:
    assert relation(old, new) in {"keep_both", "chain"}


def test_a_changed_value_in_real_prose_is_never_merged() -> None:
    pairs = [*value_pairs(FACTS), *word_pairs(FACTS)]
    assert len(pairs) > 60
    assert [pair for pair in pairs if relation(pair.old, pair.new) == "merge"] == []
    assert [pair for pair in pairs if relation(pair.new, pair.old) == "merge"] == []


def test_restatements_of_real_prose_are_merged() -> None:
    pairs = list(paraphrase_pairs(FACTS))
    merged = [pair for pair in pairs if relation(pair.old, pair.new) == "merge"]
    assert len(pairs) >= 10
    assert len(merged) == len(pairs)


@given(st.text())
def test_a_text_and_itself_are_one(text: str) -> None:
    assert relation(text, text) == "merge"


@given(st.text(), st.text())
def test_no_two_texts_raise(old: str, new: str) -> None:
    verdict = compare(old, new)
    assert verdict.reason
    assert verdict.survivor in {"old", "new"}


@given(TEXTS, st.integers(0, 10**6), st.integers(0, 10**6), TEXTS)
def test_another_number_is_never_merged(lead: str, one: int, two: int, tail: str) -> None:
    assume(one != two)
    old, new = f"{lead} {one} {tail}", f"{lead} {two} {tail}"
    assert relation(old, new) != "merge"
    assert relation(new, old) != "merge"


@given(TEXTS, WORDS, st.data())
def test_a_merge_drops_no_value(text: str, word: str, data: st.DataObject) -> None:
    words = text.split()
    place = data.draw(st.integers(0, len(words)))
    edits = (
        [*words[:place], word, *words[place:]],
        [*words[:place], *words[place + 1 :]],
        [*words[:place], word, *words[place + 1 :]],
        [*words[place:], *words[:place]],
        [*words, "and", word],
    )
    edited = " ".join(data.draw(st.sampled_from(edits)))
    verdict = compare(text, edited)
    if verdict.relation == "merge":
        kept, dropped = (edited, text) if verdict.survivor == "new" else (text, edited)
        held, lost = protected_values(kept), protected_values(dropped)
        for field in ("numbers", "identifiers", "paths", "quotes"):
            assert set(getattr(lost, field)) <= set(getattr(held, field))
        assert lost.negation_count == held.negation_count


@given(TEXTS, TEXTS)
def test_merging_does_not_depend_on_the_order(old: str, new: str) -> None:
    assert (relation(old, new) == "merge") == (relation(new, old) == "merge")


def test_values_of_a_text() -> None:
    text = (
        'Anna does not use `foo_bar` v2 in /etc/app.toml: the "new" limit is 1,500 ms, not $5, '
        "ask @rex about #infra and getUser in US by Friday, twenty-five times"
    )
    values = protected_values(text)
    assert values.numbers == ("1500", "5", "25")
    assert values.identifiers == ("foo_bar", "v2", "@rex", "#infra", "getUser", "US")
    assert values.paths == ("/etc/app.toml",)
    assert values.quotes == ("new",)
    assert values.names == ("friday",)
    assert values.negation_count == 2
    assert values.specific_count == 11


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("uses Postgres", "uses Postgres 16", "new"),
        ("uses `ruff` here", "uses a linter here, I believe", "old"),
        ("maybe uses tabs", "uses tabs", "new"),
        ("uses tabs", "certainly uses tabs", "new"),
        ("uses tabs", "uses tabs", "old"),
    ],
)
def test_the_more_specific_text_survives(old: str, new: str, expected: str) -> None:
    assert compare(old, new).survivor == expected


def test_a_text_that_says_more_survives_even_when_hedged() -> None:
    verdict = compare("I think user likes tea and wants more", "user likes tea")
    assert (verdict.relation, verdict.survivor) == ("merge", "old")


def test_the_reason_names_what_differs() -> None:
    assert "tabs / spaces" in compare("User bought tabs", "User bought spaces").reason
    assert "tabs is now spaces" in compare("User prefers tabs", "User prefers spaces").reason
    assert "another order" in compare("Anna manages Bob", "Bob manages Anna").reason
    assert "30 is now 60" in compare("The timeout is 30 s", "The timeout is now 60 s").reason
    assert "30 is now 60" in compare("The timeout is 30 s", "The timeout is 60 s").reason


@given(st.text(alphabet="aA1.,:/\\'\"`-+#@ \n~_$", max_size=60))
def test_every_letter_and_digit_is_in_some_unit(text: str) -> None:
    kept = "".join(unit.key for unit in units_of(text)).lower()
    assert sum(map(str.isalpha, kept)) >= sum(map(str.isalpha, text)) or "'" in text
