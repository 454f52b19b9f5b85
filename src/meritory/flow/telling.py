"""What happened in a session, written down twice: on its timeline and in the daemon's log."""

from __future__ import annotations

from collections.abc import Sequence

from meritory.flow.services import Services
from meritory.store.sessions import Event


def tell(services: Services, events: Sequence[Event]) -> None:
    """Lets whoever listens hear events that have been stored."""
    for event in events:
        named = {"session_key": event.session_key, "request_id": event.request_id}
        services.observer.tell(event.category, event.name, {**named, **event.details})
