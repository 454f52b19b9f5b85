"""Streams of real sessions: what was known at each moment, and what was really used then."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from bench.datasets import (
    ADVERSARIAL,
    Corpus,
    Doc,
    Query,
    _checked,
    _longmemeval_turns,
    data_root,
    load_locomo,
)

STREAMS = (
    "agent_specstory",
    "agent_calibrate",
    "git_datasette_2h",
    "git_simonw3_2h",
    "git_datasette",
)
# LoCoMo's conversations, whose questions have no order of their own: one a day, after the talk.
LOCOMO_STREAMS = tuple(f"locomo_{number}" for number in range(10))
# LongMemEval's questions in the same way: to learn base weights from, nobody is judged by them. Its
# licence (MIT) allows that; LoCoMo's (CC BY-NC) is for judging alone.
QUESTION_STREAM = "longmemeval"
_ORDER_SEED = 7
# Every second question: what people said behind all of them is more than one store would hold.
_QUESTION_STEP = 2
# What a session used without saying how: all of it alike.
PLAIN_GAIN = 2.0


@dataclass(frozen=True, slots=True)
class Version:
    """What a memory says from a moment on."""

    at: datetime
    text: str


@dataclass(frozen=True, slots=True)
class StreamMemory:
    """One memory with its life."""

    id: str
    project: str | None
    created_at: datetime
    deleted_at: datetime | None
    versions: tuple[Version, ...]

    def text_before(self, moment: datetime) -> str | None:
        """What it said just before a moment; None when it was not there.

        What carries the very time of a session was made by it: to show it would be a leak.
        """
        if self.created_at >= moment or (self.deleted_at is not None and self.deleted_at < moment):
            return None
        said = [version.text for version in self.versions if version.at < moment]
        return said[-1] if said else None


@dataclass(frozen=True, slots=True)
class StreamSession:
    """One session: what it was about, and how much each memory was worth to it."""

    key: str
    at: datetime
    project: str | None
    context: str
    gains: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Stream:
    """Sessions in the order of time, and all memories that ever were."""

    name: str
    memories: tuple[StreamMemory, ...]
    sessions: tuple[StreamSession, ...]


def load(name: str, root: Path | None = None) -> Stream:
    """Load one stream, its hashes checked and its leaks closed."""
    if name in LOCOMO_STREAMS:
        corpora = load_locomo(root or data_root())
        return guarded(_questions(name, corpora[LOCOMO_STREAMS.index(name)]))
    if name == QUESTION_STREAM:
        return guarded(_questions(name, _longmemeval(root or data_root())))
    folder = (root or data_root()) / "streams" / name
    sessions = [_session(row) for row in _rows(folder / "sessions.jsonl")]
    projects = {session.project for session in sessions}
    memories = [_memory(row, projects) for row in _rows(folder / "memories.jsonl")]
    return guarded(Stream(name, tuple(memories), tuple(sessions)))


def guarded(stream: Stream) -> Stream:
    """The stream in time order, without targets that were not there before their session."""
    memories = {memory.id: memory for memory in stream.memories}

    def honest(session: StreamSession) -> StreamSession:
        there = {
            one: gain
            for one, gain in session.gains.items()
            if memories[one].text_before(session.at) is not None
        }
        return replace(session, gains=there)

    ordered = sorted(stream.sessions, key=lambda session: session.at)
    return replace(stream, sessions=tuple(honest(session) for session in ordered))


def _questions(name: str, corpus: Corpus) -> Stream:
    """A conversation as a stream: its turns are known, then questions come, one a day."""
    begun = [doc.at for doc in corpus.docs if doc.at is not None]
    memories = [
        StreamMemory(doc.id, None, at, None, (Version(at, _storable(doc.text)),))
        for doc in corpus.docs
        if (at := doc.at) is not None
    ]
    asked = [query for query in corpus.queries if query.category != ADVERSARIAL]
    order = np.random.default_rng(_ORDER_SEED).permutation(len(asked))
    sessions = [
        StreamSession(
            key=f"q{place}",
            at=max(begun) + timedelta(days=day),
            project=None,
            context=asked[place].text,
            gains=dict.fromkeys(asked[place].relevant, PLAIN_GAIN),
        )
        for day, place in enumerate(order.tolist(), start=1)
    ]
    return Stream(name, tuple(memories), tuple(sessions))


def _longmemeval(root: Path) -> Corpus:
    """What users said in the talks behind some questions, and which of it answers each."""
    items = json.loads(_checked(root / "longmemeval" / "longmemeval_oracle.json"))
    asked = [item for item in items if not item["question_id"].endswith("_abs")]
    docs: dict[str, Doc] = {}
    queries = []
    for item in asked[::_QUESTION_STEP]:
        answers = set()
        columns = (item["haystack_session_ids"], item["haystack_sessions"], item["haystack_dates"])
        for key, turns, date in zip(*columns, strict=True):
            for doc, turn in zip(_longmemeval_turns(key, turns, date), turns, strict=True):
                if doc.role != "user":
                    continue
                docs.setdefault(doc.id, doc)
                if turn.get("has_answer"):
                    answers.add(doc.id)
        if answers:
            queries.append(Query(item["question"], frozenset(answers), item["question_type"]))
    return Corpus(QUESTION_STREAM, list(docs.values()), queries)


def _session(row: dict[str, Any]) -> StreamSession:
    gains = row.get("gain") or dict.fromkeys(row["rel"], PLAIN_GAIN)
    return StreamSession(
        key=str(row["sid"]),
        at=_moment(row["ts"]),
        project=row["project"],
        context=row["query"],
        gains={str(one): float(gain) for one, gain in gains.items()},
    )


def _memory(row: dict[str, Any], projects: set[str | None]) -> StreamMemory:
    # In the agents' streams the field holds a folder; there, all memories are of the one project.
    only = next(iter(projects)) if len(projects) == 1 else None
    return StreamMemory(
        id=str(row["mid"]),
        project=row["project"] if row["project"] in projects else only,
        created_at=_moment(row["created"]),
        deleted_at=None if row["deleted"] is None else _moment(row["deleted"]),
        versions=tuple(Version(_moment(at), _storable(text)) for at, text in row["texts"]),
    )


def _storable(text: str) -> str:
    """Without what a memory may not hold: some files are no text at all."""
    return text.encode("utf-8", "ignore").decode().replace("\0", "")


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in _checked(path).decode("utf-8").splitlines() if line]


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
