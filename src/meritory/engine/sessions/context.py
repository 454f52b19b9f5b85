"""What a session is about, as far as it is known when it begins."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePath

import numpy as np
from numpy.typing import NDArray

from meritory.domain.errors import Conflict
from meritory.domain.memory import CONTENT_LIMIT_CHARS, Scope
from meritory.domain.session import SessionRecord
from meritory.engine.memories.embedding import QueryVector
from meritory.engine.memories.recall import keys_in_play
from meritory.engine.services import Services
from meritory.text.entities import entity_key
from meritory.text.secrets import redact
from meritory.text.terms import query_terms
from meritory.text.tokens import MAX_WORDS, imprint

SUMMARY_TAIL_CHARS = 1_000
_SECONDS_PER_HOUR = 3_600.0


@dataclass(frozen=True, slots=True)
class StartRequest:
    """A session that begins, as its harness tells it."""

    key: str
    scope: Scope
    context: str | None = None
    harness: str | None = None
    cwd: str | None = None
    request_id: str | None = None
    # Whether the agent runs where this machine's commands and files are not.
    is_elsewhere: bool = False


def known_session(services: Services, scope: Scope, key: str) -> SessionRecord:
    """The session of this key; one agent does not go on with another's."""
    session = services.store.session(scope.user, key)
    if scope.agent is not None and session.agent not in (None, scope.agent):
        raise Conflict(f"{key[:80]!r} is a session of another agent", hint="use a key of your own")
    return session


@dataclass(frozen=True, slots=True)
class Context:
    """The text the ranking is made from, its vector, and the entities in play."""

    scope: Scope
    text: str
    is_given: bool
    vector: QueryVector
    # Its content words in order, and their imprint.
    terms: tuple[str, ...]
    words: NDArray[np.uint16]
    entity_keys: tuple[str, ...]
    gap_hours: float | None
    now: datetime

    @property
    def project_key(self) -> str | None:
        """The project as an entity: it is about everything here, and so tells nothing apart."""
        project = self.scope.project
        return None if project is None else entity_key("project", project)


def understand(services: Services, request: StartRequest) -> Context:
    """The first prompt or task where there is one, else where the project's last session ended."""
    now = services.world.now()
    given = heard(request.context)
    text = given or _inferred(services, request, now)
    terms = query_terms(text, MAX_WORDS)
    place = PurePath(storable(request.cwd)).name
    return Context(
        scope=request.scope,
        text=text,
        is_given=bool(given),
        vector=services.embedding.query(text) if text else QueryVector(None, None),
        terms=terms,
        words=imprint(terms),
        entity_keys=tuple(keys_in_play(f"{text}\n{place}", request.scope)),
        gap_hours=_gap_hours(services, request, now),
        now=now,
    )


def heard(text: str | None) -> str:
    """What was given, as it may be kept: without secrets, and without what cannot be stored."""
    return redact(storable(text)).strip()


def storable(text: str | None) -> str:
    """Half characters cannot be stored, so no memory has any; nor has any a NUL."""
    told = (text or "")[:CONTENT_LIMIT_CHARS].replace("\0", " ")
    return told.encode("utf-8", "ignore").decode()


def _inferred(services: Services, request: StartRequest, now: datetime) -> str:
    last = services.store.previous_session(request.scope, now)
    known = last.summary[-SUMMARY_TAIL_CHARS:] if last else ""
    return "\n".join(part for part in (request.scope.project or "", known) if part)


def _gap_hours(services: Services, request: StartRequest, now: datetime) -> float | None:
    """Hours since the user's session before this one; None for the first."""
    latest = services.store.sessions(request.scope.user, 2)
    before = next((session for session in latest if session.key != request.key), None)
    return None if before is None else max(0.0, _seconds_since(before, now) / _SECONDS_PER_HOUR)


def _seconds_since(session: SessionRecord, now: datetime) -> float:
    return (now - (session.ended_at or session.started_at)).total_seconds()
