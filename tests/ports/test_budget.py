"""The budget: what may be spent, how long to wait, and that the books are kept."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meritory.domain.errors import BudgetSpent, InputError, PortError
from meritory.domain.session import Spending
from meritory.ports.budget import DAY, HOUR, Budget, Meter

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def may_spend(
    budget: Budget, spent: Sequence[Spending], now: datetime, next_cost: float = 0.0
) -> bool:
    """Whether one more call, of at most this cost, keeps within every limit."""
    try:
        budget.check(spent, now, next_cost)
    except BudgetSpent:
        return False
    return True


def spend(age: timedelta, cost: float = 0.0) -> Spending:
    return Spending(
        purpose="judge", at=NOW - age, model="m", input_tokens=10, output_tokens=5, cost=cost
    )


def waited(budget: Budget, spent: list[Spending], next_cost: float = 0.0) -> float:
    with pytest.raises(BudgetSpent) as caught:
        budget.check(spent, NOW, next_cost)
    assert not may_spend(budget, spent, NOW, next_cost)
    return caught.value.retry_after_s


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


def test_nothing_spent_is_allowed_and_no_limit_allows_everything() -> None:
    Budget(calls_per_hour=1, calls_per_day=1, cost_per_day=0.5).check([], NOW, 0.5)
    Budget().check([spend(minutes(1), 1e6)] * 1000, NOW, 1e9)


def test_the_last_free_call_is_allowed_and_the_next_one_waits_for_the_oldest() -> None:
    budget = Budget(calls_per_hour=3)
    spent = [spend(minutes(10)), spend(minutes(50))]
    assert may_spend(budget, spent, NOW)
    assert waited(budget, [*spent, spend(minutes(30))]) == pytest.approx(600)


def test_a_call_falls_out_of_the_hour_and_stays_in_the_day() -> None:
    spent = [spend(HOUR), spend(HOUR * 5)]
    assert may_spend(Budget(calls_per_hour=1), spent, NOW)
    assert waited(Budget(calls_per_day=2), spent) == pytest.approx(19 * 3600)


def test_money_counts_what_the_next_call_may_cost() -> None:
    budget = Budget(cost_per_day=1.0)
    spent = [spend(HOUR * 20, 0.5), spend(HOUR, 0.3)]
    assert may_spend(budget, spent, NOW, 0.2)
    assert waited(budget, spent, 0.21) == pytest.approx(4 * 3600)
    assert waited(budget, spent, 0.9) == pytest.approx(23 * 3600)


def test_a_call_that_can_never_fit_says_so_with_the_whole_window() -> None:
    assert waited(Budget(cost_per_day=1.0), [], 1.5) == DAY.total_seconds()
    assert waited(Budget(calls_per_hour=0), []) == HOUR.total_seconds()


def test_a_free_model_needs_no_money() -> None:
    assert may_spend(Budget(cost_per_day=0.0), [spend(minutes(1))] * 50, NOW, 0.0)
    assert not may_spend(Budget(cost_per_day=0.0), [], NOW, 0.001)


def test_the_longest_wait_of_all_limits_counts() -> None:
    budget = Budget(calls_per_hour=1, calls_per_day=1)
    assert waited(budget, [spend(minutes(1))]) == pytest.approx(DAY.total_seconds() - 60)


def test_the_error_says_what_is_used_up_and_travels() -> None:
    with pytest.raises(
        BudgetSpent, match=r"calls_per_day is used up.*llm\.calls_per_day"
    ) as caught:
        Budget(calls_per_day=1).check([spend(minutes(1))], NOW)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(copy, PortError)
    assert copy.retry_after_s == caught.value.retry_after_s == pytest.approx(86_340)
    assert caught.value.status == 429


def test_sums_of_prices_do_not_refuse_by_a_rounding_error() -> None:
    assert may_spend(Budget(cost_per_day=1.0), [spend(minutes(1), 0.1)] * 9, NOW, 0.1)


def test_a_clock_set_back_blocks_for_a_window_at_most() -> None:
    budget = Budget(calls_per_hour=1)
    assert waited(budget, [spend(-minutes(30))]) == HOUR.total_seconds()
    assert may_spend(budget, [spend(-DAY * 3650)], NOW)


@pytest.mark.parametrize("limit", [-1, float("nan"), float("inf")])
def test_absurd_limits_are_refused(limit: float) -> None:
    with pytest.raises(InputError, match="cost_per_day"):
        Budget(cost_per_day=limit)


ages = st.lists(st.tuples(st.integers(-100_000, 100_000), st.floats(0, 2)), max_size=30).map(
    lambda pairs: [spend(timedelta(seconds=age), cost) for age, cost in pairs]
)


@given(ages, st.integers(1, 10), st.integers(1, 20), st.floats(0.5, 5), st.floats(0, 0.5))
def test_waiting_as_long_as_told_is_enough(
    spent: list[Spending], per_hour: int, per_day: int, cost: float, next_cost: float
) -> None:
    budget = Budget(calls_per_hour=per_hour, calls_per_day=per_day, cost_per_day=cost)
    past = [entry for entry in spent if entry.at <= NOW]
    try:
        budget.check(past, NOW, next_cost)
    except BudgetSpent as error:
        assert 1.0 <= error.retry_after_s <= DAY.total_seconds()
        budget.check(past, NOW + timedelta(seconds=error.retry_after_s), next_cost)


@given(st.lists(st.integers(1, 7_200), min_size=40, max_size=120), st.integers(1, 8))
def test_whoever_obeys_never_passes_a_limit_in_any_window(gaps: list[int], per_hour: int) -> None:
    budget = Budget(calls_per_hour=per_hour, cost_per_day=2.0)
    made: list[Spending] = []
    now = NOW
    for gap in gaps:
        now += timedelta(seconds=gap)
        if may_spend(budget, made, now, 0.25):
            made.append(
                Spending(
                    purpose="judge", at=now, model="m", input_tokens=0, output_tokens=0, cost=0.25
                )
            )
    for entry in made:
        hour = [other for other in made if entry.at <= other.at < entry.at + HOUR]
        day = [other for other in made if entry.at <= other.at < entry.at + DAY]
        assert len(hour) <= per_hour
        assert sum(other.cost for other in day) <= 2.0


class Books:
    """A ledger in memory."""

    def __init__(self) -> None:
        self.spent: list[Spending] = []
        self.asked: list[datetime] = []

    def spent_since(self, moment: datetime) -> list[Spending]:
        self.asked.append(moment)
        return [entry for entry in self.spent if entry.at >= moment]

    def record_spend(self, spend: Spending) -> None:
        self.spent.append(spend)


def test_the_meter_asks_for_a_day_and_writes_down_with_the_clock() -> None:
    books = Books()
    meter = Meter(
        Budget(calls_per_hour=1), "judge", books.spent_since, books.record_spend, lambda: NOW
    )
    meter.before(0.1)
    meter.after("openai:m", 100, 20, 0.05)
    assert books.asked == [NOW - DAY]
    assert books.spent == [
        Spending(
            purpose="judge", at=NOW, model="openai:m", input_tokens=100, output_tokens=20, cost=0.05
        )
    ]
    with pytest.raises(BudgetSpent):
        meter.before(0.1)
