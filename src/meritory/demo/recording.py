"""Play the recorded week through the session API, then more sessions until the model is active."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

from meritory.api.memory import Memory, Session
from meritory.domain.memory import MemoryRecord
from meritory.domain.session import SessionMemory, SessionScore
from meritory.domain.world import SeededWorld
from meritory.settings import Settings

WEEK_FILE = "week.json"
BEGIN = datetime(2026, 6, 7, 9, 0, tzinfo=UTC)
# Ids that are drawn break ties: with the same ones everybody sees the same demo.
SEED = 7


@dataclass(frozen=True, slots=True)
class Played:
    """One session of the week, with what was shown and what came of it."""

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


def recorded() -> dict[str, Any]:
    """The week as it was recorded."""
    text = files("meritory.demo").joinpath(WEEK_FILE).read_text("utf-8")
    week: dict[str, Any] = json.loads(text)
    return week


class Week:
    """A throw-away store into which the week is played."""

    def __init__(self, file: Path, settings: Settings) -> None:
        self._week = recorded()
        self._now = BEGIN
        self.ids: dict[str, str] = {}
        self._waiting = list(self._week["memories"])
        self.memory = Memory(
            file,
            project=self._week["project"],
            clock=SeededWorld(SEED, lambda: self._now),
            settings=settings,
            actor="demo",
            background=False,
        )

    @property
    def title(self) -> str:
        """What the week is about."""
        return str(self._week["title"])

    @property
    def now(self) -> datetime:
        """What time it is in the recording."""
        return self._now

    def go_to(self, moment: datetime) -> None:
        """Lets it be later."""
        self._now = moment

    def go_on(self, span: timedelta) -> None:
        """Lets some time pass."""
        self._now += span

    def play(self) -> Iterator[Played]:
        """Plays one session after the other."""
        for session in self._week["sessions"]:
            yield self._session(session)

    def close(self) -> None:
        """Lets go of the store."""
        self.memory.close()

    def _session(self, script: Mapping[str, Any]) -> Played:
        stored = self._store_until(script["day"])
        self._now = moment_of(script["day"])
        asked = [turn["text"] for turn in script["turns"] if turn["role"] == "user"]
        session = self.memory.session(script["key"], context=asked[0])
        status = session.status_line
        served = None
        for text in asked:
            served = session.prompt(text)
        code = (served.injection if served else None) or session.injection
        # The agent rates what it was shown at the end of its last reply.
        session.reply(f"Done.\n{self._trailer(session, code, script['ratings'])}")
        session.end(transcript=script["turns"])
        self.memory.drain()
        self._now += timedelta(hours=1)
        forgotten = [self._forget(name) for name in script.get("forget", ())]
        stored += [self._store(item) for item in script.get("remember", ())]
        self.memory.drain()
        return self._played(session, asked[0], status, (tuple(stored), tuple(forgotten)))

    def _played(
        self,
        session: Session,
        prompt: str,
        status: str,
        changed: tuple[tuple[str, ...], tuple[str, ...]],
    ) -> Played:
        store, user = self.memory.services.store, self.memory.scope.user
        records = store.session_memories(user, session.key)
        shown = [one for one in records if one.candidate.was_injected]
        shown.sort(key=lambda one: -(one.label if one.label is not None else -2.0))
        return Played(
            key=session.key,
            at=store.session(user, session.key).started_at,
            prompt=prompt,
            inject=session.inject,
            candidate_count=len(session.ranking),
            results=tuple((self.memory.get(one.memory_id), one) for one in shown),
            score=store.session_score(user, session.key),
            status_line=status,
            stored=changed[0],
            forgotten=changed[1],
        )

    def _store_until(self, day: float) -> list[str]:
        due = [item for item in self._waiting if item["day"] < day]
        self._waiting = [item for item in self._waiting if item["day"] >= day]
        stored = []
        for item in due:
            self._now = moment_of(item["day"])
            stored.append(self._store(item))
        return stored

    def _store(self, item: Mapping[str, Any]) -> str:
        fields = {key: value for key, value in item.items() if key not in ("name", "day")}
        record = self.memory.remember(**fields)
        self.ids[item["name"]] = record.id
        return record.content

    def _forget(self, name: str) -> str:
        record = self.memory.get(self.ids[name])
        self.memory.forget(record.id, why="it was wrong, the user said so")
        return record.content

    def _trailer(self, session: Session, code: str | None, ratings: Mapping[str, float]) -> str:
        handles = {one.id: one.handle for one in session.memories}
        rated = " ".join(
            f"{handles[self.ids[name]]}={score}"
            for name, score in ratings.items()
            if self.ids.get(name) in handles
        )
        return f"<!--mf {code} {rated}-->" if code and rated else ""


def moment_of(day: float) -> datetime:
    """A day of the recording as a moment."""
    return BEGIN + timedelta(days=day)


LATER_FILE = "later.json"
# It stops after so many sessions that the predictor took part in, or when there were so many.
SESSIONS_MAX = 60
HEARD_SESSIONS = 6
_HOURS_APART = 7
_SEED = 11


@dataclass(frozen=True, slots=True)
class Step:
    """One session: what the agent was told at its start, and what came of it."""

    number: int
    key: str
    at: datetime
    prompt: str
    status_line: str
    # The baseline's weight that it was served with, and the one that the next will be.
    alpha: float
    next_alpha: float
    # Why the two differ; empty when they do not.
    why: str
    # What trainings that ended with it came to.
    trained: tuple[str, ...] = ()


class Later:
    """Sessions in the store of a week that is over, drawn from the same topics again and again."""

    def __init__(self, week: Week) -> None:
        text = files("meritory.demo").joinpath(LATER_FILE).read_text("utf-8")
        self._script: dict[str, Any] = json.loads(text)
        self._week = week
        self._memory = week.memory
        self._chance = random.Random(_SEED)  # noqa: S311 - the same every time, on purpose
        self._runs_seen = 0
        self._ids: dict[str, list[str]] = {}
        self.heard_in: list[str] = []

    @property
    def title(self) -> str:
        """What these weeks are about."""
        return str(self._script["title"])

    def play(self) -> Iterator[Step]:
        """Plays sessions until the predictor has been heard for some, at most `SESSIONS_MAX`."""
        self._week.go_to(moment_of(self._script["begin_day"]))
        for topic in self._script["topics"]:
            notes = [*topic["helps"], *topic["others"]]
            self._ids[topic["name"]] = [self._stored(text) for text in notes]
        self._week.go_on(timedelta(days=2))
        # The week had trainings of its own.
        self._trained()
        for number in range(1, SESSIONS_MAX + 1):
            step = self._step(number)
            if step.alpha < 1.0:
                self.heard_in.append(step.key)
            yield step
            if len(self.heard_in) >= HEARD_SESSIONS:
                return

    def most_lifted(self) -> tuple[str, str] | None:
        """A session and a memory that helped in it, which the predictor lifted the most."""
        store, user = self._memory.services.store, self._memory.scope.user
        found = [
            ((one.candidate.baseline_rank or 0) - one.candidate.rank, key, one.memory_id)
            for key in self.heard_in
            for one in store.session_memories(user, key)
            if (one.label or 0.0) > 0.0 and one.candidate.was_injected
        ]
        return max(found)[1:] if found else None

    def _stored(self, text: str) -> str:
        return self._memory.remember(text, on_similar="keep").id

    def _step(self, number: int) -> Step:
        topic = self._chance.choice(self._script["topics"])
        prompt = self._chance.choice(topic["asks"]).format(*topic["marks"])
        before = self._memory.predictor_status()
        session = self._memory.session(f"ticket-{number:02d}", context=prompt)
        step = Step(
            number=number,
            key=session.key,
            at=self._week.now,
            prompt=prompt,
            status_line=session.status_line,
            alpha=before["alpha"],
            next_alpha=before["alpha"],
            why="",
        )
        session.end(used=dict.fromkeys(self._ids[topic["name"]][: len(topic["helps"])], 1.0))
        # What was ordered is trained here and now; a program would leave it to the background.
        self._memory.drain()
        self._week.go_on(timedelta(hours=_HOURS_APART))
        after = self._memory.predictor_status()
        return replace(
            step, next_alpha=after["alpha"], why=_why(before, after), trained=self._trained()
        )

    def _trained(self) -> tuple[str, ...]:
        runs = self._memory.services.store.training_runs(self._memory.scope.user, SESSIONS_MAX)
        fresh = runs[: len(runs) - self._runs_seen][::-1]
        self._runs_seen = len(runs)
        return tuple(
            f"model v{one.model_version} "
            + ("serves now" if one.is_accepted else f"refused: {_refused(one.gates)}")
            for one in fresh
        )


def _refused(gates: Sequence[Mapping[str, object]]) -> str:
    return ", ".join(str(one["name"]) for one in gates if not one["passed"]) or "it failed"


def _why(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """What moved the baseline's weight, from what the status says before and after."""
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
