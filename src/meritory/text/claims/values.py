"""Whether two texts give one claim another value, and which value that is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, Literal

from meritory.text.claims.lexicon import Phrase, find_phrase
from meritory.text.claims.read import Unit
from meritory.text.claims.reading import Claim
from meritory.text.claims.sentences import PERSONS
from meritory.text.claims.vetoes import veto

Update = tuple[Literal["supersede", "chain"], str]
# Runs of the indexes of units.
Run = tuple[int, ...]

MAX_VALUE_UNITS: Final = 6
MAX_DATE_UNITS: Final = 4
# Of an event since which something holds: "since the operation".
MAX_EVENT_UNITS: Final = 5
MIN_COMMON_LEAD: Final = 3
MAX_NAME_UNITS: Final = 3
NONE: Final = frozenset[str]()
# What holds for one thing says nothing about another.
_SCOPES: Final = frozenset({"for", "für", "pour", "para", "per"})
# "Works with Bob" leaves room for others.
_ACCOMPANYING: Final = frozenset({"with", "and", "or", "about", "against"})
# Before the place or the amount that something moves to.
_GOALS: Final = frozenset({"to", "auf", "nach", "à", "au", "vers", "a", "al", "到"})
TITLES: Final = frozenset({"mr", "ms", "mrs", "dr"})
_SAYS_OTHER_VALUE: Final = frozenset({"now", "correction", "since", "new", "change"})
# Before the tool with which something is done.
_MEANS: Final = frozenset({"with", "via", "through", "in", "on", "use"})
_PERFECT: Final = frozenset({"have", "been"})
# "Q2", "B4".
_LABEL: Final = re.compile(r"[A-Z]\d{1,2}")
_NAMES_BY_CAPITALS: Final = frozenset({"fr", "es"})
_THEN: Final = frozenset({"it", "they", "he", "she", "that", "this"})


def other_value(old: Claim, new: Claim, cues: frozenset[str]) -> Update | None:
    """Return the relation of two claims that differ in one value of the same subject."""
    if not dates_of(new):
        cues -= {"since"}
    says = bool(cues & _SAYS_OTHER_VALUE)
    # Of several sentences, each may be about something else.
    if veto(old, new, same_values=False) or _has_sentences(old) or _has_sentences(new):
        return None
    found = _by_runs(old, new, cues, says)
    # Other languages put words of a change at more places than English does.
    has_order = not says or old.language == "en"
    return found or (_by_order(old, new, cues, says) if has_order else None)


def _by_runs(old: Claim, new: Claim, cues: frozenset[str], says: bool) -> Update | None:
    """Return the relation of two claims each of which has one run of words of its own."""
    added, removed = _values(old, new, cues)
    if not added or not removed or not old.topic & new.topic:
        return None
    if len(added) > 1 or len(removed) > 1:
        if "now" in cues and _common_lead(old, new) >= MIN_COMMON_LEAD:
            return "supersede", "the new text says what holds now of the same subject"
        return None
    was, now = removed[0], added[0]
    if len(was) > MAX_VALUE_UNITS or len(now) > MAX_VALUE_UNITS:
        return None
    if _is_mixed(old, was) or _is_mixed(new, now):
        return None
    if mixes_name(old, was) and mixes_name(new, now):
        return None
    reason = f"{_text(old, was)} is now {_text(new, now)}"
    if _is_subject(now, new) or _is_subject(was, old):
        if _is_definite(new, now) and _is_definite(old, was) and says:
            return "chain", f"another value: {reason}"
        return None
    if not _is_same_relation(old, new, was, now) or not _is_same_kind(old, new, was, now, cues):
        return None
    if not says:
        return None
    return "supersede", f"the new text gives another value: {reason}"


def _values(old: Claim, new: Claim, cues: frozenset[str]) -> tuple[list[Run], list[Run]]:
    """Return what only the new and only the old text say, without the words of the change."""
    words = new.lexicon
    dates = dates_of(new) if "since" in cues else frozenset[int]()
    verbs = change_stems(new, cues & _SAYS_OTHER_VALUE)
    held = frozenset[str]()
    if "change" in cues:
        # "The price was raised to 5 euros" is about what "it costs 4 euros" is about.
        vague = frozenset(map(words.stem, words.attributes))
        verbs |= PERSONS | (NONE if old.topic & vague else vague)
        verbs_of_value = words.one_valued | {"use", "have"}
        held = frozenset(words.stem(words.same.get(verb, verb)) for verb in verbs_of_value)
    added = runs(new, without=old.topic | verbs, dropped=dates)
    return added, runs(old, without=new.topic | held)


def _is_same_relation(old: Claim, new: Claim, was: Run, now: Run) -> bool:
    """Return whether two claims have more in common than whom they are about."""
    if len(old.topic & new.topic) > 1:
        return True
    be = {new.lexicon.same.get(key, key) for key in new.lexicon.be}
    is_copula = bool(be & {*old.keys[: was[0]]}) and bool(be & {*new.keys[: now[0]]})
    numbers = all(_is_numeric(old, i) for i in was) and all(_is_numeric(new, i) for i in now)
    return is_copula or numbers


def _has_sentences(claim: Claim) -> bool:
    # The full stop of "Dr." and of a German date ends no sentence.
    pairs = pairwise(claim.units)
    return any(b.is_first and a.key not in TITLES and a.kind != "number" for a, b in pairs)


def _is_same_kind(old: Claim, new: Claim, was: Run, now: Run, cues: frozenset[str]) -> bool:
    """Return whether two values may stand for each other: one ends the other."""
    words = new.lexicon
    closed = words.pronouns | words.negations | words.quantifiers | words.limits
    if any(old.keys[i] in closed for i in was) or any(new.keys[i] in closed for i in now):
        return False
    if all(_is_numeric(old, i) for i in was) and all(_is_numeric(new, i) for i in now):
        return True
    before, after = _before(old, was), _before(new, now)
    prepositions = words.prepositions
    are_places = before in words.places and after in words.places
    is_other = before in prepositions and after in prepositions - _GOALS and before != after
    if is_other and not are_places:
        return False
    said = set(_words_before(old, was))
    is_object = before not in prepositions and "correction" not in cues
    if is_object and said & words.many_valued:
        return False
    if before in _ACCOMPANYING and said & words.companions:
        return False
    # "Redis is now deprecated" does not end "Redis is fast": a thing is many things.
    return not {before, after} & words.be or _is_definite_subject(old)


def _words_before(claim: Claim, run: Run) -> tuple[str, ...]:
    """Return the words as typed that precede a value."""
    kept = run[0] - sum(key in PERSONS for key in claim.keys[: run[0]])
    key = claim.units[run[0]].key
    spot = claim.words.index(key) if key in claim.words else kept
    return claim.words[:spot]


def _is_definite_subject(claim: Claim) -> bool:
    """Return whether a claim is about "my boss" or "the port", not about "Redis"."""
    first = claim.units[0]
    if first.kind != "word" or first.key in claim.lexicon.pronouns | PERSONS:
        return False
    words = claim.lexicon
    is_owned = "'s" in claim.words[:4] or first.key in {"user's", "we's"}
    if is_owned or set(claim.words[:1]) & (words.definite | words.articles):
        return True
    return not first.is_capital or claim.language in {"de", "zh"}


def _by_order(old: Claim, new: Claim, cues: frozenset[str], says: bool) -> Update | None:
    """Return the relation of two claims that are equal but for one stretch of words."""
    kept = _without_change(new, cues) if says else tuple(range(len(new.keys)))
    left, right = old.stems, tuple(new.stems[index] for index in kept)
    if says and right and new.keys[kept[0]] in _THEN and right[1:2] and right[1] in left:
        # "I misread the contract, it ends in May."
        right = (*left[: left.index(right[1])], *right[1:])
        kept = (*([kept[0]] * (len(right) - len(kept) + 1)), *kept[1:])
    lead = _common(left, right)
    tail = _common(left[lead:][::-1], right[lead:][::-1])
    was, now = tuple(range(lead, len(left) - tail)), kept[lead : len(right) - tail]
    if tail and not (was and now):
        # "Twice a day", "once a day".
        tail -= 1
        was, now = tuple(range(lead, len(left) - tail)), kept[lead : len(right) - tail]
        if not all(_Slot(old, new, was, now).measures()) if was and now else True:
            return None
    if not was or not now or max(len(was), len(now)) > MAX_VALUE_UNITS:
        return None
    words = old.lexicon
    is_swapped = sorted(left[i] for i in was) == sorted(new.stems[i] for i in now)
    if is_swapped:
        is_choice = "like" in old.keys[:lead] and not says
        return ("chain", "the other one is preferred") if is_choice else None
    own = {*(old.keys[i] for i in was), *(new.keys[i] for i in now)}
    closed = words.negations | words.limits | (words.quantifiers - {"each"}) | {"not", "and", "or"}
    if own & closed:
        return None
    if _has_two_parts(old, was) and _has_two_parts(new, now):
        # "Vitamin D in winter" and "iron in the morning" differ in two things.
        return None
    reason = f"{_text(old, was)} is now {_text(new, now)}"
    slot = _Slot(old, new, was, now)
    if says and slot.may_change(cues):
        return "supersede", f"the new text gives another value: {reason}"
    if not says and slot.is_one_valued():
        return "chain", f"another value of the same claim: {reason}"
    return None


def mixes_name(claim: Claim, indexes: Sequence[int]) -> bool:
    """Return whether units are a name and another word, where a capital shows a name."""
    if claim.language not in _NAMES_BY_CAPITALS:
        return False
    capitals = {claim.units[i].is_capital and not claim.units[i].is_first for i in indexes}
    return len(capitals) > 1


def _has_two_parts(claim: Claim, run: Run) -> bool:
    """Return whether a run is the object of a verb and a part after a preposition."""
    words = claim.lexicon
    breaks = words.prepositions - {"of"}
    is_object = _before(claim, run) not in words.prepositions | words.be
    return is_object and any(claim.keys[index] in breaks for index in run[1:-1])


def _without_change(claim: Claim, cues: frozenset[str]) -> tuple[int, ...]:
    """Return the indexes of the keys that are not a date of change or "new"."""
    words = claim.lexicon
    dates = dates_of(claim) if "since" in cues else frozenset[int]()
    dropped = {word for phrase in words.cues["new"] for word in phrase} if "new" in cues else set()
    if dates:
        dropped |= _PERFECT
    return tuple(
        index for index, key in enumerate(claim.keys) if index not in dates and key not in dropped
    )


def _common(left: tuple[str, ...], right: tuple[str, ...]) -> int:
    """Return how many words two texts begin with in common."""
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count


class _Slot:
    """The place of the only difference of two claims, and the values in it."""

    def __init__(self, old: Claim, new: Claim, was: Run, now: Run) -> None:
        self._old, self._new, self._was, self._now = old, new, was, now
        words = old.lexicon
        self._lead = old.keys[: was[0]]
        self._said = set(_words_before(old, was))
        self._be = {words.same.get(key, key) for key in words.be}
        heads = (old.keys[was[0]], new.keys[now[0]])
        breaks = words.prepositions
        self._opens = tuple(key if key in breaks else "" for key in heads)
        # The preposition before both values, or the last word that both texts have.
        self._before = self._lead[-1] if self._lead else ""
        self._follows_be = _follows_copula(old, was)

    def _has_verb(self) -> bool:
        """Return whether the verb precedes the value, so that it is not part of the subject."""
        words = self._old.lexicon
        if words.language != "en":
            return True
        if set(self._lead) & (self._be | {"have"} | words.modals | {"must"}):
            return True
        listed = words.one_valued | words.many_valued | words.companions
        if {*_words_before(self._old, self._was)[1:]} & listed:
            return True
        first = self._old.units[0]
        after = self._lead[1:]
        return any(key.endswith("s") or words.is_past(key) for key in after) or (
            first.key in PERSONS and len(self._lead) > 1
        )

    def may_change(self, cues: frozenset[str]) -> bool:
        """Return whether a stated change may end the value."""
        words = self._old.lexicon
        count = sum(key not in words.prepositions for key in self._lead)
        if not self._has_verb() or (count < 2 and not self._follows_be):
            return False
        is_common = _is_definite_subject(self._old) or self._is_plural_subject()
        if self._follows_be and not is_common and "correction" not in cues:
            return len(self._lead) > MIN_COMMON_LEAD
        one, other = self._opens
        is_object = not one and self._before not in words.prepositions | self._be
        if is_object and self._said & words.many_valued and "correction" not in cues:
            return all(self.measures())
        if one != other and count < MIN_COMMON_LEAD and not {one, other} <= words.places | {""}:
            return False
        opener = one or self._before
        return not (opener in _ACCOMPANYING and self._said & words.companions)

    def is_one_valued(self) -> bool:
        """Return whether only one of the two values can hold at a time."""
        words = self._old.lexicon
        if not self._lead:
            return self._is_role()
        if not self._has_verb() or self._is_past() or self._share_content():
            return False
        if self._is_numbered() and not all(self.measures()):
            return False
        if all(self.measures()):
            return self._before not in {"and", "or", "between"}
        one, other = self._opens
        if self._are_in(words.states):
            return self._follows_be and _is_definite_subject(self._old)
        opener = one or self._before
        if opener in _SCOPES or any(self.measures()) or "of" in (self._before, one):
            return False
        if opener in words.agents and not one:
            return self._are_names()
        if one != other:
            return {one, other} <= words.positions and self._is_put()
        if self._follows_be:
            is_many = self._is_plural_subject() and self._are_names()
            is_there = opener in words.places and self._are_names()
            return is_there or (_is_definite_subject(self._old) and not is_many)
        return self._is_object(one, opener)

    def _is_put(self) -> bool:
        """Return whether the text says where a certain thing is or is put."""
        is_put = self._follows_be or bool(self._said & self._old.lexicon.one_valued)
        return is_put and _is_definite_subject(self._old)

    def _is_object(self, one: str, opener: str) -> bool:
        """Return whether the verb before the value has one object or one means at a time."""
        words = self._old.lexicon
        is_path = any(self._old.units[index].kind == "path" for index in self._was)
        if is_path and not _is_definite_subject(self._old):
            return False
        typed = _words_before(self._old, self._was)
        if not one and typed and typed[-1] in words.many_valued - words.one_valued:
            return False
        if self._said & words.one_valued:
            return opener not in _ACCOMPANYING or not self._said & words.companions
        if "like" in self._lead and {"best", "most"} & set(self._old.keys[self._was[-1] :]):
            return True
        if "like" in self._lead[:-1] and not one and not self._are_names():
            # "Likes her tea strong."
            return any(unit.article or unit.key in words.definite for unit in self._objects())
        if self._said & words.many_valued or opener in words.many_valued:
            return False
        before = self._lead[: len(self._lead) - (not one)]
        is_done = any(key in words.participles or words.is_past(key) for key in before[-2:])
        is_means = opener in _MEANS or (opener == "to" and is_done)
        articles = {unit.article for unit in self._old.units[: self._was[0]][1:]}
        if articles & words.indefinite or not self._are_names():
            return False
        said = _words_before(self._old, self._was)
        is_with = opener in _ACCOMPANYING and bool({*said[-2:]} & words.companions)
        return is_means and not is_with

    def _is_plural_subject(self) -> bool:
        """Return whether the subject is things of a kind: "lectures are online"."""
        words = self._old.lexicon
        breaks = words.prepositions | self._be
        end = next((i for i, key in enumerate(self._lead) if key in breaks), 0)
        return end > 0 and words.singular(self._lead[end - 1]) != self._lead[end - 1]

    def measures(self) -> tuple[bool, bool]:
        """Return of both values whether they are numbers, dates or times."""
        return self._is_measure(self._old, self._was), self._is_measure(self._new, self._now)

    def _is_measure(self, claim: Claim, run: Run) -> bool:
        """Return whether a value is a number, a date or a time."""
        words = claim.lexicon
        vague = words.dates | words.prepositions | words.ordinals | words.frequency | {"each"}
        keys = [claim.keys[index] for index in run]
        return any(key not in words.prepositions | {"each"} for key in keys) and all(
            _is_numeric(claim, index)
            or claim.keys[index] in vague
            # "Revision C".
            or (len(claim.keys[index]) == 1 and claim.units[index].is_capital)
            or _LABEL.fullmatch(claim.keys[index]) is not None
            for index in run
        )

    def _is_numbered(self) -> bool:
        """Return whether one of the values has a number."""
        return any(
            claim.units[index].kind == "number"
            for claim, run in ((self._old, self._was), (self._new, self._now))
            for index in run
        )

    def _is_past(self) -> bool:
        """Return whether the text is about a past event, which another one does not end."""
        words = self._old.lexicon
        if words.language != "en" or set(self._lead) & {"is", "be", "been"}:
            return False
        typed = _words_before(self._old, self._was)
        return any(key in {"was", "were", "had"} or words.is_past(key) for key in typed[1:])

    def _share_content(self) -> bool:
        """Return whether both values have a word in common, so that they differ twice."""
        return any(
            self._old.stems[one] == self._new.stems[other]
            for one in self._was
            for other in self._now
            if one in self._old.content and not self._is_measure(self._old, (one,))
        )

    def _objects(self) -> Sequence[Unit]:
        """Return the units between the verb "like" and the value."""
        return self._old.units[self._lead.index("like") + 1 : self._was[0]]

    def _are_names(self) -> bool:
        """Return whether both values are names, or one of them is and the other is one word."""
        names = [self._is_name(self._old, self._was), self._is_name(self._new, self._now)]
        sizes = len(self._was), len(self._now)
        return all(names) or (any(names) and max(sizes) <= MAX_NAME_UNITS)

    def _is_name(self, claim: Claim, run: Run) -> bool:
        kept = [index for index in run if claim.keys[index] not in claim.lexicon.prepositions]
        first = claim.units[kept[0]] if kept else None
        return first is not None and (
            first.is_capital or first.kind in {"identifier", "path", "quote"}
        )

    def _are_in(self, listed: frozenset[str]) -> bool:
        old = "-".join(self._old.keys[i] for i in self._was)
        new = "-".join(self._new.keys[i] for i in self._now)
        return old in listed and new in listed

    def _is_role(self) -> bool:
        """Return whether both texts begin with the name of who has one role."""
        words, units = self._old.lexicon, self._old.units
        end = self._was[-1] + 1
        if not all(
            claim.units[index].is_capital and claim.units[index].kind == "word"
            for claim, run in ((self._old, self._was), (self._new, self._now))
            for index in run
        ):
            return False
        verb = self._old.keys[end] if end < len(units) else ""
        thing = units[end + 1] if end + 1 < len(units) else None
        if thing is None or words.is_past(verb):
            return False
        is_role = verb in words.roles | self._be or (
            verb.endswith("s") and verb not in words.many_valued | words.companions
        )
        return is_role and (thing.article == "the" or thing.key in words.definite)


def _follows_copula(claim: Claim, run: Run) -> bool:
    """Return whether nothing but a preposition is between "is" and a value."""
    be = {claim.lexicon.same.get(key, key) for key in claim.lexicon.be}
    before = claim.keys[: run[0]]
    last = max((index for index, key in enumerate(before) if key in be), default=-1)
    return last >= 0 and not any(last < index < run[0] for index in claim.content)


def _is_numeric(claim: Claim, index: int) -> bool:
    unit = claim.units[index]
    return unit.kind == "number" or unit.key in claim.lexicon.units.values()


def _is_mixed(claim: Claim, run: Run) -> bool:
    """Return whether a run has a number and words that are neither a unit nor a date."""
    numbers = [_is_numeric(claim, index) for index in run]
    words = claim.lexicon.dates
    rest = [i for i, is_number in zip(run, numbers, strict=True) if not is_number]
    kinds = any(claim.units[i].kind == "word" and claim.keys[i] not in words for i in rest)
    return any(numbers) and kinds and claim.language in {"fr", "es"}


def _is_subject(run: Run, claim: Claim) -> bool:
    """Return whether a value stands first, where the subject does, or is its number: "room 4"."""
    first = claim.content[0]
    is_label = run == (first + 1,) and claim.units[run[0]].kind == "number"
    return run[0] <= first or (is_label and claim.units[first].kind == "word")


def _is_definite(claim: Claim, run: Run) -> bool:
    """Return whether "the winner" or the like follows a value at the start and a copula."""
    be = {claim.lexicon.same.get(key, key) for key in claim.lexicon.be}
    after = run[-1] + 1
    if claim.keys[after : after + 1] == () or claim.keys[after] not in be:
        return False
    return bool(set(claim.words) & (claim.lexicon.articles | claim.lexicon.definite))


def _before(claim: Claim, run: Run) -> str:
    return claim.keys[run[0] - 1] if run[0] else ""


def _text(claim: Claim, run: Run) -> str:
    return " ".join(claim.keys[index] for index in run)


def _common_lead(old: Claim, new: Claim) -> int:
    """Return how many units of content both texts begin with."""
    count = 0
    for left, right in zip(old.content, new.content, strict=False):
        if old.stems[left] != new.stems[right]:
            break
        count += 1
    return count


def dates_of(claim: Claim) -> frozenset[int]:
    """Return the indexes of the date or the event since which the claim holds."""
    words = claim.lexicon
    for phrase in words.cues["since"]:
        start = phrase_place(claim, phrase)
        if start < 0:
            continue
        size = sum(word not in words.articles for word in phrase)
        first = end = start + size
        while end < len(claim.keys) and end - start <= MAX_DATE_UNITS + size:
            unit = claim.units[end]
            if end > first and unit.before == ",":
                break
            if unit.kind != "number" and unit.key not in words.dates | words.articles | {
                "on",
                "of",
            }:
                break
            end += 1
        if phrase[0] in words.events:
            end = max(end, _event_end(claim, start, first))
        if end > first:
            return frozenset(range(start, end))
    return frozenset()


def _event_end(claim: Claim, start: int, first: int) -> int:
    """Return where "since the operation" ends: at a comma, a person, or the end of the text."""
    size = len(claim.keys)
    if start > 0:
        return size if size - first <= MAX_EVENT_UNITS else first
    for end in range(first + 1, min(first + MAX_EVENT_UNITS, size - 1) + 1):
        unit = claim.units[end]
        is_subject = unit.article or unit.is_capital or unit.key in PERSONS | {"we's", "user's"}
        if unit.before[:1] == "," or is_subject:
            return end
    return first


def runs(
    claim: Claim, *, without: frozenset[str], dropped: frozenset[int] = frozenset()
) -> list[Run]:
    """Return the runs of adjacent content that the other text lacks."""
    breaks = claim.lexicon.prepositions - {"of", "de", "von", "del", "du"}
    runs: list[list[int]] = []
    is_open = False
    content = set(claim.content)
    for index, key in enumerate(claim.keys):
        if index in dropped:
            continue
        if index not in content:
            if key in breaks:
                is_open = False
            continue
        if claim.stems[index] in without:
            is_open = False
            continue
        if is_open:
            runs[-1].append(index)
        else:
            runs.append([index])
            is_open = True
    return [tuple(run) for run in runs]


# -- the words of a change ---------------------------------------------------------------------


def phrase_place(claim: Claim, phrase: Phrase) -> int:
    """Return the index of the first word of a phrase among the keys, or -1."""
    words = claim.lexicon
    # Silent words are not among the keys.
    said = tuple(words.same.get(word, word) for word in phrase if word not in words.articles)
    return find_phrase(claim.keys, said) if said else -1


def change_stems(claim: Claim, cues: frozenset[str]) -> frozenset[str]:
    """Return the stems of the words with which a text says that something changed."""
    return frozenset[str]().union(*(stems_of(claim, kind) for kind in cues - {"origin"}))


def stems_of(claim: Claim, kind: str) -> frozenset[str]:
    """Return the stems of the words with which a text states one kind of change."""
    words = claim.lexicon
    said = (word for name, phrase in claim.marks if name == kind for word in phrase)
    return frozenset(words.stem(words.same.get(word, word)) for word in said)


def one_value(found: list[Run]) -> list[Run]:
    """Return the runs with two that only a preposition separates as one value."""
    if len(found) == 2 and found[1][0] - found[0][-1] == 2 and found[0][0] > 0:
        return [found[0] + found[1]]
    return found
