"""Packing under hard limits, and exploration: who is tried out, how often, at whose cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meritory.domain.policy import EXPLORATION_RATE
from meritory.rank.exploration import Rankings, explore
from meritory.rank.packing import Limits, Load, Packing, pack

WIDE = Limits(tokens=1_000, chars=10_000)


def load(
    tokens: list[int], required: list[int] | None = None, chars: list[int] | None = None
) -> Load:
    flags = [position in (required or []) for position in range(len(tokens))]
    return Load(tokens, chars if chars is not None else [4 * cost for cost in tokens], flags)


def rankings(baseline: list[int], predictor: list[int], barred: int | None = None) -> Rankings:
    return Rankings(baseline, predictor, [position != barred for position in range(len(baseline))])


def test_the_best_that_fit_are_packed_in_order() -> None:
    found = pack([2, 0, 1], load([10, 20, 30]), WIDE)
    assert found == Packing((2, 0, 1), (), 940, 9_760)


def test_what_does_not_fit_is_skipped_and_the_rest_goes_on() -> None:
    found = pack([0, 1, 2, 3], load([60, 50, 30, 20]), Limits(tokens=100, chars=10_000))
    assert found.chosen == (0, 2)
    assert found.tokens_left == 10


def test_the_character_limit_is_as_hard_as_the_budget() -> None:
    found = pack([0, 1, 2], load([1, 1, 1], chars=[50, 60, 40]), Limits(tokens=100, chars=100))
    assert found.chosen == (0, 2)
    assert found.chars_left == 10


def test_a_memory_may_fill_the_budget_to_the_last_token() -> None:
    assert pack([0, 1], load([70, 30]), Limits(tokens=100, chars=400)).chosen == (0, 1)


def test_required_memories_come_first_whatever_their_rank() -> None:
    found = pack([0, 1, 2, 3], load([10, 10, 10, 10], required=[3, 1]), WIDE)
    assert found.chosen == (1, 3, 0, 2)


def test_required_memories_take_at_most_their_share_and_the_overflow_is_named() -> None:
    found = pack([0, 1, 2, 3], load([40, 30, 20, 10], required=[0, 1, 2]), Limits(100, 10_000))
    assert found.chosen == (0, 2, 3)
    assert found.overflow == (1,)
    assert found.tokens_left == 30


def test_the_share_of_required_memories_holds_for_characters_too() -> None:
    found = pack([0, 1], load([1, 1], required=[0, 1], chars=[60, 1]), Limits(100, 100))
    assert (found.chosen, found.overflow) == ((0,), (1,))


def test_a_share_is_not_lost_to_rounding() -> None:
    limits = Limits(tokens=100, chars=1_000, required_share=0.29)
    assert pack([0], load([29], required=[0]), limits).chosen == (0,)


def test_a_count_limits_the_others_and_takes_no_room_for_what_is_left_out() -> None:
    found = pack([0, 1, 2, 3], load([2_000, 10, 10, 10], required=[3]), replace(WIDE, count=1))
    assert found == Packing((3, 1), (), 980, 9_920)


def test_nothing_worth_saying_is_nothing() -> None:
    assert pack([], load([10, 10], required=[0]), WIDE) == Packing((), (), 1_000, 10_000)
    assert pack([], load([]), WIDE).chosen == ()
    assert pack([0], load([10]), Limits(tokens=-5, chars=-5)) == Packing((), (), 0, 0)


def test_the_limits_as_shipped() -> None:
    assert Limits() == Limits(tokens=1_500, chars=9_500, required_share=0.6, count=None)


def test_a_position_named_twice_is_packed_once() -> None:
    assert pack([0, 0, 1], load([10, 10]), WIDE).chosen == (0, 1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Load([1, 2], [1], [False, False]), "2 token costs, 1 lengths"),
        (Load([1], [1], [False, False]), "2 required flags"),
        (Load([-1], [1], [False]), "less than nothing"),
        (Load([1], [-1], [False]), "less than nothing"),
    ],
)
def test_wrong_costs_are_refused(wrong: Load, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pack([0], wrong, WIDE)


COSTS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 400), st.booleans()), max_size=25)
LIMITS = st.builds(
    Limits,
    tokens=st.integers(0, 300),
    chars=st.integers(0, 2_000),
    required_share=st.floats(0.0, 1.0),
    count=st.none() | st.integers(0, 6),
)


def drawn(costs: list[tuple[int, int, bool]]) -> Load:
    return Load([c[0] for c in costs], [c[1] for c in costs], [c[2] for c in costs])


@given(COSTS, LIMITS, st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_laws_of_every_packing(
    costs: list[tuple[int, int, bool]], limits: Limits, chance: object
) -> None:
    order = list(range(len(costs)))
    chance.shuffle(order)  # type: ignore[attr-defined]
    found = pack(order, drawn(costs), limits)
    tokens = sum(costs[position][0] for position in found.chosen)
    chars = sum(costs[position][1] for position in found.chosen)
    assert (tokens, chars) == (limits.tokens - found.tokens_left, limits.chars - found.chars_left)
    assert min(found.tokens_left, found.chars_left) >= 0
    must = [position for position in found.chosen if costs[position][2]]
    assert sum(costs[position][0] for position in must) <= limits.tokens * limits.required_share + 1
    assert set(must).isdisjoint(found.overflow)
    assert sorted([*must, *found.overflow]) == [n for n, cost in enumerate(costs) if cost[2]]
    may = [position for position in found.chosen if not costs[position][2]]
    assert found.chosen == (*must, *may)
    for part in (must, may):
        assert part == sorted(part, key=order.index)
    if limits.count is None:
        for position in set(order) - set(found.chosen) - set(found.overflow):
            assert costs[position][0] > found.tokens_left or costs[position][1] > found.chars_left
    else:
        assert len(may) <= limits.count


def start(required: list[int] | None = None) -> tuple[Packing, Load]:
    """Six candidates of which the first three are injected."""
    costs = load([10] * 6, required)
    return pack([0, 1, 2], costs, Limits(tokens=40, chars=400, required_share=1.0)), costs


def test_the_lowest_slot_goes_to_the_most_disputed_candidate() -> None:
    packing, costs = start()
    found = explore(packing, costs, rankings([1, 2, 3, 4, 5, 6], [6, 3, 4, 5, 1, 2]), 0.01)
    assert (found.explored, found.replaced) == (4, 2)
    assert found.packing == replace(packing, chosen=(0, 1, 4))
    assert found.propensities.tolist() == [1, 1, 0.05, 1, 0.05, 1]


def test_most_of_the_time_nothing_changes_and_the_odds_are_still_on_record() -> None:
    packing, costs = start()
    found = explore(packing, costs, rankings([1, 2, 3, 4, 5, 6], [6, 3, 4, 5, 1, 2]), 0.05)
    assert found.packing is packing
    assert (found.explored, found.replaced) == (None, None)
    assert found.propensities.tolist() == [1, 1, 0.95, 1, 0.95, 1]


def test_a_required_memory_keeps_its_slot() -> None:
    packing, costs = start(required=[1, 2])
    found = explore(packing, costs, rankings([1, 2, 3, 4, 5, 6], [6, 3, 4, 5, 1, 2]), 0.0)
    assert packing.chosen == (1, 2, 0)
    assert found.packing.chosen == (1, 2, 4)


def test_a_required_memory_that_overflowed_does_not_come_in_by_chance() -> None:
    costs = load([10, 10, 10], required=[2])
    packing = pack([0, 1, 2], costs, Limits(tokens=20, chars=200, required_share=0.1))
    assert packing.overflow == (2,)
    assert explore(packing, costs, rankings([1, 2, 3], [3, 2, 1]), 0.0).explored is None


def test_only_eligible_candidates_are_tried() -> None:
    packing, costs = start()
    barred = rankings([1, 2, 3, 4, 5, 6], [6, 3, 4, 5, 1, 2], barred=4)
    assert explore(packing, costs, barred, 0.0).explored == 5


def test_a_silent_predictor_is_no_disagreement() -> None:
    packing, costs = start()
    silent = rankings([1, 2, 3, 4, 5, 6], [1, 2, 3, 5, 7, 7])
    assert explore(packing, costs, silent, 0.0).explored == 3


def test_of_equal_gaps_the_one_a_ranker_puts_highest_is_tried() -> None:
    packing, costs = start()
    equal = rankings([2, 4, 6, 5, 3, 1], [2, 4, 5, 6, 1, 3])
    assert explore(packing, costs, equal, 0.0).explored == 4


def test_a_newcomer_that_does_not_fit_is_not_tried() -> None:
    costs = load([10, 10, 30, 20])
    packing = pack([0, 1], costs, Limits(tokens=30, chars=120))
    found = explore(packing, costs, rankings([1, 2, 4, 3], [4, 3, 1, 2]), 0.0)
    assert found.explored == 3
    assert (found.packing.tokens_left, found.packing.chars_left) == (0, 0)
    narrow = replace(costs, chars=[40, 40, 120, 81])
    assert explore(packing, narrow, rankings([1, 2, 4, 3], [4, 3, 1, 2]), 0.0).explored is None


@pytest.mark.parametrize("predictor", [[1, 2, 3, 4, 5, 6], [6, 5, 4, 7, 7, 7]])
def test_without_disagreement_nothing_is_tried(predictor: list[int]) -> None:
    packing, costs = start()
    found = explore(packing, costs, rankings([1, 2, 3, 4, 5, 6], predictor), 0.0)
    assert found.explored is None
    assert found.propensities.tolist() == [1] * 6


def test_a_rate_of_nothing_never_explores() -> None:
    packing, costs = start()
    found = explore(packing, costs, rankings([1, 2, 3, 4, 5, 6], [6, 3, 4, 5, 1, 2]), 0.0, rate=0.0)
    assert found.explored is None
    assert found.propensities.tolist() == [1] * 6


def test_a_rate_of_one_always_explores() -> None:
    packing, costs = start()
    disputed = rankings([1, 2, 3, 4, 5, 6], [6, 3, 4, 5, 1, 2])
    assert explore(packing, costs, disputed, 0.999, rate=1.0).explored == 4


def test_when_nothing_or_only_required_memories_are_injected_nothing_is_tried() -> None:
    disputed = rankings([1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1])
    _, costs = start()
    assert explore(pack([], costs, WIDE), costs, disputed, 0.0).packing.chosen == ()
    packing, costs = start(required=[0, 1, 2])
    assert explore(packing, costs, disputed, 0.0).packing.chosen == (0, 1, 2)


def test_a_rate_that_is_no_probability_is_refused() -> None:
    packing, costs = start()
    for rate in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="exploration rate"):
            explore(packing, costs, rankings([1] * 6, [1] * 6), 0.0, rate)


def test_rankings_of_another_size_are_refused() -> None:
    packing, costs = start()
    with pytest.raises(ValueError, match="6 candidates, 1 and 1 ranks"):
        explore(packing, costs, rankings([1], [1]), 0.0)


def test_over_many_sessions_it_explores_as_often_as_it_says() -> None:
    packing, costs = start()
    disputed = rankings([1, 2, 3, 4, 5, 6], [6, 3, 4, 5, 1, 2])
    draws = (np.arange(2_000) + 0.5) / 2_000
    tried = sum(explore(packing, costs, disputed, float(u)).explored is not None for u in draws)
    assert tried / len(draws) == pytest.approx(EXPLORATION_RATE)


@given(COSTS, LIMITS, st.data())
@settings(max_examples=60)
def test_laws_of_every_exploration(
    costs: list[tuple[int, int, bool]], limits: Limits, data: st.DataObject
) -> None:
    places = st.permutations(range(1, len(costs) + 1))
    sides = Rankings(
        data.draw(places), data.draw(places), [data.draw(st.booleans()) for _ in costs]
    )
    packing = pack(range(len(costs)), drawn(costs), limits)
    draw, rate = data.draw(st.floats(0.0, 0.999)), data.draw(st.floats(0.0, 1.0))
    found = explore(packing, drawn(costs), sides, draw, rate)
    before, after = set(packing.chosen), set(found.packing.chosen)
    assert sum(costs[n][0] for n in after) == limits.tokens - found.packing.tokens_left
    assert min(found.packing.tokens_left, found.packing.chars_left) >= 0
    assert ((found.propensities >= 0.0) & (found.propensities <= 1.0)).all()
    if found.explored is None:
        assert found.packing is packing
        return
    assert draw < rate
    assert after - before == {found.explored}
    assert before - after == {found.replaced}
    assert len(after) == len(before)
    assert not costs[found.explored][2]
    assert not costs[found.replaced or 0][2]
    assert np.asarray(sides.eligible)[found.explored]
    assert found.packing.chosen[-1] == found.explored
    assert found.propensities[[found.explored, found.replaced]].tolist() == [rate, rate]
