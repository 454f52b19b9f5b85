"""Candidates: the union, fair shares under the cap, required ones on top, and a fixed order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meritory.domain.policy import CANDIDATE_POOL_SIZE
from meritory.rank.hybrid import pool

ROWS = st.lists(st.integers(0, 40), max_size=30)
SOURCES = st.dictionaries(st.sampled_from(["effective", "cosine", "text", "history"]), ROWS)


def test_a_union_under_the_cap_keeps_everything_with_its_origins() -> None:
    found = pool({"effective": [7, 3], "cosine": [3, 5], "text": []})
    assert found.rows == (3, 5, 7)
    assert found.origins == (
        frozenset({"effective", "cosine"}),
        frozenset({"cosine"}),
        frozenset({"effective"}),
    )


def test_over_the_cap_every_source_is_cut_at_the_same_depth() -> None:
    found = pool(
        {"effective": range(50), "cosine": range(100, 150), "text": range(200, 203)}, (), 13
    )
    assert found.rows == (0, 1, 2, 3, 4, 100, 101, 102, 103, 104, 200, 201, 202)


def test_in_a_round_without_room_for_all_the_first_named_goes_first() -> None:
    assert pool({"cosine": [1], "text": [0]}, size=1).rows == (1,)
    assert pool({"text": [0], "cosine": [1]}, size=1).rows == (0,)


def test_a_row_that_two_sources_share_does_not_cost_them_their_depth() -> None:
    found = pool({"effective": [1, 2, 3], "cosine": [1, 2, 4], "text": [9, 8, 7]}, size=4)
    assert found.rows == (1, 2, 8, 9)


def test_a_row_named_twice_by_one_source_counts_once() -> None:
    assert pool({"text": [1, 1, 1, 2], "cosine": [5, 6]}, size=4).rows == (1, 2, 5, 6)


def test_required_rows_come_on_top_of_the_cap() -> None:
    found = pool({"cosine": [1, 2, 3]}, required=[9, 2], size=2)
    assert found.rows == (1, 2, 3, 9)
    assert dict(zip(found.rows, found.origins, strict=True)) == {
        1: {"cosine"},
        2: {"cosine", "required"},
        3: {"cosine"},
        9: {"required"},
    }


def test_a_source_that_found_a_row_too_late_is_still_among_its_origins() -> None:
    found = pool({"cosine": [1, 2, 3], "text": [3, 4, 5]}, size=2)
    assert dict(zip(found.rows, found.origins, strict=True)) == {
        1: {"cosine"},
        3: {"cosine", "text"},
    }


def test_rows_may_come_from_arrays() -> None:
    found = pool({"cosine": np.array([4, 2])}, required=np.array([8]))  # type: ignore[dict-item]
    assert found.rows == (2, 4, 8)
    assert all(type(row) is int for row in found.rows)


def test_nothing_found_is_an_empty_pool() -> None:
    assert pool({}) == pool({"text": []})
    assert pool({}).rows == ()


def test_wrong_use_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 0, not -1"):
        pool({}, size=-1)
    with pytest.raises(ValueError, match="required"):
        pool({"required": [1]})


def test_the_pool_is_capped_as_shipped() -> None:
    found = pool({"a": range(1000), "b": range(5000, 6000)}, required=[70_000])
    assert len(found.rows) == CANDIDATE_POOL_SIZE + 1 == 151


@given(SOURCES, st.lists(st.integers(0, 60), max_size=10), st.integers(0, 50))
def test_laws_of_every_pool(sources: dict[str, list[int]], required: list[int], size: int) -> None:
    found = pool(sources, required, size)
    rows, everything = set(found.rows), set().union(*sources.values())
    assert list(found.rows) == sorted(rows)
    assert rows >= set(required)
    assert rows <= everything | set(required)
    free = everything - set(required)
    assert len(rows - set(required)) == min(size, len(free))
    for row, origins in zip(found.rows, found.origins, strict=True):
        listed = {name for name, members in sources.items() if row in members}
        assert origins == listed | ({"required"} if row in required else set())


@given(SOURCES, st.integers(0, 50))
def test_all_sources_are_cut_at_one_depth(sources: dict[str, list[int]], size: int) -> None:
    rows = set(pool(sources, (), size).rows)
    lists = [list(dict.fromkeys(members)) for members in sources.values()]
    places = [(place, row) for members in lists for place, row in enumerate(members)]
    depth = min((place for place, row in places if row not in rows), default=size)
    # Above that depth no source lost anything; below it none has a row that no other lists higher.
    assert all(min(place for place, other in places if other == row) <= depth for row in rows)
