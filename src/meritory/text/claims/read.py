"""Reads a text as a claim: the units that carry its meaning, its values, and stated changes."""

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
# Words before "used to" that make it another phrase.
_BEFORE_USED = frozenset({"is", "are", "am", "was", "were", "be", "get", "got"})
_ANY_MORE = (("anymore",), ("any", "more"), ("any", "longer"))
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+")
_SENTENCE_END = re.compile(r"[.!?;:\n]")
_IS_CONTRACTIONS = frozenset({"it", "he", "she", "that", "there", "here", "what", "who", "where"})
_ENDINGS = {"'m": "am", "'re": "are", "'ve": "have", "'ll": "will"}
_IRREGULAR = {"can't": "can", "cannot": "can", "won't": "will", "shan't": "shall"}

# With "twenty-one" and the like.
_NUMBERS: Final = NUMBER_WORDS | {
    f"{tens}-{ones}": str(int(many) + int(few))
    for tens, many in NUMBER_WORDS.items()
    for ones, few in NUMBER_WORDS.items()
    if int(many) >= 20 and int(few) < 10
}
_PHRASES_BY_WORD: Final = {
    word: tuple(entry for entry in PHRASES if entry[0][0] == word)
    for word in {phrase[0] for phrase, _ in PHRASES}
}


@dataclass(frozen=True, slots=True)
class Unit:
    """One piece of a text that carries meaning; `before` is the punctuation before it."""

    kind: UnitKind
    key: str
    before: str = ""
    is_capital: bool = False
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class Values:
    """The values of a text that must never be merged away."""

    numbers: tuple[str, ...]
    identifiers: tuple[str, ...]
    paths: tuple[str, ...]
    quotes: tuple[str, ...]
    names: tuple[str, ...]
    negation_count: int

    @property
    def specific_count(self) -> int:
        """Return the number of numbers, identifiers, paths and quoted strings."""
        return len(self.numbers) + len(self.identifiers) + len(self.paths) + len(self.quotes)


@dataclass(frozen=True, slots=True)
class Claim:
    """A text reduced to what it claims."""

    text: str
    units: tuple[Unit, ...]
    keys: tuple[str, ...]
    raw: frozenset[str]
    opening: str
    changes: frozenset[str]
    # The number of values, the hedges (negative) and the characters.
    specificity: tuple[int, int, int]


def protected_values(text: str) -> Values:
    """Return the numbers, identifiers, paths, quotes, names and negations of a text."""
    return values_of(units_of(text))


def values_of(units: Sequence[Unit]) -> Values:
    """Return the protected values among the units of a text."""
    by_kind: dict[str, list[str]] = {}
    for unit in units:
        by_kind.setdefault(unit.kind, []).append(unit.key)
    return Values(
        numbers=tuple(by_kind.get("number", ())),
        identifiers=tuple(by_kind.get("identifier", ())),
        paths=tuple(by_kind.get("path", ())),
        quotes=tuple(by_kind.get("quote", ())),
        names=tuple(
            unit.key
            for unit in units
            if unit.kind == "word" and unit.is_capital and not unit.is_first and unit.key != "i"
        ),
        negation_count=sum(unit.key in NEGATIONS for unit in units),
    )


def units_of(text: str) -> tuple[Unit, ...]:
    """Return the units of a text in order; only plain punctuation is outside of them."""
    clean = unified(text)
    units: list[Unit] = []
    end = 0
    for match in _UNIT.finditer(clean):
        before = clean[end : match.start()]
        is_first = not units or _SENTENCE_END.search(before) is not None
        mark = before.strip() + ("\n" if "\n" in before else "")
        for key, kind, is_capital in _read_unit(match, units[-1] if units else None):
            units.append(Unit(kind, key, mark, is_capital, is_first))
            mark, is_first = "", False
        end = match.end()
    return tuple(units)


def _read_unit(match: re.Match[str], previous: Unit | None) -> Iterator[tuple[str, UnitKind, bool]]:
    group = match.lastgroup or ""
    body = match.group(group)
    if group in {"number", "glued"}:
        plain, glued = match.group("number").removeprefix("+"), match.group("glued")
        number = plain.replace(",", "") if _THOUSANDS.fullmatch(plain) else plain
        yield number, "number", False
        if glued:
            # Capitals after a number are units of their own: 5M is not 5m.
            yield UNITS.get(glued, glued), "word", False
    elif group == "word":
        yield from _read_word(body, previous)
    elif group == "path" and re.fullmatch(r"[a-z]+/[a-z]+", body) and len(body) <= 12:
        # "and/or", "yes/no": words with a slash between them, not a path.
        yield body, "word", False
    elif group in {"url", "path"}:
        yield body.rstrip(".,;:!?)"), "path", False
    else:
        kinds: dict[str, UnitKind] = {"code": "identifier", "mark": "identifier"}
        yield body.strip(), kinds.get(group, "symbol" if group == "symbol" else "quote"), False


def _read_word(body: str, previous: Unit | None) -> Iterator[tuple[str, UnitKind, bool]]:
    lowered = body.lower()
    is_capital = body[0].isupper() and body[1:] == body[1:].lower()
    if lowered in _IRREGULAR or lowered.endswith("n't"):
        yield _IRREGULAR.get(lowered, lowered.removesuffix("n't")), "word", False
        yield "not", "word", False
        return
    head, apostrophe, ending = lowered.partition("'")
    # Short units keep their case: 5 Mb is not 5 MB.
    unit = body if len(body) <= 3 else lowered
    if apostrophe:
        yield head, "word", bool(head) and body[:1].isupper()
        is_verb = ending == "s" and head in _IS_CONTRACTIONS
        yield "is" if is_verb else _ENDINGS.get(f"'{ending}", f"'{ending}"), "word", False
    elif number := _NUMBERS.get(lowered):
        yield number, "number", False
    elif previous is not None and previous.kind == "number" and unit in UNITS:
        yield UNITS[unit], "word", False
    elif _is_identifier(body):
        yield body, "identifier", False
    else:
        yield lowered, "word", is_capital


