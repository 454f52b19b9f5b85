"""Reads a transcript: what the person typed, what the agent brought in, and what it only echoed."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from meritory.domain.session import JudgedMemory, Turn
from meritory.text.judge.evidence import is_document
from meritory.text.normalize import unified
from meritory.text.overlap import (
    COMMON_WEIGHT,
    VALUE_WEIGHT,
    WORD_WEIGHT,
    holders,
    seen_in,
    terms_of,
    wording,
)

# Where the agent brought a term in. What it wrote into files weighs most: talk is cheap.
ACT_WEIGHTS: Final = {"edit": 1.5, "tool": 1.2, "assistant": 0.7}
# What a tool had shown before may have come from there as well as from memory.
GIVEN_SHARE: Final = 0.3

# A list of the block read out: this many memories restated in one turn, or all of them.
MIN_ECHOES: Final = 3
_RESTATED_SHARE: Final = 0.8
_ECHOED_SHARE: Final = 0.6
_MIN_PIECE_WEIGHT: Final = 2.0
# A sentence or a line of code; longer ones are cut.
_PIECE = re.compile(r"[^\s](?:[^\n.!?;]|[.!?;](?!\s)){0,399}[.!?;]*")

# What one sentence or line brought in: each term with its worth.
Piece = Mapping[str, float]


@dataclass(slots=True)
class Exchange:
    """One prompt, and what the agent brought in before the next one."""

    prompt: str
    typed: Mapping[str, float]
    # Of the typed terms, those that nobody had written before in the transcript.
    new: tuple[str, ...]
    # Whether the agent had acted before this prompt, and whether it acted on it.
    is_later: bool
    is_answered: bool = False
    pieces: list[Piece] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Conduct:
    """What happened in a session, exchange by exchange."""

    exchanges: tuple[Exchange, ...]

    @property
    def is_empty(self) -> bool:
        """Say whether the agent did nothing at all."""
        return not any(exchange.is_answered for exchange in self.exchanges)

    @property
    def pieces(self) -> list[Piece]:
        """Return everything the agent brought in."""
        return [piece for exchange in self.exchanges for piece in exchange.pieces]

    @property
    def asked(self) -> frozenset[str]:
        """Return the terms of every prompt that the agent acted on."""
        answered = (exchange for exchange in self.exchanges if exchange.is_answered)
        return frozenset(term for exchange in answered for term in exchange.typed)


def read_conduct(transcript: Sequence[Turn], shown: Sequence[Mapping[str, float]]) -> Conduct:
    """Return what happened; `shown` are the terms of each memory that was put before the agent."""
    exchanges = [Exchange("", {}, (), is_later=False)]
    seen: set[str] = set()
    typed: set[str] = set()
    given: set[str] = set()
    acted = False
    for turn in transcript:
        if turn.role == "user":
            terms = terms_of(turn.text)
            new = tuple(term for term in terms if term not in seen)
            exchanges.append(Exchange(turn.text, terms, new, is_later=acted))
            typed |= seen_in(turn.text)
            seen |= typed
        elif turn.role == "result":
            given |= seen_in(turn.text)
            seen |= given
        elif turn.role in ACT_WEIGHTS:
            acted = exchanges[-1].is_answered = True
            for text in without_echo(turn.text, shown):
                brought = sorted(seen_in(text) - typed)
                seen.update(brought)
                exchanges[-1].pieces.append(
                    {
                        term: ACT_WEIGHTS[turn.role] * (GIVEN_SHARE if term in given else 1.0)
                        for term in brought
                    }
                )
    return Conduct(tuple(exchanges))


def without_echo(text: str, shown: Sequence[Mapping[str, float]]) -> list[str]:
    """Return the sentences and lines of a turn, less those that only read out shown memories.

    One memory restated is an answer. Three in one turn, or all there are, is the block read out.
    """
    # Calls are often written as JSON, where a new line is two characters.
    pieces = _PIECE.findall(text.replace("\\n", "\n"))
    restating: dict[int, set[int]] = {}
    restated: dict[int, dict[str, float]] = {}
    for place, piece in enumerate(pieces):
        terms = terms_of(piece)
        total = sum(terms.values())
        if total < _MIN_PIECE_WEIGHT:
            continue
        for number, memory in enumerate(shown):
            common = {term: memory[term] for term in terms if term in memory}
            if sum(terms[term] for term in common) >= _RESTATED_SHARE * total:
                restating.setdefault(number, set()).add(place)
                restated.setdefault(number, {}).update(common)
    echoed = [
        number
        for number, common in restated.items()
        if sum(common.values()) >= _ECHOED_SHARE * sum(shown[number].values())
    ]
    if len(echoed) < max(2, min(MIN_ECHOES, len(shown))):
        return pieces
    dropped = set[int]().union(*(restating[number] for number in echoed))
    return [piece for place, piece in enumerate(pieces) if place not in dropped]


# "No problem" and "no, thanks" object to nothing.
_NO = re.compile(r"\s*(?:no+|nope|wrong|incorrect)\b(?:\s*[,.!:;-]+(?!\s*thank)|\s*$)")
_WRONG = re.compile(
    r"\b(?:that|this|it)(?:'s| is| was) (?:wrong|not (?:right|correct|true)|incorrect|a mistake"
    r"|outdated|obsolete)\b"
    r"|\byou(?:'re| are) (?:wrong|mistaken)\b"
    r"|\bany ?more\b|\bno longer\b|\b(?:is|are) (?:outdated|obsolete|deprecated)\b"
    r"|\b(?:don't|do not|never|stop|quit) (?:use|using|run|running)\b"
    r"|\bwe (?:(?:don't|do not|never) (?:use|do|have|run)|(?:stopped|moved|switched|migrated))\b"
    r"|\bnot like (?:this|that)\b|\b(?:undo|revert) (?:this|that|it)\b"
)
_FORGET = re.compile(
    r"\b(?:forget|delete|remove|drop|erase)\b[^.\n]{0,40}\b(?:memory|memories|notes?)\b"
    r"|\bforget that\b|\b(?:memory|meritory)[_ ](?:forget|delete)\b"
)
_AGAIN = re.compile(
    r"\b(?:as|like) i (?:said|told|explained|mentioned)\b"
    r"|\bi(?:'ve| have)? already (?:said|told|explained|mentioned)\b"
    r"|\bi told you\b|\bremember(?:,| that| we)\b|\blike last time\b"
    r"|\bhow (?:many times|often) do i\b"
)
_NEGATED = re.compile(r"\b(?:not|never|no|avoid|without|stop|cannot)\b|n't\b")
_SENTENCE_END = re.compile(r"[.!?](?=\s)|\n+")

# How far behind its first words a correction is read: the sentence it begins in, and the next.
MAX_OBJECTION_CHARS: Final = 240
_READ_SENTENCES: Final = 2
# The share of a memory that a correction must name to be about it.
_MIN_NAMED_SHARE: Final = 0.15


@dataclass(frozen=True, slots=True)
class Objection:
    """What a person wrote against what the agent had just done."""

    text: str
    terms: Mapping[str, float]
    # Terms that nobody had written before.
    new: tuple[str, ...]

    @property
    def names_nothing(self) -> bool:
        """Say whether it leaves open what it is about."""
        return all(weight < WORD_WEIGHT for weight in self.terms.values())


def objection_in(exchange: Exchange) -> Objection | None:
    """Return the part of a prompt that objects, if any does."""
    prompt = _plain(exchange.prompt)
    start = _NO.match(prompt)
    cue = start or _WRONG.search(prompt)
    if cue is None:
        return None
    ends = [end.start() for end in _SENTENCE_END.finditer(prompt)]
    first = max((end for end in ends if end < cue.start()), default=-1) + 1
    later = [end for end in ends if end >= cue.end()]
    last = later[_READ_SENTENCES - 1] if len(later) >= _READ_SENTENCES else len(prompt)
    text = unified(exchange.prompt)[first : min(last, first + MAX_OBJECTION_CHARS)]
    terms = terms_of(text)
    new = tuple(term for term in exchange.new if terms.get(term, 0.0) > COMMON_WEIGHT)
    return Objection(text, terms, new)


def contradicts(objection: Objection, memory: str, terms: Mapping[str, float]) -> bool:
    """Say whether an objection is aimed at a memory rather than in line with it.

    It must name something of the memory, and what it brings in anew must not be what the memory
    says too: "no, use npm" confirms the memory "never use pnpm, use npm". Where it brings in
    nothing new, two negations agree.
    """
    named = sum(w for term, w in terms.items() if term in objection.terms and w > COMMON_WEIGHT)
    if named < max(WORD_WEIGHT, _MIN_NAMED_SHARE * sum(terms.values())):
        return False
    if objection.new:
        return not _holds(terms, objection)
    return not (_is_negated(memory) and _is_negated(_NO.sub("", _plain(objection.text))))


def asks_to_forget(text: str) -> bool:
    """Say whether a text asks for a memory to be deleted."""
    return _FORGET.search(_plain(text)) is not None


def explains_again(prompt: str) -> bool:
    """Say whether a person points out that this was said before."""
    return _AGAIN.search(_plain(prompt)) is not None


def _holds(terms: Collection[str], objection: Objection) -> bool:
    new = objection.new
    values = [term for term in new if objection.terms[term] >= VALUE_WEIGHT]
    return all(value in terms for value in values) and 2 * sum(t in terms for t in new) > len(new)


def _is_negated(text: str) -> bool:
    return _NEGATED.search(_plain(text)) is not None


def _plain(text: str) -> str:
    return unified(text).lower()


Numbers = NDArray[np.float64]

FORGOTTEN: Final = -0.5
# The agent went by a memory when it used at least this much of it.
MIN_USE: Final = 0.25
# What a person must type of a memory that was not shown to have explained it again.
MIN_RETOLD_WEIGHT: Final = 2.0
MIN_RETOLD_SHARE: Final = 0.3
# Of what is to be forgotten, this share of the words must be the memory's.
MIN_NAMED_SHARE: Final = 0.6
MAX_TOPICS: Final = 10
MAX_TOPIC_WORDS: Final = 3

# Evidence of this much is worth half of what any amount is worth.
HALF_EVIDENCE: Final = 1.0
# As if this many more memories had not been shown and had left no trace.
UNSEEN_PRIOR: Final = 2.0
# Memories whose terms are kept; with longer ones they could take more than a few megabytes.
KEPT_TEXT_COUNT: Final = 1_024
KEPT_TEXT_CHARS: Final = 400


@dataclass(frozen=True, slots=True)
class Wording:
    """The memories of one session with their weighted terms."""

    exhibits: tuple[JudgedMemory, ...]
    terms: tuple[Mapping[str, float], ...]
    shown: NDArray[np.bool_]
    # 1 for a term that a single exhibit holds, near 0 for one that all hold.
    rarity: Mapping[str, float]
    shown_holders: Mapping[str, int]
    # 1 for an exhibit of usual size: who says much is found again by chance.
    bulk: Numbers


def read_wording(exhibits: Sequence[JudgedMemory]) -> Wording:
    """Return the exhibits with their terms and how rare these are."""
    terms = [_terms(exhibit.text) for exhibit in exhibits]
    shown = np.array([exhibit.was_shown for exhibit in exhibits], np.bool_)
    size = np.array([_size(found) for found in terms], np.float64)
    usual = float(np.median(size)) if size.size else 0.0
    bulk = _bulk(size / usual) if usual > 0.0 else np.ones(len(terms))
    return Wording(
        tuple(exhibits),
        tuple(terms),
        shown,
        _rarity(holders(terms), len(terms)),
        holders(found for found, was_shown in zip(terms, shown, strict=True) if was_shown),
        bulk,
    )


def _terms(text: str) -> Mapping[str, float]:
    """Return the terms of an exhibit, which is mostly one of the last sessions' as well."""
    return _kept_terms(text) if len(text) <= KEPT_TEXT_CHARS else terms_of(text)


