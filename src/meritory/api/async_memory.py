"""The async twins of `Memory` and `Session`: the same methods, run on worker threads."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from meritory.api.memory import Memory
from meritory.api.session import RunningSession, Session

if TYPE_CHECKING:
    from meritory.engine.sessions.packing import Served

P = ParamSpec("P")
T = TypeVar("T")


def _on_thread(
    method: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return the async twin of a method, with its parameters, types and documentation."""

    async def call(twin: Any, /, *args: P.args, **fields: P.kwargs) -> T:
        # Imported here: it costs 20 ms, and most programs that remember are not asynchronous.
        import asyncio

        return await asyncio.to_thread(getattr(twin._sync, method.__name__), *args, **fields)

    update_wrapper(call, method)
    return call


class AsyncMemory:
    """The methods of `Memory` for programs that must not block."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        self._sync = Memory(*args, **fields)

    remember = _on_thread(Memory.remember)
    remember_many = _on_thread(Memory.remember_many)
    update = _on_thread(Memory.update)
    confirm = _on_thread(Memory.confirm)
    reject = _on_thread(Memory.reject)
    proposals = _on_thread(Memory.proposals)
    merge = _on_thread(Memory.merge)
    review = _on_thread(Memory.review)
    decide = _on_thread(Memory.decide)
    forget = _on_thread(Memory.forget)
    undo = _on_thread(Memory.undo)
    split = _on_thread(Memory.split)
    recall = _on_thread(Memory.recall)
    get = _on_thread(Memory.get)
    page = _on_thread(Memory.page)
    history = _on_thread(Memory.history)
    merges = _on_thread(Memory.merges)
    stats = _on_thread(Memory.stats)
    entities = _on_thread(Memory.entities)
    describe = _on_thread(Memory.describe)
    related = _on_thread(Memory.related)
    required = _on_thread(Memory.required)
    drain = _on_thread(Memory.drain)
    predictor_status = _on_thread(Memory.predictor_status)
    why = _on_thread(Memory.why)
    capture_feedback = _on_thread(Memory.capture_feedback)
    feedback = capture_feedback
    complete_feedback = _on_thread(Memory.complete_feedback)
    feedback_events = _on_thread(Memory.feedback_events)
    feedback_event = _on_thread(Memory.feedback_event)
    feedback_summary = _on_thread(Memory.feedback_summary)
    feedback_risk = _on_thread(Memory.feedback_risk)
    feedback_pairs = _on_thread(Memory.feedback_pairs)
    contested = _on_thread(Memory.contested)
    backup = _on_thread(Memory.backup)
    reembed = _on_thread(Memory.reembed)
    close = _on_thread(Memory.close)
    _session = _on_thread(Memory.session)

    async def session(
        self,
        key: str,
        project: str | None = None,
        context: str | None = None,
        *,
        harness: str | None = None,
        cwd: str | None = None,
    ) -> AsyncSession:
        """Begin a session, or resume it; the result has the text to show at its start."""
        return AsyncSession(await self._session(key, project, context, harness=harness, cwd=cwd))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class AsyncSession(RunningSession):
    """A running session whose methods do not block; leaving the block ends it."""

    def __init__(self, session: Session) -> None:
        self._sync = session

    def _state(self) -> Served:
        return self._sync._state()

    prompt = _on_thread(Session.prompt)
    reply = _on_thread(Session.reply)
    rate = _on_thread(Session.rate)
    compact = _on_thread(Session.compact)
    end = _on_thread(Session.end)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.end()
