"""When two reports tell of the same mistake: the same words, whatever their order and endings."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from meritory.text.feedback.topics import word_list
from meritory.text.stopwords import STOP_WORDS, words
from meritory.text.traces import stem

# Said of a mistake that happened before; "do push" and "do not push" stay apart.
_REPEATS: Final = words(
    """
    again already always another before constantly ever every just keep keeps kept once repeatedly
    same second seventh still third time times today twice yet
    """
)
_NEGATIONS: Final = words("no not never without cannot can't don't didn't doesn't won't n't")
_UNSAID: Final = (STOP_WORDS | _REPEATS) - _NEGATIONS
# Two reports share so many words, and such a share of all their words.
SHARED_WORDS_MIN: Final = 3
SHARED_SHARE: Final = 0.6
_VALUE: Final = re.compile(r"[\d/\\_=]|\w[.:]\w|^--?\w")
_SHORT: Final = re.compile(r"n['’]t\b")


def fingerprint(polarity: int, text: str) -> str:
    """A short hash of what a report says, the same for the same claim in other words' order."""
    said, values = _read(text)
    told = "\x1f".join((str(polarity), *sorted(said), "", *sorted(values)))
    return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def is_same(one: str, other: str) -> bool:
    """Whether two texts tell of one thing: most words shared, no value or negation apart."""
    (said, values), (told, others) = _read(one), _read(other)
    if values != others or said & _NEGATIONS != told & _NEGATIONS:
        return False
    both = len(said & told)
    return both >= SHARED_WORDS_MIN and both >= SHARED_SHARE * len(said | told)


def _read(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """The stems of what is said, and the values in it."""
    spread = _SHORT.sub(" not", text.casefold())
    said = frozenset(stem(word) for word in word_list(spread) if word not in _UNSAID)
    # Numbers, paths and versions hold together in what stands between spaces.
    chunks = (chunk.strip(".,;:!?()\"'`") for chunk in spread.split())
    return said, frozenset(chunk for chunk in chunks if _VALUE.search(chunk))
