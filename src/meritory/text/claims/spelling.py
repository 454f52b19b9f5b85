"""Gives the words of a text one spelling: numbers, times, dates, amounts, hyphens, characters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Final

from meritory.text.claims.lexicon import HAN, Lexicon, lexicon
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
_THOUSANDS: Final = {"k": 1_000, "thousand": 1_000, "million": 1_000_000}
_ABOUT: Final = frozenset({"around", "roughly", "approximately", "circa", "approx", "ca"})
_MONTHS: Final = word_list(
    "january february march april may june july august september october november december"
)
_SPLIT: Final = frozenset({"word", "identifier"})
_CURRENCIES: Final = frozenset("$€£¥")
_HOUR: Final = re.compile(r"0?(\d{1,2})(?::(\d\d))?")
_MILLION: Final = 1_000_000
_DECIMAL: Final = re.compile(r"\d{1,12}(?:\.\d{1,6})?")
_AFTER_HAS: Final = frozenset({"been", "got", "had"})
_AFTER_HAD: Final = frozenset({"been", "better", "had", "never", "already"})
_ISO_DATE: Final = re.compile(r"((?:19|20)\d\d)-(\d\d)-(\d\d)")
MONTH_NAMES: Final = (
    "january february march april may june july august september october november december".split()  # noqa: SIM905
)
_SHORT_MONTHS: Final = {name[:3]: name for name in MONTH_NAMES} | {"sept": "september"}
_SHORT_DAYS: Final = {
    "mon": "monday", "tue": "tuesday", "tues": "tuesday", "wed": "wednesday", "thu": "thursday",
    "thur": "thursday", "thurs": "thursday", "fri": "friday",
}  # fmt: skip
_OCLOCK: Final = frozenset({"o'clock", "oclock"})
_PAST_HOUR: Final = {
    ("half", "past"): 30,
    ("quarter", "past"): 15,
    ("quarter", "to"): -15,
    ("a", "quarter", "past"): 15,
    ("a", "quarter", "to"): -15,
}
_HALVES: Final = {
    ("am",): "am",
    ("pm",): "pm",
    ("a.m",): "am",
    ("p.m",): "pm",
    ("in", "the", "morning"): "am",
    ("in", "the", "afternoon"): "pm",
    ("in", "the", "evening"): "pm",
    ("at", "night"): "pm",
}
# Codes of currencies, which may precede the amount.
_CODES: Final = {"EUR": "€", "USD": "$", "GBP": "£", "JPY": "¥", "CHF": "chf"}
_HOURS: Final = {"noon": "12:00", "midday": "12:00", "midnight": "0:00"}
# "First" and "second" are often not about order.
_ORDINAL_WORDS: Final = {
    "second": "2", "third": "3", "fourth": "4", "fifth": "5", "sixth": "6", "seventh": "7",
    "eighth": "8", "ninth": "9", "tenth": "10", "eleventh": "11", "twelfth": "12",
}  # fmt: skip
# Words that no owner precedes: "Rosa's the secretary".
_AFTER_IS: Final = frozenset({"a", "an", "the"})
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
_COMPOUND: Final = re.compile(r"[A-ZÄÖÜ][a-zäöüß]*(?:-[A-ZÄÖÜ][a-zäöüß]+)+")
_TYPED_UMLAUT: Final = re.compile("[aou]e")
_UMLAUTS: Final = {"ae": "ä", "oe": "ö", "ue": "ü"}
_NOT_RESPELLED: Final = (
    "otherwise", "likewise", "promise", "exercise", "supervis", "improvis", "advertis", "surpris",
    "franchis", "premise", "expertise", "precise", "concise", "paradise", "merchandise",
    "compromise", "enterprise", "disguise",
)  # fmt: skip
# Words that are read with what is beside them.
_BESIDE: Final = frozenset(
    {"'s", "is", "'d", "%", *_HOURS, *_ORDINALS, *_ORDINAL_WORDS, *_ABOUT, *_CURRENCIES}
)
_PREFIXES: Final = frozenset({"e", "co", "re", "pre", "non", "un", "multi", "anti", "sub"})


def spelled(units: Sequence[Unit], words: Lexicon) -> Iterator[Unit]:
    """Yield the units with one spelling for numbers, times, dates, amounts and variants."""
    is_done = False
    dated = units
    if words.language == "en":
        if any(unit.kind == "number" for unit in units):
            dated = list(_dated(list(_timed(units))))
        elif any(unit.is_capital and unit.key in _SHORT_DAYS for unit in units):
            dated = list(_dated(units))
    kind = ""
    for unit, following in pairwise([*dated, Unit("symbol", "")]):
        previous, kind = kind, unit.kind
        if is_done:
            is_done = False
            continue
        if unit.kind == "word" and _is_plain(unit.key, words.language):
            yield unit
        elif pair := _read_together(unit, following):
            is_done = True
            yield from pair
        elif words.language == "en" and (read := _read_english(unit, following, previous)):
            yield from read
        else:
            yield from _read_alone(unit, following, words)


# Words repeat, and most have one spelling.
@lru_cache(maxsize=8192)
def _is_plain(key: str, language: str) -> bool:
    """Return whether a word is spelled as it is, whatever is beside it."""
    if key in _BESIDE or key in _CODES or HAN.search(key):
        return False
    unit = Unit("word", key)
    return list(_word(unit, lexicon(language))) == [unit]


def _read_english(unit: Unit, following: Unit, previous: str) -> tuple[Unit, ...]:
    """Return an hour, a contraction or an ordinal number in full, or nothing."""
    key = unit.key
    if key in _HOURS:
        return (replace(unit, kind="number", key=_HOURS[key]),)
    if key == "'s" and following.key in _AFTER_IS:
        return (replace(unit, key="is"),)
    if key in {"'s", "is"} and following.key in _AFTER_HAS:
        return (replace(unit, key="has"),)
    if key == "'d":
        return (replace(unit, key="had" if following.key in _AFTER_HAD else "would"),)
    if key in _ORDINALS and unit.kind == "word" and previous == "number":
        return (replace(unit, key="th"),)
    if key in _ORDINAL_WORDS and following.kind == "word" and previous != "number":
        number = Unit("number", _ORDINAL_WORDS[key], unit.before, False, unit.is_first)
        return number, Unit("word", "th")
    return ()


def _read_alone(unit: Unit, following: Unit, words: Lexicon) -> Iterator[Unit]:
    """Yield a unit in its usual spelling."""
    if unit.kind == "symbol" and unit.key in _CURRENCIES | {"%"}:
        yield replace(unit, kind="word")
    elif unit.kind == "word" and unit.key in _ABOUT and following.kind == "number":
        yield replace(unit, key="about")
    elif unit.kind == "number" and re.fullmatch(r"0\d:\d\d", unit.key):
        yield replace(unit, key=unit.key[1:])
    elif words.language == "zh" and HAN.search(unit.key) and unit.kind in _SPLIT:
        yield from _characters(unit)
    elif unit.kind == "word":
        yield from _word(unit, words)
    elif words.language == "de" and _COMPOUND.fullmatch(unit.key):
        # A noun in parts, not an identifier: "Hotfix-Branch".
        whole = unit.key.lower().removeprefix("e-")
        yield from _word(replace(unit, kind="word", key=whole, is_capital=True), words)
    else:
        yield unit


def _read_together(unit: Unit, following: Unit) -> tuple[Unit, ...]:
    """Return what two units mean together: "$ 5", "6 pm", "20 k"; else nothing."""
    if unit.key in _CODES and following.kind == "number":
        number = replace(following, before=unit.before, is_first=unit.is_first)
        return number, Unit("word", _CODES[unit.key])
    if unit.kind == "symbol" and unit.key in _CURRENCIES and following.kind == "number":
        number = replace(following, before=unit.before, is_first=unit.is_first)
        return number, replace(unit, kind="word", before="")
    if unit.kind != "number":
        return ()
    if following.key == "hundred" and unit.key.isdigit():
        return (replace(unit, key=unit.key + "00"),)
    if following.key in {"am", "pm"} and _HOUR.fullmatch(unit.key):
        return (replace(unit, key=_hour(unit.key, following.key)),)
    if following.key in _THOUSANDS and _DECIMAL.fullmatch(unit.key):
        return (replace(unit, key=_written(_millionths(unit.key) * _THOUSANDS[following.key])),)
    return ()


def _millionths(number: str) -> int:
    """Return a decimal number times a million."""
    whole, _, part = number.partition(".")
    return int(whole + part.ljust(6, "0"))


def _written(millionths: int) -> str:
    """Return a number of millionths as a decimal number."""
    whole, part = divmod(millionths, _MILLION)
    return f"{whole}.{part:06}".rstrip("0").rstrip(".")


def measured(units: Sequence[Unit], words: Lexicon) -> Iterator[Unit]:
    """Yield the units with each measure in its largest unit: 2 h for 120 min."""
    if not any(unit.kind == "number" for unit in units):
        yield from units
        return
    is_done = False
    for unit, following in pairwise([*units, Unit("symbol", "")]):
        scale = words.measures.get(following.key) if unit.kind == "number" else None
        if is_done:
            is_done = False
        elif scale is None or not _DECIMAL.fullmatch(unit.key):
            yield unit
        else:
            is_done = True
            names, factor = scale
            amount = _millionths(unit.key) * factor
            # "60 s" stays, so that "30 s" and "60 s" are told apart in one unit.
            fitting = (one for one in names if not amount % (one[1] * _MILLION))
            name, size = next(
                (one for one in fitting if amount >= 2 * one[1] * _MILLION), names[-1]
            )
            yield replace(unit, key=_written(amount // size))
            yield replace(following, key=name)


def _timed(units: Sequence[Unit]) -> Iterator[Unit]:
    """Yield the units with "19:30" for "half past seven in the evening"."""
    keys = [*(unit.key for unit in units), "", "", "", ""]
    index = 0
    while index < len(units):
        unit = units[index]
        size = 1
        offset = _PAST_HOUR.get(tuple(keys[index : index + 2]))
        spot = index + 2
        if offset is None:
            offset = _PAST_HOUR.get(tuple(keys[index : index + 3]))
            spot = index + 3
        if offset is None and _is_hour(keys[index]) and keys[index + 1] in _OCLOCK:
            yield replace(unit, key=f"{keys[index]}:00")
            size = 2
        elif offset is not None and _is_hour(keys[spot]):
            minutes = (int(keys[spot]) % 24) * 60 + offset
            half, more = _half_of_day(keys[spot + 1 :])
            if half == "pm" and minutes < 12 * 60:
                minutes += 12 * 60
            time = f"{minutes // 60}:{minutes % 60:02}"
            yield Unit("number", time, unit.before, False, unit.is_first)
            size = spot + 1 + more - index
        elif unit.kind == "number" and _HOUR.fullmatch(unit.key):
            half, size = _half_of_day(keys[index + 1 :])
            size += 1
            yield replace(unit, key=_hour(unit.key, half)) if half else unit
        elif unit.kind == "number" and (date := _ISO_DATE.fullmatch(unit.key)):
            month = min(max(int(date[2]), 1), 12) - 1
            yield replace(unit, key=str(int(date[3])))
            yield Unit("word", MONTH_NAMES[month])
            yield Unit("number", date[1])
        else:
            yield unit
        index += size


def _is_hour(key: str) -> bool:
    return key.isdigit() and len(key) <= 2


def _half_of_day(keys: Sequence[str]) -> tuple[str, int]:
    """Return whether "in the evening" or the like follows an hour, and its length."""
    for phrase, half in _HALVES.items():
        if tuple(keys[: len(phrase)]) == phrase:
            return half, len(phrase)
    return "", 0


def _dated(units: Sequence[Unit]) -> Iterator[Unit]:
    """Yield the units with "5 May" for "May 5", "May 5th" and "the 5th of May"."""
    keys = [*(unit.key for unit in units), "", "", ""]
    index = 0
    while index < len(units):
        unit, size = units[index], 1
        day = keys[index - 1] if index else ""
        is_dated = _is_day(keys[index + 1]) or _is_day(day) or day in _ORDINALS
        if unit.key in _SHORT_MONTHS and is_dated:
            unit = replace(unit, key=_SHORT_MONTHS[unit.key])
        elif unit.key in _SHORT_DAYS and unit.is_capital:
            unit = replace(unit, key=_SHORT_DAYS[unit.key])
        keys[index] = unit.key
        if unit.key in _MONTHS and _is_day(keys[index + 1]):
            size = 3 if keys[index + 2] in _ORDINALS else 2
            yield Unit("number", keys[index + 1], unit.before, False, unit.is_first)
            yield replace(unit, before="")
        elif _is_day(unit.key) and keys[index + 1] in _ORDINALS:
            yield unit
            has_of = keys[index + 2] == "of"
            if keys[index + 2 + has_of] in _MONTHS | _SHORT_MONTHS.keys():
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
        key = respelled(key)
    elif words.language == "de":
        key = key.replace("ß", "ss") if words.same.get(key) is None else key
        if key not in words.known and _TYPED_UMLAUT.search(key):
            umlaut = _TYPED_UMLAUT.sub(lambda match: _UMLAUTS[match[0]], key)
            key = umlaut if umlaut in words.known else key
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
def respelled(word: str) -> str:
    """Return an English word in one spelling: "color" for "colour"."""
    if not word.isascii() or not word.isalpha() or word.startswith(_NOT_RESPELLED):
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
