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

from meritory.domain.policy import RRF_K
from meritory.engine.predictor.state import PredictorState
from meritory.rank import influence
from meritory.rank.influence import (
    ALPHAS,
    BASELINE_TRUST,
    LARGEST_MARGIN,
    MIN_JUDGED,
    MIN_NON_TIES,
    MIN_RECORD,
    MIN_SESSIONS,
    PARTIAL_FACTOR,
    RECORD_SESSIONS,
    TRUST_RATE,
    VALID_ERRORS,
    ComparisonOutcome,
    HistoryProof,
    InfluenceState,
    Margins,
    Weighing,
    compare,
    earned,
    judged,
    missing,
    weigh,
    weighed,
)

WINDOW = 10
Floats = influence.Floats
VALID = HistoryProof(session_count=20, validity=9.0)


# -- one session ----------------------------------------------------------------------------


def dcg(gains: Sequence[float]) -> float:
    return sum(gain / math.log2(place + 2) for place, gain in enumerate(gains[:10]))


def plain(
    baseline: list[int], predictor: list[int], labels: list[float], k: int
) -> ComparisonOutcome:
    """The same once more, with lists and loops."""
    sizes = [abs(label) for label in labels]
    ideal = dcg(sorted(sizes, reverse=True))
    count = range(len(labels))

    def quality(order: list[int]) -> tuple[float, float]:
        logs = [labels[one] * math.log(place) for place, one in enumerate(order, 1)]
        return dcg([labels[one] for one in order]) / ideal, -sum(logs) / sum(sizes)

    by_baseline = sorted(count, key=lambda one: baseline[one])
    by_predictor = sorted(count, key=lambda one: predictor[one])
    place = {one: n for n, one in enumerate(by_baseline, 1)}
    other = {one: n for n, one in enumerate(by_predictor, 1)}
    base = quality(by_baseline)
    fused = []
    for alpha in ALPHAS:
        score = {one: alpha / (k + place[one]) + (1 - alpha) / (k + other[one]) for one in count}
        fused.append(quality(sorted(count, key=lambda one: (-score[one], place[one]))))
    return ComparisonOutcome(
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
    for item in fields(ComparisonOutcome):
        assert getattr(found, item.name) == pytest.approx(getattr(twin, item.name), abs=1e-9)


@pytest.mark.parametrize("labels", [[0.0, 0.0], [-1.0, -0.5], [math.nan, 0.0], []])
def test_without_anything_that_helped_there_is_nothing_to_compare(labels: list[float]) -> None:
    ranks = list(range(1, len(labels) + 1))
    assert compare(ranks, ranks[::-1], labels) is None


def test_a_label_that_is_no_number_is_no_gain() -> None:
    assert compare([1, 2, 3], [3, 2, 1], [math.nan, 1.0, 0.0]) == compare(
        [1, 2, 3], [3, 2, 1], [0.0, 1.0, 0.0]
    )


def test_an_order_with_a_misleading_memory_first_is_worse_than_one_with_an_unused_one() -> None:
    misled = compare([1, 2, 3], [3, 2, 1], [-1.0, 0.5, 0.0])
    unused = compare([1, 2, 3], [3, 2, 1], [0.0, 0.5, 0.0])
    assert misled is not None
    assert unused is not None
    # The helpful memory is second in both orders, so only harm tells them apart.
    assert unused.won == 0.5
    assert misled.won == 1.0
    assert misled.baseline_ndcg < 0.0 < unused.baseline_ndcg
    assert misled.log_rank[-1] > 0.0


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
    assert ComparisonOutcome(0.5 + margin, 0.5, (), ()).won == won


# -- what many sessions say -------------------------------------------------------------------

EVERY = np.ones(len(ALPHAS))


def margins(ndcg: float, log_rank: float = 0.1, count: int = 40) -> Margins:
    """Return sessions with these margins, alike for every alpha."""
    return Margins(np.outer(np.full(count, ndcg), EVERY), np.outer(np.full(count, log_rank), EVERY))


def trust(weighings: Sequence[Weighing]) -> float:
    return sum(one.trust for one in weighings)


def joined(first: Margins, then: Margins) -> Margins:
    return Margins(np.vstack([first.ndcg, then.ndcg]), np.vstack([first.log_rank, then.log_rank]))


@pytest.mark.parametrize("gained", [-0.1, -0.01, 0.0, 0.005, 0.02])
def test_trust_grows_with_what_was_gained(gained: float) -> None:
    found = weigh(margins(gained), VALID)
    others = (1.0 - BASELINE_TRUST) * math.exp(TRUST_RATE * 40 * gained)
    assert trust(found) == pytest.approx(others / (others + BASELINE_TRUST))
    assert [one.alpha for one in found] == list(ALPHAS)
    assert {one.session_count for one in found} == {40}
    for one in found:
        assert one.ndcg_margin == pytest.approx(gained)
        assert one.log_rank_margin == pytest.approx(0.1)


def test_trust_goes_to_the_alpha_that_gained_most() -> None:
    ndcg = np.zeros((20, len(ALPHAS)))
    ndcg[:, 3] = 0.05
    found = weigh(Margins(ndcg, np.full((20, len(ALPHAS)), 0.1)), VALID)
    assert max(found, key=lambda one: one.trust).alpha == ALPHAS[3]
    assert earned(found) == pytest.approx(ALPHAS[3], abs=0.01)


def test_one_session_counts_for_no_more_than_the_largest_margin() -> None:
    calm = margins(0.0)
    for size in (LARGEST_MARGIN, 0.5, 1.0):
        lucky = weigh(joined(calm, margins(size, count=1)), VALID)
        assert trust(lucky) == pytest.approx(
            trust(weigh(joined(calm, margins(LARGEST_MARGIN, count=1)), VALID))
        )
    # One session gives it away as fast as it was won.
    both = joined(margins(1.0, count=1), margins(-1.0, count=1))
    assert trust(weigh(joined(calm, both), VALID)) == pytest.approx(1.0 - BASELINE_TRUST)


def test_both_measures_must_be_ahead() -> None:
    assert trust(weigh(margins(0.1, 0.0), VALID)) == 0.0
    assert trust(weigh(margins(0.1, -0.1), VALID)) == 0.0
    assert earned(weigh(margins(-0.1, 9.0), VALID)) == 1.0


def test_labels_of_shown_memories_alone_move_trust_more_slowly() -> None:
    partial = replace(VALID, is_partial=True)
    slow = weigh(margins(0.01), partial)
    assert trust(slow) == pytest.approx(trust(weigh(margins(0.01 / PARTIAL_FACTOR), VALID)))
    assert trust(slow) < trust(weigh(margins(0.01), VALID))


@pytest.mark.parametrize(
    "labels",
    [
        HistoryProof(),
        replace(VALID, validity=VALID_ERRORS - 0.01),
        replace(VALID, validity=-9.0),
        replace(VALID, session_count=MIN_SESSIONS - 1),
    ],
)
def test_labels_that_are_not_valid_earn_nothing(labels: HistoryProof) -> None:
    found = weigh(margins(0.3), labels)
    assert trust(found) == 0.0
    assert earned(found) == 1.0
    # The numbers are reported all the same.
    assert {round(one.ndcg_margin, 6) for one in found} == {0.3}


def test_labels_that_are_just_valid_count() -> None:
    just = replace(VALID, validity=VALID_ERRORS, session_count=MIN_SESSIONS)
    assert earned(weigh(margins(0.3), just)) < 1.0


@pytest.mark.parametrize("count", range(MIN_RECORD + 2))
def test_the_record_takes_so_many_sessions(count: int) -> None:
    assert (earned(weigh(margins(0.3, count=count), VALID)) < 1.0) == (count >= MIN_RECORD)


def test_nothing_was_compared_at_the_beginning() -> None:
    nothing = np.empty((0, len(ALPHAS)))
    assert earned(weigh(Margins(nothing, nothing), VALID)) == 1.0


def test_only_the_latest_sessions_count() -> None:
    good, bad = margins(0.02, 0.1, RECORD_SESSIONS), margins(-0.02, -0.1, RECORD_SESSIONS)
    assert weigh(joined(bad, good), VALID) == weigh(good, VALID)
    assert earned(weigh(joined(bad, good), VALID)) < 1.0
    assert earned(weigh(joined(good, bad), VALID)) == 1.0
    assert weigh(joined(bad, good), VALID)[0].session_count == RECORD_SESSIONS


def test_no_gain_is_too_large() -> None:
    found = weigh(margins(1.0, 9.0, RECORD_SESSIONS), VALID)
    assert trust(found) == pytest.approx(1.0)
    assert 0.0 < earned(found) < 1.0


def weighing(alpha: float, trust: float) -> Weighing:
    return Weighing(alpha, 40, 0.1, 4.0, 0.1, trust)


def test_the_mean_by_trust_is_earned_once_the_baseline_has_less_than_half() -> None:
    assert earned([]) == 1.0
    assert earned([weighing(0.2, 0.5)]) == 1.0
    assert earned([weighing(0.2, 0.6)]) == pytest.approx(0.6 * 0.2 + 0.4)
    assert earned([weighing(0.2, 0.5), weighing(0.6, 0.3)]) == pytest.approx(0.1 + 0.18 + 0.2)


# -- the state --------------------------------------------------------------------------------


OPEN = [weighing(0.2, 1.0)]
SHUT = [weighing(0.2, 0.0)]


def after(
    outcomes: Sequence[float | None], standing: InfluenceState | None = None, window: int = WINDOW
) -> InfluenceState:
    """Return the standing after these comparisons, with evidence for an alpha of 0.2 all along."""
    standing = standing or InfluenceState()
    for won in outcomes:
        standing, _ = judged(standing, won, window)
        standing = weighed(standing, OPEN, "replay")
    return standing


def alpha(standing: InfluenceState) -> float:
    """The weight of the baseline that is served."""
    return PredictorState(standing=standing).alpha


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
        (ENOUGH_TIES, True, {"non_ties": MIN_NON_TIES}),
        # Who won them is for the record to weigh.
        ([0.0] * MIN_JUDGED, False, {}),
        # Sessions that are left out count for nothing.
        ([1.0] * NOT_ENOUGH + [None] * 9, True, {"judged_sessions": 1}),
    ],
)
def test_cold_start(outcomes: list[float | None], is_cold: bool, waits_for: dict[str, int]) -> None:
    found = after(outcomes, window=99)
    assert found.is_cold == is_cold
    assert missing(found) == waits_for
    assert alpha(found) == (1.0 if is_cold else 0.2)


