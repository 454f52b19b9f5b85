"""Precision, recall and calibration of a judge, on made-up scores."""

from __future__ import annotations

import json

import numpy as np
import pytest
from bench.judge_figures import (
    Figures,
    Judged,
    SetFigures,
    figures,
    precision_at,
    reliability,
    set_figures,
)

NONE = float("nan")


def flags(text: str) -> np.ndarray:
    return np.array([letter == "x" for letter in text])


def test_precision_and_recall_count_scores_of_at_least_04() -> None:
    found = figures(np.array([0.9, 0.4, 0.39, 0.1, -0.5]), flags("x-x--"))
    assert (found.count, found.helped_count) == (5, 2)
    assert found.precision == 0.5 and found.recall == 0.5


def test_a_candidate_without_a_label_is_not_found() -> None:
    found = figures(np.array([0.9, NONE, NONE]), flags("xx-"))
    assert (found.count, found.precision, found.recall) == (1, 1.0, 0.5)
    nothing = figures(np.array([NONE, 0.1]), flags("x-"))
    assert np.isnan(nothing.precision) and nothing.recall == 0.0


def test_precision_at_a_recall_takes_the_highest_threshold_that_reaches_it() -> None:
    scores, helped = np.array([0.9, 0.8, 0.7, 0.6, 0.5]), flags("x-x-x")
    assert precision_at(scores, helped, 0.3) == 1.0
    assert precision_at(scores, helped, 0.34) == pytest.approx(2 / 3)
    assert precision_at(scores, helped, 1.0) == pytest.approx(3 / 5)


def test_equal_scores_are_found_together() -> None:
    assert precision_at(np.array([0.9, 0.9, 0.9, 0.9]), flags("x---"), 0.1) == 0.25
    assert precision_at(np.array([0.9, 0.9, 0.9, 0.9]), flags("---x"), 0.1) == 0.25


def test_a_recall_out_of_reach_has_no_precision() -> None:
    assert np.isnan(precision_at(np.array([0.9, NONE]), flags("xx"), 0.6))
    assert precision_at(np.array([0.9, NONE]), flags("xx"), 0.5) == 1.0
    assert np.isnan(precision_at(np.array([0.9]), flags("-"), 0.1))
    assert np.isnan(precision_at(np.zeros(0), np.zeros(0, np.bool_), 0.1))


def test_reliability_is_by_tenths() -> None:
    scores = np.array([0.0, 0.05, 0.1, 0.55, 0.95, 1.0, -0.5])
    bins = reliability(scores, flags("--x-xx-"))
    assert [(round(one.mean, 3), one.share, one.count) for one in bins] == [
        (0.017, 0.0, 3),
        (0.1, 1.0, 1),
        (0.55, 0.0, 1),
        (0.975, 1.0, 2),
    ]


def test_the_largest_gap_leaves_out_tenths_with_few_scores() -> None:
    scores = np.array([0.95] * 49 + [0.25] * 50)
    few = figures(scores, np.zeros(99, np.bool_))
    assert few.largest_gap == pytest.approx(0.25)
    enough = figures(np.append(scores, 0.95), np.zeros(100, np.bool_))
    assert enough.largest_gap == pytest.approx(0.95)
    assert np.isnan(figures(np.array([0.5]), flags("x")).largest_gap)


def judged(confidence: float, *scores: float) -> Judged:
    chances = np.array(scores)
    labels = np.where(chances >= 0.7, chances, np.nan)
    return Judged("s", flags("x" + "-" * (len(scores) - 1)), chances, labels, confidence)


def test_sessions_are_taken_together() -> None:
    found = set_figures([judged(0.9, 0.8, 0.5), judged(0.3, 0.2, 0.1)], (0.5,))
    assert (found.sessions, found.candidates, found.used, found.teaching) == (2, 4, 2, 0.5)
    assert (found.chances.precision, found.chances.recall) == (0.5, 0.5)
    assert (found.labels.precision, found.labels.recall) == (1.0, 0.5)
    assert found.labels.count == 1
    assert set_figures([judged(0.5, 0.8)], min_confidence=0.6).teaching == 0.0


def test_figures_survive_json() -> None:
    found = set_figures([judged(0.9, 0.8, 0.5), judged(0.3, 0.2, 0.1)], (0.45, 0.9))
    known = json.loads(json.dumps(found.plain()))
    assert known["labels"]["precision_at_recall"] == {"0.45": 1.0, "0.9": None}
    read = SetFigures.from_plain(known)
    assert read.chances.bins == found.chances.bins
    assert read.plain() == found.plain()
    assert isinstance(read.labels, Figures) and np.isnan(read.labels.precision_at[0.9])
