"""The order of short notes about one subject: the newest first.

A person who states a value again rarely says that the former one is over, and no rule of wording
finds all pairs of values. Where two notes share their subject and answer a question about equally
well, the newer one comes first. Nothing is hidden, so a wrong guess costs a place or two.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from meritory.text.claims.compare import words_of
from meritory.text.claims.lexicon import HAN
from meritory.text.words import STOP_WORDS

# Longer texts state several things, so their age says little about one of them.
NOTE_LIMIT_CHARS: Final = 140
# A newer note passes at most this many others.
MAX_PLACES: Final = 3
# It needs this share of the other's score, and of the words of the shorter note.
MIN_SCORE_SHARE: Final = 0.3
MIN_WORD_SHARE: Final = 0.3
# Notes of one day are often parts of one story.
MIN_DAYS_BETWEEN: Final = 1.0
# Only the best results are read: further down the order hardly matters.
READ_COUNT: Final = 20
_STEM_CHARS: Final = 4


class Note(NamedTuple):
    """A ranked note: its score, the day since which it holds, and its text."""

    score: float
    since_days: float
    text: str


def newest_first(notes: Sequence[Note]) -> list[int]:
    """Return the indexes of notes in ranked order, the newest about one subject first."""
    order = list(range(len(notes)))
    end = min(len(order), READ_COUNT)
    place = 0
    while place < end:
        first = notes[order[place]]
        newest = max(
            range(place, min(end, place + 1 + MAX_PLACES)),
            key=lambda at: (_follows(first, notes[order[at]]), notes[order[at]].since_days, -at),
        )
        if _follows(first, notes[order[newest]]):
            order.insert(place, order.pop(newest))
        else:
            place += 1
    return order


def _follows(old: Note, new: Note) -> bool:
    """Return whether a note is a newer one about the subject of another."""
    if new.since_days - old.since_days < MIN_DAYS_BETWEEN:
        return False
    if new.score < MIN_SCORE_SHARE * old.score:
        return False
    left, right = subject_words(old.text), subject_words(new.text)
    return len(left & right) > 0 and len(left & right) >= MIN_WORD_SHARE * min(
        len(left), len(right)
    )


@lru_cache(maxsize=4_096)
def subject_words(text: str) -> frozenset[str]:
    """Return the beginnings of the content words of a note, or nothing for a longer text."""
    if len(text) >= NOTE_LIMIT_CHARS:
        return frozenset()
    words = words_of(text) - STOP_WORDS
    # Chinese has no spaces: each character counts as a word.
    characters = {character for word in words for character in HAN.findall(word)}
    return frozenset({word[:_STEM_CHARS] for word in words if not HAN.search(word)} | characters)
