"""The timeline: all events of a session, a memory or a request in order."""

from __future__ import annotations

import contextlib

from meritory.domain.errors import InputError, NotFound
from meritory.domain.session import Event
from meritory.engine.services import Services


def timeline(services: Services, user: str, name: str) -> list[Event]:
    """Return the events of a session key, a memory id or a request id."""
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
            at=injection.at,
            category="session",
            name=f"session.injected.{injection.kind}",
            session_key=key,
            details={
                "number": injection.number,
                "turn": injection.turn,
                "tokens": injection.token_count,
            },
        )
        for injection in store.injections(user, key)
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
    # The sort is stable: events of the same moment keep their order.
    return sorted(events, key=lambda event: event.at)
