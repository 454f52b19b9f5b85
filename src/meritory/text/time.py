"""Time in texts: questions about the past, statements that age, and dates as they are shown."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from meritory.text.language import pattern

LANGUAGES: Final = ("en", "de", "fr", "es", "zh")
# Only the beginning of a long text is read; `.*` in a pattern stays cheap.
READ_CHARS: Final = 400
# Not strftime, which writes the month in the language of the machine.
_MONTHS: Final = " JanFebMarAprMayJunJulAugSepOctNovDec"
_YEAR: Final = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")


def asks_about_past(query: str) -> bool:
    """Return whether a question asks for a value that holds no longer."""
    text = query[:READ_CHARS].lower()
    return any(pattern(f"{language}/time", "past").search(text) for language in LANGUAGES)


def asks_about_now(query: str) -> bool:
    """Return whether the newest answer is the best: no earlier value, no event is asked for."""
    text = query[:READ_CHARS].lower()
    is_event = any(pattern(f"{language}/time", "event").search(text) for language in LANGUAGES)
    return not is_event and not asks_about_past(query)


def may_change(text: str) -> bool:
    """Return whether a text states something that changes and does not say when."""
    read = text[:READ_CHARS].lower()
    if _YEAR.search(read):
        return False
    return any(pattern(f"{language}/time", "changing").search(read) for language in LANGUAGES)


def date_text(at: datetime) -> str:
    """Return the day of a moment in UTC, the same on every machine: 3 Nov 2026."""
    day = at.astimezone(UTC)
    return f"{day.day} {_MONTHS[3 * day.month - 2 : 3 * day.month + 1]} {day.year}"
