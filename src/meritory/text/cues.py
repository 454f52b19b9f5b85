"""Quick looks at texts, to spare the careful reading where it cannot change the verdict."""

from __future__ import annotations

import re
from typing import Final

from meritory.text.stopwords import CHANGE_NOW, CHANGE_VERBS, REPLACE_VERBS

# With more words than this on either side that the other lacks, two texts are neither one claim
# nor one that changed: only articles, fillers and a few interchangeable words may differ.
MANY_OWN_WORDS: Final = 8
_WORDS: Final = re.compile(r"\w+")
_SINGLE: Final = CHANGE_NOW | CHANGE_VERBS | REPLACE_VERBS | frozenset({"instead", "anymore"})
_PHRASES: Final = ("no longer", "any more", "as of", "from now on", "used to", "not any")


def words_of(text: str) -> frozenset[str]:
    """The distinct words of a text, in lower case."""
    return frozenset(_WORDS.findall(text.lower()))


def says_change(text: str) -> bool:
    """Whether a text holds a word that a statement of change needs; most texts do not."""
    lowered = text.lower()
    if any(phrase in lowered for phrase in _PHRASES):
        return True
    return not _SINGLE.isdisjoint(_WORDS.findall(lowered))


def clearly_differ(old: frozenset[str], new: frozenset[str]) -> bool:
    """Whether both texts have many words of their own."""
    return min(len(old - new), len(new - old)) > MANY_OWN_WORDS
