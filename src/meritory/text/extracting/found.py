"""What an extractor found in a transcript, and what it decided against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from meritory.types import Kind, Origin, Provenance

# How sure one can be of a claim, by how it came to be known.
STATED: Final = 0.95
STATED_PLAINLY: Final = 0.9
CONFIRMED: Final = 0.7
IMPLIED: Final = 0.5
CANDIDATE_LIMIT: Final = 5


@dataclass(frozen=True, slots=True)
class Found:
    """One claim worth keeping, with the words that it rests on and the turn that holds them."""

    content: str
    kind: Kind
    provenance: Provenance
    origin: Origin
    confidence: float
    # The place of the turn in the transcript, counted from 0.
    turn: int
    quote: str
    # The stored memory that it takes the place of.
    supersedes: str | None = None


@dataclass(frozen=True, slots=True)
class Declined:
    """A candidate that is not stored; below the floor, or refused by a check."""

    found: Found
    reason: str
    outcome: Literal["floored", "refused"] = "floored"


@dataclass(frozen=True, slots=True)
class Extraction:
    """All that an extractor has to say about one transcript, best candidates first."""

    candidates: tuple[Found, ...] = ()
    refused: tuple[Declined, ...] = ()
