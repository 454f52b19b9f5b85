"""What all adapters share: inject before the model is asked, take ratings after, end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from meritory.api.memory import Memory, Session
from meritory.domain.errors import MeritoryError, MissingExtra
from meritory.domain.memory import MemoryRecord
from meritory.text.ratings_trailer import strip_trailers

T = TypeVar("T")
_PAGE_LIMIT = 1_000


def missing(extra: str, error: ImportError) -> MissingExtra:
    """The error that says which extra is to be installed."""
    return MissingExtra(
        f"{error.name or extra} is not installed", hint=f"pip install 'meritory[{extra}]'"
    )


def all_tagged(memory: Memory, tag: str) -> Iterator[MemoryRecord]:
    """Every memory of a scope with a tag, newest first."""
    after = None
    while True:
        page = memory.page(_PAGE_LIMIT, tag=tag, after=after)
        yield from page
        if len(page) < _PAGE_LIMIT:
            return
        after = page[-1].id


class Conversation:
    """One conversation with an agent: what it is shown, and how useful that was.

    An agent is served all the same when its memory fails: nothing is injected then, and
    `last_error` says why.
    """

    def __init__(
        self, memory: Memory, key: str, *, harness: str, project: str | None = None
    ) -> None:
        self.key = key
        self.last_error: MeritoryError | None = None
        self._memory = memory
        self._harness = harness
        self._project = project
        self._session: Session | None = None
        self._lock = threading.Lock()

    @property
    def session(self) -> Session | None:
        """The session behind it, once it has begun."""
        return self._session

    def inject(self, prompt: str) -> str:
        """The text to put before a prompt; empty when nothing is worth saying."""
        with self._lock:
            return self._tried(lambda: self._injected(prompt), "")

    def _injected(self, prompt: str) -> str:
        if self._session is not None:
            return self._session.prompt(prompt).inject
        begun = self._memory.session(
            self.key, project=self._project, context=prompt, harness=self._harness
        )
        self._session = begun
        return begun.inject

    def replied(self, text: str) -> str:
        """Takes the ratings of a reply, and returns it without them."""
        with self._lock:
            session = self._session
            if session is not None:
                self._tried(lambda: session.reply(text), None)
        return strip_trailers(text)

    def compact(self) -> None:
        """The agent has forgotten what it was shown: it may be shown again."""
        with self._lock:
            session = self._session
            if session is not None:
                self._tried(session.compact, None)

    def end(self, transcript: object = None) -> None:
        """The conversation is over; again is fine, and a later prompt begins anew."""
        with self._lock:
            session, self._session = self._session, None
            if session is not None:
                self._tried(lambda: session.end(transcript), None)

    def _tried(self, call: Callable[[], T], otherwise: T) -> T:
        try:
            return call()
        except MeritoryError as error:
            self.last_error = error
            return otherwise
