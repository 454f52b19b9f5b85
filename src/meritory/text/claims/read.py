"""Splits a text into the units that carry its meaning: words, numbers, identifiers, paths."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from meritory.text.normalize import unified
from meritory.text.words import ACRONYMS, NEGATIONS, NUMBER_WORDS, TITLES, UNITS

UnitKind = Literal["word", "number", "identifier", "path", "quote", "symbol"]
# The kinds of units that are a value.
SPECIFIC_KINDS: Final = frozenset({"number", "identifier", "path", "quote"})

_UNIT = re.compile(
    r"""
      `(?P<code>[^`\n]{1,300})`
    | (?P<url>\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s<>"'`]{1,2000})
    | "(?P<double>[^"\n]{1,300})"
    | (?<![\w'])'(?P<single>[^'\n]{1,300})'(?!\w)
    | (?<![\w.@+~-])(?P<path>(?:[A-Za-z]:|~|\.{1,2})?[\\/][\w.@+~-]+(?:[\\/][\w.@+~-]+)*[\\/]?
        |[\w.@+~-]+(?:[\\/][\w.@+~-]+)+[\\/]?)
    | (?P<email>[\w.+-]+@[\w-]+(?:\.[\w-]+)+)
    | (?P<mark>[\#@][^\W_][\w-]*)
    | (?P<number>(?:(?<![\w)\]])[-+])?\d+(?:[.,:-]\d+)*)(?P<glued>[^\W\d_]*)(?!\w)
    | (?P<word>\w+(?:['.-]\w+)*(?:\+\+|\#(?!\w))?)
    | (?P<symbol>[^\s\w.,;:!()\[\]{}"'`-]|[-=!]+>|!=|--?(?=\w))
    """,
    re.VERBOSE,
)
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+")
# Chinese marks that have no plain form in Unicode.
_FULL_STOPS = str.maketrans({"。": ". ", "、": ", "})
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


@dataclass(frozen=True, slots=True)
class Unit:
    """One piece of a text that carries meaning; `before` is the punctuation before it."""

    kind: UnitKind
    key: str
    before: str = ""
    is_capital: bool = False
    is_first: bool = False
    # The article that the normal form dropped before it.
    article: str = ""


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
    clean = unified(text).translate(_FULL_STOPS)
    units: list[Unit] = []
    end = 0
    for match in _UNIT.finditer(clean):
        before = clean[end : match.start()]
        if before == " " and units and match.lastgroup == "word":
            units += _plain_units(match["word"], units[-1].kind == "number")
            end = match.end()
            continue
        is_first = not units or _SENTENCE_END.search(before) is not None
        if (
            is_first
            and units
            and before == ":"
            and clean[match.start()].isascii()
            and units[-1].key.isascii()
        ):
            # "alpine:3.20" is one name.
            is_first = False
        if is_first and units and units[-1].key in TITLES and before.strip() == ".":
            is_first = False
        mark = before.strip() + ("\n" if "\n" in before else "")
        for key, kind, is_capital in _read_unit(match, units[-1] if units else None):
            units.append(Unit(kind, key, mark, is_capital, is_first))
            mark, is_first = "", False
        end = match.end()
    return tuple(units)


Part = tuple[str, UnitKind, bool]


def _read_unit(match: re.Match[str], previous: Unit | None) -> Iterable[Part]:
    if match.lastgroup == "word":
        return _read_word(match["word"], previous is not None and previous.kind == "number")
    return _read_value(match)


def _read_value(match: re.Match[str]) -> Iterator[Part]:
    group = match.lastgroup or ""
    body = match.group(group)
    if group in {"number", "glued"}:
        plain, glued = match.group("number").removeprefix("+"), match.group("glued")
        number = plain.replace(",", "") if _THOUSANDS.fullmatch(plain) else plain
        yield number, "number", False
        if glued:
            # Capitals after a number are units of their own: 5M is not 5m.
            yield UNITS.get(glued, glued), "word", False
    elif group == "path" and re.fullmatch(r"[a-z]+/[a-z]+[.,]?", body) and len(body) <= 12:
        # "and/or", "yes/no": words with a slash between them, not a path.
        yield body.rstrip(".,"), "word", False
    elif group in {"url", "path", "email"}:
        yield body.rstrip(".,;:!?)"), "path", False
    else:
        kinds: dict[str, UnitKind] = {"code": "identifier", "mark": "identifier"}
        yield body.strip(), kinds.get(group, "symbol" if group == "symbol" else "quote"), False


# Most words of a text are common ones, after a space.
@lru_cache(maxsize=8192)
def _plain_units(body: str, is_after_number: bool) -> tuple[Unit, ...]:
    parts = _read_word(body, is_after_number)
    return tuple(Unit(kind, key, "", is_capital) for key, kind, is_capital in parts)


def _read_word(body: str, is_after_number: bool) -> tuple[Part, ...]:
    lowered = body.lower()
    is_capital = body[0].isupper() and body[1:] == body[1:].lower()
    if lowered in _IRREGULAR or lowered.endswith("n't"):
        first = _IRREGULAR.get(lowered, lowered.removesuffix("n't"))
        return (first, "word", False), ("not", "word", False)
    head, apostrophe, ending = lowered.partition("'")
    # Short units keep their case: 5 Mb is not 5 MB.
    unit = body if len(body) <= 3 else lowered
    if apostrophe:
        is_verb = ending == "s" and head in _IS_CONTRACTIONS
        last = "is" if is_verb else _ENDINGS.get(f"'{ending}", f"'{ending}")
        return (head, "word", bool(head) and body[:1].isupper()), (last, "word", False)
    if number := _NUMBERS.get(lowered):
        return ((number, "number", False),)
    if is_after_number and unit in UNITS:
        return ((UNITS[unit], "word", False),)
    if _is_identifier(body):
        return ((body, "identifier", False),)
    return ((lowered, "word", is_capital),)


def _is_identifier(body: str) -> bool:
    if any(char.isdigit() or char in "_.+#" for char in body):
        return True
    letters = body.replace("-", "")
    if body.lower() in ACRONYMS:
        return False
    # An inner capital (camelCase, GitHub) or all capitals (US, PATH) carries meaning.
    return letters[1:] != letters[1:].lower()
