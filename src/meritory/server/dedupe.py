"""Duplicate hooks: a harness may run one hook from two of its settings files."""

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
