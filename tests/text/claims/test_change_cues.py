"""The quick looks agree with the careful reading."""

from __future__ import annotations

import pytest
from bench.gate_pairs import CHANGES, PARAPHRASES

from meritory.text.claims.compare import clearly_differ, compare, says_change, words_of


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_every_stated_change_is_noticed_at_a_glance(old: str, new: str) -> None:
    if compare(old, new).relation == "supersede":
        assert says_change(new)


def test_ordinary_statements_say_no_change() -> None:
    for text in ("The badger sleeps in the barn", "Anna prefers tea", "We know it snows"):
        assert not says_change(text)


@pytest.mark.parametrize(("old", "new"), [*PARAPHRASES, *CHANGES])
def test_nothing_that_is_one_claim_clearly_differs(old: str, new: str) -> None:
    if compare(old, new).relation != "keep_both":
        assert not clearly_differ(words_of(old), words_of(new))


def test_two_texts_with_one_sentence_in_common_clearly_differ() -> None:
    shared = "The staging database is called heron."
    one = f"{shared} Anna bought nine green apples near an old station yesterday evening."
    other = f"{shared} Our quarterly budget review moved because several managers were ill."
    assert clearly_differ(words_of(one), words_of(other))
    assert compare(one, other).relation == "keep_both"
