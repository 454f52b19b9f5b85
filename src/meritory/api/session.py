"""The public class `Session`: a running session of an engine in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from meritory.api.embedded import EmbeddedBackend
    from meritory.api.remote import RemoteBackend
    from meritory.domain.memory import Scope
    from meritory.engine.sessions.context import StartRequest
    from meritory.engine.sessions.packing import Served, ShownMemory
    from meritory.engine.sessions.ratings import RatingsTaken


class Session:
    """A running session; it is its own context manager, and leaving the block ends it."""

    def __init__(
        self, backend: EmbeddedBackend | RemoteBackend, request: StartRequest, served: Served
    ) -> None:
        self._backend = backend
        self._key = request.key
        self._request_id = request.request_id
        self._served = served
        self._scope = served.scope or request.scope
        self._memories = list(served.memories)
        self._ranking = list(served.ranking)
        self._is_over = False

    @property
    def key(self) -> str:
        """The session's name."""
        return self._key

    @property
    def scope(self) -> Scope:
        """The user, agent and project whose memories it may see."""
        return self._scope

    @property
    def inject(self) -> str:
        """The text that opens the session; empty when no memory is worth showing."""
        return self._served.inject

    @property
    def injection(self) -> str | None:
        """The code that ratings of the opening text must name."""
        return self._served.injection

    @property
    def memories(self) -> list[ShownMemory]:
        """The memories shown so far, each with its handle and id."""
        return list(self._memories)

    @property
    def ranking(self) -> list[str]:
        """Ids of all candidates in final order."""
        return list(self._ranking)

    @property
    def status_line(self) -> str:
        """The progress of learning, in one line."""
        return self._served.status_line

    def prompt(self, text: str, feedback: Mapping[str, float] | None = None) -> Served:
        """Return the memories for a prompt of the user that the session has not shown yet."""
        from meritory.engine import pipeline
        from meritory.engine.sessions.prompt import PromptRequest

        request = PromptRequest(
            self._key, self._scope, text, feedback=feedback, request_id=self._request_id
        )
        return self._note(pipeline.prompt(self._backend.services, request))

    def _note(self, served: Served) -> Served:
        """Take in what a prompt shows."""
        # After a compaction some are shown again, under the handles they had.
        shown = {memory.handle for memory in self._memories}
        self._memories += [memory for memory in served.memories if memory.handle not in shown]
        self._ranking = list(served.ranking) or self._ranking
        return served

    def reply(self, text: str) -> RatingsTaken:
        """Take the ratings at the end of the agent's reply."""
        from meritory.engine.sessions import ratings

        call = ratings.ReplyCall(self._scope.user, self._key, text)
        return ratings.stop(self._backend.services, call)

    def rate(self, scores: Mapping[str, float]) -> RatingsTaken:
        """Rate memories by handle or id: -1 misled, 0 unused, 1 decisive."""
        from meritory.engine.sessions import ratings

        call = ratings.RatingCall(self._scope.user, self._key, scores, "program")
        return ratings.rate(self._backend.services, call)

    def compact(self) -> None:
        """Note that the agent lost its context, so that memories may be shown again."""
        from meritory.engine.sessions import end

        end.compact(self._backend.services, end.EndRequest(self._key, self._scope.user))

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
            self._key,
            self._scope.user,
            transcript,
            used,
            request_id=self._request_id,
            learns_at_once=is_known,
        )
        pipeline.end(self._backend.services, request)
        self._backend.session_ended(self._key, is_known)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()