def _is_identifier(body: str) -> bool:
    if any(char.isdigit() or char in "_.+#" for char in body):
        return True
    letters = body.replace("-", "")
    if body.lower() in ACRONYMS:
        return False
    # An inner capital (camelCase, GitHub) or all capitals (US, PATH) carries meaning.
    return letters[1:] != letters[1:].lower()


def read_claim(text: str) -> Claim:
    """Return the claim that a text makes."""
    all_units = list(units_of(text))
    specific_count = values_of(all_units).specific_count
    raw = frozenset(unit.key for unit in all_units)
    units, opener_count = _without_openers(all_units)
    hedge_count = sum(unit.key in HEDGES for unit in units)
    opening = units[0].key if units else ""
    changes = _take_changes(units)
    units = _with_phrases(units)
    meaningful: list[Unit] = []
    mark = ""
    for index, unit in enumerate(units):
        mark = mark or unit.before
        following = units[index + 1] if index + 1 < len(units) else None
        key = unit.key
        if key in {"do", "does"}:
            is_silent = following is not None and following.key == "not"
        else:
            # Part of a name has meaning: "plan A", "The Power", "Really Right Stuff".
            is_named = unit.is_capital and not unit.is_first
            is_silent = not is_named and (key in ARTICLES or key in FILLERS or key in HEDGES)
        # A claim means the same without a silent word.
        if unit.kind == "word" and is_silent:
            continue
        if unit.kind == "word" and key in NEGATIONS and following and following.before:
            # "No, tests pass" is not "no tests pass".
            key = f"{key},"
        elif unit.kind == "word":
            key = SAME_AS.get(key, key)
        meaningful.append(Unit(unit.kind, key, mark, unit.is_capital, unit.is_first))
        mark = ""
    keys = tuple(unit.key for unit in meaningful)
    specificity = (specific_count, -hedge_count - opener_count, len(text))
    return Claim(text, tuple(meaningful), keys, raw, opening, frozenset(changes), specificity)


def _without_openers(units: list[Unit]) -> tuple[list[Unit], int]:
    """Return the units after "I think", "note that" and the like, and the number of these."""
    start = opener_count = 0
    while len(units) - start > 1:
        if units[start].key in HEDGES or units[start].key in FILLERS:
            size = 1
        else:
            heads = tuple(unit.key for unit in units[start:-1])
            size = next((len(words) for words in OPENERS if heads[: len(words)] == words), 0)
        if not size:
            break
        start += size
        opener_count += 1
    rest = units[start:]
    if opener_count:
        # The claim starts after the opener, so its first capital has no meaning.
        rest[0] = replace(rest[0], is_first=True)
    return rest, opener_count


def _with_phrases(units: list[Unit]) -> list[Unit]:
    """Return the units with each known phrase replaced by its short form."""
    keys = [unit.key for unit in units]
    result: list[Unit] = []
    index = 0
    while index < len(units):
        for phrase, meaning in _PHRASES_BY_WORD.get(keys[index], ()):
            if tuple(keys[index : index + len(phrase)]) == phrase:
                result += [replace(units[index], key=key) for key in meaning]
                index += len(phrase)
                break
        else:
            result.append(units[index])
            index += 1
    return result


def _take_changes(units: list[Unit]) -> set[str]:
    """Remove the words that only say that something changed, and return what they say."""
    changes: set[str] = set()
    is_negated = any(unit.key == "not" for unit in units)
    if _cut(units, "no", "longer"):
        changes.add("ended")
    elif is_negated and any(_cut(units, *words) for words in _ANY_MORE):
        # "Any more" goes with its negation.
        changes.add("ended")
        spot = next(index for index, unit in enumerate(units) if unit.key == "not")
        has_do = spot > 0 and units[spot - 1].key in {"do", "does"}
        del units[spot - has_do : spot + 1]
    keys = [unit.key for unit in units]
    used = keys.index("used") if "used" in keys else 0
    # "is used to cold" and "was used to build" are not "used to live".
    is_habit = used > 0 and keys[used - 1] not in _BEFORE_USED
    if is_habit and _cut(units, "used", "to"):
        changes.add("past")
    if _cut(units, "from", "now", "on") or _cut(units, "as", "of", "now"):
        changes.add("now")
    distinct = {unit.key for unit in units}
    if distinct & CHANGE_NOW:
        changes.add("now")
        units[:] = [unit for unit in units if unit.key not in CHANGE_NOW]
    if distinct & (CHANGE_VERBS | REPLACE_VERBS) or "instead" in distinct:
        changes.add("verb")
    if ("as", "of") in {(left.key, right.key) for left, right in pairwise(units)}:
        changes.add("now")
    return changes


def _cut(units: list[Unit], *words: str) -> bool:
    """Remove the first run of these words, and return whether it was there."""
    size = len(words)
    for start, unit in enumerate(units):
        if unit.key != words[0]:
            continue
        if tuple(later.key for later in units[start : start + size]) == words:
            del units[start : start + size]
            return True
    return False
