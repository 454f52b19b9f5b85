"""Gives the words of a text one spelling: numbers, times, dates, amounts, hyphens, characters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Final

from meritory.text.claims.lexicon import HAN, Lexicon
from meritory.text.claims.read import Unit
from meritory.text.language import read_language
from meritory.text.language import words as word_list

_DIGITS: Final = "零一二三四五六七八九"
_POWERS: Final = {"十": 10, "百": 100, "千": 1000, "万": 10_000}
# A single digit may be a part of a word: "三明治".
_PIECES: Final = re.compile(
    r"(?P<number>[一二三四五六七八九十][零一二三四五六七八九十百千万]+|十"
    r"|[二三四五六七八九](?=[点月日号元块岁天次周年分秒公千米个]))"
    rf"|{HAN.pattern}|\d+|(?:(?!{HAN.pattern}|\d).)(?:(?!{HAN.pattern}).)*"
)
_THOUSANDS: Final = {"k": "000", "thousand": "000", "million": "000000"}
_ABOUT: Final = frozenset({"around", "roughly", "approximately", "circa", "approx", "ca"})
_MONTHS: Final = word_list(
    "january february march april may june july august september october november december"
)
_SPLIT: Final = frozenset({"word", "identifier"})
_CURRENCIES: Final = frozenset("$€£¥")
_HOUR: Final = re.compile(r"0?(\d{1,2})(?::(\d\d))?")
_ORDINALS: Final = frozenset({"st", "nd", "rd", "th"})
# British and other spellings of English, with the one that stands for them.
_SPELLINGS: Final = (
    (re.compile(r"(?<=[a-z]{4})is(e|ed|es|ing|ation|ations|er|ers)$"), r"iz\1"),
    (re.compile(r"(?<=[a-z]{3})our(s|ed|ing|ite|ites|al|hood|ful|ly)?$"), r"or\1"),
    (re.compile(r"(?<=[a-z]{4})ogue(s|d)?$"), r"og\1"),
    (re.compile(r"(?<=[a-z]{3})([tb])re(s)?$"), r"\1er\2"),
    (re.compile(r"^(lic|def|off|pret)ence(s|d)?$"), r"\1ense\2"),
    (
        re.compile(r"^(trave|cance|labe|mode|signa|tota|fue|leve|chann|dia)ll(ed|ing|ers?)$"),
        r"\1l\2",
    ),
    (re.compile(r"yse(d|s|r)?$"), r"yze\1"),
)
_PREFIXES: Final = frozenset({"e", "co", "re", "pre", "non", "un", "multi", "anti", "sub"})


def spelled(units: Sequence[Unit], words: Lexicon) -> Iterator[Unit]:
    """Yield the units with one spelling for numbers, times, dates, amounts and variants."""
    is_done = False
    dated = list(_dated(units)) if words.language == "en" else units
    for unit, following in pairwise([*dated, Unit("symbol", "")]):
        if is_done:
            is_done = False
            continue
        if pair := _read_together(unit, following):
            is_done = True
            yield from pair
        elif unit.kind == "symbol" and unit.key in _CURRENCIES | {"%"}:
            yield replace(unit, kind="word")
        elif unit.kind == "word" and unit.key in _ABOUT and following.kind == "number":
            yield replace(unit, key="about")
        elif unit.kind == "number" and re.fullmatch(r"0\d:\d\d", unit.key):
            yield replace(unit, key=unit.key[1:])
        elif words.language == "zh" and HAN.search(unit.key) and unit.kind in _SPLIT:
            yield from _characters(unit)
        elif unit.kind == "word":
            yield from _word(unit, words)
        else:
            yield unit


def _read_together(unit: Unit, following: Unit) -> tuple[Unit, ...]:
    """Return what two units mean together: "$ 5", "6 pm", "20 k"; else nothing."""
    if unit.kind == "symbol" and unit.key in _CURRENCIES and following.kind == "number":
        number = replace(following, before=unit.before, is_first=unit.is_first)
        return number, replace(unit, kind="word", before="")
    if unit.kind != "number":
        return ()
    if following.key in {"am", "pm"} and _HOUR.fullmatch(unit.key):
        return (replace(unit, key=_hour(unit.key, following.key)),)
    if following.key in _THOUSANDS and unit.key.isdigit():
        return (replace(unit, key=unit.key + _THOUSANDS[following.key]),)
    return ()


def _dated(units: Sequence[Unit]) -> Iterator[Unit]:
    """Yield the units with "5 May" for "May 5", "May 5th" and "the 5th of May"."""
    keys = [*(unit.key for unit in units), "", "", ""]
    index = 0
    while index < len(units):
        unit, size = units[index], 1
        if unit.key in _MONTHS and _is_day(keys[index + 1]):
            size = 3 if keys[index + 2] in _ORDINALS else 2
            yield Unit("number", keys[index + 1], unit.before, False, unit.is_first)
            yield replace(unit, before="")
        elif _is_day(unit.key) and keys[index + 1] in _ORDINALS:
            yield unit
            has_of = keys[index + 2] == "of"
            if keys[index + 2 + has_of] in _MONTHS:
                size = 2 + has_of
        else:
            yield unit
        index += size


def _is_day(key: str) -> bool:
    return len(key) <= 2 and key.isdigit()


def _word(unit: Unit, words: Lexicon) -> Iterator[Unit]:
    """Yield a word in its usual spelling, or as a number; a hyphen separates words."""
    key = unit.key
    if words.language == "fr":
        key = key.removeprefix("'") or key
    if number := words.numbers.get(key):
        yield replace(unit, kind="number", key=number)
        return
    if words.language == "en":
        key = _respelled(key)
    elif words.language == "de":
        key = key.replace("ß", "ss") if words.same.get(key) is None else key
    head, hyphen, _ = key.partition("-")
    if not hyphen or key in words.known:
        yield unit if key == unit.key else replace(unit, key=key)
    elif head in _PREFIXES:
        yield replace(unit, key=key.replace("-", "", 1))
    else:
        first, *rest = key.split("-")
        yield replace(unit, key=first)
        # The mark lets another spelling in one word be recognised.
        yield from (Unit("word", part, "-", unit.is_capital) for part in rest if part)


@lru_cache(maxsize=8192)
def _respelled(word: str) -> str:
    """Return an English word in one spelling: "color" for "colour"."""
    if not word.isascii() or not word.isalpha():
        return word
    for pattern, spelling in _SPELLINGS:
        word = pattern.sub(spelling, word)
    return word


def _characters(unit: Unit) -> Iterator[Unit]:
    """Yield each Chinese character of a word, in its simplified form, and the rest whole."""
    table = read_language("zh/claims")["variants"]
    simple = unit.key.translate(str.maketrans(table["traditional"], table["simplified"]))
    before, is_first = unit.before, unit.is_first
    for match in _PIECES.finditer(simple):
        part = match.group()
        if match["number"]:
            yield Unit("number", _chinese_number(part), before, False, is_first)
        elif part.isdigit():
            yield Unit("number", part, before, False, is_first)
        else:
            yield Unit("word" if HAN.match(part) else unit.kind, part, before, False, is_first)
        before, is_first = "", False


def _chinese_number(text: str) -> str:
    """Return the digits of a number: 18 for 十八."""
    total = section = digit = 0
    for char in text:
        if char in _POWERS:
            power = _POWERS[char]
            if power == 10_000:
                total, section = (total + section + digit) * power, 0
            else:
                section += (digit or 1) * power
            digit = 0
        else:
            digit = _DIGITS.index(char)
    return str(total + section + digit)


def _hour(number: str, half: str) -> str:
    """Return a time of 24 hours."""
    match = _HOUR.fullmatch(number)
    hour = int(match[1]) % 12 + (12 if half == "pm" else 0) if match else 0
    return f"{hour}:{match[2] or '00'}" if match else number
