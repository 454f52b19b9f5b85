"""Play the recorded week through the session API, then more sessions until the model is active."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

from meritory.api.memory import Memory
from meritory.domain.memory import MemoryRecord
from meritory.domain.session import SessionMemory, SessionScore
from meritory.domain.world import SeededWorld
from meritory.settings import Settings

BEGIN = datetime(2026, 6, 7, 9, 0, tzinfo=UTC)
# Random ids break ties, so a fixed seed shows the same demo everywhere.
SEED = 7


@dataclass(frozen=True, slots=True)
class Played:
    """One session of the week, with the memories shown and their ratings."""

    key: str
    at: datetime
    prompt: str
    inject: str
    candidate_count: int
    results: tuple[tuple[MemoryRecord, SessionMemory], ...]
    score: SessionScore | None
    status_line: str
    stored: tuple[str, ...]
    forgotten: tuple[str, ...]


def read_recording(name: str = "week.json") -> dict[str, Any]:
    """Read a recording of this package."""
    recording: dict[str, Any] = json.loads(files("meritory.demo").joinpath(name).read_text("utf-8"))
    return recording


class Week:
    """Plays the recorded week into a temporary store."""

    def __init__(self, file: Path, settings: Settings) -> None:
        self._week = read_recording()
        self.title = str(self._week["title"])
        # The time in the recording.
        self.now = BEGIN
        self.ids: dict[str, str] = {}
        self._waiting = list(self._week["memories"])
        self.memory = Memory(
            file,
            project=self._week["project"],
            clock=SeededWorld(SEED, lambda: self.now),
            settings=settings,
            actor="demo",
            background=False,
        )

    def play(self) -> Iterator[Played]:
        """Play one session after the other."""
        yield from map(self._session, self._week["sessions"])

    def _session(self, script: Mapping[str, Any]) -> Played:
        stored = []
        for item in self._waiting:
            if item["day"] < script["day"]:
                self.now = moment_of(item["day"])
                stored.append(self._store(item))
        self._waiting = [item for item in self._waiting if item["day"] >= script["day"]]
        self.now = moment_of(script["day"])
        asked = [turn["text"] for turn in script["turns"] if turn["role"] == "user"]
        session = self.memory.session(script["key"], context=asked[0])
        status = session.status_line
        served = None
        for text in asked:
            served = session.prompt(text)
        code = (served.injection if served else None) or session.injection
        # The agent rates the memories at the end of its last reply.
        handles = {memory.id: memory.handle for memory in session.memories}
        rated = " ".join(
            f"{handles[self.ids[name]]}={score}"
            for name, score in script["ratings"].items()
            if self.ids.get(name) in handles
        )
        session.reply("Done.\n" + (f"<!--mf {code} {rated}-->" if code and rated else ""))
        session.end(transcript=script["turns"])
        self.memory.drain()
        self.now += timedelta(hours=1)
        forgotten = []
        for name in script.get("forget", ()):
            record = self.memory.get(self.ids[name])
            self.memory.forget(record.id, why="it was wrong, the user said so")
            forgotten.append(record.content)
        stored += [self._store(item) for item in script.get("remember", ())]
        self.memory.drain()
        store, user = self.memory.services.store, self.memory.scope.user
        records = store.session_memories(user, session.key)
        shown = [one for one in records if one.candidate.was_injected]
        shown.sort(key=lambda one: -(one.label if one.label is not None else -2.0))
        return Played(
            key=session.key,
            at=store.session(user, session.key).started_at,
            prompt=asked[0],
            inject=session.inject,
            candidate_count=len(session.ranking),
            results=tuple((self.memory.get(one.memory_id), one) for one in shown),
            score=store.session_score(user, session.key),
            status_line=status,
            stored=tuple(stored),
            forgotten=tuple(forgotten),
        )

    def _store(self, item: Mapping[str, Any]) -> str:
        fields = {key: value for key, value in item.items() if key not in ("name", "day")}
        record = self.memory.remember(**fields)
        self.ids[item["name"]] = record.id
        return record.content


def moment_of(day: float) -> datetime:
    """Return the time of a day of the recording."""
    return BEGIN + timedelta(days=day)


# It stops after this many sessions in all, or this many with an active predictor.
SESSIONS_MAX = 60
ACTIVE_SESSIONS = 6


@dataclass(frozen=True, slots=True)
class Step:
    """One session: its status line, and the effect on the predictor."""

    number: int
    key: str
    at: datetime
    prompt: str
    status_line: str
    # The baseline's weight in this session and in the next.
    alpha: float
    next_alpha: float
    # Why the two differ; empty when they do not.
    why: str
    # The results of the trainings that ended with it.
    trained: tuple[str, ...]


class Later:
    """Plays more sessions in the store of a finished week, on the same topics."""

    def __init__(self, week: Week) -> None:
        self._script = read_recording("later.json")
        self.title = str(self._script["title"])
        self._week = week
        self._memory = week.memory
        self._chance = random.Random(11)  # noqa: S311 - the same every time, on purpose
        self._runs_seen = 0
        self._ids: dict[str, list[str]] = {}
        self.active_in: list[str] = []

    def play(self) -> Iterator[Step]:
        """Play sessions until the predictor was active in some, at most `SESSIONS_MAX`."""
        self._week.now = moment_of(self._script["begin_day"])
        for topic in self._script["topics"]:
            self._ids[topic["name"]] = [
                self._memory.remember(text, on_similar="keep").id
                for text in (*topic["helps"], *topic["others"])
            ]
        self._week.now += timedelta(days=2)
        # Skip the trainings of the week.
        self._trained()
        for number in range(1, SESSIONS_MAX + 1):
            step = self._step(number)
            if step.alpha < 1.0:
                self.active_in.append(step.key)
            yield step
            if len(self.active_in) >= ACTIVE_SESSIONS:
                return

    def most_lifted(self) -> tuple[str, str] | None:
        """Return a session and the helpful memory that the predictor moved up most."""
        store, user = self._memory.services.store, self._memory.scope.user
        found = [
            ((one.candidate.baseline_rank or 0) - one.candidate.rank, key, one.memory_id)
            for key in self.active_in
            for one in store.session_memories(user, key)
            if (one.label or 0.0) > 0.0 and one.candidate.was_injected
        ]
        return max(found)[1:] if found else None

    def _step(self, number: int) -> Step:
        topic = self._chance.choice(self._script["topics"])
        prompt = self._chance.choice(topic["asks"]).format(*topic["marks"])
        before, at = self._memory.predictor_status(), self._week.now
        session = self._memory.session(f"ticket-{number:02d}", context=prompt)
        status_line = session.status_line
        session.end(used=dict.fromkeys(self._ids[topic["name"]][: len(topic["helps"])], 1.0))
        # Train here and now; a program would leave it to the background.
        self._memory.drain()
        self._week.now += timedelta(hours=7)
        after = self._memory.predictor_status()
        return Step(
            number=number,
            key=session.key,
            at=at,
            prompt=prompt,
            status_line=status_line,
            alpha=before["alpha"],
            next_alpha=after["alpha"],
            why=_why(before, after),
            trained=self._trained(),
        )

    def _trained(self) -> tuple[str, ...]:
        runs = self._memory.services.store.training_runs(self._memory.scope.user, SESSIONS_MAX)
        fresh = runs[: len(runs) - self._runs_seen][::-1]
        self._runs_seen = len(runs)
        results = []
        for run in fresh:
            failed = ", ".join(str(gate["name"]) for gate in run.gates if not gate["passed"])
            result = "serves now" if run.is_accepted else f"refused: {failed or 'it failed'}"
            results.append(f"model v{run.model_version} {result}")
        return tuple(results)


def _why(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return why the baseline's weight changed between two statuses."""
    if before["alpha"] == after["alpha"]:
        return ""
    if after["alpha"] == 1.0:
        return "the baseline has most of the trust again"
    best = max(after["weighings"], key=lambda one: one["trust"])
    trust = sum(one["trust"] for one in after["weighings"])
    why = (
        f"the predictor has {trust:.0%} of the trust; its best weight gains"
        f" {best['ndcg_margin']:+.3f} NDCG@10 over {best['session_count']} sessions"
    )
    return f"cold start is over: {why}" if before["is_cold"] and not after["is_cold"] else why
