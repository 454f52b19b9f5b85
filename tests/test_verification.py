"""What the list in docs/verification.md asks for and no other test has: small, whole, quick."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from learning_kit import Clock, change, lived, noted, shelved, state
from meritory.api.memory import Memory
from meritory.domain.world import SeededWorld
from meritory.engine.observe.observer import timeline
from meritory.engine.predictor.admin import run_training, train_now
from meritory.model.attention import Attention
from meritory.model.base import RankingQuery, TrainingExample
from meritory.model.fit import FitPlan, fit
from meritory.model.ranker import Ranker
from meritory.ports.scorer import BASE_VERSION, ScoreRequest
from meritory.ports.sidecar import score_line
from meritory.rank.features import FEATURE_VERSION, FEATURES
from meritory.server.auth import OWNER
from meritory.server.routes.observe import pipeline
from meritory.server.table import Call, ServerState, UserQuery
from meritory.settings import load_settings
from meritory.store.sqlite.engine import connect
from places import Chosen

USER = "default"
Open = Callable[..., Memory]


@pytest.fixture
def clock() -> Clock:
    """A clock that goes when told to."""
    return Clock()


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Iterator[Open]:
    """Opens one store; settings are given by their dotted names."""
    monkeypatch.setenv("MERITORY_HOME", str(tmp_path / "home"))
    kept: list[Memory] = []
    chosen = Chosen(monkeypatch)

    def make(**settings: object) -> Memory:
        world = SeededWorld(len(kept), clock)
        path, own = tmp_path / "meritory.db", chosen.settings(**settings)
        kept.append(Memory(path, settings=own, clock=world, background=False))
        return kept[-1]

    yield make
    for memory in kept:
        memory.close()


class Attentive:
    """A scorer that keeps what it was asked and scores by the order it was asked in."""

    name = "features"

    def __init__(self) -> None:
        self.asked: list[ScoreRequest] = []

    def score(self, request: ScoreRequest) -> np.ndarray[Any, np.dtype[np.float64]]:
        self.asked.append(request)
        return np.arange(len(request.memory_ids), dtype=np.float64)

    def close(self) -> None:
        """There is nothing to end."""


def equip(memory: Memory, **parts: Any) -> None:
    memory.backend.services = replace(memory.services, **parts)


# -- what the predictor is asked --------------------------------------------------------------


def test_the_month_is_in_every_request_for_scores(opened: Open, clock: Clock) -> None:
    memory, scorer = opened(), Attentive()
    equip(memory, scorer=scorer)
    noted(memory)
    for month in (1, 4, 7):
        clock.now = datetime(2026, month, 20, 9, 0, tzinfo=UTC)
        memory.session(f"in-{month}", context="fix the alpha service")
    seen = []
    for one in scorer.asked:
        call = json.loads(score_line(1, one))
        packed = base64.b64decode(call["params"]["features_b64"])
        table = np.frombuffer(packed, "<f8").reshape(len(one.memory_ids), len(FEATURES))
        assert (call["jsonrpc"], call["method"]) == ("2.0", "score")
        months = table[:, [FEATURES.index("month_sin"), FEATURES.index("month_cos")]]
        assert (months == months[0]).all()
        seen.append(months[0].tolist())
    # January at the top of the circle, April a quarter on, July half way round.
    assert np.allclose(seen, [[0.0, 1.0], [1.0, 0.0], [0.0, -1.0]])


def test_other_base_weights_are_what_ranks_before_any_training(
    opened: Open, tmp_path: Path
) -> None:
    memory = opened()
    noted(memory)
    plain = memory.session("plain", context="fix the kilo service")
    shelved(memory, 1, weight=-50.0)
    shelves = memory.services.shelves
    assert shelves is not None
    made = shelves.of(USER).path_of(1).rename(tmp_path / "own.sgpt")
    memory.close()

    other = opened(predictor_base_weights=made)
    assert state(other).version == BASE_VERSION
    other.session("other", context="fix the kilo service")
    rows = other.services.store.session_memories(USER, "other")
    cosine = [one.candidate.features[FEATURES.index("cosine")] for one in rows]
    ranks = [one.candidate.predictor_rank for one in rows]
    # These weights want what is least like the context.
    assert ranks[int(np.argmax(cosine))] == len(rows)
    before = other.services.store.session_memories(USER, plain.key)
    assert [one.candidate.predictor_rank for one in before] != ranks


# -- what it learns from ----------------------------------------------------------------------


class Watched(Ranker):
    """The linear scorer, which says which sessions it was trained on."""

    seen: list[TrainingExample]

    def with_params(self, params: Any) -> Watched:
        made = Watched(params)
        made.seen = self.seen
        return made

    def loss_and_grads_of(self, lessons: Sequence[TrainingExample]) -> Any:
        self.seen += lessons
        pairs = [self.loss_and_grads(lesson) for lesson in lessons]
        return sum(loss for loss, _ in pairs), {"weights": sum(g["weights"] for _, g in pairs)}


def _lessons(gains: list[float]) -> list[TrainingExample]:
    rng = np.random.default_rng(1)
    return [
        TrainingExample(
            query=RankingQuery(features=rng.random((4, len(FEATURES)))),
            labels=np.array([gain, 0.0, 0.0, 0.0]),
            weights=np.ones(4),
        )
        for gain in gains
    ]


def test_a_better_session_takes_the_place_of_a_worse_one_in_the_replay() -> None:
    # Old sessions come back as replay only: two places for the best of them.
    plan = FitPlan(epochs=30, batch_count=10, recent_count=8, replay_count=2)
    old, recent = _lessons([0.5, 0.6, 0.7]), _lessons([0.1] * 8)

    def replayed(lessons: list[TrainingExample]) -> set[float]:
        model = Watched(Ranker.untrained().params)
        model.seen = []
        fit(model, lessons, plan, np.random.default_rng(2), lambda: False)
        return {float(one.labels.max()) for one in model.seen} - {0.1}

    assert replayed([*old, *recent]) == {0.6, 0.7}
    assert replayed([*_lessons([0.9]), *old, *recent]) == {0.7, 0.9}
    assert replayed([*_lessons([0.2]), *old, *recent]) == {0.6, 0.7}


def test_two_projects_rank_the_same_candidates_differently() -> None:
    rng = np.random.default_rng(3)
    kinds = rng.standard_normal((2, 8)).astype(np.float32)

    def query(slot: int) -> RankingQuery:
        vectors = np.repeat(kinds, 3, axis=0) + 0.1 * rng.standard_normal((6, 8))
        features = np.zeros((6, len(FEATURES)))
        features[:, FEATURES.index("composite")] = 0.001 * rng.random(6)
        context = np.ones(8, np.float32)
        return RankingQuery(
            features=features,
            context=context,
            vectors=vectors.astype(np.float32),
            project_slot=slot,
        )

    # In project 1 the first kind of memory helps, in project 2 the second.
    helps = {1: np.repeat([1.0, 0.0], 3), 2: np.repeat([0.0, 1.0], 3)}
    lessons = [
        TrainingExample(query=query(slot), labels=helps[slot], weights=np.ones(6))
        for slot in (1, 2) * 60
    ]
    plan = FitPlan(epochs=20, pull=0.0)
    model, _ = fit(Attention.fresh(8, rng), lessons, plan, rng, lambda: False)
    asked = query(1)
    for slot, label in helps.items():
        scores = model.score(replace(asked, project_slot=slot))
        assert scores[label > 0.0].min() > scores[label == 0.0].max(), slot


def test_what_was_tried_out_is_judged_and_learned_from(opened: Open, clock: Clock) -> None:
    memory = opened(predictor_scorer="random", predictor_exploration_rate=0.5)
    noted(memory)
    clock.go(days=2)
    change(memory, standing={"judged": 99, "active_since": 0, "earned_alpha": 0.9})
    store = memory.services.store
    for n in range(40):
        session = memory.session(f"s{n}", context="fix the alpha service")
        rows = store.session_memories(USER, session.key)
        tried = [one.memory_id for one in rows if one.candidate.source == "exploration"]
        session.end(used=dict.fromkeys(tried, 1.0))
        if tried:
            break
    else:
        pytest.fail("nothing was tried out in 40 sessions")
    (taught,) = store.taught_sessions(USER, FEATURE_VERSION, 9)
    assert taught.key == session.key
    assert taught.labels[taught.memory_ids.index(tried[0])] == 1.0
    (row,) = [one for one in store.session_memories(USER, taught.key) if one.memory_id in tried]
    assert row.relevance_score == 1.0
    assert 0.0 < row.candidate.propensity < 1.0


def test_a_model_of_corrupted_sessions_does_not_serve_and_is_written_down(
    opened: Open, clock: Clock, tmp_path: Path
) -> None:
    memory = opened(predictor_train_interval_sessions=10_000)
    lived(memory, clock, noted(memory), 40)
    store = memory.services.store
    assert store.canary_count(USER) >= 3
    # Somebody turned what was learned from upside down, and left the canaries as they were.
    with closing(connect(tmp_path / "meritory.db", write=True)) as connection, connection:
        connection.execute(
            """UPDATE session_memories SET label = CASE WHEN baseline_rank > 12 THEN 1 ELSE 0 END
                WHERE session NOT IN (SELECT session FROM predictor_canary)"""
        )
    before = state(memory)
    train_now(memory.services, USER)
    run_training(memory.services)
    # The first training came by itself after three sessions.
    after, (run, _) = state(memory), store.training_runs(USER, 9)
    assert not run.is_accepted
    refused = {one["name"] for one in run.gates if not one["passed"]}
    assert refused & {"overlap", "drop", "baseline", "best_kept"}
    assert run.canary_ndcg_delta is not None
    assert run.canary_ndcg_delta < 0.0
    assert (after.version, after.failures) == (before.version, before.failures + 1)
    shelves = memory.services.shelves
    assert shelves is not None
    assert run.model_version not in shelves.of(USER).versions()


# -- what is told -----------------------------------------------------------------------------


def test_the_share_of_shown_memories_that_were_hit_is_in_the_comparison(
    opened: Open, clock: Clock
) -> None:
    memory = opened()
    ids = noted(memory)
    session = memory.session("run", context="fix the services")
    session.prompt("what was it about the charlie service and team romeo?")
    rows = memory.services.store.session_memories(USER, "run")
    shown = [one for one in rows if one.handle is not None]
    hit = [one for one in shown if one.fts_hit_count]
    assert 0 < len(hit) < len(shown)
    session.end(used={ids[2]: 1.0})
    found = memory.services.store.comparison(USER, "run")
    assert found is not None
    served = [one for one in rows if one.candidate.was_injected and one.candidate.baseline_rank]
    assert found.fts_overlap_score == sum(one.fts_hit_count > 0 for one in served) / len(served)
    assert found.fts_overlap_score > 0.0


def test_what_the_predictor_did_is_on_the_timeline_and_told_under_its_name(
    opened: Open, clock: Clock
) -> None:
    memory = opened()
    told: list[tuple[str, str]] = []
    memory.services.observer.listen(lambda category, event, details: told.append((category, event)))
    (key, *_) = lived(memory, clock, noted(memory), 20)
    names = [one.name for one in timeline(memory.services, USER, key)]
    of_ranking = ["predictor.prefilter", "predictor.diversity", "predictor.score"]
    assert set(of_ranking) <= set(names)
    # A comparison comes after the session has ended and was learned from.
    places = [names.index(name) for name in ("session.start", "session.end", "predictor.compare")]
    assert places == sorted(places)
    ours = {event for category, event in told if category == "predictor"}
    assert {*of_ranking, "predictor.compare", "predictor.ema_update", "predictor.train"} <= ours
    assert {category for category, event in told if event.startswith("predictor.")} == {"predictor"}


def test_scoring_and_training_are_among_the_latencies(opened: Open, clock: Clock) -> None:
    memory = opened(predictor_train_interval_sessions=10_000)
    lived(memory, clock, noted(memory), 3)
    train_now(memory.services, USER)
    run_training(memory.services)
    found = {one.operation: one for one in memory.services.observer.latencies()}
    # The first training came by itself after three sessions.
    assert (found["predictor_score"].count, found["predictor_train"].count) == (3, 2)
    for one in (found["predictor_score"], found["predictor_train"]):
        assert one.p50_ms is not None and one.p95_ms is not None and one.p99_ms is not None
        assert 0.0 < one.p50_ms <= one.p95_ms <= one.p99_ms


def test_the_worker_that_scores_is_in_the_pipelines_status(tmp_path: Path) -> None:
    # Its process is waited for, however busy the machine is.
    patient = {"MERITORY_PREDICTOR_SCORE_TIMEOUT_MS": "60000"}
    with closing(
        ServerState(load_settings(tmp_path / "home", patient), "http://127.0.0.1:1")
    ) as engine:
        call = Call(engine, OWNER, {}, UserQuery(), None, "r1")
        memory = call.user_memory()
        noted(memory)
        memory.session("run", context="fix the alpha service")
        told = pipeline(call).workers["predictor"]
        assert told.running
        assert told.details["pid"] not in (None, os.getpid())
        assert told.details["model_ready"] is True
        assert told.details["scores_processed"] == 1
        assert told.details["trainings_completed"] == 0
        assert told.details["last_score_latency_ms"] > 0.0
        assert not memory.services.observer.failures()
