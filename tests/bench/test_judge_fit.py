"""Fits of the judge's weights find planted ones."""

from __future__ import annotations

import numpy as np
import pytest
from bench.judge_fit import (
    CLAIM,
    CLAIM_LIMITS,
    CLAIM_PENALTY,
    SHIPPED,
    TITLED,
    UNTITLED,
    Sample,
    chances_by_name,
    cross_validated,
    fit,
    fit_claims,
    log_loss,
)

from meritory.domain.session import JudgedMemory, Turn
from meritory.text.judge.digest import read_digest, vocabulary_of
from meritory.text.judge.evidence import (
    SIGNALS,
    Weights,
    build_table,
    chances,
    signals,
    weights_names,
)

PLANTED = Weights(-2.0, 0.6, {"acted": 1.0, "brought": 3.0, "brought_alone": -1.5, "shown": 0.8})


def drawn(weights: Weights, count: int, seed: int = 1) -> Sample:
    """Candidates whose truth is drawn with the chances of some weights."""
    rng = np.random.default_rng(seed)
    table = np.zeros((count, len(SIGNALS)))
    for name in ("brought", "brought_alone", "brought_above_chance", "size"):
        table[:, SIGNALS.index(name)] = rng.normal(1.0, 1.0, count)
    table[:, SIGNALS.index("shown")] = rng.random(count) < 0.3
    return Sample(table, rng.random(count) < weights.chances(table))


def test_a_fit_finds_planted_weights() -> None:
    found = fit(drawn(PLANTED, 40_000), PLANTED, penalty=1.0)
    assert found.limit == 0.6
    assert found.bias == pytest.approx(-2.0, abs=0.15)
    assert found.by_signal == pytest.approx(dict(PLANTED.by_signal), abs=0.2)


def test_a_signal_that_never_varies_keeps_its_weight() -> None:
    sample = drawn(PLANTED, 20_000)
    sample.signals[:, SIGNALS.index("acted")] = 1.0
    found = fit(sample, PLANTED, penalty=1.0)
    assert found.by_signal["acted"] == 1.0
    # The constant signal adds 1 to every candidate, which the bias takes back.
    assert found.bias == pytest.approx(-3.0, abs=0.2)


def test_a_penalty_shrinks_weights_and_separable_data_stays_finite() -> None:
    table = np.zeros((200, len(SIGNALS)))
    table[:100, SIGNALS.index("brought")] = 1.0
    sample = Sample(table, table[:, SIGNALS.index("brought")] > 0.0)
    weak, strong = (fit(sample, PLANTED, penalty) for penalty in (0.1, 10.0))
    assert 0.0 < strong.by_signal["brought"] < weak.by_signal["brought"] < 100.0


def test_the_penalty_is_on_standardised_signals() -> None:
    """Where the penalised likelihood is largest, its gradient is zero."""
    shipped, penalty = Weights(0.0, 1.0, {"brought": 0.0, "size": 0.0}), 30.0
    sample = drawn(PLANTED, 400)
    found = fit(sample, shipped, penalty)
    table = sample.signals[:, [SIGNALS.index(name) for name in found.by_signal]]
    scaled = (table - table.mean(axis=0)) / table.std(axis=0)
    weights = np.array(list(found.by_signal.values())) * table.std(axis=0)
    missing = sample.helped - found.chances(sample.signals)
    assert scaled.T @ missing == pytest.approx(penalty * weights, abs=1e-3)
    assert missing.sum() == pytest.approx(0.0, abs=1e-3)


def test_a_fit_is_better_than_other_weights_on_its_own_sample() -> None:
    sample = drawn(PLANTED, 5_000)
    found = fit(sample, PLANTED, penalty=0.01)
    assert log_loss(found, sample) <= log_loss(PLANTED, sample)
    assert log_loss(found, sample) < log_loss(Weights(-2.0, 0.6, {"brought": -3.0}), sample)


@pytest.mark.parametrize("limit", [0.6, 1.0])
def test_cross_validation_finds_the_planted_limit(limit: float) -> None:
    by_signal = {"brought": 2.5, "brought_alone": 2.0, "size": -0.5, "shown": 1.0}
    planted = Weights(-1.0, limit, by_signal)
    folds = [drawn(planted, 8_000, seed) for seed in (1, 2)]
    found, losses = fit_claims(folds)
    assert tuple(losses) == CLAIM_LIMITS
    assert found.limit == limit
    assert losses[limit] == cross_validated(folds, limit)


def test_each_fold_is_judged_by_the_others_only() -> None:
    one, other = drawn(PLANTED, 2_000, 1), drawn(PLANTED, 2_000, 2)
    lying = Sample(other.signals, ~other.helped)
    expected = [
        log_loss(fit(a, SHIPPED[CLAIM], CLAIM_PENALTY, 1.0), b)
        for a, b in ((lying, one), (one, lying))
    ]
    assert cross_validated([one, lying], 1.0) == pytest.approx(np.mean(expected))
    assert min(expected) > log_loss(fit(one, SHIPPED[CLAIM], CLAIM_PENALTY, 1.0), one)


def test_the_weights_of_each_memory_are_those_of_the_judge() -> None:
    texts = ["src/a.py\nthe otter swims", "the heron waits\nby the river", "Otters are fast."]
    memories = [JudgedMemory(text, was_shown=True) for text in texts]
    turns = [
        Turn("user", "go on"),
        Turn("edit", "otter = heron", ("/x/src/a.py",)),
        Turn("result", "a river"),
    ]
    table = build_table(memories)
    digest = read_digest(turns, vocabulary_of(texts))
    names = weights_names(table, digest)
    assert names.tolist() == [TITLED, UNTITLED, CLAIM]
    found = chances_by_name(signals(table, digest), names)
    assert found == pytest.approx(chances(table, digest))
    other = {**SHIPPED, CLAIM: Weights(0.0, 1.0, {})}
    assert chances_by_name(signals(table, digest), names, other)[2] == 0.5
