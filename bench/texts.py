"""Any number of distinct, realistic memory texts: real sentences where there are, else made up."""

from __future__ import annotations

import itertools
import random
import re
from functools import cache

from bench.datasets import MissingData, load

_SENTENCE = re.compile(r"(?<=[.!?])\s+")


@cache
def sentences() -> tuple[list[str], str]:
    """Real sentences of the bench data, or made-up ones with natural word frequencies."""
    try:
        corpora = [corpus for name in ("locomo", "longmemeval") for corpus in load(name)]
    except MissingData:
        return _made_up(20_000), "made-up words"
    texts = (doc.text for corpus in corpora for doc in corpus.docs)
    found = {s.strip() for text in texts for s in _SENTENCE.split(text) if 30 <= len(s) <= 300}
    return sorted(found), "sentences of LoCoMo and LongMemEval"


def _made_up(count: int) -> list[str]:
    source = random.Random(1)
    words = ["".join(source.choices("abcdefghijklmnoprstuvw", k=7)) for _ in range(20_000)]
    # Added up once: `choices` would do so at every call.
    sums = list(itertools.accumulate(1.0 / (rank + 10) for rank in range(len(words))))
    return [" ".join(source.choices(words, cum_weights=sums, k=15)) for _ in range(count)]


def memories(count: int, seed: int = 7) -> list[str]:
    """Distinct texts of one or two sentences; the same seed gives the same texts."""
    pool, _ = sentences()
    source = random.Random(seed)
    texts: dict[str, None] = dict.fromkeys(source.sample(pool, min(count // 4, len(pool))))
    while len(texts) < count:
        texts[" ".join(source.sample(pool, 2))] = None
    ordered = list(texts)[:count]
    source.shuffle(ordered)
    return ordered


def questions(count: int) -> list[str]:
    """Real questions where the data is, else pieces of sentences."""
    try:
        found = [query.text for corpus in load("locomo") for query in corpus.queries]
    except MissingData:
        found = [" ".join(text.split()[:6]) for text in _made_up(2_000)]
    random.Random(3).shuffle(found)
    return found[:count]
