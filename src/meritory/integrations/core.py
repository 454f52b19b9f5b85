"""What all adapters share: inject memories before a prompt, take ratings after it, end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from meritory.api.memory import Memory
from meritory.api.session import Session
from meritory.domain.errors import MeritoryError, MissingExtra
from meritory.domain.memory import MemoryRecord
from meritory.text.ratings_trailer import strip_trailers

T = TypeVar("T")
_PAGE_LIMIT = 1_000


def missing(extra: str, error: ImportError) -> MissingExtra:
    """Return the error that names the extra to install."""
    return MissingExtra(
        f"{error.name or extra} is not installed", hint=f"pip install 'meritory[{extra}]'"
    )


def all_tagged(memory: Memory, tag: str, *, include_gone: bool = False) -> Iterator[MemoryRecord]:
    """Yield every memory of a scope with a tag, newest first."""
    after = None
    while True:
        page = memory.page(_PAGE_LIMIT, tag=tag, after=after, include_gone=include_gone)
        yield from page
        if len(page) < _PAGE_LIMIT:
            return
        after = page[-1].id


class Conversation:
    """One conversation with an agent: the memories it is shown, and their ratings.

    If memory fails, the agent continues without it, and `last_error` holds the error.
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
        """Return the session, None before the first prompt."""
        return self._session

    def inject(self, prompt: str) -> str:
        """Return the text to put before a prompt; empty if no memory fits."""
        with self._lock:
            session = self._session
            if session is not None:
                return self._try(lambda: session.prompt(prompt).inject, "")
            self._session = self._try(
                lambda: self._memory.session(
                    self.key, project=self._project, context=prompt, harness=self._harness
                ),
                None,
            )
            return "" if self._session is None else self._session.inject

    def replied(self, text: str) -> str:
        """Take the ratings of a reply, and return it without them."""
        with self._lock:
            session = self._session
            if session is not None:
                self._try(lambda: session.reply(text), None)
        return strip_trailers(text)

    def compact(self) -> None:
        """Allow memories to be shown again, because the agent's context was compacted."""
        with self._lock:
            session = self._session
            if session is not None:
                self._try(session.compact, None)

    def end(self, transcript: object = None) -> None:
        """End the conversation; a later prompt starts a new session."""
        with self._lock:
            session, self._session = self._session, None
            if session is not None:
                self._try(lambda: session.end(transcript), None)

    def _try(self, call: Callable[[], T], otherwise: T) -> T:
        try:
            return call()
        except MeritoryError as error:
            self.last_error = error
            return otherwise
