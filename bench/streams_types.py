"""The shape of a stream: memories with their versions, sessions with their true gains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

# One entry of a transcript, in a form that `Session.end(transcript=[...])` accepts.
Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Version:
    """The text of a memory from a moment on."""

    at: datetime
    text: str


@dataclass(frozen=True, slots=True)
class StreamMemory:
    """One memory with its versions."""

    id: str
    project: str | None
    created_at: datetime
    deleted_at: datetime | None
    versions: tuple[Version, ...]

    def text_before(self, moment: datetime) -> str | None:
        """Return the text just before a moment; None when the memory did not exist then.

        A version with the very time of a session was made by that session. Showing it would leak
        the answer.
        """
        if self.created_at >= moment or (self.deleted_at is not None and self.deleted_at < moment):
            return None
        texts = [version.text for version in self.versions if version.at < moment]
        return texts[-1] if texts else None


@dataclass(frozen=True, slots=True)
class StreamSession:
    """One session: its context, and the true gain of each memory that it used."""

    key: str
    at: datetime
    project: str | None
    context: str
    gains: Mapping[str, float]
    # Reads the transcript; None when the stream has none.
    transcript: Callable[[], list[Message]] | None = None


@dataclass(frozen=True, slots=True)
class Stream:
    """Sessions in time order, and every memory that existed at some time."""

    name: str
    memories: tuple[StreamMemory, ...]
    sessions: tuple[StreamSession, ...]

    @property
    def has_transcripts(self) -> bool:
        """Whether every session has a transcript."""
        return bool(self.sessions) and all(one.transcript is not None for one in self.sessions)


def guarded(stream: Stream) -> Stream:
    """Return the stream in time order, without gains of memories that did not exist yet."""
    memories = {memory.id: memory for memory in stream.memories}

    def honest(session: StreamSession) -> StreamSession:
        known = {
            one: gain
            for one, gain in session.gains.items()
            if memories[one].text_before(session.at) is not None
        }
        return replace(session, gains=known)

    ordered = sorted(stream.sessions, key=lambda session: session.at)
    return replace(stream, sessions=tuple(honest(session) for session in ordered))
