"""What the user corrected, took back or explained again in a session.

A memory did harm when the agent acted on it and the user then corrected the agent, or when the user
asked to forget it. A memory is missing when it was not shown and the user explained its content.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from meritory.domain.session import JudgedMemory, Turn
from meritory.text.judge.digest import is_document
from meritory.text.language import pattern
from meritory.text.normalize import unified
from meritory.text.terms import (
    COMMON_WEIGHT,
    VALUE_WEIGHT,
    WORD_WEIGHT,
    holders,
    seen_in,
    terms_of,
    wording,
)

Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]

FORGOTTEN: Final = -0.5
# The agent acted on a memory when it used at least this much of it.
MIN_USE: Final = 0.25
# How much of a memory that was not shown a user must type to have explained it again.
MIN_RETOLD_WEIGHT: Final = 2.0
MIN_RETOLD_SHARE: Final = 0.3
# The memory must contain this share of the words in a request to forget.
MIN_FORGOTTEN_SHARE: Final = 0.6
# A correction must name this share of a memory to be about it.
MIN_CORRECTED_SHARE: Final = 0.15
MAX_TOPICS: Final = 10
MAX_TOPIC_WORDS: Final = 3
# A correction is read up to this length: the sentence it begins in, and the next.
MAX_OBJECTION_CHARS: Final = 240
_READ_SENTENCES: Final = 2

# This much evidence counts half of the maximum.
HALF_EVIDENCE: Final = 1.0
# As if this many more memories had not been shown and had left no trace.
UNSEEN_PRIOR: Final = 2.0
# Memories whose terms are cached; longer ones could take more than a few megabytes.
CACHED_TEXT_COUNT: Final = 1_024
CACHED_TEXT_CHARS: Final = 400

# The weight of a term by the agent's action. Edits weigh most: talk is cheap.
ACT_WEIGHTS: Final = {"edit": 1.5, "tool": 1.2, "assistant": 0.7}
# A term that a tool returned before may come from there instead of from memory.
GIVEN_SHARE: Final = 0.3
# The agent read the block out when one turn restates this many memories, or all of them.
MIN_ECHOES: Final = 3
_RESTATED_SHARE: Final = 0.8
_ECHOED_SHARE: Final = 0.6
_MIN_PIECE_WEIGHT: Final = 2.0
# A sentence or a line of code; longer ones are cut.
_PIECE = re.compile(r"[^\s](?:[^\n.!?;]|[.!?;](?!\s)){0,399}[.!?;]*")


_pattern: Final = partial(pattern, "en/corrections")
_SENTENCE_END = re.compile(r"[.!?](?=\s)|\n+")


# One sentence or line of the agent: each new term with its weight.
Piece = Mapping[str, float]


@dataclass(slots=True)
class Exchange:
    """One prompt, and what the agent said and did before the next one."""

    prompt: str
    typed: Mapping[str, float]
    # Typed terms that are new in the transcript.
    new: tuple[str, ...]
    # Whether the agent had acted before this prompt.
    is_later: bool
    pieces: list[Piece] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Objection:
    """The part of a prompt that objects to the agent's last action."""

    text: str
    terms: Mapping[str, float]
    # Terms that are new in the transcript.
    new: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wording:
    """The memories of one session with their weighted terms."""

    memories: tuple[JudgedMemory, ...]
    terms: tuple[Mapping[str, float], ...]
    shown: Flags
    # 1 for a term that a single memory contains, near 0 for one that all contain.
    rarity: Mapping[str, float]
    shown_holders: Mapping[str, int]
    # 1 for a memory of usual size; more for long ones, which match by chance.
    bulk: Numbers


@dataclass(frozen=True, slots=True)
class Corrections:
    """What a session's prompts say about its memories, by the index of each memory."""

    # Scores of memories that the user corrected or asked to forget.
    harmed: Mapping[int, float]
    doubted: frozenset[int]
    # Memories that were not shown although the user had to explain their content.
    missing: tuple[int, ...]
    # How many explanations no memory covers, and how many there are.
    unmatched_count: int
    explained_count: int
    topics: tuple[str, ...]


# A memory is often a candidate in the next session too.
_cached_terms = lru_cache(maxsize=CACHED_TEXT_COUNT)(terms_of)