def test_a_caller_may_ask_for_fewer_sessions() -> None:
    standing = after([1.0] * NOT_ENOUGH)
    assert alpha(weighed(standing, OPEN, "replay", min_judged=NOT_ENOUGH)) == 0.2
    assert alpha(weighed(standing, OPEN, "replay", min_judged=MIN_JUDGED)) == 1.0


def test_wins_alone_do_not_end_cold_start() -> None:
    standing = InfluenceState()
    for _ in range(40):
        standing, _ = judged(standing, 1.0, WINDOW)
        standing = weighed(standing, SHUT, "replay")
        assert alpha(standing) == 1.0
        assert standing.is_cold
    assert not missing(standing)
    assert alpha(weighed(standing, OPEN, "replay")) == 0.2


def test_the_earned_weight_is_served_at_once_and_lost_at_once() -> None:
    standing = after([1.0] * MIN_JUDGED)
    assert (alpha(standing), standing.active_since) == (0.2, MIN_JUDGED)
    paused = weighed(standing, SHUT, "replay")
    assert (alpha(paused), paused.is_cold) == (1.0, False)
    assert alpha(weighed(paused, [weighing(0.9, 1.0)], "replay")) == 0.9
    assert alpha(after([1.0], paused)) == 0.2


def test_the_seeds_rule_is_the_success_rate() -> None:
    standing = InfluenceState()
    rate = 0.5
    for n, won in enumerate([1.0] * 12 + [0.0, 0.5] * 15):
        standing, _ = judged(standing, won, 99)
        standing = weighed(standing, SHUT, "seed")
        rate = 0.9 * rate + 0.1 * won
        assert standing.success_rate == pytest.approx(rate)
        if n >= MIN_JUDGED - 1:
            assert standing.earned_alpha == pytest.approx(1.0 - rate)
    assert alpha(standing) == pytest.approx(1.0 - rate)


