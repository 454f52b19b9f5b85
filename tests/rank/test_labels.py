"""Labels: every rule by example, which rule wins, and laws that hold for any evidence."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meritory.domain.errors import InputError
from meritory.domain.memory import PROVENANCES
from meritory.rank.labels import (
    MIN_CONFIDENCE,
    MIN_SCORE_SPREAD,
    RATING_RELIABILITY,
    SOFT_NEGATIVE_WEIGHT,
    SOFT_NEGATIVES_PER_LABEL,
    Evidence,
    Fate,
    Label,
    LabelWeights,
    exclusion,
    is_useful,
    joined,
    label,
    soft_negatives,
)

WEIGHTS = LabelWeights()
DERIVED = "assistant_derived"


def shown(**evidence: Any) -> Evidence:
    return Evidence(was_injected=True, **evidence)


def left_out(**evidence: Any) -> Evidence:
    return Evidence(was_injected=False, **evidence)


def odds_joined(rating: float, chance: float) -> float:
    """Return the odds of both witnesses multiplied, as a chance."""
    rated = RATING_RELIABILITY / (1.0 - RATING_RELIABILITY)
    odds = chance / (1.0 - chance) * math.pow(rated, 2.0 * rating - 1.0)
    return odds / (1.0 + odds)


RATED = [
    # With no other evidence the label is the rating itself.
    (shown(agent_score=0.8), 0.8),
    (shown(agent_score=0.0), 0.0),
    (shown(agent_score=-0.8), -0.8),
    # Scored 0 and matched twice: the agent may not have noticed its influence.
    (shown(agent_score=0.0, hit_count=2), 0.7 * 0.3 + 0.2 * 0.6 + 0.1 * 0.3),
    (shown(agent_score=0.0, hit_count=1), 0.2 * 0.3),
    # Scored 0.8 and never matched: what shapes reasoning need not be quoted.
    (shown(agent_score=0.8, hit_count=0), 0.8),
    (shown(agent_score=0.4, hit_count=1), 0.4),
    (shown(agent_score=0.2, hit_count=1), 0.7 * 0.2 + 0.2 * 0.3 + 0.1 * 0.2),
    (shown(agent_score=0.4, hit_count=2), 0.7 * 0.4 + 0.2 * 0.6 + 0.1 * 0.4),
    (shown(agent_score=0.9, hit_count=5), 0.9),
    (shown(agent_score=-0.5, hit_count=2), 0.7 * -0.5 + 0.2 * 0.6 + 0.1 * -0.5),
    # High continuity trusts the rating, low continuity discounts it slightly.
    (shown(agent_score=0.8, continuity=1.0), 0.8),
    (shown(agent_score=0.8, continuity=0.0), 0.9 * 0.8 + 0.1 * 0.4),
    (shown(agent_score=0.8, continuity=0.5), 0.9 * 0.8 + 0.1 * 0.6),
    (shown(agent_score=-0.8, continuity=0.0), 0.9 * -0.8 + 0.1 * -0.4),
    (shown(agent_score=0.5, hit_count=3, continuity=0.6), 0.7 * 0.5 + 0.2 * 0.6 + 0.1 * 0.4),
    # A judge's chance is joined with the rating: each moves the odds of the other.
    (shown(agent_score=0.8, judge_score=0.1), odds_joined(0.8, 0.1)),
    (shown(agent_score=1.0, judge_score=0.5), RATING_RELIABILITY),
    (shown(agent_score=0.0, judge_score=0.5), 1.0 - RATING_RELIABILITY),
    (shown(agent_score=0.5, judge_score=0.35), 0.35),
    (shown(agent_score=1.0, judge_score=0.0), odds_joined(1.0, 0.01)),
    (shown(agent_score=1.0, judge_score=-0.7), odds_joined(1.0, 0.01)),
    (shown(agent_score=0.0, judge_score=1.0), odds_joined(0.0, 0.99)),
    # A rating below 0 says that it did harm: the judge's chance does not speak to that.
    (shown(agent_score=-0.5, judge_score=0.9), -0.5),
    # Two hits lift what both witnesses together make of it.
    (shown(agent_score=0.0, judge_score=0.1, hit_count=2), 0.8 * 0.3 + 0.2 * 0.6),
]

UNCONFIRMED = [
    # A stored text can ask to be rated well.
    (shown(agent_score=0.9, provenance=DERIVED), 0.3),
    (shown(agent_score=0.9, provenance="episode_summary"), 0.3),
    (shown(agent_score=0.2, provenance=DERIVED), 0.2),
    (shown(agent_score=-0.7, provenance=DERIVED), -0.7),
    (shown(agent_score=0.9, provenance=DERIVED, continuity=0.4), 0.9 * 0.3 + 0.1 * 0.3 * 0.7),
    (shown(agent_score=0.9, provenance=DERIVED, judge_score=0.2), 0.3),
    (shown(agent_score=0.9, provenance=DERIVED, judge_score=-0.4), odds_joined(0.9, 0.01)),
    # A second witness lifts the limit.
    (shown(agent_score=0.9, provenance=DERIVED, judge_score=0.3), odds_joined(0.9, 0.3)),
    (shown(agent_score=0.9, provenance=DERIVED, hit_count=1), 0.9),
    (shown(agent_score=0.9, provenance="user_stated"), 0.9),
]

SHOWN = [
    (shown(judge_score=0.6), 0.6, "judged"),
    (shown(judge_score=0.0), 0.0, "judged"),
    (shown(judge_score=-0.6), -0.6, "judged"),
    (shown(judge_score=0.6, hit_count=1), 0.7, "judged"),
    (shown(judge_score=0.6, hit_count=4), 0.7, "judged"),
    (shown(judge_score=0.95, hit_count=1), 1.0, "judged"),
    # A judge's word on the memory is not halved, only continuity is.
    (shown(judge_score=0.6, continuity=0.4), 0.6, "judged"),
    (shown(judge_score=0.6, continuity=0.29), 0.5, "judged"),
    (shown(judge_score=0.6, continuity=0.29, hit_count=1), 0.7, "judged"),
    (shown(judge_score=0.6, continuity=0.3), 0.6, "judged"),
    (shown(judge_score=-1.0, continuity=0.0), -1.0, "judged"),
    (shown(continuity=0.8), 0.8, "continuity"),
    (shown(continuity=0.8, hit_count=1), 0.9, "continuity"),
    (shown(continuity=1.0, hit_count=1), 1.0, "continuity"),
    (shown(continuity=0.5), 0.5, "continuity"),
    (shown(continuity=0.4), 0.2, "continuity"),
    (shown(continuity=0.4, hit_count=1), 0.3, "continuity"),
    (shown(continuity=0.2), 0.0, "continuity"),
    (shown(continuity=0.2, hit_count=2), 0.2, "continuity"),
    (shown(continuity=0.0), -0.1, "continuity"),
    (shown(), None, "no_evidence"),
    # A hit moves a label, it makes none of something that was shown.
    (shown(hit_count=3), None, "no_evidence"),
    # What was in front of the agent was not left out.
    (shown(is_missing=True, judge_score=0.2), 0.2, "judged"),
]

LEFT_OUT = [
    (left_out(judge_score=0.5), 0.5, "judged"),
    (left_out(judge_score=0.0), 0.0, "judged"),
    (left_out(judge_score=-0.4), -0.4, "judged"),
    (left_out(hit_count=2), 0.6, "hits"),
    (left_out(hit_count=7, judge_score=0.1), 0.6, "hits"),
    (left_out(hit_count=2, judge_score=0.9), 0.9, "judged"),
    (left_out(hit_count=1), 0.3, "hits"),
    (left_out(hit_count=1, judge_score=-0.2), 0.3, "hits"),
    (left_out(hit_count=1, judge_score=0.5), 0.5, "judged"),
    (left_out(is_missing=True), 0.7, "missing"),
    (left_out(is_missing=True, judge_score=0.1, hit_count=2), 0.7, "missing"),
    (left_out(is_missing=True, judge_score=0.7), 0.7, "missing"),
    (left_out(is_missing=True, judge_score=0.9), 0.9, "judged"),
    (left_out(), None, "unjudged"),
    # Continuity is about what was shown.
    (left_out(continuity=0.9), None, "unjudged"),
    (left_out(agent_score=1.0), None, "unjudged"),
    (left_out(agent_score=1.0, judge_score=0.2), 0.2, "judged"),
]

RICH = {"agent_score": 0.9, "hit_count": 3, "judge_score": 0.8, "continuity": 0.9}
FATES = [
    (shown(fate="deleted_soon", **RICH), -0.5, "deleted_soon"),
    (shown(fate="deleted", **RICH), -0.3, "deleted"),
    (shown(fate="superseded", **RICH), -0.3, "superseded"),
    (left_out(fate="deleted", **RICH), -0.3, "deleted"),
    (left_out(fate="deleted_soon"), -0.3, "deleted"),
    (left_out(fate="superseded", judge_score=0.5), 0.5, "judged"),
]

KNOWN = [
    (shown(known=0.4, fate="deleted_soon", **RICH), 0.4),
    (shown(known=-1.0, **RICH), -1.0),
    (shown(known=0.0, **RICH), 0.0),
    (left_out(known=0.7, hit_count=1), 0.7),
    (left_out(known=3.0), 1.0),
]


@pytest.mark.parametrize(("evidence", "value"), RATED + UNCONFIRMED)
def test_the_agents_rating_is_blended_with_hits_and_continuity(
    evidence: Evidence, value: float
) -> None:
    made = label(evidence, WEIGHTS)
    assert made.value == pytest.approx(value)
    assert made.rule == "rated"


@pytest.mark.parametrize(("evidence", "value", "rule"), [*SHOWN, *LEFT_OUT, *FATES])
def test_without_a_rating_judge_hits_and_fate_decide(
    evidence: Evidence, value: float | None, rule: str
) -> None:
    made = label(evidence, WEIGHTS)
    assert (made.value is None) == (value is None)
    assert made.value == pytest.approx(value)
    assert made.rule == rule


@pytest.mark.parametrize(("evidence", "value"), KNOWN)
def test_what_a_program_knows_is_the_label_without_extras(evidence: Evidence, value: float) -> None:
    assert label(evidence, WEIGHTS) == Label(value, "known")


def test_a_rating_alone_is_kept_to_the_last_bit() -> None:
    for tenth in range(-10, 11):
        assert label(shown(agent_score=tenth / 10), WEIGHTS).value == tenth / 10


def test_an_agent_that_did_not_answer_leaves_the_older_road() -> None:
    absent = shown(judge_score=0.5, hit_count=1, continuity=0.7)
    assert label(absent, WEIGHTS).value == pytest.approx(0.6)
    assert label(replace(absent, agent_score=0.0), WEIGHTS).value != pytest.approx(0.6)


def test_ratings_are_ignored_when_feedback_is_switched_off() -> None:
    off = LabelWeights(agent_feedback=False)
    assert label(shown(agent_score=-1.0, judge_score=0.5), off).value == 0.5
    assert label(shown(agent_score=-1.0), off).rule == "no_evidence"


def test_the_weights_count_by_their_relation() -> None:
    evidence = shown(agent_score=0.2, hit_count=2, continuity=0.0)
    halves = LabelWeights(feedback=0.35, fts=0.1, continuity=0.05)
    assert label(evidence, halves).value == pytest.approx(label(evidence, WEIGHTS).value)
    assert label(shown(agent_score=0.8), LabelWeights(feedback=0.2)).value == 0.8
    words = LabelWeights(feedback=0.0, fts=1.0, continuity=0.0)
    assert label(evidence, words).value == pytest.approx(0.6)


@pytest.mark.parametrize(
    "wrong",
    [{"feedback": -0.1}, {"fts": math.nan}, {"continuity": math.inf}],
)
def test_weights_that_mean_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        LabelWeights(**wrong)  # type: ignore[arg-type]


def test_three_weights_of_zero_are_refused() -> None:
    with pytest.raises(InputError, match="all label weights are 0"):
        LabelWeights(feedback=0.0, fts=0.0, continuity=0.0)


def test_the_parts_say_what_each_witness_contributed() -> None:
    rated = label(shown(agent_score=0.0, hit_count=2, continuity=0.5, judge_score=0.2), WEIGHTS)
    assert (rated.agent, rated.text, rated.judge) == (0.3, 0.6, 0.2)
    # The agent's part is the rating joined with the judge's chance.
    both = label(shown(agent_score=1.0, judge_score=0.2), WEIGHTS)
    assert (both.agent, both.judge) == (joined(1.0, 0.2), 0.2)
    assert rated.continuity == pytest.approx(0.3 * 0.75)
    judged = label(shown(judge_score=0.5, continuity=0.2), WEIGHTS)
    assert (judged.agent, judged.text, judged.continuity, judged.judge) == (None, -0.1, 0.2, 0.5)
    missed = label(left_out(hit_count=1, judge_score=0.6), WEIGHTS)
    assert (missed.agent, missed.text, missed.continuity, missed.judge) == (None, 0.3, None, 0.6)


def test_a_row_that_a_prompt_brought_in_counts_for_history_only() -> None:
    made = label(left_out(hit_count=2, is_fts_only=True), WEIGHTS)
    assert (made.value, made.is_history_only) == (0.6, True)
    assert is_useful(made.value, 0.9)
    rated = label(shown(agent_score=0.8, hit_count=1, is_fts_only=True), WEIGHTS)
    assert (rated.value, rated.is_history_only) == (0.8, True)


def test_only_what_nobody_saw_and_nobody_judged_is_unjudged() -> None:
    assert label(left_out(), WEIGHTS).rule == "unjudged"
    assert label(shown(), WEIGHTS).rule == "no_evidence"
    assert label(left_out(judge_score=0.0), WEIGHTS).rule == "judged"


def test_a_soft_negative_near_to_the_context_may_have_been_a_miss() -> None:
    found = soft_negatives(np.array([0.61, 0.6, -1.0, math.nan]))
    assert found.tolist() == [0.25, 0.0, 0.0, 0.0]
    assert (SOFT_NEGATIVES_PER_LABEL, SOFT_NEGATIVE_WEIGHT) == (3, 0.25)


@pytest.mark.parametrize(
    ("value", "confidence", "useful"),
    [
        (0.4, MIN_CONFIDENCE, True),
        (0.7 * 0.4 + 0.2 * 0.4 + 0.1 * 0.4, MIN_CONFIDENCE, True),
        (0.39, 1.0, False),
        (1.0, MIN_CONFIDENCE - 0.01, False),
        (-1.0, 1.0, False),
        (None, 1.0, False),
        (1.0, None, False),
        (math.nan, 1.0, False),
        (1.0, math.nan, False),
    ],
)
def test_useful_takes_a_good_label_and_a_sure_judge(
    value: float | None, confidence: float | None, useful: bool
) -> None:
    assert is_useful(value, confidence) is useful


@pytest.mark.parametrize(
    ("confidence", "scores", "reason"),
    [
        (0.4, [0.0, 0.1], None),
        (1.0, [0.5, 0.6, None], None),
        (0.9, [-0.2, 0.0], None),
        (0.39, [0.0, 1.0], "confidence of 0.39 is below 0.4"),
        (None, [0.0, 1.0], "not judged"),
        (math.nan, [0.0, 1.0], "not judged"),
        (0.9, [], "scored no memory"),
        (0.9, [None, math.nan], "scored no memory"),
        (0.9, [0.8], "vary by 0.000, less than 0.1"),
        (0.9, [0.5, 0.55, 0.59], "vary by 0.090, less than 0.1"),
    ],
)
def test_sessions_that_teach_nothing_are_excluded_with_a_reason(
    confidence: float | None, scores: list[float | None], reason: str | None
) -> None:
    found = exclusion(confidence, scores)
    assert found is None if reason is None else reason in str(found)


WILD = st.none() | st.floats(allow_nan=True, allow_infinity=True)
EVIDENCE = st.builds(
    Evidence,
    was_injected=st.booleans(),
    provenance=st.sampled_from(PROVENANCES),
    is_fts_only=st.booleans(),
    agent_score=WILD,
    hit_count=st.integers(-1, 5),
    judge_score=WILD,
    continuity=WILD,
    is_missing=st.booleans(),
    fate=st.none() | st.sampled_from(get_args(Fate)),
    known=WILD,
)
ANY_WEIGHTS = st.builds(
    LabelWeights,
    agent_feedback=st.booleans(),
    feedback=st.floats(0.01, 5.0),
    fts=st.floats(0.0, 5.0),
    continuity=st.floats(0.0, 5.0),
)
RATING = st.floats(-1.0, 1.0)


@given(EVIDENCE, ANY_WEIGHTS)
def test_no_evidence_gives_a_label_out_of_bounds(evidence: Evidence, weights: LabelWeights) -> None:
    made = label(evidence, weights)
    assert made.value is None or -1.0 <= made.value <= 1.0
    for part in (made.agent, made.text, made.continuity, made.judge):
        assert part is None or -1.0 <= part <= 1.0
    assert (made.value is None) == (made.rule in ("no_evidence", "unjudged"))


@given(EVIDENCE, ANY_WEIGHTS, st.sampled_from(["agent_score", "judge_score", "continuity"]))
def test_a_number_that_is_not_finite_is_a_missing_one(
    evidence: Evidence, weights: LabelWeights, name: str
) -> None:
    missing = label(replace(evidence, **{name: None}), weights)  # type: ignore[arg-type]
    for wild in (math.nan, math.inf, -math.inf):
        assert label(replace(evidence, **{name: wild}), weights) == missing  # type: ignore[arg-type]


@given(EVIDENCE, ANY_WEIGHTS, RATING, RATING)
def test_a_better_rating_never_means_a_worse_label(
    evidence: Evidence, weights: LabelWeights, one: float, other: float
) -> None:
    low, high = (
        label(replace(evidence, agent_score=score), weights).value for score in sorted((one, other))
    )
    assert (low is None) == (high is None)
    assert low is None or high is None or low <= high + 1e-12


SHARE = st.floats(0.0, 1.0)


@given(SHARE, st.floats(0.01, 0.99))
def test_a_rating_and_a_chance_are_joined_as_odds(rating: float, chance: float) -> None:
    assert joined(rating, chance) == pytest.approx(odds_joined(rating, chance))
    # The two sides of a question are treated alike.
    assert joined(1.0 - rating, 1.0 - chance) == pytest.approx(1.0 - joined(rating, chance))


@given(SHARE, st.floats(-1.0, 1.0), st.floats(-1.0, 1.0))
def test_a_larger_chance_never_means_a_worse_label(rating: float, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert 0.0 < joined(rating, low) <= joined(rating, high) < 1.0
    labels = [
        label(shown(agent_score=rating, judge_score=chance), WEIGHTS).value
        for chance in (low, high)
    ]
    assert labels[0] is not None and labels[1] is not None
    assert labels[0] <= labels[1] + 1e-12


def test_neither_witness_is_ever_certain() -> None:
    assert joined(1.0, 0.0) < 0.1
    assert joined(0.0, 1.0) > 0.9
    assert joined(1.0, 1.0) < 1.0
    assert joined(0.0, 0.0) > 0.0
    # A rating and a chance that agree are surer than either alone.
    assert joined(1.0, 0.8) > max(RATING_RELIABILITY, 0.8)


@given(EVIDENCE, RATING, st.integers(0, 4))
def test_another_hit_never_means_a_worse_label(evidence: Evidence, score: float, hits: int) -> None:
    few = label(replace(evidence, agent_score=score, hit_count=hits), WEIGHTS).value
    many = label(replace(evidence, agent_score=score, hit_count=hits + 1), WEIGHTS).value
    assert few is None or (many is not None and few <= many + 1e-12)


@given(st.sampled_from(PROVENANCES), st.integers(0, 3))
def test_silence_of_the_agent_is_not_a_rating_of_zero(provenance: Any, hits: int) -> None:
    silent = shown(provenance=provenance, hit_count=hits)
    assert label(silent, WEIGHTS).value is None
    assert label(replace(silent, agent_score=0.0), WEIGHTS).value is not None


@given(EVIDENCE, RATING)
def test_a_text_that_is_only_praised_by_its_reader_gains_little(
    evidence: Evidence, score: float
) -> None:
    praised = replace(
        evidence,
        was_injected=True,
        provenance="assistant_derived",
        agent_score=score,
        hit_count=0,
        judge_score=None,
        fate=None,
        known=None,
    )
    value = label(praised, WEIGHTS).value
    assert value is not None
    assert value <= 0.3
    assert not is_useful(value, 1.0)


def test_the_spread_is_measured_from_the_lowest_to_the_highest() -> None:
    crowd = [0.5] * 50
    assert exclusion(1.0, [*crowd, 0.5 + MIN_SCORE_SPREAD]) is None
    assert exclusion(1.0, crowd) is not None
