"""One session of an agent, for programs that run their own: what it is shown, and how it went."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from meritory.domain.memory import Scope
from meritory.engine.services import Services
from meritory.engine.sessions import end, prompt, ratings, start
from meritory.engine.sessions.context import StartRequest
from meritory.engine.sessions.packing import Served, ShownMemory
from meritory.engine.sessions.ratings import RatingsTaken


class Session:
    """A running session; it is also its own context manager, and leaving the block ends it."""

    def __init__(
        self, services: Services, request: StartRequest, on_end: Callable[[str, bool], None]
    ) -> None:
        self._services = services
        self._request = request
        self._on_end = on_end
        self._served = start.start(services, request)
        self._scope = self._served.scope or request.scope
        self._memories = list(self._served.memories)
        self._ranking = list(self._served.ranking)
        self._is_over = False

    @property
    def key(self) -> str:
        """The session's name."""
        return self._request.key

    @property
    def scope(self) -> Scope:
        """Whose memories it may see."""
        return self._scope

    @property
    def inject(self) -> str:
        """The text that opens the session; empty when there is nothing worth saying."""
        return self._served.inject

    @property
    def injection(self) -> str | None:
        """The code that ratings of the opening text must name."""
        return self._served.injection

    @property
    def memories(self) -> list[ShownMemory]:
        """What was shown so far, each with its handle and id."""
        return list(self._memories)

    @property
    def ranking(self) -> list[str]:
        """Ids of all candidates in final order."""
        return list(self._ranking)

    @property
    def status_line(self) -> str:
        """How far learning has come."""
        return self._served.status_line

    def prompt(self, text: str, feedback: Mapping[str, float] | None = None) -> Served:
        """What a prompt of the user calls to mind, besides what was shown already."""
        request = prompt.PromptRequest(self.key, self.scope, text, feedback=feedback)
        return self._noted(prompt.prompt(self._services, request))

    def _noted(self, served: Served) -> Served:
        # After a compaction some are shown again, under the handles they had.
        known = {one.handle for one in self._memories}
        self._memories += [one for one in served.memories if one.handle not in known]
        self._ranking = list(served.ranking) or self._ranking
        return served

    def reply(self, text: str) -> RatingsTaken:
        """Takes the ratings at the end of the agent's reply."""
        return ratings.stop(self._services, ratings.ReplyCall(self.scope.user, self.key, text))

    def rate(self, scores: Mapping[str, float]) -> RatingsTaken:
        """How useful memories were, by handle or id: -1 misled, 0 unused, 1 decisive."""
        return ratings.rate(
            self._services, ratings.RatingCall(self.scope.user, self.key, scores, "program")
        )

    def compact(self) -> None:
        """The agent forgets what it was shown: it may be shown again."""
        end.compact(self._services, end.EndRequest(self.key, self.scope.user))

    def end(self, transcript: object = None, used: Mapping[str, float] | None = None) -> None:
        """Ends the session; again is fine. `used` says what helped, for programs that know it."""
        if self._is_over:
            return
        is_known = used is not None
        request = end.EndRequest(
            self.key, self.scope.user, transcript, used, learns_at_once=is_known
        )
        end.end(self._services, request)
        self._is_over = True
        self._on_end(self.key, is_known)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()
