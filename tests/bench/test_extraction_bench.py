"""The bench of extraction: its labels, its figures, and that it notices a broken extractor."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from bench.datasets import MissingData, WrongData, data_root
from bench.extraction import (
    NONE,
    WAYS,
    Label,
    cases,
    extract,
    figures,
    missed_bars,
    outcomes,
    read_labels,
    share,
)

from meritory.domain.session import Turn
from meritory.text.extract.rules import FoundClaim

SAID = (
    ("Always use pnpm and never npm.", "rule", "constraint"),
    ("I prefer tabs over spaces.", "preference", "preference"),
    ("We use pytest, not unittest.", "decision", "decision"),
    ("No, the staging port is 8081.", "correction", "fact"),
    ("Should we always use pnpm?", NONE, "-"),
    ("Fix the login page.", NONE, "-"),
)


def made_up() -> list[tuple[Label, str]]:
    return [
        (Label(("made", str(n), "0"), hashlib.sha256(text.encode()).hexdigest(), way, kind), text)
        for n, (text, way, kind) in enumerate(SAID)
    ]


def deaf(turns: Sequence[Turn]) -> list[FoundClaim]:
    return []


def greedy(turns: Sequence[Turn]) -> list[FoundClaim]:
    said = turns[-1].text
    return [FoundClaim(said, "fact", "user_stated", "user", 0.9, 1, said)]


def test_the_right_extractor_passes_and_broken_ones_do_not() -> None:
    assert missed_bars(figures(outcomes(made_up(), extract))) == []
    assert len(missed_bars(figures(outcomes(made_up(), deaf)))) == 2
    (missed,) = missed_bars(figures(outcomes(made_up(), greedy)))
    assert missed.startswith("precision")
    kind = figures(outcomes(made_up(), greedy))["right kind"]
    assert (kind["hits"], kind["total"]) == (1, 4)


def test_shares_have_intervals() -> None:
    assert share(0, 0)["share"] is None
    half = share(5, 10)
    assert half["share"] == 0.5 and 0.2 < float(half["low"] or 0) < 0.3
    assert share(10, 10)["high"] == 1.0 and float(share(10, 10)["low"] or 0) < 0.8


def test_the_labels_are_many_and_hold_no_text() -> None:
    labels = read_labels()
    positives = [one for one in labels if one.way != NONE]
    assert len(labels) >= 200 and len(positives) >= 60
    assert {one.way for one in labels} == {*WAYS, NONE}
    assert len({one.place for one in labels}) == len(labels) == len({one.digest for one in labels})
    assert all(len(one.digest) == 64 and " " not in "".join(one.place) for one in labels)
    assert 80 < sum(one.is_reported for one in labels) < len(labels) - 80


def test_a_turn_that_is_not_the_labelled_one_is_noticed() -> None:
    labels = read_labels()[:1]
    changed = [Label(labels[0].place, "0" * 64, "none", "-")]
    try:
        assert len(cases(labels, data_root())) == 1
    except MissingData:
        pytest.skip("the data sets are not here")
    with pytest.raises(WrongData):
        cases(changed, data_root())


def test_a_missing_data_set_is_told(tmp_path: Path) -> None:
    with pytest.raises(MissingData):
        cases(read_labels(), tmp_path)
