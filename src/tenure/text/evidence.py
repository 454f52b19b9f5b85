"""The chance that each memory helped, from its traces in a transcript.

Two kinds of evidence add up as log odds:

- use: the memory's own terms that the agent brought into one line of an edit, a call or a reply
  before anyone had typed them. A term weighs by its kind (a value more than a word), its rarity
  among the exhibits and where it was brought in, and is shared with the other shown memories that
  hold it. The best line counts, over the memory's bulk, less what exhibits that were not shown
  reach by chance.
- topic: how much the memory is about what was asked and done, by the words of the prompts and by
  the cosine where one is handed in. However large, it gives at most `TOPIC_LIMIT`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tenure.text.conduct import Conduct, Piece
from tenure.text.traces import COMMON_WEIGHT, WORD_WEIGHT, holders, terms_of
from tenure.types import Exhibit

Numbers = NDArray[np.float64]

# Log odds, fitted on one half of the questions of three public data sets and rounded. Topic alone
# stays below 0.31, less than what counts as useful.
PRIOR: Final = -4.8
USE_WEIGHT: Final = 6.5
TOPIC_WEIGHT: Final = 5.0
COSINE_WEIGHT: Final = 1.3
# The prompts' words where no cosine stands beside them.
TOPIC_ALONE_WEIGHT: Final = 7.0
TOPIC_LIMIT: Final = 4.0
# Evidence of this much is worth half of what any amount is worth.
HALF_EVIDENCE: Final = 1.0
# As if this many more exhibits had not been shown and had left no trace.
UNSEEN_PRIOR: Final = 2.0
# Exhibits whose terms are kept; with longer ones they could take more than a few megabytes.
KEPT_TEXT_COUNT: Final = 1_024
KEPT_TEXT_CHARS: Final = 400
# Cosines that lie closer together than this tell nothing apart.
MIN_DEVIATION: Final = 0.02


@dataclass(frozen=True, slots=True)
class Docket:
    """The exhibits of one session, with what is counted over all of them."""

    exhibits: tuple[Exhibit, ...]
    terms: tuple[Mapping[str, float], ...]
    shown: NDArray[np.bool_]
    # 1 for a term that a single exhibit holds, near 0 for one that all hold.
    rarity: Mapping[str, float]
    shown_holders: Mapping[str, int]
    # 1 for an exhibit of usual size: who says much is found again by chance.
    bulk: Numbers


def open_docket(exhibits: Sequence[Exhibit]) -> Docket:
    """Return the exhibits with their terms and how rare these are."""
    terms = [_terms(exhibit.text) for exhibit in exhibits]
    shown = np.array([exhibit.was_shown for exhibit in exhibits], np.bool_)
    size = np.array([_size(found) for found in terms], np.float64)
    usual = float(np.median(size)) if size.size else 0.0
    bulk = _bulk(size / usual) if usual > 0.0 else np.ones(len(terms))
    return Docket(
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


def use_of(docket: Docket, pieces: Sequence[Piece]) -> Numbers:
    """Return 0..1 for each exhibit: how much of it the agent brought in together, above chance."""
    places: dict[str, list[int]] = {}
    for number, piece in enumerate(pieces):
        for term in piece:
            places.setdefault(term, []).append(number)
    found = np.zeros(len(docket.terms))
    for exhibit, terms in enumerate(docket.terms):
        sums: dict[int, float] = {}
        # Common words say what a memory is about; they do not prove that it was used.
        for term, weight in ((t, w) for t, w in terms.items() if w > COMMON_WEIGHT):
            worth = docket.rarity[term] * weight / _sharers(docket, term, exhibit)
            for number in places.get(term, ()):
                sums[number] = sums.get(number, 0.0) + worth * pieces[number][term]
        found[exhibit] = max(sums.values(), default=0.0)
    return _above_chance(found / docket.bulk, docket.shown)


def topic_of(docket: Docket, asked: Iterable[str], similarity: Sequence[float] | None) -> Numbers:
    """Return the log odds that being on the topic gives each exhibit."""
    typed = set(asked)
    found = np.array(
        [
            sum(docket.rarity[term] * weight for term, weight in terms.items() if term in typed)
            for terms in docket.terms
        ],
        np.float64,
    )
    words = _above_chance(found / docket.bulk, docket.shown)
    if similarity is None:
        total = TOPIC_ALONE_WEIGHT * words
    else:
        cosine = _deviation(np.asarray(similarity, np.float64))
        # The mean of many words lies near everything.
        cosine = np.where(cosine > 0.0, cosine / np.maximum(1.0, docket.bulk), cosine)
        total = TOPIC_WEIGHT * words + COSINE_WEIGHT * cosine
    return np.asarray(TOPIC_LIMIT * np.tanh(total / TOPIC_LIMIT))


def chances(docket: Docket, conduct: Conduct, similarity: Sequence[float] | None) -> Numbers:
    """Return 0..1 for each exhibit: the chance that it helped."""
    topic = topic_of(docket, conduct.asked, similarity)
    odds = PRIOR + USE_WEIGHT * use_of(docket, conduct.pieces) + topic
    return np.asarray(1.0 / (1.0 + np.exp(-odds)))


def _above_chance(found: Numbers, shown: NDArray[np.bool_]) -> Numbers:
    """Take off what the other exhibits that were not shown reach, and bend the rest to 0..1.

    Where chance reaches far, more is needed: its level is added to the evidence that counts half.
    """
    unseen = np.where(shown, 0.0, found)
    others = (~shown).sum() - ~shown
    chance = (unseen.sum() - unseen) / (others + UNSEEN_PRIOR)
    lift = np.maximum(0.0, found - chance)
    return np.asarray(lift / (lift + HALF_EVIDENCE + chance))


def _deviation(cosine: Numbers) -> Numbers:
    """Return how far each cosine is from the mean, in deviations; embedders differ in scale."""
    known = np.nan_to_num(cosine, nan=0.0, posinf=1.0, neginf=-1.0)
    return np.asarray((known - known.mean()) / max(float(known.std()), MIN_DEVIATION))


def _sharers(docket: Docket, term: str, place: int) -> int:
    others = docket.shown_holders.get(term, 0) - int(docket.shown[place])
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
