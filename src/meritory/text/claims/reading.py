"""Reads a text as a claim: a normal form of its units, its values, and the changes it states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from meritory.text.claims.lexicon import (
    GAP,
    Lexicon,
    Phrase,
    best_language,
    find_phrase,
    language_scores,
    lexicon,
)
from meritory.text.claims.persons import one_subject, orders, persons, with_subjects, without_never
from meritory.text.claims.read import SPECIFIC_KINDS, Unit, units_of
from meritory.text.claims.spelling import spelled
from meritory.text.words import UNITS

# Words before "used to" that make it another phrase.
_BEFORE_USED: Final = frozenset({"is", "are", "am", "was", "were", "be", "get", "got"})
MAX_GAP_UNITS: Final = 12
# Longer texts are compared word by word only.
MAX_SHORT_UNITS: Final = 80
_OWNERS: Final = frozenset({"user's", "we's"})


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
    # The number of values, the hedges (negative) and the characters.
    specificity: tuple[int, int, int]

    @cached_property
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

    @property
    def may_state_change(self) -> bool:
        """Whether it has any word with which a change may be stated."""
        return bool(self.cues or self.marks)

    @cached_property
    def negation_count(self) -> int:
        """The number of negations in it."""
        negations = self.lexicon.negations
        return sum([key == "not" or key.rstrip(",") in negations for key in self.keys])

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
    specific_count = sum([unit.kind in SPECIFIC_KINDS for unit in units])
    scores = language_scores(unit.key for unit in units if unit.kind in {"word", "identifier"})
    chosen = language or best_language(scores)
    raw = frozenset(unit.key for unit in units)
    if chosen is None:
        keys = tuple(unit.key for unit in units)
        size = (specific_count, 0, len(text))
        return Claim(text, None, scores, tuple(units), keys, raw, keys, _NONE, _NO_MARKS, size)
    words = lexicon(chosen)
    units = list(spelled(units, words))
    cues = _take_correction(units, words)
    units, opener_count = _without_openers(units, words)
    hedge_count = sum(unit.key in words.hedges for unit in units)
    cues |= _take_cues(units, words)
    if chosen == "es":
        units = list(with_subjects(units, words))
    elif chosen == "en":
        units = without_never(units)
    units = _with_phrases(units, words)
    marks = _marks_of(units, words)
    typed = tuple(unit.key for unit in units)
    if chosen == "en":
        units = list(one_subject(persons(orders(units), words)))
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
        if words.language == "en" and key in {"do", "does"} and _is_negation(following):
            if key == "does":
                # The verb after it has no ending that shows the number.
                yield Unit("word", key, mark)
                mark = ""
            # ", not Y" names a value; ", don't give up" begins a clause of its own.
            mark = mark.replace(",", ";")
            continue
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
            is_measure = previous == "number" and key in UNITS
            if not is_measure and previous == "number":
                key = words.units.get(key, key)
            key = key if is_measure else words.same.get(key) or words.same.get(key.lower()) or key
        is_same = key == unit.key and mark == unit.before
        yield unit if is_same else Unit(unit.kind, key, mark, unit.is_capital, unit.is_first)
        mark, previous = "", unit.kind


def _is_negation(unit: Unit | None) -> bool:
    return unit is not None and unit.key in {"not", "never"}


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
                    Unit("number" if key.isdigit() else "word", key, "", first.is_capital)
                    for key in meaning
                ]
                if made:
                    made[0] = replace(made[0], before=first.before, is_first=first.is_first)
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
    is_past = words.language != "en" or (used > 0 and keys[used - 1] not in _BEFORE_USED)
    if is_past and _cut_any(units, words.cues["past"]):
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
