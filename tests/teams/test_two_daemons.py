"""Two daemons on one database, 20 sessions at each, one killed in the middle: nothing is lost and
nothing is done twice.

Whoever had no answer asks the other daemon for the same again, under the same session key.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from team_audit import LEARN, Audit, Diary, planted
from team_kit import WAIT_S, Team, environment, wait_for

from meritory.api.client import Daemon, DaemonDown
from meritory.api.memory import Memory
from meritory.domain.errors import Busy, PortTimeout
from meritory.engine.jobs.runner import LEASE_LENGTH
from meritory.settings import load_settings
from postgres_kit import Server

AT_EACH = 20
USERS = ("ann", "bob", "carl")
TOPICS = ("billing", "search", "login", "export", "mail", "queue", "cache", "backup")
# Answers of the first daemon after which it is killed: all sessions are open by then.
ANSWERS_BEFORE_KILL = AT_EACH * 4


@dataclass
class Stage:
    """Two daemons, what their clients were told, and when one of them goes."""

    first: Daemon
    second: Daemon
    diary: Diary = field(default_factory=Diary)
    # Nobody goes on before all sessions are open.
    all_open: threading.Barrier = field(
        default_factory=lambda: threading.Barrier(2 * AT_EACH, timeout=WAIT_S)
    )
    answered: int = 0
    moved: set[str] = field(default_factory=set)
    unanswered: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self) -> None:
        """Notes an answer of the first daemon; at the right one it is killed."""
        with self._lock:
            self.answered += 1
            if self.answered == ANSWERS_BEFORE_KILL:
                os.kill(self.first.pid, signal.SIGKILL)


class Client:
    """An agent at work: it asks its own daemon as long as that is there."""

    def __init__(self, stage: Stage, number: int) -> None:
        self._stage, self._number = stage, number
        self._at_first = number < AT_EACH
        self.key = f"session-{number}"
        self.user = USERS[number % len(USERS)]

    def ask(self, path: str, body: dict[str, Any]) -> Any:
        """Asks until somebody answers."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            daemon = self._stage.first if self._at_first else self._stage.second
            try:
                answer = daemon.request("POST", path, {"user": self.user, **body})
            except Busy:
                time.sleep(0.05)
                continue
            except (DaemonDown, PortTimeout):
                assert self._at_first, "the daemon that nobody killed is gone"
                self._at_first = False
                self._stage.unanswered.append(path)
                self._stage.moved.add(self.key)
                continue
            if self._at_first:
                self._stage.count()
            return answer
        raise AssertionError(f"nobody answers {path}")

    def hook(self, name: str, **body: Any) -> Any:
        return self.ask(f"/api/hooks/{name}", {"session_key": self.key, **body})

    def store(self, text: str) -> None:
        # Told twice it is one memory; with `keep` both would be wanted.
        made = self.ask("/api/memories", {"content": text})
        self._stage.diary.stored[(self.user, text)] = made["id"]

    def live(self) -> None:
        """One session from its beginning to its end."""
        diary, own = self._stage.diary, (self.user, self.key)
        topic = TOPICS[self._number % len(TOPICS)]
        begun = self.hook("session-start", context=f"the {topic} service is slow")
        diary.begun.add(own)
        self._stage.all_open.wait()
        self.store(f"Ticket {self._number * 37} is about the {topic} service, zone {self._number}")
        self.hook("user-prompt-submit", prompt=f"what about the {topic} service and its port?")
        diary.prompts[own] += 1
        shown = begun["memories"][0]["id"]
        self.ask("/api/feedback", {"session_key": self.key, "ratings": {shown: 0.75}})
        diary.rated.add((*own, shown))
        self.store(f"Release {self._number * 91} of {topic} went out in week {self._number}")
        self.hook("user-prompt-submit", prompt=f"and who runs {topic} at night?")
        diary.prompts[own] += 1
        said = [
            {"role": "user", "text": f"Always run `make check-{self._number}` before a commit."},
            {"role": "assistant", "text": f"Done, the {topic} service is fast again."},
        ] * 2
        self.hook("session-end", transcript=said, used={shown: 1.0})
        diary.ended[own] = self._number
        # Not by `+=`, which two threads could do at once.
        with self._stage._lock:
            diary.turns[self.user] += 2


def noted(stage: Stage) -> None:
    """What every user knows beforehand."""
    for user in USERS:
        for n, topic in enumerate(TOPICS):
            text = f"The {topic} service listens on port {4000 + n}; team {n} runs it"
            made = stage.second.request(
                "POST", "/api/memories", {"content": text, "user": user, "on_similar": "keep"}
            )
            stage.diary.stored[(user, text)] = made["id"]


def unfinished(connection: psycopg.Connection[Any]) -> list[tuple[str, str | None]]:
    """Jobs that are not done yet, each with who has it."""
    return connection.execute(
        "SELECT key, lease FROM meritory.jobs WHERE state <> 'done'"
    ).fetchall()


