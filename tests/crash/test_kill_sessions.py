"""kill -9 in the middle of sessions: each is whole or absent, and every lesson is learned once.

A child starts, prompts, rates and ends sessions from two threads while a third learns from them,
and acknowledges each step on a pipe as soon as the call returns. MERITORY_TEST_SESSION_KILLS sets
the number of kills.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from meritory.api.memory import Memory
from meritory.domain.predictor import ComparisonQuery
from meritory.engine.predictor.state import decoded
from meritory.store.sqlite.store import SqliteStore

JOB = "finish-session"
KILLS = int(os.environ.get("MERITORY_TEST_SESSION_KILLS", "40"))
CONTROL_KILLS = 8
TOPICS = ("kiln", "loom", "sled", "quern", "anvil", "churn", "gauge", "lathe")
NOTES = [
    f"The {topic} stands beside the {topic}house, {n} paces on" for topic in TOPICS for n in (3, 4)
]


def talk(topic: str) -> list[dict[str, str]]:
    """Long enough to be judged, and about something that was shown."""
    return [
        {"role": role, "text": f"{role} on the {topic}: it is beside the {topic}house, 3 paces on"}
        for _ in range(5)
        for role in ("user", "assistant")
    ]


def hold_sessions(path: Path, run: int, acknowledge: int, *, hasty: bool) -> None:
    """Holds sessions until killed; a hasty one acknowledges ratings it has yet to give."""
    # Nobody must wait for the leases of those who were killed before.
    memory = Memory(path, clock=lambda: datetime.now(UTC) + timedelta(hours=run))

    def tell(*words: object) -> None:
        os.write(acknowledge, (" ".join(map(str, words)) + "\n").encode())

    def work(thread: str) -> None:
        for number in range(10_000):
            topic = TOPICS[number % len(TOPICS)]
            key = f"{thread}r{run}n{number}"
            context = f"where is the {topic}?" if number % 3 else None
            session = memory.session(key, context=context)
            tell("start", key)
            session.prompt(f"and the {topic} of the {topic}house")
            if hasty:
                tell("rate", key, session.memories[0].id)
                # Killed before it gives them, however late the one who kills it comes.
                time.sleep(60)
            session.rate({"m1": 0.5, "m2": -0.25})
            if not hasty:
                tell("rate", key, session.memories[0].id)
            session.prompt(f"once more: the {topic} of the {topic}house")
            tell("prompt", key)
            session.end(talk(topic), used=None if number % 4 else {"m1": 1.0})
            tell("end", key)

    other = threading.Thread(target=work, args=("b",), daemon=True)
    other.start()
    work("a")


def run_and_kill(path: Path, run: int, chance: random.Random, *, hasty: bool) -> set[str]:
    """Holds sessions, kills at some moment and returns what was acknowledged by then."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            hold_sessions(path, run, writing, hasty=hasty)
        finally:
            os._exit(1)
    os.close(writing)
    with open(reading, "rb") as pipe:
        first = b""
        if hasty:
            while b"rate" not in first:
                first += pipe.readline()
        else:
            for _ in range(chance.randint(0, 12)):
                first += pipe.readline()
            time.sleep(chance.random() * 0.02)
        os.kill(child, signal.SIGKILL)
        told = first + pipe.read()
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL, "it died by itself"
    # A kill in the middle of an acknowledgement is not one: the line has no end.
    return {line.decode() for line in told.split(b"\n")[:-1]}


