"""Cases for the judge: questions with their gold answers, and sessions of coding agents.

A question is put before the judge as a session of two turns, the question and the gold answer. Its
exhibits are what `Memory.recall` finds for the question, the first ones shown, the rest not; those
that hold the evidence are the ones that helped. Left out is what has no gold answer: LoCoMo's
adversarial questions, BEAM's instructions and preferences.

A coding session has the prompts as typed, a call for every file that was read, and an edit for
every file that was changed, with the lines of its next version that are new. Exhibits are the
files' openings; those that were read or changed helped. As a file's opening names its path, and
calls do too, these sessions say how often the judge is sure, and little about how right it is.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.datasets import ADVERSARIAL, MAX_MEMORY_CHARS, Corpus, data_root
from bench.plain import Embedder
from bench.product import is_derived
from bench.streams_data import Stream, StreamMemory, StreamSession, _rows
from bench.streams_replay import Clock, Keeper
from tenure import Memory
from tenure.settings import load_settings
from tenure.text.conduct import passages
from tenure.types import Exhibit, Recalled, Turn

POOL_COUNT = 30
SHOWN_COUNT = 10
CHANGED = 2.0
# The next version of a file was made by the session when it came this soon after.
COMMIT_LAG = timedelta(days=3)
_BEAM_ANSWERS = ("answer", "ideal_answer", "ideal_summary")

# (corpus, question) -> (gold answer, ids of the turns that hold the evidence, if known better)
Answers = dict[tuple[str, str], tuple[str, frozenset[str] | None]]


@dataclass(frozen=True, slots=True)
class Case:
    """One session before the judge, and which exhibits really helped."""

    key: str
    transcript: tuple[Turn, ...]
    exhibits: tuple[Exhibit, ...]
    helped: NDArray[np.bool_]
    vectors: NDArray[np.float32]
    # The cosines of every exhibit with the whole transcript, and with the agent's part alone.
    cosine: NDArray[np.float64]
    agent_cosine: NDArray[np.float64]


def question_cases(name: str, corpora: Sequence[Corpus], embedder: Embedder) -> Iterator[Case]:
    """Give a case for every question that has a gold answer."""
    answers = ANSWERS[name](data_root())
    for corpus in corpora:
        with tempfile.TemporaryDirectory() as folder:
            settings = load_settings(Path(folder), {})
            with Memory(Path(folder) / "judge.db", settings=settings) as memory:
                ids = _remember(memory, corpus)
                for query in corpus.queries:
                    if (corpus.name, query.text) not in answers or query.category == ADVERSARIAL:
                        continue
                    answer, known = answers[corpus.name, query.text]
                    found = memory.recall(query.text, limit=POOL_COUNT)
                    if not found:
                        continue
                    turns = (Turn("user", query.text), Turn("assistant", answer))
                    relevant = query.relevant if known is None else known
                    helped = [not relevant.isdisjoint(ids[hit.id]) for hit in found]
                    yield _case(f"{corpus.name}/{query.text}", turns, found, helped, embedder)


def coding_cases(stream: Stream, embedder: Embedder) -> Iterator[Case]:
    """Give a case for every session of a coding agent that touched a file it knew."""
    folder = data_root() / "streams" / stream.name
    prompts = {str(row["sid"]): row["all_prompts"] for row in _rows(folder / "sessions.jsonl")}
    files = {memory.id: memory for memory in stream.memories}
    with tempfile.TemporaryDirectory() as place:
        settings = load_settings(Path(place), {}, {"secrets.policy": "redact"})
        clock = Clock(stream.sessions[0].at)
        path, project = Path(place) / "judge.db", stream.sessions[0].project
        with Memory(path, project=project, clock=clock, settings=settings) as memory:
            keeper = Keeper(memory, stream)
            for session in stream.sessions:
                clock.at = session.at
                keeper.catch_up(session.at)
                found = memory.recall(session.context, limit=POOL_COUNT)
                if not session.gains or not found:
                    continue
                used = {keeper.ids[one] for one in session.gains}
                turns = coding_turns(session, prompts[session.key], files)
                helped = [hit.id in used for hit in found]
                yield _case(f"{stream.name}/{session.key}", turns, found, helped, embedder)


def coding_turns(
    session: StreamSession, prompts: Sequence[str], files: dict[str, StreamMemory]
) -> tuple[Turn, ...]:
    """Return what was typed, read and changed, the work spread over the prompts."""
    work: list[Turn] = []
    for one, gain in session.gains.items():
        work.append(Turn("tool", f"Read {one}"))
        if gain >= CHANGED:
            added = "\n".join(added_lines(files[one], session.at))
            work.append(Turn("edit", f"{one}\n{added}"))
    share = -(-len(work) // len(prompts))
    turns: list[Turn] = []
    for number, prompt in enumerate(prompts):
        turns.append(Turn("user", prompt))
        turns += work[number * share : (number + 1) * share]
    return tuple(turns)


def added_lines(file: StreamMemory, moment: datetime) -> list[str]:
    """Return the lines that a file's next version has and its last one had not."""
    before = set((file.text_before(moment) or "").splitlines())
    after = [v.text for v in file.versions if moment <= v.at <= moment + COMMIT_LAG]
    return [line for line in after[0].splitlines() if line not in before] if after else []


