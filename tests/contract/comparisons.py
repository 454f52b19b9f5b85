"""The predictor's comparisons, and the success rates that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from contract.builders import NOW, memory_id
from contract.sessions import KEY, USER, session
from meritory.domain.predictor import Comparison, Slice
from meritory.rank.influence import ALPHAS
from meritory.store.contract.store import Store, Transaction

MINUTE = timedelta(minutes=1)


def comparison(key: str = KEY, **values: Any) -> Comparison:
    """A comparison that the predictor won."""
    usual: dict[str, Any] = {
        "session_key": key,
        "at": NOW,
        "project": "shop",
        "scorer": "features",
        "model_version": 3,
        "predictor_ndcg": 0.75,
        "baseline_ndcg": 0.5,
        "predictor_won": 1.0,
        "scorer_confidence": 0.9,
        "reason": None,
        "ema_updated": True,
        "success_rate": 0.55,
        "alpha": 0.8,
        "predictor_top_ids": (memory_id(1), memory_id(2)),
        "baseline_top_ids": (memory_id(2), memory_id(1)),
        "relevance_scores": {memory_id(1): 1.0, memory_id(2): -0.25},
        "fts_overlap_score": 0.5,
        "replay_ndcg": tuple(n / 10 for n in range(len(ALPHAS))),
        "replay_log_rank": tuple(-n / 10 for n in range(len(ALPHAS))),
    }
    return Comparison(**{**usual, **values})


EXCLUDED: Mapping[str, Any] = {
    "predictor_won": None,
    "predictor_ndcg": None,
    "baseline_ndcg": None,
    "reason": "nothing helped",
    "ema_updated": False,
    "fts_overlap_score": None,
    "scorer": None,
    "model_version": None,
    "project": None,
    "replay_ndcg": (),
    "replay_log_rank": (),
}


def put(store: Store, *made: Comparison, user: str = USER) -> None:
    """Stores comparisons, opening the sessions they are about."""

    def work(transaction: Transaction) -> None:
        for one in made:
            transaction.open_session(session(one.session_key, user))
            transaction.put_comparison(user, one)

    store.write(user, work)


class Comparisons:
    def test_every_project_has_a_moving_average_of_its_own(self, store: Store) -> None:
        made = [("shop", 1.0), ("den", 1.0), ("shop", 0.5), (None, 0.0), ("shop", 0.0), (None, 1.0)]
        compared = [
            comparison(f"s{n}", at=NOW + n * MINUTE, project=name, predictor_won=won)
            for n, (name, won) in enumerate(made)
        ]
        # Stored in another order than they were made in.
        put(store, *reversed(compared), comparison("out", **{**EXCLUDED, "project": "den"}))
        rates = {
            "shop": ((0.5 * 0.9 + 0.1) * 0.9 + 0.05) * 0.9,
            None: 0.5 * 0.9 * 0.9 + 0.1,
            "den": 0.5 * 0.9 + 0.1,
        }
        found = store.slices(USER, 9)
        counts = [("shop", 3), (None, 2), ("den", 1)]
        assert [(one.project, one.session_count) for one in found] == counts
        assert {one.project: one.success_rate for one in found} == pytest.approx(rates)
        assert store.slices(USER, 1) == found[:1]
        assert store.slices("ann", 9) == []

    def test_one_session_moves_the_rate_of_its_project_by_a_tenth(self, store: Store) -> None:
        put(store, comparison(project="birds", predictor_won=1.0))
        assert store.slices(USER, 9) == [Slice("birds", 1, pytest.approx(0.55))]
