"""Reads a short English text as parts: who does what to what, and where, when and why.

A text has several readings, since no parser says which word is the verb. Two texts that share a
reading say the same: a reading keeps every word of content with its role and its preposition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final, Literal

from meritory.text.claims.lexicon import Lexicon
from meritory.text.claims.read import Unit

Keys = tuple[str, ...]
Units = Sequence[Unit]
# says: a statement. order: what to do. passive, must: what is done or must be done, by anyone.
Force = Literal["says", "order", "passive", "must"]

MAX_UNITS: Final = 36
MAX_FRONT_UNITS: Final = 16
MAX_BARE_FRONT_UNITS: Final = 6
MAX_SUBJECT_UNITS: Final = 8
MAX_PARTICLE_GAP: Final = 4
MAX_VERBS: Final = 3
MAX_NAMED_UNITS: Final = 4
PERSONS: Final = frozenset({"user", "we"})
_DO: Final = frozenset({"do", "does", "did"})
_GET: Final = frozenset({"get", "gets", "got"})
_PARTICLES: Final = frozenset({"off", "up", "out", "down", "away", "back", "over"})
# They belong to the noun or the number before them.
_GLUE: Final = frozenset({"of", "than", "per", "as"})
_ADVERBS: Final = frozenset({"always", "never", "not", "only", "automatically", "often", "usually"})
_HELPERS: Final = frozenset({"do", "does", "did", "have", "had", "must"})
_PAST: Final = frozenset({"was", "were", "did", "had"})
_CLAUSES: Final = frozenset({"and", "or", "but", "that", "which", "who"})
EACH: Final = frozenset({"each", "every", "any"})
_SILENT: Final = frozenset({"'s", "your"})
_IT: Final = frozenset({"it", "they", "them"})
_HOLDING: Final = frozenset({"stor", "hold", "contain", "host", "list", "document", "keep"})
_NEEDED: Final = frozenset({"mandatory", "needed", "required", "necessary", "compulsory"})
_DOING: Final = frozenset({"perform", "conduct", "execut", "run"})
_DONE: Final = frozenset({"done", "performed", "made"})
_GIVEN: Final = frozenset({"put", "add", "give", "attach", "provide"})
_ANYONE: Final = frozenset({("we",), ("someone",), ("they",), ("people",), ("1",)})
_COUNTED: Final = frozenset({"half", "part", "rest", "third", "quarter"})
_NO_UNIT: Final = Unit("symbol", "")


@dataclass(frozen=True, slots=True)
class Sentence:
    """One reading of a text; the doer is empty in an order and where anyone does it."""

    doer: Keys
    verb: str
    # Past, negation, modal verbs and adverbs, in alphabetical order.
    marks: Keys
    thing: Keys
    # What begins with a preposition or opens a clause, in alphabetical order.
    parts: tuple[Keys, ...]


Readings = dict[Sentence, frozenset[Force]]


def readings_of(units: Units, words: Lexicon) -> Readings:
    """Return all readings of a text of one sentence, each with its forces."""
    if not 2 <= len(units) <= MAX_UNITS or any(unit.is_first for unit in units[1:]):
        return {}
    reader = _Reader(words)
    found: dict[Sentence, set[Force]] = {}
    for body, front in reader.bodies(tuple(units)):
        for sentence, force in reader.sentences(body):
            parts = reader.in_order(sentence.parts, front)
            for made in reader.with_nouns(replace(sentence, parts=parts)):
                found.setdefault(made, set()).add(force)
    return {sentence: frozenset(forces) for sentence, forces in found.items()}


def agree(old: Readings, new: Readings, *, is_order: bool = False) -> bool:
    """Return whether two texts share a reading, with forces that mean the same."""
    return any(
        _may_be(one, other) and not (is_order and "says" in (one, other))
        for sentence in old.keys() & new.keys()
        for one, other in product(old[sentence], new[sentence])
    )


def _may_be(one: Force, other: Force) -> bool:
    return one == other or ("order" in (one, other) and "says" not in (one, other))


class _Reader:
    """Finds the parts of one text with the words of its language."""

    def __init__(self, words: Lexicon) -> None:
        self._words = words
        self._verb_stems = words.verb_stems
        self._adverbs = words.frequency | _ADVERBS
        self._breaks = words.prepositions - _GLUE
        self._clauses = _CLAUSES | words.limits | {"where", "how", "why", "what"}
        self._markers = words.fronting & (words.limits | {"because", "before", "after", "once"})

    # -- parts in front ---------------------------------------------------------------------

    def bodies(self, units: tuple[Unit, ...]) -> Iterator[tuple[tuple[Unit, ...], list[Keys]]]:
        """Yield the text without the part in front of it, and this part."""
        yield units, []
        first = units[0].key
        is_part = first in self._words.fronting or first in self._breaks
        if is_part and units[1].before[:1] != "-":
            reach = range(2, min(MAX_FRONT_UNITS, len(units) - 1))
            ends = [place for place in reach if units[place].before[:1] == ","][:1]
            ends = ends or [
                place
                for place in reach
                if place <= MAX_BARE_FRONT_UNITS and self._opens_noun(units[place])
            ]
            for end in ends:
                for part in self._part(units[:end]):
                    yield units[end:], [part]
            return
        # "Red wine I never drink."
        for place in range(1, min(MAX_BARE_FRONT_UNITS, len(units) - 1)):
            if units[place].key in PERSONS and units[place - 1].key not in self._breaks:
                block = units[:place]
                if not any(self._is_verb(unit) or unit.key in _CLAUSES for unit in block):
                    yield (*units[place:], replace(block[0], is_first=False), *block[1:]), []
                return

    def _opens_noun(self, unit: Unit) -> bool:
        words = self._words
        return bool(
            unit.article
            or unit.is_capital
            or unit.key in words.definite | PERSONS | {"there"}
            or (unit.kind == "word" and unit.key not in self._breaks | words.be)
        )

    # -- sentences --------------------------------------------------------------------------

    def sentences(self, body: tuple[Unit, ...]) -> Iterator[tuple[Sentence, Force]]:
        """Yield the readings of a text without a part in front."""
        yield from self._orders(body)
        yield from self._existing(body)
        for spot in self._verb_spots(body):
            subject, rest = list(body[:spot]), body[spot:]
            adverbs = []
            while len(subject) > 1 and subject[-1].key in self._adverbs:
                adverbs.append(subject.pop().key)
            yield from self._stated(subject, rest, adverbs)

    def _verb_spots(self, body: Units) -> list[int]:
        """Return where the verb of a statement may be."""
        words = self._words
        helpers = words.be | words.modals | _HELPERS
        found: list[int] = []
        for spot in range(1, len(body)):
            unit = body[spot]
            if unit.before[:1] in {",", ";"} or len(found) >= MAX_VERBS:
                break
            if unit.key in self._markers and found == []:
                break
            if unit.article or (unit.is_capital and not unit.is_first) or unit.kind != "word":
                continue
            if body[spot - 1].key in words.prepositions | {"'s"} | words.definite:
                continue
            if unit.key in helpers:
                found.append(spot)
                break
            if self._is_finite(body, spot):
                found.append(spot)
        return found

    def _is_finite(self, body: Units, spot: int) -> bool:
        """Return whether a word has a form of a verb that agrees with what precedes it."""
        key = body[spot].key
        if key in self._words.silent | self._words.prepositions | self._adverbs | _CLAUSES:
            return False
        if not key.isalpha() or len(key) < 2:
            return False
        before = [unit for unit in body[:spot] if unit.key not in self._adverbs]
        if self._words.is_past(key) or key in self._words.unchanged:
            return True
        if not before:
            return False
        subject = before[-1].key
        head = before[: next((i for i, one in enumerate(before) if one.key in self._breaks), None)]
        if key.endswith("s") and not key.endswith("ss"):
            if subject in PERSONS | {"they"}:
                return False
            one = head[-1] if head else before[-1]
            return one.is_capital or (self._words.singular(one.key) == one.key)
        one = head[-1] if head else before[-1]
        is_plural = not one.is_capital and self._words.singular(one.key) != one.key
        return subject in PERSONS | {"they"} or is_plural

    def _is_verb(self, unit: Unit) -> bool:
        return unit.key in self._words.be | self._words.modals | _HELPERS

    def _stated(
        self, subject: Units, rest: Units, adverbs: list[str]
    ) -> Iterator[tuple[Sentence, Force]]:
        """Yield the readings of a statement whose verb begins the rest."""
        words = self._words
        marks = list(adverbs)
        place = 0
        helper = ""
        while place < len(rest):
            key = rest[place].key
            is_helper = key in words.be | words.modals | _HELPERS
            is_adverb = key in self._adverbs and not rest[place].article
            if not (is_helper or is_adverb) or (key == "had" and helper):
                break
            if key in _PAST:
                marks.append("past")
            if key in words.modals | {"must", "not"} or (not is_helper and key in self._adverbs):
                marks.append(key)
            helper = key if is_helper else helper
            place += 1
        yield from self._with_helper(subject, helper, rest[place:], marks)

    def _with_helper(
        self, subject: Units, helper: str, following: Units, marks: list[str]
    ) -> Iterator[tuple[Sentence, Force]]:
        """Yield the readings of a statement by the last of its auxiliary verbs."""
        words = self._words
        verb = following[0] if following else _NO_UNIT
        plain = not verb.article and verb.kind == "word"
        is_done = plain and self._is_participle(verb.key)
        if helper in _GET and following and not is_done:
            yield from self._active(subject, "receive", following, marks)
        elif helper in words.be:
            if is_done:
                yield from self._passive(subject, verb, following[1:], marks)
            if following:
                yield from self._copula(subject, following, marks)
        elif helper in {"have", "had"} and not is_done:
            yield from self._active(subject, "have", following, marks)
        elif helper in _DO and (not plain or verb.key in words.definite):
            yield from self._active(subject, helper, following, marks)
        elif plain and not (helper and words.singular(verb.key) != verb.key):
            kept = [*marks, helper] if helper in {"have", "had"} else list(marks)
            if not helper and verb.key in words.unchanged:
                yield from self._active(subject, verb.key, following[1:], [*kept, "past"])
            if words.is_past(verb.key):
                kept.append("past")
            yield from self._active(subject, verb.key, following[1:], kept)

    def _active(
        self, subject: Units, verb: str, rest: Units, marks: Sequence[str], force: Force = "says"
    ) -> Iterator[tuple[Sentence, Force]]:
        doer = self._noun(subject, is_subject=True)
        said = tuple(sorted(set(marks)))
        verb = "receive" if verb in _GET else verb
        for stem, things, parts in self._predicates(verb, rest):
            yield Sentence(doer, stem, said, things, parts), force
        if doer == ("user",) and verb in self._words.wishes:
            yield from self._wish(rest, marks)
        if doer in _ANYONE:
            # "We proofread the menu", "someone stole it": the passive names no actor.
            by: Force = "must" if "must" in said else "passive"
            without = tuple(mark for mark in said if mark != "must")
            for stem, things, parts in self._predicates(verb, rest):
                yield Sentence((), stem, without, things, parts), by
        if verb == "have":
            yield from self._owned(subject, rest, said)
        if self._words.stem(verb) == "receiv" and force == "says":
            # "Every test gets a name", "give every test a name".
            given, alternatives = self._split(rest)
            for tails in alternatives:
                to = self.in_order((*tails, ("to", *doer)))
                made = Sentence((), "give", said, self._noun(given), to)
                yield made, "must"
                yield made, "passive"

    def _predicates(self, verb: str, rest: Units) -> Iterator[tuple[str, Keys, tuple[Keys, ...]]]:
        """Yield the stem of the verb, its object and the parts after it."""
        words = self._words
        rest, stem = self._with_particle(rest, words.stem(verb))
        things, alternatives = self._split(rest)
        for parts in alternatives:
            yield stem, self._noun(things), self.in_order(parts)
        if verb not in words.light_verbs or not things:
            return
        # "Performs a check of the rows", "does the code review for the shop".
        spot = next((i for i, unit in enumerate(things) if unit.key == "of"), len(things))
        is_clause = any(unit.key in self._clauses for unit in things)
        if not 0 < spot <= MAX_NAMED_UNITS or is_clause:
            return
        named = things[spot - 1].key
        is_one = words.singular(named) == named or words.stem(verb) in _DOING
        if not is_one or not (named in words.nominals or self._names_verb(named)):
            return
        action = self._action(named)
        own = (
            unit
            for unit in things[: spot - 1]
            if unit.key not in {"user's", "we's", "its", "their"}
        )
        others = (*own, *things[spot + 1 :])
        for parts in alternatives:
            yield action, self._noun(others), self.in_order(parts)
            for index, part in enumerate(parts):
                if not others and part[0] in {"on", "of", "to", "for", "about", "with"}:
                    left = parts[:index] + parts[index + 1 :]
                    yield action, part[1:], self.in_order(left)

    def _names_verb(self, noun: str) -> bool:
        """Return whether a noun is the plain form of a verb, or ends as the name of an action."""
        is_action = noun.endswith("ing") and self._words.stem(noun) in self._verb_stems
        return noun in self._words.verbs or is_action or noun.endswith(("tion", "sion", "ment"))

    def _action(self, noun: str) -> str:
        """Return the stem of the verb of a noun that names an action."""
        words = self._words
        verb, _, particle = words.nominals.get(noun, noun).partition(" ")
        stem = words.stem(words.same.get(verb, verb))
        return words.particle_verbs.get((stem, particle)) or stem + particle

    def _passive(
        self, subject: Units, verb: Unit, rest: Units, marks: Sequence[str]
    ) -> Iterator[tuple[Sentence, Force]]:
        words = self._words
        rest, stem = self._with_particle(rest, words.stem(verb.key))
        agents = [spot for spot, unit in enumerate(rest) if unit.key in words.agents]
        thing = self._noun(subject, is_subject=True)
        said = set(marks)
        head, tails = self._split(subject)
        if head and tails != [()]:
            # "Funds for schools were cut", "cut funds for schools".
            for tail in tails:
                for one, force in self._passive(head, verb, rest, marks):
                    yield replace(one, parts=self.in_order((*one.parts, *tail))), force
        things, alternatives = self._split(rest)
        force = "must" if "must" in said else "passive"
        for parts in alternatives:
            # "By post" says how.
            others = (*thing, *self._noun(things))
            said_by = tuple(sorted(said - {"must"}))
            yield Sentence((), stem, said_by, others, self.in_order(parts)), force
        if stem in _HOLDING:
            # "Data is stored in S3", "S3 stores data".
            for parts in alternatives:
                if len(parts) == 1 and parts[0][0] in words.places and not things:
                    yield Sentence(parts[0][1:], stem, tuple(sorted(said)), thing, ()), "says"
        if not agents:
            return
        agent = agents[0]
        place = next((i for i in range(agent + 1, len(rest)) if self._is_break(rest, i)), len(rest))
        for end in {place, len(rest)}:
            doer = self._noun(rest[agent + 1 : end], is_subject=True)
            if not doer:
                continue
            things, alternatives = self._split((*rest[:agent], *rest[end:]))
            for parts in alternatives:
                others = (*thing, *self._noun(things))
                said_by = tuple(sorted(said))
                yield Sentence(doer, stem, said_by, others, self.in_order(parts)), "says"

    def _copula(
        self, subject: Units, rest: Units, marks: Sequence[str]
    ) -> Iterator[tuple[Sentence, Force]]:
        words = self._words
        said = tuple(sorted(set(marks)))
        doer = self._noun(subject, is_subject=True)
        things, alternatives = self._split(rest)
        value = self._noun(things, is_subject=True)
        for parts in alternatives:
            yield Sentence(doer, "be", said, value, self.in_order(parts)), "says"
            if verb := len(doer) > 1 and words.attribute_verbs.get(doer[-1]):
                owner = tuple(key for key in doer[:-1] if key != "'s")
                yield Sentence(owner, words.stem(verb), said, value, self.in_order(parts)), "says"
        keys = {unit.key for unit in (*subject, *rest)}
        if rest[-1].key in _DONE and len(subject) == 1:
            return
        if rest[0].key in _DONE and subject:
            # "Logging is done in UTC."
            *others, named = subject
            action = self._action(named.key)
            left, after = self._split(rest[1:])
            for parts in () if left else after:
                yield (
                    Sentence((), action, said, self._noun(others), self.in_order(parts)),
                    "passive",
                )
        articles = [side[0].article for side in (subject, rest)]
        is_sure = "the" in articles or {subject[0].key, rest[0].key} & words.definite
        is_open = bool(words.indefinite & set(articles)) and not is_sure
        if len(things) == 1 and things[0].key in _NEEDED:
            for parts in alternatives:
                if len(parts) == 1 and parts[0][0] == "for":
                    # "Y is mandatory for X", "X must have Y".
                    needs = tuple(sorted({*said, "must"}))
                    yield Sentence(parts[0][1:], words.stem("have"), needs, doer, ()), "says"
        closed = words.negations | words.quantifiers | words.limits | {"not"}
        opened = {side[0].key for side in (subject, rest) if not side[0].article}
        is_closed = opened & closed or keys & {"not", "than", "as"}
        if is_open or is_closed or not value or not doer:
            return
        whole = self._noun(rest, is_subject=True)
        if self._is_break(rest, 0):
            return
        if len(subject) > 1 or len(rest) > 1 or subject[0].article or rest[0].article:
            sides = sorted((self._noun(subject, is_subject=True), whole))
            yield Sentence(sides[0], "is", said, sides[1], ()), "says"

    def _owned(self, subject: Units, rest: Units, said: Keys) -> Iterator[tuple[Sentence, Force]]:
        """Yield "the disk limit is 5 GB" for "the disk has a limit of 5 GB"."""
        spot = next((i for i, unit in enumerate(rest) if unit.key in {"of"}), 0)
        if not spot or not rest[spot + 1 :]:
            return
        owner = self._noun(subject, is_subject=True)
        if owner[-1] in PERSONS:
            owner = (*owner[:-1], f"{owner[-1]}'s")
        named = tuple(unit.key for unit in rest[:spot])
        things, alternatives = self._split(rest[spot + 1 :])
        for parts in alternatives:
            done = self.in_order(parts)
            yield Sentence((*owner, *named), "be", said, self._noun(things), done), "says"
            if verb := self._words.attribute_verbs.get(named[-1]):
                lead = (*self._noun(subject, is_subject=True), *named[:-1])
                stem = self._words.stem(verb)
                yield Sentence(lead, stem, said, self._noun(things), done), "says"

    def _existing(self, body: Units) -> Iterator[tuple[Sentence, Force]]:
        """Yield "the hotel has a pool" for "there is a pool in the hotel"."""
        if len(body) < 4 or body[0].key != "there" or body[1].key not in self._words.be:
            return
        marks = ("past",) if body[1].key in _PAST else ()
        things, alternatives = self._split(body[2:])
        for parts in alternatives:
            yield Sentence((), "there", marks, self._noun(things), self.in_order(parts)), "says"
            for index, part in enumerate(parts):
                if part[0] in {"in", "on", "at", "for"} and len(parts) == 1:
                    left = parts[:index] + parts[index + 1 :]
                    yield (
                        Sentence(part[1:], "have", marks, self._noun(things), left),
                        "says",
                    )

    # -- orders -----------------------------------------------------------------------------

    def _orders(self, body: Units) -> Iterator[tuple[Sentence, Force]]:
        """Yield the readings of a text as an order."""
        start = 0
        marks = []
        while start < len(body) - 1 and body[start].key in self._adverbs:
            marks.append(body[start].key)
            start += 1
        verb, rest = body[start], body[start + 1 :]
        is_plain = verb.kind == "word" and not verb.article and verb.key.isalpha()
        is_plain = is_plain and self._words.singular(verb.key) == verb.key
        if not is_plain or verb.key in self._words.light - self._words.light_verbs - {"take"}:
            return
        is_verb = verb.key in self._words.verbs | self._words.light_verbs
        if not is_verb and self._verb_spots(body):
            return
        yield from self._ordered(verb.key, rest, marks)

    def _ordered(
        self, verb: str, rest: Units, marks: Sequence[str]
    ) -> Iterator[tuple[Sentence, Force]]:
        kept = tuple(unit for unit in rest if unit.key not in {"user's"})
        for made in {rest, kept} if len(kept) != len(rest) else (rest,):
            yield from self._active((), verb, made, marks, "order")
        if rest and rest[0].key == "user":
            yield from self._active((), verb, rest[1:], marks, "order")
        for place in range(len(rest) - 1):
            if rest[place].key in {"to", "with", "for"} and rest[place + 1].key == "user":
                yield from self._active(
                    (), verb, (*rest[:place], *rest[place + 2 :]), marks, "order"
                )
        if self._words.stem(verb) == "cal" and rest and rest[0].key == "user":
            yield from self._active((), "name", rest[1:], marks, "order")
        if self._words.stem(verb) in _GIVEN:
            things, alternatives = self._split(rest)
            for parts in alternatives:
                for index, part in enumerate(parts):
                    if part[0] in {"on", "to", "for", "in", "into"}:
                        left = (*parts[:index], *parts[index + 1 :], ("to", *part[1:]))
                        said, done = tuple(sorted(set(marks))), self.in_order(left)
                        yield Sentence((), "give", said, self._noun(things), done), "order"

    def _wish(self, rest: Units, marks: Sequence[str]) -> Iterator[tuple[Sentence, Force]]:
        """Yield the orders that a wish amounts to: "wants replies kept short"."""
        words = self._words
        keys = [unit.key for unit in rest]
        if keys[:2] == ["to", "be"] and len(keys) > 2 and self._is_participle(keys[2]):
            yield from self._active((), keys[2], rest[3:], marks, "order")
            if len(keys) > 4 and keys[3] in words.prepositions:
                # "Wants to be talked to slowly."
                yield from self._active((), keys[2], rest[4:], marks, "order")
            return
        for spot in range(1, min(len(keys), MAX_SUBJECT_UNITS)):
            if keys[spot] in self._breaks and keys[spot] != "to":
                break
            if self._is_participle(keys[spot]) and not rest[spot].article:
                end = spot - 2 if keys[spot - 2 : spot] == ["to", "be"] else spot
                if end > 0:
                    made = (*rest[:end], *rest[spot + 1 :])
                    yield from self._active((), keys[spot], made, marks, "order")
        for order in ("use", "give", "show", "write", "add"):
            yield from self._active((), order, rest, marks, "order")
        one = words.singular(keys[0]) if keys else ""
        if len(rest) > 1 and not rest[0].article and (one in words.verbs or one in words.nominals):
            # "Wants answers in French", "answer in French".
            yield from self._active((), words.nominals.get(one, one), rest[1:], marks, "order")

    def with_nouns(self, sentence: Sentence) -> Iterator[Sentence]:
        """Yield a sentence, and with the noun for "it": "if a test is flaky, skip it"."""
        yield sentence
        clauses = [part for part in sentence.parts if part[0] in self._markers]
        if len(clauses) != 1:
            return
        (clause,) = clauses
        others = tuple(part for part in sentence.parts if part is not clause)
        if len(clause) > 2 and clause[1] in _IT and sentence.thing:
            made = (clause[0], *sentence.thing, *clause[2:])
            yield replace(sentence, parts=self.in_order((*others, made)))
        elif sentence.thing and len(sentence.thing) == 1 and sentence.thing[0] in _IT:
            helpers = self._words.be | self._words.modals | _HELPERS
            end = next((i for i, key in enumerate(clause) if key in helpers), 0)
            if end > 1:
                yield replace(sentence, thing=clause[1:end])

    # -- nouns and parts --------------------------------------------------------------------

    def _with_particle(self, rest: Units, stem: str) -> tuple[Units, str]:
        """Return the rest without the particle of a verb, and the verb with it."""
        for place, unit in enumerate(rest[: MAX_PARTICLE_GAP + 1]):
            if unit.key in _PARTICLES:
                is_end = place + 1 == len(rest) or rest[place + 1].key in self._breaks
                if place == 0 or is_end:
                    meaning = self._words.particle_verbs.get((stem, unit.key))
                    return (*rest[:place], *rest[place + 1 :]), meaning or stem + unit.key
                break
            if unit.key in self._breaks or unit.before[:1] == ",":
                break
        return rest, stem

    def _is_break(self, units: Units, place: int) -> bool:
        """Return whether a part begins at a place."""
        unit = units[place]
        after = units[place + 1].before if place + 1 < len(units) else ""
        # "On-call" is one word.
        if "-" in (unit.before[:1], after[:1]) or unit.kind != "word":
            return False
        if unit.key in self._markers:
            return True
        # "9 to 5" and "2 to 3 days" are one value.
        between = place and units[place - 1].kind == "number" and place + 1 < len(units)
        if between and unit.key in {"to", "by"} and units[place + 1].kind == "number":
            return False
        return unit.key in self._breaks

    def _split(self, rest: Units) -> tuple[Units, list[tuple[Keys, ...]]]:
        """Return what precedes the first part, and each way to read the parts."""
        starts = [place for place in range(len(rest)) if self._is_break(rest, place)]
        starts = [
            place
            for place in starts
            if not any(rest[before].key in self._markers for before in starts if before < place)
        ]
        if not starts:
            return rest, [()]
        ends = [*starts[1:], len(rest)]
        read = [self._part(rest[a:b]) for a, b in zip(starts, ends, strict=True)]
        return rest[: starts[0]], list(product(*read))

    def _part(self, units: Units) -> list[Keys]:
        """Return the ways to read a part: "before you delete it", "before it is deleted"."""
        first, rest = units[0].key, units[1:]
        plain = (first, *self._noun(rest))
        if first not in self._markers or len(rest) < 2:
            return [plain]
        found = [plain]
        said = rest[1:] if rest[0].key == "you" else rest
        if said is not rest:
            tense = "did" if self._words.is_past(said[0].key) else "do"
            found.append((first, tense, self._words.stem(said[0].key), *self._noun(said[1:])))
        for spot in range(1, len(rest) - 1):
            if rest[spot].key in self._words.be and self._is_participle(rest[spot + 1].key):
                if not any(unit.key in self._words.agents for unit in rest[spot:]):
                    verb = self._words.stem(rest[spot + 1].key)
                    after = self._noun(rest[spot + 2 :])
                    tense = "did" if rest[spot].key in _PAST else "do"
                    found.append((first, tense, verb, *self._noun(rest[:spot]), *after))
                break
        return found

    def in_order(self, parts: Sequence[Keys], front: Sequence[Keys] = ()) -> tuple[Keys, ...]:
        """Return the parts in alphabetical order, unless their order may have a meaning."""
        every = [*parts, *front]
        names = [part[0] for part in every]
        is_joined = any(_CLAUSES & set(part) for part in parts)
        if len(set(names)) < len(names) or (is_joined and len(parts) > 1):
            return tuple(every)
        return tuple(sorted(every))

    def _noun(self, units: Units, *, is_subject: bool = False) -> Keys:
        """Return the keys with the owner before the thing: "disk limit" for "limit of the disk"."""
        joint = [place for place, unit in enumerate(units) if unit.key == "and"]
        if is_subject and len(joint) == 1 and 0 < joint[0] < len(units) - 1:
            # "My wife and I."
            sides = (units[: joint[0]], units[joint[0] + 1 :])
            one, other = sorted(self._noun(side, is_subject=True) for side in sides)
            return (*one, "and", *other)
        links = {"of", "for"} if is_subject else {"of"}
        units = tuple(unit for unit in units if unit.key not in _SILENT)
        keys = [unit.key for unit in units]
        spot = next((i for i, key in enumerate(keys) if key in links), 0)
        quantities = self._words.quantifiers | _COUNTED | self._words.limits
        if spot and not set(keys[:spot]) & quantities and units[spot - 1].kind == "word":
            heads = (i for i in range(spot - 1, -1, -1) if units[i].article or i == 0)
            head = next(heads, 0)
            after = range(spot + 1, len(units))
            end = next((i for i in after if keys[i] in self._words.prepositions), len(units))
            if end > spot + 1:
                return (*keys[:head], *keys[spot + 1 : end], *keys[head:spot], *keys[end:])
        return tuple(keys)

    def _is_participle(self, key: str) -> bool:
        return key in self._words.participles or self._words.is_past(key)
