"""What the defaults are calibrated on: stores of mixed sources, and questions with answers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.ablation import is_tuning
from bench.datasets import ADVERSARIAL, MAX_MEMORY_CHARS, Corpus, _dia_ids, load
from bench.noise import SHARE, with_evidence
from bench.noise_made import planted
from bench.plain import typed_words
from meritory.text.extract.rules import IMPLIED
from meritory.text.words import HEDGES, STOP_WORDS

LOCOMO, NOISY, LONGMEMEVAL = "locomo", "locomo and noise", "longmemeval"
# Prompts that a store has nothing to say to: what people asked about somebody else.
STRANGERS_PER_TALK = 40
STRANGERS_PER_POOL = 200
STATED_CONFIDENCE: Final = 0.9
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*")
_DOUBTS = HEDGES | {"guess", "might", "think", "unsure"}
_DATED = "%Y/%m/%d %H:%M"


@dataclass(frozen=True, slots=True)
class Note:
    """One memory to store."""

    id: str
    text: str
    session_key: str
    turn: str | None
    provenance: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt with the notes and the sessions that answer it; none answers a stranger's."""

    text: str
    answers: frozenset[str]
    sessions: frozenset[str]
    asked_at: datetime | None
    is_tuning: bool


@dataclass(frozen=True, slots=True)
class Collection:
    """Notes that are searched together and what is asked of them."""

    name: str
    notes: Sequence[Note]
    questions: Sequence[Question]
    strangers: Sequence[Question] = ()


def locomo(root: Path) -> list[Collection]:
    """LoCoMo's turns, with its observations as derived by an agent and its session summaries.

    A question is answered by its evidence turns, by an observation that cites one of them, and by
    the summary of such a session if all words of the answer stand in it.
    """
    samples = json.loads((root / "locomo" / "locomo10.json").read_text(encoding="utf-8"))
    corpora = load("locomo", root)
    talks = [_talk(corpus, sample) for corpus, sample in zip(corpora, samples, strict=True)]
    return [
        replace(talk, strangers=_strangers(talk, other.questions[:STRANGERS_PER_TALK]))
        for talk, other in zip(talks, [*talks[1:], talks[0]], strict=True)
    ]


def noisy(talks: Sequence[Collection], root: Path) -> list[Collection]:
    """The same stores with so much chatter and tautology, written by an agent, between."""
    return [
        replace(talk, name=NOISY, notes=[*talk.notes, *_chatter(corpus)], strangers=())
        for talk, corpus in zip(talks, load("locomo", root), strict=True)
    ]


