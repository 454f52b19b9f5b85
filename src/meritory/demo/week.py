"""Plays the recorded week through the session API, on recorded time, and tells what happened."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

from meritory.api.memory import Memory
from meritory.api.session import Session
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
