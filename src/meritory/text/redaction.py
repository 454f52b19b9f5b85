"""The redaction of erased texts: sentences that repeat them, and their names."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from typing import Any, Final

from meritory.text.normalize import canonical
from meritory.text.terms import common_stems, query_terms, stem

# Replaces erased words.
PURGED_TEXT: Final = "[purged]"
# A sentence repeats a text if it has this share of its content words, and at least this many.
_SHARED_SHARE: Final = 2 / 3
_SHARED_MIN: Final = 2
# A shorter text occurs in many others by accident.
_TELLING_CHARS: Final = 12
_NAME_CHARS_MIN: Final = 3
_SENTENCE: Final = re.compile(r"[^.!?\n]+(?:[.!?](?!\s)[^.!?\n]*)*[.!?]*")
_WORD: Final = re.compile(r"[^\W_][\w@.+-]*[^\W_]|[^\W_]")


def names_in(text: str) -> frozenset[str]:
    """Return the words of a text that look like names: capitals inside a sentence, or digits."""
    found = set()
    for sentence in _SENTENCE.findall(text):
        for position, word in enumerate(_WORD.findall(sentence)):
            looks_named = word[0].isupper() and position > 0
            has_sign = any(char.isdigit() or char in "@_.+-" for char in word[1:])
            has_hump = any(char.isupper() for char in word[1:])
            is_telling = (
                len(word) >= _NAME_CHARS_MIN and stem(word.casefold()) not in common_stems()
            )
            if is_telling and (looks_named or has_sign or has_hump):
                found.add(word.casefold())
    return frozenset(found)


def words_in(text: str) -> frozenset[str]:
    """Return every word of a text in lower case."""
    return frozenset(word.casefold() for word in _WORD.findall(text))


class Redaction:
    """Removes erased texts from other texts: whole sentences, and names wherever they stand."""

    def __init__(self, texts: Iterable[str], names: Collection[str]) -> None:
        known = [text for text in texts if text.strip()]
        self._terms = [frozenset(map(stem, query_terms(text))) for text in known]
        spelled = sorted({canonical(text).rstrip(" .!?") for text in known}, key=len, reverse=True)
        exact = [
            r"\s+".join(map(re.escape, text.split()))
            for text in spelled
            if len(text) >= _TELLING_CHARS
        ]
        words = [rf"(?<!\w){re.escape(name)}(?!\w)" for name in sorted(names)]
        pattern = "|".join((*exact, *words))
        self._exact = re.compile(pattern, re.IGNORECASE) if pattern else None

    def apply(self, text: str) -> str:
        """Return the text with a mark in place of erased sentences and names."""
        after = _SENTENCE.sub(self._sentence, text)
        return after if self._exact is None else self._exact.sub(PURGED_TEXT, after)

    def apply_json(self, text: str) -> str:
        """Return JSON with its strings redacted; raise ValueError if it is not JSON."""
        before = json.loads(text)
        after = self._value(before)
        return text if after == before else json.dumps(after, ensure_ascii=False)

    def is_in(self, text: str) -> bool:
        """Return whether the text has anything to redact, or all words of an erased text."""
        terms = frozenset(map(stem, query_terms(text, limit=len(text))))
        return self.apply(text) != text or any(known <= terms for known in self._terms)

    def _sentence(self, match: re.Match[str]) -> str:
        sentence = match.group()
        terms = frozenset(map(stem, query_terms(sentence)))
        for known in self._terms:
            shared = len(known & terms)
            if shared >= _SHARED_MIN and shared >= _SHARED_SHARE * len(known):
                return PURGED_TEXT
        return sentence

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.apply(value)
        if isinstance(value, list):
            return [self._value(item) for item in value]
        if isinstance(value, dict):
            return {name: self._value(item) for name, item in value.items()}
        return value