def longmemeval(root: Path, others: Sequence[Question]) -> Collection:
    """All turns of LongMemEval in one store, answered by turns; others ask what nobody said."""
    (pool,) = with_evidence("longmemeval")
    items = json.loads((root / "longmemeval" / "longmemeval_oracle.json").read_text("utf-8"))
    asked_at = {item["question"]: _dated(item["question_date"]) for item in items}
    notes = [
        Note(
            id=doc.id,
            text=doc.text,
            session_key=doc.session_key,
            turn=str(doc.turn),
            provenance="assistant_derived" if doc.role == "assistant" else "user_stated",
            at=doc.at,
        )
        for doc in pool.docs
    ]
    questions = [
        Question(
            text=query.text,
            answers=query.relevant,
            sessions=frozenset(one.rpartition("/")[0] for one in query.relevant),
            asked_at=asked_at[query.text],
            is_tuning=is_tuning(pool, query.text),
        )
        for query in pool.queries
    ]
    step = max(1, len(others) // STRANGERS_PER_POOL)
    strangers = [
        replace(_stranger(one), is_tuning=is_tuning(pool, one.text)) for one in others[::step]
    ]
    return Collection(LONGMEMEVAL, notes, questions, strangers)


def _clear(text: str, *, asking: bool) -> float:
    """How clearly a text asserts something: less, the more of its sentences doubt, or ask."""
    sentences = [one for one in _SENTENCE.findall(text[:MAX_MEMORY_CHARS]) if one.strip()]
    weak: int = sum(
        (asking and one.rstrip().endswith("?")) or not _DOUBTS.isdisjoint(one.lower().split())
        for one in sentences
    )
    return STATED_CONFIDENCE - (STATED_CONFIDENCE - IMPLIED) * (weak / max(len(sentences), 1))


# No data set says how sure somebody was; these stand in for what an extractor would say.
CONFIDENCES: dict[str, Callable[[str], float]] = {
    "doubts": partial(_clear, asking=False),
    "doubts, asks": partial(_clear, asking=True),
}


def _talk(corpus: Corpus, sample: dict[str, Any]) -> Collection:
    begun = {doc.session_key: doc.at for doc in corpus.docs}
    notes = [
        Note(doc.id, doc.text, doc.session_key, str(doc.turn), "user_stated", doc.at)
        for doc in corpus.docs
    ]
    cites = dict(_observed(corpus, sample))
    sums = {note.session_key: note for note in _summed(sample, begun)}
    notes += [*cites, *sums.values()]
    answers = {item["question"]: str(item.get("answer", "")) for item in sample["qa"]}
    session_of = {doc.id: doc.session_key for doc in corpus.docs}
    end = max(at for at in begun.values() if at is not None) + timedelta(days=1)
    questions = []
    for query in corpus.queries:
        if query.category == ADVERSARIAL:
            continue
        sessions = frozenset(session_of[one] for one in query.relevant)
        told = {note.id for note, turns in cites.items() if turns & query.relevant}
        wanted = _words(answers[query.text])
        told |= {
            sums[key].id
            for key in sessions & sums.keys()
            if wanted and wanted <= _words(sums[key].text)
        }
        tuning = is_tuning(corpus, query.text)
        questions.append(Question(query.text, query.relevant | told, sessions, end, tuning))
    return Collection(LOCOMO, notes, questions)


def _observed(corpus: Corpus, sample: dict[str, Any]) -> Iterator[tuple[Note, frozenset[str]]]:
    """What another author wrote down of single turns, and of which."""
    docs = {doc.id: doc for doc in corpus.docs}
    for session in sample["observation"].values():
        for entries in session.values():
            for text, cited in entries:
                labels = [cited] if isinstance(cited, str) else cited
                turns = frozenset(_dia_ids(sample["sample_id"], labels)) & docs.keys()
                if turns:
                    doc = docs[min(turns)]
                    note_id = f"{doc.id}/observed/{text}"
                    where = (doc.session_key, str(doc.turn), "assistant_derived", doc.at)
                    yield Note(note_id, text, *where), turns


def _summed(sample: dict[str, Any], begun: dict[str, datetime | None]) -> Iterator[Note]:
    for name, text in sample["session_summary"].items():
        key = f"{sample['sample_id']}/{name.removesuffix('_summary')}"
        if text and key in begun:
            yield Note(f"{key}/summary", text, key, None, "episode_summary", begun[key])


def _chatter(corpus: Corpus) -> Iterator[Note]:
    # A third of what is planted says a turn again, which is no chatter.
    count = round(1.5 * len(corpus.docs) * SHARE / (1.0 - SHARE))
    for number, one in enumerate(planted(corpus, count, None)):
        if one.origin == "agent":
            note_id = f"{corpus.name}/noise/{number}"
            yield Note(note_id, one.text, one.session_key, None, "assistant_derived", one.at.at)


def _strangers(talk: Collection, others: Sequence[Question]) -> list[Question]:
    tuning = talk.questions[0].is_tuning
    return [replace(_stranger(one), is_tuning=tuning) for one in others]


def _stranger(question: Question) -> Question:
    return replace(question, answers=frozenset(), sessions=frozenset())


def _words(text: str) -> set[str]:
    return {word.lower() for word in typed_words(text)} - STOP_WORDS


def _dated(text: str) -> datetime:
    plain = re.sub(r"\s*\(\w+\)\s*", " ", text)
    return datetime.strptime(f"{plain} +0000", f"{_DATED} %z")
