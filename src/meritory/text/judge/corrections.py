"""What the person corrected, took back or had to explain again in a session.

A memory that the agent went by and the person then corrected did harm. A memory that the person
asks to forget did too. What the person explains although a memory says it was missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from meritory.domain.session import JudgedMemory, Turn
from meritory.text.judge.conduct import Conduct, Exchange, Piece, read_conduct
from meritory.text.judge.evidence import is_document
from meritory.text.judge.objections import asks_to_forget, contradicts, explains_again, objection_in
from meritory.text.judge.overlap import COMMON_WEIGHT, WORD_WEIGHT, holders, terms_of, wording

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
