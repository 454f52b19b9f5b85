"""The replay of one's own sessions: it agrees with what was recorded, and admits chance."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from session_kit import Desk

from learning_kit import lived, noted
from meritory.domain.errors import Conflict, InputError
from meritory.domain.predictor import ComparisonQuery
from meritory.engine.predictor import admin
from meritory.engine.predictor.backtest import MIN_SESSIONS, backtest
from meritory.rank.influence import ALPHAS
from meritory.rank.metrics import ndcg_at

Desks = Callable[..., Desk]
CALM = {"predictor_train_interval_sessions": 10_000}
USER = "default"
COUNT = 16


@pytest.fixture
def desk(desks: Desks) -> Desk:
    return desks(**CALM)


def by_name(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["id"]: one for one in found["results"]}


def test_it_agrees_with_what_was_recorded_when_sessions_were_served(desk: Desk) -> None:
    keys = lived(desk.memory, desk.clock, noted(desk.memory), COUNT)
    found = backtest(desk.memory.services, USER)
    methods = by_name(found)
    assert found["sessions"] == COUNT
    recorded = desk.store.comparisons(USER, ComparisonQuery(limit=100))[::-1]
    for name, wanted in (
        ("baseline", [one.baseline_ndcg for one in recorded]),
        ("predictor", [one.predictor_ndcg for one in recorded]),
        *(
            (
                f"alpha {alpha:g}",
                [(one.baseline_ndcg or 0.0) + one.replay_ndcg[place] for one in recorded],
            )
            for place, alpha in enumerate(ALPHAS)
        ),
    ):
        assert methods[name]["ndcg"]["mean"] == pytest.approx(np.mean(wanted), abs=1e-6), name
        parts = [float(np.mean(part)) for part in np.array_split(np.array(wanted, float), 4)]
        assert methods[name]["quarters"] == pytest.approx(parts, abs=1e-6)
    served = [served_ndcg(desk, key) for key in keys]
    assert methods["served"]["ndcg"]["mean"] == pytest.approx(np.mean(served), abs=1e-6)


def served_ndcg(desk: Desk, key: str) -> float:
    rows = sorted(desk.rows(key).values(), key=lambda row: row.candidate.rank)
    labels = {row.memory_id: row.label for row in rows if row.label is not None}
    found = ndcg_at(list(labels), dict(labels), 10)
    assert found is not None
    return found


def test_every_ranking_has_an_interval_and_says_what_may_be_chance(desk: Desk) -> None:
    lived(desk.memory, desk.clock, noted(desk.memory), COUNT)
    found = backtest(desk.memory.services, USER)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert backtest(desk.memory.services, USER) == found
    names = by_name(found)
    assert {"seed composite", "relevance alone", "learned from the others"} <= set(names)
    verdicts = set()
    for one in found["results"]:
        spread = one["ndcg"]
        assert 0 <= spread["low"] <= spread["mean"] <= spread["high"] <= 1
        assert len(one["quarters"]) == 4
        if one["id"] == "baseline":
            assert one["gain"] is None
            continue
        gain = one["gain"]
        assert gain["low"] <= gain["mean"] <= gain["high"]
        has_zero = gain["low"] <= 0 <= gain["high"]
        assert (one["verdict"] == "unclear") == has_zero
        assert ("chance" in one["statement"] or "exactly" in one["statement"]) == has_zero
        verdicts.add(one["verdict"])
    assert "unclear" in verdicts


def test_a_model_learns_from_other_sessions_only(desk: Desk) -> None:
    """What helps is drawn by lot here: who learned from the sessions themselves would know it."""
    ids = noted(desk.memory)
    rng = np.random.default_rng(5)
    for n in range(COUNT):
        desk.clock.go(hours=3)
        session = desk.memory.session(f"s{n}", context="fix the service")
        session.end(used={ids[int(rng.integers(len(ids)))]: 1.0})
    learned = by_name(backtest(desk.memory.services, USER))["learned from the others"]
    assert learned["ndcg"]["mean"] < 0.8


def test_a_predictor_that_was_silent_is_left_out_where_it_was(desk: Desk) -> None:
    ids = noted(desk.memory)
    admin.switch(desk.memory.services, USER, is_on=False)
    lived(desk.memory, desk.clock, ids, MIN_SESSIONS)
    silent = by_name(backtest(desk.memory.services, USER))
    assert silent["predictor"]["verdict"] == "silent"
    assert silent["predictor"]["ndcg"]["mean"] is None
    assert silent["alpha 0.4"]["quarters"] == [None] * 4
    assert silent["baseline"]["sessions"] == MIN_SESSIONS
    admin.switch(desk.memory.services, USER, is_on=True)
    lived(desk.memory, desk.clock, ids, 2)
    both = by_name(backtest(desk.memory.services, USER))
    assert (both["predictor"]["sessions"], both["baseline"]["sessions"]) == (2, MIN_SESSIONS + 2)


def test_a_few_sessions_say_nothing(desk: Desk) -> None:
    with pytest.raises(Conflict, match="0 judged sessions"):
        backtest(desk.memory.services, USER)
    lived(desk.memory, desk.clock, noted(desk.memory), MIN_SESSIONS)
    assert backtest(desk.memory.services, USER, MIN_SESSIONS)["sessions"] == MIN_SESSIONS
    with pytest.raises(Conflict, match="too few"):
        backtest(desk.memory.services, USER, MIN_SESSIONS - 1)
    with pytest.raises(Conflict, match="0 judged"):
        backtest(desk.memory.services, "somebody else")


@pytest.mark.parametrize("limit", [0, -1, 1_001, True, 5.0, "5", None])
def test_a_limit_is_a_whole_number(desk: Desk, limit: Any) -> None:
    with pytest.raises(InputError, match="limit must be"):
        backtest(desk.memory.services, USER, limit)