@contextmanager
def opened(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(path)
    yield store
    store.close()


def examine(store: SqliteStore, key: str, jobs: Counter[str]) -> None:
    """A session's record agrees with itself in every number."""
    record = store.session("default", key)
    rows = store.session_memories("default", key)
    logged = store.events("default", session_key=key)
    events = Counter(one.name for one in logged)
    # A session that began without a context is ranked again by its first prompt.
    rankings = [one.details for one in logged if one.name == "predictor.prefilter"]
    assert len(rankings) == 1 + sum(bool(one.details.get("reranked")) for one in logged)
    assert all(len(rows) >= one["candidates"] > 0 for one in rankings)
    assert sorted(one.candidate.rank for one in rows if one.candidate.rank) == list(
        range(1, sum(one.candidate.rank > 0 for one in rows) + 1)
    )
    shown = store.shown("default", key)
    assert [one.handle for one in shown] == [f"m{n}" for n in range(1, len(shown) + 1)]
    assert record.handle_count == len(shown)
    assert {one.memory_id for one in shown} == {
        one.memory_id for one in rows if one.candidate.was_injected
    }
    injections = store.injections("default", key)
    assert [one.number for one in injections] == list(range(1, record.injection_count + 1))
    assert {one.injection for one in shown} <= {one.number for one in injections}
    assert record.prompt_count <= 2
    assert sum(one.kind == "prompt" for one in injections) == record.prompt_count
    assert events["session.start"] == 1
    ratings = store.ratings("default", key)
    assert events["feedback.rated"] == len(ratings) in (0, 2)
    rated = {one.memory_id for one in rows if one.agent_relevance_score is not None}
    assert rated == {one.memory_id for one in ratings}
    is_over = record.state != "open"
    assert events["session.end"] == is_over
    assert (record.ended_at is not None) == is_over
    assert bool(store.transcript("default", key)) == is_over
    assert bool(store.digest("default", key)) == is_over
    assert jobs[key] == is_over
    is_labelled = any(one.label is not None for one in rows)
    assert is_labelled == (record.state == "finished") == events["session.learned"]


def losses(path: Path, told: set[str]) -> list[str]:
    """What was acknowledged and is not there."""
    with opened(path) as store:
        sessions = {one.key: one for one in store.sessions("default", 100_000)}
        jobs = Counter(job.key for job in store.jobs(None, None, 100_000))
        for key in sessions:
            examine(store, key, jobs)
        lost = []
        for line in told:
            step, key, *rest = line.split()
            found = sessions.get(key)
            is_there = (
                found is not None
                and {
                    "start": True,
                    "rate": bool(rest)
                    and rest[0] in {one.memory_id for one in store.ratings("default", key)},
                    "prompt": found.prompt_count == 2,
                    "end": found.state != "open",
                }[step]
            )
            if not is_there:
                lost.append(line)
        assert store.check(deep=True) == []
        return lost


def learn(path: Path) -> None:
    """What is left to learn is learned in peace."""
    later = datetime.now(UTC) + timedelta(hours=KILLS + CONTROL_KILLS + 2)
    with Memory(path, clock=lambda: later, background=False) as memory:
        store = memory.services.store
        for job in store.jobs(None, "parked", 100_000):
            assert "died" in str(job.error)
            store.write(
                job.user, lambda t, job=job: t.resume_job(job.user, job.kind, job.key, later)
            )
        while memory.drain():
            pass


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with some memories; settings of nobody, and no embedder: this is about records."""
    monkeypatch.setenv("MERITORY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MERITORY_EMBEDDER_KIND", "none")
    file = tmp_path / "meritory.db"
    with Memory(file) as memory:
        memory.remember_many({"content": text, "on_similar": "keep"} for text in NOTES)
    return file


def test_a_kill_leaves_sessions_whole_and_lessons_learned_once(path: Path) -> None:
    chance = random.Random(17)
    told: set[str] = set()
    for run in range(KILLS):
        told |= run_and_kill(path, run, chance, hasty=False)
        if run % 15 == 14:
            assert losses(path, told) == []
    assert losses(path, told) == []
    steps = Counter(line.split()[0] for line in told)
    assert min(steps[step] for step in ("start", "rate", "prompt", "end")) > 0
    learn(path)
    assert losses(path, told) == []
    with opened(path) as store:
        sessions = store.sessions("default", 100_000)
        over = {one.key for one in sessions if one.state != "open"}
        assert {one.key for one in sessions if one.state == "finished"} == over
        done = [job for job in store.jobs(None, "done", 100_000) if job.kind == JOB]
        assert {job.key for job in done} == over
        # What was compared counted once, whoever died over it.
        compared = store.comparisons("default", ComparisonQuery(limit=100_000))
        assert len({one.session_key for one in compared}) == len(compared) > 0
        state = decoded(store.predictor_state("default"))
        assert state.standing.judged == sum(one.ema_updated for one in compared)
        # Each helped at most once in each session, and only sessions that are over taught.
        past, _ = store.past(sessions[0].scope, None)
        assert len(past.times_days) == len(over)
        uses = list(zip(past.use_session.tolist(), past.use_memory.tolist(), strict=True))
        assert len(uses) == len(set(uses)) > 0
        counted = store.counters("default")["feedback.taken"]
        assert counted == store.session_totals("default")["ratings"]
        shown = Counter(
            one.memory_id for session in sessions for one in store.shown("default", session.key)
        )
        assert shown == {one.id: one.access_count for one in store.walk("default") if shown[one.id]}


def test_a_rating_that_is_acknowledged_too_early_is_missed(path: Path) -> None:
    """The control: if nothing is missed here, the test above proves nothing."""
    chance = random.Random(19)
    told: set[str] = set()
    for run in range(CONTROL_KILLS):
        told |= run_and_kill(path, run, chance, hasty=True)
    lost = losses(path, told)
    assert lost
    assert {line.split()[0] for line in lost} == {"rate"}
