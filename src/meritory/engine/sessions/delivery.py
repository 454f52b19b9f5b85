"""Deliveries: which blocks agents have got, also while the store cannot record it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from meritory.domain.errors import Busy, NotFound, StorageError
from meritory.engine.services import Services
from meritory.engine.sessions.packing import Served
from meritory.engine.sessions.ratings import LEARN_JOB
from meritory.store.contract.store import Transaction

# Of how many sessions the deliveries are kept in memory, the latest.
SESSIONS_LIMIT_COUNT = 256


def is_offered_again(number: int, *, has_shown: bool) -> bool:
    """Return whether the prompt with this number offers again what was not delivered.

    A client that never confirms a delivery may show everything all the same. As long as it has
    confirmed none in the session, only prompts 1, 2, 4, 8 and so on do.
    """
    return has_shown or number & (number - 1) == 0


def deliver(services: Services, user: str, key: str, codes: Sequence[str]) -> int:
    """Record that the agent has got these injections; return how many waited for that."""

    def work(transaction: Transaction) -> int:
        count = sum(transaction.deliver(user, key, code) for code in codes)
        if count and transaction.session(user, key).state != "open":
            # Late evidence: the session is labelled again.
            transaction.requeue_job(user, LEARN_JOB, key, services.world.now())
        return count

    return services.store.write(user, work)


@dataclass(slots=True)
class _Unrecorded:
    """What the store has not recorded of one session."""

    # By code the memories of replies that could not be recorded.
    offered: dict[str, frozenset[str]] = field(default_factory=dict)
    # The memories of those that the agent has got.
    got: frozenset[str] = frozenset()
    # Receipts that could not be recorded, for blocks that were.
    codes: tuple[str, ...] = ()


class Deliveries:
    """What agents have got in their sessions, as far as the store could not record it.

    On a full disk an agent is served all the same, and must not be served the same twice.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._lock = threading.Lock()
        self._sessions: OrderedDict[tuple[str, str], _Unrecorded] = OrderedDict()

    def note(self, user: str, served: Served, awaits_receipt: bool) -> None:
        """Remember a reply that the store could not record."""
        if served.is_recorded or served.injection is None:
            return
        ids = frozenset(one.id for one in served.memories)
        with self._lock:
            session = self._session(user, served.key)
            if awaits_receipt:
                session.offered[served.injection] = ids
            else:
                session.got |= ids

    def take(self, user: str, key: str, codes: Sequence[str] = ()) -> int:
        """Take receipts, and earlier ones that could not be recorded; return how many counted."""
        with self._lock:
            session = self._sessions.get((user, key), _Unrecorded())
            kept = [code for code in codes if code in session.offered]
            for code in kept:
                session.got |= session.offered.pop(code)
            left = (*session.codes, *(code for code in codes if code not in kept))
            session.codes = ()
        if not left:
            return len(kept)
        try:
            return len(kept) + deliver(self._services, user, key, left)
        except NotFound:
            return len(kept)
        except (StorageError, Busy) as error:
            self._services.observer.failed("delivery_record", error)
            with self._lock:
                self._session(user, key).codes = left
            return len(codes)

    def unrecorded(self, user: str, key: str) -> frozenset[str]:
        """Return the ids of memories that the agent has got, though the store does not know."""
        with self._lock:
            session = self._sessions.get((user, key))
        if session is None:
            return frozenset()
        waiting = self._services.store.undelivered(user, key) if session.codes else ()
        return session.got | {
            memory_id
            for injection in waiting
            if injection.code in session.codes
            for _, memory_id in injection.memories
        }

    def forget(self, user: str, key: str) -> None:
        """Forget a session: the agent's context is empty."""
        with self._lock:
            self._sessions.pop((user, key), None)

    def _session(self, user: str, key: str) -> _Unrecorded:
        session = self._sessions.setdefault((user, key), _Unrecorded())
        self._sessions.move_to_end((user, key))
        if len(self._sessions) > SESSIONS_LIMIT_COUNT:
            self._sessions.popitem(last=False)
        return session
