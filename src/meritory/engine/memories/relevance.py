"""Match the texts that a search found with its words, for the absolute score."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from meritory.domain.memory import MemoryRecord
from meritory.engine.memories.question import SearchQuestion
from meritory.rank.relevance import QueryMatch
from meritory.store.contract.memories import SearchPool
from meritory.text.found import WordFinder
from meritory.text.terms import query_pairs


def match_of(
    question: SearchQuestion,
    pool: SearchPool,
    final: NDArray[np.float64],
    read: Sequence[tuple[int, MemoryRecord]],
) -> QueryMatch:
    """Return how memories match the words of a search; they come best first, with their index."""
    indices = np.array([at for at, _ in read], np.int64)
    texts = [" ".join((memory.content, *memory.tags)) for _, memory in read]
    terms, frequencies = question.terms, _frequencies(question, pool)
    finder = WordFinder(terms, query_pairs(question.text), question.read_as)
    rows: list[list[bool]] = []
    phrases: list[int] = []
    for text, hit in zip(texts, pool.text[indices] > 0.0, strict=True):
        found, count = finder.find(text)
        if hit and not any(found):
            found = _of_hit(finder.find_parts(text), frequencies)
        rows.append(found)
        phrases.append(count)
    return QueryMatch(
        found=np.array(rows, np.bool_).reshape(len(read), len(terms)),
        phrases=np.array(phrases, np.float64),
        frequencies=np.array(frequencies, np.float64),
        cosine=pool.raw_cosine[indices].astype(np.float64),
        final=final[indices],
        memory_count=pool.memory_count,
    )


def _frequencies(question: SearchQuestion, pool: SearchPool) -> list[int]:
    """Return how many memories have each word of a question, or a word that it was read as."""
    return [
        # A word is only read as one that the store has.
        max(pool.term_counts.get(term, 0), int(term in question.read_as))
        for term in question.terms
    ]


def _of_hit(found: list[bool], frequencies: Sequence[int]) -> list[bool]:
    """Return the terms in a hit of the full-text search, which contains one at least."""
    if not any(found) and found:
        # The index has other stems: it is the most common one that is least worth.
        found[max(range(len(found)), key=frequencies.__getitem__)] = True
    return found