def _remember(memory: Memory, corpus: Corpus) -> dict[str, set[str]]:
    """Store every turn and return which turns each memory stands for."""
    results = memory.remember_many(
        {
            "content": doc.text[:MAX_MEMORY_CHARS],
            "source": {"session_key": doc.session_key, "turn": str(doc.turn)},
            "provenance": "assistant_derived" if is_derived(corpus, doc) else "user_stated",
            "created_at": doc.at,
            "on_similar": "keep",
        }
        for doc in corpus.docs
    )
    ids: dict[str, set[str]] = {}
    for doc, result in zip(corpus.docs, results, strict=True):
        if result.memory is None:
            raise RuntimeError(f"{doc.id} was not stored: {result.reason or result.error}")
        ids.setdefault(result.memory.id, set()).add(doc.id)
    return ids


def _case(
    key: str,
    turns: tuple[Turn, ...],
    found: Sequence[Recalled],
    helped: Sequence[bool],
    embedder: Embedder,
) -> Case:
    exhibits = tuple(
        Exhibit(hit.content, place < SHOWN_COUNT, hit.memory.provenance)
        for place, hit in enumerate(found)
    )
    vectors = embedder.embed_documents([exhibit.text for exhibit in exhibits])
    agent = [turn for turn in turns if turn.role != "user"]
    return Case(
        key,
        turns,
        exhibits,
        np.array(helped, np.bool_),
        vectors,
        similarity(vectors, turns, embedder),
        similarity(vectors, agent, embedder),
    )


def similarity(
    vectors: NDArray[np.float32], turns: Sequence[Turn], embedder: Embedder
) -> NDArray[np.float64]:
    """Return each vector's largest cosine with an exchange, as the library computes it."""
    spoken = embedder.embed_documents(passages(turns))
    return np.asarray((vectors @ spoken.T).max(axis=1), np.float64)


def _locomo_answers(root: Path) -> Answers:
    return {
        (f"locomo/{sample['sample_id']}", item["question"]): (str(item["answer"]), None)
        for sample in _json(root / "locomo" / "locomo10.json")
        for item in sample["qa"]
        if "answer" in item
    }


def _longmemeval_answers(root: Path) -> Answers:
    """The data set marks the very turns that hold the answer."""
    found: Answers = {}
    for item in _json(root / "longmemeval" / "longmemeval_oracle.json"):
        sessions = zip(item["haystack_session_ids"], item["haystack_sessions"], strict=True)
        turns = frozenset(
            f"{key}/{place}"
            for key, turns in sessions
            for place, turn in enumerate(turns)
            if turn.get("has_answer")
        )
        found["longmemeval", item["question"]] = (str(item["answer"]), turns)
    return found


def _beam_answers(root: Path) -> Answers:
    found: Answers = {}
    for folder in sorted((root / "beam" / "100K").iterdir()):
        path = folder / "probing_questions" / "probing_questions.json"
        for item in (item for items in _json(path).values() for item in items):
            answer = next((item[name] for name in _BEAM_ANSWERS if item.get(name)), None)
            if answer is not None:
                found[f"beam/{folder.name}", item["question"]] = (str(answer), None)
    return found


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


ANSWERS: dict[str, Callable[[Path], Answers]] = {
    "locomo": _locomo_answers,
    "longmemeval": _longmemeval_answers,
    "beam": _beam_answers,
}
