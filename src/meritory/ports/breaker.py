"""A circuit breaker for a child process that crashes."""

from __future__ import annotations

from collections import deque

from meritory.domain.world import World

HOUR_MS = 3_600_000.0
FIRST_PAUSE_MS = 500.0
LONGEST_PAUSE_MS = 60_000.0


class CircuitBreaker:
    """Counts crashes: pauses after each one, opens after too many within an hour.

    The pause doubles with every crash of the last hour. Not thread-safe: the owner holds a lock.
    """

    def __init__(
        self, world: World, threshold: int, first_pause_ms: float = FIRST_PAUSE_MS
    ) -> None:
        self.threshold = threshold
        self.crash_count = 0
        self.last_error: str | None = None
        # The process may start again at this time.
        self.resume_ms = 0.0
        # It is open before this time: it crashed too often within an hour.
        self.open_until_ms = 0.0
        self._world = world
        self._first_pause_ms = first_pause_ms
        self._crashes_ms: deque[float] = deque(maxlen=threshold)

    @property
    def is_open(self) -> bool:
        """Whether the process crashed too often within the last hour."""
        return self._world.monotonic_ms() < self.open_until_ms

    @property
    def is_paused(self) -> bool:
        """Whether the process must not start now."""
        return self.is_open or self._world.monotonic_ms() < self.resume_ms

    def record_crash(self, message: str) -> None:
        """Count a crash, and set the pause before the next start."""
        now_ms = self._world.monotonic_ms()
        self.crash_count += 1
        self.last_error = message
        self._crashes_ms.append(now_ms)
        if len(self._crashes_ms) == self.threshold:
            self.open_until_ms = self._crashes_ms[0] + HOUR_MS
        recent = sum(now_ms - at_ms < HOUR_MS for at_ms in self._crashes_ms)
        pause_ms = self._first_pause_ms * 2.0 ** min(recent - 1, 30)
        self.resume_ms = now_ms + min(pause_ms, LONGEST_PAUSE_MS)

    def reset(self) -> None:
        """Forget all crashes, so that the process can start at once."""
        self._crashes_ms.clear()
        self.resume_ms = self.open_until_ms = 0.0