@lru_cache(maxsize=KEPT_TEXT_COUNT)
def _kept_terms(text: str) -> Mapping[str, float]:
    return terms_of(text)


def use_of(texts: Wording, pieces: Sequence[Piece]) -> Numbers:
    """Return 0..1 for each exhibit: how much of it the agent brought in together, above chance."""
    places: dict[str, list[int]] = {}
    for number, piece in enumerate(pieces):
        for term in piece:
            places.setdefault(term, []).append(number)
    found = np.zeros(len(texts.terms))
    for exhibit, terms in enumerate(texts.terms):
        sums: dict[int, float] = {}
        # Common words say what a memory is about; they do not prove that it was used.
        for term, weight in ((t, w) for t, w in terms.items() if w > COMMON_WEIGHT):
            worth = texts.rarity[term] * weight / _sharers(texts, term, exhibit)
            for number in places.get(term, ()):
                sums[number] = sums.get(number, 0.0) + worth * pieces[number][term]
        found[exhibit] = max(sums.values(), default=0.0)
    return _above_chance(found / texts.bulk, texts.shown)


@dataclass(frozen=True, slots=True)
class Corrections:
    """What a session's prompts say about its memories, by the place of each memory."""

    # New scores of memories that the person corrected or asked to forget, and the factor of doubt.
    harmed: Mapping[int, float]
    doubted: frozenset[int]
    # Memories that were not shown although the person had to explain what they say.
    missing: tuple[int, ...]
    # How many explanations no memory covers, and how many there are in all.
    unmatched_count: int
    told_count: int
    topics: tuple[str, ...]


