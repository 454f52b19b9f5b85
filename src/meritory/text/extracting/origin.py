"""Whose word a quote is: found out by where it stands in the transcript, by nobody's claim."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from meritory.text.extracting.spoken import own_words
from meritory.text.stopwords import NEGATIONS
from meritory.text.terms import query_terms
from meritory.text.values import protected_values
from meritory.types import Origin, Provenance, Turn

# What a claim must share with the turn it is quoted from to be that speaker's own.
GROUNDED_SHARE: Final = 0.5
_STEM_CHARS: Final = 5
_WEB: Final = re.compile(
    r"\b\w*(?:web|fetch|brows|http|url|search|crawl|curl|wget)\w*", re.IGNORECASE
)
_WORDS: Final = re.compile(r"[\w']+")
_GIVEN: Final = frozenset({"tool", "result", "system"})


@dataclass(frozen=True, slots=True)
class Standing:
    """Who said a thing, the turn it stands in, and its words as they stand there."""

    provenance: Provenance
    origin: Origin
    turn: int
    quote: str


def standing_of(turns: Sequence[Turn], quote: str, content: str) -> Standing | None:
    """Return whose word a quote is, None when nobody said it; spaces do not count.

    The least trusted of those who said it decides: what an agent or a tool said as well may be an
    echo of theirs. What the user pasted is not the user's word, and may be anybody's. A claim that
    the user's own words in the quoted turn do not bear out is the model's own.
    """
    pattern = _pattern(quote)
    if pattern is None:
        return None
    places = [
        (place, turn.role, match.group())
        for place, turn in enumerate(turns)
        if (match := pattern.search(turn.text))
    ]
    if not places:
        return None
    given = next((place for place in places if place[1] in _GIVEN), None)
    if given is not None:
        return Standing("assistant_derived", _source(turns, given[0]), given[0], given[2])
    said = next((place for place in places if place[1] != "user"), None)
    if said is not None:
        return Standing("assistant_derived", "agent", said[0], said[2])
    place, _, words = places[-1]
    own = own_words(turns[place].text)
    if not pattern.search(own):
        return Standing("assistant_derived", "tool", place, words)
    if not _bears_out(own, content) or _denies(words) != _denies(content):
        return Standing("assistant_derived", "agent", place, words)
    return Standing("user_stated", "user", place, words)


def _pattern(quote: str) -> re.Pattern[str] | None:
    words = [re.escape(word) for word in quote.split()]
    return re.compile(r"\s+".join(words)) if words else None


def _source(turns: Sequence[Turn], place: int) -> Origin:
    """Whether the text came from the web or from another tool, by the call before it."""
    called = next((turn.text for turn in reversed(turns[: place + 1]) if turn.role == "tool"), "")
    return "web" if _WEB.search(called.split("{")[0][:80]) else "tool"


def _denies(text: str) -> bool:
    """Whether a text says no: a claim must not turn around what was said."""
    found = _WORDS.findall(text.lower().replace("’", "'"))
    return any(word in NEGATIONS or word.endswith("n't") for word in found)


def _bears_out(said: str, content: str) -> bool:
    """Whether a claim keeps to what was said: half of its words, and every value in it."""
    stems = {term[:_STEM_CHARS] for term in query_terms(said, limit=2_000)}
    claimed = query_terms(content)
    if not claimed:
        return False
    held = sum(term[:_STEM_CHARS] in stems for term in claimed)
    if held < GROUNDED_SHARE * len(claimed):
        return False
    mine, theirs = protected_values(content), protected_values(said)
    return set(mine.numbers) <= set(theirs.numbers) and set(mine.identifiers) <= set(
        theirs.identifiers
    )
