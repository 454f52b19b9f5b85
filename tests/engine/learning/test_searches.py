"""Searches within sessions: recorded as served, labelled at the end, and learned from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from session_kit import Desk

from learning_kit import WORDS, change, noted, state
from meritory.domain.predictor import ComparisonQuery
from meritory.engine.predictor.rollback import rollback_any
from meritory.engine.predictor.surfaces import base_weights, ranker_of
from meritory.engine.predictor.train_surface import LEAST_HELD_OUT
from meritory.model.base import RankingQuery
from meritory.model.ranker import baseline_weights
from meritory.rank.search_features import SEARCH_FEATURES, SEARCH_LAYOUT

Desks = Callable[..., Desk]
QUERY = "alpha service port numbers"


@pytest.fixture
def desk(desks: Desks) -> Desk:
    return desks(predictor_train_interval_sessions=1)


def asked(desk: Desk, key: str, used: dict[str, float] | None) -> list[str]:
    """A session with one search, that a program knows the outcome of; returns what it found."""
    desk.clock.go(hours=5)
    session = desk.memory.session(key, context="x")
    found = [hit.id for hit in session.recall(QUERY, 10)]
    # A program that knows is learned from at once.
    session.end(used=used)
    return found


def opened(desk: Desk, weights: np.ndarray[Any, Any], alpha: float) -> None:
    """Gives recall a model and influence."""
    before = state(desk.memory)
    recall = before.surface("recall")
    standing = replace(recall.standing, earned_alpha=alpha, active_since=0, judged=20)
    models = {"1": tuple(weights.tolist())}
    recall = replace(recall, version=1, latest=1, models=models, standing=standing)
    change(desk.memory, surfaces={"recall": recall})


def test_a_search_outside_a_session_is_not_recorded(desk: Desk) -> None:
    noted(desk.memory)
    desk.memory.session("run", context="x")
    assert desk.memory.recall(QUERY)
    assert desk.memory.recall(QUERY, session="no such session")
    assert desk.memory.services.store.searches(desk.memory.scope.user, "run") == []


def test_a_search_is_recorded_as_it_was_served(desk: Desk) -> None:
    noted(desk.memory)
    plain = [hit.id for hit in desk.memory.recall(QUERY, 5)]
    session = desk.memory.session("run", context="x")
    assert [hit.id for hit in session.recall(QUERY, 5)] == plain
    store, user = desk.memory.services.store, desk.memory.scope.user
    (search,) = store.searches(user, "run")
    assert [search.memory_ids[place] for place in search.shown] == plain
    assert list(search.memory_ids[:5]) == plain
    # What training reads gives the very ranks that were served.
    model = ranker_of(state(desk.memory).surface("recall"))
    scores = model.score(RankingQuery(features=search.table))
    ranked = np.argsort(-scores, kind="stable")
    assert [search.predictor_ranks[place] for place in ranked] == sorted(search.predictor_ranks)
    assert set(plain) <= set(store.fetched(user, "run")) | {
        row.memory_id for row in store.shown(user, "run")
    }


def test_what_a_search_found_can_be_rated_by_its_id(desk: Desk) -> None:
    noted(desk.memory)
    session = desk.memory.session("run", context="x")
    found = [hit.id for hit in session.recall(QUERY, 3)]
    taken = session.rate({found[0]: 1.0, found[1]: 0.0, found[2]: 0.0})
    assert len(taken.taken) == 3
    assert not taken.refused
    session.end()
    desk.memory.drain()
    store, user = desk.memory.services.store, desk.memory.scope.user
    (search,) = store.searches(user, "run")
    labels = dict(zip(search.memory_ids, search.labels, strict=True))
    assert labels[found[0]] is not None
    assert labels[found[0]] > 0.5
    assert labels[found[1]] == 0.0
    assert search.predictor_won is not None


def test_recall_learns_what_this_user_needs(desk: Desk) -> None:
    # Words tell the first of the notes that help, and only age tells the others from newer ones.
    old = noted(desk.memory)
    desk.clock.go(days=40)
    desk.memory.remember_many(
        {"content": f"The {word} service has port {5000 + n}", "on_similar": "keep"}
        for n, word in enumerate(f"{word}{word}" for word in WORDS)
    )
    wanted = old[:3]
    before = desk.memory.recall(QUERY, 40)
    first = [hit.id for hit in before].index(wanted[2])
    for number in range(16):
        asked(desk, f"run-{number}", {memory_id: 1.0 for memory_id in wanted})
    recall = state(desk.memory).surface("recall")
    assert recall.alpha < 1.0
    assert recall.version > 0
    after = [hit.id for hit in desk.memory.recall(QUERY, 40)]
    assert set(after[:3]) == set(wanted)
    assert after.index(wanted[2]) < first
    store, user = desk.memory.services.store, desk.memory.scope.user
    assert store.search_comparisons(user, "recall", ComparisonQuery(winner="predictor"))
    run = store.training_runs(user, 1, "recall")[0]
    assert (run.surface, run.is_accepted) == ("recall", True)
    assert not state(desk.memory).surface("prompt").models


def test_a_few_held_out_searches_refuse_no_model(desk: Desk) -> None:
    ids = noted(desk.memory)
    for number in range(30):
        asked(desk, f"run-{number}", {ids[0]: 1.0, ids[1]: 1.0})
    store, user = desk.memory.services.store, desk.memory.scope.user
    run = store.training_runs(user, 1, "recall")[0]
    assert 0 < run.skipped_count < LEAST_HELD_OUT
    values = {gate["name"]: gate["value"] for gate in run.gates}
    # Those that it was fitted to examine it crosswise; the held-out ones are too few to compare.
    assert values["canary"] > run.skipped_count
    assert values["best_kept"] is None
    assert values["drop"] is None


def test_a_model_of_other_features_gives_way_to_the_base(desk: Desk) -> None:
    ids = noted(desk.memory)
    plain = [hit.id for hit in desk.memory.recall(QUERY, 5)]
    opened(desk, -np.ones(SEARCH_LAYOUT.width - 2), 0.1)
    session = desk.memory.session("run", context="x")
    assert [hit.id for hit in session.recall(QUERY, 5)] == plain
    (search,) = desk.memory.services.store.searches(desk.memory.scope.user, "run")
    assert (search.model_version, search.alpha) == (0, 1.0)
    # The next model is learned from such searches.
    for number in range(4):
        asked(desk, f"later-{number}", {ids[0]: 1.0})
    recall = state(desk.memory).surface("recall")
    assert recall.version > 1
    assert len(recall.models[str(recall.version)]) == SEARCH_LAYOUT.width


def test_with_labels_drawn_by_lot_the_formula_serves_alone(desk: Desk) -> None:
    ids = noted(desk.memory)
    rng = np.random.default_rng(3)
    for number in range(16):
        drawn = rng.choice(len(ids), 2, replace=False).tolist()
        asked(desk, f"run-{number}", {ids[at]: 1.0 for at in drawn})
        assert state(desk.memory).surface("recall").alpha == 1.0


def test_a_session_that_is_labelled_again_counts_once(desk: Desk) -> None:
    ids = noted(desk.memory)
    asked(desk, "run", {ids[0]: 1.0})
    judged = state(desk.memory).surface("recall").standing.judged
    user, store = desk.memory.scope.user, desk.memory.services.store
    store.write(user, lambda t: t.requeue_job(user, "finish-session", "run", desk.clock.now))
    desk.memory.drain()
    assert state(desk.memory).surface("recall").standing.judged == judged == 1


def test_a_model_moves_what_it_prefers(desk: Desk) -> None:
    noted(desk.memory)
    plain = [hit.id for hit in desk.memory.recall(QUERY, 20)]
    weights = -baseline_weights(SEARCH_LAYOUT)
    opened(desk, weights, 0.05)
    moved = [hit.id for hit in desk.memory.recall(QUERY, 20)]
    assert sorted(moved) == sorted(plain)
    assert moved[-1] == plain[0]
    assert moved.index(plain[-1]) < 10
    opened(desk, weights, 1.0)
    assert [hit.id for hit in desk.memory.recall(QUERY, 20)] == plain


def test_without_its_model_the_formula_serves_alone(desk: Desk) -> None:
    noted(desk.memory)
    plain = [hit.id for hit in desk.memory.recall(QUERY, 20)]
    opened(desk, -np.ones(SEARCH_LAYOUT.width), 0.05)
    recall = replace(state(desk.memory).surface("recall"), models={})
    change(desk.memory, surfaces={"recall": recall})
    assert [hit.id for hit in desk.memory.recall(QUERY, 20)] == plain
    counts = desk.memory.services.observer.failure_counts()
    assert any(stage == "predictor_search" for stage, _ in counts)


def test_switching_the_predictor_off_switches_recall_off(desk: Desk) -> None:
    noted(desk.memory)
    plain = [hit.id for hit in desk.memory.recall(QUERY, 20)]
    opened(desk, -baseline_weights(SEARCH_LAYOUT), 0.05)
    change(desk.memory, is_enabled=False)
    assert [hit.id for hit in desk.memory.recall(QUERY, 20)] == plain


def test_an_earlier_model_can_serve_again(desk: Desk) -> None:
    noted(desk.memory)
    opened(desk, -baseline_weights(SEARCH_LAYOUT), 0.05)
    run = rollback_any(desk.memory.services, desk.memory.scope.user, "recall")
    assert (run.surface, run.model_version) == ("recall", 0)
    recall = state(desk.memory).surface("recall")
    assert (recall.version, recall.alpha) == (0, 1.0)


def test_prompts_are_recorded_on_their_own_surface(desk: Desk) -> None:
    ids = noted(desk.memory)
    session = desk.memory.session("run", context="something else entirely")
    session.prompt("hello there")
    served = session.prompt("what port does the quebec service have?")
    store, user = desk.memory.services.store, desk.memory.scope.user
    searches = store.searches(user, "run")
    assert served.memories
    assert [one.surface for one in searches] == ["prompt"]
    (search,) = searches
    shown = {search.memory_ids[place] for place in search.shown}
    assert shown == {one.id for one in served.memories}
    session.end(used={ids[WORDS.index("quebec")]: 1.0})
    whole = state(desk.memory)
    assert whole.surface("prompt").fresh_sessions == 1
    assert whole.surface("recall").fresh_sessions == 0


def test_why_tells_where_a_search_had_a_memory(desk: Desk) -> None:
    ids = noted(desk.memory)
    session = desk.memory.session("run", context="x")
    found = [hit.id for hit in session.recall(QUERY, 5)]
    told = desk.memory.why(found[1], "run")
    (search,) = told["searches"]
    assert (search["surface"], search["formula_rank"], search["was_shown"]) == ("recall", 2, True)
    assert {one["name"] for one in search["features"]} == set(SEARCH_FEATURES)
    added = sum(one["adds"] for one in search["features"])
    model = ranker_of(state(desk.memory).surface("recall"))
    store, user = desk.memory.services.store, desk.memory.scope.user
    (record,) = store.searches(user, "run")
    assert model.score(RankingQuery(features=record.table))[1] == pytest.approx(added)
    assert ids


def test_the_base_knows_nothing_of_age() -> None:
    assert base_weights()[SEARCH_FEATURES.index("log_age_days")] == 0.0
    assert base_weights()[SEARCH_LAYOUT.baseline] > 0.0
