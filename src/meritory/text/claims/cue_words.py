"""The words without which a text states no change, so that most texts need no reading for it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Final

from meritory.text.claims.lexicon import (
    GAP,
    HAN,
    LANGUAGES,
    MARK_KINDS,
    Lexicon,
    Phrase,
    lexicon,
)
from meritory.text.claims.spelling import respelled
from meritory.text.words import STOP_WORDS

# The kinds of phrases that a reading takes out of a text as cues; the marks stay in it.
_TAKEN_KINDS: Final = ("now", "actual", "ended", "past", "correction", "actually", "henceforth")
_WORD: Final = re.compile(r"\w+")
# What a reading makes of the last part of a contraction, and of words like it.
_FULL: Final = {
    "s": ("is", "has"), "m": ("am",), "re": ("are",), "ve": ("have",), "ll": ("will",),
    "d": ("would", "had"), "t": ("not", "can", "will"), "cannot": ("not", "can"),
}  # fmt: skip
_TYPED: Final = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss"})


def may_have_cues(text: str, words: frozenset[str]) -> bool:
    """Return False for a text, with its distinct words, whose claim has no cues and no marks."""
    if HAN.search(text):
        return True
    found = {*words, *map(respelled, words)}
    if "-" in text:
        # "Re-branded" is read in one word.
        found.update(_WORD.findall(text.lower().replace("-", "")))
    for part in _FULL.keys() & words:
        found.update(_FULL[part])
    if not _negations().isdisjoint(words):
        found.add("not")
    phrases = cue_phrases()
    return any(needed <= found for word in phrases.keys() & found for needed in phrases[word])


@cache
def cue_phrases() -> Mapping[str, tuple[frozenset[str], ...]]:
    """Return by one of its words the words that each phrase of change needs, in all languages."""
    found: dict[str, set[frozenset[str]]] = {}
    for name in LANGUAGES:
        for needed in _of_language(lexicon(name)) if name != "zh" else ():
            for words in (needed, frozenset(word.translate(_TYPED) for word in needed)):
                found.setdefault(_telling(words), set()).add(words)
    return {word: tuple(phrases) for word, phrases in found.items()}


def _of_language(words: Lexicon) -> Iterator[frozenset[str]]:
    entries = [entry for entries in words.short_forms.values() for entry in entries]
    # A reading puts short forms in place of phrases first. Their common words are taken for given.
    given = STOP_WORDS.intersection(word for _, short in entries for word in short)
    kinds = (*_TAKEN_KINDS, *MARK_KINDS)
    phrases = {_parts(phrase) for kind in kinds for phrase in words.cues[kind]}
    needed = {phrase - given or phrase for phrase in phrases}
    yield from needed
    yield from (frozenset({word}) for word in words.slips | words.weak_slips)
    telling = {word for phrase in needed for word in phrase}
    yield from (_parts(phrase) for phrase, short in entries if not telling.isdisjoint(short))


def _parts(phrase: Phrase) -> frozenset[str]:
    parts = [_WORD.findall(word.lower()) for word in phrase if word != GAP]
    return frozenset(part for found in parts for part in found)


@cache
def _negations() -> frozenset[str]:
    made = (lexicon(name) for name in LANGUAGES)
    return frozenset({"never"}).union(*(words.negations | words.denials for words in made))


def _telling(words: Iterable[str]) -> str:
    """Return the word that few other texts have."""
    return max(words, key=lambda word: (word not in STOP_WORDS, len(word), word))
