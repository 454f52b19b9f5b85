"""The bench of what recall does not know: its figures, its fit, and the control that must fail."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
from bench.abstain import calibration_error, control, fit, missed, outcome
from bench.abstain_data import Asked

from meritory.rank.relevance import NAMES, QueryMatch, numbers_of, probabilities

CHANCE = random.Random(3)


def asked(is_own: bool, *, is_known: bool) -> Asked:
    """A question of three words; the first memory has all or none of them."""
    found = np.zeros((3, 3), np.bool_)
    found[0] = is_known
    found[1, 0] = True
    match = QueryMatch(
        found=found,
        phrases=np.array([float(is_known), 0.0, 0.0]),
        frequencies=np.array([3.0, 4.0, 5.0]),
        cosine=np.array([0.7 if is_known else 0.2, 0.15, 0.1]) + CHANCE.random() / 10,
        final=np.array([1.0, 0.6, 0.2]),
        memory_count=100,
    )
    answers = (is_own and is_known, False, False)
    scores = tuple(probabilities(match).tolist())
    return Asked("realmem", "ann", True, 1 if is_own else None, match, answers, scores, answers)


def half(count: int = 60) -> list[Asked]:
    return [
        replace(asked(own, is_known=own if at % 10 else True), is_tuning=False)
        for at in range(count)
        for own in (True, False)
    ]


def test_questions_that_differ_are_told_apart() -> None:
    found = outcome("realmem", half())
    assert found.best.quiet >= 0.85
    assert found.best.loss <= 0.05
    assert [point.quiet for point in found.curve] == sorted(point.quiet for point in found.curve)
    assert [point.loss for point in found.curve] == sorted(point.loss for point in found.curve)


def test_the_control_misses_the_bars() -> None:
    questions = half()
    assert not any("off-topic" in miss for miss in missed([outcome("realmem", questions)]))
    shuffled = outcome("realmem", control(questions, "realmem"))
    assert any("off-topic" in miss for miss in missed([shuffled]))


def test_the_calibration_error_is_the_distance_from_what_answers() -> None:
    assert calibration_error([(0.25, True), (0.25, False), (0.25, False), (0.25, False)]) == 0.0
    assert np.isclose(calibration_error([(0.9, False)] * 5 + [(0.1, False)] * 5), 0.5)


def test_fitted_weights_have_the_sign_of_their_meaning() -> None:
    weights = fit(half(), NAMES)
    assert weights.by_name
    for name, weight in weights.by_name.items():
        assert (weight > 0.0) or name in ("unknown", "memory_count"), name
    known, unknown = (asked(True, is_known=is_known).match for is_known in (True, False))
    assert weights.probabilities(numbers_of(known))[0] > 0.6
    assert weights.probabilities(numbers_of(unknown))[0] < 0.2
