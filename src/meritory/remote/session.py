"""One session of an agent at a daemon, with the same face as one in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from meritory.errors import InputError
from meritory.flow.context import StartRequest
from meritory.flow.ratings import RatingsTaken
from meritory.flow.showing import Served
from meritory.remote.values import plain, read, scores
from meritory.session import Session
from meritory.text.transcript import read_turns, shorten
from meritory.types import Scope

# What a request may hold is counted in bytes, of which a character has up to four.
TRANSCRIPT_SENT_CHARS = 400_000
TEXT_SENT_CHARS = 400_000
Ask = Callable[[str, Scope, Mapping[str, Any]], bytes]


class RemoteSession(Session):
    """A running session whose verbs are the daemon's."""

    def __init__(self, ask: Ask, request: StartRequest) -> None:
        self._ask = ask
        self._request = request
        told = {
            "key": request.key,
            "context": whole(request.context),
            "project": request.scope.project,
            "harness": request.harness,
            "cwd": request.cwd,
        }
        self._served: Served = read(ask("session/start", request.scope, told), Served)
        self._scope = self._served.scope or request.scope
        self._memories = list(self._served.memories)
        self._ranking = list(self._served.ranking)
        self._is_over = False

    def _told(self, verb: str, arguments: Mapping[str, Any]) -> bytes:
        return self._ask(f"session/{verb}", self.scope, {"key": self.key, **arguments})

    def prompt(self, text: str, feedback: Mapping[str, float] | None = None) -> Served:
        """What a prompt of the user calls to mind, besides what was shown already."""
        if not isinstance(text, str):
            raise InputError(f"a prompt must be text, not {type(text).__name__}")
        told = {"text": whole(text), "feedback": scores(feedback)}
        return self._noted(read(self._told("prompt", told), Served))

    def reply(self, text: str) -> RatingsTaken:
        """Takes the ratings at the end of the agent's reply."""
        # They are at its end: of a very long one that is what must arrive.
        return self._taken("reply", {"text": (whole(text) or "")[-TEXT_SENT_CHARS:]})

    def rate(self, scores: Mapping[str, float]) -> RatingsTaken:
        """How useful memories were, by handle or id: -1 misled, 0 unused, 1 decisive."""
        return self._taken("rate", {"scores": _scores(scores)})

    def _taken(self, verb: str, arguments: Mapping[str, Any]) -> RatingsTaken:
        found: RatingsTaken = read(self._told(verb, arguments), RatingsTaken)
        return found

    def compact(self) -> None:
        """The agent forgets what it was shown: it may be shown again."""
        self._told("compact", {})

    def end(self, transcript: object = None, used: Mapping[str, float] | None = None) -> None:
        """Ends the session; again is fine. `used` says what helped, for programs that know it."""
        if self._is_over:
            return
        told: dict[str, Any] = {"used": plain(used)}
        if transcript is not None:
            turns = shorten(read_turns(transcript), TRANSCRIPT_SENT_CHARS)
            told["transcript"] = [{"role": one.role, "text": whole(one.text)} for one in turns]
        self._told("end", told)
        self._is_over = True


# Under another name where an argument is called like it.
_scores = scores


def whole(text: str | None) -> str | None:
    """A text without half characters, which cannot be sent and would not be stored."""
    return None if text is None else text.encode("utf-8", "ignore").decode()
