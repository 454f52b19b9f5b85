"""Full-text queries from anything typed, and the extra words worth indexing."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from meritory.text.claims.words import STOP_WORDS
from meritory.text.judge.overlap import NAME_WEIGHT, stem, terms_of

# The beginning of a memory that its title is read from.
OPENING_CHARS: Final = 200
# BM25's usual saturation, and less weight on length than usual: titles are short.
_SATURATION: Final = 1.2
_LENGTH_SHARE: Final = 0.5
# The words of an identifier: humps of camelCase, runs of capitals, digits.
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_]+")
_KEPT_TITLES: Final = 20_000


def split_words(text: str) -> tuple[str, ...]:
    """Return the stems of a text's words, identifiers and paths split into theirs."""
    stems = (stem(word.lower()) for word in _WORD.findall(text))
    return tuple(word for word in stems if len(word) > 1 and word not in STOP_WORDS)


@lru_cache(maxsize=_KEPT_TITLES)
def title_words(opening: str) -> tuple[str, ...]:
    """Return the words of the title, from the beginning of a memory's text."""
    first, line_end, _ = opening.partition("\n")
    if line_end:
        return split_words(first)
    named = (term for term, weight in terms_of(opening).items() if weight >= NAME_WEIGHT)
    return tuple(dict.fromkeys(word for term in named for word in split_words(term)))


def title_scores(context: str, titles: Sequence[tuple[str, ...]]) -> NDArray[np.float64]:
    """Return how well a context matches each title, by BM25 over these titles."""
    asked = frozenset(split_words(context))
    holders = Counter(word for title in titles for word in set(title) & asked)
    mean_length = max(1.0, sum(map(len, titles)) / max(len(titles), 1))
    rarity = {
        word: math.log1p((len(titles) - held + 0.5) / (held + 0.5))
        for word, held in holders.items()
    }
    return np.array([_score(title, rarity, mean_length) for title in titles], np.float64)


def _score(title: tuple[str, ...], rarity: dict[str, float], mean_length: float) -> float:
    length = 1.0 - _LENGTH_SHARE + _LENGTH_SHARE * len(title) / mean_length
    return sum(
        rarity[word] * count * (_SATURATION + 1.0) / (count + _SATURATION * length)
        for word, count in Counter(title).items()
        if word in rarity
    )
