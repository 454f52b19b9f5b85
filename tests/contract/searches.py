"""The searches of sessions: kept as served, labelled once, trained on, and forgotten."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np

from contract.builders import NOW, indexed, insert, memory_id, record
from contract.sessions import USER, begin, candidate
from meritory.domain.predictor import ComparisonQuery, RankedSearch
from meritory.rank.influence import ALPHAS
from meritory.rank.search_features import SEARCH_FEATURE_VERSION, SEARCH_FEATURES
from meritory.store.contract.store import Store

MINUTE = timedelta(minutes=1)
IDS = (memory_id(1), memory_id(2), memory_id(3))


def searched(minute: int = 0, **values: Any) -> RankedSearch:
    """A search with three candidates, of which the first two were returned."""
    usual: dict[str, Any] = {
        "surface": "recall",
        "at": NOW + minute * MINUTE,
        "model_version": 2,
        "alpha": 0.5,
        "feature_version": SEARCH_FEATURE_VERSION,
        "memory_ids": IDS,
        "shown": (1, 0),
        "predictor_ranks": (2, 1, 3),
        "features": np.arange(3.0 * len(SEARCH_FEATURES)) / 4,
    }
    return RankedSearch(**{**usual, **values})


def judged(search: RankedSearch, won: float | None = 1.0) -> RankedSearch:
    """The same search after its session was labelled."""
    return replace(
        search,
        labels=(1.0, 0.0, None),
        predictor_ndcg=0.75,
        baseline_ndcg=0.5,
        predictor_won=won,
        reason=None if won is not None else "nothing helped",
        success_rate=0.55,
        alpha_after=0.4,
        replay_ndcg=tuple(n / 10 for n in range(len(ALPHAS))),
        replay_log_rank=tuple(-n / 10 for n in range(len(ALPHAS))),
    )


def kept(store: Store, key: str, *searches: RankedSearch) -> list[RankedSearch]:
    """Begins a session, records searches in it, and returns what was kept."""
    begin(store, key=key, started_at=NOW)
    for one in searches:
        store.write(USER, lambda t, one=one: t.add_search(USER, key, one))
    return store.searches(USER, key)


class Searches:
    def test_a_search_comes_back_as_it_was_served(self, store: Store) -> None:
        (found,) = kept(store, "run", searched())
        assert found.number == 1
        assert np.array_equal(found.table, searched().table)
        names = ("surface", "at", "alpha", "memory_ids", "shown", "predictor_ranks", "labels")
        for name in names:
            assert getattr(found, name) == getattr(searched(), name)

    def test_the_searches_of_a_session_are_numbered_and_counted(self, store: Store) -> None:
        found = kept(store, "run", searched(), searched(1, surface="prompt"))
        assert [(one.number, one.surface) for one in found] == [(1, "recall"), (2, "prompt")]
        assert store.searches_count(USER, "run") == 2
        assert store.searches_count("ann", "run") == 0
        assert store.searches("ann", "run") == []

    def test_a_labelled_search_is_taught_by_surface(self, store: Store) -> None:
        first, second = kept(store, "run", searched(1), searched(surface="prompt"))
        (third,) = kept(store, "other", searched())

        def label(transaction: Any) -> None:
            transaction.put_search(USER, "run", judged(first))
            transaction.put_search(USER, "run", judged(second))
            transaction.put_search(USER, "other", judged(third, won=None))

        store.write(USER, label)
        (taught,) = store.taught_searches(USER, "recall", SEARCH_FEATURE_VERSION, 10)
        assert taught.key == "run#1"
        assert taught.labels[:2].tolist() == [1.0, 0.0]
        assert np.isnan(taught.labels[2])
        # The third was neither returned nor judged.
        assert taught.rules == ("", "", "unjudged")
        assert taught.was_injected.tolist() == [True, True, False]
        assert store.taught_searches(USER, "recall", SEARCH_FEATURE_VERSION + 1, 10) == []
        assert store.search_record(USER, "recall", 10).ndcg.tolist() == [
            list(judged(first).replay_ndcg)
        ]
        assert len(store.search_record(USER, "prompt", 10).ndcg) == 1

    def test_comparisons_of_searches_are_filtered(self, store: Store) -> None:
        first, second, _ = kept(store, "run", searched(), searched(1), searched(2))
        marked = [judged(first), judged(second, won=None)]
        for one in marked:
            store.write(USER, lambda t, one=one: t.put_search(USER, "run", one))

        def numbers(**wanted: Any) -> list[int | None]:
            query = ComparisonQuery(**wanted)
            return [one.number for one in store.search_comparisons(USER, "recall", query)]

        # Without labels there is nothing to compare.
        assert numbers() == [2, 1]
        assert numbers(winner="predictor") == [1]
        assert numbers(winner="baseline") == []
        assert numbers(ema_updated=False) == [2]
        assert numbers(min_margin=0.3) == []
        assert numbers(since=NOW + MINUTE) == [2]
        assert numbers(limit=1, offset=1) == [1]
        (found,) = store.search_comparisons(USER, "recall", ComparisonQuery(winner="predictor"))
        assert found.predictor_top_ids == (IDS[1], IDS[0], IDS[2])
        assert found.relevance_scores == {IDS[0]: 1.0, IDS[1]: 0.0}

    def test_what_an_agent_searched_for_counts_as_shown_without_a_handle(
        self, store: Store
    ) -> None:
        begin(store, key="run", started_at=NOW)

        def work(transaction: Any) -> None:
            transaction.add_candidates(USER, "run", [candidate(1), candidate(2)])
            transaction.add_search(USER, "run", searched(), [IDS[0]])

        store.write(USER, work)
        assert store.fetched(USER, "run") == [IDS[0]]
        assert store.shown(USER, "run") == []

    def test_a_purge_leaves_numbers_and_no_id(self, store: Store) -> None:
        insert(store, *(indexed(record(n)) for n in (1, 2, 3)))
        kept(store, "run", searched())
        store.write(USER, lambda t: t.purge(USER, IDS[1]))
        (found,) = store.searches(USER, "run")
        assert found.memory_ids == (IDS[0], "", IDS[2])
        assert found.table.shape == (3, len(SEARCH_FEATURES))
