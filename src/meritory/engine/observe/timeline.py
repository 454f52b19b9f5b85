"""Everything that happened to a session, a memory or in a request, in the order it happened."""

from __future__ import annotations

import contextlib

from meritory.domain.errors import InputError, NotFound
from meritory.domain.session import Event
from meritory.engine.services import Services


def timeline(services: Services, user: str, name: str) -> list[Event]:
    """The events behind a session's key, a memory's id or a request's id; empty for none."""
    with contextlib.suppress(NotFound):
        services.store.session(user, name)
        return _of_session(services, user, name)
    with contextlib.suppress(NotFound, InputError):
        return _of_memory(services, user, services.store.get(user, name).id)
    return services.store.events(user, request_id=name)


def _of_session(services: Services, user: str, key: str) -> list[Event]:
    store = services.store
    shown = [
        Event(
            at=one.at,
            category="session",
            name=f"session.injected.{one.kind}",
            session_key=key,
            details={"number": one.number, "turn": one.turn, "tokens": one.token_count},
        )
        for one in store.injections(user, key)
    ]
    return _in_order([*store.events(user, session_key=key), *shown])


def _of_memory(services: Services, user: str, memory_id: str) -> list[Event]:
    changes = [
        Event(
            at=entry.at,
            category="memory",
            name=f"memory.{entry.action}",
            memory_id=memory_id,
            details={"actor": entry.actor, "why": entry.why, "entry": entry.entry},
        )
        for entry in services.store.history(user, memory_id)
    ]
    return _in_order([*services.store.events(user, memory_id=memory_id), *changes])


def _in_order(events: list[Event]) -> list[Event]:
    # Stable: what happened at the same moment stays in the order it was written down.
    return sorted(events, key=lambda event: event.at)
