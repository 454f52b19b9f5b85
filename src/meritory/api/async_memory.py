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


def on_thread(
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

    remember = on_thread(Memory.remember)
    remember_many = on_thread(Memory.remember_many)
    update = on_thread(Memory.update)
    confirm = on_thread(Memory.confirm)
    reject = on_thread(Memory.reject)
    proposals = on_thread(Memory.proposals)
    merge = on_thread(Memory.merge)
    review = on_thread(Memory.review)
    decide = on_thread(Memory.decide)
    forget = on_thread(Memory.forget)
    undo = on_thread(Memory.undo)
    split = on_thread(Memory.split)
    recall = on_thread(Memory.recall)
    get = on_thread(Memory.get)
    page = on_thread(Memory.page)
    history = on_thread(Memory.history)
    merges = on_thread(Memory.merges)
    stats = on_thread(Memory.stats)
    entities = on_thread(Memory.entities)
    describe = on_thread(Memory.describe)
    related = on_thread(Memory.related)
    required = on_thread(Memory.required)
    drain = on_thread(Memory.drain)
    predictor_status = on_thread(Memory.predictor_status)
    why = on_thread(Memory.why)
    capture_feedback = on_thread(Memory.capture_feedback)
    feedback = capture_feedback
    complete_feedback = on_thread(Memory.complete_feedback)
    feedback_events = on_thread(Memory.feedback_events)
    feedback_event = on_thread(Memory.feedback_event)
    feedback_summary = on_thread(Memory.feedback_summary)
    feedback_risk = on_thread(Memory.feedback_risk)
    feedback_pairs = on_thread(Memory.feedback_pairs)
    contested = on_thread(Memory.contested)
    backup = on_thread(Memory.backup)
    reembed = on_thread(Memory.reembed)
    close = on_thread(Memory.close)
    _session = on_thread(Memory.session)

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

    prompt = on_thread(Session.prompt)
    recall = on_thread(Session.recall)
    reply = on_thread(Session.reply)
    rate = on_thread(Session.rate)
    compact = on_thread(Session.compact)
    end = on_thread(Session.end)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.end()
