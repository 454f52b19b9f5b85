"""The context of a session: what it is about, as far as that is known when it begins."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from meritory.domain.errors import Conflict
from meritory.domain.memory import CONTENT_LIMIT_CHARS, MemoryRecord, Scope
from meritory.domain.session import SessionRecord
from meritory.engine.memories.embedding import QueryVector
from meritory.store.contract.store import Store
from meritory.text.entities import keys_in_play
from meritory.text.secrets import redact
from meritory.text.terms import query_terms
from meritory.text.tokens import MAX_WORDS, imprint

if TYPE_CHECKING:
    from meritory.engine.sessions.ranking import Ranking

SUMMARY_TAIL_CHARS = 1_000
_SECONDS_PER_HOUR = 3_600.0


@dataclass(frozen=True, slots=True)
class StartRequest:
    """The start of a session, as its harness reports it."""

    key: str
    scope: Scope
    context: str | None = None
    harness: str | None = None
    cwd: str | None = None
    request_id: str | None = None
    # Whether the caller reports later that the text has reached the agent.
    awaits_receipt: bool = False
    # Memories that the agent has got, though the store could not record it.
    barred: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Context:
    """The text that candidates are ranked by, its vector, and the entities it names."""

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


def find_known_session(store: Store, scope: Scope, key: str) -> SessionRecord | None:
    """Return the session with this key, if any; raise Conflict if another agent owns it."""
    session = store.find_session(scope.user, key)
    if session and scope.agent is not None and session.agent not in (None, scope.agent):
        raise Conflict(
            f"session {key[:80]!r} belongs to another agent", hint="choose another session key"
        )
    return session


def known_session(store: Store, scope: Scope, key: str) -> SessionRecord:
    """Return the session with this key; raise NotFound or Conflict otherwise."""
    return find_known_session(store, scope, key) or store.session(scope.user, key)


def is_stored_by(session: SessionRecord, memory: MemoryRecord) -> bool:
    """Return whether a memory was first stored by this session, so that its agent knows it.

    Some clients do not say which session stores. Then it is the one of the same harness under way.
    """
    for source in memory.sources[:1]:
        if source.session_key is not None:
            return source.session_key == session.key
        is_own = memory.provenance == "assistant_derived" and source.harness == session.harness
        return is_own and source.harness is not None and memory.created_at >= session.started_at
    return False


def understand(run: Ranking) -> None:
    """Read the first prompt or task, or else how the project's last session ended."""
    store, request = run.services.store, run.request
    scope, now = request.scope, run.services.world.now()
    given = clean(request.context)
    text = given
    if not given:
        last = store.previous_session(scope, now)
        summary = last.summary[-SUMMARY_TAIL_CHARS:] if last else ""
        text = "\n".join(part for part in (scope.project or "", summary) if part)
    latest = store.sessions(scope.user, 2)
    before = next((session for session in latest if session.key != request.key), None)
    gap_hours = None
    if before is not None:
        gap = now - (before.ended_at or before.started_at)
        gap_hours = max(0.0, gap.total_seconds() / _SECONDS_PER_HOUR)
    terms = query_terms(text, MAX_WORDS)
    folder = PurePath(storable(request.cwd)).name
    run.context = Context(
        scope=scope,
        text=text,
        is_given=bool(given),
        vector=run.services.embedding.query(text) if text else QueryVector(None, None),
        terms=terms,
        words=imprint(terms),
        entity_keys=tuple(keys_in_play(f"{text}\n{folder}", scope.project)),
        gap_hours=gap_hours,
        now=now,
    )


def clean(text: str | None) -> str:
    """Return a text as it may be stored, with secrets redacted."""
    return redact(storable(text)).strip()


def storable(text: str | None) -> str:
    """Return a text without the characters that no store accepts: NUL and lone surrogates."""
    shortened = (text or "")[:CONTENT_LIMIT_CHARS].replace("\0", " ")
    return shortened.encode("utf-8", "ignore").decode()
