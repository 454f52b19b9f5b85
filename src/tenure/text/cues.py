"""A quick look at a text: might it say that something has changed?"""

from __future__ import annotations

import re
from typing import Final

from tenure.text.stopwords import CHANGE_NOW, CHANGE_VERBS, REPLACE_VERBS

_WORDS: Final = re.compile(r"[a-z]+")
_SINGLE: Final = CHANGE_NOW | CHANGE_VERBS | REPLACE_VERBS | frozenset({"instead", "anymore"})
_PHRASES: Final = ("no longer", "any more", "as of", "from now on", "used to", "not any")


def says_change(text: str) -> bool:
    """Whether a text holds a word that a statement of change needs; most texts do not."""
    lowered = text.lower()
    if any(phrase in lowered for phrase in _PHRASES):
        return True
    return not _SINGLE.isdisjoint(_WORDS.findall(lowered))
