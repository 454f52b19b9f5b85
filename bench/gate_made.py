"""Pairs made from real sentences: the same claim said otherwise, and the claim with one change."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from meritory.text.words import (
    CHANGE_NOW,
    FILLERS,
    HEDGES,
    NUMBER_WORDS,
    SAME_AS,
    STOP_WORDS,
    UNITS,
)

Operator = Callable[[str, int], str | None]

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January February March April June July August September October November December".split()  # noqa: SIM905
)
COLOURS = ("red", "blue", "green", "yellow", "purple", "black", "white", "orange", "pink")
PLACES = ("Berlin", "Paris", "London", "Tokyo", "Boston", "Chicago", "Rome", "Toronto", "Seattle")
NAMES = ("Anna", "Bob", "Carlos", "Dmitri", "Elena", "Farid", "Grace", "Hugo", "Ines", "Jonas")
# Swapping one for the other always changes the claim.
OPPOSITES = (
    ("before", "after"),
    ("more", "less"),
    ("always", "never"),
    ("often", "rarely"),
    ("must", "may"),
    ("can", "could"),
    ("with", "without"),
    ("first", "last"),
    ("he", "she"),
    ("his", "her"),
    ("morning", "evening"),
    ("mother", "father"),
    ("mom", "dad"),
    ("brother", "sister"),
    ("son", "daughter"),
    ("wife", "husband"),
    ("best", "worst"),
    ("new", "old"),
    ("good", "bad"),
    ("happy", "sad"),
    ("likes", "hates"),
    ("loves", "hates"),
    ("enjoys", "avoids"),
    ("and", "or"),
    ("all", "some"),
    ("year", "month"),
    ("week", "day"),
    ("yesterday", "today"),
    ("is", "was"),
    ("are", "were"),
    ("has", "had"),
    ("from", "to"),
    ("in", "near"),
    ("for", "against"),
    ("since", "until"),
    ("minutes", "hours"),
    ("days", "weeks"),
    ("AM", "PM"),
    ("than", "as"),
    ("over", "under"),
    ("left", "right"),
    ("start", "stop"),
    ("by", "with"),
    ("if", "unless"),
)
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]{2,}\b")
_PLAIN = re.compile(r"\b[a-z]{4,}\b")
_VERB = re.compile(r"\b(is|are|was|were|has|have|can|will|would|should)\b(?! not)")
_CONTRACTIONS = (("is not", "isn't"), ("does not", "doesn't"), ("did not", "didn't"))
_QUALIFIERS = (
    " on Linux", " if it rains", ", except on Sundays", " until May", " only in Berlin",
    " with Anna", " but not in winter", ", Texas", " for Bob", " in theory", " when asked",
    " or at home", " who left", " near 5", " again", " alone", " (almost)", " without pay",
)  # fmt: skip
_BOUNDS = ("at least ", "up to ", "about ", "almost ", "more than ", "under ")
# Words that may go without loss, or be swapped for their own equal.
_NOT_A_VALUE = (
    STOP_WORDS | FILLERS | HEDGES | CHANGE_NOW | set(SAME_AS) | set(NUMBER_WORDS) | set(UNITS)
)
_NOT_A_VALUE |= {"make", "makes"}  # "make sure" stands for "ensure"
_HEDGES = ("I think ", "Maybe ", "It seems that ", "Note that ", "As far as I know ", "Probably ")


@dataclass(frozen=True, slots=True)
class Pair:
    """Two texts, and how the second was made from the first."""

    old: str
    new: str
    how: str


def value_pairs(sentences: Sequence[str]) -> Iterator[Pair]:
    """Yield each sentence beside itself with one value, word, role or polarity changed."""
    yield from _made(sentences, VALUE_CHANGES)


def paraphrase_pairs(sentences: Sequence[str]) -> Iterator[Pair]:
    """Yield each sentence beside the same claim with other small words, spelling or order."""
    yield from _made(sentences, RESTATEMENTS)


def change_pairs(sentences: Sequence[str]) -> Iterator[Pair]:
    """Yield each sentence beside a correction of one of its values."""
    kinds = ("number", "weekday", "month", "colour", "place")
    for pair in _made(sentences, {kind: VALUE_CHANGES[kind] for kind in kinds}):
        yield Pair(pair.old, f"Actually, {_within(pair.new)}", pair.how)


def other_subject_pairs(sentences: Sequence[str]) -> Iterator[Pair]:
    """Yield each sentence beside the same said, with a change word, of somebody else."""
    for pair in _made(sentences, {"subject": VALUE_CHANGES["subject"]}):
        for word in ("Actually, ", "From now on, "):
            yield Pair(pair.old, word + _within(pair.new), pair.how)


def word_pairs(sentences: Sequence[str]) -> Iterator[Pair]:
    """Yield each sentence with one content word replaced by another of the same collection."""
    vocabulary = sorted({word for text in sentences for word in _content(text)})
    for turn, text in enumerate(sentences):
        found = _content(text)
        if found:
            old = found[turn % len(found)]
            new = vocabulary[(turn * 7919 + 13) % len(vocabulary)]
            if new != old:
                yield Pair(text, re.sub(rf"\b{old}\b", new, text, count=1), "another word")
        if len(set(found)) > 2:
            one, two = found[0], found[-1]
            if one != two:
                yield Pair(text, _exchange(text, one, two), "two words exchanged")
                yield Pair(text, re.sub(rf" ?\b{one}\b", "", text, count=1), "a word left out")


def _made(sentences: Sequence[str], operators: dict[str, Operator]) -> Iterator[Pair]:
    for turn, text in enumerate(sentences):
        for how, operator in operators.items():
            changed = operator(text, turn)
            if changed is not None and changed != text:
                yield Pair(text, changed, how)


def _content(text: str) -> list[str]:
    return [word for word in _PLAIN.findall(text) if word not in _NOT_A_VALUE]


def _other(choices: Sequence[str], turn: int, taken: str) -> str:
    pick = choices[turn % len(choices)]
    return pick if pick != taken else choices[(turn + 1) % len(choices)]


def _one_of(choices: Sequence[str]) -> Operator:
    pattern = re.compile(rf"\b(?:{'|'.join(choices)})\b")

    def operator(text: str, turn: int) -> str | None:
        match = pattern.search(text)
        if not match:
            return None
        return text[: match.start()] + _other(choices, turn, match.group()) + text[match.end() :]

    return operator


def _other_number(text: str, turn: int) -> str | None:
    match = _NUMBER.search(text)
    if not match:
        return None
    digit = str((int(match.group()[-1]) + 1 + turn % 8) % 10)
    return text[: match.end() - 1] + digit + text[match.end() :]


def _other_number_word(text: str, turn: int) -> str | None:
    spoken = [word for word in NUMBER_WORDS if word != "one"]
    return _one_of(spoken)(text, turn)


def _other_name(text: str, turn: int) -> str | None:
    match = _NAME.search(text)
    if not match or match.group() in {*WEEKDAYS, *MONTHS}:
        return None
    return text[: match.start()] + _other(NAMES, turn, match.group()) + text[match.end() :]


def _other_subject(text: str, turn: int) -> str | None:
    match = re.match(r"[A-Z][a-z]{2,}(?= [a-z])", text)
    if not match or match.group().lower() in STOP_WORDS:
        return None
    return _other(NAMES, turn, match.group()) + text[match.end() :]


def _negated(text: str, _turn: int) -> str | None:
    return _VERB.sub(r"\1 not", text, count=1) if _VERB.search(text) else None


def _only(text: str, _turn: int) -> str | None:
    return _VERB.sub(r"\1 only", text, count=1) if _VERB.search(text) else None


def _asked(text: str, _turn: int) -> str | None:
    return text.rstrip(".!") + "?"


def _exchanged_names(text: str, _turn: int) -> str | None:
    found = re.findall(r"\b[A-Z][a-z]{2,}\b", text)
    if len(set(found)) < 2 or re.search(r"\b(?:and|or|,)\b", text):
        return None
    return _exchange(text, found[0], next(name for name in found if name != found[0]))


def _exchange(text: str, one: str, two: str) -> str:
    swapped = {one: two, two: one}
    return re.sub(rf"\b(?:{one}|{two})\b", lambda match: swapped[match.group()], text)


def _opposite(one: str, two: str) -> Operator:
    pattern = re.compile(rf"\b{one}\b")

    def operator(text: str, _turn: int) -> str | None:
        return pattern.sub(two, text, count=1) if pattern.search(text) else None

    return operator


def _narrowed(text: str, turn: int) -> str | None:
    return text.rstrip(".") + _QUALIFIERS[turn % len(_QUALIFIERS)] + "."


def _bounded_number(text: str, turn: int) -> str | None:
    match = re.search(r"(?<= )\d+(?= [a-z])", text)
    if not match:
        return None
    return text[: match.start()] + _BOUNDS[turn % len(_BOUNDS)] + text[match.start() :]


def _other_count(text: str, turn: int) -> str | None:
    found = [word for word in _content(text) if not word.endswith(("s", "ing", "ed", "ly"))]
    if not found:
        return None
    word = found[turn % len(found)]
    return re.sub(rf"\b{word}\b", f"{word}s", text, count=1)


def _unnegated(text: str, _turn: int) -> str | None:
    changed = re.sub(r"\b(?:not|never|no) |n't\b", "", text, count=1)
    return changed if changed != text else None


def _hedged(text: str, turn: int) -> str | None:
    return _HEDGES[turn % len(_HEDGES)] + _within(text)


def _within(text: str) -> str:
    """Write a sentence as it stands behind other words: only a name or "I" keeps its capital."""
    first = text.split()[0]
    lower = first.lower() in STOP_WORDS and first != "I" and not first.startswith("I'")
    return text[0].lower() + text[1:] if lower else text


def _spoken_number(text: str, _turn: int) -> str | None:
    spoken = {value: word for word, value in NUMBER_WORDS.items()}
    match = re.search(r"(?<= )\d{1,2}(?= )", text)
    if not match or match.group() not in spoken:
        return None
    return text[: match.start()] + spoken[match.group()] + text[match.end() :]


def _same_word(text: str, _turn: int) -> str | None:
    groups: dict[str, list[str]] = {}
    for word, first in SAME_AS.items():
        groups.setdefault(first, []).append(word)
    for match in _PLAIN.finditer(text):
        word = match.group()
        fitting = [other for other in groups.get(SAME_AS.get(word, ""), []) if other != word]
        # Keep the form: "likes" may become "loves", not "love".
        fitting = [other for other in fitting if other.endswith("s") == word.endswith("s")]
        if fitting:
            return text[: match.start()] + fitting[0] + text[match.end() :]
    return None


def _contracted(text: str, _turn: int) -> str | None:
    for long, short in _CONTRACTIONS:
        if f" {long} " in text:
            return text.replace(f" {long} ", f" {short} ", 1)
    return None


def _moved_front(text: str, _turn: int) -> str | None:
    match = re.fullmatch(r"([A-Z][^,.]+) ((?:in|on|at|during|after|before) [^,.]{3,30})\.", text)
    if not match or len(match.group(2).split()) > 5:
        return None
    lead = match.group(2)
    return f"{lead[0].upper()}{lead[1:]}, {_within(match.group(1))}."


def _typed_badly(text: str, _turn: int) -> str | None:
    return re.sub(r"\b(?:the|a|an) ", "", text[0].lower() + text[1:]).rstrip(".")


VALUE_CHANGES: dict[str, Operator] = {
    "number": _other_number,
    "number word": _other_number_word,
    "weekday": _one_of(WEEKDAYS),
    "month": _one_of(MONTHS),
    "colour": _one_of(COLOURS),
    "place": _one_of(PLACES),
    "name": _other_name,
    "subject": _other_subject,
    "negation": _negated,
    "no negation": _unnegated,
    "only": _only,
    "narrowed": _narrowed,
    "bounded number": _bounded_number,
    "one or many": _other_count,
    "question": _asked,
    "roles exchanged": _exchanged_names,
    **{f"{one} > {two}": _opposite(one, two) for one, two in OPPOSITES},
    **{f"{two} > {one}": _opposite(two, one) for one, two in OPPOSITES},
}
RESTATEMENTS: dict[str, Operator] = {
    "hedge or opener": _hedged,
    "interchangeable word": _same_word,
    "number as word": _spoken_number,
    "contraction": _contracted,
    "part moved to the front": _moved_front,
    "no articles, no capital": _typed_badly,
}
