"""The replay of sessions: no leaks, the store follows the stream, and learning must be real."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from bench.datasets import MissingData, WrongData
from bench.streams import BASELINE, SERVED, Clock, Keeper, Outcome, missed_bars, replay, summary
from bench.streams_data import (
    STREAMS,
    Stream,
    StreamMemory,
    StreamSession,
    Version,
    guarded,
    load,
)

from tenure import Memory

DAWN = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
# Two kinds of work whose words are in none of the notes.
TASKS = ("ship the release to production", "draw the menu in softer colours")
NOTES = tuple(
    f"{animal} notes: the {animal} eats {food}"
    for animal in ("otter", "heron", "lynx", "badger", "stoat", "weasel", "puffin", "gannet")
    for food in ("berries", "acorns", "clover")
)


def a_memory(name: str, *texts: str, until: datetime | None = None) -> StreamMemory:
    versions = tuple(Version(DAWN + 10 * HOUR * at, text) for at, text in enumerate(texts))
    return StreamMemory(name, None, DAWN, until, versions)


def a_session(hours: int, context: str, gains: dict[str, float]) -> StreamSession:
    return StreamSession(f"s{hours}", DAWN + hours * HOUR, None, context, gains)


def two_habits() -> Stream:
    """Each kind of work needs its own three notes, which nothing but use can tell."""
    memories = tuple(a_memory(f"n{at}", text) for at, text in enumerate(NOTES))
    helpful = ({"n3": 2.0, "n10": 2.0, "n17": 1.0}, {"n5": 2.0, "n12": 2.0, "n20": 1.0})
    sessions = tuple(a_session(24 * (at + 1), TASKS[at % 2], helpful[at % 2]) for at in range(12))
    return guarded(Stream("habits", memories, sessions))


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return replay(two_habits(), folder=tmp_path_factory.mktemp("honest"))


def test_every_session_is_scored_and_the_pool_holds_all(honest: Outcome) -> None:
    assert honest.pool_recall == [1.0] * 12
    assert all(np.isfinite(values).all() for values in honest.ndcg.values())
    assert {len(values) for values in honest.ndcg.values()} == {12}


def test_use_teaches_the_baseline_what_no_text_says(honest: Outcome) -> None:
    for method in (BASELINE, SERVED, "hand-made mix"):
        first, *_, last = honest.quarters(method)
        assert last > max(0.6, first + 0.2), method
    assert honest.mean(BASELINE) > honest.mean("hybrid text") + 0.2
    assert honest.quarters("hybrid text")[-1] < 0.4


def test_credit_by_chance_teaches_nothing(honest: Outcome, tmp_path: Path) -> None:
    shuffled = replay(two_habits(), shuffled=True, folder=tmp_path)
    assert shuffled.mean(BASELINE) < honest.mean(BASELINE) - 0.2
    assert shuffled.pool_recall == honest.pool_recall


def test_a_limit_takes_the_first_sessions(tmp_path: Path) -> None:
    assert replay(two_habits(), 2, folder=tmp_path).pool_recall == [1.0, 1.0]


def test_the_summary_has_the_figures_that_are_shown(honest: Outcome) -> None:
    found = summary(honest)
    assert (found["sessions"], found["scored"], found["pool_recall"]) == (12, 12, 1.0)
    json.dumps(found)


def test_a_figure_below_its_line_is_a_miss() -> None:
    low = Outcome("agent_specstory", [0.8], {BASELINE: [0.3]})
    assert [miss.split(" is ")[0] for miss in missed_bars(low)] == [
        "agent_specstory: NDCG@10 of the baseline 0.300",
        "agent_specstory: pool recall 0.800",
    ]
    assert missed_bars(Outcome("agent_specstory", [0.95], {BASELINE: [0.5]})) == []


def test_what_a_session_made_itself_is_no_target_of_it() -> None:
    new = StreamMemory("new", None, DAWN + 5 * HOUR, None, (Version(DAWN + 5 * HOUR, "made"),))
    gone = a_memory("gone", "was", until=DAWN + 4 * HOUR)
    going = a_memory("going", "is", until=DAWN + 5 * HOUR)
    session = a_session(5, "work", {"new": 2.0, "gone": 2.0, "going": 1.0})
    later = a_session(6, "work", {"new": 2.0})
    stream = guarded(Stream("made", (new, gone, going), (later, session)))
    assert [dict(one.gains) for one in stream.sessions] == [{"going": 1.0}, {"new": 2.0}]


def test_a_text_is_shown_only_after_the_moment_it_was_written() -> None:
    memory = a_memory("one", "first", "second")
    assert memory.text_before(DAWN) is None
    assert memory.text_before(DAWN + HOUR) == "first"
    assert memory.text_before(DAWN + 10 * HOUR) == "first"
    assert memory.text_before(DAWN + 11 * HOUR) == "second"


def test_the_store_follows_the_stream(tmp_path: Path) -> None:
    stays = a_memory("stays", "the door is red", "the door is green")
    goes = a_memory("goes", "the gate is open", until=DAWN + 3 * HOUR)
    clock = Clock(DAWN + HOUR)
    with Memory(tmp_path / "one.db", clock=clock) as memory:
        keeper = Keeper(memory, Stream("s", (stays, goes), ()))
        contents = []
        for hours in (1, 4, 12):
            clock.at = DAWN + hours * HOUR
            keeper.catch_up(clock.at)
            contents.append({one.content for one in memory.page()})
        kept = memory.get(keeper.ids["stays"])
    assert contents == [
        {"the door is red", "the gate is open"},
        {"the door is red"},
        {"the door is green"},
    ]
    assert kept.created_at == DAWN


def write_stream(root: Path, *, honest: bool = True) -> None:
    folder = root / "streams" / "tiny"
    folder.mkdir(parents=True)
    base = int(DAWN.timestamp())
    memory = {"mid": "a", "project": "docs", "created": base, "deleted": None}
    files = {
        "memories.jsonl": {**memory, "texts": [[base, "a\0b"], [base + 50, "made later"]]},
        "sessions.jsonl": {"sid": "s", "ts": base + 50, "project": "p", "query": "q", "rel": ["a"]},
    }
    sums = []
    for name, row in files.items():
        body = (json.dumps(row) + "\n").encode()
        (folder / name).write_bytes(body)
        sums.append(f"{hashlib.sha256(body if honest else b'').hexdigest()}  {name}\n")
    (folder / "SHA256SUMS").write_text("".join(sums))


def test_a_stream_is_read_with_its_project_and_its_gains(tmp_path: Path) -> None:
    write_stream(tmp_path)
    stream = load("tiny", tmp_path)
    assert [memory.project for memory in stream.memories] == ["p"]
    assert stream.memories[0].text_before(stream.sessions[0].at) == "ab"
    assert dict(stream.sessions[0].gains) == {"a": 2.0}


def test_wrong_and_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingData):
        load("tiny", tmp_path)
    write_stream(tmp_path, honest=False)
    with pytest.raises(WrongData):
        load("tiny", tmp_path)


def test_no_target_of_the_real_streams_is_lost_or_leaked() -> None:
    try:
        streams = [load(name) for name in STREAMS[:2]]
    except MissingData as missing:
        pytest.skip(str(missing))
    assert [len(stream.sessions) for stream in streams] == [117, 39]
    assert [sum(len(one.gains) for one in stream.sessions) for stream in streams] == [1103, 229]
