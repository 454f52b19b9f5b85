"""The predictor's records of one session: how its orders compared, and everything behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meritory.errors import NotFound
from meritory.flow.services import Services
from meritory.flow.timeline import timeline
from meritory.store.glance import SessionSummary
from meritory.store.predictor import Comparison
from meritory.store.sessions import Event, SessionScore
from meritory.types import SessionMemory


@dataclass(frozen=True, slots=True)
class SessionAudit:
    """One session with its ranking, its verdict and its events."""

    session: SessionSummary
    score: SessionScore | None
    # None before the session has ended and was judged.
    comparison: Comparison | None
    candidates: Sequence[SessionMemory]
    events: Sequence[Event]


def compared(services: Services, user: str, key: str) -> Comparison:
    """Return the comparison of a session; raise NotFound if there is none."""
    services.store.session(user, key)
    found = services.store.comparison(user, key)
    if found is None:
        raise NotFound(
            f"the rankings of session {key[:80]!r} were not compared yet",
            hint="that is done when it has ended and was judged",
        )
    return found


def audit(services: Services, user: str, key: str) -> SessionAudit:
    """Return everything on record about the ranking of a session."""
    store = services.store
    return SessionAudit(
        store.session_summary(user, key),
        store.session_score(user, key),
        store.comparison(user, key),
        store.session_memories(user, key),
        timeline(services, user, key),
    )
