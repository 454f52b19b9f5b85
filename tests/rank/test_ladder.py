"""The ladder of rules and the search for what a report is about."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meritory.domain import rule
from meritory.rank import ladder
from meritory.rank.feedback import WINDOW_S, Seen, attribute
from meritory.rank.ladder import RuleStatus

NOW = datetime(2026, 3, 1, tzinfo=UTC)
FRESH = RuleStatus("proposed", 1.0, "blocks", True, False, False, NOW + ladder.LIFE)


def up(**changes: object) -> str:
    return ladder.stepped(replace(FRESH, **changes), 1)[0]  # type: ignore[arg-type]


def down(**changes: object) -> str:
    return ladder.settled(replace(FRESH, **changes), NOW)[0]  # type: ignore[arg-type]


def test_the_second_case_warns_and_the_fourth_blocks() -> None:
    assert up(weight=0.0) == "proposed"
    assert up(weight=1.0) == "warns"
    assert up(state="warns", weight=2.0) == "warns"
    assert up(state="warns", weight=3.0) == "blocks"


def test_a_step_is_one_step_and_needs_everything() -> None:
    assert up(weight=50.0) == "warns"
    assert up(is_clear=False) == up(is_held=True) == up(reach="proposed") == "proposed"
    assert up(state="warns", weight=50.0, reach="warns") == "warns"
    assert up(state="expired", weight=9.0) == "expired"
    assert up(state="retired", weight=9.0) == "retired"


def test_what_fades_comes_down_and_ends() -> None:
    assert down(state="blocks", weight=1.6) == "blocks"
    assert down(state="blocks", weight=1.4) == "warns"
    assert down(state="warns", weight=0.3) == "proposed"
    assert down(state="blocks", weight=0.0, is_approved=True) == "blocks"
    assert down(state="blocks", weight=9.0, unheeded_count=2) == "warns"
    assert down(state="blocks", weight=9.0, is_approved=True, expires_at=NOW) == "expired"


def test_a_report_weighs_half_after_a_week() -> None:
    assert ladder.faded(4.0, NOW, NOW + timedelta(days=7)) == pytest.approx(2.0)
    assert ladder.faded(4.0, NOW, NOW - timedelta(days=7)) == 4.0


@given(
    st.sampled_from(ladder.STATES),
    st.floats(0, 100),
    st.sampled_from(ladder.ACTIVE),
    st.booleans(),
)
def test_it_never_goes_further_than_its_reach(
    state: rule.State, weight: float, reach: rule.State, is_clear: bool
) -> None:
    order = ladder.ACTIVE
    made = ladder.stepped(
        replace(FRESH, state=state, weight=weight, reach=reach, is_clear=is_clear), 1
    )
    if made[0] != state:
        assert is_clear and order.index(made[0]) == order.index(state) + 1 <= order.index(reach)


WORDS = frozenset({"forc", "push", "main", "commit"})


def test_a_report_finds_the_action_it_speaks_of() -> None:
    seen = [
        Seen(1, 300, 8, frozenset({"git", "push", "forc", "main"})),
        Seen(2, 10, 2, frozenset({"git", "statu"})),
        Seen(3, 5, 2, frozenset({"ls"})),
    ]
    first, *others = attribute(WORDS, -1, seen)
    assert first.action == 1 and first.is_evidence
    assert not any(match.is_evidence for match in others)


def test_an_action_out_of_the_window_or_the_future_is_nobodys() -> None:
    words = frozenset({"forc", "push", "main"})
    assert attribute(WORDS, -1, [Seen(1, WINDOW_S + 1, 9, words), Seen(2, -5, 9, words)]) == []


def test_one_word_in_common_is_no_evidence() -> None:
    (match,) = attribute(frozenset({"git"}), -1, [Seen(1, 1, 2, frozenset({"git", "statu"}))])
    assert not match.is_evidence


def test_the_latest_of_equals_comes_first_and_three_are_enough() -> None:
    seen = [Seen(number, 60, 8, WORDS) for number in range(1, 6)]
    assert [match.action for match in attribute(WORDS, -1, seen)] == [5, 4, 3]
    assert len(attribute(WORDS, 1, seen)) == 3
