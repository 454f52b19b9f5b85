"""Belief: what moves it, how far one session can, how it fades, and that order leaves no trace."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meritory.domain.feedback import PRIOR_MASS, Belief, Witness
from meritory.rank.belief import (
    EVIDENCE_HALF_LIFE_DAYS,
    SESSION_CAPS,
    BeliefEvent,
    believe,
    faded,
    update,
)

TODAY = 20_000.0
WITNESSES: tuple[Witness, ...] = ("person", "agent", "judge")
WILD = st.floats(allow_nan=True, allow_infinity=True)
EVENTS = st.lists(
    st.builds(
        BeliefEvent,
        day=st.floats(TODAY - 400, TODAY),
        witness=st.sampled_from(WITNESSES),
        value=st.floats(-1.0, 1.0),
        session=st.none() | st.sampled_from(["a", "b", "c"]),
    ),
    max_size=12,
)


def said(value: float, witness: Witness = "person", session: str | None = "s") -> BeliefEvent:
    return BeliefEvent(TODAY, witness, value, session)


def close(one: Belief, other: Belief) -> None:
    assert one.as_of_day == other.as_of_day
    assert (one.support, one.doubt, one.undecided) == pytest.approx(
        (other.support, other.doubt, other.undecided), abs=1e-12
    )


def test_without_evidence_the_usefulness_is_a_half() -> None:
    assert Belief().usefulness == 0.5
    assert believe([]) == Belief()


def test_up_raises_down_lowers_and_both_cancel() -> None:
    up, down = believe([said(1.0)]), believe([said(-1.0)])
    assert up.usefulness == pytest.approx(3.0 / 5.0)
    assert down.usefulness == pytest.approx(2.0 / 5.0)
    assert believe([said(1.0), said(-1.0)]).usefulness == 0.5


def test_ratings_count_by_fractions() -> None:
    full, part = believe([said(1.0, "agent")]), believe([said(0.4, "agent")])
    assert (full.support, full.doubt, full.undecided) == (0.5, 0.0, 0.0)
    assert (part.support, part.undecided) == pytest.approx((0.2, 0.3))
    assert 0.5 < part.usefulness < full.usefulness
    assert (part.alpha, part.beta) == pytest.approx((2.0 + 0.2 + 0.15, 2.0 + 0.15))


def test_a_memory_that_is_never_used_stays_in_the_middle_and_is_not_contested() -> None:
    unused = believe([said(0.0, "agent", str(n)) for n in range(200)])
    assert unused.usefulness == 0.5
    assert not unused.is_contested


def test_many_lukewarm_sessions_say_lukewarm_and_not_certain() -> None:
    lukewarm = believe([said(0.2, "agent", str(n)) for n in range(500)])
    assert lukewarm.usefulness == pytest.approx(0.6, abs=0.01)


def test_a_person_weighs_more_than_the_agent_and_the_agent_more_than_the_judge() -> None:
    person, agent, judge = (believe([said(1.0, who)]).usefulness for who in WITNESSES)
    assert person > agent > judge > 0.5


def test_a_mistake_that_recurs_strengthens_the_lesson_that_warns_of_it() -> None:
    path = [
        believe([said(1.0, "person", str(n)) for n in range(times)]).usefulness
        for times in range(8)
    ]
    assert all(later > earlier for earlier, later in pairwise(path))
    assert path[-1] > 0.8


@given(st.sampled_from(WITNESSES), st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=300))
def test_one_witness_moves_a_belief_only_so_far_in_one_session(
    witness: Witness, values: list[float]
) -> None:
    held = believe([said(value, witness) for value in values])
    cap = SESSION_CAPS[witness]
    assert held.support + held.doubt + held.undecided <= cap + 1e-9
    assert abs(held.usefulness - 0.5) <= 0.5 * cap / (PRIOR_MASS + cap) + 1e-9


def test_sessions_and_witnesses_have_caps_of_their_own() -> None:
    one = believe([said(1.0, "agent", "a")] * 100)
    two = believe([said(1.0, "agent", "a")] * 100 + [said(1.0, "agent", "b")] * 100)
    both = believe([said(1.0, "agent", "a")] * 100 + [said(1.0, "judge", "a")] * 100)
    assert (one.support, two.support, both.support) == pytest.approx((1.0, 2.0, 1.2))


def test_without_a_session_a_day_counts_as_one() -> None:
    clicks = [BeliefEvent(TODAY + n / 100, "person", 1.0) for n in range(50)]
    assert believe(clicks).support == pytest.approx(2.0, abs=0.01)
    days = [BeliefEvent(TODAY + n, "person", 1.0) for n in range(3)]
    assert believe(days).support == pytest.approx(3.0, abs=0.05)


def test_evidence_halves_in_its_half_life_and_belief_returns_to_the_middle() -> None:
    held = believe([said(1.0), said(0.0, "agent"), said(-1.0, "judge")])
    later = faded(held, TODAY + EVIDENCE_HALF_LIFE_DAYS)
    assert (later.support, later.doubt, later.undecided) == pytest.approx((0.5, 0.1, 0.25))
    assert faded(held, TODAY + 1e9).usefulness == 0.5


@pytest.mark.parametrize("day", [TODAY, TODAY - 50.0, math.nan])
def test_a_clock_that_steps_back_changes_nothing(day: float) -> None:
    held = believe([said(1.0)])
    assert faded(held, day) == held


def test_high_evidence_both_ways_is_contested() -> None:
    fight = [said(1.0, "person", str(n)) for n in range(3)]
    fight += [said(-1.0, "person", str(n)) for n in range(3, 6)]
    assert believe(fight).is_contested
    assert not believe(fight[:3]).is_contested
    assert not faded(believe(fight), TODAY + 2 * EVIDENCE_HALF_LIFE_DAYS).is_contested


def test_a_full_word_on_either_side_is_just_enough_for_a_contest() -> None:
    assert Belief(support=1.0, doubt=1.0).is_contested
    assert not Belief(support=1.0, doubt=0.99).is_contested
    assert Belief(support=3.0, doubt=1.0).is_contested
    assert not Belief(support=0.2, doubt=1.2).is_contested


def test_a_memory_that_only_misled_is_contested() -> None:
    assert Belief(doubt=1.4).is_contested
    assert not Belief(doubt=0.9).is_contested


def test_a_single_protest_among_many_is_not_a_contest() -> None:
    praise = [said(1.0, "person", str(n)) for n in range(20)]
    assert not believe([*praise, said(-1.0, "person", "x")]).is_contested
    assert believe([*praise, *(said(-1.0, "person", f"x{n}") for n in range(7))]).is_contested


@given(EVENTS.flatmap(lambda events: st.tuples(st.just(events), st.permutations(events))))
def test_the_order_of_events_leaves_no_trace(
    lists: tuple[list[BeliefEvent], list[BeliefEvent]],
) -> None:
    events, shuffled = lists
    assert believe(events) == believe(shuffled)


@given(EVENTS, st.data())
@settings(max_examples=60)
def test_events_dealt_out_one_by_one_give_the_same_belief(
    events: list[BeliefEvent], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(events))
    held = Belief()
    for place, event in enumerate(shuffled):
        held = update(held, [event], counted=shuffled[:place])
    close(held, believe(events))


@given(EVENTS)
def test_events_of_other_sessions_need_not_be_told_again(events: list[BeliefEvent]) -> None:
    now = [event for event in events if event.session == "a"]
    rest = [event for event in events if event.session != "a"]
    close(update(believe(rest), now), believe(events))


@given(EVENTS, st.floats(TODAY, TODAY + 1000))
def test_fading_in_steps_is_fading_at_once(events: list[BeliefEvent], day: float) -> None:
    held = believe(events)
    close(faded(faded(held, (held.as_of_day + day) / 2.0), day), faded(held, day))


@given(st.lists(st.builds(BeliefEvent, day=WILD, witness=st.just("agent"), value=WILD), max_size=8))
def test_wild_events_never_give_a_wild_belief(events: list[BeliefEvent]) -> None:
    held = believe(events)
    assert 0.0 <= held.usefulness <= 1.0
    assert min(held.support, held.doubt, held.undecided) >= 0.0


@given(EVENTS, st.floats(-1.0, 1.0), st.floats(-1.0, 1.0))
def test_a_better_word_never_lowers_the_usefulness(
    events: list[BeliefEvent], one: float, other: float
) -> None:
    low, high = (believe([*events, said(value)]).usefulness for value in sorted((one, other)))
    assert low <= high + 1e-12


def test_a_word_beyond_the_scale_counts_as_its_end() -> None:
    assert believe([said(5.0)]) == believe([said(1.0)])
    assert believe([said(-5.0)]) == believe([said(-1.0)])


def test_what_is_not_finite_counts_for_nothing() -> None:
    broken = [said(math.nan), said(math.inf), BeliefEvent(math.inf, "person", 1.0, "s")]
    assert believe([*broken, said(0.5)]) == believe([said(0.5)])