def finish(team: Team, connection: psycopg.Connection[Any]) -> list[int]:
    """Lets the survivor do all it can, and then somebody what the dead one had begun."""
    # What was held when the first one died is held on until its lease is over.
    held = {lease for _, lease in unfinished(connection) if lease}
    wait_for(
        lambda: all(lease in held for _, lease in unfinished(connection)),
        "the survivor does not do what is there",
    )
    codes = team.end()
    settings = load_settings(
        team.folder / "later", environment(team.folder / "later", team.address)
    )
    later = datetime.now(UTC) + 2 * LEASE_LENGTH
    with Memory(settings=settings, clock=lambda: later, background=False) as memory:
        memory.drain()
    return codes


@pytest.fixture(scope="module")
def outcome(
    postgres: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Stage, psycopg.Connection[Any], list[int]]]:
    """Everything as it was left in the end."""
    address = postgres.fresh()
    team = Team(tmp_path_factory.mktemp("two"), address)
    quick = {"MERITORY_DAEMON_RATE_LIMIT_PER_S": "0"}
    try:
        children = [(name, team.begin(name, **quick)) for name in ("first", "second")]
        stage = Stage(*(team.reached(*one) for one in children))
        noted(stage)
        clients = [Client(stage, number) for number in range(2 * AT_EACH)]
        with ThreadPoolExecutor(len(clients)) as pool:
            for done in [pool.submit(client.live) for client in clients]:
                done.result()
        with psycopg.connect(address, autocommit=True) as connection:
            codes = finish(team, connection)
            yield stage, connection, codes
    finally:
        team.end(signal.SIGKILL)
        postgres.give_back(address)


Outcome = tuple[Stage, psycopg.Connection[Any], list[int]]


def test_the_one_was_killed_in_the_middle_of_it_and_the_other_ended_well(outcome: Outcome) -> None:
    stage, _, codes = outcome
    assert codes == [-signal.SIGKILL, 0]
    assert len(stage.diary.begun) == len(stage.diary.ended) == 2 * AT_EACH
    # Sessions that had begun at the first one were brought to their end at the other.
    assert len(stage.moved) >= AT_EACH // 2
    assert stage.unanswered


def test_no_session_is_lost_and_nothing_is_done_twice(outcome: Outcome) -> None:
    stage, connection, _ = outcome
    assert Audit(connection, stage.diary).faults() == []


ONE = """(SELECT min(session) FROM meritory.sessions WHERE "user" = 'ann')"""
PLANTED = {
    "lost session": [f"DELETE FROM meritory.sessions WHERE session = {ONE}"],
    "is open": [f"UPDATE meritory.sessions SET state = 'open' WHERE session = {ONE}"],
    "lost prompt": [f"UPDATE meritory.sessions SET prompt_count = 1 WHERE session = {ONE}"],
    "session.learned of ann": [
        """INSERT INTO meritory.events SELECT event + 1000000, "user", at, category, name,
            session_key, memory_id, request_id, details FROM meritory.events
            WHERE "user" = 'ann' AND name = 'session.learned' LIMIT 1"""
    ],
    "has 0 scores": [f"DELETE FROM meritory.session_scores WHERE session = {ONE}"],
    "0 comparisons": [f"DELETE FROM meritory.predictor_comparisons WHERE session = {ONE}"],
    "has labels for": [
        f"UPDATE meritory.session_memories SET label_parts = NULL WHERE session = {ONE}"
    ],
    "is not done": [
        f"UPDATE meritory.jobs SET state = 'queued' WHERE kind = '{LEARN}' AND key = 'session-3'"
    ],
    "0 jobs extract": ["DELETE FROM meritory.jobs WHERE kind = 'extract' AND key = 'session-3'"],
    "lost rating": [f"DELETE FROM meritory.rating_events WHERE session = {ONE}"],
    "ratings and what was told": [f"DELETE FROM meritory.rating_events WHERE session = {ONE}"],
    "lost memory": ["DELETE FROM meritory.memories WHERE content LIKE 'Ticket 0 %'"],
    "is there 2 times": [
        "CREATE TEMP TABLE twin AS SELECT * FROM meritory.memories WHERE content LIKE 'Ticket 0 %'",
        "UPDATE twin SET row = row + 1000000, id = id || 'x'",
        "INSERT INTO meritory.memories SELECT * FROM twin",
    ],
    "times and counted": [
        """UPDATE meritory.memory_stats SET access_count = access_count + 1
            WHERE "user" = 'ann' AND row = 1"""
    ],
    "said": ["UPDATE meritory.counters SET value = value + 1 WHERE name = 'turns.user'"],
    "ratings, counted": [
        "UPDATE meritory.counters SET value = value + 1 WHERE name = 'feedback.taken'"
    ],
    "memories, counted": [
        "UPDATE meritory.counters SET value = value + 1 WHERE name = 'write.stored'"
    ],
    "judged": [
        """UPDATE meritory.predictor_state SET state = jsonb_set(state::jsonb, '{standing,judged}',
            to_jsonb((state::jsonb #>> '{standing,judged}')::int + 1))::text"""
    ],
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_fault_that_was_planted_is_found(outcome: Outcome, fault: str) -> None:
    stage, connection, _ = outcome
    found = planted(connection, PLANTED[fault], stage.diary)
    assert any(fault in one for one in found), found
