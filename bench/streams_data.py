"""Load streams of real sessions, with their hashes checked."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench import realmem
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
from bench.streams_transcripts import TranscriptArchive
from bench.streams_types import Stream, StreamMemory, StreamSession, Version, guarded

STREAMS = (
    "agent_specstory",
    "agent_calibrate",
    "git_datasette_2h",
    "git_simonw3_2h",
    "git_datasette",
    "agent_entire_s",
)
# LoCoMo's questions have no order of their own: one is asked each day after the conversation.
LOCOMO_STREAMS = tuple(f"locomo_{number}" for number in range(10))
REALMEM_STREAMS = tuple(f"{realmem.PREFIX}{person}" for person in realmem.PEOPLE)
# LongMemEval's questions, asked in the same way. They train base weights and judge nothing. Its
# licence (MIT) allows that; LoCoMo's (CC BY-NC) allows evaluation only.
QUESTION_STREAM = "longmemeval"
# Only these can run in the regime "transcripts".
TRANSCRIPT_STREAMS = ("agent_entire_s", *REALMEM_STREAMS)
_ORDER_SEED = 7
# Every second question: the talks behind all of them are more than one store would hold.
_QUESTION_STEP = 2
# The gain of a memory when the data says that it was used, but not how.
PLAIN_GAIN = 2.0
_ARCHIVE = "transcripts.tar.xz"


def load(name: str, root: Path | None = None) -> Stream:
    """Load one stream; no session of it has a gain for a memory that did not exist yet."""
    base = root or data_root()
    if name in LOCOMO_STREAMS:
        return guarded(_questions(name, load_locomo(base)[LOCOMO_STREAMS.index(name)]))
    if name in REALMEM_STREAMS:
        return guarded(realmem.load_person(name.removeprefix(realmem.PREFIX), base))
    if name == QUESTION_STREAM:
        return guarded(_questions(name, _longmemeval(base)))
    folder = base / "streams" / name
    archive = TranscriptArchive(folder / _ARCHIVE)
    sessions = [_session(row, archive) for row in _rows(folder / "sessions.jsonl")]
    projects = {session.project for session in sessions}
    memories = [_memory(row, projects) for row in _rows(folder / "memories.jsonl")]
    return guarded(Stream(name, tuple(memories), tuple(sessions)))


def _questions(name: str, corpus: Corpus) -> Stream:
    """Return a conversation as a stream: its turns are stored, then one question comes a day."""
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
    """Return the users' turns behind some questions, and which turns answer each question."""
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


def _session(row: dict[str, Any], archive: TranscriptArchive) -> StreamSession:
    gains = row.get("gain") or dict.fromkeys(row["rel"], PLAIN_GAIN)
    member = row.get("transcript")
    return StreamSession(
        key=str(row["sid"]),
        at=_moment(row["ts"]),
        project=row["project"],
        context=row["query"],
        gains={str(one): float(gain) for one, gain in gains.items()},
        transcript=None if member is None else partial(archive.messages, member),
    )


def _memory(row: dict[str, Any], projects: set[str | None]) -> StreamMemory:
    # In the agents' streams the field holds a folder: all their memories belong to one project.
    only = next(iter(projects)) if len(projects) == 1 else None
    return StreamMemory(
        id=str(row["mid"]),
        project=row["project"] if row["project"] in projects else only,
        created_at=_moment(row["created"]),
        deleted_at=None if row["deleted"] is None else _moment(row["deleted"]),
        versions=tuple(Version(_moment(at), _storable(text)) for at, text in row["texts"]),
    )


def _storable(text: str) -> str:
    """Return the text without bytes that a memory may not hold: some files are binary."""
    return text.encode("utf-8", "ignore").decode().replace("\0", "")


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in _checked(path).decode("utf-8").splitlines() if line]


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