def read_corrections(transcript: Sequence[Turn], memories: Sequence[JudgedMemory]) -> Corrections:
    """Return what the user corrected and explained again."""
    texts = read_wording(memories)
    shown_terms = [texts.terms[index] for index in np.flatnonzero(texts.shown)]
    exchanges = read_exchanges(transcript, shown_terms)
    harmed, doubted = _contradicted(texts, exchanges)
    for turn in transcript:
        if turn.role not in {"user", "tool"} or not _pattern("forget").search(_lowered(turn.text)):
            continue
        named = {term: w for term, w in terms_of(turn.text).items() if w > COMMON_WEIGHT}
        for index, terms in enumerate(texts.terms):
            shared = sum(weight for term, weight in named.items() if term in terms)
            if shared >= max(2 * WORD_WEIGHT, MIN_FORGOTTEN_SHARE * sum(named.values())):
                harmed[index] = min(harmed.get(index, FORGOTTEN), FORGOTTEN)
    explained = _explained(texts, exchanges)
    topics: dict[str, None] = {}
    for number, indices in explained.items():
        exchange = exchanges[number]
        new = {term for term in exchange.new if exchange.typed[term] >= WORD_WEIGHT}
        for keys in [set(texts.terms[index]) for index in indices] or [new]:
            topics[" ".join(wording(exchange.prompt, new & keys, MAX_TOPIC_WORDS))] = None
    return Corrections(
        harmed=harmed,
        doubted=frozenset(doubted),
        missing=tuple(sorted({index for indices in explained.values() for index in indices})),
        unmatched_count=sum(not indices for indices in explained.values()),
        explained_count=len(explained),
        topics=tuple(topic for topic in topics if topic)[:MAX_TOPICS],
    )


def read_wording(memories: Sequence[JudgedMemory]) -> Wording:
    """Return the memories with their terms and the rarity of these."""
    terms = [
        _cached_terms(memory.text)
        if len(memory.text) <= CACHED_TEXT_CHARS
        else terms_of(memory.text)
        for memory in memories
    ]
    shown = np.array([memory.was_shown for memory in memories], np.bool_)
    # A common word is weak evidence, yet takes as much space as any other.
    size = np.array(
        [sum(max(WORD_WEIGHT, weight) for weight in weights.values()) for weights in terms],
        np.float64,
    )
    usual = float(np.median(size)) if size.size else 0.0
    bulk = np.ones(len(terms))
    if usual > 0.0:
        ratio = size / usual
        bulk = np.maximum(0.5 + 0.5 * ratio, (0.5 * ratio) ** 1.5)
    count = len(terms)
    rarest = math.log((count + 1) / 1.5) if count else 1.0
    return Wording(
        tuple(memories),
        tuple(terms),
        shown,
        {
            term: math.log((count + 1) / (holder_count + 0.5)) / rarest
            for term, holder_count in holders(terms).items()
        },
        holders(weights for weights, was_shown in zip(terms, shown, strict=True) if was_shown),
        bulk,
    )


def use_of(texts: Wording, pieces: Sequence[Piece]) -> Numbers:
    """Return for each memory how much of it the agent used together, above chance, 0..1."""
    postings: dict[str, list[int]] = {}
    for number, piece in enumerate(pieces):
        for term in piece:
            postings.setdefault(term, []).append(number)
    used = np.zeros(len(texts.terms))
    for index, terms in enumerate(texts.terms):
        sums: dict[int, float] = {}
        # Common words name the topic of a memory; they do not prove that it was used.
        for term, weight in ((t, w) for t, w in terms.items() if w > COMMON_WEIGHT):
            other_holders = texts.shown_holders.get(term, 0) - int(texts.shown[index])
            worth = texts.rarity[term] * weight / (1 + other_holders)
            for number in postings.get(term, ()):
                sums[number] = sums.get(number, 0.0) + worth * pieces[number][term]
        used[index] = max(sums.values(), default=0.0)
    used = used / texts.bulk
    # Memories that were not shown give the level of chance; the higher it is, the more is needed.
    unseen = np.where(texts.shown, 0.0, used)
    others = (~texts.shown).sum() - ~texts.shown
    chance = (unseen.sum() - unseen) / (others + UNSEEN_PRIOR)
    lift = np.maximum(0.0, used - chance)
    return np.asarray(lift / (lift + HALF_EVIDENCE + chance))


def read_exchanges(
    transcript: Sequence[Turn], shown: Sequence[Mapping[str, float]]
) -> tuple[Exchange, ...]:
    """Return a session prompt by prompt; `shown` are the terms of each shown memory."""
    exchanges = [Exchange("", {}, (), is_later=False)]
    seen: set[str] = set()
    typed: set[str] = set()
    given: set[str] = set()
    has_acted = False
    for turn in transcript:
        if turn.role == "user":
            terms = terms_of(turn.text)
            new = tuple(term for term in terms if term not in seen)
            exchanges.append(Exchange(turn.text, terms, new, is_later=has_acted))
            typed |= seen_in(turn.text)
            seen |= typed
        elif turn.role == "result":
            given |= seen_in(turn.text)
            seen |= given
        elif turn.role in ACT_WEIGHTS:
            has_acted = True
            for text in without_echo(turn.text, shown):
                brought = sorted(seen_in(text) - typed)
                seen.update(brought)
                exchanges[-1].pieces.append(
                    {
                        term: ACT_WEIGHTS[turn.role] * (GIVEN_SHARE if term in given else 1.0)
                        for term in brought
                    }
                )
    return tuple(exchanges)


