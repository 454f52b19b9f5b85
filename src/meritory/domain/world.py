"""The only source of time, randomness and ids, with a seeded twin for tests and replays."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from meritory.domain.errors import InputError

Clock = Callable[[], datetime]

# Crockford's base 32 in lower case: sorts like the number, no letters that read like digits.
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_TIME_DIGITS, _RANDOM_DIGITS = 10, 16
ID_LENGTH = _TIME_DIGITS + _RANDOM_DIGITS


class World:
    """Time, randomness and ids of the real world; `clock` replaces the time for replays."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock

    def now(self) -> datetime:
        """Return the present moment in UTC."""
        if self._clock is None:
            return datetime.now(UTC)
        moment = self._clock()
        if moment.tzinfo is None:
            raise InputError(
                "the clock returned a time without an offset",
                hint="return an aware datetime, e.g. datetime.now(timezone.utc)",
            )
        return moment.astimezone(UTC)

    def monotonic_ms(self) -> float:
        """Return milliseconds that never run backwards, for durations and deadlines."""
        return time.monotonic() * 1000.0

    def random_bits(self, count: int) -> int:
        """Return an unguessable number of `count` bits."""
        return secrets.randbits(count)

    def new_id(self) -> str:
        """Return a sortable, unguessable id: 50 bits of milliseconds, then 80 random bits."""
        moment_ms = max(0, int(self.now().timestamp() * 1000))
        return _digits(moment_ms, _TIME_DIGITS) + _digits(self.random_bits(80), _RANDOM_DIGITS)


class SeededWorld(World):
    """A world in which the same seed and clock give the same ids."""

    def __init__(self, seed: int, clock: Clock) -> None:
        super().__init__(clock)
        self._random = random.Random(seed)  # noqa: S311 - repeatable on purpose, tests only

    def random_bits(self, count: int) -> int:
        return self._random.getrandbits(count)


def _digits(number: int, width: int) -> str:
    digits = []
    for _ in range(width):
        number, rest = divmod(number, 32)
        digits.append(_ALPHABET[rest])
    return "".join(reversed(digits))


class Subscription(Protocol):
    """A subscription to the changes of a store."""

    def close(self) -> None:
        """End the notifications; safe to call twice."""
