"""Hybrid recall: what each ingredient does, its bounds, and that nothing NaN can break it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from meritory.rank.hybrid import (
    HybridWeights,
    Legs,
    Links,
    ScopeStats,
    centred_cosine,
    fold_sessions,
    hybrid_scores,
    match_sessions,
    store_mean,
    with_neighbours,
)

STATS = ScopeStats(mean_cosine=0.0, mean_length_chars=400.0)
LONG = 400.0
VECTORS = HybridWeights().cosine
WORDS = 1.0 - VECTORS
WILD = st.floats(allow_nan=True, allow_infinity=True, width=32)


def legs(text: list[float], cosine: list[float], length: float = LONG) -> Legs:
    return Legs(text, cosine, np.full(len(text), length))


def chain(count: int, session: int = 0) -> Links:
    rows = np.arange(count)
    following = np.where(rows + 1 < count, rows + 1, -1)
    return Links(rows - 1, following, np.full(count, session))


def alone(count: int) -> Links:
    nothing = np.full(count, -1)
    return Links(nothing, nothing, nothing)


def test_both_legs_are_divided_by_their_best_and_summed() -> None:
    found = hybrid_scores(legs([8.0, 4.0, 0.0], [0.2, 0.4, 0.1]), STATS)
    assert found == pytest.approx([VECTORS * 0.5 + WORDS, VECTORS + WORDS * 0.5, VECTORS * 0.25])


def test_the_scale_of_either_leg_does_not_matter() -> None:
    one = hybrid_scores(legs([8.0, 4.0, 0.0], [0.2, 0.4, 0.1]), STATS)
    other = hybrid_scores(legs([80.0, 40.0, 0.0], [0.1, 0.2, 0.05]), STATS)
    assert one == pytest.approx(other)


def test_a_cosine_that_all_memories_share_says_nothing() -> None:
    high = ScopeStats(mean_cosine=0.7, mean_length_chars=400.0)
    found = hybrid_scores(legs([0.0, 0.0], [0.7, 0.9]), high)
    assert found == pytest.approx([0.0, VECTORS])


def test_without_words_in_common_the_vectors_decide() -> None:
    found = hybrid_scores(legs([0.0, 0.0, 0.0], [0.1, 0.5, 0.3]), STATS)
    assert np.argsort(-found).tolist() == [1, 2, 0]


def test_without_vectors_the_words_decide() -> None:
    found = hybrid_scores(legs([1.0, 3.0, 2.0], [np.nan] * 3), STATS)
    assert np.argsort(-found).tolist() == [1, 2, 0]


def test_vectors_that_contradict_the_words_lose_weight() -> None:
    text = [5.0, 4.0, 4.0, 4.0, 4.0] + [0.0] * 5
    agreeing = hybrid_scores(legs(text, [0.5] * 5 + [0.6] + [0.0] * 4), STATS)
    contrary = hybrid_scores(legs(text, [0.0] * 5 + [0.6] * 5), STATS)
    assert agreeing[5] == pytest.approx(VECTORS)
    assert contrary[5] == pytest.approx(VECTORS * 0.25)


def test_a_short_text_is_not_rewarded_for_being_short() -> None:
    # What FTS5 would give for one match: the shorter text scores higher.
    length = np.array([40.0, 200.0])
    text = 10.0 / (1.3 + 0.9 * length / 400.0)
    found = hybrid_scores(Legs(text, [0.0, 0.0], length), STATS)
    assert text[0] > text[1]
    assert found[0] == pytest.approx(found[1])


def test_a_long_text_keeps_its_penalty() -> None:
    length = np.array([200.0, 2000.0])
    text = 10.0 / (1.3 + 0.9 * length / 400.0)
    found = hybrid_scores(Legs(text, [0.0, 0.0], length), STATS)
    assert found[1] / found[0] == pytest.approx(text[1] / text[0])


def test_a_single_memory_keeps_its_plain_cosine() -> None:
    one = ScopeStats(mean_cosine=0.3, mean_length_chars=400.0)
    assert hybrid_scores(legs([0.0], [0.3]), one) == pytest.approx([VECTORS * 0.3])


def test_nothing_found_is_an_empty_array() -> None:
    assert hybrid_scores(legs([], []), STATS).shape == (0,)
    assert with_neighbours([], chain(0)).shape == (0,)


def test_legs_of_different_size_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in size"):
        hybrid_scores(Legs([1.0], [0.1, 0.2], [5.0]), STATS)


@given(
    st.integers(1, 30).flatmap(
        lambda n: st.tuples(*[hnp.arrays(np.float64, n, elements=WILD) for _ in range(3)])
    ),
    WILD,
    WILD,
)
def test_hybrid_scores_are_always_between_zero_and_one(
    arrays: tuple[np.ndarray, np.ndarray, np.ndarray], mean_cosine: float, mean_length: float
) -> None:
    text, cosine, length = arrays
    found = hybrid_scores(
        Legs(text, np.clip(cosine, -1, 1), np.abs(length)), ScopeStats(mean_cosine, mean_length)
    )
    assert np.isfinite(found).all()
    assert found.min() >= 0.0
    assert found.max() <= 1.0 + 1e-9


@given(st.permutations(range(6)))
def test_the_order_of_the_rows_does_not_matter(order: list[int]) -> None:
    text = np.array([3.0, 0.0, 1.0, 0.5, 0.0, 2.0])
    cosine = np.array([0.1, 0.6, 0.2, 0.0, 0.3, 0.5])
    length = np.array([50.0, 900.0, 300.0, 20.0, 400.0, 250.0])
    straight = hybrid_scores(Legs(text, cosine, length), STATS)
    shuffled = hybrid_scores(Legs(text[order], cosine[order], length[order]), STATS)
    assert shuffled == pytest.approx(straight[order])


def test_a_hit_lends_to_the_turns_beside_it() -> None:
    weights = HybridWeights(near=0.2, far=0.1, session=0.4)
    found = with_neighbours([0.0, 0.0, 1.0, 0.0, 0.0, 0.0], chain(6), weights)
    assert found * 1.7 == pytest.approx([0.5, 0.6, 1.4, 0.6, 0.5, 0.4])


def test_as_shipped_a_hit_lends_most_to_the_turns_beside_it() -> None:
    found = with_neighbours([0.0, 0.0, 1.0, 0.0, 0.0, 0.0], chain(6))
    assert found[2] > found[1] >= found[0] > found[5] > 0.0


def test_the_better_neighbour_lends_and_not_both() -> None:
    weights = HybridWeights(near=0.5, far=0.0, session=0.0)
    found = with_neighbours([0.8, 0.0, 0.4], chain(3), weights)
    assert found[1] == pytest.approx(0.5 * 0.8 / 1.5)


def test_sessions_do_not_lend_to_each_other() -> None:
    nothing = np.full(2, -1)
    found = with_neighbours([1.0, 0.0], Links(nothing, nothing, np.array([0, 1])))
    assert found[1] == 0.0


def test_a_memory_without_a_session_is_not_put_at_a_disadvantage() -> None:
    nothing = np.full(2, -1)
    found = with_neighbours([0.7, 0.7], Links(nothing, nothing, np.array([-1, 4])))
    assert found[0] == found[1] > 0.0


def test_memories_without_sessions_keep_their_order() -> None:
    found = with_neighbours([0.2, 0.9, 0.5], alone(3))
    assert np.argsort(-found).tolist() == [1, 2, 0]


def test_a_weaker_source_does_not_lend_to_the_turns_beside_it() -> None:
    links = replace(chain(3), lends=np.array([True, False, True]))
    weights = HybridWeights(near=0.5, far=0.0, session=0.0)
    found = with_neighbours([0.4, 0.8, 0.0], links, weights)
    assert found * 1.5 == pytest.approx([0.4, 0.8 + 0.5 * 0.4, 0.0])


def test_a_session_counts_by_its_words_and_its_best_memory() -> None:
    nothing = np.full(3, -1)
    links = Links(
        nothing, nothing, np.array([0, 1, -1]), session_words=[1.0, 0.2, 0.0], session_count=30
    )
    weights = HybridWeights(near=0.0, far=0.0, session=1.0, session_words=0.8)
    found = with_neighbours([0.5, 0.5, 0.5], links, weights)
    # Thirty sessions of forty: three quarters of 0.8.
    assert found * 2.0 == pytest.approx([0.5 + 0.2 + 0.6, 0.5 + 0.2 + 0.12, 1.0])


def test_a_session_of_which_no_word_is_asked_is_not_put_at_a_disadvantage() -> None:
    nothing = np.full(2, -1)
    links = Links(
        nothing, nothing, np.array([-1, 4]), session_words=[0.0, 0.0], session_count=1_000
    )
    found = with_neighbours([0.7, 0.7], links)
    assert found[0] == found[1] > 0.0


@given(
    hnp.arrays(np.float64, 6, elements=st.floats(0.0, 1.0)),
    hnp.arrays(np.float64, 6, elements=WILD),
    st.integers(0, 10_000),
)
def test_wild_session_words_keep_scores_between_zero_and_one(
    scores: np.ndarray, words: np.ndarray, count: int
) -> None:
    found = with_neighbours(scores, replace(chain(6), session_words=words, session_count=count))
    assert found.min() >= 0.0
    assert found.max() <= 1.0 + 1e-12


def test_words_spread_over_a_session_add_up() -> None:
    both, one, none = 0, 1, 2
    found = match_sessions([np.array([both, one]), np.array([both])], [900.0, 900.0, 900.0])
    assert found[both] == 1.0
    assert 0.0 < found[one] < 0.5
    assert found[none] == 0.0


def test_a_rare_word_says_more_about_a_session_than_a_common_one() -> None:
    found = match_sessions([np.array([0, 1, 2, 3]), np.array([4])], np.full(6, 500.0))
    assert found[4] > 2.0 * found[0] > 0.0


def test_a_word_in_more_turns_says_more_and_one_in_a_longer_session_less() -> None:
    found = match_sessions([np.array([0, 0, 0, 1, 2])], [500.0, 500.0, 5000.0])
    assert found[0] > found[1] > found[2] > 0.0


def test_what_was_not_searched_says_nothing_about_sessions() -> None:
    assert match_sessions([np.array([0, -1])], [0.0, np.nan]).tolist() == [0.0, 0.0]
    assert match_sessions([np.array([], np.intp)], [300.0]).tolist() == [0.0]
    assert match_sessions([], []).shape == (0,)
    assert match_sessions([np.array([0, 1])], [0.0, 300.0]).tolist() == [0.0, 1.0]


@given(
    st.lists(st.lists(st.integers(-1, 4), max_size=12), max_size=6),
    hnp.arrays(np.float64, 5, elements=WILD),
)
def test_sessions_match_between_zero_and_one(hits: list[list[int]], lengths: np.ndarray) -> None:
    found = match_sessions([np.array(sessions, np.intp) for sessions in hits], lengths)
    assert np.isfinite(found).all()
    assert found.min() >= 0.0
    assert found.max() <= 1.0


@given(hnp.arrays(np.float64, st.integers(1, 20), elements=WILD))
def test_what_is_not_finite_sinks_and_lends_nothing(scores: np.ndarray) -> None:
    found = with_neighbours(scores, chain(len(scores)))
    broken = ~np.isfinite(scores) | (scores < 0.0)
    assert (found[broken] == 0.0).all()
    clean = np.where(broken, 0.0, scores)
    with np.errstate(over="ignore"):
        expected = with_neighbours(clean, chain(len(scores)))
    assert found[~broken] == pytest.approx(expected[~broken], nan_ok=True)


@given(hnp.arrays(np.float64, st.integers(1, 20), elements=st.floats(0.0, 1.0)))
def test_neighbours_keep_scores_between_zero_and_one(scores: np.ndarray) -> None:
    found = with_neighbours(scores, chain(len(scores)))
    assert found.min() >= 0.0
    assert found.max() <= 1.0 + 1e-12


@given(hnp.arrays(np.float64, 6, elements=st.floats(0.0, 1.0)), st.integers(0, 5))
def test_raising_one_score_lowers_nothing(scores: np.ndarray, at: int) -> None:
    raised = scores.copy()
    raised[at] = 1.0
    before, after = with_neighbours(scores, chain(6)), with_neighbours(raised, chain(6))
    assert (after >= before - 1e-12).all()


def test_a_session_is_as_good_as_its_best_memory() -> None:
    session = np.array([0, 0, 2, -1])
    found = fold_sessions([0.1, 0.7, np.nan, 0.9], session, 3)
    assert found.tolist() == [0.7, -np.inf, -np.inf]


def test_centring_equals_subtracting_the_mean_from_every_vector() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(40, 8)) + 2.0
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    query = vectors[3]
    mean = store_mean(vectors.sum(axis=0), 40)
    left, asked = vectors - mean, query - mean
    expected = left @ asked / np.linalg.norm(left, axis=1) / np.linalg.norm(asked)
    found = centred_cosine(vectors @ query, vectors @ mean, query, mean)
    assert found == pytest.approx(expected)


def test_centring_spreads_vectors_that_all_point_the_same_way() -> None:
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(200, 16)) * 0.2 + 1.0
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    mean = store_mean(vectors.sum(axis=0), 200)
    plain = vectors @ vectors[0]
    centred = centred_cosine(plain, vectors @ mean, vectors[0], mean)
    assert plain.min() > 0.8
    assert centred[1:].min() < 0.0 < centred[1:].max()
    assert centred[0] == pytest.approx(1.0)


def test_a_missing_vector_stays_missing_and_a_tiny_store_is_hardly_centred() -> None:
    mean = store_mean(np.array([1.0, 0.0]), 1)
    assert np.linalg.norm(mean) < 0.1
    found = centred_cosine([np.nan, 1.0], [np.nan, mean[0]], [1.0, 0.0], mean)
    assert np.isnan(found[0])
    assert found[1] == pytest.approx(1.0)


def test_an_empty_store_has_no_mean() -> None:
    assert store_mean(np.zeros(3), 0).tolist() == [0.0, 0.0, 0.0]


def test_rounding_noise_between_equal_cosines_is_not_blown_up() -> None:
    noisy = np.array([0.8, 0.8 + 3e-8, 0.8 - 3e-8])
    legs = Legs(text=np.ones(3), cosine=noisy, length_chars=np.full(3, 30.0))
    scores = hybrid_scores(legs, ScopeStats(float(noisy.mean()), 30.0))
    assert scores == pytest.approx(scores[0], abs=1e-4)
