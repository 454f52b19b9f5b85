"""The features of a search: finite, in half precision, and about the candidates alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from meritory.rank.features import NEVER_LOG_DAYS
from meritory.rank.hybrid import Links
from meritory.rank.search_features import (
    RECORDED,
    SEARCH_FEATURES,
    SearchFeatureInputs,
    search_features,
)
from meritory.rank.usage_history import Moment, UsedSessions, look_back, usage

HITS = 4


def made(**changes: Any) -> SearchFeatureInputs:
    """Four hits of two sessions, of which the last and the first are candidates."""
    past = UsedSessions(
        times_days=np.array([90.0]),
        contexts=np.zeros((1, 2), np.float32),
        projects=np.array([-1]),
        use_session=np.array([0]),
        use_memory=np.array([40]),
        use_gain=np.array([1.0]),
    )
    hindsight = look_back(past, Moment(100.0, np.empty(0, np.float32)))
    usual: dict[str, Any] = {
        "score": np.array([0.9, 0.7, 0.5, 0.3]),
        "own_score": np.array([0.8, 0.6, 0.4, 0.2]),
        "text": np.array([4.0, 0.0, 2.0, 1.0]),
        "cosine": np.array([0.5, np.nan, 0.1, 0.2]),
        "plain_cosine": np.array([0.6, np.nan, 0.2, 0.3]),
        "soft_match": 0.0,
        "told": np.array([0.5, 0.25, 0.0, 0.125]),
        "length_chars": np.array([10, 20, 30, 40]),
        "source_weight": np.ones(HITS),
        "links": Links(np.array([-1, 0, -1, 2]), np.array([1, -1, 3, -1]), np.array([0, 0, 1, 1])),
        "at": np.array([3, 0]),
        "age_days": np.array([3.0, -1.0]),
        "is_same_project": [True, False],
        "is_standing": [False, True],
        "importance": [0.5, 0.75],
        "stored_usefulness": [0.5, 0.25],
        "usage": usage(hindsight, np.array([40, 10])),
    }
    return SearchFeatureInputs(**{**usual, **changes})


def column(table: np.ndarray[Any, Any], name: str) -> list[float]:
    found: list[float] = table[:, SEARCH_FEATURES.index(name)].tolist()
    return found


def test_a_row_is_about_its_candidate() -> None:
    table = search_features(made())
    assert table.shape == (2, len(SEARCH_FEATURES))
    assert column(table, "text") == [0.25, 1.0]
    assert np.allclose(column(table, "score"), [0.3, 0.9], atol=1e-3)
    # The best of its own session, and the turn next to it.
    assert np.allclose(column(table, "session_best"), [0.4, 0.8], atol=1e-3)
    assert np.allclose(column(table, "neighbour"), [0.4, 0.6], atol=1e-3)
    assert np.allclose(column(table, "log_age_days"), [np.log(4.0), 0.0], atol=1e-3)
    assert column(table, "told") == [0.125, 0.5]
    assert column(table, "is_standing") == [0.0, 1.0]
    assert column(table, "never_used") == [0.0, 1.0]
    assert np.allclose(
        column(table, "log_days_since_useful"), [np.log(11.0), NEVER_LOG_DAYS], atol=1e-2
    )


def test_what_others_of_the_session_brought_counts_for_a_memory() -> None:
    both = search_features(made(links=_linked([0, 0, 0, 0])))
    used = column(both, "frecency")
    assert used[0] > 0.0 == used[1]
    assert np.allclose(column(both, "session_frecency"), [0.0, np.log1p(used[0])], atol=1e-3)
    # Its own uses do not count, nor those of another session, nor those of memories without one.
    for sessions in ([0, 0, 1, 1], [-1, 0, 0, -1]):
        apart = search_features(made(links=_linked(sessions)))
        assert column(apart, "session_frecency") == [0.0, 0.0]


def _linked(sessions: list[int]) -> Links:
    return Links(np.full(HITS, -1), np.full(HITS, -1), np.array(sessions))


def test_what_is_scored_survives_being_recorded() -> None:
    table = search_features(made())
    assert np.array_equal(table, table.astype(RECORDED).astype(np.float64))


def test_no_number_is_lost_or_infinite() -> None:
    wild = made(
        cosine=np.array([np.nan, np.inf, -np.inf, np.nan]),
        importance=[np.inf, np.nan],
        age_days=np.array([np.nan, 1e300]),
    )
    assert np.isfinite(search_features(wild)).all()


def test_without_sessions_every_memory_is_its_own() -> None:
    alone = Links(*(np.full(HITS, -1),) * 3)
    table = search_features(made(links=alone))
    assert column(table, "session_best") == column(table, "own_score")
    assert column(table, "neighbour") == [0.0, 0.0]
