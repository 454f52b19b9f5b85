"""The text of a lesson: what a later session needs to read, in one or two sentences."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from meritory.text.feedback.signals import UP

MISTAKE, SUCCESS = "Mistake to avoid", "What worked"
# Not "instead": in a claim that word says that another one no longer holds.
ADVICE: Final = "Next time"
_LABELS: Final = re.compile(rf" (?:{ADVICE}|Why|When): ")
_MAIN_CHARS: Final = 2_000
_MORE_CHARS: Final = 600


def main_text(polarity: int, texts: Mapping[str, str]) -> str:
    """What the report is about: what went wrong, or what worked, else its context."""
    name = "what_worked" if polarity == UP else "what_went_wrong"
    return texts.get(name) or texts.get("context") or texts.get("what_to_change", "")


def lesson_text(polarity: int, texts: Mapping[str, str]) -> str:
    """The lesson that feedback becomes."""
    main = main_text(polarity, texts)
    parts = [_part(SUCCESS if polarity == UP else MISTAKE, main, _MAIN_CHARS)]
    for label, name in ((ADVICE, "what_to_change"), ("Why", "reasoning"), ("When", "context")):
        text = texts.get(name, "")
        if text and text != main:
            parts.append(_part(label, text, _MORE_CHARS))
    return " ".join(parts)


def told_in(polarity: int, lesson: str) -> str:
    """What a lesson is about, without its labels; nothing when it is a lesson of another kind."""
    label = f"{SUCCESS if polarity == UP else MISTAKE}: "
    if not lesson.startswith(label):
        return ""
    return _LABELS.split(lesson.removeprefix(label), maxsplit=1)[0]


def with_advice(lesson: str, texts: Mapping[str, str]) -> str | None:
    """The lesson with advice that it lacked; None when there is nothing to add."""
    advice = texts.get("what_to_change", "")
    if not advice or f"{ADVICE}: " in lesson or advice.casefold() in lesson.casefold():
        return None
    return f"{lesson} {_part(ADVICE, advice, _MORE_CHARS)}"


def _part(label: str, text: str, limit: int) -> str:
    flat = " ".join(text.split())
    short = flat if len(flat) <= limit else flat[: limit - 3] + "..."
    return f"{label}: {short}" + ("" if short.endswith((".", "!", "?")) else ".")