def read_corrections(transcript: Sequence[Turn], exhibits: Sequence[JudgedMemory]) -> Corrections:
    """Return what the person corrected and explained again."""
    texts = read_wording(exhibits)
    shown_terms = [texts.terms[place] for place in _places(texts.shown)]
    conduct = read_conduct(transcript, shown_terms)
    harmed, doubted = _contradicted(texts, conduct)
    for place in _forgotten(texts, transcript):
        harmed[place] = min(harmed.get(place, FORGOTTEN), FORGOTTEN)
    retold = _retold(texts, conduct)
    return Corrections(
        harmed=harmed,
        doubted=frozenset(doubted),
        missing=tuple(sorted({place for places in retold.values() for place in places})),
        unmatched_count=sum(not places for places in retold.values()),
        told_count=len(retold),
        topics=_topics(texts, conduct, retold),
    )


def _contradicted(texts: Wording, conduct: Conduct) -> tuple[dict[int, float], set[int]]:
    """Return memories that the agent went by and the person then corrected, and doubtful ones."""
    harmed: dict[int, float] = {}
    doubted: set[int] = set()
    for before, after in zip(conduct.exchanges, conduct.exchanges[1:], strict=False):
        objection = objection_in(after) if after.is_later else None
        if objection is None:
            continue
        use = np.where(texts.shown, use_of(texts, before.pieces), 0.0)
        if use.max(initial=0.0) < MIN_USE:
            continue
        if objection.names_nothing:
            doubted.add(int(use.argmax()))
            continue
        for place in _places(use >= MIN_USE):
            if contradicts(objection, texts.exhibits[place].text, texts.terms[place]):
                harmed[place] = -(0.5 + 0.5 * float(use[place]))
    return harmed, doubted


