"""Canonical form, admission and display of texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meritory.domain.errors import InputError, TooLarge
from meritory.text.normalize import (
    MAX_CHARS,
    canonical,
    check_text,
    checked_content,
    content_hash,
    is_same_text,
    shown,
)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("User prefers tabs.", "user  prefers\n tabs"),
        ("It’s “fine” – really", 'it\'s "fine" - really'),
        ("Ｗｉｄｅ letters", "wide letters"),
        ("cafe\u0301", "café"),
        ("to\u200bken\u00ad", "token"),
        ("Rex is a dog!!", "rex is a dog"),
    ],
)
def test_two_writings_of_one_text_are_equal(one: str, two: str) -> None:
    assert canonical(one) == canonical(two)
    assert content_hash(one) == content_hash(two)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("area is 10² m", "area is 102 m"),
        ("1½ cups", "11/2 cups"),
        ("open README.md", "open readme.md"),
        ("call getUser", "call getuser"),
        ("set PATH", "set path"),
        ("in the US", "in the us"),
        ("use `Reader`", "use `reader`"),
        ("it is -5", "it is 5"),
        ("tests pass", "tests pass?"),
        ("cd ..", "cd"),
        ("uses C++", "uses C"),
        ("version 3.1", "version 3.10"),
    ],
)
def test_texts_that_differ_in_meaning_stay_apart(one: str, two: str) -> None:
    assert content_hash(one) != content_hash(two)


@given(st.text())
def test_canonical_form_is_a_fixed_point(text: str) -> None:
    once = canonical(text)
    assert canonical(once) == once


@given(st.text(alphabet="aAıİß’'`\"-–. ,;!²½\u200b\u0301\u0345K", max_size=12))
def test_canonical_form_is_a_fixed_point_for_awkward_letters(text: str) -> None:
    once = canonical(text)
    assert canonical(once) == once


def test_hash_is_sha256_hex() -> None:
    digest = content_hash("a")
    assert len(digest) == 64
    assert digest == "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (b"bytes", "bytes"),
        (None, "NoneType"),
        ("", "8,192"),
        (" \t\n", "8,192"),
        ("\x07\x1b", "8,192"),
        ("\u200b\u202e", "8,192"),
        ("a\x00b", "NUL"),
        ("a\ud800b", "surrogate"),
        ("\ufeff\ufeff", "8,192"),
    ],
)
def test_text_that_cannot_be_stored_is_refused(text: object, word: str) -> None:
    with pytest.raises(InputError, match=word):
        check_text(text)


@pytest.mark.parametrize(
    ("text", "kept"),
    [("\ufeffa", "a"), ("\ufeff\ufeffa", "a"), ("a\ufeffb", "a\ufeffb"), (" \ufeffa", " \ufeffa")],
)
def test_only_a_leading_byte_order_mark_is_removed(text: str, kept: str) -> None:
    assert checked_content(text) == kept
    assert content_hash(text) == content_hash(kept)


def test_a_byte_order_mark_does_not_count_towards_the_limit() -> None:
    assert checked_content("\ufeff" + "x" * MAX_CHARS) == "x" * MAX_CHARS


def test_limit_is_named_and_exact() -> None:
    check_text("x" * MAX_CHARS)
    with pytest.raises(TooLarge, match="8,192"):
        check_text("x" * (MAX_CHARS + 1))


@pytest.mark.parametrize(
    "text", ["a\u202eb", "a\u200bb", "a\ufeffb", "\x1b[31mred", "\ue000", "x", "\U0010ffff"]
)
def test_odd_but_honest_text_is_accepted(text: str) -> None:
    check_text(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("two\nlines\t.", "two\nlines\t."),
        ("\x1b[31m", "\\x1b[31m"),
        ("a\u202eb", "a\\u202eb"),
        ("a\u200bb", "a\\u200bb"),
        ("\ue000", "\\ue000"),
        ("a\rb", "a\\rb".replace("\\r", "\\x0d")),
        ("\U000e0041", "\\U000e0041"),
        ("👨\u200d👩", "👨\u200d👩"),
        ("é 東京", "é 東京"),
    ],
)
def test_shown_escapes_what_a_terminal_would_obey(text: str, expected: str) -> None:
    assert shown(text) == expected


def test_shown_on_one_line_escapes_line_breaks() -> None:
    assert shown("a\nb\tc", one_line=True) == "a\\x0ab\\x09c"


@given(st.text())
def test_shown_leaves_no_control_character(text: str) -> None:
    assert not any(
        ord(char) < 32 or 0x7F <= ord(char) < 0xA0 for char in shown(text, one_line=True)
    )


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("The API is  down.", "the API is down", True),
        ("Ship it!\n", "ship it", True),
        ("Run `make`", "Run `Make`", False),
        ("the api is down", "the API is down", False),
        ("The API is down", "The API was down", False),
        ("...", "!", False),
        ("Café “Blau”", 'café "blau"', True),
    ],
)
def test_the_same_text_is_recognised_without_its_canonical_form(
    one: str, other: str, same: bool
) -> None:
    assert is_same_text(one, other) == same == (canonical(one) == canonical(other))


@given(
    st.text(st.sampled_from("aB .,!\n`'é"), max_size=12),
    st.text(st.sampled_from("aB .,!\n`'é"), max_size=12),
)
def test_same_texts_are_those_of_one_canonical_form(one: str, other: str) -> None:
    assert is_same_text(one, other) == (canonical(one) == canonical(other))
