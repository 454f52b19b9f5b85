"""Feedback as numbers: the rubric and its veto, quality, risk with intervals, approval, pairs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meritory.domain.errors import InputError
from meritory.domain.feedback import Witness
from meritory.rank.belief import SESSION_CAPS, BeliefEvent, believe
from meritory.rank.feedback import (
    CRITERIA,
    WEIGHTS,
    FeedbackText,
    RiskTally,
    RubricVerdict,
    approval,
    evaluate,
    interval,
    pairs,
    quality,
    read_guardrails,
    read_scores,
    risks,
    trend,
)


def judged(scores: Any, guardrails: Any = None) -> RubricVerdict:
    found = evaluate(read_scores(scores), read_guardrails(guardrails))
    assert found is not None
    return found


# -- the rubric -------------------------------------------------------------------------------


def test_the_weights_are_one_and_a_full_score_is_one() -> None:
    assert sum(one.weight for one in CRITERIA.values()) == pytest.approx(1.0)
    assert sum(WEIGHTS.values()) == pytest.approx(1.0)
    full = [{"criterion": name, "score": 5, "evidence": "seen"} for name in CRITERIA]
    assert judged(full).weighted_score == pytest.approx(1.0)
    assert judged(full).is_eligible
    assert judged({"correctness": 5}).weighted_score == pytest.approx(0.30)


@pytest.mark.parametrize("name", CRITERIA)
def test_each_criterion_has_a_minimum_of_its_own(name: str) -> None:
    least = 2 if name == "clarity" else 3
    assert judged({name: least}).failing == ()
    assert judged({name: least - 1}).failing == (name,)
    assert not judged({name: least - 1}).is_eligible


def test_judges_two_apart_disagree() -> None:
    near = [{"criterion": "safety", "score": score, "judge": str(score)} for score in (3, 4)]
    far = [{"criterion": "safety", "score": score, "judge": str(score)} for score in (3, 5)]
    assert judged(near).disagreements == ()
    assert judged(far).disagreements == ("safety",)
    assert judged(far).means == {"safety": 4.0}


def test_a_high_score_needs_evidence_only_where_that_is_asked_for() -> None:
    assert judged({"verification_evidence": 4}).missing_evidence == ("verification_evidence",)
    assert judged({"verification_evidence": 3}).missing_evidence == ()
    assert judged({"correctness": 5}).missing_evidence == ()
    told = [{"criterion": "verification_evidence", "score": 5, "evidence": "CI run 12"}]
    assert judged(told).is_eligible
    assert not judged([told[0] | {"evidence": "  "}]).is_eligible


def test_a_guardrail_fails_only_when_it_is_false() -> None:
    found = judged(None, {"tests_passed": True, "path_safety": None, "budget": False})
    assert found.failed_guardrails == ("budget",)
    assert judged(None, {"tests_passed": True, "path_safety": None}).is_eligible
    assert evaluate((), {}) is None


@pytest.mark.parametrize(
    "scores",
    [
        "safety",
        5,
        ["safety"],
        [{"score": 3}],
        [{"criterion": "beauty", "score": 3}],
        [{"criterion": "safety"}],
        [{"criterion": "safety", "score": "4"}],
        [{"criterion": "safety", "score": True}],
        [{"criterion": "safety", "score": 0}],
        [{"criterion": "safety", "score": 6}],
        [{"criterion": "safety", "score": float("nan")}],
        [{"criterion": "safety", "score": 3, "evidence": 5}],
        [{"criterion": "safety", "score": 3, "mood": "fine"}],
        [{"criterion": "safety", "score": 3}] * 65,
    ],
)
def test_a_malformed_rubric_is_refused_with_words(scores: Any) -> None:
    with pytest.raises(InputError) as told:
        read_scores(scores)
    assert len(told.value.message) > 10


@pytest.mark.parametrize(
    "guardrails", [[], "tests", {"a": "false"}, {"a": 0}, {"": True}, {5: True}, {"x" * 65: True}]
)
def test_malformed_guardrails_are_refused(guardrails: Any) -> None:
    with pytest.raises(InputError):
        read_guardrails(guardrails)


def test_quality_adds_up() -> None:
    none = dict.fromkeys(WEIGHTS, False)
    assert quality(none) == 0.0
    assert quality(dict.fromkeys(WEIGHTS, True)) == pytest.approx(1.0)
    assert quality({**none, "is_actionable": True}) == 0.30


# -- risk -------------------------------------------------------------------------------------


def test_wilson_intervals_are_the_known_ones() -> None:
    assert interval(7, 10) == pytest.approx((0.3968, 0.8922), abs=5e-5)
    assert interval(0, 10) == pytest.approx((0.0, 0.2775), abs=5e-5)
    assert interval(10, 10) == pytest.approx((0.7225, 1.0), abs=5e-5)
    assert interval(0, 0) == (0.0, 1.0)


@given(st.integers(1, 2_000), st.data())
def test_an_interval_holds_its_rate(total: int, data: st.DataObject) -> None:
    negative = data.draw(st.integers(0, total))
    low, high = interval(negative, total)
    assert 0.0 <= low <= negative / total <= high <= 1.0


def test_only_what_surely_fails_more_often_is_called_so() -> None:
    tallies = [
        RiskTally("tool", "Bash", 2, 18),
        RiskTally("tool", "Read", 60, 2),
        RiskTally("tag", "git", 1, 2),
        RiskTally("tag", "once", 0, 2),
    ]
    found = {one.name: one for one in risks(tallies, 70, 30)}
    assert found["Bash"].level == "higher"
    assert found["Bash"].low > found["Bash"].base_rate == 0.3
    assert found["Read"].level == "lower"
    assert found["git"].level == "unclear"
    assert "once" not in found
    assert [one.level for one in risks(tallies, 70, 30)] == ["higher", "unclear", "lower"]


def test_the_trend_needs_a_difference_and_enough_reports() -> None:
    month = approval(50, 50)
    assert trend(approval(8, 2), month) == "improving"
    assert trend(approval(2, 8), month) == "degrading"
    assert trend(approval(54, 46), month) == "steady"
    assert trend(approval(3, 1), month) == "unknown"
    assert trend(approval(0, 0), approval(0, 0)) == "unknown"
    assert approval(0, 0).rate is None


# -- pairs ------------------------------------------------------------------------------------


def told(name: str, words: str, better: str = "", tags: str = "") -> FeedbackText:
    return FeedbackText(name, "p", words, better, frozenset(words.split()), frozenset(tags.split()))


def test_a_mistake_with_its_correction_is_a_pair_by_itself() -> None:
    (pair,) = pairs([told("n", "edited lock file", "run uv lock")], [])
    assert (pair.chosen, pair.rejected, pair.positive_id) == (
        "run uv lock",
        "edited lock file",
        None,
    )


def test_others_are_matched_with_the_nearest_success_once_each() -> None:
    negatives = [
        told("n1", "ran migration without backup"),
        told("n2", "ran migration without plan"),
    ]
    positives = [told("p1", "ran migration after backup"), told("p2", "wrote haiku")]
    found = pairs(negatives, positives)
    assert [(one.negative_id, one.positive_id) for one in found] == [("n1", "p1")]
    assert pairs([told("n", "a b c", tags="git")], [told("p", "x y z", tags="git")]) == []


# -- belief in one session --------------------------------------------------------------------


@pytest.mark.parametrize("witness", ["person", "agent"])
def test_every_report_of_one_session_adds_ever_less_up_to_the_cap(witness: Witness) -> None:
    masses = [
        believe([BeliefEvent(20_000.0, witness, 1.0, "s")] * many).support for many in range(1, 9)
    ]
    steps = [later - before for before, later in pairwise(masses)]
    assert all(step > 0 for step in steps)
    assert steps == sorted(steps, reverse=True)
    assert masses[-1] < SESSION_CAPS[witness]
