"""The public class `Session`: a running session of an engine in this process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from meritory.api.embedded import EmbeddedBackend
    from meritory.api.remote import RemoteBackend
    from meritory.domain.memory import Recalled, Scope
    from meritory.engine.sessions.context import StartRequest
    from meritory.engine.sessions.packing import Served, ShownMemory
    from meritory.engine.sessions.ratings import RatingsTaken


class RunningSession(ABC):
    """The public state of a running session, of `Session` and of `AsyncSession`."""

    @abstractmethod
    def _state(self) -> Served:
        """Return everything that the session has shown so far."""

    @property
    def key(self) -> str:
        """The session's name."""
        return self._state().key

    @property
    def inject(self) -> str:
        """The text that opens the session; empty when no memory is worth showing."""
        return self._state().inject

    @property
    def injection(self) -> str | None:
        """The code that ratings of the opening text must name."""
        return self._state().injection

    @property
    def memories(self) -> list[ShownMemory]:
        """The memories shown so far, each with its handle and id."""
        return list(self._state().memories)

    @property
    def ranking(self) -> list[str]:
        """Ids of all candidates in final order."""
        return list(self._state().ranking)

    @property
    def status_line(self) -> str:
        """The progress of learning, in one line."""
        return self._state().status_line


class Session(RunningSession):
    """A running session; it is its own context manager, and leaving the block ends it."""

    def __init__(
        self, backend: EmbeddedBackend | RemoteBackend, request: StartRequest, served: Served
    ) -> None:
        self._backend = backend
        self._request_id = request.request_id
        self._scope = served.scope or request.scope
        self._served = replace(served, key=request.key, scope=self._scope)
        self._is_over = False

    def _state(self) -> Served:
        return self._served

    @property
    def scope(self) -> Scope:
        """The user, agent and project whose memories it may see."""
        return self._scope

    def prompt(self, text: str, feedback: Mapping[str, float | str] | None = None) -> Served:
        """Return the memories for a prompt of the user that the session has not shown yet."""
        from meritory.engine import pipeline
        from meritory.engine.sessions.prompt import PromptRequest

        request = PromptRequest(
            self.key, self._scope, text, feedback=feedback, request_id=self._request_id
        )
        return self._note(pipeline.prompt(self._backend.services, request))

    def _note(self, served: Served) -> Served:
        """Add the memories that a prompt shows."""
        state = self._served
        # After a compaction some are shown again, under the handles they had.
        handles = {memory.handle for memory in state.memories}
        new = tuple(memory for memory in served.memories if memory.handle not in handles)
        ranking = served.ranking or state.ranking
        self._served = replace(state, memories=state.memories + new, ranking=ranking)
        return served

    def recall(self, query: str, limit: int | None = None) -> list[Recalled]:
        """Return the memories that answer a query best; recall learns from what helped of them."""
        from meritory.engine.memories import recall

        services, scope = self._backend.services, self._scope
        return recall.answer(services, scope, query, limit, {}, explain=False, session=self.key)

    def reply(self, text: str) -> RatingsTaken:
        """Take the ratings at the end of the agent's reply."""
        from meritory.engine.sessions import ratings

        return ratings.stop(self._backend.services, self._scope.user, self.key, text)

    def rate(self, scores: Mapping[str, float]) -> RatingsTaken:
        """Rate memories by handle or id: -1 misled, 0 unused, 1 decisive."""
        from meritory.engine.sessions import ratings

        services, user = self._backend.services, self._scope.user
        return ratings.rate(services, user, self.key, scores, "program")

    def compact(self) -> None:
        """Note that the agent lost its context, so that memories may be shown again."""
        from meritory.engine.sessions import end

        end.compact(self._backend.services, end.EndRequest(self.key, self._scope.user))

    def end(self, transcript: object = None, used: Mapping[str, float] | None = None) -> None:
        """End the session; again is fine. `used` says what helped, for programs that know it."""
        if not self._is_over:
            self._end(transcript, used)
            self._is_over = True

    def _end(self, transcript: object, used: Mapping[str, float] | None) -> None:
        from meritory.engine import pipeline
        from meritory.engine.sessions.end import EndRequest

        is_known = used is not None
        request = EndRequest(
            self.key,
            self._scope.user,
            transcript,
            used,
            request_id=self._request_id,
            learns_at_once=is_known,
        )
        pipeline.end(self._backend.services, request)
        self._backend.session_ended(self.key, is_known)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()
