"""Cuts a text into the units that carry its meaning, and names the values among them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Literal

from meritory.text.normalize import unified
from meritory.text.words import (
    ACRONYMS,
    ARTICLES,
    CHANGE_NOW,
    CHANGE_VERBS,
    FILLERS,
    HEDGES,
    NEGATIONS,
    NUMBER_WORDS,
    OPENERS,
    PHRASES,
    REPLACE_VERBS,
    SAME_AS,
    UNITS,
)

UnitKind = Literal["word", "number", "identifier", "path", "quote", "symbol"]

_UNIT = re.compile(
    r"""
      `(?P<code>[^`\n]{1,300})`
    | (?P<url>\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s<>"'`]{1,2000})
    | "(?P<double>[^"\n]{1,300})"
    | (?<![\w'])'(?P<single>[^'\n]{1,300})'(?!\w)
    | (?<![\w.@+~-])(?P<path>(?:[A-Za-z]:|~|\.{1,2})?[\\/][\w.@+~-]+(?:[\\/][\w.@+~-]+)*[\\/]?
        |[\w.@+~-]+(?:[\\/][\w.@+~-]+)+[\\/]?)
    | (?P<mark>[\#@][^\W_][\w-]*)
    | (?P<number>(?:(?<![\w)\]])[-+])?\d+(?:[.,:-]\d+)*)(?P<glued>[^\W\d_]*)(?!\w)
    | (?P<word>\w+(?:['.-]\w+)*(?:\+\+|\#(?!\w))?)
    | (?P<symbol>[^\s\w.,;:!()\[\]{}"'`-]|[-=!]+>|!=|--?(?=\w))
    """,
    re.VERBOSE,
)
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+")
_SENTENCE_END = re.compile(r"[.!?;:\n]")
_IS_CONTRACTIONS = frozenset({"it", "he", "she", "that", "there", "here", "what", "who", "where"})
_ENDINGS = {"'m": "am", "'re": "are", "'ve": "have", "'ll": "will"}
_IRREGULAR = {"can't": "can", "cannot": "can", "won't": "will", "shan't": "shall"}


@dataclass(frozen=True, slots=True)
class Unit:
    """One meaning-bearing piece of a text; `before` is the punctuation that precedes it."""

    kind: UnitKind
    key: str
    before: str = ""
    is_capital: bool = False
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class Values:
    """What a text states that may never be merged away."""

    numbers: tuple[str, ...]
    identifiers: tuple[str, ...]
    paths: tuple[str, ...]
    quotes: tuple[str, ...]
    names: tuple[str, ...]
    negation_count: int

    @property
    def specific_count(self) -> int:
        """Return how many numbers, identifiers, paths and quoted strings there are."""
        return len(self.numbers) + len(self.identifiers) + len(self.paths) + len(self.quotes)


def protected_values(text: str) -> Values:
    """Return the numbers, identifiers, paths, quotes, names and negations of a text."""
    return values_of(units_of(text))


def values_of(units: Sequence[Unit]) -> Values:
    """Return the protected values among the units of a text."""
    by_kind: dict[str, list[str]] = {}
    for unit in units:
        by_kind.setdefault(unit.kind, []).append(unit.key)
    names = [unit.key for unit in units if unit.kind == "word" and _is_name(unit)]
    return Values(
        numbers=tuple(by_kind.get("number", ())),
        identifiers=tuple(by_kind.get("identifier", ())),
        paths=tuple(by_kind.get("path", ())),
        quotes=tuple(by_kind.get("quote", ())),
        names=tuple(names),
        negation_count=sum(unit.key in NEGATIONS for unit in units),
    )


def units_of(text: str) -> tuple[Unit, ...]:
    """Return the units of a text in order; whatever is not plain punctuation is in one of them."""
    clean = unified(text)
    units: list[Unit] = []
    end = 0
    for match in _UNIT.finditer(clean):
        before = clean[end : match.start()]
        is_first = not units or _SENTENCE_END.search(before) is not None
        mark = before.strip() + ("\n" if "\n" in before else "")
        for key, kind, is_capital in _read(match, units[-1] if units else None):
            units.append(Unit(kind, key, mark, is_capital, is_first))
            mark, is_first = "", False
        end = match.end()
    return tuple(units)


def _is_name(unit: Unit) -> bool:
    return unit.is_capital and not unit.is_first and unit.key != "i"


def _read(match: re.Match[str], previous: Unit | None) -> Iterator[tuple[str, UnitKind, bool]]:
    group = match.lastgroup or ""
    body = match.group(group)
    if group in {"number", "glued"}:
        yield from _read_number(match.group("number"), match.group("glued"))
    elif group == "word":
        yield from _read_word(body, previous)
    elif group == "path" and (choice := _choice(body)):
        # "and/or", "yes/no": words with a slash between, not a path.
        yield choice, "word", False
    elif group in {"url", "path"}:
        yield body.rstrip(".,;:!?)"), "path", False
    else:
        kinds: dict[str, UnitKind] = {"code": "identifier", "mark": "identifier"}
        yield body.strip(), kinds.get(group, "symbol" if group == "symbol" else "quote"), False


def _choice(body: str) -> str | None:
    return body if re.fullmatch(r"[a-z]+/[a-z]+", body) and len(body) <= 12 else None


def _read_number(body: str, glued: str) -> Iterator[tuple[str, UnitKind, bool]]:
    plain = body.removeprefix("+")
    number = plain.replace(",", "") if _THOUSANDS.fullmatch(plain) else plain
    yield number, "number", False
    if glued:
        # Glued capitals are units of their own: 5M is not 5m.
        yield UNITS.get(glued, glued), "word", False


def _read_word(body: str, previous: Unit | None) -> Iterator[tuple[str, UnitKind, bool]]:
    lowered = body.lower()
    is_capital = body[0].isupper() and body[1:] == body[1:].lower()
    if lowered in _IRREGULAR or lowered.endswith("n't"):
        yield _IRREGULAR.get(lowered, lowered.removesuffix("n't")), "word", False
        yield "not", "word", False
        return
    stem, apostrophe, ending = lowered.partition("'")
    if apostrophe:
        yield from _read_contraction(body.partition("'")[0], stem, "'" + ending)
    elif lowered in NUMBER_WORDS or _tens(lowered):
        yield NUMBER_WORDS.get(lowered) or _tens(lowered), "number", False
    elif previous is not None and previous.kind == "number" and _unit_word(body) in UNITS:
        yield UNITS[_unit_word(body)], "word", False
    elif _is_identifier(body):
        yield body, "identifier", False
    else:
        yield lowered, "word", is_capital


def _read_contraction(head: str, stem: str, ending: str) -> Iterator[tuple[str, UnitKind, bool]]:
    yield stem, "word", head[:1].isupper()
    if ending == "'s" and stem in _IS_CONTRACTIONS:
        yield "is", "word", False
    else:
        yield _ENDINGS.get(ending, ending), "word", False


def _unit_word(body: str) -> str:
    # Short units keep their case: 5 Mb is not 5 MB.
    return body if len(body) <= 3 else body.lower()


def _tens(lowered: str) -> str:
    tens, dash, ones = lowered.partition("-")
    if not dash or tens not in NUMBER_WORDS or ones not in NUMBER_WORDS:
        return ""
    total = int(NUMBER_WORDS[tens]) + int(NUMBER_WORDS[ones])
    return str(total) if int(NUMBER_WORDS[tens]) >= 20 > 10 > int(NUMBER_WORDS[ones]) else ""


def _is_identifier(body: str) -> bool:
    if any(char.isdigit() or char in "_.+#" for char in body):
        return True
    letters = body.replace("-", "")
    if body.lower() in ACRONYMS:
        return False
    # An inner capital (camelCase, GitHub) or all capitals (US, PATH) carries meaning.
    return letters[1:] != letters[1:].lower()


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
