"""The words of a store that a typed word without a hit may mean."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meritory.store.search.search import Ground
from meritory.text.typos import edit_limit, nearest, whole_word

# A word has at most this many corrections.
CORRECTION_LIMIT = 2


def near_words(ground: Ground, typed: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return each typed word that no memory has, with the nearest words of open memories."""
    stems = {word: tokens for word, tokens in ground.stemmer.tokens_of(typed).items() if tokens}
    found = ground.words.frequencies(stems)
    lost = [word for word in stems if not found.get(word)]
    return {word: _corrections(ground, word, stems[word][0]) for word in lost}


def _corrections(ground: Ground, typed: str, stem: str) -> tuple[str, ...]:
    limit = edit_limit(typed)
    if not limit or not stem:
        return ()
    known = ground.view.vocabulary(stem[0], ground.words.vocabulary)
    near = nearest(stem, known, limit)
    words = (whole_word(one, typed, lambda made: _stems(ground, made)) for one in near)
    return tuple(word for word in words if word and _is_open(ground, word))[:CORRECTION_LIMIT]


def _stems(ground: Ground, words: list[str]) -> list[str]:
    tokens = ground.stemmer.tokens_of(words)
    return [tokens[word][0] if len(tokens[word]) == 1 else "" for word in words]


def _is_open(ground: Ground, word: str) -> bool:
    """Return whether the search may see a memory with a word: others must not be revealed."""
    return bool(np.any(ground.view.open_slots_of(ground.words.rows(word)) >= 0))
