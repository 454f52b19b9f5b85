"""The async twin of the front door: the same verbs for programs that must not block."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from meritory.api.memory import Memory
from meritory.api.session import Session
from meritory.domain.feedback import Contested, FeedbackEvent
from meritory.domain.memory import (
    Entity,
    EntityView,
    HistoryEntry,
    MemoryRecord,
    Recalled,
    WriteResult,
)
from meritory.engine.feedback.capture import Captured
from meritory.engine.feedback.summary import Summary
from meritory.engine.sessions.packing import Served, ShownMemory
from meritory.engine.sessions.ratings import RatingsTaken
from meritory.rank.feedback import Pair
from meritory.rank.risk import Risk

T = TypeVar("T")


class AsyncMemory:
    """The same verbs for programs that must not block: each runs on a worker thread."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        self._memory = Memory(*args, **fields)

    async def remember(self, content: str, **fields: Any) -> MemoryRecord:
        """Stores a text."""
        return await _on_thread(self._memory.remember, content, **fields)

    async def remember_many(self, items: Iterable[str | Mapping[str, Any]]) -> list[WriteResult]:
        """Stores many texts at once."""
        return await _on_thread(self._memory.remember_many, items)

    async def recall(
        self, query: str, limit: int | None = None, explain: bool = False
    ) -> list[Recalled]:
        """The memories that answer a query best."""
        return await _on_thread(self._memory.recall, query, limit, explain)

    async def get(self, memory_id: str) -> MemoryRecord:
        """The memory with this id."""
        return await _on_thread(self._memory.get, memory_id)

    async def update(self, memory_id: str, **fields: Any) -> MemoryRecord:
        """Changes fields of a memory."""
        return await _on_thread(self._memory.update, memory_id, **fields)

    async def forget(self, memory_id: str, *, purge: bool = False, why: str = "") -> None:
        """Hides or erases a memory."""
        await _on_thread(self._memory.forget, memory_id, purge=purge, why=why)

    async def undo(self, memory_id: str) -> list[MemoryRecord]:
        """Takes back the last change of a memory."""
        return await _on_thread(self._memory.undo, memory_id)

    async def history(self, memory_id: str) -> list[HistoryEntry]:
        """Every change of a memory."""
        return await _on_thread(self._memory.history, memory_id)

    async def confirm(self, memory_id: str) -> MemoryRecord:
        """A person vouches for a memory."""
        return await _on_thread(self._memory.confirm, memory_id)

    async def split(self, memory_id: str, entry: int | None = None) -> list[MemoryRecord]:
        """Takes a merge apart again."""
        return await _on_thread(self._memory.split, memory_id, entry)

    async def page(self, limit: int = 100, **options: Any) -> list[MemoryRecord]:
        """A page of memories, newest first."""
        return await _on_thread(self._memory.page, limit, **options)

    async def merges(self, limit: int = 100) -> list[HistoryEntry]:
        """The latest merges."""
        return await _on_thread(self._memory.merges, limit)

    async def stats(self) -> dict[str, int]:
        """Counts of everything."""
        return await _on_thread(self._memory.stats)

    async def entities(self, limit: int = 100) -> list[Entity]:
        """What memories are about."""
        return await _on_thread(self._memory.entities, limit)

    async def describe(self, entity: str) -> EntityView:
        """All that is known about an entity."""
        return await _on_thread(self._memory.describe, entity)

    async def related(self, context: str) -> list[str]:
        """Ids of memories about what a context names."""
        return await _on_thread(self._memory.related, context)

    async def required(self, context: str = "") -> list[str]:
        """Ids of memories that must always be shown."""
        return await _on_thread(self._memory.required, context)

    async def session(
        self, key: str, project: str | None = None, context: str | None = None, **told: Any
    ) -> AsyncSession:
        """Begins a session, or goes on with it."""
        begun = await _on_thread(self._memory.session, key, project, context, **told)
        return AsyncSession(begun)

    async def predictor_status(self) -> dict[str, Any]:
        """Everything about this user's predictor."""
        return await _on_thread(self._memory.predictor_status)

    async def why(self, memory_id: str, session_key: str) -> dict[str, Any]:
        """Every number that put a memory into a session, or kept it out."""
        return await _on_thread(self._memory.why, memory_id, session_key)

    async def capture_feedback(self, signal: str, context: str = "", **fields: Any) -> Captured:
        """Keeps a thumbs up or down."""
        return await _on_thread(self._memory.capture_feedback, signal, context, **fields)

    feedback = capture_feedback

    async def complete_feedback(
        self, event_id: str, signal: str | None = None, **fields: Any
    ) -> Captured:
        """Adds to a report what it lacked."""
        return await _on_thread(self._memory.complete_feedback, event_id, signal, **fields)

    async def feedback_events(self, limit: int = 50, **wanted: Any) -> list[FeedbackEvent]:
        """A page of reports, latest first."""
        return await _on_thread(self._memory.feedback_events, limit, **wanted)

    async def feedback_event(self, event_id: str) -> FeedbackEvent:
        """One report."""
        return await _on_thread(self._memory.feedback_event, event_id)

    async def feedback_summary(self) -> Summary:
        """All reports in numbers."""
        return await _on_thread(self._memory.feedback_summary)

    async def feedback_risk(self, days: int | None = None) -> list[Risk]:
        """What fails more often than the rest."""
        return await _on_thread(self._memory.feedback_risk, days)

    async def feedback_pairs(self) -> list[Pair]:
        """Pairs for preference training."""
        return await _on_thread(self._memory.feedback_pairs)

    async def contested(self) -> list[Contested]:
        """Memories for a person to review."""
        return await _on_thread(self._memory.contested)

    async def drain(self) -> int:
        """Runs every job that is due now."""
        return await _on_thread(self._memory.drain)

    async def backup(self, target: str | os.PathLike[str]) -> None:
        """Writes a verified copy."""
        await _on_thread(self._memory.backup, target)

    async def reembed(self) -> bool:
        """Makes all missing vectors now."""
        return await _on_thread(self._memory.reembed)

    async def close(self) -> None:
        """Lets go of the file."""
        await _on_thread(self._memory.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class AsyncSession:
    """A running session whose verbs do not block; leaving the block ends it."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def key(self) -> str:
        """The session's name."""
        return self._session.key

    @property
    def inject(self) -> str:
        """The text that opens the session."""
        return self._session.inject

    @property
    def injection(self) -> str | None:
        """The code that ratings of the opening text must name."""
        return self._session.injection

    @property
    def memories(self) -> list[ShownMemory]:
        """What was shown so far."""
        return self._session.memories

    @property
    def ranking(self) -> list[str]:
        """Ids of all candidates in final order."""
        return self._session.ranking

    @property
    def status_line(self) -> str:
        """How far learning has come."""
        return self._session.status_line

    async def prompt(self, text: str, feedback: Mapping[str, float] | None = None) -> Served:
        """What a prompt of the user calls to mind."""
        return await _on_thread(self._session.prompt, text, feedback)

    async def reply(self, text: str) -> RatingsTaken:
        """Takes the ratings at the end of the agent's reply."""
        return await _on_thread(self._session.reply, text)

    async def rate(self, scores: Mapping[str, float]) -> RatingsTaken:
        """How useful memories were, by handle or id."""
        return await _on_thread(self._session.rate, scores)

    async def compact(self) -> None:
        """The agent forgets what it was shown."""
        await _on_thread(self._session.compact)

    async def end(self, transcript: object = None, used: Mapping[str, float] | None = None) -> None:
        """Ends the session; again is fine."""
        await _on_thread(self._session.end, transcript, used)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.end()


async def _on_thread(call: Callable[..., T], *args: Any, **fields: Any) -> T:
    # Imported here: it costs 20 ms, and most programs that remember are not asynchronous.
    import asyncio

    return await asyncio.to_thread(call, *args, **fields)
