"""The predictor's records: kept whole, found by every filter, and nobody's but their user's."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.builders import EMBEDDER, NOW, indexed, insert, memory_id, record, unit
from contract.comparisons import EXCLUDED, comparison, put
from contract.sessions import KEY, USER, begin, candidate, session, verdict
from contract.shelf import Shelf
from meritory.domain.errors import MeritoryError, NotFound
from meritory.domain.predictor import (
    Comparison,
    ComparisonQuery,
    Rated,
    Slice,
    TaughtSession,
    TrainingRun,
)
from meritory.domain.session import Labelled
from meritory.rank.features import FEATURE_VERSION, FEATURES
from meritory.rank.influence import ALPHAS
from meritory.store.contract.store import Transaction
from meritory.store.sqlite.engine import StoreReader
from meritory.store.sqlite.store import SqliteStore

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
OTHER = "ann"


@pytest.fixture
def shelf(tmp_path: Path) -> Any:
    held = Shelf(tmp_path, lambda folder: SqliteStore(folder / "meritory.db"))
    yield held
    held.store.close()


def bare(found: Comparison | None) -> Comparison:
    assert found is not None
    assert found.number is not None
    return replace(found, number=None)


def run(version: int = 1, **values: Any) -> TrainingRun:
    """A training that went well."""
    usual: dict[str, Any] = {
        "at": NOW,
        "model_version": version,
        "scorer": "features",
        "reason": "interval",
        "loss": 1.25,
        "sample_count": 20,
        "skipped_count": 5,
        "duration_ms": 12.5,
        "is_accepted": True,
    }
    return TrainingRun(**{**usual, **values})


# -- the state --------------------------------------------------------------------------------


def test_the_state_is_kept_by_user(shelf: Shelf) -> None:
    store = shelf.store
    assert store.predictor_state(USER) is None
    store.write(USER, lambda t: t.set_predictor_state(USER, "old"))
    store.write(OTHER, lambda t: t.set_predictor_state(OTHER, "hers"))

    def work(transaction: Transaction) -> None:
        transaction.set_predictor_state(USER, "new")
        # As this transaction sees it.
        assert transaction.predictor_state(USER) == "new"

    store.write(USER, work)
    for opened in shelf.before_and_after_reopening():
        assert opened.predictor_state(USER) == "new"
        assert opened.predictor_state(OTHER) == "hers"
        assert opened.predictor_state("nobody") is None


def test_a_state_that_was_not_committed_is_not_there(store: SqliteStore) -> None:
    def work(transaction: Transaction) -> None:
        transaction.set_predictor_state(USER, "never")
        raise NotFound("changed its mind")

    with pytest.raises(NotFound):
        store.write(USER, work)
    assert store.predictor_state(USER) is None


# -- comparisons ------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [{}, EXCLUDED, {"predictor_won": 0.5}])
def test_a_comparison_is_kept_whole(shelf: Shelf, values: Mapping[str, Any]) -> None:
    made = comparison(**values)
    put(shelf.store, made)
    for store in shelf.before_and_after_reopening():
        assert bare(store.comparison(USER, KEY)) == made
        assert [bare(one) for one in store.comparisons(USER, ComparisonQuery())] == [made]
    assert made.margin == (0.25 if made.predictor_ndcg is not None else None)


def test_a_comparison_is_replaced_and_not_doubled(store: SqliteStore) -> None:
    put(store, comparison())
    before = store.comparison(USER, KEY)
    later = comparison(at=NOW + DAY, predictor_won=0.0, predictor_ndcg=0.25, reason="again")
    put(store, later)
    found = store.comparison(USER, KEY)
    assert bare(found) == later
    assert found is not None and before is not None
    assert found.number == before.number
    assert len(store.comparisons(USER, ComparisonQuery())) == 1
    assert len(store.record(USER, "features", 9).ndcg) == 1
    assert store.slices(USER, 9) == [Slice("shop", 1, 0.45)]


def test_every_filter_finds_what_it_asks_for(store: SqliteStore) -> None:
    put(
        store,
        comparison("win", at=NOW + MINUTE),
        comparison("loss", at=NOW + 2 * MINUTE, predictor_won=0.0, predictor_ndcg=0.4),
        comparison("tie", at=NOW + 3 * MINUTE, predictor_won=0.5, predictor_ndcg=0.5),
        comparison("out", at=NOW + 4 * MINUTE, **EXCLUDED),
        # Counted once, left out since.
        comparison("was", at=NOW + 5 * MINUTE, **{**EXCLUDED, "ema_updated": True}),
    )

    def keys(**query: Any) -> list[str]:
        return [one.session_key for one in store.comparisons(USER, ComparisonQuery(**query))]

    assert keys() == ["was", "out", "tie", "loss", "win"]
    assert keys(winner="predictor") == ["win"]
    assert keys(winner="baseline") == ["loss"]
    assert keys(winner="tie") == ["tie"]
    assert keys(ema_updated=True) == ["was", "tie", "loss", "win"]
    assert keys(ema_updated=False) == ["out"]
    # On either side.
    assert keys(min_margin=0.05) == ["loss", "win"]
    assert keys(min_margin=0.2) == ["win"]
    assert keys(min_margin=0.0) == ["tie", "loss", "win"]
    assert keys(since=NOW + 3 * MINUTE) == ["was", "out", "tie"]
    assert keys(until=NOW + 2 * MINUTE) == ["loss", "win"]
    assert keys(since=NOW + 2 * MINUTE, until=NOW + 3 * MINUTE) == ["tie", "loss"]
    assert keys(limit=2) == ["was", "out"]
    assert keys(limit=2, offset=3) == ["loss", "win"]
    assert keys(winner="predictor", since=NOW + 2 * MINUTE) == []


def test_equal_moments_keep_the_order_in_which_they_came(store: SqliteStore) -> None:
    put(store, *(comparison(f"s{n}") for n in range(4)))
    found = store.comparisons(USER, ComparisonQuery())
    assert [one.session_key for one in found] == ["s3", "s2", "s1", "s0"]


def test_the_record_holds_the_latest_that_count_oldest_first(store: SqliteStore) -> None:
    count = len(ALPHAS)
    assert store.record(USER, "features", 9).ndcg.shape == (0, count)
    put(
        store,
        *(
            comparison(f"s{n}", at=NOW + n * MINUTE, replay_ndcg=(n / 10,) * count)
            for n in range(5)
        ),
        comparison("out", at=NOW + DAY, **EXCLUDED),
        comparison("was", at=NOW + DAY, **{**EXCLUDED, "ema_updated": True}),
        # Made with other weights of the fusion, by another version of this program.
        comparison("old", at=NOW + DAY, replay_ndcg=(0.5, 0.5)),
    )
    found = store.record(USER, "features", 4)
    # Of the latest four that count one says nothing about the present weights.
    assert found.ndcg[:, 0].tolist() == [0.2, 0.3, 0.4]
    assert found.log_rank.shape == (3, count)
    assert found.log_rank[0].tolist() == [-n / 10 for n in range(count)]
    assert len(store.record(OTHER, "features", 9).ndcg) == 0


def test_kinds_of_scorers_are_not_mixed(store: SqliteStore) -> None:
    put(store, *(comparison(f"s{n}", scorer=kind) for n, kind in enumerate(("a", "b", "a"))))
    assert [len(store.record(USER, kind, 9).ndcg) for kind in ("a", "b", "c")] == [2, 1, 0]


# -- trainings --------------------------------------------------------------------------------


def test_trainings_are_kept_whole_the_latest_first(shelf: Shelf) -> None:
    full = run(
        2,
        is_accepted=False,
        canary_ndcg=0.5,
        canary_ndcg_delta=-0.25,
        canary_score_variance=0.125,
        canary_topk_churn=0.4,
        gates=[{"name": "drop", "passed": False, "value": -0.25, "limit": -0.15, "note": "down"}],
        train_validation_failures=3,
        drift_resets=2,
        error="it was killed",
        reason="drift",
    )
    failed = run(3, loss=None)
    for one in (run(1), full, failed):
        shelf.store.write(USER, lambda t, one=one: t.add_training_run(USER, one))
    for store in shelf.before_and_after_reopening():
        found = store.training_runs(USER, 9)
        assert [replace(one, gates=list(one.gates)) for one in found] == [
            replace(one, gates=list(one.gates)) for one in (failed, full, run(1))
        ]
        assert [one.model_version for one in store.training_runs(USER, 1)] == [3]
        assert store.training_runs(OTHER, 9) == []


# -- canaries ---------------------------------------------------------------------------------


def served(number: int, **fields_: Any) -> Any:
    """A candidate with features of the present version."""
    table = tuple(float(number * 100 + place) for place in range(len(FEATURES)))
    values = {
        "baseline_rank": number,
        "predictor_rank": 9 - number,
        "features": table,
        "feature_version": FEATURE_VERSION,
        **fields_,
    }
    return candidate(number, **values)


def teach(store: SqliteStore, key: str, user: str = USER, **fields_: Any) -> None:
    """A whole session of two candidates of which the first helped."""

    def work(transaction: Transaction) -> None:
        transaction.open_session(session(key, user, **fields_))
        transaction.put_candidates(user, key, [served(1), served(2)])
        transaction.put_verdict(user, key, verdict(), [])
        labels = [
            Labelled(memory_id(1), 0.8, {"rule": "judged"}),
            Labelled(memory_id(2), None, {"rule": "unjudged"}),
        ]
        transaction.put_labels(user, key, labels, {})

    store.write(user, work)


def taught(store: SqliteStore, user: str = USER, limit: int = 99) -> list[TaughtSession]:
    return store.taught_sessions(user, FEATURE_VERSION, limit)


def canaries(store: SqliteStore, user: str = USER) -> list[str]:
    return [one.key for one in taught(store, user) if one.is_canary]


def choose(store: SqliteStore, key: str, at: int, limit: int = 3, user: str = USER) -> None:
    store.write(user, lambda t: t.choose_canary(user, key, NOW + at * MINUTE, limit))


def test_canaries_above_the_limit_retire_the_oldest_first(shelf: Shelf) -> None:
    store = shelf.store
    for n in range(5):
        teach(store, f"s{n}", started_at=NOW + n * DAY)
        choose(store, f"s{n}", n)
    for store in shelf.before_and_after_reopening():
        assert canaries(store) == ["s2", "s3", "s4"]
        assert store.canary_count(USER) == 3
        assert len(taught(store)) == 5
    # Choosing one again changes nothing, and one that retired stays so: it was learned from.
    choose(store, "s2", 50)
    choose(store, "s0", 51)
    assert canaries(store) == ["s2", "s3", "s4"]
    # Not even by a detour.
    store.write(USER, lambda t: t.drop_canary(USER, "s0"))
    choose(store, "s0", 52)
    assert canaries(store) == ["s2", "s3", "s4"]


def test_a_canary_that_no_longer_counts_is_dropped(store: SqliteStore) -> None:
    for n in range(2):
        teach(store, f"s{n}")
        choose(store, f"s{n}", n)
    store.write(USER, lambda t: t.drop_canary(USER, "s0"))
    store.write(USER, lambda t: t.drop_canary(USER, "unknown"))
    assert canaries(store) == ["s1"]
    assert store.canary_count(USER) == 1
    choose(store, "s0", 5)
    assert store.canary_count(USER) == 2


def test_one_users_canaries_are_no_business_of_another(store: SqliteStore) -> None:
    for n in range(4):
        teach(store, f"s{n}", started_at=NOW + n * DAY)
        choose(store, f"s{n}", n, limit=25)
    teach(store, "hers", OTHER)
    # Neither by a key of another user nor by one that nobody has.
    choose(store, "s0", 9, limit=1, user=OTHER)
    choose(store, "hers", 9, limit=1)
    choose(store, "unknown", 9, limit=25)
    assert store.canary_count(OTHER) == 0
    assert canaries(store, OTHER) == []
    assert store.canary_count(USER) == 1
    store.write(OTHER, lambda t: t.drop_canary(OTHER, "s3"))
    assert canaries(store) == ["s3"]


# -- calibration ------------------------------------------------------------------------------


def offered(number: int, key: str = KEY, at: int = 0, label: float = 0.5) -> Rated:
    return Rated(key, memory_id(number), label, NOW + at * MINUTE)


def test_people_are_asked_once_and_their_word_is_kept(shelf: Shelf) -> None:
    store = shelf.store
    begin(store)
    store.write(USER, lambda t: t.offer_calibration(USER, [offered(1), offered(2, at=1)]))
    again = [offered(1, at=9, label=-1.0), offered(3, at=2)]
    store.write(USER, lambda t: t.offer_calibration(USER, again))
    said = replace(offered(2), human_label=-0.5, rated_at=NOW + DAY)
    store.write(USER, lambda t: t.rate_calibration(USER, said))
    for store in shelf.before_and_after_reopening():
        assert store.calibration(USER, 9) == [
            offered(3, at=2),
            replace(offered(2, at=1), human_label=-0.5, rated_at=NOW + DAY),
            offered(1),
        ]
        assert store.calibration(USER, 1) == [offered(3, at=2)]


def test_only_what_was_offered_is_rated(store: SqliteStore) -> None:
    begin(store)
    begin(store, user=OTHER)
    store.write(USER, lambda t: t.offer_calibration(USER, [offered(1)]))
    # A session that is not there is not asked about.
    store.write(USER, lambda t: t.offer_calibration(USER, [offered(1, key="unknown")]))
    assert store.calibration(USER, 9) == [offered(1)]
    assert store.calibration(OTHER, 9) == []
    for user, one in ((USER, offered(2)), (USER, offered(1, key="unknown")), (OTHER, offered(1))):
        rated = replace(one, human_label=1.0, rated_at=NOW)
        with pytest.raises(NotFound):
            store.write(user, lambda t, user=user, rated=rated: t.rate_calibration(user, rated))
    assert store.calibration(USER, 9) == [offered(1)]


# -- what is learned from ---------------------------------------------------------------------


def test_a_taught_session_is_as_it_was_served(shelf: Shelf) -> None:
    teach(
        shelf.store,
        KEY,
        project="shop",
        context="fix the löḡin",
        embedder=EMBEDDER.name,
        context_vector=unit(1, 2, 3, 4),
    )
    for store in shelf.before_and_after_reopening():
        (found,) = taught(store)
        assert (found.key, found.started_at, found.project) == (KEY, NOW, "shop")
        assert (found.context, found.embedder) == ("fix the löḡin", EMBEDDER.name)
        assert found.context_vector is not None
        assert found.context_vector == pytest.approx(unit(1, 2, 3, 4), abs=4e-3)
        assert found.memory_ids == (memory_id(1), memory_id(2))
        assert found.features.tolist() == [list(served(n).features) for n in (1, 2)]
        assert found.labels[0] == 0.8
        assert np.isnan(found.labels[1])
        assert found.rules == ("judged", "unjudged")
        assert found.was_injected.tolist() == [False, False]
        assert found.baseline_ranks.tolist() == [1, 2]
        assert found.predictor_ranks.tolist() == [8, 7]
        assert not found.is_canary
    teach(store, "plain")
    plain = taught(store)[-1]
    assert (plain.context_vector, plain.embedder, plain.project) == (None, None, None)


def test_the_latest_sessions_are_taught_oldest_first(store: SqliteStore) -> None:
    for n in (2, 0, 3, 1):
        teach(store, f"s{n}", started_at=NOW + n * DAY)
    assert [one.key for one in taught(store)] == ["s0", "s1", "s2", "s3"]
    assert [one.key for one in taught(store, limit=2)] == ["s2", "s3"]
    assert taught(store, OTHER) == []


def test_sessions_that_do_not_count_are_never_taught(store: SqliteStore) -> None:
    def spoil(key: str, work: Callable[[Transaction], object]) -> None:
        teach(store, key)
        store.write(USER, work)

    label = [Labelled(memory_id(1), 0.0, {}), Labelled(memory_id(2), -1.0, {})]
    unclear = verdict(excluded="the judge was not sure", confidence=0.2)
    spoil("excluded", lambda t: t.put_verdict(USER, "excluded", unclear, []))
    spoil("barren", lambda t: t.put_labels(USER, "barren", label, {}))
    old = [served(1, feature_version=FEATURE_VERSION - 1)]
    spoil("old", lambda t: t.put_candidates(USER, "old", old))
    begin(store, 1, key="open")
    assert [one.key for one in taught(store)] == []
    # What nobody judged at all is not taught either, be it labelled.
    begin(store, 1, key="unjudged")
    told = [Labelled(memory_id(1), 1.0, {"rule": "known"})]
    store.write(USER, lambda t: t.put_labels(USER, "unjudged", told, {}))
    assert taught(store) == []


def test_what_came_in_by_a_hit_is_never_taught(store: SqliteStore) -> None:
    insert(store, *(record(n) for n in range(1, 5)))
    teach(store, KEY)

    def work(transaction: Transaction) -> None:
        transaction.add_hits(USER, KEY, [memory_id(3)])
        # Shown on a prompt: it is no hit any more, but it has no place in the ranking either.
        late = candidate(4, rank=0, was_injected=True)
        transaction.add_candidates(USER, KEY, [late])
        told = [Labelled(memory_id(n), 1.0, {"rule": "hit"}) for n in (3, 4)]
        transaction.put_labels(USER, KEY, told, {})

    store.write(USER, work)
    (found,) = taught(store)
    assert found.memory_ids == (memory_id(1), memory_id(2))
    # A session in which nothing else helped says nothing about a ranking.
    store.write(
        USER,
        lambda t: t.put_labels(USER, KEY, [Labelled(memory_id(1), 0.0, {"rule": "judged"})], {}),
    )
    assert taught(store) == []


# -- purge ------------------------------------------------------------------------------------


def test_a_purge_takes_what_people_and_sessions_said_about_a_memory(shelf: Shelf) -> None:
    store = shelf.store
    for user in (USER, OTHER):
        insert(store, *(record(n, user=user) for n in (1, 2)))
        teach(store, KEY, user)
        put(store, comparison(), user=user)
        store.write(user, lambda t, user=user: t.offer_calibration(user, [offered(1), offered(2)]))
    store.write(USER, lambda t: t.purge(USER, memory_id(1)))
    for store in shelf.before_and_after_reopening():
        found = store.comparison(USER, KEY)
        assert found is not None
        assert dict(found.relevance_scores) == {memory_id(2): -0.25}
        assert [one.memory_id for one in store.calibration(USER, 9)] == [memory_id(2)]
        # All that helped is gone, so nothing is left to learn from.
        assert taught(store) == []
        # The other user's memory of the same id stays.
        hers = store.comparison(OTHER, KEY)
        assert hers is not None
        assert set(hers.relevance_scores) == {memory_id(1), memory_id(2)}
        assert len(store.calibration(OTHER, 9)) == 2
        assert len(taught(store, OTHER)) == 1


# -- whose it is ------------------------------------------------------------------------------


def test_comparisons_of_the_same_key_are_each_users_own(store: SqliteStore) -> None:
    put(store, comparison())
    put(store, comparison(predictor_won=0.0, alpha=0.4), user=OTHER)
    mine, hers = store.comparison(USER, KEY), store.comparison(OTHER, KEY)
    assert bare(mine).alpha == 0.8
    assert bare(hers).alpha == 0.4
    assert [one.predictor_won for one in store.comparisons(OTHER, ComparisonQuery())] == [0.0]
    assert store.comparison("nobody", KEY) is None


def test_nobody_compares_a_session_of_another(store: SqliteStore) -> None:
    put(store, comparison("mine"))
    with pytest.raises((MeritoryError, sqlite3.IntegrityError)):
        store.write(OTHER, lambda t: t.put_comparison(OTHER, comparison("mine", alpha=0.1)))
    assert bare(store.comparison(USER, "mine")).alpha == 0.8
    assert store.comparisons(OTHER, ComparisonQuery()) == []


# -- who only looks ---------------------------------------------------------------------------


def test_a_reader_sees_what_the_store_sees_and_cannot_write(shelf: Shelf) -> None:
    store = shelf.store
    store.register_embedder(EMBEDDER)
    vectors = {EMBEDDER.name: unit(1, 2, 3, 4)}
    insert(store, indexed(record(1, "one"), vectors=vectors), record(2, "two"))
    insert(store, indexed(record(3, "hers", user=OTHER), vectors=vectors))
    teach(store, KEY)
    reader = StoreReader(shelf.folder / "meritory.db")
    try:
        (mine,), (theirs,) = taught(store), reader.taught_sessions(USER, FEATURE_VERSION, 9)
        for item in fields(TaughtSession):
            left, right = getattr(mine, item.name), getattr(theirs, item.name)
            if isinstance(left, np.ndarray):
                assert np.array_equal(left, right, equal_nan=left.dtype.kind == "f")
            else:
                assert left == right
        every = [memory_id(n) for n in range(1, 5)]
        found = reader.vectors(USER, EMBEDDER.name, every)
        assert list(found) == [memory_id(1)]
        assert found[memory_id(1)] == pytest.approx(unit(1, 2, 3, 4), abs=4e-3)
        assert reader.vectors(USER, "unknown", every) == {}
        assert reader.texts(USER, every) == {memory_id(1): "one", memory_id(2): "two"}
        # What is written meanwhile is seen.
        teach(store, "more")
        assert len(reader.taught_sessions(USER, FEATURE_VERSION, 9)) == 2
        connection = reader._connection
        for attempt in (
            "DELETE FROM memories",
            "CREATE TABLE mine (x)",
            "INSERT INTO predictor_state VALUES ('x', 'y')",
            "PRAGMA user_version = 9",
        ):
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                connection.execute(attempt)
    finally:
        reader.close()
    assert len(store.memories(USER, [memory_id(1), memory_id(2)])) == 2


def test_a_reader_of_what_is_not_there_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(MeritoryError):
        StoreReader(tmp_path / "none.db").taught_sessions(USER, FEATURE_VERSION, 1)
    assert list(tmp_path.iterdir()) == []