def _forgotten(texts: Wording, transcript: Sequence[Turn]) -> Iterator[int]:
    """Yield the memories that the person asked to forget."""
    for turn in transcript:
        if turn.role not in {"user", "tool"} or not asks_to_forget(turn.text):
            continue
        named = {term: w for term, w in terms_of(turn.text).items() if w > COMMON_WEIGHT}
        for place, terms in enumerate(texts.terms):
            held = sum(weight for term, weight in named.items() if term in terms)
            if held >= max(2 * WORD_WEIGHT, MIN_NAMED_SHARE * sum(named.values())):
                yield place


def _retold(texts: Wording, conduct: Conduct) -> dict[int, tuple[int, ...]]:
    """Return in which exchanges the person explained again, and which exhibits say the same."""
    found: dict[int, tuple[int, ...]] = {}
    for number, exchange in enumerate(conduct.exchanges):
        if not exchange.is_later:
            continue
        # Only claims: everyday words of a prompt stand in some long document by chance.
        places = tuple(
            place
            for place in _places(~texts.shown)
            if not is_document(texts.exhibits[place].text) and _tells(texts, exchange, place)
        )
        if places or explains_again(exchange.prompt):
            found[number] = places
    return found


def _tells(texts: Wording, exchange: Exchange, place: int) -> bool:
    """Say whether a prompt tells, for the first time in the session, what an exhibit says."""
    terms = texts.terms[place]
    told = [term for term in exchange.new if term in terms and term not in texts.shown_holders]
    weight = sum(terms[term] * texts.rarity[term] for term in told)
    return weight >= max(MIN_RETOLD_WEIGHT, MIN_RETOLD_SHARE * sum(terms.values()))


