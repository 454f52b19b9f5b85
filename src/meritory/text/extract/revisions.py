"""Reads a turn as the correction of one stored memory: which value is over, and what holds now.

A rule for each wording would never end. What corrections share is their relation to the memory:
they name its value as over, or give the same subject another value of the same kind, or answer
the agent's reply that said it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from meritory.domain.session import Turn
from meritory.text.extract.attribution import Spoken, turn_sentences
from meritory.text.extract.phrases import languages_of, phrase
from meritory.text.requests import is_standing
from meritory.text.words import NUMBER_WORDS, SAME_AS

# A correction stands in the first sentences of a turn.
READ_SENTENCES: Final = 4
# Of the memory's own words, the share that a reply has if it said the memory.
SAID_SHARE: Final = 0.8
# Of the fewer content words of a memory and of a correction that no reply prompted, the share that
# both have, and how many these must be.
KEPT_SHARE: Final = 0.6
MIN_KEPT_WORDS: Final = 2
# Of the words about the subject, the share that a correction by a new value alone repeats.
SUBJECT_SHARE: Final = 0.6
# The same for one that also names the old value.
MIN_SHARE: Final = 0.5
# A clause of more new words is no value alone.
BARE_SIZE: Final = 3
# A subject of fewer words is a verb alone, unless the agent just said the memory.
MAX_VALUE_WORDS: Final = 4
MIN_SUBJECT_WORDS: Final = 2
_SIGNS: Final = ("opens_revision", "denies", "ends_value", "turns", "moves")
_STEM_CHARS: Final = 4
_UNIT_CHARS: Final = 2
_ENDINGS: Final = re.compile(r"(?<=\w{3})(?:ings?|ies|es|ed|en|em|er|s|e|n|t|y|'s)$")
_HAN: Final = re.compile("[\u4e00-\u9fff]")
_WORD: Final = re.compile(
    r"[\u4e00-\u9fff]|[^\W\u4e00-\u9fff](?:[^\W\u4e00-\u9fff]|[.'’/@#+:-](?=\w))*"
)
_REPLY: Final = re.compile(r"[.!?:;]+(?=\s|$)|[。！？；]|\n")
_NUMBER: Final = re.compile(r"[^\w]?\d[\d.,:]*\w{0,3}")
_CLAUSE: Final = re.compile(
    r"[,;:(]\s+|\s[\u2013\u2014-]+\s|[，；：]|(?<!\b\d)(?<!\b\d\d)[.!?。！？]+(?=\s|$)\s*|[。！？]"
)


@dataclass(frozen=True, slots=True)
class Revision:
    """The claim that takes the place of a memory's, and the sentence that states it."""

    content: str
    quote: str
    # Whether the agent had just said the memory.
    is_answer: bool
    # All sentences of the turn that belong to the correction.
    sentences: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Clause:
    """A part of a turn, and whether it says that a value is over."""

    text: str
    words: tuple[str, ...]
    is_denial: bool
    # The words after the denial, or before the word that says that a value is over.
    over: tuple[str, ...]
    quote: str


def may_correct(turn: Turn) -> bool:
    """Return whether a turn has a word with which users correct what was said before."""
    return any(True for _ in _correcting(turn))


def _correcting(turn: Turn) -> Iterator[tuple[str, tuple[Spoken, ...]]]:
    """Yield the languages in which a turn may correct something, with the sentences to read."""
    spoken = tuple(one for one in turn_sentences(turn)[:READ_SENTENCES] if not one.is_question)
    for language in languages_of(one.bare for one in spoken):
        text = "\n".join(one.bare.replace("’", "'") for one in spoken)
        if any(phrase(language, key).search(text) for key in _SIGNS):
            yield language, spoken


