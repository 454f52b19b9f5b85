"""When two reports tell of the same mistake: the same words, whatever their order and endings."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Final

from meritory.text.claims.words import STOP_WORDS, words
from meritory.text.feedback.topics import UP, word_list
from meritory.text.judge.overlap import stem

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
