"""Trainings: what is ordered, what comes of it, and that nothing of it stops the serving."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from predictor_kit import (
    USER,
    VALID,
    Preferring,
    Told,
    comparison,
    drain,
    earned,
    finish,
    held,
    set_state,
    state,
    train_jobs,
)
from session_kit import Desk, filler

from meritory.domain.errors import BadReply, PortError, PortTimeout
from meritory.domain.place import Place
from meritory.domain.predictor import TaughtSession
from meritory.engine.jobs.runner import JobEvent, JobRunner, queue_job
from meritory.engine.pipeline import TRAIN, job_handler
from meritory.engine.predictor import train_job
from meritory.engine.predictor.state import SHADOW_SESSIONS, TRAIN_JOB, TRAIN_KEY
from meritory.engine.predictor.train import Workshop, lesson_of, train
from meritory.model.base import RankingQuery
from meritory.model.canary import LEAST_SESSIONS, is_canary
from meritory.model.checkpoint import KEPT_COUNT, restored
from meritory.model.ranker import Ranker, fitted
from meritory.ports.scorer import LocalScorer, ModelFolders
from meritory.ports.trainer_process import (
    SpawnedTrainer,
    TrainOrder,
    TrainReport,
    decode,
    encode,
)
from meritory.rank.features import FEATURE_VERSION, FEATURES
from meritory.rank.influence import HistoryProof
from meritory.rank.labels import HARM_WEIGHT
from meritory.store import open_reader
from places import Places

CONTEXT = "which item weighs most, in stone?"


@pytest.fixture
def items(desks: Callable[..., Desk]) -> Desk:
    desk = desks(embedder_kind="none")
    desk.note(*filler(30))
    desk.clock.go(days=3)
    return desk


def ask(desk: Desk, reason: str = "asked") -> None:
    now = desk.clock.now
    desk.store.write("default", lambda t: train_job.order(t, USER, reason, now))


def shelves(desk: Desk) -> ModelFolders:
    scorer = desk.memory.services.scorer
    assert isinstance(scorer, LocalScorer)
    return scorer._shelves


# -- orders -----------------------------------------------------------------------------------


def test_what_is_ordered_comes_from_the_state(desks: Callable[..., Desk]) -> None:
    desk = desks(predictor_rrf_k=30)
    trainer = Told()
    desk.equip(trainer=trainer)
    set_state(desk, version=3, latest=5, best=2)
    ask(desk, "drift")
    drain(desk)
    serving = desk.store.serving_embedder()
    assert trainer.orders == [
        TrainOrder(
            user=USER,
            scorer="features",
            version=6,
            incumbent=3,
            best=2,
            reason="drift",
            at=desk.clock.now,
            embedder=None if serving is None else serving.name,
            rrf_k=30,
            after_reset=True,
        )
    ]


def test_ordering_twice_is_one_training(items: Desk) -> None:
    desk, trainer = items, Told()
    desk.equip(trainer=trainer)
    ask(desk)
    ask(desk, "interval")
    assert [one.state for one in train_jobs(desk)] == ["queued"]
    assert drain(desk) == 1
    assert [one.reason for one in trainer.orders] == ["asked"]
    assert drain(desk) == 0
    # The next one is a new order on the same job.
    ask(desk, "interval")
    assert drain(desk) == 1
    assert [one.reason for one in trainer.orders] == ["asked", "interval"]
    assert len(train_jobs(desk)) == 1


def test_a_job_without_an_order_does_nothing(items: Desk) -> None:
    desk, trainer = items, Told()
    desk.equip(trainer=trainer)
    now = desk.clock.now
    desk.store.write("default", lambda t: queue_job(t, USER, TRAIN_JOB, TRAIN_KEY, now))
    before = state(desk)
    assert drain(desk) == 1
    assert trainer.orders == []
    assert state(desk) == before
    assert desk.store.training_runs(USER, 9) == []


# -- what comes of it -------------------------------------------------------------------------


def test_an_accepted_model_takes_over(items: Desk) -> None:
    desk = items
    gate = {"name": "drop", "passed": True, "value": 0.1, "limit": -0.15, "note": "up"}
    trainer = Told(
        canary_ndcg=0.75,
        canary_ndcg_delta=0.1,
        canary_score_variance=0.5,
        canary_topk_churn=0.2,
        gates=(gate,),
    )
    desk.equip(trainer=trainer)
    set_state(desk, trial_sessions=7, trial_wins=3.0, fresh_sessions=12, version=0, failures=2)
    ask(desk)
    drain(desk)
    now = state(desk)
    assert (now.version, now.previous, now.latest, now.best) == (1, 0, 1, 1)
    assert (now.best_ndcg, now.last_loss, now.last_trained_at) == (0.75, 2.5, desk.clock.now)
    assert (now.trial_sessions, now.trial_wins, now.fresh_sessions) == (0, 0.0, 0)
    assert (now.order_reason, now.shadow_left, now.failures) == (None, 0, 2)
    (run,) = desk.store.training_runs(USER, 9)
    assert (run.model_version, run.scorer, run.reason, run.is_accepted) == (
        1,
        "features",
        "asked",
        True,
    )
    assert (run.sample_count, run.skipped_count, run.loss) == (20, 5, 2.5)
    assert (run.canary_ndcg, run.canary_ndcg_delta) == (0.75, 0.1)
    assert (run.canary_score_variance, run.canary_topk_churn) == (0.5, 0.2)
    assert list(run.gates) == [gate]
    assert (run.train_validation_failures, run.error) == (2, None)
    # One that is worse than the best one, within what is allowed, is not the best one.
    trainer.report |= {"canary_ndcg": 0.7, "canary_ndcg_delta": -0.05, "canary_best_delta": -0.05}
    ask(desk)
    drain(desk)
    assert (state(desk).version, state(desk).best, state(desk).best_ndcg) == (2, 1, 0.75)
    # Nor is one that only betters the one before: the bar does not sink step by step.
    trainer.report |= {"canary_ndcg": 0.72, "canary_ndcg_delta": 0.02, "canary_best_delta": -0.03}
    ask(desk)
    drain(desk)
    assert (state(desk).version, state(desk).best, state(desk).best_ndcg) == (3, 1, 0.75)
    assert trainer.orders[-1].best == 1
    trainer.report |= {"canary_ndcg": 0.8, "canary_ndcg_delta": 0.08, "canary_best_delta": 0.05}
    ask(desk)
    drain(desk)
    assert (state(desk).version, state(desk).best, state(desk).best_ndcg) == (4, 4, 0.8)


def test_a_refused_model_leaves_the_incumbent(items: Desk) -> None:
    desk = items
    gate = {"name": "baseline", "passed": False, "value": -0.3, "limit": -0.02, "note": "worse"}
    desk.equip(trainer=Told(is_accepted=False, gates=(gate,)))
    set_state(desk, standing=earned(), version=4, latest=4, previous=3, trial_sessions=6)
    set_state(desk, history=VALID)
    before = state(desk)
    ask(desk)
    drain(desk)
    now = state(desk)
    assert (now.version, now.previous, now.best, now.history) == (4, 3, before.best, VALID)
    assert (now.standing, now.trial_sessions) == (before.standing, 6)
    assert (now.failures, now.fresh_sessions, now.order_reason) == (1, 0, None)
    # Its number is spent all the same.
    assert now.latest == 5
    (run,) = desk.store.training_runs(USER, 9)
    assert (run.is_accepted, run.train_validation_failures) == (False, 1)


def test_an_accepted_training_weighs_the_record_at_once(items: Desk) -> None:
    """It stands on all sessions on record, so nobody has to wait for the next one."""
    desk = items
    order = desk.memory.session("look", context=CONTEXT).ranking[::-2]
    desk.equip(trainer=None)
    for n, wanted in enumerate(order[:12]):
        desk.equip(scorer=Preferring(wanted))
        held(desk, f"s{n}", [wanted])
    set_state(desk, standing=earned(active_since=None, earned_alpha=1.0, judged=12))
    desk.equip(trainer=Told())
    # As long as labels are not valid, a record of wins proves nothing.
    ask(desk)
    drain(desk)
    assert (state(desk).version, state(desk).alpha) == (1, 1.0)
    set_state(desk, history=VALID)
    heard: list[tuple[str, Any]] = []
    desk.memory.services.observer.listen(lambda _, name, told: heard.append((name, told)))
    ask(desk)
    drain(desk)
    assert state(desk).alpha < 1.0
    assert [name for name, _ in heard] == [
        "predictor.train",
        "predictor.swap",
        "predictor.cold_start_exit",
    ]
    assert heard[2][1]["alpha"] == state(desk).alpha
    # And what is no longer proved goes at once too.
    set_state(desk, history=HistoryProof())
    ask(desk)
    drain(desk)
    assert state(desk).alpha == 1.0


def test_another_kind_of_scorer_starts_in_the_shadow(desks: Callable[..., Desk]) -> None:
    desk = desks(predictor_scorer="attention")
    desk.note(*filler(10))
    desk.equip(trainer=Told(), scorer=Preferring())
    set_state(desk, standing=earned())
    assert state(desk).alpha == 0.2
    ask(desk)
    drain(desk)
    now = state(desk)
    assert (now.scorer, now.previous_scorer, now.shadow_left) == (
        "attention",
        "features",
        SHADOW_SESSIONS,
    )
    assert now.alpha == 1.0
    desk.memory.session("run", context=CONTEXT)
    assert desk.record("run").alpha == 1.0
    set_state(desk, shadow_left=3)
    ask(desk)
    drain(desk)
    # The same kind again: it is neither watched anew nor let off the rest.
    assert (state(desk).version, state(desk).shadow_left) == (2, 3)


# -- what goes wrong --------------------------------------------------------------------------


def dying(*command: str) -> SpawnedTrainer:
    """The real thing with another process at its end."""
    trainer = SpawnedTrainer(Place(file=Path("store")), ModelFolders(Path("models"), Path("base")))
    trainer._command = [sys.executable, "-c", *command]
    return trainer


KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
FAILED = "import sys; sys.stderr.write('no room'); sys.exit(3)"


@pytest.mark.parametrize(
    ("trainer", "code", "told"),
    [
        (dying(KILLED), "port", "ended with -9"),
        (dying(FAILED), "port", "no room"),
        (dying("print('garbage')"), "bad_reply", "cannot be read"),
        (dying("print('{}')"), "bad_reply", "cannot be read"),
        (Told(PortTimeout("took too long")), "port_timeout", "took too long"),
        (Told(PortError("no process")), "port", "no process"),
        (Told(BadReply("half a report")), "bad_reply", "half a report"),
    ],
)
def test_a_training_that_fails_is_counted_and_serving_goes_on(
    items: Desk, trainer: Any, code: str, told: str
) -> None:
    desk = items
    before = desk.memory.session("before", context=CONTEXT)
    desk.equip(trainer=trainer)
    set_state(desk, fresh_sessions=10)
    ask(desk)
    assert drain(desk) == 1
    assert desk.failures() == [("predictor_train_failure", code)]
    (run,) = desk.store.training_runs(USER, 9)
    assert (run.is_accepted, run.loss, run.sample_count) == (False, None, 0)
    assert told in str(run.error)
    now = state(desk)
    assert (now.version, now.failures, now.order_reason, now.fresh_sessions) == (0, 1, None, 0)
    after = desk.memory.session("after", context=CONTEXT)
    assert set(after.ranking) == set(before.ranking)
    assert desk.record("after").scorer == "features"
    # The next one is not held up by it.
    desk.equip(trainer=Told())
    ask(desk)
    drain(desk)
    assert state(desk).version == 2


def test_nothing_is_imported_from_where_an_agent_works(
    items: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python looks in the present folder first unless it is told not to."""
    trap, marker = tmp_path / "project", tmp_path / "was here"
    trap.mkdir()
    for name in ("numpy", "meritory", "json"):
        (trap / f"{name}.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
    monkeypatch.chdir(trap)
    held(items, "run", [items.memory.session("look", context=CONTEXT).ranking[0]])
    ask(items)
    drain(items)
    (run,) = items.store.training_runs(USER, 9)
    assert run.error is None
    assert not marker.exists()


@pytest.mark.parametrize("is_committed", [False, True])
def test_kill_9_around_the_effect_is_harmless(
    desks: Callable[..., Desk], places: Places, is_committed: bool
) -> None:
    desk = desks(embedder_kind="none")
    desk.note(*filler(5))
    ask(desk)
    desk.memory.close()
    child = os.fork()
    if child == 0:
        try:
            memory = places.memory(project="shop", clock=desk.clock, background=False)
            mine = Desk(memory, desk.clock)
            mine.equip(trainer=Told())
            services = memory.services

            def observe(event: JobEvent) -> None:
                os.kill(os.getpid(), signal.SIGKILL)

            ((stage, work),) = job_handler(services, TRAIN)

            def killed(job: Any) -> Any:
                effect = work(job)

                def both(transaction: Any) -> None:
                    effect(transaction)
                    os.kill(os.getpid(), signal.SIGKILL)

                return both

            handler = ((stage, work if is_committed else killed),)
            JobRunner(services.store, services.world, {TRAIN_JOB: handler}, observe).drain()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL
    again = desks(embedder_kind="none")
    assert state(again).version == int(is_committed)
    trainer = Told()
    again.equip(trainer=trainer)
    again.clock.go(minutes=10)
    assert drain(again) == 1
    # It is trained once more only when nothing had come of it, and under the same number.
    assert [one.version for one in trainer.orders] == ([] if is_committed else [1])
    assert (state(again).version, state(again).latest) == (1, 1)
    assert len(again.store.training_runs(USER, 9)) == 1
    assert [one.state for one in train_jobs(again)] == ["done"]


# -- what is learned from ---------------------------------------------------------------------


def test_training_sees_the_features_as_they_were_served(items: Desk) -> None:
    """Bit for bit: what is trained on is what was scored, through the store and back."""
    desk = items
    scorer = Preferring()
    desk.equip(scorer=scorer)
    session = desk.memory.session("run", context=CONTEXT)
    finish(desk, "run", {session.ranking[3]: 1.0})
    drain(desk)
    (request,) = scorer.seen
    reader = open_reader(desk.store.place)
    try:
        for source in (desk.store, reader):
            (taught,) = source.taught_sessions(USER, FEATURE_VERSION, 9)
            places = [request.memory_ids.index(one) for one in taught.memory_ids]
            assert sorted(places) == list(range(len(request.memory_ids)))
            assert taught.features.tobytes() == request.features[places].tobytes()
            assert taught.features.shape[1] == len(FEATURES)
            assert request.feature_version == FEATURE_VERSION
    finally:
        reader.close()


def a_life(desk: Desk, count: int) -> None:
    """Sessions in which always another two helped."""
    trainer = desk.memory.services.trainer
    desk.equip(trainer=None)
    ids = sorted(one.id for one in desk.memory.page(99))
    for n in range(count):
        held(desk, f"s{n}", [ids[n % 7], ids[(3 * n) % 11]], f"item {n % 7} in stone")
        desk.clock.go(hours=5)
    desk.equip(trainer=trainer)


def order_of(desk: Desk, version: int = 1, **values: Any) -> TrainOrder:
    usual: dict[str, Any] = {
        "user": USER,
        "scorer": "features",
        "version": version,
        "incumbent": 0,
        "best": 0,
        "reason": "asked",
        "at": desk.clock.now,
        # As the first model of a user is ordered.
        "after_reset": True,
    }
    return TrainOrder(**{**usual, **values})


def trained(desk: Desk, order: TrainOrder) -> TrainReport:
    """In this process, by a reader as the trainer has one."""
    reader = open_reader(desk.store.place)
    try:
        return train(
            Workshop(reader, shelves(desk), desk.memory.services.world.monotonic_ms), order
        )
    finally:
        reader.close()


def test_canaries_are_never_trained_on(items: Desk, places: Places) -> None:
    desk = items
    a_life(desk, 30)
    desk.clock.go(days=1)
    taught = desk.store.taught_sessions(USER, FEATURE_VERSION, 99)
    canaries = {one.key for one in taught if one.is_canary}
    assert canaries == {f"s{n}" for n in range(30) if is_canary(USER, f"s{n}")}
    assert 3 <= len(canaries) < 10
    order = order_of(desk, version=50)
    report = trained(desk, order)
    assert (report.sample_count, report.skipped_count) == (30 - len(canaries), len(canaries))
    assert report.is_accepted, report.gates
    model = restored(shelves(desk).of(USER).get(50))
    assert isinstance(model, Ranker)
    assert (model.weights != model.prior).any()
    lessons = [
        lesson_of(one, RankingQuery(features=one.features)) for one in taught if not one.is_canary
    ]
    mine, loss = fitted(lessons, model.prior)
    assert model.weights == pytest.approx(mine.weights, abs=1e-9)
    assert report.loss == pytest.approx(loss)
    # Whatever the canaries say, the same comes out.
    places.execute(
        """UPDATE session_memories SET label = 1.0 - label WHERE session IN
            (SELECT session FROM predictor_canary WHERE retired_at IS NULL)"""
    )
    again = trained(desk, order_of(desk, version=51))
    assert again.loss == report.loss
    assert again.canary_ndcg != report.canary_ndcg


def test_a_model_that_may_not_serve_is_not_kept(items: Desk) -> None:
    desk = items
    a_life(desk, LEAST_SESSIONS - 1)
    report = trained(desk, order_of(desk, version=7))
    assert not report.is_accepted
    assert next(one["name"] for one in report.gates if not one["passed"]) == "canary"
    assert shelves(desk).of(USER).versions() == []


def test_sessions_that_are_no_canaries_examine_a_model_too(items: Desk) -> None:
    """Each by a model that learned from the others: the first models need not wait for canaries."""
    desk = items
    a_life(desk, 4)
    assert desk.store.canary_count(USER) == 0
    report = trained(desk, order_of(desk, version=7))
    assert report.is_accepted, report.gates
    known = {str(one["name"]): one["value"] for one in report.gates}
    assert known["canary"] == 4.0
    assert isinstance(known["baseline"], float)
    assert known["drop"] is None
    assert (report.canary_ndcg, report.sample_count, report.skipped_count) == (None, 4, 0)


def test_the_shelf_keeps_the_incumbent_and_three_before_it(items: Desk) -> None:
    desk = items
    a_life(desk, 30)
    shelf = shelves(desk).of(USER)
    base = shelves(desk).checkpoint(USER, 0)
    for version in range(60, 66):
        shelf.put(replace(base, model_version=version))
    # The one that serves is not the latest: somebody went back to it.
    assert trained(desk, order_of(desk, version=66, incumbent=64, best=64)).is_accepted
    assert shelf.versions() == [66, 65, 64, 63, 62, 61]
    assert len([one for one in shelf.versions() if one < 64]) == KEPT_COUNT


def test_a_model_that_is_gone_is_survived_and_replaced(items: Desk) -> None:
    """A restored store without its models: the base stands in, and a successor is trained."""
    desk = items
    a_life(desk, 30)
    desk.tune(train_interval_sessions=10)
    set_state(desk, version=3, latest=3, fresh_sessions=0)
    best = desk.memory.session("look", context=CONTEXT).ranking[0]
    assert (desk.record("look").scorer, desk.record("look").model_version) == ("features", 0)
    assert desk.failures() == []
    for n in range(10):
        found = held(desk, f"late {n}", [best])
        assert found.model_version == 0
        desk.clock.go(hours=5)
    assert state(desk).version == 4
    held(desk, "after", [best])
    assert comparison(desk, "after").scorer == "features"


def test_users_have_each_their_own_shelf(items: Desk) -> None:
    kept = shelves(items)
    long = "a" * 150
    names = ["ann", "Ann", "a/../b", "ü", long, f"{long}b", f"{long}c"]
    folders = [kept.of(name).folder for name in names]
    assert len(set(folders)) == len(names)
    for folder in folders:
        assert folder.parent == kept.folder
        assert len(folder.name) <= 200


# -- between processes ------------------------------------------------------------------------


def test_orders_and_reports_travel_whole(items: Desk) -> None:
    order = order_of(items, embedder="static-256", rrf_k=3, after_reset=True)
    assert decode(encode(order), TrainOrder) == order
    report = TrainReport(
        version=3,
        scorer="features",
        is_accepted=True,
        sample_count=9,
        skipped_count=2,
        duration_ms=1.5,
        loss=0.5,
        canary_ndcg=0.25,
        gates=({"name": "drop", "passed": True, "value": None},),
        error=None,
    )
    assert decode(encode(report), TrainReport) == report
    for text in ("", "[]", "{}", "null", json.dumps({"gates": [], "more": 1})):
        with pytest.raises(BadReply):
            decode(text, TrainReport)


def test_the_process_trains_what_this_one_would(items: Desk) -> None:
    desk = items
    a_life(desk, 30)
    ask(desk)
    drain(desk)
    (run,) = desk.store.training_runs(USER, 9)
    assert (run.is_accepted, run.error, run.model_version) == (True, None, 1)
    mine = trained(desk, order_of(desk, version=2))
    assert run.loss == pytest.approx(mine.loss)
    assert run.sample_count == mine.sample_count
    theirs, ours = (restored(shelves(desk).of(USER).get(version)) for version in (1, 2))
    # But for the order of sums, which depends on the threads.
    assert theirs.params["weights"] == pytest.approx(ours.params["weights"], abs=1e-9)
    for told, said in zip(run.gates, mine.gates, strict=True):
        assert (told["name"], told["limit"]) == (said["name"], said["limit"])
    told, said = (
        next(one for one in gates if one["name"] == "baseline") for gates in (run.gates, mine.gates)
    )
    assert told["value"] == pytest.approx(said["value"], abs=1e-6)
    # And it is what scores from now on.
    desk.memory.session("next", context=CONTEXT)
    assert desk.record("next").model_version == 1


def a_session(labelled: int, unjudged: int, silent: int) -> TaughtSession:
    """One with candidates that were judged, that nobody saw, and that nobody could judge."""
    count = labelled + unjudged + silent
    table = np.zeros((count, len(FEATURES)))
    # Every other one is near the context.
    table[:, FEATURES.index("cosine")] = np.where(np.arange(count) % 2, 0.61, 0.6)
    labels = np.full(count, np.nan)
    labels[:labelled] = np.linspace(-1.0, 1.0, labelled)
    rules = ["judged"] * labelled + ["unjudged"] * unjudged + ["no_evidence"] * silent
    return TaughtSession(
        key="run",
        started_at=datetime(2026, 3, 2, tzinfo=UTC),
        project=None,
        context="",
        embedder=None,
        context_vector=None,
        memory_ids=tuple(f"m{n}" for n in range(count)),
        features=table,
        labels=labels,
        rules=tuple(rules),
        was_injected=np.zeros(count, np.bool_),
        baseline_ranks=np.arange(1, count + 1),
        predictor_ranks=np.zeros(count, np.int64),
        is_canary=False,
    )


def test_some_of_what_nobody_saw_are_soft_negatives() -> None:
    session = a_session(labelled=4, unjudged=30, silent=5)
    lesson = lesson_of(session, RankingQuery(features=session.features))
    assert lesson.labels[:4].tolist() == session.labels[:4].tolist()
    # What did harm stands in the list several times.
    harm = np.array([1.0, 1.0 / 3.0, 0.0, 0.0])
    assert lesson.weights[:4] == pytest.approx(1.0 + HARM_WEIGHT * harm)
    # Three for each label, at a quarter of the weight; those near the context are less negative.
    soft = np.flatnonzero(lesson.weights == 0.25)
    assert len(soft) == 12
    assert set(soft) < set(range(4, 34))
    assert lesson.labels[soft].tolist() == [0.25 if place % 2 else 0.0 for place in soft]
    # All others are left out, and the same ones every time.
    left = np.setdiff1d(np.arange(4, 39), soft)
    assert not lesson.weights[left].any()
    assert np.isfinite(lesson.labels).all()
    again = lesson_of(session, RankingQuery(features=session.features))
    assert again.weights.tolist() == lesson.weights.tolist()
    other = lesson_of(replace(session, key="other"), RankingQuery(features=session.features))
    assert other.weights.tolist() != lesson.weights.tolist()
    few = a_session(labelled=4, unjudged=2, silent=0)
    assert lesson_of(few, RankingQuery(features=few.features)).weights[4:].tolist() == [0.25] * 2
