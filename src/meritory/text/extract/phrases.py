"""How users of each language state something: the phrasings of `data/language/*/extract.toml`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal

from meritory.domain.memory import Kind
from meritory.text.language import pattern, read_language, word_set, written_out

LANGUAGES: Final = ("en", "de", "fr", "es", "zh")
# A language counts if a text has this share of the function words of its most frequent language.
_MARKS_SHARE: Final = 0.5
# Fewer function words than this do not tell a language.
_MARKS_MIN: Final = 2
# Function words at the start of a long text are enough.
_MARKS_LIMIT_CHARS: Final = 2_000
_NEVER: Final = re.compile(r"(?!)")


@dataclass(frozen=True, slots=True)
class Cue:
    """One phrasing, with the kind and confidence of a claim in it."""

    way: Literal["remember", "rule", "correction", "decision", "preference", "fact"]
    kind: Kind
    confidence: float
    # The sentence must contain one of these, in lower case.
    needs: Sequence[str]
    # The group `claim` is what is stated; of a plain statement it is only the beginning.
    source: str
    language: str
    is_plain: bool = False
    # Any verb may follow its subject, so what it finds is checked more strictly.
    is_open: bool = False

    @property
    def pattern(self) -> re.Pattern[str]:
        """The pattern, compiled at its first use: a session needs few of them."""
        return _compiled(self.source)

    def may_match(self, lowered: str) -> bool:
        """Return whether a text in lower case has a word that the cue needs."""
        for word in self.needs:  # noqa: SIM110 (a generator takes three times as long)
            if word in lowered:
                return True
        return False

    @property
    def corrects(self) -> bool:
        """Whether it corrects an earlier action of the agent."""
        return self.way == "correction"


def _file(language: str) -> str:
    return f"{language}/extract"


@cache
def _compiled(source: str) -> re.Pattern[str]:
    return re.compile(source)


def _cue(language: str, entry: Mapping[str, Any]) -> Cue:
    fields = {name: value for name, value in entry.items() if name != "pattern"}
    return Cue(**fields, source=written_out(_file(language), entry["pattern"]), language=language)


@cache
def cues(language: str) -> tuple[Cue, ...]:
    """Return the cues of a language, in the order in which they are tried."""
    return tuple(_cue(language, entry) for entry in read_language(_file(language))["cues"])


@cache
def cues_after_denial(language: str) -> tuple[Cue, ...]:
    """Return the cue of a language for the sentence after one that says no."""
    entry = read_language(_file(language)).get("after_denial")
    return () if entry is None else (_cue(language, entry),)


@cache
def phrase(language: str, key: str) -> re.Pattern[str]:
    """Return a pattern of a language; one that never matches if the language has none."""
    file = _file(language)
    return pattern(file, key) if key in read_language(file)["patterns"] else _NEVER


@cache
def listed(language: str, key: str) -> frozenset[str]:
    """Return a word list of a language; empty if the language has none."""
    file = _file(language)
    return word_set(file, key) if key in read_language(file).get("words", {}) else frozenset()


def languages_of(texts: Iterable[str], otherwise: tuple[str, ...] = LANGUAGES) -> tuple[str, ...]:
    """Return the languages of a text by its function words, several if they are mixed.

    A text with too few of them is in any language of `otherwise`.
    """
    sample = "\n".join(texts)[:_MARKS_LIMIT_CHARS]
    counts = {language: len(phrase(language, "marks").findall(sample)) for language in LANGUAGES}
    most = max(counts.values())
    if most < _MARKS_MIN:
        return tuple(name for name in otherwise if name != "zh" or counts["zh"])
    return tuple(name for name in LANGUAGES if counts[name] >= _MARKS_SHARE * most)