def test_what_is_left_out_moves_nothing() -> None:
    standing = after([1.0] * 12)
    assert judged(standing, None, WINDOW) == (standing, False)


# -- drift ------------------------------------------------------------------------------------


def test_a_drift_takes_everything_away_once_an_episode() -> None:
    standing = after([1.0] * 40)
    assert alpha(standing) == 0.2
    resets, rates = [], []
    for n in range(60):
        standing, has_drifted = judged(standing, 0.0, WINDOW)
        rates.append(standing.success_rate)
        if has_drifted:
            resets.append(n)
            assert standing.success_rate == 0.5
            assert alpha(standing) == 1.0
            assert standing.is_cold
            # Whatever spoke for it before does not let it in again at once.
            assert alpha(weighed(standing, OPEN, "replay")) == 1.0
            assert alpha(weighed(standing, OPEN, "seed")) == 1.0
        assert standing.drift_resets == len(resets)
    # From 0.99 it takes twelve losses to come below 0.3, and ten sessions there are a drift.
    first = next(n for n in range(60) if 0.9 ** (n + 1) * after([1.0] * 40).success_rate < 0.3)
    assert resets[0] == first + WINDOW - 1
    # From 0.5 it takes five, and ten again: never within the cool-down.
    assert np.diff(resets).tolist() == [4 + WINDOW] * (len(resets) - 1)
    assert min(np.diff(resets)) > WINDOW