def revise(memory: str, turn: Turn, reply: str) -> Revision | None:
    """Return what a turn makes of a memory; None if it does not correct it.

    `reply` is what the agent said before.
    """
    for language, spoken in _correcting(turn):
        if language not in languages_of([memory, *(one.bare for one in spoken)]):
            continue
        reading = _Reading(memory, language, spoken, reply)
        found = reading.revision()
        if found is None or not (found.is_answer or reading.is_about(found.content)):
            continue
        # "Always give examples" stands when "I get the concept now".
        if not is_standing(memory, "fact") or is_standing(found.content, "fact"):
            return found
    return None


class _Reading:
    """One reading of a turn against a memory."""

    def __init__(self, memory: str, language: str, spoken: Sequence[Spoken], reply: str) -> None:
        self._memory = memory.strip().rstrip(".。!")
        self._language = language
        # "The user lives in Bergen" and "I live in Bergen" are one.
        user = phrase(language, "the_user").match(self._memory.replace("’", "'"))
        self._is_users = user is not None
        self._words = _words(self._memory[user.end() if user else 0 :])
        self._content = [word for word in self._words if not self._is_function(word)]
        opens = phrase(language, "opens_revision")
        self._is_answer = any(opens.match(one.bare.replace("’", "'")) for one in spoken)
        # A long reply has most words somewhere: one sentence of it must say the memory.
        self._is_said = any(self._is_said_by(set(_words(one))) for one in _REPLY.split(reply))
        self._clauses = tuple(self._read(spoken))

    def _is_said_by(self, sentence: set[str]) -> bool:
        """Return whether a sentence of the agent's reply says the memory."""
        if not sentence or not self._words:
            return False
        known_count = sum(_has_like(sentence, word) for word in self._words)
        return known_count >= SAID_SHARE * len(self._words)

    def is_about(self, content: str) -> bool:
        """Return whether a new claim keeps enough of the memory to be about the same thing."""
        others = [word for word in _words(content) if not self._is_function(word)]
        kept = [word for word in self._content if _has_like(others, word)]
        fewer = min(_size(self._content), _size(others))
        return _size(kept) >= max(MIN_KEPT_WORDS, KEPT_SHARE * fewer)

    def revision(self) -> Revision | None:
        """Return the revision, or None."""
        over = self._over()
        stated = [one for one in self._clauses if not one.is_denial and not self._is_order(one)]
        if not over:
            return self._by_value(stated)
        kept = [word for word in self._content if word not in over]
        for clause in sorted(stated, key=lambda one: -self._shared_count(one, kept)):
            if self._new_words(clause) and self._is_bound(clause, kept):
                found = self._made(clause, over, kept)
                if found is not None:
                    return found
        return self._in_one_clause(over, kept)

    def _is_bound(self, clause: _Clause, kept: Sequence[str]) -> bool:
        """Return whether a clause is about the memory, not only the value that is over."""
        if self._content and self._content[-1] not in kept and self._has_moved(clause):
            return True
        shared = [word for word in kept if _has_like(clause.words, word)]
        if self._is_said:
            return self._is_bare(clause) or bool(shared) or self._is_own([clause])
        if not kept:
            return self._is_own([clause])
        # "The proxy" and "the API" may listen on one port.
        is_subject = self._is_own([clause]) or kept[0] in shared
        return is_subject and _size(shared) >= max(1.0, MIN_SHARE * _size(kept))

    def _is_bare(self, clause: _Clause) -> bool:
        """Return whether a clause is no more than a value, such as "it's 5433"."""
        if phrase(self._language, "points").match(clause.text):
            return _size(self._new_words(clause)) <= BARE_SIZE
        han_count = sum(map(bool, map(_HAN.match, clause.words)))
        return len(clause.words) - han_count / 2 <= BARE_SIZE

    def _shared_count(self, clause: _Clause, kept: Sequence[str]) -> int:
        return sum(_has_like(clause.words, word) for word in kept)

    def _in_one_clause(self, over: set[str], kept: Sequence[str]) -> Revision | None:
        """Return the revision by a clause that names the old value and then the new one."""
        for clause in self._clauses:
            named = [at for at, word in enumerate(clause.words) if _has_like(over, word)]
            new = self._new_words(clause)
            takes_over = phrase(self._language, "takes_over").search(clause.text)
            if named and new and (takes_over or clause.words.index(new[-1]) > named[-1]):
                others = [word for word in kept if _has_like(clause.words, word)]
                if others or self._is_said:
                    return self._revision(clause, self._cleaned(clause))
        return None

    def _is_order(self, clause: _Clause) -> bool:
        """Return whether a clause asks for something, or draws a conclusion for the task."""
        text = clause.text.replace("’", "'")
        leaves = phrase(self._language, "leaves").match(" " + text)
        if turned := phrase(self._language, "turns").match(text):
            # "Now do the same there."
            text = text[turned.end() :].lstrip()
        is_plain = phrase(self._language, "standing_order").match(text) is None
        return bool(leaves or (phrase(self._language, "orders").match(text) and is_plain))

    # -- parts of the turn --------------------------------------------------------------------

    def _read(self, spoken: Sequence[Spoken]) -> Iterator[_Clause]:
        """Yield the clauses of the sentences, without those that suppose or report something."""
        for one in spoken:
            bare = one.bare.replace("’", "'")
            if self._is_unstated(bare):
                continue
            for start, stop in self._spans(bare):
                text, plain = one.text[start:stop].strip(), bare[start:stop].strip()
                if not plain:
                    continue
                denial, end = self._sign("denies", plain), self._sign("ends_value", plain)
                over = plain[denial.end() :] if denial else plain[: end.start()] if end else ""
                is_denial = denial is not None or end is not None
                words = tuple(_words(plain))
                yield _Clause(text, words, is_denial, tuple(_words(over)), one.text)

    def _is_unstated(self, bare: str) -> bool:
        """Return whether a sentence supposes or reports something, but for its consequence."""
        leaves = phrase(self._language, "leaves").search(bare)
        stated = bare[: leaves.start()] if leaves else bare
        reported = phrase(self._language, "said_by_agent").sub("", bare)
        return bool(
            phrase(self._language, "supposes").search(stated)
            or phrase(self._language, "others").search(reported)
        )

    def _sign(self, name: str, plain: str) -> re.Match[str] | None:
        """Return where a clause has a word that denies or ends something, and the memory not."""
        memory = f" {self._memory.lower()} ".replace("’", "'")
        found = phrase(self._language, name).finditer(plain)
        return next((one for one in found if f" {one.group().lower()} " not in memory), None)

    def _spans(self, bare: str) -> Iterator[tuple[int, int]]:
        """Yield where clauses begin and end; a contrast is a clause of its own."""
        start = 0
        bounds = sorted(
            [*((match.start(), match.end()) for match in _CLAUSE.finditer(bare))]
            + [
                (match.start("at"), match.start("at"))
                for match in phrase(self._language, "contrasts").finditer(bare)
            ]
        )
        for end, following in bounds:
            if end > start:
                yield start, end
            start = max(start, following)
        if start < len(bare):
            yield start, len(bare)

    # -- values -------------------------------------------------------------------------------

    def _over(self) -> set[str]:
        """Return the words of the memory whose value the turn calls over."""
        over: set[str] = set()
        stated = {word for one in self._clauses if not one.is_denial for word in one.words}
        for clause in self._clauses:
            if not clause.is_denial:
                continue
            named = [word for word in self._content if _has_like(clause.over, word)]
            named = named or [word for word in self._content if _has_like(clause.words, word)]
            over |= {word for word in named if not _has_like(stated, word)}
        return over

    def _by_value(self, stated: Sequence[_Clause]) -> Revision | None:
        """Return the revision by a clause that gives the memory's subject another value."""
        turns = phrase(self._language, "turns")
        for clause in stated:
            new = self._new_words(clause)
            is_change = turns.search(clause.text.replace("’", "'")) is not None
            adds = phrase(self._language, "adds").search(clause.text)
            if adds or not new or not (is_change or self._is_answer):
                continue
            over = self._other_value(clause)
            if len(over) > MAX_VALUE_WORDS and not (self._is_answer or self._is_said):
                # Another predicate, not another value: "are rejected with 401 since ...".
                continue
            kept = [word for word in self._content if word not in over]
            shared = [word for word in kept if _has_like(clause.words, word)]
            if over:
                is_bare = self._is_said and self._is_answer and len(new) <= 2
                is_known = self._is_said or _size(shared) >= MIN_SUBJECT_WORDS
                is_about = bool(kept) and (
                    len(shared) >= SUBJECT_SHARE * len(kept) or self._has_subject(shared, over)
                )
                if is_bare or (is_about and is_known):
                    return self._made(clause, over, kept)
            elif (
                is_change
                and self._is_passed(clause, new)
                and (self._is_said or set(shared) - {self._content[-1]})
            ):
                return self._revision(clause, self._cleaned(clause))
        return self._by_move(stated)

    def _has_subject(self, shared: Sequence[str], over: set[str]) -> bool:
        """Return whether some words are all that the memory has before its value."""
        first = min(self._content.index(word) for word in over)
        return first > 0 and set(self._content[:first]) <= set(shared)

    def _by_move(self, stated: Sequence[_Clause]) -> Revision | None:
        """Return the revision by a clause in which the user moved, if the memory says where to."""
        for clause in stated:
            if self._is_said and self._has_moved(clause) and self._new_words(clause):
                return self._revision(clause, self._cleaned(clause))
        return None

    def _has_moved(self, clause: _Clause) -> bool:
        """Return whether a clause says that somebody moved, of whom the memory says where to."""
        lives, moves = (phrase(self._language, key) for key in ("lives", "moves"))
        is_home = lives.search(self._memory) is not None
        return is_home and moves.search(clause.text.replace("’", "'")) is not None

    def _other_value(self, clause: _Clause) -> set[str]:
        """Return the words of the memory in whose place a clause has another value."""
        numbers = {word for word in self._content if _NUMBER.fullmatch(word)}
        others = {word for word in clause.words if _NUMBER.fullmatch(word)}
        if numbers or not others:
            old, new = numbers - others, others - numbers
            if numbers:
                return old if len(old) == len(new) == 1 else set()
        content = self._content
        spot = len(content)
        while spot and not _has_like(clause.words, content[spot - 1]):
            spot -= 1
        known = [_has_like(clause.words, word) for word in content[:spot]]
        if spot == len(content):
            return self._value_within(clause)
        is_repeated = any(known) if self._is_said else all(known)
        return set(content[spot:]) if spot and is_repeated else set()

    def _value_within(self, clause: _Clause) -> set[str]:
        """Return the one word that a clause replaces between words of what the agent just said.

        Without an answer such as "no" it must be a number: another word may be another subject.
        """
        gone = [word for word in self._content if not _has_like(clause.words, word)]
        if not self._is_said or len(gone) != 1:
            return set()
        count = phrase(self._language, "count")
        is_count = bool(count.fullmatch(gone[0])) and any(map(count.fullmatch, clause.words))
        return set(gone) if is_count or self._is_answer else set()

    def _is_passed(self, clause: _Clause, new: Sequence[str]) -> bool:
        """Return whether a clause names the memory's value and then another one."""
        values = {word for word in self._content if _NUMBER.fullmatch(word)}
        values = values or set(self._content[-1:])
        places = [at for at, word in enumerate(clause.words) if _has_like(values, word)]
        return bool(places) and clause.words.index(new[-1]) > max(places)

    def _new_words(self, clause: _Clause) -> list[str]:
        """Return the content words of a clause that the memory does not have."""
        frame, calendar = (phrase(self._language, key) for key in ("frame", "calendar"))
        fresh = [
            word
            for word in clause.words
            if not (self._is_function(word) or frame.fullmatch(word))
            and not _has_like(self._words, word)
        ]
        return [word for word in fresh if not calendar.fullmatch(word)] or fresh

    def _is_own(self, stated: Sequence[_Clause]) -> bool:
        """Return whether the memory and the turn are both about the user or the user's own."""
        ours = phrase(self._language, "ours")
        is_own = self._is_users or ours.search(self._memory) is not None
        return is_own and any(ours.search(one.text) for one in stated)

    # -- the new claim ------------------------------------------------------------------------

    def _made(self, clause: _Clause, over: set[str], kept: Sequence[str]) -> Revision | None:
        """Return the revision that a clause states: as it stands, or as the new value."""
        content = self._cleaned(clause)
        shared = [word for word in kept if _has_like(clause.words, word)]
        if phrase(self._language, "points").match(content):
            # "They moved the deadline" names its subject all the same.
            is_whole = bool(shared) and shared[0] == kept[0]
        else:
            is_whole = bool(shared) or self._is_own([clause])
        if not is_whole:
            content = self._replaced(self._value_of(clause, content), over)
        return self._revision(clause, content)

    def _revision(self, clause: _Clause, content: str) -> Revision | None:
        content = " ".join(content.split())
        if content in ("", self._memory):
            return None
        content = content[:1].upper() + content[1:]
        sentences = {one.quote for one in self._clauses if one.is_denial} | {clause.quote}
        return Revision(content, clause.quote, self._is_said, frozenset(sentences))

    def _cleaned(self, clause: _Clause) -> str:
        """Return a clause without its opener and without what it asks for."""
        text = phrase(self._language, "opens_revision").sub("", clause.text.replace("’", "'"))
        leaves = phrase(self._language, "leaves").search(text)
        text = text[: leaves.start()] if leaves and leaves.start() else text
        return text.strip(" ,;:.!。，、")

    def _value_of(self, clause: _Clause, text: str) -> str:
        """Return the part of a text from the first to the last word that is new."""
        new = set(self._new_words(clause))
        spans = [one.span() for one in _WORD.finditer(text) if one.group().lower() in new]
        return text[spans[0][0] : spans[-1][1]] if spans else ""

    def _replaced(self, value: str, over: set[str]) -> str:
        """Return the memory with a value in the place of the words that are over."""
        spans = [match.span() for match in _WORD.finditer(self._memory)]
        places = [span for span in spans if _words(self._memory[slice(*span)])[0] in over]
        if not places or not value:
            return ""
        return f"{self._memory[: places[0][0]]}{value}{self._memory[places[-1][1] :]}"

    def _is_function(self, word: str) -> bool:
        is_small = phrase(self._language, "small").fullmatch(word) is not None
        return is_small or phrase(self._language, "function").fullmatch(word) is not None


def _words(text: str) -> list[str]:
    """Return the words of a text in lower case; each Chinese character is one."""
    found = (match.group().lower() for match in _WORD.finditer(text.replace("’", "'")))
    return [NUMBER_WORDS.get(word, word) for word in found]


def _size(words: Collection[str]) -> float:
    """Return the number of words; a Chinese character is half a word, a unit like "pm" none."""
    return sum(0.5 if _HAN.match(word) else float(len(word) > _UNIT_CHARS) for word in words)


def _has_like(words: Collection[str], word: str) -> bool:
    """Return whether some words contain a word, or one that differs in its ending."""
    if word in words:
        return True
    if _HAN.match(word) or any(char.isdigit() for char in word):
        return False
    if f"{word}s" in words or word.removesuffix("s") in words:
        return True
    same, stem = SAME_AS.get(word, word), _stem(word)
    return any(SAME_AS.get(other, other) == same or _stem(other) == stem for other in words)


def _stem(word: str) -> str:
    """Return a word without an ending that only shows number, person, case or tense."""
    return _ENDINGS.sub("", word) if len(word) > _STEM_CHARS else word
