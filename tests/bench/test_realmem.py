"""RealMem as a stream: memories come after their dialogue, and time never goes back."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from bench.datasets import MAX_MEMORY_CHARS, MissingData, WrongData
from bench.realmem import DEVELOPED, PEOPLE, REPORTED_PEOPLE, USED_GAIN
from bench.streams_data import REALMEM_STREAMS, load
from bench.streams_types import Stream


def said(
    speaker: str, text: str, *, is_query: bool = False, used: object = None
) -> dict[str, object]:
    turn = {"speaker": speaker, "content": text, "is_query": is_query}
    return turn if used is None else {**turn, "memory_used": used}


def memory(key: str, text: str) -> dict[str, object]:
    return {"session_uuid": key, "content": text}


def dialogue(key: str, day: str, turns: list[dict[str, object]], *texts: str) -> dict[str, object]:
    return {
        "session_uuid": key,
        "current_time": f"{day} (Monday)",
        "dialogue_turns": turns,
        "extracted_memory": [memory(key, text) for text in texts],
    }


def write(root: Path, *dialogues: dict[str, object], is_honest: bool = True) -> None:
    folder = root / "realmem"
    folder.mkdir(parents=True)
    body = json.dumps({"_metadata": {}, "dialogues": dialogues}).encode()
    (folder / PEOPLE["kim"]).write_bytes(body)
    digest = hashlib.sha256(body if is_honest else b"").hexdigest()
    (folder / "SHA256SUMS").write_text(f"{digest}  {PEOPLE['kim']}\n")


TEA, BIKE = "Kim drinks green tea.", "Kim rides a red bike."


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    first = [said("User", "I drink tea."), said("Assistant", "Noted.")]
    used = [memory("a", TEA), memory("a", "nobody extracted this"), memory("b", BIKE)]
    second = [
        said("User", "What do I drink?", is_query=True),
        said("Assistant", "Green tea.", used=used),
        said("User", "And my bike?", is_query=True),
        said("User", "Hello?"),
        said("Assistant", "Yes?"),
        said("User", "The bike, please.", is_query=True),
    ]
    third = [
        said("User", "Which bike?", is_query=True),
        said("Assistant", "The red one.", used=[memory("b", BIKE)]),
    ]
    write(
        tmp_path,
        dialogue("a", "2026-01-05", first, TEA, "x" * (MAX_MEMORY_CHARS + 9)),
        dialogue("b", "2026-01-05", second, BIKE, BIKE, TEA),
        # The file goes back in time.
        dialogue("c", "2026-01-03", third),
    )
    return load("realmem_kim", tmp_path)


def test_a_session_is_a_query_that_has_a_reply(stream: Stream) -> None:
    assert [one.context for one in stream.sessions] == ["What do I drink?", "Which bike?"]
    assert all(one.project is None for one in stream.sessions)
    reads = [one.transcript for one in stream.sessions]
    assert [read() for read in reads if read is not None] == [
        [
            {"role": "user", "text": "What do I drink?"},
            {"role": "assistant", "text": "Green tea."},
        ],
        [{"role": "user", "text": "Which bike?"}, {"role": "assistant", "text": "The red one."}],
    ]


def test_memories_are_known_after_their_own_dialogue(stream: Stream) -> None:
    texts = {one.id: one.versions[0].text for one in stream.memories}
    # The same text twice in a dialogue is one memory; in another dialogue it is another.
    assert texts == {"a/0": TEA, "a/1": "x" * MAX_MEMORY_CHARS, "b/0": BIKE, "b/2": TEA}
    first, last = stream.sessions
    known = [
        [one.id for one in stream.memories if one.text_before(session.at) is not None]
        for session in (first, last)
    ]
    assert known == [["a/0", "a/1"], ["a/0", "a/1", "b/0", "b/2"]]


def test_gains_are_the_memories_that_the_reply_used(stream: Stream) -> None:
    # Neither a text without a memory nor a memory of the dialogue itself counts.
    assert [dict(one.gains) for one in stream.sessions] == [{"a/0": USED_GAIN}, {"b/0": USED_GAIN}]


def test_time_never_goes_back_over_the_file(stream: Stream) -> None:
    first, last = stream.sessions
    made = [one.created_at for one in stream.memories]
    assert made == sorted(made)
    assert made[1] < first.at < made[2] < last.at


def test_wrong_and_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingData):
        load("realmem_kim", tmp_path)
    write(tmp_path, is_honest=False)
    with pytest.raises(WrongData):
        load("realmem_kim", tmp_path)


def test_every_person_is_either_developed_on_or_reported() -> None:
    assert sorted((*DEVELOPED, *REPORTED_PEOPLE)) == sorted(PEOPLE)
    assert tuple(f"realmem_{name}" for name in PEOPLE) == REALMEM_STREAMS
