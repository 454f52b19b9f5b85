"""Probes made from a user's own memories, for want of better ones: questions of their rare words.

A made question shares its words with the memory it asks for, so it is easier than what people ask.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from meritory.flow.evaluate.probes import GENERATED, Probe
from meritory.text.entities import mentions
from meritory.text.normal import content_hash
from meritory.text.secrets import find_secrets
from meritory.text.terms import query_terms
from meritory.text.values import protected_values
from meritory.types import MemoryRecord

PROVENANCE = "generated from the store"
# So many words of a memory go into its question, and never more than half of them.
WORDS_MAX, WORDS_MIN = 4, 2
_SHARE_MAX = 0.5
_QUESTIONS = {
    "preference": "What do I prefer about {}?",
    "decision": "What was decided about {}?",
    "procedure": "How do I go about {}?",
    "episode": "What happened with {}?",
    "lesson": "What did I learn about {}?",
    "constraint": "What must I keep to about {}?",
}
_PLAIN_QUESTION = "What do I know about {}?"


def generate(records: Sequence[MemoryRecord], count: int) -> list[Probe]:
    """Up to `count` probes, from all kinds, sources and projects alike; the same store, the same.

    A memory that seems to hold a secret is left out, and so is one that a question of its words
    would give away.
    """
    frequency = Counter(term for one in records for term in set(query_terms(one.content)))
    texts = Counter(content_hash(one.content) for one in records)
    found: list[Probe] = []
    for record in _stratified(records):
        if len(found) >= count:
            break
        if record.agent is not None or texts[content_hash(record.content)] > 1:
            continue
        question = _question(record, frequency)
        if question is not None:
            found.append(_probe(record, question))
    return found


def _stratified(records: Sequence[MemoryRecord]) -> Iterator[MemoryRecord]:
    """One of each group in turn; inside a group by a hash, so that no time or topic leads."""
    groups: dict[tuple[str, ...], list[MemoryRecord]] = {}
    for one in records:
        groups.setdefault((one.kind, one.provenance, one.project or ""), []).append(one)
    for group in groups.values():
        group.sort(key=lambda one: hashlib.sha256(one.id.encode()).digest())
    for row in zip_longest(*(groups[key] for key in sorted(groups))):
        yield from (one for one in row if one is not None)


def _question(record: MemoryRecord, frequency: Counter[str]) -> str | None:
    if find_secrets(record.content):
        return None
    terms = [term for term in query_terms(record.content) if _is_plain(term)]
    named = {one.name.casefold() for one in mentions(record.content)}
    wanted = min(WORDS_MAX, math.floor(_SHARE_MAX * len(terms)))
    if wanted < WORDS_MIN:
        return None
    # A value is what is asked for, so it stays out; what is named, then what is rare, goes in.
    numbers = set(protected_values(record.content).numbers)
    free = [term for term in terms if term not in numbers and not term.isdigit()]
    best = sorted(free, key=lambda term: (term not in named, frequency[term], term))[:wanted]
    if len(best) < WORDS_MIN:
        return None
    words = ", ".join(term for term in terms if term in best)
    return _QUESTIONS.get(record.kind, _PLAIN_QUESTION).format(words)


def _is_plain(term: str) -> bool:
    return len(term) > 2 and term.replace("-", "").replace("_", "").isalnum()


def _probe(record: MemoryRecord, question: str) -> Probe:
    return Probe(
        question=question,
        expected=(record.content,),
        project=record.project,
        tags=(GENERATED, record.kind, record.provenance),
        provenance=PROVENANCE,
    )
