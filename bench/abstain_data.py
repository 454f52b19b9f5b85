"""Questions with answers and off-topic ones, each asked to the library at its own moment.

RealMem people are asked as time goes on: only what was stored before a question can answer it. Each
own question is followed by one of another person of the same half, asked to the same store.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import realmem, streams_data
from bench.ablation import is_tuning
from bench.datasets import ADVERSARIAL, Corpus, load
from bench.product import _remember
from meritory import Memory
from meritory.engine.memories.recall import match_best
from meritory.rank.relevance import QueryMatch
from meritory.settings import load_settings

REALMEM = "realmem"
SETS = (REALMEM, "locomo", "beam")
LIMIT = 10
SEED = 20261119


@dataclass(frozen=True, slots=True)
class Asked:
    """One question and what the library made of it."""

    data: str
    person: str
    is_tuning: bool
    # None for an off-topic question, else how many memories answer it.
    answer_count: int | None
    # Of the best memories by rank: how they match, and which of them answer the question.
    match: QueryMatch
    answers: tuple[bool, ...]
    # Of the results of `recall(min_score=0)`: the scores, and which of them answer it.
    scores: tuple[float, ...]
    served: tuple[bool, ...]


def ask_all(data: str, root: Path | None = None) -> Iterator[Asked]:
    """Ask every question of a data set, and as many off-topic ones."""
    if data == REALMEM:
        yield from _ask_people(realmem.DEVELOPED, root, is_tuning=True)
        yield from _ask_people(realmem.REPORTED_PEOPLE, root, is_tuning=False)
        return
    corpora = load(data, root)
    for tuning in (True, False):
        half = [one for one in corpora if is_tuning(one, "") == tuning]
        for corpus in half:
            yield from _ask_corpus(data, corpus, half, is_tuning=tuning)


def _ask_people(people: Sequence[str], root: Path | None, *, is_tuning: bool) -> Iterator[Asked]:
    streams = {person: streams_data.load(f"{realmem.PREFIX}{person}", root) for person in people}
    for person, stream in streams.items():
        chance = random.Random(f"{SEED}{person}")
        others = [
            session.context
            for name, other in streams.items()
            if name != person
            for session in other.sessions
        ]
        waiting = sorted(stream.memories, key=lambda memory: memory.created_at, reverse=True)
        names: dict[str, set[str]] = {}
        with _opened() as memory:
            for session in stream.sessions:
                batch = []
                while waiting and waiting[-1].created_at < session.at:
                    batch.append(waiting.pop())
                items = [
                    {
                        "content": one.versions[0].text,
                        "created_at": one.created_at,
                        "on_similar": "keep",
                    }
                    for one in batch
                ]
                for one, result in zip(batch, memory.remember_many(items), strict=True):
                    if result.memory is not None:
                        names.setdefault(result.memory.id, set()).add(one.id)
                used = {name for name, gain in session.gains.items() if gain > 0.0}
                if not used:
                    continue
                whose = (REALMEM, person, is_tuning)
                yield _ask(memory, whose, session.context, names, used)
                yield _ask(memory, whose, chance.choice(others), names, None)


def _ask_corpus(
    data: str, corpus: Corpus, half: Sequence[Corpus], *, is_tuning: bool
) -> Iterator[Asked]:
    chance = random.Random(f"{SEED}{corpus.name}")
    others = [
        query.text
        for other in half
        if other is not corpus
        for query in other.queries
        if query.category != ADVERSARIAL
    ]
    with _opened() as memory:
        docs = _remember(memory, corpus)
        names = {memory_id: {doc.id for doc in found} for memory_id, found in docs.items()}
        for query in corpus.queries:
            if query.category != ADVERSARIAL:
                whose = (data, corpus.name, is_tuning)
                yield _ask(memory, whose, query.text, names, query.relevant)
                yield _ask(memory, whose, chance.choice(others), names, None)


@contextmanager
def _opened() -> Iterator[Memory]:
    with tempfile.TemporaryDirectory() as folder:
        # The defaults, whatever the machine's own configuration says; example keys are no reason
        # to leave a turn out.
        settings = load_settings(Path(folder), {}, {"secrets.policy": "redact"})
        with Memory(Path(folder) / "abstain.db", settings=settings, background=False) as memory:
            yield memory


def _ask(
    memory: Memory,
    whose: tuple[str, str, bool],
    question: str,
    names: Mapping[str, set[str]],
    relevant: set[str] | frozenset[str] | None,
) -> Asked:
    records, match = match_best(memory.services, memory.scope, question, LIMIT)
    hits = memory.recall(question, LIMIT, min_score=0.0)

    def answers(ids: Sequence[str]) -> tuple[bool, ...]:
        return tuple(bool(names.get(one, set()) & (relevant or set())) for one in ids)

    return Asked(
        *whose,
        answer_count=None if relevant is None else len(relevant),
        match=match,
        answers=answers([record.id for record in records]),
        scores=tuple(hit.score for hit in hits),
        served=answers([hit.id for hit in hits]),
    )
