"""The terms by which a memory is recognised again, and what finding each is worth."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meritory.text.terms import (
    COMMON_WEIGHT,
    NAME_WEIGHT,
    PIECE_WEIGHT,
    VALUE_WEIGHT,
    WORD_WEIGHT,
    holders,
    seen_in,
    stem,
    terms_of,
    wording,
)


@pytest.mark.parametrize(
    ("text", "term", "weight"),
    [
        ("it listens on 8080", "8080", VALUE_WEIGHT),
        ("call parse_config first", "parse_config", VALUE_WEIGHT),
        ("see src/conf/settings.py", "src/conf/settings.py", VALUE_WEIGHT),
        ("see src/conf/settings.py", "settings.py", VALUE_WEIGHT),
        ("see src/conf/settings.py:12:4", "src/conf/settings.py", VALUE_WEIGHT),
        ("see src/conf/settings.py", "conf", PIECE_WEIGHT),
        ("install with `pnpm` only", "pnpm", VALUE_WEIGHT),
        ('the "sunset" theme', "sunset", VALUE_WEIGHT),
        ("reviewed by Anna at night", "anna", NAME_WEIGHT),
        ("the server listens", "server", WORD_WEIGHT),
        ("it has seven doors", "7", WORD_WEIGHT),
        ("change the file", "file", COMMON_WEIGHT),
        ("files were changed", "file", COMMON_WEIGHT),
    ],
)
def test_a_term_weighs_by_its_kind(text: str, term: str, weight: float) -> None:
    assert terms_of(text)[term] == weight


def test_stop_words_are_no_terms() -> None:
    assert terms_of("it is what it is, and you don't") == {}


@pytest.mark.parametrize(
    "words",
    [
        "agency agencies",
        "retry retries",
        "cache caches cached caching",
        "plan plans planned planning",
    ],
)
def test_the_forms_of_a_word_are_one_term(words: str) -> None:
    assert len({stem(word) for word in words.split()}) == 1


@pytest.mark.parametrize("word", ["status", "analysis", "pass", "8080", "größe", "bus"])
def test_what_only_looks_like_an_ending_stays(word: str) -> None:
    assert stem(word) == word


def test_a_path_is_seen_under_each_of_its_endings() -> None:
    seen = seen_in("Read /home/me/app/src/conf/settings.py:12")
    assert {"settings.py", "conf/settings.py", "src/conf/settings.py"} <= seen


def test_terms_are_counted_once_per_text() -> None:
    assert holders([terms_of("red red cat"), terms_of("red dog")])["red"] == 2


def test_wording_gives_the_words_back_as_typed() -> None:
    assert wording("Migrations run on deploys", {stem("migration"), stem("deploy")}, 5) == (
        "migrations",
        "deploys",
    )
    assert wording("red green blue", {"red", "green", "blue"}, 2) == ("red", "green")


@given(st.text(max_size=200))
def test_every_text_has_terms_of_known_weights_and_shows_them(text: str) -> None:
    terms = terms_of(text)
    known = {VALUE_WEIGHT, NAME_WEIGHT, WORD_WEIGHT, PIECE_WEIGHT, COMMON_WEIGHT}
    assert set(terms.values()) <= known
    assert set(terms) <= seen_in(text)
    assert list(terms_of(text)) == list(terms)
