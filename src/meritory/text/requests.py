"""Standing instructions and preferences, and the kinds of questions that need another order."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from meritory.text.language import pattern
from meritory.text.time import LANGUAGES, READ_CHARS

_FILE: Final = "recall"
# The subject of the requests that an instruction is for is short.
CONDITION_CHARS: Final = 200
STANDING_KINDS: Final = frozenset({"preference", "constraint"})


def is_standing(text: str, kind: str) -> bool:
    """Return whether a memory is an instruction or a preference, by its kind or its wording."""
    return kind in STANDING_KINDS or _finds("standing", text)


def condition_of(text: str) -> str:
    """Return the words of a standing memory that say when it applies; without any, all of it."""
    read = _read(text)
    for one in (*_patterns("condition"), *_patterns("subject")):
        match = one.search(read)
        if match is not None:
            return str(match[1])[:CONDITION_CHARS]
    return read[:CONDITION_CHARS]


def asks_over_many(query: str) -> bool:
    """Return whether the answer to a question is spread over many conversations."""
    return _finds("many", query)


def asks_for_state(query: str) -> bool:
    """Return whether a question without a subject asks how the work goes on."""
    return _finds("state", query.strip())


def _finds(name: str, text: str) -> bool:
    read = _read(text)
    return any(one.search(read) for one in _patterns(name))


def _read(text: str) -> str:
    return text[:READ_CHARS].lower()


@cache
def _patterns(name: str) -> tuple[re.Pattern[str], ...]:
    return tuple(pattern(f"{language}/{_FILE}", name) for language in LANGUAGES)
