"""The benches can fail: a figure over its bar and a planted wrong verdict are reported."""

from __future__ import annotations

import numpy as np
import pytest
from bench.gate_made import Pair

from bench import gate, speed


def judged(pairs: list[Pair], *, merges: bool, supersedes: bool) -> gate.Judged:
    count = len(pairs)
    return gate.Judged(
        "planted",
        pairs,
        np.full(count, 0.9, np.float32),
        np.full(count, merges),
        np.full(count, supersedes),
        np.full(count, False),
    )


def test_a_speed_over_its_bar_is_missed(capsys: pytest.CaptureFixture[str]) -> None:
    rows: list[tuple[str, float, float | None, str]] = [
        ("fine", 4.0, 5.0, ""),
        ("slow", 6.0, 5.0, ""),
        ("told only", 9.0, None, ""),
    ]
    assert speed.show(rows) == ["slow"]
    assert "MISSED <= 5" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("merges", "supersedes", "code"), [(False, False, 0), (True, False, 1), (False, True, 1)]
)
def test_a_lost_value_or_a_wrong_successor_fails_the_gate(
    merges: bool, supersedes: bool, code: int
) -> None:
    pairs = [Pair("the sky is blue", "the sky is red", "planted")]
    groups = {
        "values": judged(pairs, merges=merges, supersedes=False),
        "no changes": judged(pairs, merges=False, supersedes=supersedes),
    }
    assert gate._exit_code(groups) == code
