"""The only source of time, randomness and ids, and the text form of moments.

`SeededWorld` is for tests and replays.
"""

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
# Two digits at a time.
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_TIME_DIGITS, _RANDOM_DIGITS = 10, 16
ID_LENGTH = _TIME_DIGITS + _RANDOM_DIGITS


def moment_text(moment: datetime) -> str:
    """Return ISO 8601 in UTC with offset and fixed width, so that text order is time order."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def epoch_days(moment: datetime) -> float:
    """Return a moment as days since 1970."""
    return moment.timestamp() / 86_400.0


def parse_moment(value: object, name: str = "time") -> datetime:
    """Return a moment in UTC from a datetime or ISO 8601 text; without an offset it is UTC."""
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value.strip())
        if isinstance(value, datetime):
            aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
            return aware.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InputError(
            f"{name}: {str(value)[:40]!r} is not a time between the years 1 and 9999",
            hint="use ISO 8601, e.g. 2026-11-15T08:30:00+01:00",
        ) from error
    raise InputError(
        f"{name}: expected a time, got {type(value).__name__}",
        hint="use ISO 8601, e.g. 2026-11-15T08:30:00+01:00",
    )


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
    """Return the last digits of a number, an even count of them."""
    pairs = [_PAIRS[number >> shift & 1023] for shift in range(5 * width - 10, -1, -10)]
    return "".join(pairs)


class Subscription(Protocol):
    """A subscription to the changes of a store."""

    def close(self) -> None:
        """End the notifications; safe to call twice."""
