"""RealMem: one person's dialogues as a stream of queries, answered from extracted memories.

A session is one query of the user and the reply to it. The memories that were extracted from a
dialogue are stored when that dialogue ends, so only later dialogues can use them. The truth is the
reply's own list `memory_used`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from bench.datasets import MAX_MEMORY_CHARS, _checked
from bench.streams_types import Message, Stream, StreamMemory, StreamSession, Version

PEOPLE = {
    "kenta": "Kenta_Tanaka.json",
    "kim": "Kim_Ji_young.json",
    "liam": "Liam_O_Connor.json",
    "oliver": "Oliver_Smith.json",
    "sophie": "Sophie_Dubois.json",
}
# Choices are made on the first two; figures are reported for the other three.
DEVELOPED = ("kenta", "kim")
REPORTED_PEOPLE = ("liam", "oliver", "sophie")
PREFIX = "realmem_"
USED_GAIN = 2.0
# The files give a date only. The first dialogue of a day begins in the morning, each later one
# after the end of the one before it.
MORNING = timedelta(hours=9)
TURN = timedelta(seconds=10)
PAUSE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class _Dialogue:
    """One dialogue with the times given to it."""

    key: str
    turns: Sequence[Mapping[str, Any]]
    extracted: Sequence[Mapping[str, Any]]
    begin: datetime

    @property
    def end(self) -> datetime:
        return self.begin + TURN * (len(self.turns) + 1)


def load_person(person: str, root: Path) -> Stream:
    """Load the stream of one person."""
    rows = json.loads(_checked(root / "realmem" / PEOPLE[person]))["dialogues"]
    dialogues = list(_dialogues(rows))
    memories = dict(_memories(dialogues))
    ids = {source: memory.id for source, memory in memories.items()}
    sessions = [session for one in dialogues for session in _sessions(one, ids)]
    return Stream(f"{PREFIX}{person}", tuple(memories.values()), tuple(sessions))


def _dialogues(rows: Sequence[Mapping[str, Any]]) -> Iterator[_Dialogue]:
    """Yield the dialogues in file order. Times never go back, also where the dates do."""
    end: datetime | None = None
    for row in rows:
        begin = datetime.strptime(row["current_time"][:10], "%Y-%m-%d").replace(tzinfo=UTC)
        begin += MORNING
        if end is not None and begin < end + PAUSE:
            begin = end + PAUSE
        one = _Dialogue(row["session_uuid"], row["dialogue_turns"], row["extracted_memory"], begin)
        end = one.end
        yield one


def _memories(
    dialogues: Sequence[_Dialogue],
) -> Iterator[tuple[tuple[str, str], StreamMemory]]:
    """Yield each different memory with its source: the session it comes from, and its text."""
    known: set[tuple[str, str]] = set()
    for one in dialogues:
        for number, item in enumerate(one.extracted):
            source = (item["session_uuid"], item["content"])
            if source in known:
                continue
            known.add(source)
            # One text of the five people is longer than a memory may be.
            version = Version(one.end, item["content"][:MAX_MEMORY_CHARS])
            yield source, StreamMemory(f"{one.key}/{number}", None, one.end, None, (version,))


def _sessions(one: _Dialogue, ids: Mapping[tuple[str, str], str]) -> Iterator[StreamSession]:
    """Yield a session for each query that is followed by a reply."""
    for place, (turn, reply) in enumerate(zip(one.turns, one.turns[1:], strict=False)):
        is_query = turn["speaker"] == "User" and turn["is_query"]
        if not is_query or reply["speaker"] != "Assistant":
            continue
        used = [(item["session_uuid"], item["content"]) for item in reply.get("memory_used") or ()]
        yield StreamSession(
            key=f"{one.key}-{place}",
            at=one.begin + TURN * place,
            project=None,
            context=turn["content"],
            gains={ids[source]: USED_GAIN for source in used if source in ids},
            transcript=partial(_exchange, turn["content"], reply["content"]),
        )


def _exchange(query: str, reply: str) -> list[Message]:
    return [{"role": "user", "text": query}, {"role": "assistant", "text": reply}]
