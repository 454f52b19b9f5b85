"""Reads a text as a claim: its units without what says nothing, and what it says has changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from meritory.text.claims.values import Unit, units_of, values_of
from meritory.text.claims.words import (
    ARTICLES,
    CHANGE_NOW,
    CHANGE_VERBS,
    FILLERS,
    HEDGES,
    NEGATIONS,
    OPENERS,
    PHRASES,
    REPLACE_VERBS,
    SAME_AS,
)

_PHRASES_BY_WORD: Final = {
    word: tuple(entry for entry in PHRASES if entry[0][0] == word)
    for word in {phrase[0] for phrase, _ in PHRASES}
}


@dataclass(frozen=True, slots=True)
class Claim:
    """A text reduced to what it claims."""

    text: str
    units: tuple[Unit, ...]
    keys: tuple[str, ...]
    raw: frozenset[str]
    opening: str
    changes: frozenset[str]
    # How much there is to lose: values stated, hedges (negative), characters.
    specificity: tuple[int, int, int]


def read_claim(text: str) -> Claim:
    """Return the claim a text makes."""
    units = list(units_of(text))
    specific_count = values_of(units).specific_count
    raw = frozenset(unit.key for unit in units)
    units, opened = _without_opener(units)
    hedges = sum(unit.key in HEDGES for unit in units)
    opening = units[0].key if units else ""
    changes = _take_changes(units)
    units = _with_phrases(units)
    kept: list[Unit] = []
    mark = ""
    for position, unit in enumerate(units):
        mark = mark or unit.before
        if _is_silent(units, position):
            continue
        kept.append(
            Unit(unit.kind, _meaning(units, position), mark, unit.is_capital, unit.is_first)
        )
        mark = ""
    keys = tuple(unit.key for unit in kept)
    specificity = (specific_count, -hedges - opened, len(text))
    return Claim(text, tuple(kept), keys, raw, opening, frozenset(changes), specificity)


def _is_silent(units: Sequence[Unit], position: int) -> bool:
    unit = units[position]
    if unit.kind != "word":
        return False
    if unit.key in {"do", "does"}:
        return position + 1 < len(units) and units[position + 1].key == "not"
    if unit.is_capital and not unit.is_first:
        return False  # part of a name: "plan A", "The Power", "Really Right Stuff"
    return unit.key in ARTICLES or unit.key in FILLERS or unit.key in HEDGES


def _meaning(units: Sequence[Unit], position: int) -> str:
    unit = units[position]
    if unit.kind != "word":
        return unit.key
    # "No, tests pass" is not "no tests pass".
    if unit.key in NEGATIONS and position + 1 < len(units) and units[position + 1].before:
        return f"{unit.key},"
    return SAME_AS.get(unit.key, unit.key)


def _without_opener(units: list[Unit]) -> tuple[list[Unit], int]:
    """Return the units behind "I think", "note that" and the like, and how many such there were."""
    start = opened = 0
    while size := _opener_size(units, start):
        start += size
        opened += 1
    rest = units[start:]
    if opened:
        # Behind an opener the claim begins anew, so its first capital says nothing.
        rest[0] = replace(rest[0], is_first=True)
    return rest, opened


def _opener_size(units: list[Unit], start: int) -> int:
    if len(units) - start > 1 and units[start].key in HEDGES | FILLERS:
        return 1
    for opener in OPENERS:
        size = len(opener)
        heads = tuple(unit.key for unit in units[start : start + size])
        if heads == opener and len(units) - start > size:
            return size
    return 0


def _with_phrases(units: list[Unit]) -> list[Unit]:
    keys = [unit.key for unit in units]
    result: list[Unit] = []
    position = 0
    while position < len(units):
        for phrase, meaning in _PHRASES_BY_WORD.get(keys[position], ()):
            if tuple(keys[position : position + len(phrase)]) == phrase:
                result += [replace(units[position], key=key) for key in meaning]
                position += len(phrase)
                break
        else:
            result.append(units[position])
            position += 1
    return result


def _take_changes(units: list[Unit]) -> set[str]:
    """Remove the words that only say that something changed, and return what they say."""
    changes: set[str] = set()
    if _cut(units, "no", "longer") or (_has_not(units) and _cut_any_more(units)):
        changes.add("ended")
    if _is_habit(units) and _cut(units, "used", "to"):
        changes.add("past")
    if _cut(units, "from", "now", "on") or _cut(units, "as", "of", "now"):
        changes.add("now")
    keys = {unit.key for unit in units}
    if keys & CHANGE_NOW:
        changes.add("now")
        units[:] = [unit for unit in units if unit.key not in CHANGE_NOW]
    if keys & (CHANGE_VERBS | REPLACE_VERBS) or "instead" in keys:
        changes.add("verb")
    if ("as", "of") in {(one.key, two.key) for one, two in pairwise(units)}:
        changes.add("now")
    return changes


def _has_not(units: list[Unit]) -> bool:
    return any(unit.key == "not" for unit in units)


def _is_habit(units: list[Unit]) -> bool:
    # "is used to cold" and "was used to build" are not "used to live".
    keys = [unit.key for unit in units]
    spot = keys.index("used") if "used" in keys else -1
    return spot > 0 and keys[spot - 1] not in {"is", "are", "am", "was", "were", "be", "get", "got"}


def _cut_any_more(units: list[Unit]) -> bool:
    for words in (("anymore",), ("any", "more"), ("any", "longer")):
        if _cut(units, *words):
            spot = next(index for index, unit in enumerate(units) if unit.key == "not")
            if spot and units[spot - 1].key in {"do", "does"}:
                del units[spot - 1 : spot + 1]
            else:
                del units[spot]
            return True
    return False


def _cut(units: list[Unit], *words: str) -> bool:
    size = len(words)
    for start, unit in enumerate(units):
        if unit.key != words[0]:
            continue
        if tuple(later.key for later in units[start : start + size]) == words:
            del units[start : start + size]
            return True
    return False
