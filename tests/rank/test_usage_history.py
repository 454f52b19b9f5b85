"""History: what each number says, a plain twin for all of them, and that nothing NaN gets out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meritory.rank.usage_history import (
    LATEST_CONTEXTS,
    NEAREST_SESSIONS,
    NEARNESS_POWER,
    RECENT_SESSIONS,
    Hindsight,
    Moment,
    Usage,
    UsedSessions,
    look_back,
    top_rows,
    usage,
)

EAST, NORTH, WEST, NOWHERE = (1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, 0.0)
TODAY = 100.0

# One finished session: when, about what, where, and what helped how much.
Session = tuple[float, Sequence[float], int, dict[int, float]]


def remembered(sessions: Sequence[Session]) -> UsedSessions:
    uses = [(at, row, gain) for at, one in enumerate(sessions) for row, gain in one[3].items()]
    return UsedSessions(
        times_days=np.array([one[0] for one in sessions], np.float64),
        contexts=np.array([one[1] for one in sessions], np.float32).reshape(len(sessions), 2),
        projects=np.array([one[2] for one in sessions], np.int64),
        use_session=np.array([use[0] for use in uses], np.int64),
        use_memory=np.array([use[1] for use in uses], np.int64),
        use_gain=np.array([use[2] for use in uses], np.float64),
    )


def seen(
    sessions: Sequence[Session], context: Sequence[float] = EAST, project: int = -1
) -> Hindsight:
    return look_back(remembered(sessions), Moment(TODAY, np.array(context, np.float32), project))


def used(
    sessions: Sequence[Session],
    rows: Sequence[int],
    context: Sequence[float] = EAST,
    project: int = -1,
) -> Usage:
    return usage(seen(sessions, context, project), np.array(rows, np.int64))


def arrays(found: Usage) -> Iterator[tuple[str, np.ndarray]]:
    for item in fields(found):
        yield item.name, getattr(found, item.name)


def test_without_a_past_every_number_is_0() -> None:
    for name, values in arrays(used([], [3, 5])):
        assert values.tolist() == [0.0, 0.0], name
    assert top_rows(seen([]), 50).tolist() == []


def test_a_memory_that_never_helped_has_0_everywhere() -> None:
    for name, values in arrays(used([(99.0, EAST, 0, {7: 1.0})], [8])):
        assert values.tolist() == [0.0], name


def test_last_use_and_count_are_those_of_the_memory_asked_for() -> None:
    sessions: list[Session] = [
        (90.0, EAST, 0, {1: 1.0, 2: 0.5}),
        (95.0, EAST, 0, {1: 0.5}),
        (99.0, EAST, 0, {4: 1.0}),
    ]
    found = used(sessions, [2, 1])
    assert found.days_since.tolist() == [10.0, 5.0]
    assert found.count.tolist() == [1.0, 2.0]


def test_frecency_weighs_a_use_by_its_gain_and_fades_it_by_its_age() -> None:
    found = used([(90.0, EAST, 0, {1: 1.0}), (98.0, EAST, 0, {1: 0.5})], [1])
    assert found.frecency == pytest.approx([math.log1p(0.95**10 + 0.5 * 0.95**2)])


def test_this_project_is_counted_apart() -> None:
    sessions: list[Session] = [(90.0, EAST, 1, {1: 1.0}), (99.0, EAST, 2, {1: 1.0})]
    found = used(sessions, [1], project=1)
    assert (found.days_since[0], found.count[0]) == (1.0, 2.0)
    assert (found.days_since_here[0], found.count_here[0]) == (10.0, 1.0)


def test_the_previous_session_is_the_last_one_of_this_project() -> None:
    sessions: list[Session] = [
        (90.0, EAST, 1, {1: 1.0}),
        (91.0, EAST, 1, {2: 0.5}),
        (92.0, EAST, 2, {3: 1.0}),
    ]
    assert used(sessions, [1, 2, 3], project=1).in_previous.tolist() == [0.0, 1.0, 0.0]
    assert used(sessions, [1, 2, 3], project=-1).in_previous.tolist() == [0.0, 0.0, 1.0]


def test_the_share_is_of_the_latest_sessions_only() -> None:
    sessions: list[Session] = [(day, EAST, 0, {1: 1.0}) for day in range(80, 95)]
    sessions += [(95.0 + day, EAST, 0, {2: 1.0}) for day in range(RECENT_SESSIONS - 3)]
    found = used(sessions, [1, 2])
    assert found.share_of_recent == pytest.approx([3 / RECENT_SESSIONS, 1 - 3 / RECENT_SESSIONS])
    assert used(sessions[:2], [1]).share_of_recent == pytest.approx([1.0])


def test_what_helped_in_the_like_session_is_associated_and_the_opposite_is_not() -> None:
    sessions: list[Session] = [
        (90.0, EAST, 0, {1: 1.0}),
        (91.0, NORTH, 0, {2: 1.0}),
        (92.0, WEST, 0, {3: 1.0}),
    ]
    found = used(sessions, [1, 2, 3]).association
    assert found[0] > 0.99
    assert found[0] > found[1] >= found[2] == 0.0


def test_association_is_the_weighted_share_of_the_nearest_sessions() -> None:
    near: list[Session] = [(90.0, EAST, 0, {1: 0.5, 2: 1.0}), (91.0, EAST, 0, {1: 1.0})]
    assert used(near, [1, 2]).association == pytest.approx([0.75, 0.5])


def test_only_the_nearest_sessions_are_asked() -> None:
    slightly_off = (math.cos(0.05), math.sin(0.05))
    sessions: list[Session] = [(80.0, slightly_off, 0, {1: 1.0})]
    sessions += [(81.0, NORTH, 0, {})] * 100
    assert used(sessions, [1]).association[0] > 0.9
    sessions += [(81.0, EAST, 0, {2: 1.0})] * NEAREST_SESSIONS
    assert used(sessions, [1, 2]).association == pytest.approx([0.0, 1.0])


def test_a_session_without_context_says_nothing_about_nearness() -> None:
    sessions: list[Session] = [(90.0, NOWHERE, 0, {1: 1.0}), (91.0, EAST, 0, {2: 1.0})]
    assert used(sessions, [1, 2]).association == pytest.approx([0.0, 1.0])
    found = used(sessions, [1, 2], context=NOWHERE)
    assert found.association.tolist() == [0.0, 0.0]
    assert found.context_cosine.tolist() == [0.0, 0.0]
    assert found.count.tolist() == [1.0, 1.0]


def test_contexts_of_another_dimension_are_left_aside() -> None:
    past = remembered([(90.0, EAST, 0, {1: 1.0})])
    for context in (np.zeros(0, np.float32), np.ones(3, np.float32)):
        found = usage(look_back(past, Moment(TODAY, context)), np.array([1]))
        assert (found.association[0], found.context_cosine[0]) == (0.0, 0.0)
        assert found.count[0] == 1.0


def test_the_context_is_held_against_the_sum_of_those_where_it_helped() -> None:
    sessions: list[Session] = [(90.0, EAST, 0, {1: 1.0, 2: 1.0}), (91.0, NORTH, 0, {1: 1.0})]
    found = used(sessions, [1, 2, 3]).context_cosine
    assert found == pytest.approx([math.sqrt(0.5), 1.0, 0.0], abs=1e-6)


def test_only_the_latest_contexts_stand_for_a_memory() -> None:
    sessions: list[Session] = [(90.0, NORTH, 0, {1: 1.0})] * 5
    sessions += [(91.0, EAST, 0, {1: 1.0})] * LATEST_CONTEXTS
    assert used(sessions, [1]).context_cosine == pytest.approx([1.0])


def test_co_use_is_what_went_together_with_the_previous_sessions_memories() -> None:
    sessions: list[Session] = [
        (90.0, EAST, 0, {1: 1.0, 5: 1.0}),
        (91.0, EAST, 0, {2: 1.0}),
        (92.0, EAST, 0, {5: 1.0, 6: 1.0}),
    ]
    assert used(sessions, [1, 2, 5]).co_use == pytest.approx([0.5, 0.0, 0.75])


def test_top_rows_take_turns_between_often_last_and_near() -> None:
    sessions: list[Session] = [
        (80.0, EAST, 0, {30: 1.0}),
        *[(97.0, WEST, 0, {10: 1.0})] * 5,
        (99.0, WEST, 0, {20: 0.4}),
    ]
    assert top_rows(seen(sessions), 3).tolist() == [10, 20, 30]
    assert top_rows(seen(sessions), 2).tolist() == [10, 20]


def test_top_rows_stay_within_their_limit_and_name_each_memory_once() -> None:
    sessions: list[Session] = [
        (day, EAST, 0, {row: 1.0 for row in range(day, day + 30)}) for day in range(99)
    ]
    found = top_rows(seen(sessions), 50).tolist()
    assert len(found) == len(set(found)) == 50
    assert top_rows(seen(sessions), 200).tolist()[:50] == found


def test_a_session_from_the_future_counts_as_today() -> None:
    assert used([(TODAY + 9.0, EAST, 0, {1: 1.0})], [1]).days_since.tolist() == [0.0]


def test_damaged_numbers_take_only_their_own_say() -> None:
    sessions: list[Session] = [
        (math.nan, (math.nan, 1.0), 0, {1: math.nan}),
        (90.0, EAST, 0, {2: 1.0, 1: math.inf}),
    ]
    found = used(sessions, [1, 2])
    for name, values in arrays(found):
        assert np.isfinite(values).all(), name
    assert found.association[1] == pytest.approx(1.0)


def twin(sessions: Sequence[Session], row: int, context: np.ndarray) -> dict[str, float]:
    """The same numbers, one memory at a time, as the words describe them."""
    helped = [one for one in sessions if row in one[3]]
    last = sessions[-RECENT_SESSIONS:]
    contexts = np.array([one[1] for one in sessions], np.float64)
    mean = contexts.sum(axis=0) / (len(sessions) + 10.0)
    off, asked = contexts - mean, context - mean
    lengths = np.linalg.norm(off, axis=1) * np.linalg.norm(asked)
    near = np.clip((off @ asked) / np.maximum(lengths, 1e-9), 0.0, 1.0) ** NEARNESS_POWER
    best = sorted(range(len(sessions)), key=lambda at: -near[at])[:NEAREST_SESSIONS]
    total = max(sum(near[at] for at in best), 1e-9)
    summed = np.sum([one[1] for one in helped[-LATEST_CONTEXTS:]], axis=0) if helped else mean * 0
    previous = set(sessions[-1][3])
    together = [len(previous & set(one[3])) / max(len(previous), 1) for one in helped]
    faded = [one[3][row] * 0.95 ** (TODAY - one[0]) for one in helped]
    return {
        "days_since": TODAY - helped[-1][0] if helped else 0.0,
        "count": float(len(helped)),
        "frecency": math.log1p(sum(faded)),
        "in_previous": float(row in previous),
        "share_of_recent": sum(row in one[3] for one in last) / len(last),
        "association": sum(near[at] * sessions[at][3].get(row, 0.0) for at in best) / total,
        "context_cosine": max(0.0, float(summed @ context / max(np.linalg.norm(summed), 1e-9))),
        "co_use": sum(together) / max(len(helped), 1),
    }


@st.composite
def streams(draw: st.DrawFn) -> list[Session]:
    gains = st.dictionaries(st.integers(0, 12), st.floats(0.4, 1.0), max_size=5)
    days = sorted(draw(st.lists(st.floats(0.0, TODAY), min_size=1, max_size=60)))
    angles = st.floats(0.0, 2.0 * math.pi)
    made: list[Session] = []
    for day in days:
        angle = draw(angles)
        made.append((day, (math.cos(angle), math.sin(angle)), 0, draw(gains)))
    return made


@settings(max_examples=60, deadline=None)
@given(streams())
def test_all_numbers_agree_with_a_plain_twin(sessions: list[Session]) -> None:
    context = np.array(EAST)
    found = used(sessions, range(13))
    for row in range(13):
        for name, value in twin(sessions, row, context).items():
            assert getattr(found, name)[row] == pytest.approx(value, abs=2e-4), name