def test_no_second_reset_before_the_cool_down_is_over() -> None:
    low = InfluenceState(success_rate=0.1, judged=50, calm_until=60, low_streak=30)
    resets = []
    for n in range(51, 62):
        low, has_drifted = judged(low, 0.0, WINDOW)
        if has_drifted:
            resets.append(n)
    assert resets == [60]


def test_a_streak_that_is_broken_is_no_drift() -> None:
    standing = InfluenceState(success_rate=0.29)
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
    assert (alpha(standing), standing.is_cold) == (0.2, False)


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
                    st.floats(0, 1 / 6),
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
    standing = InfluenceState()
    for won, weighings in steps:
        standing, has_drifted = judged(standing, won, window)
        standing = weighed(standing, weighings, rule)
        assert 0.0 <= alpha(standing) <= 1.0
        assert 0.0 <= standing.success_rate <= 1.0
        assert not has_drifted or alpha(standing) == 1.0
        if standing.is_cold or standing.judged < influence.MIN_JUDGED:
            assert alpha(standing) == 1.0
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
    """The share of streams that ever had influence, of steps with it, and what came of it."""

    ever: float
    steps: float
    # NDCG@10 gained per session by what was served.
    gain: float
    seed_ever: float


def openings(draw: Draw, labels: HistoryProof, streams: int = STREAMS) -> Openings:
    """Return how often both rules give influence on the same streams."""
    opened = np.zeros((streams, SESSIONS), np.bool_)
    by_seed = np.zeros((streams, SESSIONS), np.bool_)
    gained = np.zeros((streams, SESSIONS))
    for stream in range(streams):
        seen, skill = draw(np.random.default_rng([1, stream]), SESSIONS)
        ours = theirs = InfluenceState()
        for n in range(SESSIONS):
            gained[stream, n] = np.interp(1.0 - alpha(ours), [0.0, *_SHARES], [0.0, *seen.ndcg[n]])
            won = 0.5 if abs(skill[n]) < 1e-6 else float(skill[n] > 0.0)
            so_far = Margins(seen.ndcg[: n + 1], seen.log_rank[: n + 1])
            ours, _ = judged(ours, won, WINDOW)
            if not ours.is_cold or not missing(ours):
                ours = weighed(ours, weigh(so_far, labels), "replay")
            theirs = weighed(judged(theirs, won, WINDOW)[0], (), "seed")
            opened[stream, n] = alpha(ours) < 1.0
            by_seed[stream, n] = alpha(theirs) < 1.0
    return Openings(opened.any(1).mean(), opened.mean(), gained.mean(), by_seed.any(1).mean())


def test_a_real_advantage_gains_influence() -> None:
    """Measured on 100 streams: all gained it, for 82 % of the steps; ten of 60 are cold start."""
    found = openings(normal(0.08), VALID, 100)
    assert found.ever >= 0.95
    assert found.steps >= 0.7
    assert found.gain >= 0.05


def test_a_worse_order_rarely_gains_influence() -> None:
    """Measured on 300 streams: 14 % ever gained it, for 2 % of the steps, and lost .0005."""
    found = openings(normal(-0.04), VALID)
    assert found.ever <= 0.2
    assert found.steps <= 0.04
    assert found.gain >= -0.001
    # The seed's rule takes luck for skill: measured 56 %.
    assert found.seed_ever >= 0.4


@pytest.mark.parametrize("draw", [normal(0.0), sparse(0.0)])
def test_an_equal_order_gains_influence_without_harm(draw: Draw) -> None:
    """Measured on 150 streams: 28 % of the steps, 16 % where margins are rare and large.

    Labels of shown memories alone are believed less: 22 % and 11 %. Nothing is lost by it.
    """
    found = openings(draw, VALID, 150)
    assert found.steps <= 0.35
    assert found.ever < found.seed_ever
    assert abs(found.gain) <= 0.001
    partial = openings(draw, replace(VALID, is_partial=True), 150)
    assert partial.steps <= 0.85 * found.steps


@pytest.mark.parametrize("shift", [0.0, 0.3])
def test_labels_that_are_not_valid_never_give_influence(shift: float) -> None:
    """However far ahead the record is."""
    labels = HistoryProof(session_count=60, validity=0.5)
    assert openings(normal(shift), labels, 30).ever == 0.0
