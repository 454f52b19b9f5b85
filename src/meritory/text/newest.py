"""The order of notes about one subject: the newest first.

A person who states a value again rarely says that the former one is over, and no rule of wording
finds all pairs of values. Where two notes are near each other in words and meaning, and answer a
question about equally well, the newer one comes first. Nothing is hidden, so a wrong guess costs
a place or two.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meritory.text.claims.compare import words_of
from meritory.text.claims.lexicon import HAN, LANGUAGES, lexicon
from meritory.text.words import STOP_WORDS

# Longer texts state several things, so their age says little about one of them.
NOTE_LIMIT_CHARS: Final = 140
# Longer texts up to this count if both state an amount of the same thing.
TURN_LIMIT_CHARS: Final = 400
# A newer note passes at most this many others; a longer text only the one before it.
MAX_PLACES: Final = 3
# It needs this share of the other's score.
MIN_SCORE_SHARE: Final = 0.3
# Of two notes, the cosine and the share of the words of the shorter one have this sum.
MIN_NEARNESS: Final = 0.6
# Notes whose sum is this are about one subject, whatever is asked for.
VERY_NEAR: Final = 0.8
# The cosine of a note without a vector: too little for notes that share no words.
UNKNOWN_COSINE: Final = 0.3
# Notes of one day are often parts of one story.
MIN_DAYS_BETWEEN: Final = 1.0
# Only the best results are read: further down the order hardly matters.
READ_COUNT: Final = 20
_STEM_CHARS: Final = 4
# The last clause of a question: what precedes it may be a statement.
_ASKED: Final = re.compile(r"(?:^|(?<=[.!?;,。！？；，\n]))[^.!?;,。！？；，\n]*[?？]")

Vectors = NDArray[np.float32]


class Note(NamedTuple):
    """A ranked note: its score, the day since which it holds, and its text."""

    score: float
    since_days: float
    text: str


def newest_first(
    notes: Sequence[Note],
    vectors: Vectors,
    reach: int = MAX_PLACES,
    nearness: float = MIN_NEARNESS,
) -> list[int]:
    """Return the indexes of notes in ranked order, the newest about one subject first.

    Vectors are unit rows, one for each note, and zero where there is none.
    """
    order = list(range(len(notes)))
    if len(notes) < 2:
        return order
    needed = _needed_shares(notes, vectors, nearness)
    place = 0
    while place < min(len(order), READ_COUNT):
        old = order[place]
        following = [
            (notes[order[at]].since_days, -at)
            for at in range(place + 1, min(place + 1 + reach, len(order)))
            if needed[old][order[at]] <= 1.0
            and _is_near(notes[old], notes[order[at]], needed[old][order[at]], at - place)
        ]
        if following:
            order.insert(place, order.pop(-max(following)[1]))
        else:
            place += 1
    return order


def _needed_shares(notes: Sequence[Note], vectors: Vectors, nearness: float) -> list[list[float]]:
    """Return what share of words makes each note a newer one about the subject of another."""
    score, since_days = np.array([note[:2] for note in notes]).T
    is_known = vectors.any(axis=1)
    cosine = np.where(np.logical_and.outer(is_known, is_known), vectors @ vectors.T, UNKNOWN_COSINE)
    is_later = np.subtract.outer(since_days, since_days).T >= MIN_DAYS_BETWEEN
    is_relevant = np.less_equal.outer(MIN_SCORE_SHARE * score, score)
    shares: list[list[float]] = np.where(is_later & is_relevant, nearness - cosine, np.inf).tolist()
    return shares


def _is_near(old: Note, new: Note, share: float, places: int) -> bool:
    """Return whether two notes, so many places apart, share at least this share of words."""
    length = max(len(old.text), len(new.text))
    if length >= NOTE_LIMIT_CHARS:
        if length >= TURN_LIMIT_CHARS or places > 1:
            return False
        if not amounts(old.text) & amounts(new.text):
            return False
    left, right = subject_words(old.text), subject_words(new.text)
    shared = len(left & right)
    return shared > 0 and shared >= share * min(len(left), len(right))


@lru_cache(maxsize=4_096)
def subject_words(text: str) -> frozenset[str]:
    """Return the beginnings of the content words of a note, without those of a question."""
    words = words_of(_ASKED.sub(" ", text)) - STOP_WORDS
    # Chinese has no spaces: each character counts as a word.
    characters = {character for word in words for character in HAN.findall(word)}
    return frozenset({word[:_STEM_CHARS] for word in words if not HAN.search(word)} | characters)


@lru_cache(maxsize=4_096)
def amounts(text: str) -> frozenset[str]:
    """Return the beginnings of the units that a text has a number of."""
    units = {unit for found in _amount().findall(text.lower()) for unit in found}
    return frozenset(unit[:_STEM_CHARS] for unit in units - STOP_WORDS if unit)


@cache
def _amount() -> re.Pattern[str]:
    """Return the pattern of a number with its unit, or with the one or two words after it."""
    numbers = {word: value for one in LANGUAGES for word, value in lexicon(one).numbers.items()}
    # "One" is often no number.
    words = "|".join(sorted(word for word, value in numbers.items() if value not in ("0", "1")))
    return re.compile(
        rf"([€$£¥])?(?:\d[\d.,:]*|\b(?:{words})\b)\s*(%|[€$£¥]|[^\W\d_]+)?(?:\s+([^\W\d_]+))?"
    )
