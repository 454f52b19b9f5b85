"""Reads a transcript: what the person typed, what the agent brought in, and what it only echoed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from meritory.domain.session import Turn
from meritory.text.judge.overlap import seen_in, terms_of

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
