"""Influence: how one session compares both orders, what many prove, and when it is served.

The rates of the last part were measured on more streams; the bounds leave room for chance.
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
    MIN_JUDGED,
    MIN_NON_TIES,
    MIN_RECORD,
    NDCG_SHARE,
    RECORD_ERRORS,
    RECORD_SESSIONS,
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
from tenure.rank.proof import MIN_SESSIONS, PARTIAL_FACTOR, VALID_ERRORS, HistoryProof

WINDOW = 10
Floats = influence.Floats
VALID = HistoryProof(session_count=20, validity=9.0)


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
    baseline, predictor = [one[0] for one in candidates], [one[1] for one in candidates]
    labels = [one[2] for one in candidates]
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
        return np.asarray(values + errors * values.std(ddof=1) / math.sqrt(count))

    shape = np.ones(len(ALPHAS))
    return Margins(np.outer(column(ndcg), shape), np.outer(column(log_rank), shape))


def proved(weighings: Sequence[Weighing]) -> bool:
    told = {one.is_proved for one in weighings}
    assert len(told) == 1
    return told.pop()


def alphas_proved(weighings: Sequence[Weighing]) -> tuple[float, ...]:
    return tuple(one.alpha for one in weighings if one.is_proved)


def alphas_within(log_rank: float, factor: float = 1.0) -> tuple[float, ...]:
    """Return the alphas that take no more than so many standard errors in log rank."""
    pairs = zip(ALPHAS, RECORD_ERRORS, strict=True)
    return tuple(alpha for alpha, needed in pairs if factor * needed <= log_rank)


# Just below and just above each threshold.
STEPS = sorted({needed + step for needed in RECORD_ERRORS for step in (-0.01, 0.01)})


def test_a_bolder_alpha_takes_at_least_as_much_proof() -> None:
    assert list(RECORD_ERRORS) == sorted(RECORD_ERRORS)
    assert min(RECORD_ERRORS) > 0.0
    assert alphas_within(STEPS[0]) == ()
    assert alphas_within(STEPS[-1]) == ALPHAS


@pytest.mark.parametrize("log_rank", STEPS)
def test_the_record_must_lie_so_many_standard_errors_above_zero(log_rank: float) -> None:
    found = weigh(margins(9.0, log_rank), VALID)
    assert alphas_proved(found) == alphas_within(log_rank)
    assert [one.alpha for one in found] == list(ALPHAS)
    assert {one.session_count for one in found} == {40}
    for one in found:
        assert one.ndcg_errors == pytest.approx(9.0)
        assert one.log_rank_errors == pytest.approx(log_rank)


@pytest.mark.parametrize("log_rank", STEPS)
def test_the_same_holds_in_ndcg_for_a_share_of_the_errors(log_rank: float) -> None:
    found = weigh(margins(NDCG_SHARE * log_rank, 9.0), VALID)
    assert alphas_proved(found) == alphas_within(log_rank)


@pytest.mark.parametrize(("ndcg", "log_rank"), [(-0.1, 9.0), (9.0, -0.1), (-9.0, -9.0)])
def test_both_measures_must_be_ahead(ndcg: float, log_rank: float) -> None:
    assert not proved(weigh(margins(ndcg, log_rank), VALID))


@pytest.mark.parametrize("log_rank", [factor * step for factor in (1.0, 2.0) for step in STEPS])
def test_labels_of_shown_memories_alone_take_more_proof(log_rank: float) -> None:
    partial = replace(VALID, is_partial=True)
    assert alphas_proved(weigh(margins(9.0, log_rank), partial)) == alphas_within(
        log_rank, PARTIAL_FACTOR
    )


@pytest.mark.parametrize(
    "labels",
    [
        HistoryProof(),
        replace(VALID, validity=VALID_ERRORS - 0.01),
        replace(VALID, validity=-9.0),
        replace(VALID, session_count=MIN_SESSIONS - 1),
    ],
)
def test_nothing_is_proved_by_labels_that_are_not_valid(labels: HistoryProof) -> None:
    found = weigh(margins(9.0, 9.0), labels)
    assert not proved(found)
    assert earned(found) == 1.0
    # The numbers are reported all the same.
    assert {round(one.log_rank_errors, 6) for one in found} == {9.0}


def test_labels_that_are_just_valid_count() -> None:
    just = replace(VALID, validity=VALID_ERRORS, session_count=MIN_SESSIONS)
    assert proved(weigh(margins(9.0, 9.0), just))


@pytest.mark.parametrize("count", range(MIN_RECORD + 2))
def test_the_record_takes_so_many_sessions(count: int) -> None:
    rng = np.random.default_rng(3)
    shape = (count, len(ALPHAS))
    few = Margins(rng.uniform(0.9, 1.0, shape), rng.uniform(0.9, 1.0, shape))
    assert proved(weigh(few, VALID)) == (count >= MIN_RECORD)


def test_nothing_was_compared_at_the_beginning() -> None:
    assert no_margins().ndcg.shape == no_margins().log_rank.shape == (0, len(ALPHAS))
    assert earned(weigh(no_margins(), VALID)) == 1.0


def test_margins_that_never_vary_prove_nothing() -> None:
    """A constant has no standard error, so equal sessions do not say how sure their mean is."""
    flat = Margins(np.full((30, len(ALPHAS)), 0.1), np.full((30, len(ALPHAS)), 0.1))
    assert not proved(weigh(flat, VALID))


def test_only_the_latest_sessions_count() -> None:
    good, bad = margins(3.0, 3.0, RECORD_SESSIONS), margins(-3.0, -3.0, RECORD_SESSIONS)

    def joined(first: Margins, then: Margins) -> Margins:
        return Margins(
            np.vstack([first.ndcg, then.ndcg]), np.vstack([first.log_rank, then.log_rank])
        )

    assert weigh(joined(bad, good), VALID) == weigh(good, VALID)
    assert proved(weigh(joined(bad, good), VALID))
    assert not proved(weigh(joined(good, bad), VALID))
    assert weigh(joined(bad, good), VALID)[0].session_count == RECORD_SESSIONS


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


def after(
    outcomes: Sequence[float | None], standing: Standing | None = None, window: int = WINDOW
) -> Standing:
    """Return the standing after these comparisons, with evidence for an alpha of 0.2 all along."""
    standing = standing or Standing()
    for won in outcomes:
        standing, _ = judged(standing, won, window)
        standing = weighed(standing, OPEN, "replay")
    return standing


NOT_ENOUGH = MIN_JUDGED - 1
ENOUGH_TIES = [0.5] * (MIN_JUDGED + 20)


@pytest.mark.parametrize(
    ("outcomes", "is_cold", "waits_for"),
    [
        # Judged sessions: one is missing; ties count as well as any.
        ([1.0] * NOT_ENOUGH, True, {"judged_sessions": 1}),
        ([1.0] * MIN_JUDGED, False, {}),
        ([1.0] * MIN_NON_TIES + [0.5] * (MIN_JUDGED - MIN_NON_TIES), False, {}),
        # Decided sessions: one is missing.
        ([1.0] * (MIN_NON_TIES - 1) + ENOUGH_TIES, True, {"non_ties": 1}),
        (ENOUGH_TIES, True, {"non_ties": MIN_NON_TIES, "wins": 1}),
        # Wins: more than half, and half is not more.
        ([0.0, 1.0] * MIN_JUDGED, True, {"wins": 1}),
        ([0.0, 1.0] * MIN_JUDGED + [1.0], False, {}),
        ([1.0] * MIN_JUDGED + [0.0] * (MIN_JUDGED + 2), False, {"wins": 2}),
        ([0.0] * (MIN_JUDGED + 2) + [1.0] * MIN_JUDGED, True, {"wins": 2}),
        # Sessions that are left out count for nothing.
        ([1.0] * NOT_ENOUGH + [None] * 9, True, {"judged_sessions": 1}),
    ],
)
def test_cold_start(outcomes: list[float | None], is_cold: bool, waits_for: dict[str, int]) -> None:
    found = after(outcomes, window=99)
    assert found.is_cold == is_cold
    assert missing(found) == waits_for
    assert has_shown_itself(found) == (not waits_for)
    assert found.alpha == (1.0 if is_cold else 0.2)


def test_a_caller_may_ask_for_fewer_sessions() -> None:
    standing = after([1.0] * NOT_ENOUGH)
    assert weighed(standing, OPEN, "replay", min_judged=NOT_ENOUGH).alpha == 0.2
    assert weighed(standing, OPEN, "replay", min_judged=MIN_JUDGED).alpha == 1.0


def test_wins_alone_do_not_end_cold_start() -> None:
    standing = Standing()
    for _ in range(40):
        standing, _ = judged(standing, 1.0, WINDOW)
        standing = weighed(standing, SHUT, "replay")
        assert standing.alpha == 1.0
        assert standing.is_cold
    assert has_shown_itself(standing)
    assert weighed(standing, OPEN, "replay").alpha == 0.2


def test_the_earned_weight_is_served_at_once_and_lost_at_once() -> None:
    standing = after([1.0] * MIN_JUDGED)
    assert (standing.alpha, standing.active_since) == (0.2, MIN_JUDGED)
    paused = weighed(standing, SHUT, "replay")
    assert (paused.alpha, paused.is_cold) == (1.0, False)
    assert weighed(paused, [weighing(0.9, 0.1, 4.0)], "replay").alpha == 0.9
    assert after([1.0], paused).alpha == 0.2


def test_the_seeds_rule_is_the_success_rate() -> None:
    standing = Standing()
    rate = 0.5
    for n, won in enumerate([1.0] * 12 + [0.0, 0.5] * 15):
        standing, _ = judged(standing, won, 99)
        standing = weighed(standing, SHUT, "seed")
        rate = 0.9 * rate + 0.1 * won
        assert standing.success_rate == pytest.approx(rate)
        if n >= MIN_JUDGED - 1:
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


def test_after_a_drift_it_has_to_win_again() -> None:
    standing = after([1.0] * 40)
    has_drifted = False
    while not has_drifted:
        standing, has_drifted = judged(standing, 0.0, WINDOW)
    standing = after([1.0] * (MIN_NON_TIES - 1), standing)
    assert standing.is_cold
    standing = after([1.0], standing)
    assert (standing.alpha, standing.is_cold) == (0.2, False)


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
    """The share of streams that ever had influence, and of steps with it."""

    ever: float
    steps: float
    seed_ever: float


def openings(draw: Draw, labels: HistoryProof, streams: int = STREAMS) -> Openings:
    """Return how often both rules give influence on the same streams."""
    opened = np.zeros((streams, SESSIONS), np.bool_)
    by_seed = np.zeros((streams, SESSIONS), np.bool_)
    for stream in range(streams):
        seen, skill = draw(np.random.default_rng([1, stream]), SESSIONS)
        ours = theirs = Standing()
        for n in range(SESSIONS):
            won = 0.5 if abs(skill[n]) < 1e-6 else float(skill[n] > 0.0)
            so_far = Margins(seen.ndcg[: n + 1], seen.log_rank[: n + 1])
            ours, _ = judged(ours, won, WINDOW)
            if not ours.is_cold or has_shown_itself(ours):
                ours = weighed(ours, weigh(so_far, labels), "replay")
            theirs = weighed(judged(theirs, won, WINDOW)[0], (), "seed")
            opened[stream, n] = ours.alpha < 1.0
            by_seed[stream, n] = theirs.alpha < 1.0
    return Openings(opened.any(1).mean(), opened.mean(), by_seed.any(1).mean())


def test_a_real_advantage_gains_influence() -> None:
    """Measured on 300 streams: all gained it, for 81 % of the steps; ten are cold start."""
    found = openings(normal(0.08), VALID, 100)
    assert found.ever >= 0.95
    assert found.steps >= 0.7


def test_a_worse_order_rarely_gains_influence() -> None:
    """Measured on 300 streams: 8 % ever gained it, for 1 % of the steps."""
    found = openings(normal(-0.04), VALID)
    assert found.ever <= 0.15
    assert found.steps <= 0.03
    # The seed's rule takes luck for skill: measured 56 %.
    assert found.seed_ever >= 0.4


@pytest.mark.parametrize("draw", [normal(0.0), sparse(0.0)])
def test_an_equal_order_gains_influence_for_few_steps(draw: Draw) -> None:
    """Measured on 300 streams: 21 % of the steps, 12 % where margins are rare and large.

    Valid labels and an equal order do little harm. Labels of shown memories alone are believed
    less: 7 % and 5 %.
    """
    found = openings(draw, VALID, 150)
    assert found.steps <= 0.3
    assert found.ever < found.seed_ever
    partial = openings(draw, replace(VALID, is_partial=True), 150)
    assert partial.steps <= 0.6 * found.steps


@pytest.mark.parametrize("shift", [0.0, 0.3])
def test_labels_that_are_not_valid_never_give_influence(shift: float) -> None:
    """However far ahead the record is."""
    labels = HistoryProof(session_count=60, validity=0.5)
    assert openings(normal(shift), labels, 30).ever == 0.0
