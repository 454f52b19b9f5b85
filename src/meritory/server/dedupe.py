"""Events that come twice: a client may run one hook from two of its files."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable

WINDOW_MS = 2_000.0


class DuplicateFilter:
    """What was heard within the last two seconds."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._heard: dict[bytes, float] = {}
        self._lock = threading.Lock()

    def is_echo(self, *parts: str) -> bool:
        """Whether the same was heard a moment ago; if not, it is remembered."""
        told = "\0".join(f"{len(part)}:{part}" for part in parts)
        key = hashlib.sha256(told.encode("utf-8", "surrogatepass")).digest()
        with self._lock:
            now = self._now_ms()
            # In the order in which they came: only the oldest can be too old.
            while self._heard and now - next(iter(self._heard.values())) >= WINDOW_MS:
                del self._heard[next(iter(self._heard))]
            if key in self._heard:
                return True
            self._heard[key] = now
            return False
