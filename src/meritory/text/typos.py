"""Typos and abbreviations of single words: edit distance, the nearest word, other spellings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Final

from meritory.text.language import read_language

# Shorter words have too many neighbours.
MIN_CHARS: Final = 4
# From this length on a word may have two typos.
LONG_CHARS: Final = 8
_LANGUAGES: Final = ("en", "de", "fr", "es")
# Endings that a stem may have lost.
_ENDINGS: Final = ("", "e", "s", "es", "y", "er", "ing", "ed", "ion", "ation", "ment", "al")


def edit_limit(word: str) -> int:
    """Return how many typos a word may have and still be recognised."""
    if len(word) < MIN_CHARS or not word.isalpha():
        return 0
    return 1 if len(word) < LONG_CHARS else 2


def edit_distance(left: str, right: str, limit: int) -> int:
    """Return the number of letters to insert, drop, replace or swap; `limit` + 1 if more."""
    if abs(len(left) - len(right)) > limit:
        return limit + 1
    before: list[int] = []
    row = list(range(len(right) + 1))
    for at, letter in enumerate(left, 1):
        before, last, row = row, before, [at]
        for place, other in enumerate(right, 1):
            gap = min(before[place], row[place - 1]) + 1
            cost = min(gap, before[place - 1] + (letter != other))
            if at > 1 < place and letter == right[place - 2] and other == left[at - 2]:
                cost = min(cost, last[place - 2] + 1)
            row.append(cost)
        if min(row) > limit:
            return limit + 1
    return min(row[-1], limit + 1)


def nearest(word: str, known: Iterable[str], limit: int) -> list[str]:
    """Return the known words that are nearest to a word within a limit, in alphabetical order."""
    best: list[str] = []
    letters = set(word)
    for other in known:
        # Each typo changes at most two letters of the set: most words are left out here.
        if abs(len(other) - len(word)) > limit or len(letters ^ set(other)) > 2 * limit:
            continue
        distance = edit_distance(word, other, limit)
        if distance < limit:
            limit, best = distance, []
        if distance == limit:
            best.append(other)
    return sorted(best)


def whole_word(stem: str, typed: str, stem_of: Callable[[list[str]], list[str]]) -> str | None:
    """Return a word with a stem, the one most like the typed word; None if none is known."""
    tails = (typed[at:] for at in range(max(len(stem) - 2, 0), len(typed)))
    made = [stem + ending for ending in (*_ENDINGS, *tails)]
    if stem.endswith("i"):
        made.append(stem[:-1] + "y")
    words = [word for word, found in zip(made, stem_of(made), strict=True) if found == stem]
    return min(words, key=lambda word: (edit_distance(typed, word, 3), word), default=None)


def other_spellings(term: str) -> tuple[str, ...]:
    """Return the words that a word is an abbreviation of, and its abbreviations."""
    return _spellings().get(term, ())


@cache
def _spellings() -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for language in _LANGUAGES:
        for group in read_language(f"{language}/recall")["abbreviations"]["groups"]:
            words = group.split()
            for word in words:
                others = dict.fromkeys(one for one in words if one != word)
                found.setdefault(word, {}).update(others)
    return {word: tuple(others) for word, others in found.items()}
