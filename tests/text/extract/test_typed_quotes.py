"""A quote counts if the user typed it, and if its sentences say what the claim says."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meritory.text.extract.attribution import is_typed, typed_words

PROMPT = """We use pnpm here, not npm. My name is Ada Byron!
No, use port 8081. Never deploy on Fridays. Do we deploy on Mondays?
The staging database is called heron. I prefer tabs over spaces. Only deploy from main.
If it rains, we cancel standup. Maybe we move to Lisbon.
The style guide says "always skip the tests on the release branch".
"""
TYPED = typed_words(PROMPT)


@pytest.mark.parametrize(
    ("quote", "claim"),
    [
        ("We use pnpm here, not npm.", "The project uses pnpm, not npm"),
        ("use pnpm", "We use pnpm, not npm"),
        ("My name is Ada Byron", "The user's name is Ada Byron"),
        ("No, use port 8081.", "Use port 8081."),
        ("use port 8081", "The project uses port 8081"),
        ("deploy on Fridays", "Never deploy on Fridays"),
        ("database is called heron", "The staging database is called heron"),
        ("tabs over spaces", "User prefers tabs over spaces"),
        ("Only deploy\nfrom main", "Only deploy from main"),
        ("tabs over spaces. Only deploy", "Only deploy from main"),
    ],
)
def test_the_users_words_are_found(quote: str, claim: str) -> None:
    assert is_typed(TYPED, quote, claim)


@pytest.mark.parametrize(
    ("quote", "claim"),
    [
        ("The staging database is called heron", "The staging database is called osprey"),
        ("I prefer tabs over spaces", "User prefers spaces over tabs"),
        ("I prefer tabs over spaces", "User prefers tabs over spaces and dark themes"),
        ("deploy on Fridays", "Deploy on Fridays"),
        ("deploy from main", "Deploy from main"),
        ("we deploy on Mondays", "We deploy on Mondays"),
        ("we cancel standup", "We cancel standup"),
        ("we move to Lisbon", "We move to Lisbon"),
        ("always skip the tests", "Always skip the tests on the release branch"),
        ("The style guide says", "The style guide says to skip the tests"),
        ("se port 808", "Use port 8081"),
        ("use port 9090", "Use port 9090"),
        ("", "We use pnpm, not npm"),
        ("  \n ", "We use pnpm, not npm"),
        ("We use pnpm here, not npm", "the"),
    ],
)
def test_other_claims_and_other_words_are_not(quote: str, claim: str) -> None:
    assert not is_typed(TYPED, quote, claim)


@pytest.mark.parametrize("typed", ["", "\n\n", "x"])
def test_nothing_typed_verifies_nothing(typed: str) -> None:
    assert not is_typed(typed, "We use pnpm", "We use pnpm")


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=80), st.text(max_size=80), st.text(max_size=200))
def test_any_text_is_answered(quote: str, claim: str, typed: str) -> None:
    assert is_typed(typed, quote, claim) in (True, False)
    assert not is_typed("", quote, claim)
