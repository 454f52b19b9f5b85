"""Reads a text as a claim: a normal form of its units, its values, and the changes it states."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Final

from meritory.text.claims.lexicon import (
    GAP,
    HAN,
    Lexicon,
    Phrase,
    best_language,
    find_phrase,
    language_scores,
    lexicon,
)
from meritory.text.claims.read import Unit, units_of, values_of
from meritory.text.language import read_language

# Words before "used to" that make it another phrase.
_BEFORE_USED: Final = frozenset({"is", "are", "am", "was", "were", "be", "get", "got"})
MAX_GAP_UNITS: Final = 12
# Longer texts are compared word by word only.
MAX_SHORT_UNITS: Final = 80
_DIGITS: Final = "零一二三四五六七八九"
_POWERS: Final = {"十": 10, "百": 100, "千": 1000, "万": 10_000}
# A single digit may be a part of a word: "三明治".
_PIECES: Final = re.compile(
    rf"(?P<number>[一二三四五六七八九十][零一二三四五六七八九十百千万]+|十|[二三四五六七八九](?=[点月日号元块岁天次周年分秒公千米个]))|{HAN.pattern}"
    rf"|\d+|(?:(?!{HAN.pattern}|\d).)(?:(?!{HAN.pattern}).)*"
)
_THOUSANDS: Final = {"k": "000", "thousand": "000", "million": "000000"}
_ABOUT: Final = frozenset({"around", "roughly", "approximately", "circa", "approx", "ca"})
_MONTHS: Final = frozenset(
    "january february march april may june july august september october november december".split()
)
_SPLIT: Final = frozenset({"word", "identifier"})
_CURRENCIES: Final = frozenset("$€£¥")
_HOUR: Final = re.compile(r"0?(\d{1,2})(?::(\d\d))?")
_ORDINAL: Final = re.compile(r"(\d{1,2})(?:st|nd|rd|th)")
_SPELLINGS: Final = (
    (re.compile(r"(?<=[a-z]{4})is(e|ed|es|ing|ation|ations|er|ers)$"), r"iz\1"),
    (re.compile(r"(?<=[a-z]{3})our(s|ed|ing|ite|ites|al|hood|ful|ly)?$"), r"or\1"),
    (re.compile(r"(?<=[a-z]{4})ogue(s|d)?$"), r"og\1"),
    (re.compile(r"(?<=[a-z]{3})([tb])re(s)?$"), r"\1er\2"),
    (re.compile(r"^(lic|def|off|pret)ence(s|d)?$"), r"\1ense\2"),
    (re.compile(r"^(trave|cance|labe|mode|signa|tota|fue|leve|chann|dia)ll(ed|ing|er|ers)$"), r"\1l\2"),
    (re.compile(r"yse(d|s|r)?$"), r"yze\1"),
)
_WE_FORM: Final = re.compile(r"[a-zñáéí]{2,}(?:[aei]mos)$")
_OWNERS: Final = frozenset({"user's", "we's"})
_PREFIXES: Final = frozenset({"e", "co", "re", "pre", "non", "un", "multi", "anti", "sub"})
_SUBJECTS: Final = frozenset({"user", "we"})
_ADVERBS: Final = frozenset({"always", "often", "usually", "never", "not", "only", "sometimes"})


@dataclass(frozen=True)
class Claim:
    """A text reduced to what it claims."""

    text: str
    # None if no known language has a word of it.
    language: str | None
    scores: dict[str, int]
    units: tuple[Unit, ...]
    keys: tuple[str, ...]
    # The words as typed, and those that the normal form dropped.
    raw: frozenset[str]
    words: tuple[str, ...]
    cues: frozenset[str]
    # The phrases of change that are still in its words, with their kinds.
    marks: frozenset[tuple[str, Phrase]]
    # Whether the dropped start of the text was "a", "each" or the like.
    opening: str
    is_person: bool
    # The number of values, the hedges (negative) and the characters.
    specificity: tuple[int, int, int]

    @property
    def lexicon(self) -> Lexicon:
        """The words of its language."""
        return lexicon(self.language or "en")

    @cached_property
    def stems(self) -> tuple[str, ...]:
        """The stem of each key."""
        words = self.lexicon
        return tuple(words.stem(key) for key in self.keys)

    @cached_property
    def content(self) -> tuple[int, ...]:
        """The indexes of the units that are not only grammar."""
        words = self.lexicon
        return tuple(
            index
            for index, unit in enumerate(self.units)
            if unit.kind != "word" or (unit.key not in words.light and unit.key not in _MARKS)
        )

    @cached_property
    def topic(self) -> frozenset[str]:
        """The stems of its content."""
        return frozenset(self.stems[index] for index in self.content)


_NONE: Final = frozenset[str]()
_NO_MARKS: Final = frozenset[tuple[str, Phrase]]()
_MARKS: Final = frozenset({"'s", "we's", "user's", ",", "not", "must"})


def read_claim(text: str, language: str | None = None) -> Claim:
    """Return the claim that a text makes, read in its own or in a given language."""
    units = list(units_of(text))
    specific_count = values_of(units).specific_count
    scores = language_scores(unit.key for unit in units if unit.kind in _SPLIT)
    chosen = language or best_language(scores)
    raw = frozenset(unit.key for unit in units)
    if chosen is None:
        keys = tuple(unit.key for unit in units)
        size = (specific_count, 0, len(text))
        return Claim(text, None, scores, tuple(units), keys, raw, keys, _NONE, _NO_MARKS, "", False, size)
    words = lexicon(chosen)
    units = list(_spelled(units, words))
    cues = _take_correction(units, words)
    units, opener_count = _without_openers(units, words)
    hedge_count = sum(unit.key in words.hedges for unit in units)
    opening = units[0].key if units else ""
    cues |= _take_cues(units, words)
    if chosen == "es":
        units = list(_spanish(units, words))
    units = _with_phrases(units, words)
    marks = _marks_of(units, words)
    typed = tuple(unit.key for unit in units)
    is_person = any(unit.key in {"user", "they"} for unit in units)
    if chosen == "en":
        units = list(_one_subject(_persons(_orders(units), words)))
    kept = tuple(_meaningful(units, words))
    return Claim(
        text,
        chosen,
        scores,
        kept,
        tuple(unit.key for unit in kept),
        raw | frozenset(typed),
        typed,
        frozenset(cues),
        marks,
        opening,
        is_person,
        (specific_count, -hedge_count - opener_count, len(text)),
    )


def _meaningful(units: Sequence[Unit], words: Lexicon) -> Iterator[Unit]:
    """Yield the units without the silent words, each word as the first of its group."""
    mark = ""
    previous = ""
    for index, unit in enumerate(units):
        mark = mark or unit.before
        following = units[index + 1] if index + 1 < len(units) else None
        key = unit.key
        if key in {"do", "does"} and words.language == "en":
            is_silent = following is not None and following.key in {"not", "never"}
        else:
            # Part of a name has meaning: "plan A", "The Power", "Really Right Stuff".
            is_named = unit.is_capital and not unit.is_first and words.language != "de"
            is_silent = not is_named and key in words.silent
        # A claim means the same without a silent word.
        if unit.kind == "word" and is_silent:
            continue
        if unit.kind == "word" and key in words.negations and following and following.before:
            # "No, tests pass" is not "no tests pass".
            key = f"{key},"
        elif unit.kind in {"word", "identifier"}:
            unit_key = words.units.get(key) if previous == "number" else None
            key = unit_key or words.same.get(key) or words.same.get(key.lower()) or key
        yield Unit(unit.kind, key, mark, unit.is_capital, unit.is_first)
        mark, previous = "", unit.kind


# -- words ------------------------------------------------------------------------------------


def _spelled(units: Sequence[Unit], words: Lexicon) -> Iterator[Unit]:
    """Yield the units with one spelling for numbers, times, dates, amounts and variants."""
    skipped = False
    previous = Unit("symbol", "")
    for unit, following in pairwise([*units, Unit("symbol", "")]):
        before, previous = previous, unit
        if unit.key == "of" and following.key in _MONTHS and _is_day(before):
            continue
        if skipped:
            skipped = False
            continue
        if unit.kind == "symbol" and unit.key in _CURRENCIES and following.kind == "number":
            yield replace(following, before=unit.before, is_first=unit.is_first)
            yield replace(unit, kind="word", before="")
            skipped = True
        elif unit.kind == "symbol" and unit.key in _CURRENCIES | {"%"}:
            yield replace(unit, kind="word")
        elif unit.kind == "number" and following.key in {"am", "pm"} and _HOUR.fullmatch(unit.key):
            yield replace(unit, key=_hour(unit.key, following.key))
            skipped = True
        elif unit.kind == "number" and following.key in _THOUSANDS and unit.key.isdigit():
            yield replace(unit, key=unit.key + _THOUSANDS[following.key])
            skipped = True
        elif unit.key in _MONTHS and _is_day(following):
            # "May 5" is "5 May".
            yield replace(following, key=_day(following), kind="number", before=unit.before)
            yield replace(unit, before="")
            skipped = True
        elif unit.kind == "word" and unit.key in _ABOUT and following.kind == "number":
            yield replace(unit, key="about")
        elif unit.kind == "number" and re.fullmatch(r"0\d:\d\d", unit.key):
            yield replace(unit, key=unit.key[1:])
        elif unit.kind == "identifier" and (match := _ORDINAL.fullmatch(unit.key)):
            yield replace(unit, kind="number", key=match[1])
        elif words.language == "zh" and HAN.search(unit.key) and unit.kind in _SPLIT:
            yield from _characters(unit)
        elif unit.kind != "word":
            yield unit
        else:
            yield from _word(unit, words)


def _is_day(unit: Unit) -> bool:
    return len(_day(unit)) <= 2 and _day(unit).isdigit()


def _day(unit: Unit) -> str:
    """Return the day of a date, "5" for "5th"."""
    match = _ORDINAL.fullmatch(unit.key)
    return match[1] if match else unit.key


def _word(unit: Unit, words: Lexicon) -> Iterator[Unit]:
    """Yield a word in its usual spelling, or as a number; a hyphen separates words."""
    key = unit.key
    if words.language == "fr":
        key = key.removeprefix("'") or key
    if number := words.numbers.get(key):
        yield replace(unit, kind="number", key=number)
        return
    if words.language == "en" and key.isascii() and key.isalpha():
        for pattern, spelling in _SPELLINGS:
            key = pattern.sub(spelling, key)
    elif words.language == "de":
        key = key.replace("ß", "ss") if words.same.get(key) is None else key
    head, hyphen, _ = key.partition("-")
    if not hyphen or key in words.known:
        yield replace(unit, key=key)
    elif head in _PREFIXES:
        yield replace(unit, key=key.replace("-", "", 1))
    else:
        first, *rest = key.split("-")
        yield replace(unit, key=first)
        # The mark lets another spelling in one word be recognised.
        yield from (Unit("word", part, "-", unit.is_capital) for part in rest if part)


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


# -- frames and cues --------------------------------------------------------------------------


def _without_openers(units: list[Unit], words: Lexicon) -> tuple[list[Unit], int]:
    """Return the units after "I think", "note that" and the like, and the number of these."""
    start = opener_count = 0
    while len(units) - start > 1:
        if units[start].key in words.silent - words.articles:
            size = 1
        else:
            heads = tuple(unit.key for unit in units[start:-1])
            size = next((len(one) for one in words.openers if heads[: len(one)] == one), 0)
            if not size:
                framed = words.cues["framed"]
                size = next((len(one) for one in framed if heads[: len(one)] == one), 0)
                if size and not units[start + size].before:
                    size = 0
        if not size:
            break
        start += size
        opener_count += 1
    rest = units[start:]
    if opener_count:
        # The claim starts after the opener, so its first capital has no meaning.
        rest[0] = replace(rest[0], is_first=True, before="")
    return rest, opener_count


def _with_phrases(units: list[Unit], words: Lexicon) -> list[Unit]:
    """Return the units with each known phrase replaced by its short form."""
    if not words.short_forms:
        return units
    keys = [unit.key for unit in units]
    result: list[Unit] = []
    index = 0
    while index < len(units):
        for phrase, meaning in words.short_forms.get(keys[index], ()):
            if tuple(keys[index : index + len(phrase)]) == phrase:
                first = units[index]
                made = [
                    replace(first, kind="number" if key.isdigit() else "word", key=key, before="")
                    for key in meaning
                ]
                if made:
                    made[0] = replace(made[0], before=first.before)
                if made and made[0].key in _OWNERS and phrase[0] in words.prepositions and result:
                    # "La casa del usuario" is "mi casa".
                    result.insert(-1, made.pop(0))
                result += made
                index += len(phrase)
                break
        else:
            result.append(units[index])
            index += 1
    return result


def _take_correction(units: list[Unit], words: Lexicon) -> set[str]:
    """Remove "correction:" and the like from the start, and return what it says."""
    is_corrected = _cut_any(units, words.cues["correction"], is_framed=True)
    return {"correction", "now"} if is_corrected else set()


def _take_cues(units: list[Unit], words: Lexicon) -> set[str]:
    """Remove the words that only say that something changed, and return what they say."""
    found: set[str] = set()
    if _cut_any(units, words.cues["ended"]):
        found.add("ended")
        if words.language == "en":
            _cut_helper(units)
    keys = [unit.key for unit in units]
    used = keys.index("used") if "used" in keys else 0
    # "is used to cold" and "was used to build" are not "used to live".
    if words.language != "en" or (used > 0 and keys[used - 1] not in _BEFORE_USED):
        if _cut_any(units, words.cues["past"]):
            found.add("past")
    while _cut_any(units, words.cues["now"]):
        found.add("now")
    return found


def _marks_of(units: Sequence[Unit], words: Lexicon) -> frozenset[tuple[str, Phrase]]:
    """Return the phrases of change that stay in the text, with their kinds."""
    keys = [unit.key for unit in units]
    found: set[tuple[str, Phrase]] = set()
    for index, key in enumerate(keys):
        for kind, phrase in words.marks.get(key, ()):
            if tuple(keys[index : index + len(phrase)]) == phrase:
                found.add((kind, phrase))
            elif GAP in phrase:
                gap = phrase.index(GAP)
                if find_phrase(keys, phrase[gap + 1 :], index + gap) >= 0:
                    found.add((kind, phrase))
    return frozenset(found)


def _cut_helper(units: list[Unit]) -> None:
    """Remove the "does" that "does not live any more" leaves."""
    for index, unit in enumerate(units):
        if unit.key in {"do", "does"}:
            del units[index]
            return


def _cut_any(units: list[Unit], phrases: Sequence[Phrase], *, is_framed: bool = False) -> bool:
    """Remove the first phrase that the text contains, and return whether there was one."""
    keys = [unit.key for unit in units]
    distinct = set(keys)
    for phrase in phrases:
        if phrase[0] not in distinct:
            continue
        if GAP in phrase:
            gap = phrase.index(GAP)
            start = find_phrase(keys, phrase[:gap])
            end = find_phrase(keys, phrase[gap + 1 :], start + gap) if start >= 0 else -1
            if start < 0 or not 0 <= end - start <= MAX_GAP_UNITS:
                continue
            # "We use UPS, not DHL any more" is about UPS.
            if start and units[start].before[:1] in {",", "，"}:
                continue
            del units[end : end + len(phrase) - gap - 1]
            del units[start : start + gap]
            return True
        start = find_phrase(keys, phrase)
        if start < 0 or len(phrase) == len(units):
            continue
        end = start + len(phrase)
        if is_framed and (start > 0 or not units[end].before):
            continue
        del units[start:end]
        if start == 0 and units:
            units[0] = replace(units[0], before="", is_first=True)
        return True
    return False


def _spanish(units: Sequence[Unit], words: Lexicon) -> Iterator[Unit]:
    """Yield Spanish units with the subject that a verb has in it, and one negation."""
    keys = {unit.key for unit in units}
    for unit in units:
        if unit.key in {"nunca", "jamás"} and "no" in keys:
            continue
        if unit.key in words.first_person and "yo" not in keys:
            yield Unit("word", "user", unit.before, False, unit.is_first)
            unit = replace(unit, before="", is_first=False)
        elif _WE_FORM.search(unit.key) and not keys & {"nosotros", "nosotras"}:
            yield Unit("word", "we", unit.before, False, unit.is_first)
            unit = replace(unit, before="", is_first=False)
        yield unit


# -- English ----------------------------------------------------------------------------------

_PERFECT: Final = frozenset({"have", "has", "had", "was", "were", "did", "been", "ever", "'d"})


def _orders(units: list[Unit]) -> list[Unit]:
    """Return the units of an order without "you must", and with "never" as "do not"."""
    keys = [unit.key for unit in units]
    if keys[:2] == ["you", "must"] and len(keys) > 2:
        units = [replace(units[2], is_first=True), *units[3:]]
        keys = keys[2:]
    if "never" not in keys or "not" in keys or set(keys) & _PERFECT:
        return units
    spot = keys.index("never")
    verb = keys[spot + 1] if spot + 1 < len(keys) else ""
    if not verb.isalpha() or verb in lexicon("en").past or verb.endswith("ed"):
        return units
    changed = [replace(units[spot], key="not"), replace(units[spot + 1], key=_plain_verb(verb))]
    return [*units[:spot], *changed, *units[spot + 2 :]]


def _one_subject(units: Iterator[Unit]) -> Iterator[Unit]:
    """Yield the units without a subject that is said again: "I sing and I dance"."""
    seen: set[str] = set()
    previous = ""
    for unit in units:
        if unit.key in _SUBJECTS:
            if unit.key in seen and previous in {"and", "but"}:
                continue
            seen.add(unit.key)
        previous = unit.key
        yield unit


# -- persons of English -----------------------------------------------------------------------

_USER: Final = {"i": "user", "me": "user", "my": "user's", "mine": "user's", "myself": "themselves"}
_WE: Final = {"we": "we", "us": "we", "our": "we's", "ours": "we's", "ourselves": "themselves"}
_THEIR: Final = {"their": "user's", "his": "user's", "her": "user's", "they": "user"}
_SELVES: Final = {"himself": "themselves", "herself": "themselves"}


def _persons(units: Sequence[Unit], words: Lexicon) -> Iterator[Unit]:
    """Yield the units with "I" and "my" as the user, "we" and "our" as the team."""
    keys = [unit.key for unit in units]
    is_note = "user" in keys[:3]
    starts_bare = len(keys) > 1 and (keys[0] in words.bare_verbs or keys[0] == "prefer")
    if starts_bare:
        yield Unit("word", "user")
        is_note = True
    index = 0
    agrees = starts_bare
    while index < len(units):
        unit = units[index]
        key = unit.key
        following = keys[index + 1] if index + 1 < len(keys) else ""
        step = 1
        if key == "user" and following == "'s":
            key, step = "user's", 2
        elif key == "team" and index and keys[index - 1] in {"the", "our", "we's"}:
            if following == "'s":
                key, step = "we's", 2
            elif index == 1:
                key = "we"
        elif unit.kind == "word" or key == "I":
            key = _USER.get(key) or _WE.get(key) or (_THEIR.get(key) if is_note else None) or key
            key = _SELVES.get(key, key)
        if agrees and unit.kind == "word" and key not in _ADVERBS:
            key = _plain_verb(key)
            agrees = False
        if key == "user" and unit.key == "user":
            agrees = True
        elif key == "we" and unit.key == "team":
            agrees = True
        elif unit.key in {"and", "but"} and is_note and following.removesuffix("s") != following:
            agrees = following in words.bare_verbs
        yield unit if key == unit.key else replace(unit, key=key)
        index += step


def _plain_verb(key: str) -> str:
    """Return "write" for "writes", the form after "I"."""
    if key in {"is", "was", "has", "does", "'s"} or not key.endswith("s") or key.endswith("ss"):
        return key
    if key.endswith("ies") and len(key) > 4:
        return key[:-3] + "y"
    if re.search(r"(?:ch|sh|ss|x|z|o)es$", key):
        return key[:-2]
    return key[:-1]
