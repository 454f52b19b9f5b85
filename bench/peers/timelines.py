"""The data sets as every system sees them: what is stored, and what is asked, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from bench import realmem, streams_data
from bench.datasets import ADVERSARIAL, MAX_MEMORY_CHARS, Corpus, Doc, MissingData, Query, load
from bench.streams_types import Stream

SETS = ("locomo", "beam", "realmem", "longmemeval")
# LongMemEval's 1.5 million word pieces take numpy half an hour to encode, so it has to be named.
DEFAULT_SETS = SETS[:3]
TITLES = {
    "locomo": "LoCoMo turns",
    "beam": "BEAM 100K",
    "realmem": "RealMem",
    "longmemeval": "LongMemEval, pooled",
}
REALMEM_CATEGORY = "reply"
# What --quick keeps: so many corpora of a set, and so many questions of each.
QUICK_CORPORA = {"locomo": 2, "beam": 3, "realmem": 1}
QUICK_QUESTIONS = 60


@dataclass(frozen=True, slots=True)
class Step:
    """Documents to store, then a question; either may be missing."""

    docs: tuple[Doc, ...]
    query: Query | None
    # When the question is asked, where the data says so.
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """One store: its steps in order of time."""

    name: str
    judged: Literal["doc", "session"]
    steps: tuple[Step, ...]

    def texts(self) -> Iterator[str]:
        """Yield every text that is stored or asked."""
        for step in self.steps:
            yield from (doc.text for doc in step.docs)
            if step.query is not None:
                yield step.query.text

    def queries(self) -> list[Query]:
        """Return the questions in order."""
        return [step.query for step in self.steps if step.query is not None]


def timelines(name: str, quick: bool) -> list[Timeline]:
    """Return the stores of a data set. MissingData says that it is not on this machine."""
    if quick and name not in QUICK_CORPORA:
        raise MissingData(f"SKIP {name}: --quick leaves it out")
    if name == "realmem":
        people = (f"{realmem.PREFIX}{person}" for person in realmem.REPORTED_PEOPLE)
        found = [of_stream(streams_data.load(person)) for person in people]
    else:
        found = [of_corpus(corpus) for corpus in load(name)]
    if quick:
        return [_shortened(one) for one in found[: QUICK_CORPORA[name]]]
    return found


def of_corpus(corpus: Corpus) -> Timeline:
    """Store everything, then ask everything but LoCoMo's adversarial questions."""
    asked = [query for query in corpus.queries if query.category != ADVERSARIAL]
    docs = tuple(part for doc in corpus.docs for part in _parts(doc))
    steps = (Step(docs, None), *(Step((), query) for query in asked))
    return Timeline(corpus.name, corpus.judged, steps)


def of_stream(stream: Stream) -> Timeline:
    """Store each memory when it comes up, and ask only what needs one that is stored."""
    waiting = sorted(stream.memories, key=lambda memory: memory.created_at)
    steps = []
    for session in stream.sessions:
        relevant = frozenset(one for one, gain in session.gains.items() if gain > 0.0)
        if not relevant:
            continue
        now = [memory for memory in waiting if memory.created_at < session.at]
        waiting = waiting[len(now) :]
        docs = tuple(
            Doc(one.id, one.versions[0].text, *_place(one.id), "user", one.created_at)
            for one in now
        )
        query = Query(session.context, relevant, REALMEM_CATEGORY)
        steps.append(Step(docs, query, session.at))
    return Timeline(stream.name, "doc", tuple(steps))


def _place(memory: str) -> tuple[str, int]:
    session, _, number = memory.rpartition("/")
    return session, int(number)


def _parts(doc: Doc) -> Sequence[Doc]:
    """Split what is longer than a memory of the product may be, for every system alike."""
    cuts = range(0, max(1, len(doc.text)), MAX_MEMORY_CHARS)
    return [
        Doc(
            doc.id,
            doc.text[at : at + MAX_MEMORY_CHARS],
            doc.session_key,
            doc.turn,
            doc.role,
            doc.at,
        )
        for at in cuts
    ]


def _shortened(timeline: Timeline) -> Timeline:
    steps: list[Step] = []
    asked = 0
    for step in timeline.steps:
        asked += step.query is not None
        if asked > QUICK_QUESTIONS:
            break
        steps.append(step)
    return Timeline(timeline.name, timeline.judged, tuple(steps))
