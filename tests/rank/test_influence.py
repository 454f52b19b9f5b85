"""Influence: what one session says, what many prove, and who is let in when.

The rates of the last part were measured with ten times as many streams; the bounds leave room for
chance, and each would be broken by a rule that listens to luck.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.rank import influence
from tenure.rank.fuse import RRF_K
from tenure.rank.influence import (
    ALPHAS,
    Margins,
    Outcome,
    Standing,
    Weighing,
    compare,
    earned,
    has_shown_itself,
    judged,
    missing,
    no_margins,
    weigh,
    weighed,
)

WINDOW = 10
Floats = influence.Floats
# Under its own name pytest would take it for a test.
replay_says = influence.testimony


# -- one session ----------------------------------------------------------------------------


def dcg(gains: Sequence[float]) -> float:
    return sum(gain / math.log2(place + 2) for place, gain in enumerate(gains[:10]))


def plain(baseline: list[int], predictor: list[int], labels: list[float], k: int) -> Outcome:
    """The same once more, with lists and loops."""
    gains = [max(0.0, label) for label in labels]
    ideal = dcg(sorted(gains, reverse=True))
    count = range(len(gains))

    def quality(order: list[int]) -> tuple[float, float]:
        logs = [gains[one] * math.log(place) for place, one in enumerate(order, 1)]
        return dcg([gains[one] for one in order]) / ideal, -sum(logs) / sum(gains)

    by_baseline = sorted(count, key=lambda one: baseline[one])
    by_predictor = sorted(count, key=lambda one: predictor[one])
    place = {one: n for n, one in enumerate(by_baseline, 1)}
    other = {one: n for n, one in enumerate(by_predictor, 1)}
    base = quality(by_baseline)
    fused = []
    for alpha in ALPHAS:
        score = {one: alpha / (k + place[one]) + (1 - alpha) / (k + other[one]) for one in count}
        fused.append(quality(sorted(count, key=lambda one: (-score[one], place[one]))))
    return Outcome(
        quality(by_predictor)[0],
        base[0],
        tuple(one[0] - base[0] for one in fused),
        tuple(one[1] - base[1] for one in fused),
    )


def test_one_session_by_hand() -> None:
    found = compare([1, 2, 3], [3, 1, 2], [0.0, 1.0, 0.5])
    assert found is not None
    log3 = math.log2(3)
    ideal = 1.0 + 0.5 / log3
    assert found.baseline_ndcg == pytest.approx((1.0 / log3 + 0.5 / 2.0) / ideal)
    assert found.predictor_ndcg == 1.0
    assert found.margin == pytest.approx(1.0 - (1.0 / log3 + 0.25) / ideal)
    assert found.won == 1.0
    # With nearly all the weight the fusion is the predictor's order.
    assert found.ndcg[-1] == pytest.approx(found.margin)
    ours, theirs = 0.5 * math.log(2) / 1.5, (math.log(2) + 0.5 * math.log(3)) / 1.5
    assert found.log_rank[-1] == pytest.approx(theirs - ours)
    # With a tenth of it the first place stays where it was.
    assert found.ndcg[0] == pytest.approx(0.0)


@given(
    st.lists(
        st.tuples(st.integers(1, 99), st.integers(1, 99), st.floats(-1.0, 1.0)),
        min_size=1,
        max_size=25,
        unique_by=(lambda one: one[0], lambda one: one[1]),
    ),
    st.sampled_from([1, RRF_K, 60]),
)
def test_a_session_is_as_its_plain_twin_says(
    candidates: list[tuple[int, int, float]], k: int
) -> None:
    baseline, predictor, labels = ([one[n] for one in candidates] for n in range(3))
    found = compare(baseline, predictor, labels, k)
    if max(labels) <= 0.0 or sum(max(0.0, one) for one in labels) < 1e-200:
        return
    assert found is not None
    twin = plain(baseline, predictor, labels, k)
    for item in fields(Outcome):
        assert getattr(found, item.name) == pytest.approx(getattr(twin, item.name), abs=1e-9)


@pytest.mark.parametrize("labels", [[0.0, 0.0], [-1.0, -0.5], [math.nan, 0.0], []])
def test_without_anything_that_helped_there_is_nothing_to_compare(labels: list[float]) -> None:
    ranks = list(range(1, len(labels) + 1))
    assert compare(ranks, ranks[::-1], labels) is None


def test_a_label_that_is_no_number_is_no_gain() -> None:
    assert compare([1, 2, 3], [3, 2, 1], [math.nan, 1.0, 0.0]) == compare(
        [1, 2, 3], [3, 2, 1], [0.0, 1.0, 0.0]
    )


def test_harm_counts_as_no_help_and_no_more() -> None:
    assert compare([1, 2], [2, 1], [-1.0, 0.5]) == compare([1, 2], [2, 1], [0.0, 0.5])


def test_only_the_order_among_the_labelled_counts() -> None:
    assert compare([7, 90, 91], [40, 2, 3], [0, 1, 0]) == compare([1, 2, 3], [3, 1, 2], [0, 1, 0])


def test_places_beyond_the_tenth_count_in_the_log_rank_alone() -> None:
    ranks, labels = np.arange(1, 31), np.zeros(30)
    labels[25] = 1.0
    other = ranks.copy()
    other[[25, 12]] = other[[12, 25]]
    found = compare(ranks, other, labels)
    assert found is not None
    assert (found.predictor_ndcg, found.baseline_ndcg, found.won) == (0.0, 0.0, 0.5)
    assert found.log_rank[-1] == pytest.approx(math.log(26) - math.log(13))


@pytest.mark.parametrize(
    ("margin", "won"), [(0.0, 0.5), (9e-7, 0.5), (-9e-7, 0.5), (2e-6, 1.0), (-2e-6, 0.0)]
)
def test_a_difference_that_small_is_a_tie(margin: float, won: float) -> None:
    assert Outcome(0.5 + margin, 0.5, (), ()).won == won


# -- what many sessions prove -----------------------------------------------------------------


def margins(ndcg: float, log_rank: float, count: int = 40) -> Margins:
    """Sessions whose means lie so many standard errors above 0, alike for every alpha."""

    def column(errors: float) -> Floats:
        values = np.where(np.arange(count) % 2, 1.0, -1.0)
        return values + errors * values.std(ddof=1) / math.sqrt(count)

    shape = np.ones(len(ALPHAS))
    return Margins(np.outer(column(ndcg), shape), np.outer(column(log_rank), shape))


def proved(weighings: Sequence[Weighing]) -> bool:
    told = {one.is_proved for one in weighings}
    assert len(told) == 1
    return told.pop()


@pytest.mark.parametrize(
    ("ndcg", "log_rank", "alphas"),
    [
        (0.51, 2.49, ()),
        (0.51, 2.51, (0.9, 0.75, 0.6)),
        # The less is left of the baseline, the surer it must be.
        (0.51, 2.74, (0.9, 0.75, 0.6)),
        (0.51, 2.76, (0.9, 0.75, 0.6, 0.4)),
        (0.51, 3.24, (0.9, 0.75, 0.6, 0.4, 0.2)),
        (0.51, 3.26, ALPHAS),
        (0.49, 3.26, ()),
        (9.0, 2.49, ()),
        (0.49, 9.0, ()),
        (-9.0, 9.0, ()),
    ],
)
def test_what_the_replay_must_show(ndcg: float, log_rank: float, alphas: tuple[float, ...]) -> None:
    told = replay_says(margins(ndcg, log_rank))
    assert tuple(one.alpha for one in told if one.is_proved) == alphas
    assert [one.alpha for one in told] == list(ALPHAS)
    assert {one.session_count for one in told} == {40}
    for one in told:
        assert one.ndcg_errors == pytest.approx(ndcg)
        assert one.log_rank_errors == pytest.approx(log_rank)


@pytest.mark.parametrize(
    ("ndcg", "log_rank", "agrees"),
    [
        (0.01, 0.51, True),
        (0.01, 0.49, False),
        (-0.01, 0.51, False),
        (-0.01, 9.0, False),
        (9.0, 0.49, False),
    ],
)
def test_the_record_must_not_speak_against_it(ndcg: float, log_rank: float, agrees: bool) -> None:
    sure = replay_says(margins(4.0, 4.0))
    told = weigh(margins(ndcg, log_rank), sure)
    assert proved(told) == agrees
    # The numbers are the replay's.
    assert [replace(one, is_proved=True) for one in told] == list(sure)
    unsure = replay_says(margins(0.0, 0.0))
    assert not proved(weigh(margins(9.0, 9.0), unsure))


@pytest.mark.parametrize(
    ("ndcg", "log_rank", "is_proved"), [(2.01, -9.0, True), (1.99, 9.0, False)]
)
def test_without_a_replay_the_record_must_be_surer(
    ndcg: float, log_rank: float, is_proved: bool
) -> None:
    # Where there will be one, it is waited for.
    assert not proved(weigh(margins(ndcg, log_rank), ()))
    assert proved(weigh(margins(ndcg, log_rank), None)) == is_proved


@pytest.mark.parametrize("count", [0, 1])
def test_next_to_nothing_proves_nothing(count: int) -> None:
    few = Margins(np.ones((count, len(ALPHAS))), np.ones((count, len(ALPHAS))))
    assert not proved(replay_says(few))
    assert not proved(weigh(few, None))
    assert earned(weigh(few, replay_says(margins(9.0, 9.0)))) == 1.0
    assert no_margins().ndcg.shape == (0, len(ALPHAS))


def test_what_never_varies_proves_nothing() -> None:
    """A constant has no standard error: no number of equal sessions says how sure one may be."""
    flat = Margins(np.full((30, len(ALPHAS)), 0.1), np.full((30, len(ALPHAS)), 0.1))
    assert not proved(replay_says(flat))
    assert not proved(weigh(flat, None))


def test_only_the_latest_sessions_are_heard() -> None:
    good, bad = margins(3.0, 3.0, 60), margins(-3.0, -3.0, 60)

    def joined(first: Margins, then: Margins) -> Margins:
        return Margins(
            np.vstack([first.ndcg, then.ndcg]), np.vstack([first.log_rank, then.log_rank])
        )

    assert proved(weigh(joined(bad, good), None))
    assert not proved(weigh(joined(good, bad), None))
    long = margins(4.0, 4.0, influence.REPLAY_SESSIONS)
    assert proved(replay_says(joined(bad, long)))
    assert replay_says(joined(bad, long))[0].session_count == influence.REPLAY_SESSIONS


def weighing(alpha: float, margin: float, errors: float, is_proved: bool = True) -> Weighing:
    return Weighing(alpha, 40, margin, errors, 3.0, is_proved)


def test_the_surest_of_what_is_proved_is_taken() -> None:
    assert earned([]) == 1.0
    assert earned([weighing(0.9, 0.5, 9.0, is_proved=False)]) == 1.0
    # 0.05 with an error of 0.01 against 0.06 with one of 0.03: less one error, 0.04 and 0.03.
    assert earned([weighing(0.6, 0.05, 5.0), weighing(0.2, 0.06, 2.0)]) == 0.6
    assert earned([weighing(0.6, 0.05, 5.0, is_proved=False), weighing(0.2, 0.06, 2.0)]) == 0.2
    # Of equals the one nearest to the baseline.
    assert earned([weighing(0.9, 0.05, 5.0), weighing(0.05, 0.05, 5.0)]) == 0.9


# -- the state --------------------------------------------------------------------------------


OPEN = [weighing(0.2, 0.1, 4.0)]
SHUT = [weighing(0.2, 0.1, 4.0, is_proved=False)]


def after(outcomes: Sequence[float | None], standing: Standing | None = None) -> Standing:
    """The standing after so many comparisons, with evidence for an alpha of 0.2 all along."""
    standing = standing or Standing()
    for won in outcomes:
        standing, _ = judged(standing, won, WINDOW)
        standing = weighed(standing, OPEN, "replay")
    return standing


@pytest.mark.parametrize(
    ("outcomes", "is_cold", "waits_for"),
    [
        # Judged sessions: nine are too few, ties do as well as any.
        ([1.0] * 9, True, {"judged_sessions": 1}),
        ([1.0] * 10, False, {}),
        ([1.0] * 8 + [0.5] * 2, False, {}),
        # Non-ties: seven are too few.
        ([1.0] * 7 + [0.5] * 30, True, {"non_ties": 1}),
        ([0.5] * 30, True, {"non_ties": 8, "wins": 1}),
        # Wins: more than half, and half is not more.
        ([0.0, 1.0] * 5, True, {"wins": 1}),
        ([0.0, 1.0] * 5 + [1.0], False, {}),
        ([1.0] * 4 + [0.0] * 6, True, {"wins": 2}),
        # What is left out is left out of all of it.
        ([1.0] * 9 + [None] * 9, True, {"judged_sessions": 1}),
    ],
)
def test_cold_start(outcomes: list[float | None], is_cold: bool, waits_for: dict[str, int]) -> None:
    found = after(outcomes)
    assert found.is_cold == is_cold
    assert missing(found) == waits_for
    assert has_shown_itself(found) == (not waits_for)
    assert found.alpha == (1.0 if is_cold else 0.8)


def test_fewer_sessions_do_where_fewer_are_asked_for() -> None:
    standing = after([1.0] * 9)
    assert weighed(standing, OPEN, "replay", min_judged=9).alpha == 0.8
    assert weighed(standing, OPEN, "replay", min_judged=10).alpha == 1.0


def test_who_has_shown_itself_still_needs_the_proof() -> None:
    standing = Standing()
    for _ in range(40):
        standing, _ = judged(standing, 1.0, WINDOW)
        standing = weighed(standing, SHUT, "replay")
        assert standing.alpha == 1.0
    assert has_shown_itself(standing)
    assert weighed(standing, OPEN, "replay").alpha == 0.8


def test_the_ramp_lets_it_in_by_steps() -> None:
    standing = after([1.0] * 10)
    served = []
    for _ in range(25):
        served.append(standing.alpha)
        standing = after([1.0], standing)
    assert served == [0.8] * 10 + [0.6] * 10 + [0.2] * 5
    # The ramp goes on while nothing is proved; what was earned goes at once.
    paused = weighed(after([1.0] * 15), SHUT, "replay")
    assert (paused.alpha, paused.is_cold) == (1.0, False)
    assert after([1.0] * 6, paused).alpha == 0.6


def test_a_higher_alpha_than_the_ramp_asks_for_stands() -> None:
    standing = weighed(after([1.0] * 10), [weighing(0.9, 0.1, 4.0)], "replay")
    assert standing.alpha == 0.9


def test_the_seeds_rule_is_the_success_rate() -> None:
    standing = Standing()
    rate = 0.5
    for n, won in enumerate([1.0] * 12 + [0.0, 0.5] * 15):
        standing, _ = judged(standing, won, 99)
        standing = weighed(standing, SHUT, "seed")
        rate = 0.9 * rate + 0.1 * won
        assert standing.success_rate == pytest.approx(rate)
        if n >= 9:
            assert standing.earned_alpha == pytest.approx(1.0 - rate)
    assert standing.alpha == pytest.approx(1.0 - rate)


def test_what_is_left_out_moves_nothing() -> None:
    standing = after([1.0] * 12)
    assert judged(standing, None, WINDOW) == (standing, False)


# -- drift ------------------------------------------------------------------------------------


def test_a_drift_takes_everything_away_once_an_episode() -> None:
    standing = after([1.0] * 40)
    assert standing.alpha == 0.2
    resets, rates = [], []
    for n in range(60):
        standing, has_drifted = judged(standing, 0.0, WINDOW)
        rates.append(standing.success_rate)
        if has_drifted:
            resets.append(n)
            assert standing.success_rate == 0.5
            assert standing.alpha == 1.0
            assert standing.is_cold
            # Whatever spoke for it before does not let it in again at once.
            assert weighed(standing, OPEN, "replay").alpha == 1.0
            assert weighed(standing, OPEN, "seed").alpha == 1.0
        assert standing.drift_resets == len(resets)
    # From 0.99 it takes twelve losses to come below 0.3, and ten sessions there are a drift.
    first = next(n for n in range(60) if 0.9 ** (n + 1) * after([1.0] * 40).success_rate < 0.3)
    assert resets[0] == first + WINDOW - 1
    # From 0.5 it takes five, and ten again: never within the cool-down.
    assert np.diff(resets).tolist() == [4 + WINDOW] * (len(resets) - 1)
    assert min(np.diff(resets)) > WINDOW


def test_no_second_reset_before_the_cool_down_is_over() -> None:
    low = Standing(success_rate=0.1, judged=50, calm_until=60, low_streak=30)
    resets = []
    for n in range(51, 62):
        low, has_drifted = judged(low, 0.0, WINDOW)
        if has_drifted:
            resets.append(n)
    assert resets == [60]


def test_a_streak_that_is_broken_is_no_drift() -> None:
    standing = Standing(success_rate=0.29)
    for _ in range(20):
        for won in [0.0] * 5 + [1.0] * 3:
            standing, has_drifted = judged(standing, won, WINDOW)
            assert not has_drifted


def test_after_a_drift_it_has_to_show_itself_and_climb_the_ramp_again() -> None:
    standing = after([1.0] * 40)
    has_drifted = False
    while not has_drifted:
        standing, has_drifted = judged(standing, 0.0, WINDOW)
    standing = after([1.0] * 7, standing)
    assert standing.is_cold
    standing = after([1.0], standing)
    assert standing.alpha == 0.8
    assert after([1.0] * 9, standing).alpha == 0.8
    assert after([1.0] * 10, standing).alpha == 0.6


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.5, 1.0, None]),
            st.lists(
                st.builds(
                    Weighing,
                    st.sampled_from(ALPHAS),
                    st.integers(0, 99),
                    st.floats(-1, 1),
                    st.floats(-9, 9),
                    st.floats(-9, 9),
                    st.booleans(),
                ),
                max_size=6,
            ),
        ),
        max_size=60,
    ),
    st.sampled_from(["replay", "seed"]),
    st.integers(1, 12),
)
@settings(max_examples=60)
def test_alpha_is_always_a_weight_and_cold_is_silent(
    steps: list[tuple[float | None, list[Weighing]]], rule: influence.Rule, window: int
) -> None:
    standing = Standing()
    for won, weighings in steps:
        standing, has_drifted = judged(standing, won, window)
        standing = weighed(standing, weighings, rule)
        assert 0.0 <= standing.alpha <= 1.0
        assert 0.0 <= standing.success_rate <= 1.0
        assert not has_drifted or standing.alpha == 1.0
        if standing.is_cold or standing.judged < influence.MIN_JUDGED:
            assert standing.alpha == 1.0
        assert standing.wins <= standing.non_ties <= standing.judged


# -- luck and skill -----------------------------------------------------------------------------

STREAMS = 300
SESSIONS = 60
Draw = Callable[[np.random.Generator, int], tuple[Margins, Floats]]
_SHARES = np.array([1.0 - alpha for alpha in ALPHAS])


def normal(shift: float) -> Draw:
    """Margins around a shift; a bolder fusion gains and loses more."""

    def draw(rng: np.random.Generator, count: int) -> tuple[Margins, Floats]:
        skill = rng.normal(shift, 0.2, (count, 1))
        rank = rng.normal(2.0 * shift, 0.3, (count, 1)) + skill
        shape = (count, len(ALPHAS))
        ndcg = skill * _SHARES + rng.normal(0.0, 0.03, shape)
        return Margins(ndcg, rank * _SHARES + rng.normal(0.0, 0.05, shape)), skill[:, 0]

    return draw


def sparse(shift: float) -> Draw:
    """Mostly ties, now and then a margin that is far out."""

    def draw(rng: np.random.Generator, count: int) -> tuple[Margins, Floats]:
        far = np.clip(rng.standard_t(1.5, (count, 1)) * 0.1, -1.0, 1.0)
        skill = np.where(rng.random((count, 1)) < 0.3, far + shift, 0.0)
        rank = 2.0 * skill + np.where(skill != 0.0, rng.normal(0.0, 0.3, (count, 1)), 0.0)
        return Margins(skill * _SHARES, rank * _SHARES), skill[:, 0]

    return draw


@dataclass(frozen=True)
class Openings:
    """Of the streams the share that ever opened, of the steps the share that was open."""

    replay_ever: float
    replay_steps: float
    seed_ever: float


def openings(draw: Draw, seed: int, streams: int = STREAMS) -> Openings:
    """Both rules on the same streams.

    The replay and the record see the same sessions, the worst case: two witnesses, one mistake.
    """
    opened = np.zeros((streams, SESSIONS), np.bool_)
    by_seed = np.zeros((streams, SESSIONS), np.bool_)
    for stream in range(streams):
        seen, skill = draw(np.random.default_rng([seed, stream]), SESSIONS)
        ours = theirs = Standing()
        told: tuple[Weighing, ...] = ()
        for n in range(SESSIONS):
            won = 0.5 if abs(skill[n]) < 1e-6 else float(skill[n] > 0.0)
            so_far = Margins(seen.ndcg[: n + 1], seen.log_rank[: n + 1])
            if n % 10 == 9:
                told = replay_says(so_far)
            ours, _ = judged(ours, won, WINDOW)
            if not ours.is_cold or has_shown_itself(ours):
                ours = weighed(ours, weigh(so_far, told), "replay")
            theirs = weighed(judged(theirs, won, WINDOW)[0], (), "seed")
            opened[stream, n] = ours.alpha < 1.0
            by_seed[stream, n] = theirs.alpha < 1.0
    return Openings(opened.any(1).mean(), opened.mean(), by_seed.any(1).mean())


def test_luck_opens_rarely() -> None:
    """Measured on 1,000 streams of 60 sessions: 8 % ever opened, in 1.7 % of the steps."""
    found = openings(normal(0.0), 1)
    assert found.replay_ever <= 0.12
    assert found.replay_steps <= 0.04
    # The seed's rule listens to luck: measured 79 %.
    assert found.seed_ever >= 0.6


def test_rare_luck_that_is_far_out_opens_rarely_too() -> None:
    """Measured on 1,000 streams: 1.1 % ever opened, in 0.1 % of the steps."""
    found = openings(sparse(0.0), 1)
    assert found.replay_ever <= 0.04
    assert found.replay_steps <= 0.01
    # Measured 65 %.
    assert found.seed_ever >= 0.5


def test_a_real_advantage_opens() -> None:
    """Measured on 300 streams: 99 % opened, for 65 % of the steps, ten of which are cold start."""
    found = openings(normal(0.08), 1, 100)
    assert found.replay_ever >= 0.95
    assert found.replay_steps >= 0.55
