"""Which of the recent actions a report is about: by its words, by time and by risk."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

WINDOW_S: Final = 20 * 60.0
FADE_S: Final = 6 * 60.0
TEXT_SHARE, TIME_SHARE, RISK_SHARE = 0.45, 0.30, 0.20
# For a report that names the tool, the file or the command itself.
NAMED_SHARE: Final = 0.25
# So many words in common are as good as it gets.
WORDS_ENOUGH: Final = 3
NEGATIVE_FLOOR, POSITIVE_FLOOR = 0.33, 0.38
LIMIT_COUNT: Final = 3
RISK_MAX: Final = 10
# With fewer words in common, a report only stands near an action; it says nothing about it.
EVIDENCE_WORDS: Final = 2


@dataclass(frozen=True, slots=True)
class Seen:
    """A recent action as far as it counts here."""

    action: int
    age_s: float
    risk: int
    words: frozenset[str]
    # Whether the report names it outright.
    is_named: bool = False


@dataclass(frozen=True, slots=True)
class Match:
    """An action that a report is likely about."""

    action: int
    score: float
    shared: frozenset[str]
    is_named: bool

    @property
    def is_evidence(self) -> bool:
        """Whether the report speaks of the action, so that something can be learned about it."""
        return self.is_named or len(self.shared) >= EVIDENCE_WORDS


def attribute(words: frozenset[str], polarity: int, seen: Sequence[Seen]) -> list[Match]:
    """The actions that a report is about, the likeliest first; at equal scores the latest."""
    floor = NEGATIVE_FLOOR if polarity < 0 else POSITIVE_FLOOR
    matches = [_match(words, one) for one in seen if 0 <= one.age_s <= WINDOW_S]
    kept = [match for match in matches if match.score >= floor]
    kept.sort(key=lambda match: (-match.score, -match.action))
    return kept[:LIMIT_COUNT]


def _match(words: frozenset[str], one: Seen) -> Match:
    shared = words & one.words
    score = (
        TEXT_SHARE * min(len(shared), WORDS_ENOUGH) / WORDS_ENOUGH
        + TIME_SHARE * math.exp(-one.age_s / FADE_S)
        + RISK_SHARE * one.risk / RISK_MAX
        + NAMED_SHARE * one.is_named
    )
    return Match(one.action, min(1.0, score), shared, one.is_named)