def _topics(
    texts: Wording, conduct: Conduct, retold: Mapping[int, Sequence[int]]
) -> tuple[str, ...]:
    """Return the words in which the person explained again, a few for each thing."""
    found: dict[str, None] = {}
    for number, places in retold.items():
        exchange = conduct.exchanges[number]
        new = {term for term in exchange.new if exchange.typed[term] >= WORD_WEIGHT}
        for terms in [set(texts.terms[place]) for place in places] or [new]:
            found[" ".join(wording(exchange.prompt, new & terms, MAX_TOPIC_WORDS))] = None
    return tuple(topic for topic in found if topic)[:MAX_TOPICS]


def _places(mask: NDArray[np.bool_]) -> list[int]:
    return [int(place) for place in np.flatnonzero(mask)]


def _above_chance(found: Numbers, shown: NDArray[np.bool_]) -> Numbers:
    """Take off what the other exhibits that were not shown reach, and bend the rest to 0..1.

    Where chance reaches far, more is needed: its level is added to the evidence that counts half.
    """
    unseen = np.where(shown, 0.0, found)
    others = (~shown).sum() - ~shown
    chance = (unseen.sum() - unseen) / (others + UNSEEN_PRIOR)
    lift = np.maximum(0.0, found - chance)
    return np.asarray(lift / (lift + HALF_EVIDENCE + chance))


def _sharers(texts: Wording, term: str, place: int) -> int:
    others = texts.shown_holders.get(term, 0) - int(texts.shown[place])
    return 1 + others


def _bulk(ratio: Numbers) -> Numbers:
    """Return 1 at the usual size; what is many times as long must not gain by its length."""
    return np.maximum(0.5 + 0.5 * ratio, (0.5 * ratio) ** 1.5)


def _size(terms: Mapping[str, float]) -> float:
    # A common word proves little, yet takes as much room as any other.
    return sum(max(WORD_WEIGHT, weight) for weight in terms.values())


def _rarity(counts: Mapping[str, int], exhibit_count: int) -> dict[str, float]:
    rarest = math.log((exhibit_count + 1) / 1.5) if exhibit_count else 1.0
    return {
        term: math.log((exhibit_count + 1) / (count + 0.5)) / rarest
        for term, count in counts.items()
    }