def without_echo(text: str, shown: Sequence[Mapping[str, float]]) -> list[str]:
    """Return the sentences and lines of a turn, without those that only read out shown memories.

    One restated memory is an answer. Three in one turn, or all of them, are the block read out.
    """
    # Calls are often written as JSON, where a line break is two characters.
    pieces = _PIECE.findall(text.replace("\\n", "\n"))
    restating: dict[int, set[int]] = {}
    restated: dict[int, dict[str, float]] = {}
    for number, piece in enumerate(pieces):
        terms = terms_of(piece)
        total = sum(terms.values())
        if total < _MIN_PIECE_WEIGHT:
            continue
        for index, memory in enumerate(shown):
            common = {term: memory[term] for term in terms if term in memory}
            if sum(terms[term] for term in common) >= _RESTATED_SHARE * total:
                restating.setdefault(index, set()).add(number)
                restated.setdefault(index, {}).update(common)
    echoed = [
        index
        for index, common in restated.items()
        if sum(common.values()) >= _ECHOED_SHARE * sum(shown[index].values())
    ]
    if len(echoed) < max(2, min(MIN_ECHOES, len(shown))):
        return pieces
    dropped = set[int]().union(*(restating[index] for index in echoed))
    return [piece for number, piece in enumerate(pieces) if number not in dropped]


def objection_in(exchange: Exchange) -> Objection | None:
    """Return the part of a prompt that objects, if any does."""
    prompt = _lowered(exchange.prompt)
    cue = _pattern("no").match(prompt) or _pattern("wrong").search(prompt)
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
    """Return whether an objection opposes a memory rather than agreeing with it.

    It must name something in the memory. Its new terms must not be the memory's own: "no, use npm"
    confirms the memory "never use pnpm, use npm". Without new terms, two negations agree.
    """
    named = sum(w for term, w in terms.items() if term in objection.terms and w > COMMON_WEIGHT)
    if named < max(WORD_WEIGHT, MIN_CORRECTED_SHARE * sum(terms.values())):
        return False
    if objection.new:
        values = [term for term in objection.new if objection.terms[term] >= VALUE_WEIGHT]
        has_values = all(value in terms for value in values)
        return not (has_values and 2 * sum(t in terms for t in objection.new) > len(objection.new))
    objected = _pattern("no").sub("", _lowered(objection.text))
    return not all(map(_pattern("negated").search, (_lowered(memory), objected)))


def _contradicted(
    texts: Wording, exchanges: Sequence[Exchange]
) -> tuple[dict[int, float], set[int]]:
    """Return memories that the agent acted on and the user corrected, and doubtful ones."""
    harmed: dict[int, float] = {}
    doubted: set[int] = set()
    for before, after in pairwise(exchanges):
        objection = objection_in(after) if after.is_later else None
        if objection is None:
            continue
        use = np.where(texts.shown, use_of(texts, before.pieces), 0.0)
        if use.max(initial=0.0) < MIN_USE:
            continue
        if all(weight < WORD_WEIGHT for weight in objection.terms.values()):
            # It does not say what it is about.
            doubted.add(int(use.argmax()))
            continue
        for index in map(int, np.flatnonzero(use >= MIN_USE)):
            if contradicts(objection, texts.memories[index].text, texts.terms[index]):
                harmed[index] = -(0.5 + 0.5 * float(use[index]))
    return harmed, doubted


def _explained(texts: Wording, exchanges: Sequence[Exchange]) -> dict[int, tuple[int, ...]]:
    """Return in which exchanges the user explained again, and which memories say the same."""
    explained: dict[int, tuple[int, ...]] = {}
    # Only claims: a long document contains the everyday words of a prompt by chance.
    candidates = [
        int(index)
        for index in np.flatnonzero(~texts.shown)
        if not is_document(texts.memories[index].text)
    ]
    for number, exchange in enumerate(exchanges):
        if not exchange.is_later:
            continue
        matching = []
        for index in candidates:
            terms = texts.terms[index]
            new = [t for t in exchange.new if t in terms and t not in texts.shown_holders]
            weight = sum(terms[term] * texts.rarity[term] for term in new)
            if weight >= max(MIN_RETOLD_WEIGHT, MIN_RETOLD_SHARE * sum(terms.values())):
                matching.append(index)
        if matching or _pattern("again").search(_lowered(exchange.prompt)):
            explained[number] = tuple(matching)
    return explained


def _lowered(text: str) -> str:
    return unified(text).lower()
