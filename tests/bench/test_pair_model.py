"""The training of the model of unsure chains: what it learns from, and its control."""

from __future__ import annotations

import numpy as np
import pytest
from bench.everyday_cases import Pair

from bench import pair_model
from meritory.text.succession import NAMES


def lessons(count: int = 1_200) -> pair_model.Lessons:
    """Examples of which the share of changed words tells all."""
    rows = np.random.default_rng(3).normal(size=(count, len(NAMES)))
    is_newer = rows[:, NAMES.index("new changed")] > 0
    flags = np.ones(count, np.bool_)
    pair = Pair("en", "neighbour", "other", "a", "b", "made")
    return pair_model.Lessons(
        examples=tuple(pair_model.Example(pair, str(number)) for number in range(count)),
        rows=rows,
        is_asked=flags,
        is_newer=is_newer,
        is_neutral=~flags,
        is_weak=flags,
        is_hand=~flags,
        is_open=flags,
        weights=np.ones(count),
        folds=np.arange(count) % pair_model.FOLDS,
    )


def test_examples_that_were_left_out_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_model, "EPOCHS", 60)
    monkeypatch.setattr(pair_model, "MEMBERS", 1)
    given = lessons()
    scores = pair_model.crossed(given, given.is_newer)
    assert np.mean((scores > 0) == given.is_newer) > 0.85
    shuffled = np.random.default_rng(1).permutation(given.is_newer)
    control = pair_model.crossed(given, shuffled)
    assert np.mean((control > 0) == given.is_newer) < 0.65


def test_the_threshold_links_the_wanted_share_of_neighbours() -> None:
    given = lessons(2_000)
    scores = np.random.default_rng(2).normal(size=2_000)
    linked = scores >= pair_model.threshold_of(given, scores)
    assert linked.mean() == pytest.approx(pair_model.LINKED_SHARE, abs=0.001)


def test_the_halves_of_the_everyday_bench_are_kept_apart() -> None:
    pairs = {one.pair for one in pair_model.labelled()}
    assert all(one.source != "hand" or one.kind for one in pairs)
    assert set(pair_model.read_pairs("report")).isdisjoint(pairs)
