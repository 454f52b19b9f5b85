"""Hooks that must not count: duplicates from two settings files, and late ones."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meritory.domain.memory import Scope
    from meritory.server.table import Call

WINDOW_MS = 2_000.0


class DuplicateFilter:
    """Remembers the events of the last two seconds."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._seen_ms: dict[bytes, float] = {}
        self._lock = threading.Lock()

    def is_duplicate(self, *parts: str) -> bool:
        """Return whether the same event came within the window; if not, remember it."""
        text = "\0".join(f"{len(part)}:{part}" for part in parts)
        key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        with self._lock:
            now = self._now_ms()
            # In order of arrival: only the oldest can be outside the window.
            while self._seen_ms and now - next(iter(self._seen_ms.values())) >= WINDOW_MS:
                del self._seen_ms[next(iter(self._seen_ms))]
            if key in self._seen_ms:
                return True
            self._seen_ms[key] = now
            return False


def is_duplicate(call: Call, scope: Scope, *parts: str | None) -> bool:
    """Return whether a harness sent the same hook a moment ago, from another settings file."""
    body = call.body
    # By the scope, not by the names in the body: a token implies names that the body leaves out.
    named = (type(body).__name__, scope.user, scope.agent, body.session_key, *parts)
    return body.relayed and call.server.duplicates.is_duplicate(*(part or "" for part in named))


def is_late(call: Call) -> bool:
    """Return whether the caller has stopped waiting: the agent went on without the answer.

    Taken all the same, a prompt could open a session again that has ended in the meantime. Only for
    callers on this machine, whose clock is the same.
    """
    until_ms = call.body.waits_until_ms
    if until_ms is None or call.door != "socket":
        return False
    is_over = bool(call.server.world.now().timestamp() * 1000 > until_ms)
    if is_over:
        call.server.observer.count("hooks.late")
    return is_over
