"""Typos and abbreviations of single words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meritory.text.typos import (
    edit_distance,
    edit_limit,
    nearest,
    other_spellings,
    whole_word,
)

WORDS = st.text("abcd", max_size=8)


@pytest.mark.parametrize(
    ("left", "right", "distance"),
    [
        ("heron", "heron", 0),
        ("heron", "herons", 1),
        ("heron", "hreon", 1),
        ("heron", "heran", 1),
        ("heron", "hern", 1),
        ("kubernetes", "kuberntse", 2),
        ("heron", "crane", 4),
        ("", "ab", 2),
    ],
)
def test_a_typo_is_a_letter_more_or_less_or_another_or_two_swapped(
    left: str, right: str, distance: int
) -> None:
    assert edit_distance(left, right, distance) == distance


@given(WORDS, WORDS)
def test_the_distance_is_symmetric_and_cut_at_the_limit(left: str, right: str) -> None:
    whole = edit_distance(left, right, 16)
    assert whole == edit_distance(right, left, 16)
    assert (whole == 0) is (left == right)
    for limit in (0, 1, 2):
        assert edit_distance(left, right, limit) == min(whole, limit + 1)


def test_short_words_and_identifiers_have_no_typos() -> None:
    assert [edit_limit(word) for word in ("cat", "cats", "heronry", "herons42", "kubernetes")] == [
        0,
        1,
        1,
        0,
        2,
    ]


def test_only_the_nearest_words_are_returned() -> None:
    known = ["heron", "heroin", "hero", "crane", "herons"]
    assert nearest("herom", known, 2) == ["hero", "heron"]
    assert nearest("hreon", known, 2) == ["heron"]
    assert nearest("swift", known, 2) == []


def test_a_stem_becomes_a_word_that_has_it() -> None:
    def stem_of(words: list[str]) -> list[str]:
        return [word.removesuffix("s").removesuffix("e") for word in words]

    assert whole_word("databas", "databse", stem_of) == "database"
    assert whole_word("x", "xy", lambda words: ["" for _ in words]) is None


def test_abbreviations_are_known_both_ways_and_in_several_languages() -> None:
    assert "database" in other_spellings("db")
    assert "db" in other_spellings("database")
    assert "datenbank" in other_spellings("db")
    assert "kubernetes" in other_spellings("k8s")
    assert other_spellings("heron") == ()
