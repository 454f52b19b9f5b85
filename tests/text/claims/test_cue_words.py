"""A text without the words of any phrase of change states none, in every language."""

from __future__ import annotations

import pytest
from bench.everyday_cases import read_pairs

from meritory.text.claims import cue_words
from meritory.text.claims.compare import words_of
from meritory.text.claims.reading import read_claim


def overlooked(texts: list[str]) -> list[str]:
    """The texts that state a change, in which no phrase of change was seen."""
    return [
        text
        for text in texts
        if not cue_words.may_have_cues(text, words_of(text)) and read_claim(text).may_state_change
    ]


def test_no_change_is_overlooked_in_the_pairs_that_rules_were_made_for() -> None:
    pairs = read_pairs("tune")[::3]
    texts = [text for pair in pairs for text in (pair.first, pair.second)]
    assert overlooked(texts) == []
    # Else the check would spare no reading.
    assert any(not cue_words.may_have_cues(text, words_of(text)) for text in texts)


@pytest.mark.parametrize(
    "text",
    [
        "The shop was re-branded as Harbour",
        "We don't use Jenkins any more",
        "I’ve quit smoking",
        "Der Preis wurde geaendert",
        "我们现在使用 Postgres",
        "Colour printing was modernised",
    ],
)
def test_other_spellings_are_seen(text: str) -> None:
    assert cue_words.may_have_cues(text, words_of(text))


@pytest.mark.parametrize("text", ["The office is in Kiel", "Das Haus ist rot"])
def test_a_plain_claim_needs_no_reading(text: str) -> None:
    assert not cue_words.may_have_cues(text, words_of(text))


def test_a_missing_phrase_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cue_words, "cue_phrases", dict)
    assert overlooked(["The office moved to Kiel"]) == ["The office moved to Kiel"]
