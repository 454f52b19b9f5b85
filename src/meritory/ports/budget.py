"""How much may be spent on a model: limits over the last hour and day, and who keeps the books."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from meritory.domain.errors import BudgetSpent, InputError

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
# Sums of prices are not exact; a limit is not passed by a rounding error.
_TOLERANCE = 1e-9
_MIN_WAIT_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """One call of a model: what went in, what came out, and what that cost."""

    at: datetime
    model: str
    input_tokens: int
    output_tokens: int
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What may be spent; the hour and the day are the last ones, not those of a calendar.

    Money is in whatever currency the prices are in. None is no limit.
    """

    calls_per_hour: int | None = None
    calls_per_day: int | None = None
    cost_per_day: float | None = None

    def __post_init__(self) -> None:
        for name in ("calls_per_hour", "calls_per_day", "cost_per_day"):
            limit = getattr(self, name)
            if limit is not None and not 0 <= limit < math.inf:
                raise InputError(f"{name} must be 0 or more", hint="leave it out for no limit")

    def may_spend(self, spent: Sequence[Spend], now: datetime, next_cost: float = 0.0) -> bool:
        """Whether one more call, of at most this cost, keeps within every limit."""
        return not self._passed(spent, now, next_cost)

    def check(self, spent: Sequence[Spend], now: datetime, next_cost: float = 0.0) -> None:
        """Raise BudgetSpent, with the time to wait, when one more call would pass a limit."""
        passed = self._passed(spent, now, next_cost)
        if not passed:
            return
        wait_s, name = max(passed)
        # The limit of an hour is a constant.
        raising = "" if name == "calls_per_hour" else f"; or raise llm.{name}"
        raise BudgetSpent(
            f"the model's {name} is used up",
            hint=f"it goes on by itself in {_readable(wait_s)}{raising}",
            retry_after_s=wait_s,
        )

    def _passed(
        self, spent: Sequence[Spend], now: datetime, next_cost: float
    ) -> list[tuple[float, str]]:
        """The limits that one more call would pass, each with the seconds until it would not."""
        rules = (
            ("calls_per_hour", self.calls_per_hour, HOUR, False),
            ("calls_per_day", self.calls_per_day, DAY, False),
            ("cost_per_day", self.cost_per_day, DAY, True),
        )
        found = []
        for name, limit, window, is_money in rules:
            if limit is not None:
                amounts = _within(spent, now, window, is_money)
                wait_s = _wait_s(amounts, limit - (next_cost if is_money else 1), window)
                if wait_s > 0.0:
                    found.append((wait_s, name))
        return found


class SpendLedger(Protocol):
    """Where spending is written down; a store, outside of tests."""

    def spent_since(self, moment: datetime) -> Sequence[Spend]:
        """Everything spent at or after the moment, in any order."""
        ...

    def record_spend(self, spend: Spend) -> None:
        """Writes one call down for good."""
        ...


class Meter:
    """Holds calls to a budget: asked before each one, told after it.

    Two calls under way at once may both pass the last free place: a limit can be exceeded by as
    many calls as run side by side, less one.
    """

    def __init__(self, budget: Budget, ledger: SpendLedger, clock: Callable[[], datetime]) -> None:
        self._budget = budget
        self._ledger = ledger
        self._clock = clock

    def before(self, worst_cost: float) -> None:
        """Raise BudgetSpent when a call that may cost this much is not allowed now."""
        now = self._clock()
        self._budget.check(self._ledger.spent_since(now - DAY), now, worst_cost)

    def after(self, model: str, input_tokens: int, output_tokens: int, cost: float) -> None:
        """Write down what a call took, whether or not its reply was of any use."""
        self._ledger.record_spend(
            Spend(
                at=self._clock(),
                model=model,
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                cost=cost,
            )
        )


def _within(
    spent: Sequence[Spend], now: datetime, window: timedelta, is_money: bool
) -> list[tuple[float, float]]:
    """What was spent in the window as (seconds until it falls out, amount), oldest first.

    A clock set back leaves spending in the future: it counts as if it were now, but only as far
    ahead as the window is long, so that a jump of years does not block for years.
    """
    found = []
    for spend in spent:
        age = now - spend.at
        if abs(age) < window:
            left_s = min(window - age, window).total_seconds()
            found.append((left_s, spend.cost if is_money else 1.0))
    return sorted(found)


def _wait_s(amounts: Sequence[tuple[float, float]], room: float, window: timedelta) -> float:
    """Seconds until the amounts in the window sum to no more than the room; 0 when they do now."""
    if room < -_TOLERANCE:
        # Even an empty window has no place for it: only a higher limit helps.
        return window.total_seconds()
    total = math.fsum(amount for _, amount in amounts)
    if total <= room + _TOLERANCE:
        return 0.0
    for left_s, amount in amounts:
        total -= amount
        if total <= room + _TOLERANCE:
            return max(left_s, _MIN_WAIT_S)
    return window.total_seconds()


def _readable(seconds: float) -> str:
    minutes = math.ceil(seconds / 60.0)
    return f"{minutes} min" if minutes < 120 else f"{math.ceil(minutes / 60)} h"
