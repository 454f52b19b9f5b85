"""The shipped weights of the model of unsure chains, and their file."""

from __future__ import annotations

import numpy as np
import pytest

from meritory.model.succession import read_model, succession_model
from meritory.text.succession import NAMES, features, sight


def score(old: str, new: str, cosine: float) -> float:
    return float(succession_model().score(features(sight(old), sight(new), cosine)))


def test_the_weights_fit_the_features() -> None:
    model = succession_model()
    assert model.names == NAMES
    assert model.hidden.shape == (len(NAMES), len(model.hidden_bias))
    assert model.output.shape == model.hidden_bias.shape


def test_a_model_is_the_same_after_its_file_was_written_and_read() -> None:
    model = succession_model()
    again = read_model(model.as_json())
    assert again.as_json() == model.as_json()
    rows = np.random.default_rng(1).normal(size=(5, len(NAMES)))
    assert np.array_equal(model.score(rows), again.score(rows))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "I've collected 14 beer mats since I started in spring",
            "I just got another one, so I now have 19 beer mats in my collection",
        ),
        (
            "I have a deadline of June 4 for the first chapter of my thesis",
            "I need to plan around the new deadline of June 11 for the first chapter",
        ),
        (
            "my running app says I've reached 210 kilometers so far",
            "I've now reached 260 kilometers in my running app, which makes me proud",
        ),
    ],
)
def test_a_newer_value_scores_above_the_threshold_and_another_subject_far_below(
    old: str, new: str
) -> None:
    model = succession_model()
    assert model.is_likely(features(sight(old), sight(new), 0.7))
    assert score(old, "Mira likes the songs of the choir in Bergen", 0.45) < model.threshold - 2


def test_two_claims_about_two_people_are_not_likely() -> None:
    model = succession_model()
    pair = ("Olga enjoys hiking with her dogs", "Priya finds peace in the woods with her family")
    assert not model.is_likely(features(sight(pair[0]), sight(pair[1]), 0.6))
