"""Gives a quantity one number and one unit: 90 minutes for one and a half hours."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Final

from meritory.text.claims.lexicon import Lexicon
from meritory.text.claims.read import Unit
from meritory.text.language import read_language

# Units of one kind with their size, the smallest first.
_SCALES: Final = (
    (("s", 1), ("min", 60), ("h", 3600), ("day", 86_400), ("week", 604_800)),
    (("month", 1), ("year", 12)),
    (("g", 1), ("kg", 1000)),
    (("mm", 1), ("cm", 10), ("m", 1000), ("km", 1_000_000)),
    (("ml", 1), ("cl", 10), ("l", 1000)),
)
_SCALE: Final = {name: (scale, size) for scale in _SCALES for name, size in scale}
_HALF: Final = Fraction(1, 2)
_PARTS: Final = (("half", _HALF), ("quarter", _HALF / 2))
_THOUSANDS: Final = re.compile(r"\d{1,3}(?:\.\d{3})+")
_DECIMAL: Final = re.compile(r"\d+[.,]\d{1,2}|\d+")
_MINUTES: Final = re.compile(r"[0-5]?\d")
_CLOCK: Final = re.compile(r"0?(\d{1,2}):(\d\d)")
_GLUED: Final = re.compile(r"(\d{1,2})[hH](\d\d)")
_NAMED: Final = re.compile(r"([A-Z][a-z]{2,})(\d{1,2})")
_TENS: Final = frozenset(str(ten) for ten in range(30, 100, 10))
_ONES: Final = frozenset("123456789")
_GROUP: Final = re.compile(r"\d{3}")
_HEAD: Final = re.compile(r"\d{1,3}")


@cache
def _words(language: str) -> dict[str, frozenset[str]]:
    table = read_language(f"{language}/claims").get("quantities", {})
    found = {name: frozenset(text.split()) for name, text in table.items()}
    if found:
        units = (line.split() for line in read_language(f"{language}/claims")["groups"]["units"])
        names = {word for line in units for word in line}
        parts = found["quarter"] | found["three_quarters"]
        # Without a unit there is no quantity.
        found["any"] = frozenset(
            names | {part + name for part in parts for name in names} | {"uhr"}
        )
    return found


def measured(units: Sequence[Unit], words: Lexicon) -> list[Unit]:
    """Return the units with each quantity in the largest unit of which it is a whole number."""
    known = _words(words.language)
    if not known or all(unit.kind == "word" and unit.key not in known["any"] for unit in units):
        return list(units)
    return list(_measured(_plain_numbers(units, words, known), words, known))


def _plain_numbers(
    units: Sequence[Unit], words: Lexicon, known: dict[str, frozenset[str]]
) -> list[Unit]:
    """Return the units with "1 000" and "1.000" as 1000, and "2,5" as 2.5."""
    made: list[Unit] = []
    for unit in units:
        if unit.kind == "number":
            if len(made) > 1 and made[-1].key in known["and"] and _is_joined(made[-2], unit, words):
                # "Treinta y cinco".
                made[-2:] = [replace(made[-2], key=str(int(made[-2].key) + int(unit.key)))]
                continue
            last = made[-1] if made else None
            if last is not None and (total := _composed(last, unit, words)):
                made[-1] = replace(last, key=total)
                continue
            is_group = last is not None and last.kind == "number" and not unit.before
            if is_group and last and _HEAD.fullmatch(last.key) and _GROUP.fullmatch(unit.key):
                made[-1] = replace(last, key=last.key + unit.key)
                continue
            key = unit.key
            if words.language in {"de", "es"} and _THOUSANDS.fullmatch(key):
                key = key.replace(".", "")
            elif "," in key and _DECIMAL.fullmatch(key):
                key = key.replace(",", ".")
            clock = _CLOCK.fullmatch(key)
            if clock and words.language in {"fr", "es"}:
                made += [replace(unit, key=clock[1]), Unit("word", "h"), Unit("number", clock[2])]
                continue
            unit = unit if key == unit.key else replace(unit, key=key)
        elif words.language == "zh" and (named := _NAMED.fullmatch(unit.key)):
            made += [replace(unit, kind="word", key=named[1].lower()), Unit("number", named[2])]
            continue
        elif glued := _GLUED.fullmatch(unit.key):
            made += [replace(unit, kind="number", key=glued[1]), Unit("word", "h")]
            made.append(Unit("number", glued[2]))
            continue
        elif unit.key == "uhr" and made and made[-1].kind == "number":
            made[-1] = replace(made[-1], key=made[-1].key.replace(".", ":").removesuffix(":00"))
        made.append(unit)
    return made


def _composed(last: Unit, unit: Unit, words: Lexicon) -> str | None:
    """Return the number of two number words: "cent vingt", "deux cents"."""
    if words.language not in {"fr", "es"} or last.kind != "number" or unit.before:
        return None
    if last.key.isdigit() and len(last.key) in {3, 4} and last.key.endswith("00"):
        is_small = unit.key.isdigit() and len(unit.key) < len(last.key.rstrip("0")) + 2
        return str(int(last.key) + int(unit.key)) if is_small and len(unit.key) <= 2 else None
    if last.key in _ONES and unit.key in {"100", "1000"}:
        return str(int(last.key) * int(unit.key))
    return None


def _is_joined(tens: Unit, ones: Unit, words: Lexicon) -> bool:
    return words.language == "es" and tens.key in _TENS and ones.key in _ONES


def _measured(
    units: list[Unit], words: Lexicon, known: dict[str, frozenset[str]]
) -> Iterator[Unit]:
    index = 0
    while index < len(units):
        found = _quantity(units, index, words, known)
        if found is None:
            yield units[index]
            index += 1
            continue
        value, name, size = found
        first = units[index]
        number, unit = _in_whole(value, name)
        yield Unit("number", number, first.before, False, first.is_first)
        yield Unit("word", unit)
        index += size


def _quantity(
    units: list[Unit], index: int, words: Lexicon, known: dict[str, frozenset[str]]
) -> tuple[Fraction, str, int] | None:
    """Return the value, the unit and the number of units of a quantity that starts here."""
    value, size = _amount(units, index, words, known)
    if value is None:
        return None
    # "Tres cuartos de hora", "a quarter of an hour".
    while _key(units, index + size) in known["of"]:
        size += 1
    spot = index + size
    name = _unit_of(_key(units, spot), words, known)
    if name not in _SCALE:
        return None
    size += 1
    following = units[spot + 1] if spot + 1 < len(units) else None
    if following is not None and following.kind == "number" and name == "h":
        after = _key(units, spot + 2)
        is_minutes = words.units.get(after) == "min"
        if _MINUTES.fullmatch(following.key) and not following.before:
            return value + Fraction(int(following.key), 60), name, size + 1 + is_minutes
    # "Une heure et demie", "hora y media".
    rest = [_key(units, spot + 1), _key(units, spot + 2), _key(units, spot + 3)]
    if rest[0] in known["and"]:
        skipped = rest[1] in words.articles
        if rest[1 + skipped] in known["half"]:
            return value + _HALF, name, size + 2 + skipped
        if rest[1 + skipped] in known["quarter"]:
            return value + _HALF / 2, name, size + 2 + skipped
        if name == "h" and rest[1].isdigit() and words.units.get(rest[2]) == "min":
            return value + Fraction(int(rest[1]), 60), name, size + 3
    return value, name, size


def _amount(
    units: list[Unit], index: int, words: Lexicon, known: dict[str, frozenset[str]]
) -> tuple[Fraction | None, int]:
    """Return the number that starts here, and of how many units it is."""
    unit, following = units[index], _key(units, index + 1)
    if unit.kind != "number" and (found := _compound(unit.key, words, known)):
        return found, 0
    if unit.kind == "number":
        if not _DECIMAL.fullmatch(unit.key):
            return None, 0
        value = Fraction(unit.key.replace(",", "."))
        if following in known["quarter"]:
            return value / 4, 2
        return value, 1
    if unit.key in known["one"]:
        part = _compound(following, words, known)
        for name, value in _PARTS:
            part = value if following in known[name] else part
        is_word = following in known["half"] | known["quarter"]
        return part or Fraction(1), 1 + is_word
    if following in known["and"] and _key(units, index + 2) in known["half"]:
        # "Hora y media".
        return Fraction(1), 0
    for name, value in (*_PARTS, ("one_and_half", 3 * _HALF), ("three_quarters", _HALF * 3 / 2)):
        if unit.key in known[name]:
            return value, 1
    for ending in known["and_half"]:
        whole = words.numbers.get(unit.key.removesuffix(ending))
        if whole and unit.key.endswith(ending):
            return int(whole) + _HALF, 1
    return None, 0


def _compound(key: str, words: Lexicon, known: dict[str, frozenset[str]]) -> Fraction | None:
    """Return the part in a German word such as "Viertelstunde"."""
    for name, value in (("three_quarters", Fraction(3, 4)), ("quarter", _HALF / 2)):
        for part in known[name]:
            if key.startswith(part) and words.units.get(key.removeprefix(part)) in _SCALE:
                return value
    return None


def _unit_of(key: str, words: Lexicon, known: dict[str, frozenset[str]]) -> str:
    """Return the unit that a word names, also within a German compound."""
    for name in ("three_quarters", "quarter"):
        for part in known[name]:
            if key.startswith(part) and words.units.get(key.removeprefix(part)):
                return words.units[key.removeprefix(part)]
    return words.units.get(key, "")


def _key(units: list[Unit], index: int) -> str:
    return units[index].key if index < len(units) else ""


def _in_whole(value: Fraction, name: str) -> tuple[str, str]:
    """Return a quantity in the largest unit that gives a whole number."""
    scale, size = _SCALE[name]
    if not value:
        return "0", name
    amount = value * size
    for unit, step in reversed(scale):
        if (amount / step).denominator == 1:
            return str(amount / step), unit
    return str(float(value)).removesuffix(".0"), name
