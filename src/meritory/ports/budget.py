"""The budget for a language model: limits over the last hour and day, and the meter."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from meritory.domain.errors import BudgetSpent, InputError
from meritory.domain.session import Spending

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
# Sums of prices are not exact; a rounding error must not exceed a limit.
_TOLERANCE = 1e-9
_MIN_WAIT_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits on calls and cost in the last hour and the last 24 hours.

    The cost is in the currency of the prices. None is no limit.
    """

    calls_per_hour: int | None = None
    calls_per_day: int | None = None
    cost_per_day: float | None = None

    def __post_init__(self) -> None:
        for name in ("calls_per_hour", "calls_per_day", "cost_per_day"):
            limit = getattr(self, name)
            if limit is not None and not 0 <= limit < math.inf:
                raise InputError(f"{name} must be 0 or more", hint="leave it out for no limit")

    def check(self, spent: Sequence[Spending], now: datetime, next_cost: float = 0.0) -> None:
        """Raise BudgetSpent, with the time to wait, when one more call would exceed a limit."""
        rules = (
            ("calls_per_hour", self.calls_per_hour, HOUR, False),
            ("calls_per_day", self.calls_per_day, DAY, False),
            ("cost_per_day", self.cost_per_day, DAY, True),
        )
        passed = []
        for name, limit, window, is_money in rules:
            if limit is not None:
                amounts = _within(spent, now, window, is_money)
                wait_s = _wait_s(amounts, limit - (next_cost if is_money else 1), window)
                if wait_s > 0.0:
                    passed.append((wait_s, name))
        if not passed:
            return
        wait_s, name = max(passed)
        # The limit of an hour is a constant.
        minutes = math.ceil(wait_s / 60.0)
        wait = f"{minutes} min" if minutes < 120 else f"{math.ceil(minutes / 60)} h"
        raising = "" if name == "calls_per_hour" else f"; or raise llm.{name}"
        raise BudgetSpent(
            f"the model's {name} is used up",
            hint=f"it resumes automatically in {wait}{raising}",
            retry_after_s=wait_s,
        )


class Meter:
    """Checks the budget before each call, and records the spending after it.

    Concurrent calls may all pass the check: a limit can be exceeded by the number of concurrent
    calls less one.
    """

    def __init__(
        self,
        budget: Budget,
        purpose: str,
        spent_since: Callable[[datetime], Sequence[Spending]],
        record: Callable[[Spending], None],
        clock: Callable[[], datetime],
    ) -> None:
        """Take the functions that read all spending since a moment and record a call."""
        self._budget = budget
        self._purpose = purpose
        self._spent_since = spent_since
        self._record = record
        self._clock = clock

    def before(self, worst_cost: float) -> None:
        """Raise BudgetSpent when a call that may cost this much is not allowed now."""
        now = self._clock()
        self._budget.check(self._spent_since(now - DAY), now, worst_cost)

    def after(self, model: str, input_tokens: int, output_tokens: int, cost: float) -> None:
        """Record the spending of a call, even if its reply was not usable."""
        now = self._clock()
        self._record(Spending(now, self._purpose, model, input_tokens, output_tokens, cost))


def _within(
    spent: Sequence[Spending], now: datetime, window: timedelta, is_money: bool
) -> list[tuple[float, float]]:
    """Return the spending in the window as (seconds until it expires, amount), oldest first.

    A clock set back leaves spending in the future. It counts as now, but only up to one window
    ahead, so that a jump of years does not block for years.
    """
    ages = ((now - spend.at, spend.cost if is_money else 1.0) for spend in spent)
    return sorted(
        (min(window - age, window).total_seconds(), amount)
        for age, amount in ages
        if abs(age) < window
    )


def _wait_s(amounts: Sequence[tuple[float, float]], room: float, window: timedelta) -> float:
    """Return the seconds until the amounts in the window fit into the room; 0 if they do."""
    if room < -_TOLERANCE:
        # It does not fit even into an empty window: only a higher limit helps.
        return window.total_seconds()
    total = math.fsum(amount for _, amount in amounts)
    if total <= room + _TOLERANCE:
        return 0.0
    for left_s, amount in amounts:
        total -= amount
        if total <= room + _TOLERANCE:
            return max(left_s, _MIN_WAIT_S)
    return window.total_seconds()
