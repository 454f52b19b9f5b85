"""Reads a text as a claim: a normal form of its units, its values, and the changes it states."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import pairwise
from typing import Final

from meritory.text.claims.kinds import in_general
from meritory.text.claims.lexicon import (
    GAP,
    Lexicon,
    Phrase,
    PhraseIndex,
    best_language,
    find_phrase,
    language_scores,
    lexicon,
)
from meritory.text.claims.persons import (
    not_but,
    one_negation,
    one_subject,
    orders,
    persons,
    with_subjects,
    without_never,
)
from meritory.text.claims.quantities import measured as with_quantities
from meritory.text.claims.read import SPECIFIC_KINDS, Unit, units_of
from meritory.text.claims.sentences import Readings, readings_of
from meritory.text.claims.spelling import measured, spelled
from meritory.text.words import UNITS

# Words before "used to" that make it another phrase.
_BEFORE_USED: Final = frozenset({"is", "are", "am", "was", "were", "be", "get", "got"})
MAX_GAP_UNITS: Final = 12
MAX_LEAD_UNITS: Final = 10
MAX_OPENER_UNITS: Final = 12
MAX_NOTE_UNITS: Final = 6
MAX_SHORT_LEAD_UNITS: Final = 3
_LEAD_ENDS: Final = frozenset({",", ":", ".", ";", "-", "–", "—", "!"})
# First words of a remark on an earlier text.
_LEADS: Final = frozenset({"i", "we", "sorry", "no", "oops"})
_TOLD: Final = {
    "their": "my", "his": "my", "her": "my", "they": "i", "he": "i", "she": "i",
}  # fmt: skip
_REFERRING: Final = frozenset(
    {"it", "that", "them", "this", "those", "two", "up", "was", "is", "not"}
)
# Longer texts are compared word by word only.
MAX_SHORT_UNITS: Final = 80
# "Takes two hours", not "takes lessons".
_TAKES: Final = {"take": "last", "takes": "lasts", "took": "lasted"}
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
    def readings(self) -> Readings:
        """The readings of an English sentence as parts."""
        return readings_of(self.units, self.lexicon)

    @cached_property
    def general_readings(self) -> Readings:
        """The readings with things of a kind in the singular."""
        return in_general(self.readings, self.units, self.lexicon)

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
        units = not_but(without_never(units))
    units = with_quantities(one_negation(_with_phrases(units, words), words), words)
    marks = _marks_of(units, words)
    typed = tuple(unit.key for unit in units)
    if chosen == "en":
        units = list(one_subject(persons(orders(units), words)))
    kept = tuple(measured(list(_meaningful(units, words)), words))
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
    mark = previous = article = ""
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
        if key in _TAKES and following is not None and following.kind == "number":
            key = _TAKES[key]
        # A claim means the same without a silent word.
        if unit.kind == "word" and is_silent:
            article = key if key in words.articles else article
            continue
        is_no = words.language == "en" or not index
        is_denial = is_no and unit.kind == "word" and key in words.negations
        if is_denial and following and following.before:
            # "No, tests pass" is not "no tests pass".
            key = f"{key},"
        elif unit.kind in {"word", "identifier"}:
            is_measure = previous == "number" and key in UNITS
            if previous == "number" and (words.language != "en" or not is_measure):
                key = words.units.get(key, key)
            # "Mb" is not "MB".
            key = UNITS[key] if is_measure and len(key) > 3 else key
            if not is_measure:
                # "PostgreSQL" is "postgres", and "PATH" is no path.
                is_name = key.isupper() and len(key) > 3
                lowered = None if is_name else words.same.get(key.lower())
                key = words.same.get(key) or lowered or key
        is_same = key == unit.key and mark == unit.before and article == unit.article
        yield (
            unit if is_same else Unit(unit.kind, key, mark, unit.is_capital, unit.is_first, article)
        )
        mark, article, previous = "", "", unit.kind


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
            size = _opener_size(units[start:], words)
            if not size and opener_count and units[start].key == "and":
                size = 1
        if not size:
            break
        start += size
        opener_count += 1
    rest = units[start:]
    said = {unit.key for unit in units[:start]}
    if "user" in said and rest and rest[0].key in _TOLD and words.language == "en":
        # "The user said that their car is red."
        rest[0] = replace(rest[0], key=_TOLD[rest[0].key])
    opener_count += _cut_lead_note(rest, words)
    # "..., by the way."
    for phrase in words.closing.get(rest[-1].key.lower(), ()) if rest else ():
        size = len(phrase)
        ends = tuple(unit.key.lower() for unit in rest[-size:])
        if len(rest) > size + 1 and ends == phrase and rest[-size].before[:1] in {",", "-"}:
            rest = rest[:-size]
            break
    if opener_count:
        # The claim starts after the opener, so its first capital has no meaning.
        rest[0] = replace(rest[0], is_first=True, before="")
    return rest, opener_count


def _opener_size(units: Sequence[Unit], words: Lexicon) -> int:
    """Return the number of units of the opener that a text begins with, or 0."""
    heads = tuple(unit.key.lower() for unit in units[:MAX_OPENER_UNITS])
    for size in range(len(heads), 0, -1):
        if heads[:size] in words.openers and size < len(units):
            return size
        if heads[:size] in words.framed and size < len(units) and units[size].before:
            return size
    return 0


def _cut_lead_note(units: list[Unit], words: Lexicon) -> int:
    """Remove "reminder to self:" from the start, and return 1 if it was there."""
    reach = range(1, min(MAX_NOTE_UNITS, len(units) - 1))
    end = next((place for place in reach if units[place].before[:1] in {":", "-", "–", "—"}), 0)
    if not end or not {unit.key.lower() for unit in units[:end]} & words.remarks:
        return 0
    del units[:end]
    return 1


def _with_phrases(units: list[Unit], words: Lexicon) -> list[Unit]:
    """Return the units with each known phrase replaced by its short form."""
    if not words.short_forms:
        return units
    keys = [unit.key for unit in units]
    result: list[Unit] = []
    index, following = 0, [*keys[1:], ""]
    short_forms = _short_forms(words.language)
    while index < len(keys):
        pair = (keys[index], following[index])
        for phrase, meaning in short_forms.get(pair) or short_forms.get((pair[0], ""), ()):
            if tuple(keys[index : index + len(phrase)]) == phrase:
                first = units[index]
                made = [Unit("number" if key.isdigit() else "word", key) for key in meaning]
                if made:
                    made[0] = replace(first, kind=made[0].kind, key=made[0].key)
                if made and made[0].key in _OWNERS and _is_of(phrase, words) and result:
                    # "La casa del usuario" is "mi casa".
                    result.insert(-1, made.pop(0))
                result += made
                index += len(phrase)
                break
        else:
            result.append(units[index])
            index += 1
    return result


def _is_of(phrase: Phrase, words: Lexicon) -> bool:
    """Return whether a phrase is "of the user", not "my"."""
    return len(phrase) > 1 and phrase[0] in words.prepositions | words.articles


def _take_correction(units: list[Unit], words: Lexicon) -> set[str]:
    """Remove "correction:" and the like from the start, and return what it says."""
    is_corrected = _cut_any(units, words.cues_by_word["correction"], is_framed=True)
    is_corrected |= _cut_any(units, words.cues_by_word["actually"])
    if words.language == "en":
        is_corrected |= _cut_lead(units, words)
    return {"correction", "now"} if is_corrected else set()


def _cut_lead(units: list[Unit], words: Lexicon) -> bool:
    """Remove "I misread the date:" from the start, and return whether it was there."""
    reach = range(1, min(MAX_LEAD_UNITS, len(units) - 1))
    ends = [place for place in reach if units[place].before[:1] in _LEAD_ENDS]
    for end in reversed(ends):
        lead = units[:end]
        keys = {unit.key.lower() for unit in lead}
        is_slip = bool(keys & words.weak_slips and keys & _REFERRING)
        is_told = keys & words.slips or is_slip
        # "Mistake to avoid:" gives advice.
        is_told = is_told and not keys & words.named("advice")
        is_plain = not any(unit.kind not in {"word", "symbol"} for unit in lead)
        is_short = end <= MAX_SHORT_LEAD_UNITS or keys <= words.slips | _REFERRING
        is_short |= lead[0].key in words.slips or bool(keys & {"was", "is"} and lead[0].key == "my")
        if is_told and is_plain and (lead[0].key in _LEADS or is_short):
            del units[:end]
            units[0] = replace(units[0], before="", is_first=True)
            return True
    return False


def _take_cues(units: list[Unit], words: Lexicon) -> set[str]:
    """Remove the words that only say that something changed, and return what they say."""
    found: set[str] = set()
    if _cut_any(units, words.cues_by_word["ended"]):
        found.add("ended")
        if words.language == "en":
            _cut_helper(units)
    keys = [unit.key for unit in units]
    used = keys.index("used") if "used" in keys else 0
    # "is used to cold" and "was used to build" are not "used to live".
    is_past = words.language != "en" or (used > 0 and keys[used - 1] not in _BEFORE_USED)
    is_past = is_past and not _is_before_phrase(units, words)
    if is_past and _cut_any(units, words.cues_by_word["past"]):
        found.add("past")
    while _cut_any(units, words.cues_by_word["actual"]):
        found |= {"now", "correction"}
    while _cut_any(units, words.cues_by_word["henceforth"]):
        found |= {"now", "henceforth"}
    while _cut_any(units, words.cues_by_word["now"]):
        found.add("now")
    return found


def _is_before_phrase(units: Sequence[Unit], words: Lexicon) -> bool:
    """Return whether "before" has a time or a thing after it: "before the release"."""
    starts = {phrase[0] for phrase in words.cues["past"] if len(phrase) == 1}
    return any(
        unit.key in starts
        and not following.before
        and (following.kind == "number" or following.key in words.articles | words.prepositions)
        for unit, following in pairwise(units)
    )


def _marks_of(units: Sequence[Unit], words: Lexicon) -> frozenset[tuple[str, Phrase]]:
    """Return the phrases of change that stay in the text, with their kinds."""
    keys = [unit.key for unit in units]
    found: set[tuple[str, Phrase]] = set()
    marks = _marks(words.language)
    for index, pair in enumerate(pairwise([*keys, ""])):
        for kind, phrase in marks.get(pair) or marks.get((pair[0], ""), ()):
            if tuple(keys[index : index + len(phrase)]) == phrase:
                found.add((kind, phrase))
            elif GAP in phrase:
                gap = phrase.index(GAP)
                if find_phrase(keys, phrase[gap + 1 :], index + gap) >= 0:
                    found.add((kind, phrase))
    return frozenset(found)


@cache
def _short_forms(language: str) -> dict[tuple[str, str], tuple[tuple[Phrase, Phrase], ...]]:
    """Return the short forms by the first two words of their phrases."""
    entries = lexicon(language).short_forms
    return {
        pair: tuple(entry for entry in entries[pair[0]] if _may_begin(entry[0], pair))
        for pair in _beginnings(entry[0] for group in entries.values() for entry in group)
    }


@cache
def _marks(language: str) -> dict[tuple[str, str], tuple[tuple[str, Phrase], ...]]:
    """Return the phrases of change that stay in a text, by their first two words."""
    entries = lexicon(language).marks
    return {
        pair: tuple(entry for entry in entries[pair[0]] if _may_begin(entry[1], pair))
        for pair in _beginnings(entry[1] for group in entries.values() for entry in group)
    }


def _beginnings(phrases: Iterable[Phrase]) -> set[tuple[str, str]]:
    """Return the first two words of phrases, and the first with an empty one for all others."""
    found = {(phrase[0], second) for phrase in phrases for second in ("", *phrase[1:2])}
    return {pair for pair in found if pair[1] != GAP}


def _may_begin(phrase: Phrase, pair: tuple[str, str]) -> bool:
    return len(phrase) == 1 or phrase[1] in (pair[1], GAP)


def _cut_helper(units: list[Unit]) -> None:
    """Remove the "does" that "does not live any more" leaves."""
    for index, unit in enumerate(units):
        if unit.key in {"do", "does"}:
            del units[index]
            return


def _cut_any(units: list[Unit], phrases: PhraseIndex, *, is_framed: bool = False) -> bool:
    """Remove the first phrase that the text contains, and return whether there was one."""
    keys = [unit.key for unit in units]
    begun = keys[:1] if is_framed else set(keys)
    found = [phrase for key in begun if key in phrases for phrase in phrases[key]]
    for phrase in sorted(found, key=lambda one: (-len(one), one)):
        if GAP in phrase:
            gap = phrase.index(GAP)
            start = find_phrase(keys, phrase[:gap])
            end = find_phrase(keys, phrase[gap + 1 :], start + gap) if start >= 0 else -1
            if start < 0 or not 0 <= end - start <= MAX_GAP_UNITS:
                continue
            after = end + len(phrase) - gap - 1
            if is_framed:
                if start or after >= len(units) or not units[after].before:
                    continue
                del units[:after]
                units[0] = replace(units[0], before="", is_first=True)
                return True
            # "We use UPS, not DHL any more" is about UPS.
            if start and units[start].before[:1] in {",", "，"}:
                continue
            del units[end:after]
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
