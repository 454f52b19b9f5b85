"""Which words and phrases of a question a text contains, by the beginnings of its words."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence

from meritory.text.terms import index_words, stem

# More of a text says little about what it is about.
READ_CHARS = 2_000
# A shorter word is found as a whole word only.
_WHOLE_CHARS = 3


class WordFinder:
    """The words and phrases of a question, ready to be looked for in many texts."""

    def __init__(
        self,
        terms: Sequence[str],
        phrases: Sequence[str] = (),
        read_as: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """`read_as` has other words that count as a term."""
        others = read_as or {}
        self._beginnings = [
            [_folded(stem(word)) for word in (term, *others.get(term, ()))] for term in terms
        ]
        self._phrases = [_folded(phrase) for phrase in phrases]

    def find(self, text: str) -> tuple[list[bool], int]:
        """Return for each term whether a word begins with its stem, and the number of phrases."""
        plain = _folded(text[:READ_CHARS])
        found = [False] * len(self._beginnings)
        for at, words in enumerate(self._beginnings):
            for word in words:
                if word in plain and _contains(plain, word):
                    found[at] = True
                    break
        return found, sum([phrase in plain for phrase in self._phrases])

    def find_parts(self, text: str) -> list[bool]:
        """Return for each term whether the text or a part of its identifiers begins with it."""
        opening = text[:READ_CHARS]
        return self.find(f"{opening} {index_words(opening)}")[0]


def _folded(text: str) -> str:
    """Return a text in lower case and without accents, as the full-text index has it."""
    if text.isascii():
        return text.lower()
    parts = unicodedata.normalize("NFD", text.casefold())
    return "".join(part for part in parts if not unicodedata.combining(part))


def _contains(text: str, beginning: str) -> bool:
    at = text.find(beginning) if beginning else -1
    while at >= 0:
        end = at + len(beginning)
        # Scripts without spaces have no beginnings of words.
        is_start = at == 0 or not text[at - 1].isalnum() or not beginning[0].isascii()
        is_whole = len(beginning) > _WHOLE_CHARS or end == len(text) or not text[end].isalnum()
        if is_start and (is_whole or not beginning.isascii()):
            return True
        at = text.find(beginning, at + 1)
    return False
